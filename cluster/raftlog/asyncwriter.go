package raftlog

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// asyncWriter is a leader's log, which is written to the leader's disk while
// the entries are already on their way to the followers (Ongaro, "Consensus:
// Bridging Theory and Practice", 10.2.1). StoreLogs passes an entry to the
// goroutine that writes it, and raft treats the entry as stored and replicates
// it. A write then takes as long as the slower of the leader's disk and the
// round trip to a follower, not the sum of both.
//
// raft counts the leader toward the majority at once, before the entry is on
// the leader's disk. That alone would be unsafe. In a cluster of three nodes,
// suppose that an entry is on one follower and in the leader's memory. It is
// lost if the leader loses power and the third node leads next. So an entry
// counts as committed only when it is on the leader's disk too:
//
//   - The state machine waits until the entry is on disk (await). So every
//     reply, read and snapshot waits too.
//   - The commit index that the leader sends to followers ends before the first
//     entry that is not on disk (durable).
//
// Nothing else may depend on an entry that is not on disk:
//
//   - Only commands are written asynchronously. A change of the members takes
//     effect as soon as it is in the log. So StoreLogs returns only when the
//     change, and everything before it, is on disk. The same holds for the
//     first entry of a term.
//   - Only a leader writes asynchronously. A follower's answer to the leader
//     says that the entries are on its disk.
//   - A new term or a vote is stored only when all entries are on disk
//     (orderedStable). Until then, the node accepts no entries of a later
//     leader and gives no vote.
//
// After a failed write, all later writes fail too. cluster/storage ends the
// process.
type asyncWriter struct {
	raft.LogStore // on disk
	leads         func() bool
	full          func() error // see Config.Full; nil if there is always room

	// cut is the index at which the last deletion of the end of the log began,
	// or 0. If the next append begins there, it replaces the deleted entries.
	// Such an append must not be refused, because raft would then remember a
	// wrong end of the log. After a snapshot that replaced the whole log, the
	// next append begins at a later index.
	cut atomic.Uint64

	first atomic.Uint64 // index of open[0], or 0 if open is empty; written with mu held

	mu      sync.Mutex
	changed sync.Cond // condition on mu: open, err or closed has changed
	open    []*raft.Log
	err     error
	closed  bool
	done    chan struct{} // closed when the goroutine has ended
}

var _ raft.MonotonicLogStore = (*asyncWriter)(nil)

// newAsyncWriter starts the goroutine that writes entries; close ends it. leads
// must be exact when StoreLogs calls it, that is, on raft's main loop.
func newAsyncWriter(disk raft.LogStore, leads func() bool) *asyncWriter {
	b := &asyncWriter{LogStore: disk, leads: leads, done: make(chan struct{})}
	b.changed.L = &b.mu
	go b.write()
	return b
}

// write writes entries to disk. Each write contains all entries that have
// arrived during the write before it.
func (b *asyncWriter) write() {
	defer close(b.done)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for len(b.open) == 0 && !b.closed {
			b.changed.Wait()
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
			b.changed.Broadcast()
			return
		}
		b.setOpen(slices.Delete(b.open, 0, len(batch)))
	}
}

// setOpen replaces the list of entries that are not on disk. mu must be held.
func (b *asyncWriter) setOpen(open []*raft.Log) {
	b.open = open
	if len(open) == 0 {
		b.first.Store(0)
	} else {
		b.first.Store(open[0].Index)
	}
	b.changed.Broadcast()
}

// IsMonotonic implements raft.MonotonicLogStore.
func (b *asyncWriter) IsMonotonic() bool {
	m, ok := b.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// StoreLog implements raft.LogStore.
func (b *asyncWriter) StoreLog(l *raft.Log) error { return b.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. If this node leads and all entries are
// commands, StoreLogs passes them to the writing goroutine. Otherwise, they are
// on disk when it returns.
func (b *asyncWriter) StoreLogs(logs []*raft.Log) error {
	if !b.leads() || slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type != raft.LogCommand }) {
		if err := b.drain(); err != nil {
			return err
		}
		if cut := b.cut.Swap(0); cut == 0 || logs[0].Index != cut {
			if err := b.noRoom(); err != nil {
				return err
			}
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
func (b *asyncWriter) FirstIndex() (uint64, error) {
	// Read b.first before the disk's first index. An entry that moves to the
	// disk between these two reads is then found by at least one of them.
	open := b.first.Load()
	first, err := b.LogStore.FirstIndex()
	if err == nil && first == 0 {
		first = open
	}
	return first, err
}

// LastIndex implements raft.LogStore.
func (b *asyncWriter) LastIndex() (uint64, error) {
	b.mu.Lock()
	if n := len(b.open); n > 0 {
		defer b.mu.Unlock()
		return b.open[n-1].Index, nil
	}
	b.mu.Unlock()
	return b.LogStore.LastIndex()
}

// GetLog implements raft.LogStore.
func (b *asyncWriter) GetLog(index uint64, l *raft.Log) error {
	if first := b.first.Load(); first != 0 && index >= first {
		b.mu.Lock()
		if n := len(b.open); n > 0 && index >= b.open[0].Index && index <= b.open[n-1].Index {
			*l = *b.open[index-b.open[0].Index]
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock() // the entry is on disk by now, or does not exist
	}
	return b.LogStore.GetLog(index, l)
}

// DeleteRange implements raft.LogStore. Compaction runs concurrently with
// appends, but never reaches entries that are not on disk.
func (b *asyncWriter) DeleteRange(lo, hi uint64) error {
	if first := b.first.Load(); first != 0 && hi >= first {
		if err := b.drain(); err != nil {
			return err
		}
	}
	first, err := b.LogStore.FirstIndex()
	if err != nil {
		return err
	}
	last, err := b.LogStore.LastIndex()
	if err != nil {
		return err
	}
	if hi >= last && lo > first { // not compaction, but the deletion of a deposed leader's entries
		if err := b.noRoom(); err != nil {
			return err
		}
	}
	if hi >= last {
		b.cut.Store(lo)
	}
	return b.LogStore.DeleteRange(lo, hi)
}

// noRoom returns an error if this node does not lead and has no room for the
// entries of a leader.
func (b *asyncWriter) noRoom() error {
	if b.full == nil || b.leads() {
		return nil
	}
	return b.full()
}

// durable returns the commit index that may be reported to other nodes if raft
// considers the log committed up to index.
func (b *asyncWriter) durable(index uint64) uint64 {
	if first := b.first.Load(); first != 0 && index >= first {
		return first - 1
	}
	return index
}

// await waits until all entries up to index are on disk. It returns false if
// these entries never get to the disk, because a write has failed.
func (b *asyncWriter) await(index uint64) bool {
	if b.durable(index) == index {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.open) > 0 && b.open[0].Index <= index {
		b.changed.Wait()
	}
	return b.err == nil
}

// drain waits until all entries are on disk. It is called on raft's main loop,
// as StoreLogs is, so no entries are added meanwhile.
func (b *asyncWriter) drain() error {
	if b.first.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.open) > 0 {
		b.changed.Wait()
	}
	return b.err
}

// close writes the remaining entries and ends the goroutine. It must be called
// after raft has shut down.
func (b *asyncWriter) close() {
	b.mu.Lock()
	b.closed = true
	b.changed.Broadcast()
	b.mu.Unlock()
	<-b.done
}

// orderedStable is the stable store of a node that may have led. It delays each
// write of a term or a vote until all earlier entries are on disk. Otherwise,
// this node could vote for a later candidate while entries that raft counts as
// stored are still in memory only: see asyncWriter.
type orderedStable struct {
	raft.StableStore
	log *asyncWriter
}

// Set implements raft.StableStore.
func (s orderedStable) Set(key, v []byte) error {
	if err := s.log.drain(); err != nil {
		return err
	}
	return s.StableStore.Set(key, v)
}

// SetUint64 implements raft.StableStore.
func (s orderedStable) SetUint64(key []byte, v uint64) error {
	if err := s.log.drain(); err != nil {
		return err
	}
	return s.StableStore.SetUint64(key, v)
}
