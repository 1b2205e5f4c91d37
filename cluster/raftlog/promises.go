package raftlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// keyLongestPromise is the key of the longest promise that this node has ever
// given, in nanoseconds.
const keyLongestPromise = "LongestPromise"

// errPromised makes raft refuse a vote instead of storing it.
var errPromised = errors.New("this node has promised the leader not to vote yet")

// promises are the promises of this node to vote for no candidate, itself
// included, before a time: see package readindex. raft stores every vote before
// it counts the vote or answers the candidate, whatever has started the
// election. So it is enough that heldVotes delays the storing.
//
// A vote is delayed and not refused, because raft raises the term before it
// stores the vote, which already ends the leadership. From then on, this node
// gives the leader no more promises. So the delay is at most as long as the
// last promise, and the election continues after it.
//
// Promises are kept in memory. The length of the longest one is on disk before
// the promise is given, and a node that starts gives no vote for that time. So a
// restart breaks no promise, and the clock of the machine may start again at 0.
type promises struct {
	stable raft.StableStore
	mono   func() time.Duration
	done   <-chan struct{}

	// writing is a lock for changes of longest. It is not a mutex, because the
	// simulator's virtual time does not advance while a goroutine waits for a
	// mutex, and writing to the disk takes time.
	writing chan struct{}
	longest atomic.Int64
	broken  error // the longest promise could not be read

	mu    sync.Mutex
	until time.Duration // monotonic time
}

// openPromises reads the longest promise. The time for which it must be kept
// begins with the call.
func openPromises(stable raft.StableStore, mono func() time.Duration, done <-chan struct{}) *promises {
	p := &promises{stable: stable, mono: mono, done: done, writing: make(chan struct{}, 1)}
	longest, err := stable.GetUint64([]byte(keyLongestPromise))
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		p.broken = fmt.Errorf("read the longest promise of this node: %w", err)
		return p
	}
	p.longest.Store(int64(longest))
	p.until = mono() + time.Duration(longest)
	return p
}

// give promises that this node votes for no candidate for d. The promise holds
// from the moment at which give returns nil. It may hold after an error too.
func (p *promises) give(d time.Duration) error {
	if p.broken != nil {
		return p.broken
	}
	if err := p.lengthen(d); err != nil {
		return fmt.Errorf("store the length of a promise: %w", err)
	}
	p.mu.Lock()
	p.until = max(p.until, p.mono()+d)
	p.mu.Unlock()
	return nil
}

// lengthen makes sure that the longest promise on disk is at least d.
func (p *promises) lengthen(d time.Duration) error {
	if int64(d) <= p.longest.Load() {
		return nil
	}
	p.writing <- struct{}{}
	defer func() { <-p.writing }()
	if int64(d) <= p.longest.Load() {
		return nil
	}
	if err := p.stable.SetUint64([]byte(keyLongestPromise), uint64(d)); err != nil {
		return err
	}
	p.longest.Store(int64(d))
	return nil
}

// left returns for how long this node must not vote.
func (p *promises) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until - p.mono()
}

// await waits until this node may vote. It fails if the node stops first.
func (p *promises) await() error {
	if p.broken != nil {
		return p.broken
	}
	for {
		left := p.left()
		if left <= 0 {
			return nil
		}
		// The clock of the promise may be slower than that of the timer.
		t := time.NewTimer(max(left, time.Millisecond))
		select {
		case <-t.C:
		case <-p.done:
			t.Stop()
			return errPromised
		}
	}
}

// heldVotes is the stable store of a node that keeps its promises.
type heldVotes struct {
	raft.StableStore
	promises *promises
}

// SetUint64 implements raft.StableStore. It delays the storing of a vote until
// this node may vote. raft stores the term of the vote first, on its main loop,
// after it has raised its own term.
func (s heldVotes) SetUint64(key []byte, v uint64) error {
	if string(key) == keyLastVoteTerm {
		if err := s.promises.await(); err != nil {
			return err
		}
	}
	return s.StableStore.SetUint64(key, v)
}

// countedChanges is the log of a node, and counts the changes of the members
// that it stores.
type countedChanges struct {
	*asyncWriter
	count *atomic.Uint64
}

// StoreLog implements raft.LogStore.
func (c countedChanges) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. It counts a change before raft uses the new
// configuration.
func (c countedChanges) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			c.count.Add(1)
		}
	}
	return c.asyncWriter.StoreLogs(logs)
}
