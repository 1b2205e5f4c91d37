package fsm

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// SnapshotInfo describes the state in a snapshot.
type SnapshotInfo struct {
	Applied  uint64 // log index of the last entry
	Hash     uint64 // state of the hash chain at that index
	Sessions int
	Waiters  int
	Keys     int // in all databases
	Volatile int // keys with a time to live
}

// SnapshotInfo describes the snapshot that WriteSnapshot writes with these
// sessions.
func (m *Machine) SnapshotInfo(sessions Sessions) SnapshotInfo {
	return SnapshotInfo{
		Applied: m.applied, Hash: m.chain, Sessions: len(sessions.list), Waiters: m.waits.conns.Len(),
		Keys: m.Len(), Volatile: m.Volatile(),
	}
}

// CheckSnapshot reads a snapshot with the code of ReadSnapshot, but drops every
// key once it is decoded. It fails for every snapshot that ReadSnapshot
// refuses. It needs the memory of the largest key, the sessions, the waiters
// and the scripts.
//
// ReadSnapshot detects a duplicate key in the tree that it builds.
// CheckSnapshot has no such tree, so it requires the order in which
// WriteSnapshot writes the keys.
func CheckSnapshot(r io.Reader, table *Table) (SnapshotInfo, error) {
	check := &snapshotCheck{}
	load := snapshotLoader{m: New(table), check: check}
	if err := load.read(bufio.NewReaderSize(r, 64<<10)); err != nil {
		return SnapshotInfo{}, fmt.Errorf("check snapshot: %w", err)
	}
	return SnapshotInfo{
		Applied: load.m.applied, Hash: load.m.chain,
		Sessions: int(load.sessions), Waiters: load.m.waits.conns.Len(),
		Keys: check.keys, Volatile: check.volatile,
	}, nil
}

// snapshotCheck counts the keys of a snapshot. It reads them into memory that
// it reuses, so that a check does not double the memory of the process. The
// methods of a nil snapshotCheck return new memory.
type snapshotCheck struct {
	keys, volatile int
	db             int
	last           slot // last key that was read

	block   []byte
	objects [2]object // used alternately: one of them is last
}

// buffer returns memory for a block. It overwrites the texts of the previous
// block. The elements of the last object may continue in the new block, so its
// key is copied.
func (c *snapshotCheck) buffer(n int) []byte {
	if c == nil {
		return make([]byte, n)
	}
	if o := c.last.obj; o != nil {
		o.key, o.str = strings.Clone(o.key), ""
	}
	if cap(c.block) < n {
		c.block = make([]byte, n)
	}
	return c.block[:n]
}

// object returns an object for the next key.
func (c *snapshotCheck) object() *object {
	if c == nil {
		return &object{}
	}
	o := &c.objects[c.keys%2]
	*o = object{}
	return o
}

// text returns bytes of a block as a string.
func (c *snapshotCheck) text(b []byte) string {
	if c == nil {
		return string(b)
	}
	return viewString(b)
}

// key counts a key, which must be greater than the previous one.
func (c *snapshotCheck) key(db int, o *object) error {
	s := slot{o.hash, o}
	if c.last.obj != nil && (db < c.db || db == c.db && !slotLess(c.last, s)) {
		return fmt.Errorf("key %q is out of order or a duplicate: %w", o.key, ErrFormat)
	}
	c.db, c.last = db, s
	c.keys++
	if o.deadline != 0 {
		c.volatile++
	}
	return nil
}
