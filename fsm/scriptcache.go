package fsm

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/tidwall/btree"
)

// Bounds of the script cache. Scripts that came with EVAL make room for others,
// the oldest first, as they do in Redis since 7.4: a program that builds a script
// for every call must not fill the memory of all nodes. Those of SCRIPT LOAD stay
// until SCRIPT FLUSH.
const (
	maxScriptBytes  = 1 << 20
	maxScriptCache  = 32 << 20
	maxEvalScripts  = 500
	scriptOverhead  = 256 // of a cached script, beside its text
	msgScriptCache  = "ERR script cache is full (32 MiB), use SCRIPT FLUSH"
	msgScriptLength = "ERR script is longer than 1 MiB"
)

// SHA1 returns the name of a script: 40 lower-case hexadecimal digits.
func SHA1(script []byte) string {
	sum := sha1.Sum(script)
	return hex.EncodeToString(sum[:])
}

// scriptCache holds the scripts that EVALSHA finds. It is state like the keys:
// replicated, and in snapshots, so that a script outlives the leader.
type scriptCache struct {
	bodies *btree.Map[string, cachedScript] // by SHA1
	evals  *btree.Map[Pos, string]          // SHA1s of those that may go, by age
	bytes  int
}

type cachedScript struct {
	body   string
	at     Pos  // log position at which it came, unique among the scripts
	pinned bool // by SCRIPT LOAD
}

func newScriptCache() scriptCache {
	return scriptCache{bodies: new(btree.Map[string, cachedScript]), evals: new(btree.Map[Pos, string])}
}

// fork returns a copy whose further life is its own, in O(1).
func (s *scriptCache) fork() scriptCache {
	return scriptCache{s.bodies.Copy(), s.evals.Copy(), s.bytes}
}

// Scripts returns the number of cached scripts and the bytes that they take.
func (m *Machine) Scripts() (n, bytes int) { return m.scripts.bodies.Len(), m.scripts.bytes }

func (s *scriptCache) get(sha string) (body string, known bool) {
	e, known := s.bodies.Get(sha)
	return e.body, known
}

// add puts a script into the cache and says whether there is room. changed is
// false if it was there before, as it is now.
func (s *scriptCache) add(sha, body string, at Pos, pinned bool) (changed, ok bool) {
	if e, known := s.bodies.Get(sha); known {
		if e.pinned || !pinned {
			return false, true
		}
		s.remove(sha, e)
		at = e.at
	}
	for s.bytes+len(body)+scriptOverhead > maxScriptCache || !pinned && s.evals.Len() >= maxEvalScripts {
		_, oldest, found := s.evals.Min()
		if !found {
			return false, false
		}
		e, _ := s.bodies.Get(oldest)
		s.remove(oldest, e)
	}
	for taken := true; taken; {
		if _, taken = s.evals.Get(at); taken {
			at++
		}
	}
	s.bodies.Set(sha, cachedScript{body, at, pinned})
	if !pinned {
		s.evals.Set(at, sha)
	}
	s.bytes += len(body) + scriptOverhead
	return true, true
}

func (s *scriptCache) remove(sha string, e cachedScript) {
	s.bodies.Delete(sha)
	if !e.pinned {
		s.evals.Delete(e.at)
	}
	s.bytes -= len(e.body) + scriptOverhead
}

// appendScript writes a script for a snapshot.
func appendScript(b []byte, e cachedScript) []byte {
	b = append(b, recordScript, 0)
	if e.pinned {
		b[len(b)-1] = 1
	}
	b = binary.AppendUvarint(b, uint64(e.at))
	return appendString(b, e.body)
}

// script reads what appendScript wrote behind the kind of the record.
func (l *snapshotLoader) script(d *decoder) error {
	pinned, at, body := d.byte(), Pos(d.uvarint()), d.bytes()
	if d.err != nil {
		return fmt.Errorf("script: %w", d.err)
	}
	sha := SHA1(body)
	if pinned > 1 {
		return fmt.Errorf("script %s with mark %d: %w", sha, pinned, ErrFormat)
	}
	if changed, ok := l.m.scripts.add(sha, string(body), at, pinned == 1); !changed || !ok {
		return fmt.Errorf("script %s twice, or too many scripts: %w", sha, ErrFormat)
	}
	l.objects++ // the count at the end is of keys and scripts
	return nil
}
