package storage

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// diskLog is the log store on disk, below a checkedLog.
type diskLog interface {
	raft.LogStore
	io.Closer

	// fileOf returns the path of the file that contains index, for messages.
	fileOf(index uint64) string

	// deleteStep returns how many entries one DeleteRange may delete.
	deleteStep() uint64
}

// checkedLog is the raft.LogStore between the log cache and the disk. It adds a
// trailer to every entry and checks the trailer on every read. It limits the
// time of writes, refuses appends that would leave a gap, and counts the bytes
// of the entries. After a failure, every write returns that failure: see guard.
//
// All methods are safe for concurrent use. Writes are serialized.
type checkedLog struct {
	disk  diskLog
	m     mark
	bad   corrupter
	g     *guard
	dog   *watchdog
	limit time.Duration // time limit of an append
	acked *acked
	// snapshot returns the index and the term of the newest snapshot, or 0 if
	// there is none.
	snapshot func() (index, term uint64)
	observe  func(string, time.Duration, int)

	write  sync.Mutex // serializes writes; acquired before mu
	closed atomic.Bool
	bytes  atomic.Int64 // copy of span.bytes, readable without mu

	mu   sync.RWMutex
	span span // describes the entries on disk; guarded by mu
}

var (
	_ raft.LogStore          = (*checkedLog)(nil)
	_ raft.MonotonicLogStore = (*checkedLog)(nil)
)

// IsMonotonic implements raft.MonotonicLogStore. It returns true for both kinds
// of log, so that the log never has a gap.
//
// hashicorp/raft 1.7.3 calls IsMonotonic after it has installed a snapshot from
// the leader, and after a user restore. If the result is true, raft deletes the
// whole log. If it is false, raft keeps old entries and appends later ones
// after a gap. raft-wal refuses such an append. raft-boltdb accepts it, but
// then Open could not distinguish the gap from lost entries. With raft-boltdb,
// the cost of true is the deletion of a log of bounded size after a rare event.
//
// raft only logs an error of that deletion; checkedLog makes the error final.
// raft also keeps the last index in memory after the deletion (hashicorp/raft
// issue 697), so it might append after entries that are gone. StoreLogs refuses
// such an append. The process then ends, and at its next start raft reads the
// true last index.
func (c *checkedLog) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (c *checkedLog) FirstIndex() (uint64, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.span.first, nil
}

// LastIndex implements raft.LogStore.
func (c *checkedLog) LastIndex() (uint64, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.span.last(), nil
}

func (c *checkedLog) holds(index uint64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.span.holds(index)
}

// GetLog implements raft.LogStore. It returns raft.ErrLogNotFound unwrapped,
// because raft compares with ==. Any other failure to read an entry that the
// log contains is a *CorruptError and is final.
func (c *checkedLog) GetLog(index uint64, l *raft.Log) error {
	// raft-wal's tail still serves entries that were deleted from its front, so
	// check the range here.
	if !c.holds(index) {
		return raft.ErrLogNotFound
	}
	err := c.read(index, l)
	if err == nil {
		why := unsealLog(l, index, c.m)
		if why == "" {
			return nil
		}
		err = errors.New(why)
	}
	if c.closed.Load() {
		return ErrClosed
	}
	// The entry may have been deleted during the read, and raft-wal may have
	// closed its file.
	if !c.holds(index) {
		return raft.ErrLogNotFound
	}
	*l = raft.Log{}
	return c.g.fail(c.bad.at(c.disk.fileOf(index), index, "%v", err))
}

// read reads an entry from disk. It recovers from a panic, because raft-wal's
// codec panics on a malformed number.
func (c *checkedLog) read(index uint64, l *raft.Log) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the entry does not decode (%v)", r)
		}
	}()
	return c.disk.GetLog(index, l)
}

// StoreLog implements raft.LogStore.
func (c *checkedLog) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. The entries are durable when it returns
// nil. It does not modify them. Any error is final: every later write returns
// it too.
func (c *checkedLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.writable(); err != nil {
		return err
	}
	if err := c.checkOrder(logs); err != nil {
		return c.g.fail(err)
	}
	sealed := sealLogs(logs, c.m)

	x := c.dog.begin("append", c.limit)
	err := c.disk.StoreLogs(sealed)
	took := c.dog.end(x)
	if err != nil {
		return c.g.fail(fmt.Errorf("append to log: %w", err))
	}
	// A write that returned after the watchdog had reported it does not count.
	if err := c.g.err(); err != nil {
		return err
	}
	failpoint.Hit(failpoint.AppendSynced)

	n := 0
	c.mu.Lock()
	for _, l := range logs {
		size := payload(l)
		c.span.push(l.Index, l.Term, size)
		n += int(size)
	}
	c.bytes.Store(c.span.bytes)
	c.mu.Unlock()
	last := logs[len(logs)-1]
	c.acked.raise(last.Index, last.Term)
	c.observe("append", took, n)
	return nil
}

// writable returns the error that every write must return, or nil.
func (c *checkedLog) writable() error {
	if c.closed.Load() {
		return ErrClosed
	}
	return c.g.err()
}

// checkOrder refuses entries that Open would later report as damage.
func (c *checkedLog) checkOrder(logs []*raft.Log) error {
	c.mu.RLock()
	last, term := c.span.last(), c.span.lastTerm()
	c.mu.RUnlock()
	if last == 0 {
		index, _ := c.snapshot()
		if first := logs[0].Index; first == 0 || first > index+1 {
			return fmt.Errorf("%w: append of index %d to an empty log after the snapshot at %d", ErrGap, first, index)
		}
		last = logs[0].Index - 1
	}
	for _, l := range logs {
		if l.Index != last+1 {
			return fmt.Errorf("%w: append of index %d after index %d", ErrGap, l.Index, last)
		}
		if l.Term < term {
			return fmt.Errorf("%w: append of index %d with term %d after term %d", ErrTermOrder, l.Index, l.Term, term)
		}
		last, term = l.Index, l.Term
	}
	return nil
}

// DeleteRange implements raft.LogStore. The range must contain the start of the
// log (compaction), its end (a conflicting suffix), or all of it. Compaction
// must leave no gap after the newest snapshot.
func (c *checkedLog) DeleteRange(lo, hi uint64) error {
	c.mu.RLock()
	first, last := c.span.first, c.span.last()
	c.mu.RUnlock()
	lo, hi = max(lo, first), min(hi, last)
	if last == 0 || lo > hi {
		return c.writable()
	}
	switch index, _ := c.snapshot(); {
	case lo > first && hi < last:
		return fmt.Errorf("%w: deletion of %d..%d from the middle of %d..%d", ErrGap, lo, hi, first, last)
	case hi < last && hi > index:
		return fmt.Errorf("%w: deletion up to %d with the newest snapshot at %d", ErrGap, hi, index)
	case hi < last:
		return c.deleteFront(hi)
	case lo > first:
		return c.deleteBack(lo)
	}
	return c.deleteAll(hi)
}

// deleteFront deletes the entries up to hi in steps, between which appends can
// proceed.
func (c *checkedLog) deleteFront(hi uint64) error {
	for {
		c.mu.RLock()
		first := c.span.first
		c.mu.RUnlock()
		if first == 0 || first > hi {
			return nil
		}
		to := hi
		if step := c.disk.deleteStep(); hi-first >= step {
			to = first + step - 1
		}
		if err := c.deleteStep(first, to, func(s *span) { s.dropTo(to) }); err != nil {
			return err
		}
	}
}

// deleteAll deletes the whole log, which ends at hi.
func (c *checkedLog) deleteAll(hi uint64) error {
	failpoint.Hit(failpoint.InstallUncut)
	if err := c.acked.lower(0, 0); err != nil {
		return err
	}
	return c.deleteFront(hi)
}

// deleteBack deletes the entries from lo on, beginning with the last ones.
func (c *checkedLog) deleteBack(lo uint64) error {
	c.mu.RLock()
	term := c.span.term(lo - 1)
	c.mu.RUnlock()
	// Lower the bound first. After a crash in between, the log reaches further
	// than the bound, which is harmless.
	if err := c.acked.lower(lo-1, term); err != nil {
		return err
	}
	failpoint.Hit(failpoint.SuffixUncut)
	for {
		c.mu.RLock()
		last := c.span.last()
		c.mu.RUnlock()
		if last < lo {
			return nil
		}
		from := lo
		if step := c.disk.deleteStep(); last-lo >= step {
			from = last - step + 1
		}
		if err := c.deleteStep(from, last, func(s *span) { s.dropFrom(from) }); err != nil {
			return err
		}
	}
}

// deleteStep deletes the entries lo..hi. It first calls drop, which deletes
// them from the span, and then deletes them from the disk.
func (c *checkedLog) deleteStep(lo, hi uint64, drop func(*span)) error {
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.writable(); err != nil {
		return err
	}
	// Update the span first. A reader that fails because a file was deleted
	// then finds that the log no longer holds the entry.
	c.mu.Lock()
	drop(&c.span)
	c.bytes.Store(c.span.bytes)
	first, last := c.span.first, c.span.last()
	c.mu.Unlock()

	x := c.dog.begin("delete", 10*c.limit)
	err := c.disk.DeleteRange(lo, hi)
	c.dog.end(x)
	if err == nil {
		err = c.checkEnds(first, last)
	}
	if err != nil {
		return c.g.fail(fmt.Errorf("delete %d..%d from log: %w", lo, hi, err))
	}
	return c.g.err()
}

// checkEnds compares the first and the last index on disk with the expected
// ones.
func (c *checkedLog) checkEnds(first, last uint64) error {
	f, err := c.disk.FirstIndex()
	if err != nil {
		return err
	}
	l, err := c.disk.LastIndex()
	if err != nil {
		return err
	}
	if f != first || l != last {
		return fmt.Errorf("the log store holds %d..%d instead of %d..%d", f, l, first, last)
	}
	return nil
}

// close waits for the write in progress and closes the log.
func (c *checkedLog) close() error {
	c.write.Lock()
	defer c.write.Unlock()
	if c.closed.Swap(true) {
		return nil
	}
	return c.disk.Close()
}
