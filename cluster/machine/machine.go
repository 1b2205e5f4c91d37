package machine

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Machine adapts fsm.Machine to raft.BatchingFSM, and contains the lock of the
// state machine. raft calls the methods of that interface. The other methods
// are safe for concurrent use.
//
// Machine must implement BatchingFSM, because raft passes configuration entries
// only to such a machine. Without these entries, the applied index would stay
// below the commit index after a change of the members, and a read that waits
// for the commit index would wait forever.
type Machine struct {
	cfg   Config
	watch func(e *appliedEntry) // called for each entry, without mu held

	// starting is set from the call of Starting until raft has restored a
	// snapshot. That snapshot is this node's own.
	starting bool
	// unread is the reason why this node's own snapshot could not be read at
	// the start. If it is set, Restore always fails with it, so that raft does
	// not continue with an older snapshot. The entries that follow the older
	// snapshot may have been deleted.
	unread error

	// mu guards m. A function that changes the state or makes a clone needs the
	// write lock, because a clone changes which parts of the state m may write
	// in place. Reads need the read lock.
	mu sync.RWMutex
	m  *fsm.Machine
	// dead is set when an entry was not applied, or when the state was
	// discarded and could not be replaced. No further entry may be applied
	// after that, and no snapshot may be taken. dead is guarded by mu.
	dead bool
	// clocked is the time on the clock Mono at which the last entry was
	// applied, or at which a snapshot has replaced the state. It is guarded by
	// mu.
	clocked time.Duration

	// points contains the latest points of the hash chain; the point of an
	// index is at index % len(points).
	points [4096]chainPoint

	applied atomic.Uint64
	// spent is the time in nanoseconds that entries have taken since the last
	// snapshot. It approximates how long a restart takes to apply them again.
	spent atomic.Int64
	// deadline is the earliest deadline on the lease clock, in nanoseconds: see
	// fsm.Machine.NextDeadline. 0 means that there is no deadline.
	deadline atomic.Int64
	wanted   atomic.Uint32 // fsm.EventKinds
	bytes    atomic.Int64  // size of the data set
	// maxMemory is the setting of the cluster in bytes, -1 for none.
	maxMemory atomic.Int64
	features  atomic.Int32 // feature version of the cluster
	// configured is the log index of the last configuration that has been
	// applied and is therefore committed. 0 means that it is not known yet.
	configured atomic.Uint64

	users userWatch

	waitMu  sync.Mutex
	wait    []appliedWaiter
	stopped atomic.Bool // no further entry will be applied; written with waitMu held
}

type chainPoint struct{ index, hash uint64 }

type appliedWaiter struct {
	index uint64
	f     func(ok bool)
}

// New returns a machine with an empty state.
func New(cfg Config) *Machine {
	a := &Machine{cfg: cfg, m: fsm.New(cfg.Table)}
	a.publishMemory()
	watch := &entryWatch{log: cfg.Logger, metrics: cfg.Metrics}
	a.watch = func(e *appliedEntry) { watch.applied(e, cfg.Mono()) }
	return a
}

// useLocks passes the events of locks of an entry to the history and to
// Config.Locks. It is called before a.applied is set, so that a query of the
// history finds the events of all applied entries.
func (a *Machine) useLocks(term uint64, res *fsm.Result) {
	if a.cfg.History != nil {
		a.cfg.History.Applied(a.m.Clock(), res)
	}
	if len(res.Locks) > 0 || res.LocksRefused != (fsm.LockRefusals{}) {
		a.cfg.Locks(term, res)
	}
	clear(res.Locks) // the state machine reuses the slice, which must not keep the texts of the events
	res.Locks = nil
}

// Apply implements raft.FSM. raft calls ApplyBatch instead.
func (a *Machine) Apply(l *raft.Log) any { return a.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM.
func (a *Machine) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	durable := a.cfg.Log.Await(logs[len(logs)-1].Index)
	a.mu.Lock()
	begun := a.cfg.Mono()
	times := make([][2]time.Duration, len(logs)) // when the machine began and finished applying each entry
	// If the log is not durable, the disk has failed, and the failure was reported.
	a.dead = a.dead || !durable || a.stopped.Load()
	for i, l := range logs {
		if a.dead {
			break
		}
		if l.Type != raft.LogCommand {
			if l.Type == raft.LogConfiguration {
				a.configured.Store(l.Index)
			}
			a.m.Advance(l.Index)
			continue
		}
		since := a.cfg.Mono()
		a.m.Want(fsm.EventKinds(a.wanted.Load()))
		a.m.RecordLocks(true) // also without a history, for the metrics
		res, err := a.m.Apply(l.Index, l.Term, l.Data)
		if err == nil {
			err = a.checkChain(res)
		}
		if err == nil {
			err = a.m.CheckFeatures(a.cfg.Features)
		}
		if err != nil {
			a.dead = true
			a.cfg.Fatal(fmt.Errorf("state machine stopped: %w", err))
			break
		}
		out[i] = res
		times[i] = [2]time.Duration{since, a.cfg.Mono()}
		a.clocked = times[i][1]
		a.cfg.Events.Applied(res) // before a.applied is set: see events.Queue.Mark
		a.useLocks(l.Term, res)
		if res.Restored {
			a.cfg.Rebased(a.m.Clock().Lease)
		}
		if res.TermStart != nil {
			a.cfg.TermStarted(l.Index, l.Term, *res.TermStart, a.m.Clock().Lease)
		}
	}
	a.publishMemory()
	// Set features before applied: a goroutine that has waited for an entry
	// must see the feature version that the entry set.
	a.features.Store(int32(a.m.Features()))
	a.applied.Store(a.m.Applied())
	a.deadline.Store(a.m.NextDeadline())
	users := a.m.Users()
	a.spent.Add(int64(a.cfg.Mono() - begun))
	a.mu.Unlock()
	a.users.see(users)
	for i, l := range logs {
		if res, ok := out[i].(*fsm.Result); ok {
			a.cfg.Applied(l.Index, l.Term, res, times[i][0], times[i][1])
		}
	}
	a.wake()
	for i, l := range logs {
		if res, ok := out[i].(*fsm.Result); ok {
			a.watch(&appliedEntry{index: l.Index, data: l.Data, steps: res.Steps, took: times[i][1] - times[i][0]})
		}
	}
	return out
}

// checkChain compares the leader's point of the hash chain, which the entry
// carries, with the point that this node computed at the same index. A
// difference means that the two nodes no longer hold the same state.
func (a *Machine) checkChain(res *fsm.Result) error {
	p := a.points[res.HashIndex%uint64(len(a.points))]
	if res.HashIndex != 0 && p.index == res.HashIndex && p.hash != res.Hash {
		return fmt.Errorf("state differs from the leader's at index %d: hash %#x, leader's %#x",
			p.index, p.hash, res.Hash)
	}
	index, hash := a.m.Hash()
	a.points[index%uint64(len(a.points))] = chainPoint{index, hash}
	return nil
}

// WhenApplied calls f once the entry at index has been applied. If it has been
// applied already, WhenApplied calls f itself; otherwise the goroutine that
// applies the entry calls f. ok is false if the entry will not be applied
// because the node is stopping. The caller must not hold waitMu.
func (a *Machine) WhenApplied(index uint64, f func(ok bool)) {
	if a.applied.Load() < index {
		a.waitMu.Lock()
		stopped := a.stopped.Load()
		if !stopped && a.applied.Load() < index {
			a.wait = append(a.wait, appliedWaiter{index, f})
			a.waitMu.Unlock()
			return
		}
		a.waitMu.Unlock()
		if stopped {
			f(false)
			return
		}
	}
	f(true)
}

// Stop ensures that the machine applies none of the entries that raft passes to
// it from now on. It calls the functions that wait in WhenApplied with ok set to
// false. Call Stop before raft shuts down, because raft may skip entries while
// it shuts down.
func (a *Machine) Stop() {
	a.waitMu.Lock()
	a.stopped.Store(true)
	wait := a.wait
	a.wait = nil
	a.waitMu.Unlock()
	for _, w := range wait {
		w.f(false)
	}
}

func (a *Machine) wake() {
	applied := a.applied.Load()
	var ready []appliedWaiter
	a.waitMu.Lock()
	keep := a.wait[:0]
	for _, w := range a.wait {
		if w.index <= applied {
			ready = append(ready, w)
		} else {
			keep = append(keep, w)
		}
	}
	a.wait = keep
	a.waitMu.Unlock()
	for _, w := range ready {
		w.f(true)
	}
}

// Snapshot implements raft.FSM. It makes a copy-on-write clone, which takes
// constant time.
func (a *Machine) Snapshot() (raft.FSMSnapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead || a.stopped.Load() {
		return nil, errors.New("state machine has stopped")
	}
	return &snapshot{clone: a.m.Clone(), sessions: a.m.Sessions(), history: a.cfg.History}, nil
}

// Restore implements raft.FSM. It replaces the state only after it has read the
// whole snapshot and has found it valid, unless there is too little memory for
// both states: see crowded.
func (a *Machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	meta := raftlog.MetaOf(r)
	if meta != nil && !a.starting {
		if err := a.cfg.Log.Outdated(meta); err != nil {
			return err
		}
	}
	if a.unread != nil {
		return a.unread
	}
	wall := a.m.Clock().Wall // only this goroutine of raft changes m
	discarded := meta != nil && !a.starting && crowded(a.bytes.Load(), meta.Size)
	if discarded {
		a.cfg.Logger.Warn("discarded the state of this node before reading the snapshot of the leader, because there "+
			"may be too little memory for both", "bytes", a.bytes.Load(), "snapshot_bytes", meta.Size)
		a.mu.Lock() // released when the new state is in place: no other goroutine may see the empty state
		a.m = fsm.New(a.cfg.Table)
	}
	m, err := a.read(r)
	if err != nil {
		if discarded {
			a.dead = true
			// The process ends here. Until then, the lock keeps all goroutines from
			// reading the empty state.
			a.cfg.Fatal(fmt.Errorf("state machine stopped, because it had discarded its state and could not read the "+
				"snapshot of the leader: %w", err))
			a.mu.Unlock()
		}
		return err
	}
	a.starting = false
	if !discarded {
		a.mu.Lock()
	}
	if a.cfg.History != nil {
		a.cfg.History.Restored(m.Applied(), m.Clock(), wall)
	}
	a.m = m
	a.clocked = a.cfg.Mono()
	a.points = [4096]chainPoint{}
	index, hash := m.Hash()
	a.points[index%uint64(len(a.points))] = chainPoint{index, hash}
	a.cfg.Events.Restored(m)
	a.publishMemory()
	a.features.Store(int32(m.Features()))
	if meta != nil {
		a.configured.Store(meta.ConfigurationIndex)
	}
	a.applied.Store(m.Applied())
	a.deadline.Store(m.NextDeadline())
	a.mu.Unlock()
	a.users.see(m.Users())
	a.cfg.Restored()
	a.wake()
	return nil
}

// read reads a snapshot. It records an error in a.unread if the snapshot is this
// node's own, and passes it to Config.Unreadable otherwise.
func (a *Machine) read(r io.Reader) (*fsm.Machine, error) {
	m, err := fsm.ReadSnapshot(r, a.cfg.Table)
	if err == nil {
		err = m.CheckFeatures(a.cfg.Features)
	}
	switch {
	case err == nil:
		return m, nil
	case a.starting:
		a.unread = err
	default:
		a.cfg.Unreadable(err)
	}
	return nil, err
}

// snapshot is a raft.FSMSnapshot.
type snapshot struct {
	clone    *fsm.Machine
	sessions fsm.Sessions
	history  History
}

// Persist implements raft.FSMSnapshot. Closing the sink reads the snapshot
// back. See package raftlog.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if s.history != nil {
		s.history.Sync(s.clone.Applied(), s.clone.Clock())
	}
	raftlog.Expect(sink, s.clone.SnapshotInfo(s.sessions))
	if err := s.clone.WriteSnapshot(sink, s.sessions); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}
