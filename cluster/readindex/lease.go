package readindex

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// This file adds leader leases to the ReadIndex rounds. Until its lease ends, a
// leader answers reads without asking the voters (Raft dissertation, 6.4.1).
//
// The question of a round may also ask for a promise: "vote for no candidate,
// yourself included, for this time". A voter first gives the promise, and then
// checks whether it still follows the leader in the leader's term. The leader
// counts itself if it is a voter. If a majority of the voters has promised, the
// leader has a lease: no other leader can be elected during the promised time,
// counted from just before the leader sent the questions. The reasons are:
//
//   - A later leader needs the votes of a majority of the voters. The majority
//     that votes and the majority that promised have a node in common.
//   - Suppose the common node is not this leader. raft raises the term of a node
//     before the node votes. If the node voted before it promised, its term was
//     higher when it checked whether it followed this leader, so it did not
//     confirm. If it votes after it promised, package raftlog delays the vote
//     until the promise is over, even if the node has started again meanwhile.
//   - Suppose the common node is this leader. No promise delays its vote, but it
//     leaves its term before it votes for a later leader. So Holds checks the
//     term last.
//
// The two majorities have a node in common if they belong to the same
// configuration, or to two consecutive configurations. So a lease ends as soon
// as the leader stores another change of the members.
//
// The clocks of nodes differ. A voter counts the promised time from the moment
// at which it received the question. The leader counts from the moment before
// it sent the question, and its lease is shorter than the promise by one part
// in driftShare. So the lease is safe if the leader's monotonic clock is slower
// than that of each voter by less than one part in driftShare. The leader's
// clock must also advance while the leader's machine is suspended. The lease
// may end while a read runs, so the read must check the lease afterwards: see
// Holds.

// driftShare determines how much shorter a lease is than the promises: by one
// part in driftShare, because the leader's clock may be slower than those of
// the voters.
const driftShare = 100

// lease is the right to answer reads without a round.
type lease struct {
	renew, until time.Duration // monotonic times
	changes      uint64        // Config.Changes before the questions were sent
}

// leases is the part of Rounds that stores the lease.
type leases struct {
	now atomic.Pointer[lease]
	// suspended is the number of calls of Suspend whose resume function has not
	// been called yet. While it is not 0, rounds ask for no promises.
	suspended atomic.Int32
}

// Holds reports whether this leader has a lease. If Holds returns true, no
// later leader had been elected when the caller called Holds. So a result that
// the caller had before the call is linearizable. Holds says nothing about a
// result that the caller gets after the call.
func (r *Rounds[R]) Holds() bool {
	l := r.leases.now.Load()
	return l != nil && r.cfg.Mono() < l.until && r.cfg.Changes() == l.changes && r.leads()
}

// leads reports whether this node still leads the term.
func (r *Rounds[R]) leads() bool {
	return r.cfg.Raft.State() == raft.Leader && r.cfg.Raft.CurrentTerm() == r.cfg.Term
}

// Leased passes a read to Config.Confirmed without a round if this leader seems
// to have a lease. Otherwise it returns false. The reader must call Holds when
// it has its result, and discard the result if Holds returns false.
//
// When half of the lease is over, Leased starts a round that renews it. Apart
// from that, only rounds with reads renew a lease. So a leader without reads
// asks for no promises, and no promise delays the next election.
func (r *Rounds[R]) Leased(rd R) bool {
	l := r.leases.now.Load()
	if l == nil || r.cfg.Changes() != l.changes {
		return false
	}
	now := r.cfg.Mono()
	if now >= l.until {
		return false
	}
	if now >= l.renew {
		r.renew()
	}
	r.cfg.Leased.Add(1)
	r.finish(&round[R]{readers: []R{rd}, index: r.cfg.Committed()})
	return true
}

// renew starts a round without reads, unless a round is running already: every
// round renews the lease.
func (r *Rounds[R]) renew() {
	r.mu.Lock()
	if r.closed || len(r.rounds) > 0 {
		r.mu.Unlock()
		return
	}
	rd := &round[R]{index: r.cfg.Committed()}
	r.rounds = append(r.rounds, rd)
	done := r.ask(rd, false)
	r.mu.Unlock()
	r.finish(done)
}

// promised begins or extends the lease after a confirmed round, if all voters
// that confirmed the round have promised. The caller holds r.mu.
func (r *Rounds[R]) promised(rd *round[R]) {
	if rd.lease == 0 || rd.promises < rd.need || rd.need == 0 {
		return
	}
	next := lease{
		renew: rd.started + rd.lease/2, until: rd.started + rd.lease - rd.lease/driftShare, changes: rd.changes,
	}
	if l := r.leases.now.Load(); l == nil || l.changes != next.changes || l.until < next.until {
		r.leases.now.Store(&next)
	}
}

// Suspend ends the lease. The leader gets no other lease until resume is
// called. The voters keep the promises that they have given, and these promises
// delay the election at the end of a transfer of leadership. So a transfer
// begins with Suspend, and the promises end while the transfer is prepared.
func (r *Rounds[R]) Suspend() (resume func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases.suspended.Add(1)
	r.leases.now.Store(nil)
	for _, rd := range r.rounds {
		rd.lease = 0 // the answers to this round must not begin another lease
	}
	return func() { r.leases.suspended.Add(-1) }
}

// wanted returns the length of the promise that the next questions ask for, or
// 0 if they ask for none.
func (r *Rounds[R]) wanted() time.Duration {
	if r.leases.suspended.Load() > 0 {
		return 0
	}
	return r.cfg.Lease()
}
