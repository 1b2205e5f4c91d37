package readindex

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// This file adds a lease to the rounds. With a lease, a leader answers reads
// without asking the voters, until the lease ends (Raft dissertation, 6.4.1).
//
// A question may ask for a promise: "vote for no candidate, yourself included,
// for a time". A voter gives the promise first, and then looks whether it still
// follows the leader in the leader's term. If a majority of the voters has
// promised, including this node if it is a voter, the leader has a lease until
// the time has passed since it sent the questions. Until then, no other leader
// can have been elected:
//
//   - A later leader needs the votes of a majority of the voters. A majority that
//     votes and the majority that promised have a node in common.
//   - Suppose that node is not this leader. raft raises the term of a node before
//     the node votes. If the node voted before it promised, its term was higher
//     when it looked whether it followed this leader, and so it did not answer. If
//     it votes after it promised, package raftlog delays the vote until the time
//     is over, also if the node has started again meanwhile.
//   - Suppose that node is this leader, which promises nothing to itself. It has
//     then left its term before it voted. So Holds looks at the term last.
//
// The node in common exists if both majorities belong to the same configuration,
// or to two configurations that follow each other. A lease therefore ends as soon
// as the leader stores another change of the members.
//
// The clocks of nodes differ. A voter counts the time from the moment at which it
// received the question, and the leader from the moment before it sent the
// question and only until driftShare of the time is left. So the lease is safe if
// the monotonic clock of a leader is slower than that of a voter by less than one
// part in driftShare, and if it does not stop while the machine of the leader
// does. The reads must not trust a lease that has ended while they were running:
// see Holds.

// driftShare is the part of a lease that the leader does not use, because its
// clock may be slower than those of the voters.
const driftShare = 100

// lease is the right to answer reads without a round.
type lease struct {
	renew, until time.Duration // monotonic times
	changes      uint64        // Config.Changes at the time of the questions
}

// leases is the part of Rounds that keeps the lease.
type leases struct {
	now atomic.Pointer[lease]
	// suspended is the number of callers of Suspend. While it is not 0, no promise
	// is asked for.
	suspended atomic.Int32
}

// Holds reports whether this leader has a lease. If a read has returned its
// result before the caller calls Holds and Holds returns true, then the result was
// not out of date when Holds was called. The caller must not use a result that it
// has read after Holds.
func (r *Rounds[R]) Holds() bool {
	l := r.leases.now.Load()
	return l != nil && r.cfg.Mono() < l.until && r.cfg.Changes() == l.changes && r.leads()
}

// leads reports whether this node still leads the term.
func (r *Rounds[R]) leads() bool {
	return r.cfg.Raft.State() == raft.Leader && r.cfg.Raft.CurrentTerm() == r.cfg.Term
}

// Leased passes a read to Config.Confirmed without a round if this leader seems
// to have a lease. Otherwise it returns false. The reader must call Holds when it
// has its result, and discard the result if Holds returns false.
//
// When half of the lease is over, Leased starts a round that renews it. So an
// idle leader asks for no promises, and they do not delay the next election.
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

// renew starts a round without reads, unless a round is running: every round
// renews the lease.
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

// promised extends the lease after a round that a majority has confirmed, if all
// voters of that majority have promised. The caller holds r.mu.
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

// Suspend ends the lease, and keeps the leader from getting another one until
// resume is called. Promises that were given before still hold, so a transfer of
// leadership takes up to one lease longer if it begins without Suspend.
func (r *Rounds[R]) Suspend() (resume func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases.suspended.Add(1)
	r.leases.now.Store(nil)
	for _, rd := range r.rounds {
		rd.lease = 0 // their answers must not begin another lease
	}
	return func() { r.leases.suspended.Add(-1) }
}

// wanted returns the promise for which the next questions ask, or 0 for none.
func (r *Rounds[R]) wanted() time.Duration {
	if r.leases.suspended.Load() > 0 {
		return 0
	}
	return r.cfg.Lease()
}
