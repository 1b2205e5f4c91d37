package cluster

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
)

// machine adapts fsm.Machine to raft.BatchingFSM and holds its lock. It must be
// a BatchingFSM: configuration entries reach only those, and a read that waits
// for the commit index would otherwise wait for an entry that never comes.
type machine struct {
	// hooks, set before raft starts.
	onApply     func(index, term uint64, res *fsm.Result)
	onRestore   func()
	onTermStart func(index, term uint64, t fsm.TermStart, lease int64)
	fatal       func(error)
	// await waits until the log is on this node's disk up to index, and reports
	// whether it is: see backlog.
	await  func(index uint64) bool
	events *eventQueue
	// mono is the time since some moment, for spent, and onSlow is told of entries
	// that took longer than slowEntries.
	mono   func() time.Duration
	onSlow func(first, last uint64, took time.Duration)
	// keeps says whether this node has all that a snapshot would bring: see
	// restore.go.
	keeps func(*raft.SnapshotMeta) (bool, error)
	// starting is set while raft is being made: the first snapshot that it
	// restores is this node's own.
	starting bool
	// unread says why that one could not be read: raft would go on with an older
	// one, although the log behind that may be gone.
	unread error

	table *fsm.Table
	known int // the highest feature version that this node claims to know

	mu   sync.RWMutex // guards m: Apply, Fork and Restore write, Read reads
	m    *fsm.Machine
	dead bool // guarded by mu: an entry could not be applied, nothing more may be

	// points are the last points of the hash chain, by index modulo their number.
	points [4096]chainPoint

	applied atomic.Uint64
	// spent is the time that entries have taken since the last snapshot, in
	// nanoseconds: about what a restart takes to apply them again.
	spent atomic.Int64
	// deadline is the earliest deadline on the lease clock, 0 for none.
	deadline atomic.Int64
	wanted   atomic.Uint32 // fsm.EventKinds
	features atomic.Int32  // feature version of the cluster
	// configured is the log index of the last configuration that has been applied,
	// that is committed, 0 while it is not known.
	configured atomic.Uint64

	users userWatch

	waitMu  sync.Mutex
	wait    []appliedWaiter
	stopped bool // nothing will be applied any more
}

// slowEntries is what a batch of entries may take before the log tells of it: all
// clients wait meanwhile.
const slowEntries = time.Second

type chainPoint struct{ index, hash uint64 }

type appliedWaiter struct {
	index uint64
	f     func(ok bool)
}

func newMachine(table *fsm.Table) *machine {
	return &machine{table: table, known: fsm.MaxFeatures, m: fsm.New(table), events: newEventQueue(), onRestore: func() {}, await: func(uint64) bool { return true },
		mono: func() time.Duration { return 0 }, onSlow: func(uint64, uint64, time.Duration) {}}
}

// Apply implements raft.FSM; raft.RecoverCluster calls it.
func (a *machine) Apply(l *raft.Log) any { return a.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM.
func (a *machine) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	durable := a.await(logs[len(logs)-1].Index)
	a.mu.Lock()
	begun := a.mono()
	a.dead = a.dead || !durable // the disk has failed, and said so
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
		a.m.Want(fsm.EventKinds(a.wanted.Load()))
		res, err := a.m.Apply(l.Index, l.Term, l.Data)
		if err == nil {
			err = a.checkChain(res)
		}
		if err == nil {
			err = a.m.CheckFeatures(a.known)
		}
		if err != nil {
			a.dead = true
			a.fatal(fmt.Errorf("state machine stopped: %w", err))
			break
		}
		out[i] = res
		a.events.applied(res) // before applied says so: see eventQueue.mark
		if res.TermStart != nil {
			a.onTermStart(l.Index, l.Term, *res.TermStart, a.m.Clock().Lease)
		}
	}
	a.features.Store(int32(a.m.Features())) // before applied: who has waited for an entry knows what it raised
	a.applied.Store(a.m.Applied())
	a.deadline.Store(a.m.NextDeadline())
	users := a.m.Users()
	took := a.mono() - begun
	a.mu.Unlock()
	if a.spent.Add(int64(took)); took > slowEntries {
		a.onSlow(logs[0].Index, logs[len(logs)-1].Index, took)
	}
	a.users.see(users)
	for i, l := range logs {
		if res, ok := out[i].(*fsm.Result); ok {
			a.onApply(l.Index, l.Term, res)
		}
	}
	a.wake()
	return out
}

// checkChain compares the leader's chain point in the entry with this node's
// own: a difference means that the replicas no longer hold the same state.
func (a *machine) checkChain(res *fsm.Result) error {
	if p := a.points[res.HashIndex%uint64(len(a.points))]; res.HashIndex != 0 && p.index == res.HashIndex && p.hash != res.Hash {
		return fmt.Errorf("state differs from the leader's at index %d: hash %#x, leader's %#x", p.index, p.hash, res.Hash)
	}
	index, hash := a.m.Hash()
	a.points[index%uint64(len(a.points))] = chainPoint{index, hash}
	return nil
}

// whenApplied calls f once the entry at index has been applied: at once, or
// from the goroutine that applies it. ok is false if that will not happen,
// because the node stops.
func (a *machine) whenApplied(index uint64, f func(ok bool)) {
	if a.applied.Load() < index {
		a.waitMu.Lock()
		stopped := a.stopped
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

// stop ends the waiting of whenApplied. raft does not apply all that is
// committed before it shuts down.
func (a *machine) stop() {
	a.waitMu.Lock()
	a.stopped = true
	wait := a.wait
	a.wait = nil
	a.waitMu.Unlock()
	for _, w := range wait {
		w.f(false)
	}
}

func (a *machine) wake() {
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

// read runs a group without the log. Reads that walk many keys run on a fork,
// so that they hold the lock for a moment only.
func (a *machine) read(dst []byte, slow bool, req fsm.ReadRequest) (reply []byte, overdue bool, err error) {
	if slow {
		a.mu.Lock()
		fork := a.m.Fork()
		a.mu.Unlock()
		return fork.Read(dst, req)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.m.Read(dst, req)
}

// view calls f with the machine under the read lock; f must be short.
func (a *machine) view(f func(m *fsm.Machine)) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	f(a.m)
}

// Snapshot implements raft.FSM: it takes a fork, which costs O(1).
func (a *machine) Snapshot() (raft.FSMSnapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead {
		return nil, errors.New("state machine has stopped")
	}
	return &snapshot{fork: a.m.Fork(), sessions: a.m.Sessions()}, nil
}

// Restore implements raft.FSM. The state is replaced only when the whole
// snapshot has been read and found right.
func (a *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	meta := placeOf(r)
	if meta != nil && !a.starting {
		if keeps, err := a.keeps(meta); err != nil || keeps {
			return errors.Join(errOldSnapshot, err)
		}
	}
	if a.unread != nil {
		return a.unread
	}
	m, err := fsm.ReadSnapshot(r, a.table)
	if err == nil {
		err = m.CheckFeatures(a.known)
	}
	if err != nil {
		if a.starting {
			a.unread = err
		}
		return err
	}
	a.starting = false
	a.mu.Lock()
	a.m = m
	a.points = [4096]chainPoint{}
	index, hash := m.Hash()
	a.points[index%uint64(len(a.points))] = chainPoint{index, hash}
	a.events.restored(m.Applied(), m.Session(a.events.self).LastSeq)
	a.features.Store(int32(m.Features()))
	if meta != nil {
		a.configured.Store(meta.ConfigurationIndex)
	}
	a.applied.Store(m.Applied())
	a.deadline.Store(m.NextDeadline())
	a.mu.Unlock()
	a.users.see(m.Users())
	a.onRestore()
	a.wake()
	return nil
}

// want says which kinds of events applying is to tell of.
func (a *machine) want(kinds fsm.EventKinds) { a.wanted.Store(uint32(kinds)) }

// snapshot is a raft.FSMSnapshot.
type snapshot struct {
	fork     *fsm.Machine
	sessions fsm.Sessions
}

// Persist implements raft.FSMSnapshot. Closing the sink reads the snapshot back: see
// snapcheck.go.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if checked, ok := sink.(*checkedSink); ok {
		info := s.fork.SnapshotInfo(s.sessions)
		checked.own = &info
	}
	if err := s.fork.WriteSnapshot(sink, s.sessions); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}
