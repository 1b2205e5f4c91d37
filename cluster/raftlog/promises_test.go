package raftlog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// promiser is a voter in a bubble of package synctest.
type promiser struct {
	store raft.StableStore
	done  chan struct{}
	begun time.Time
	*promises
}

func (p *promiser) start() {
	p.begun = time.Now()
	begun := p.begun
	p.promises = openPromises(p.store, func() time.Duration { return time.Since(begun) }, p.done)
}

// vote stores a vote and returns how long that took.
func (p *promiser) vote(t *testing.T) time.Duration {
	t.Helper()
	begun := time.Now()
	if err := (heldVotes{p.store, p.promises}).SetUint64([]byte(keyLastVoteTerm), 2); err != nil {
		t.Error(err)
	}
	return time.Since(begun)
}

func promising(t *testing.T, f func(t *testing.T, p *promiser)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &promiser{store: raft.NewInmemStore(), done: make(chan struct{})}
		p.start()
		f(t, p)
	})
}

// TestPromises_Delay: a vote is stored when all promises are over, and a term
// is stored at once.
func TestPromises_Delay(t *testing.T) {
	promising(t, func(t *testing.T, p *promiser) {
		if took := p.vote(t); took != 0 {
			t.Errorf("a vote without a promise took %v, want 0", took)
		}
		for _, d := range []time.Duration{100 * time.Millisecond, 30 * time.Millisecond} {
			if err := p.give(d); err != nil {
				t.Fatal(err)
			}
		}
		if err := (heldVotes{p.store, p.promises}).SetUint64([]byte(keyCurrentTerm), 2); err != nil || p.left() <= 0 {
			t.Errorf("the term was not stored, or only after the promise was over: error %v", err)
		}
		if took := p.vote(t); took != 100*time.Millisecond {
			t.Errorf("the vote took %v, want 100ms", took)
		}
		if took := p.vote(t); took != 0 {
			t.Errorf("a vote after the promise took %v, want 0", took)
		}
	})
}

// TestPromises_Restart: a voter that starts again waits for the longest promise
// that it has ever given.
func TestPromises_Restart(t *testing.T) {
	promising(t, func(t *testing.T, p *promiser) {
		for _, d := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 20 * time.Millisecond} {
			if err := p.give(d); err != nil {
				t.Fatal(err)
			}
		}
		p.start()
		if took := p.vote(t); took != 100*time.Millisecond {
			t.Errorf("the first vote after the start took %v, want 100ms", took)
		}
	})
}

// TestPromises_Stop: a vote that waits does not keep the node from stopping, and is
// not stored.
func TestPromises_Stop(t *testing.T) {
	promising(t, func(t *testing.T, p *promiser) {
		if err := p.give(time.Hour); err != nil {
			t.Fatal(err)
		}
		close(p.done)
		err := (heldVotes{p.store, p.promises}).SetUint64([]byte(keyLastVoteTerm), 2)
		if vote, _ := p.store.GetUint64([]byte(keyLastVoteTerm)); !errors.Is(err, errPromised) || vote != 0 {
			t.Errorf("a vote of term %d is stored, error %v; want 0 and errPromised", vote, err)
		}
	})
}

// TestLog_Changes: a change of the members that raft stores is counted, whichever
// method stores it, so that it ends the lease of a leader.
func TestLog_Changes(t *testing.T) {
	store := raft.NewInmemStore()
	l := Open(Config{
		Entries: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore(),
		Fatal: func(err error) { t.Error(err) }, Leads: func() bool { return true },
		Joined: func() (uint64, bool) { return 0, false }, Settling: func() bool { return false },
		Mono: func() time.Duration { return 0 }, Done: make(chan struct{}), Full: func() error { return nil },
	})
	entries := l.Entries()
	change := func(index uint64) *raft.Log { return &raft.Log{Index: index, Term: 1, Type: raft.LogConfiguration} }
	command := func(index uint64) *raft.Log { return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand} }
	for i, step := range []struct {
		store   func() error
		changes uint64
	}{
		{func() error { return entries.StoreLog(command(1)) }, 0},
		{func() error { return entries.StoreLog(change(2)) }, 1},
		{func() error { return entries.StoreLogs([]*raft.Log{command(3), command(4)}) }, 1},
		{func() error { return entries.StoreLogs([]*raft.Log{command(5), change(6), change(7)}) }, 3},
	} {
		if err := step.store(); err != nil {
			t.Fatal(err)
		}
		if got := l.Changes(); got != step.changes {
			t.Errorf("after step %d: %d changes, want %d", i, got, step.changes)
		}
	}
	l.Close()
}

// errPromiseDisk is the error of a brokenStore.
var errPromiseDisk = errors.New("disk failed")

// brokenStore is a store that cannot be written. If unreadable is set, it
// cannot be read either.
type brokenStore struct {
	raft.StableStore
	unreadable bool
}

func (s brokenStore) GetUint64(key []byte) (uint64, error) {
	if s.unreadable {
		return 0, errPromiseDisk
	}
	return s.StableStore.GetUint64(key)
}

func (s brokenStore) SetUint64([]byte, uint64) error { return errPromiseDisk }

// TestPromises_Disk: a voter gives no promise whose length it could not store
// on disk. A voter that cannot read the length of its longest promise gives no
// vote.
func TestPromises_Disk(t *testing.T) {
	promising(t, func(t *testing.T, p *promiser) {
		p.store = brokenStore{StableStore: p.store}
		p.start()
		if err := p.give(time.Second); !errors.Is(err, errPromiseDisk) {
			t.Errorf("give on a disk without writes: error %v, want errPromiseDisk", err)
		}
		p.store = brokenStore{StableStore: p.store, unreadable: true}
		p.start()
		if err := p.await(); !errors.Is(err, errPromiseDisk) {
			t.Errorf("await on an unreadable disk: error %v, want errPromiseDisk", err)
		}
	})
}
