package fsm

import (
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/tidwall/btree"
)

// These limits bound the script cache. From FeatureScriptCache on, a new script
// evicts the scripts that were not used for the longest time, no matter whether
// EVAL or SCRIPT LOAD added them. A program that builds a new script for every
// call, or loads scripts without end, must neither fill the memory of all nodes
// nor keep the scripts of other programs out of the cache. Before
// FeatureScriptCache, only scripts of EVAL were evicted, the oldest first; those of
// SCRIPT LOAD stayed until SCRIPT FLUSH.
const (
	maxScriptBytes  = 1 << 20
	maxScriptCache  = 32 << 20
	maxEvalScripts  = 500
	scriptOverhead  = 256 // of a cached script, besides its text
	msgScriptCache  = "ERR script cache is full (32 MiB), use SCRIPT FLUSH"
	msgScriptLength = "ERR script is longer than 1 MiB"
)

// SHA1 returns the SHA1 of a script in 40 lower-case hexadecimal digits, by
// which EVALSHA names it.
func SHA1(script []byte) string {
	sum := sha1.Sum(script)
	return hex.EncodeToString(sum[:])
}

// These are ages, in nanoseconds of the lease clock. A use of a script updates
// the recorded time of its last use only if that is older: the update changes
// the state. Read-only scripts do not go through the log, so their uses update
// it less often.
const (
	scriptUseEvery     = int64(60e9)
	scriptReadUseEvery = int64(600e9)
)

// scriptCache contains the scripts that EVALSHA can call. Like the keys, it is
// part of the state: it is replicated, and snapshots contain it, so scripts
// survive a change of leader.
type scriptCache struct {
	bodies *btree.Map[string, cachedScript] // by SHA1
	evals  *btree.BTreeG[scriptUse]         // scripts of EVAL, least recently used first
	loaded *btree.BTreeG[scriptUse]         // scripts of SCRIPT LOAD, in the same order
	bytes  int
}

type cachedScript struct {
	body   string
	at     Pos   // log position at which it was added, unique among the scripts
	pinned bool  // added by SCRIPT LOAD
	used   int64 // lease clock of the last recorded use, 0 before FeatureScriptCache
}

// scriptUse is the position of a script in the order of use.
type scriptUse struct {
	used int64
	at   Pos
	sha  string
}

func newScriptCache() scriptCache {
	order := func() *btree.BTreeG[scriptUse] {
		return btree.NewBTreeGOptions(func(a, b scriptUse) bool {
			return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.at, b.at)) < 0
		}, btree.Options{NoLocks: true})
	}
	return scriptCache{bodies: new(btree.Map[string, cachedScript]), evals: order(), loaded: order()}
}

// clone returns an independent copy. It takes O(1).
func (s *scriptCache) clone() scriptCache {
	return scriptCache{s.bodies.Copy(), s.evals.IsoCopy(), s.loaded.IsoCopy(), s.bytes}
}

// Scripts returns the number of cached scripts and the bytes that they take.
func (m *Machine) Scripts() (n, bytes int) { return m.scripts.bodies.Len(), m.scripts.bytes }

func (s *scriptCache) get(sha string) (body string, known bool) {
	e, known := s.bodies.Get(sha)
	return e.body, known
}

// stale reports whether a use of a script must be recorded: the script is not
// in the cache, or its last recorded use is at least every nanoseconds ago.
func (s *scriptCache) stale(sha string, now, every int64) bool {
	e, known := s.bodies.Get(sha)
	return !known || now-e.used >= every
}

// add puts a script into the cache. ok is false if there is no room. changed is
// false if the cache already contains it in the same way. now is the lease
// clock from FeatureScriptCache on, and 0 before.
func (s *scriptCache) add(sha, body string, at Pos, pinned bool, now int64) (changed, ok bool) {
	used := now
	if e, known := s.bodies.Get(sha); known {
		renew := now != 0 && now-e.used >= scriptUseEvery
		if (e.pinned || !pinned) && !renew {
			return false, true
		}
		s.remove(sha, e)
		at, pinned = e.at, pinned || e.pinned
		if !renew {
			used = e.used
		}
	}
	for s.bytes+len(body)+scriptOverhead > maxScriptCache || !pinned && s.evals.Len() >= maxEvalScripts {
		victim, found := s.evals.Min()
		if now != 0 && s.bytes+len(body)+scriptOverhead > maxScriptCache {
			if l, any := s.loaded.Min(); any && (!found || l.used < victim.used) {
				victim, found = l, true
			}
		}
		if !found {
			return false, false
		}
		e, _ := s.bodies.Get(victim.sha)
		s.remove(victim.sha, e)
	}
	s.insert(sha, cachedScript{body, at, pinned, used})
	return true, true
}

// insert adds a script for which there is room, at a free position.
func (s *scriptCache) insert(sha string, e cachedScript) {
	for s.taken(e) {
		e.at++
	}
	s.put(sha, e)
}

// put adds a script at the position in e.
func (s *scriptCache) put(sha string, e cachedScript) {
	s.bodies.Set(sha, e)
	s.order(e.pinned).Set(scriptUse{e.used, e.at, sha})
	s.bytes += len(e.body) + scriptOverhead
}

// taken reports whether another script has the position of e in the order.
func (s *scriptCache) taken(e cachedScript) bool {
	use := scriptUse{used: e.used, at: e.at}
	_, eval := s.evals.Get(use)
	_, loaded := s.loaded.Get(use)
	return eval || loaded && e.pinned
}

func (s *scriptCache) order(pinned bool) *btree.BTreeG[scriptUse] {
	if pinned {
		return s.loaded
	}
	return s.evals
}

func (s *scriptCache) remove(sha string, e cachedScript) {
	s.bodies.Delete(sha)
	s.order(e.pinned).Delete(scriptUse{e.used, e.at, sha})
	s.bytes -= len(e.body) + scriptOverhead
}

// These are the flags of a script in a snapshot.
const (
	scriptPinned = 1
	scriptUsed   = 2 // the lease clock of its last use follows
)

// appendScript writes a script into a snapshot.
func appendScript(b []byte, e cachedScript) []byte {
	mark := byte(0)
	if e.pinned {
		mark |= scriptPinned
	}
	if e.used != 0 {
		mark |= scriptUsed
	}
	b = binary.AppendUvarint(append(b, recordScript, mark), uint64(e.at))
	if e.used != 0 {
		b = binary.AppendUvarint(b, uint64(e.used))
	}
	return appendString(b, e.body)
}

// script reads the record that appendScript wrote.
func (l *snapshotLoader) script(d *decoder) error {
	e := cachedScript{}
	mark := d.byte()
	e.pinned, e.at = mark&scriptPinned != 0, Pos(d.uvarint())
	if mark&scriptUsed != 0 {
		e.used = int64(d.uvarint())
	}
	body := d.bytes()
	if d.err != nil {
		return fmt.Errorf("script: %w", d.err)
	}
	sha := SHA1(body)
	if mark > scriptPinned|scriptUsed || mark&scriptUsed != 0 && (e.used <= 0 || l.m.features < FeatureScriptCache) {
		return fmt.Errorf("script %s with mark %d: %w", sha, mark, ErrFormat)
	}
	s := &l.m.scripts
	_, known := s.bodies.Get(sha)
	if known || s.bytes+len(body)+scriptOverhead > maxScriptCache || !e.pinned && s.evals.Len() >= maxEvalScripts {
		return fmt.Errorf("duplicate script %s, or too many scripts: %w", sha, ErrFormat)
	}
	e.body = string(body)
	if _, taken := s.order(e.pinned).Get(scriptUse{used: e.used, at: e.at}); taken {
		return fmt.Errorf("script %s at the position of another script: %w", sha, ErrFormat)
	}
	s.put(sha, e)
	l.objects++ // the count at the end includes scripts
	return nil
}
