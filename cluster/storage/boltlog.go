package storage

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

func boltLogPath(dir string) string { return filepath.Join(dir, "log.db") }

// boltLogMapBytes is the size of the initial memory mapping. It takes address
// space, not memory.
const boltLogMapBytes = 1 << 30

// boltLog is a raft-boltdb log.
type boltLog struct {
	*raftboltdb.BoltStore
	path string
}

// fileOf implements diskLog.
func (b boltLog) fileOf(uint64) string { return b.path }

// deleteStep implements diskLog. bolt has one writer at a time, so appends have
// to wait while a deletion runs.
func (b boltLog) deleteStep() uint64 { return 1024 }

func openBoltLog(path string, bad corrupter) (boltLog, error) {
	s, err := openBolt(path, boltLogMapBytes, bad)
	return boltLog{BoltStore: s, path: path}, err
}

// scan reads every entry and checks it.
func (b boltLog) scan(m mark, bad corrupter) (s span, err error) {
	first, err := b.FirstIndex()
	if err != nil {
		return s, fmt.Errorf("first index of %s: %w", b.path, err)
	}
	last, err := b.LastIndex()
	if err != nil {
		return s, fmt.Errorf("last index of %s: %w", b.path, err)
	}
	if last == 0 {
		return s, nil
	}
	for i := first; i <= last; i++ {
		var l raft.Log
		err := b.GetLog(i, &l)
		if errors.Is(err, raft.ErrLogNotFound) {
			return s, bad.at(b.path, i, "the entry is missing")
		}
		if err != nil {
			return s, bad.at(b.path, i, "the entry does not decode (%v)", err)
		}
		if why := unsealLog(&l, i, m); why != "" {
			return s, bad.at(b.path, i, "%s", why)
		}
		if l.Term < s.lastTerm() {
			return s, bad.at(b.path, i, "its term %d is lower than the term %d before it", l.Term, s.lastTerm())
		}
		s.push(i, l.Term, payload(&l))
	}
	return s, nil
}
