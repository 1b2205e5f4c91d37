package cluster

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/seeded"
)

// backlog is the log, which a leader writes beside the other nodes instead of
// before them (Ongaro, Consensus: bridging theory and practice, 10.2.1): raft
// takes an entry for stored when it has been handed over, and sends it on, while
// the goroutine of the backlog writes it. A write then takes as long as the slower
// of the leader's disk and the way through a follower, not the sum of both.
//
// raft counts the leader into the majority at once, and must not: an entry that is
// on one follower and in the leader's memory is gone with the power of the leader,
// if the third node leads next. So nobody hears that an entry is committed before
// it is on this disk too:
//
//   - the state machine waits for it (await), and with it every reply, read and snapshot,
//   - the commit index that other nodes are told ends before it (durable).
//
// And nothing else may rest on an entry that is not on disk:
//
//   - only commands are written so. A change of the members, which holds from the
//     moment it is in the log, and the first entry of a term are on disk, with all
//     before them, when StoreLogs returns.
//   - only a leader writes so: the answer of a follower says that it has the entries.
//   - a new term, or a vote, is stored when all entries are on disk (heldTerm). Until
//     then the node answers nobody who leads or wants to lead after it.
//
// A write that fails is final, as in cluster/storage, which ends the process.
type backlog struct {
	raft.LogStore // on disk
	leads         func() bool

	first atomic.Uint64 // index of open[0], 0 if there is none; set with mu held

	mu     sync.Mutex
	turned sync.Cond // of mu: open, err or closed has changed
	open   []*raft.Log
	err    error
	closed bool
	done   chan struct{} // closed when the goroutine has ended
}

var _ raft.MonotonicLogStore = (*backlog)(nil)

// newBacklog starts the goroutine, which close ends. leads must be exact when
// it is called by StoreLogs, that is on the main loop of raft.
func newBacklog(disk raft.LogStore, leads func() bool) *backlog {
	b := &backlog{LogStore: disk, leads: leads, done: make(chan struct{})}
	b.turned.L = &b.mu
	go b.write()
	return b
}

// write brings to disk what is handed over: all that has come meanwhile at once.
func (b *backlog) write() {
	defer close(b.done)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for len(b.open) == 0 && !b.closed {
			b.turned.Wait()
		}
		if len(b.open) == 0 {
			return
		}
		batch := slices.Clone(b.open)
		b.mu.Unlock()
		failpoint.HitIf(b.leads, failpoint.EntryOpen)
		err := b.LogStore.StoreLogs(batch)
		b.mu.Lock()
		if err != nil {
			b.err = err
			b.turned.Broadcast()
			return
		}
		b.setOpen(slices.Delete(b.open, 0, len(batch)))
	}
}

// setOpen replaces the entries that are not on disk. mu is held.
func (b *backlog) setOpen(open []*raft.Log) {
	b.open = open
	if len(open) == 0 {
		b.first.Store(0)
	} else {
		b.first.Store(open[0].Index)
	}
	b.turned.Broadcast()
}

// IsMonotonic implements raft.MonotonicLogStore.
func (b *backlog) IsMonotonic() bool {
	m, ok := b.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// StoreLog implements raft.LogStore.
func (b *backlog) StoreLog(l *raft.Log) error { return b.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. A leader's commands are handed over; all
// else is on disk when it returns.
func (b *backlog) StoreLogs(logs []*raft.Log) error {
	if !b.leads() || slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type != raft.LogCommand }) {
		if err := b.drain(); err != nil {
			return err
		}
		return b.LogStore.StoreLogs(logs)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.setOpen(append(b.open, logs...))
	return nil
}

// FirstIndex implements raft.LogStore.
func (b *backlog) FirstIndex() (uint64, error) {
	open := b.first.Load() // read first: an entry is never in neither
	first, err := b.LogStore.FirstIndex()
	if err == nil && first == 0 {
		first = open
	}
	return first, err
}

// LastIndex implements raft.LogStore.
func (b *backlog) LastIndex() (uint64, error) {
	b.mu.Lock()
	if n := len(b.open); n > 0 {
		defer b.mu.Unlock()
		return b.open[n-1].Index, nil
	}
	b.mu.Unlock()
	return b.LogStore.LastIndex()
}

// GetLog implements raft.LogStore.
func (b *backlog) GetLog(index uint64, l *raft.Log) error {
	if first := b.first.Load(); first != 0 && index >= first {
		b.mu.Lock()
		if n := len(b.open); n > 0 && index >= b.open[0].Index && index <= b.open[n-1].Index {
			*l = *b.open[index-b.open[0].Index]
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock() // on disk by now
	}
	return b.LogStore.GetLog(index, l)
}

// DeleteRange implements raft.LogStore. Compaction, which goes on beside the
// appends, never reaches what is not on disk.
func (b *backlog) DeleteRange(lo, hi uint64) error {
	if first := b.first.Load(); first != 0 && hi >= first {
		if err := b.drain(); err != nil {
			return err
		}
	}
	return b.LogStore.DeleteRange(lo, hi)
}

// durable returns how far a node may be told that the log is committed, if raft
// takes it for committed up to index.
func (b *backlog) durable(index uint64) uint64 {
	if first := b.first.Load(); first != 0 && index >= first && !seeded.On(seeded.OwnDisk) {
		return first - 1
	}
	return index
}

// await waits until all up to index is on disk. It reports false if that will
// never be.
func (b *backlog) await(index uint64) bool {
	if b.durable(index) == index {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.open) > 0 && b.open[0].Index <= index {
		b.turned.Wait()
	}
	return b.err == nil
}

// drain waits until all is on disk. Nobody hands over entries meanwhile: it is
// called on the main loop of raft, as StoreLogs is.
func (b *backlog) drain() error {
	if b.first.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.open) > 0 {
		b.turned.Wait()
	}
	return b.err
}

// close writes what is open and ends the goroutine. raft has shut down.
func (b *backlog) close() {
	b.mu.Lock()
	b.closed = true
	b.turned.Broadcast()
	b.mu.Unlock()
	<-b.done
}

// heldTerm is the stable store of a node that may have led: see backlog.
type heldTerm struct {
	raft.StableStore
	log *backlog
}

// Set implements raft.StableStore.
func (s heldTerm) Set(key, v []byte) error {
	if err := s.log.drain(); err != nil {
		return err
	}
	return s.StableStore.Set(key, v)
}

// SetUint64 implements raft.StableStore.
func (s heldTerm) SetUint64(key []byte, v uint64) error {
	if err := s.log.drain(); err != nil {
		return err
	}
	return s.StableStore.SetUint64(key, v)
}
