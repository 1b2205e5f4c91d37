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

// keyLongestPromise is the key under which the stable store contains the length
// of the longest promise that this node has ever given, in nanoseconds.
const keyLongestPromise = "LongestPromise"

// errPromised is returned for a vote that still waited for a promise to end
// when the node stopped. raft then does not give the vote.
var errPromised = errors.New("the node stopped before its promise not to vote was over")

// promises contains this node's promises to its leaders: to vote for no
// candidate, itself included, for a given time (see package readindex). In every
// kind of election, raft stores a vote before it counts the vote or answers the
// candidate. So it is enough that heldVotes waits before it stores a vote.
//
// heldVotes delays a vote instead of refusing it. raft raises the term of this
// node before it stores the vote, so this node no longer follows the leader and
// gives it no more promises. The delay is therefore at most as long as the last
// promise, and then the election continues.
//
// Promises are kept in memory. Only the length of the longest one is stored on
// disk, before the promise is given. A node that starts gives no vote for that
// time. So a restart breaks no promise, even if the monotonic clock of the
// machine begins at 0 again.
type promises struct {
	stable raft.StableStore
	mono   func() time.Duration
	done   <-chan struct{}

	// writing is a lock that guards changes of longest. It is not a mutex,
	// because the simulator's virtual time does not advance while a goroutine
	// waits for a mutex, and writing to the disk takes time.
	writing chan struct{}
	longest atomic.Int64
	broken  error // why the longest promise could not be read; nil if it was read

	mu    sync.Mutex
	until time.Duration // monotonic time at which all promises are over
}

// openPromises reads the length of the longest promise. The node then gives no
// vote for that time, because it may have given the promise just before it
// started again.
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

// give makes the promise that this node votes for no candidate during the time
// d from now. The promise holds from the moment at which give returns nil. If
// give returns an error, the caller must not rely on a promise.
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

// lengthen ensures that the longest promise on disk is at least d.
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

// left returns the time until this node may vote. It is 0 or negative if the
// node may vote now.
func (p *promises) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until - p.mono()
}

// await waits until this node may vote. It returns an error if the node stops
// first, or if the longest promise could not be read.
func (p *promises) await() error {
	if p.broken != nil {
		return p.broken
	}
	for {
		left := p.left()
		if left <= 0 {
			return nil
		}
		// p.mono may run slower than the clock of the timer, so the loop reads
		// p.mono again when the timer has fired.
		t := time.NewTimer(max(left, time.Millisecond))
		select {
		case <-t.C:
		case <-p.done:
			t.Stop()
			return errPromised
		}
	}
}

// heldVotes is a stable store that stores no vote before the promises of the
// node are over.
type heldVotes struct {
	raft.StableStore
	promises *promises
}

// SetUint64 implements raft.StableStore. If v is the term of a vote, SetUint64
// first waits until this node may vote. raft stores the term of a vote before
// it stores the candidate's address, and after it has raised its own term.
func (s heldVotes) SetUint64(key []byte, v uint64) error {
	if string(key) == keyLastVoteTerm {
		if err := s.promises.await(); err != nil {
			return err
		}
	}
	return s.StableStore.SetUint64(key, v)
}

// countedChanges is a log that counts the changes of the members that raft
// stores in it.
type countedChanges struct {
	*asyncWriter
	count *atomic.Uint64
}

// StoreLog implements raft.LogStore.
func (c countedChanges) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. It counts a change before raft uses the
// new configuration.
func (c countedChanges) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			c.count.Add(1)
		}
	}
	return c.asyncWriter.StoreLogs(logs)
}
