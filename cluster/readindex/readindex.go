// Package readindex makes reads linearizable with ReadIndex rounds (Raft
// dissertation, 6.4). A leader's waiting reads share one round, and a second
// round may run behind the first: see roundAhead. A round has these steps:
//
//  1. Note the commit index.
//  2. Ask the voters to confirm that they follow this leader in this term. Each
//     question carries a nonce, so that only the answer to a question that was
//     asked after the reads arrived counts.
//  3. Wait until a majority of the voters has confirmed, including this node if
//     it is a voter. Then no later leader can have existed before step 1: a
//     later leader needs a majority that has stored a higher term, and any two
//     majorities have a node in common.
//  4. Wait until this node's state machine has applied the noted index, and
//     read.
//
// A read that another voter sends with a vouch may need no round: see
// Rounds.Suffices. Leader leases are off by default. While the leader has a
// lease, most reads need no round: see lease.go.
//
// Holdfast does not use raft.VerifyLeader, because it counts non-voters, and
// also acknowledgments of heartbeats that were sent before the call
// (hashicorp/raft; the same class of bug as etcd issue 20418).
package readindex

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// Config contains the data and functions that the rounds of one leadership
// need. All fields are required.
type Config[R Reader] struct {
	Term uint64
	Self raft.ServerID
	Raft Instance
	// Committed returns the commit index on which reads may rely.
	Committed func() uint64
	// WhenApplied calls f as soon as this node's state machine has applied the
	// entry at index. ok is false if that will not happen, because the node is
	// stopping.
	WhenApplied func(index uint64, f func(ok bool))
	// Confirmed is called with reads that a round, vouches or a lease has
	// confirmed. They may now run on the state of the machine. index is the
	// lowest log index that the state must include; the machine has applied it.
	// Confirmed must return quickly, because its caller may be the goroutine
	// that applies the log.
	Confirmed func(readers []R, index uint64)

	Mono  func() time.Duration
	Retry time.Duration // see Watch

	// Lease returns the time for which the voters promise not to vote, or 0 if
	// this leader must ask for no promises: see lease.go. Changes is
	// raftlog.Log.Changes.
	Lease   func() time.Duration
	Changes func() uint64

	Rounds prometheus.Counter // counts the confirmed rounds, and the calls of Rounds.Confirm
	Reads  prometheus.Counter // counts the reads that Confirmed has received
	Leased prometheus.Counter // counts the reads that had no round because of a lease
}

// Instance is the part of raft.Raft that the rounds use.
type Instance interface {
	State() raft.RaftState
	CurrentTerm() uint64
	GetConfiguration() raft.ConfigurationFuture
}

// Reader is a read that waits for its round.
type Reader interface {
	// Lost is called when the leadership ended before the read ran.
	Lost()
}

// Voter is a stream to a node that reads through this leader. The node also
// confirms the leadership.
type Voter interface {
	// Confirm asks the node to confirm that it follows this leader in the term.
	// If promise is not 0, Confirm also asks the node to promise to vote for no
	// candidate for that time. Confirm must not block.
	Confirm(term, nonce uint64, promise time.Duration)
}

// Rounds are the ReadIndex rounds of one leadership. All methods are safe for
// concurrent use.
type Rounds[R Reader] struct {
	cfg Config[R]

	mu     sync.Mutex
	closed bool
	// streams contains the streams of the nodes that read through this leader.
	// A node may have several: a stream that the node has given up may arrive
	// after its next stream, and the leader cannot tell which of them the node
	// still reads.
	streams map[raft.ServerID][]Voter
	waiting []R         // reads that are not in a round yet
	rounds  []*round[R] // running rounds, oldest first, at most maxRounds
	nonce   uint64
	// prefer is the voter that answered last. While this voter answers, a round
	// asks no more voters than the round needs.
	prefer raft.ServerID

	leases leases
}

// A round takes a round trip to another process, and most of this time is spent
// waiting. So a second round starts while the first is running, when at least
// roundAhead reads wait for it. Fewer reads do not justify another message.
const (
	maxRounds  = 2
	roundAhead = 8
)

// round is one running ReadIndex round. It is guarded by Rounds.mu.
type round[R Reader] struct {
	readers []R
	nonce   uint64
	index   uint64
	acks    []raft.ServerID
	need    int // confirmations that the round needs in addition to this node's own
	started time.Duration
	done    func() // called when the reads have been passed on or lost; may be nil

	lease    time.Duration // the promise that the questions ask for; 0 for none
	changes  uint64        // Config.Changes before the questions were sent
	promises int           // how many of the confirming voters have also promised
}

// New returns the rounds of a leadership. None is running.
func New[R Reader](cfg Config[R]) *Rounds[R] {
	return &Rounds[R]{cfg: cfg, streams: make(map[raft.ServerID][]Voter)}
}

// Attach adds a stream of the node with the given id.
func (r *Rounds[R]) Attach(id raft.ServerID, v Voter) {
	r.mu.Lock()
	r.streams[id] = append(r.streams[id], v)
	r.mu.Unlock()
}

// Detach removes a stream of the node with the given id.
func (r *Rounds[R]) Detach(id raft.ServerID, v Voter) {
	r.mu.Lock()
	left := slices.DeleteFunc(r.streams[id], func(x Voter) bool { return x == v })
	if len(left) > 0 {
		r.streams[id] = left
	} else {
		delete(r.streams, id)
	}
	r.mu.Unlock()
	r.repeat(0) // the question may have been lost with the stream
}

// Add puts a read into the next round.
func (r *Rounds[R]) Add(rd R) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		rd.Lost()
		return
	}
	r.waiting = append(r.waiting, rd)
	done := r.startNext()
	r.mu.Unlock()
	r.finish(done)
}

// Suffices reports whether a vouch alone confirms a read. A vouch says that its
// sender followed this leader in a term after the read had begun. It suffices
// if the sender is a voter and forms a majority together with this leader. The
// vouch is then as good as a confirmation that the leader asked for after the
// read had arrived at the sender.
func (r *Rounds[R]) Suffices(from raft.ServerID, term uint64) bool {
	servers := r.cfg.Raft.GetConfiguration().Configuration().Servers
	voter := slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == from && s.Suffrage == raft.Voter })
	return term == r.cfg.Term && voter && confirmations(servers, r.cfg.Self) <= 1
}

// Confirm passes reads to Config.Confirmed without a round. Each of the reads
// must have a vouch that suffices. Confirm notes the commit index, which is not
// lower than at the time of the vouches. It calls done when the reads have been
// passed on, or lost.
func (r *Rounds[R]) Confirm(readers []R, done func()) {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		lose(readers)
		done()
		return
	}
	r.cfg.Rounds.Add(1)
	r.finish(&round[R]{readers: readers, index: r.cfg.Committed(), done: done})
}

// startNext starts a round with all waiting reads, unless maxRounds are running
// or too few reads wait. It returns the round if no other node has to confirm
// it. The caller holds r.mu and passes the result to finish after unlocking it.
func (r *Rounds[R]) startNext() (done *round[R]) {
	if n := len(r.rounds); len(r.waiting) == 0 || n >= maxRounds || n > 0 && len(r.waiting) < roundAhead {
		return nil
	}
	rd := &round[R]{readers: r.waiting, index: r.cfg.Committed()}
	r.waiting = nil
	r.rounds = append(r.rounds, rd)
	return r.ask(rd, false)
}

// ask sends the questions of a round under a new nonce. If all is false, it
// asks as many voters as are needed, beginning with the voter that answered
// last. The voters are those of the latest configuration, committed or not. ask
// returns the round if no other node has to confirm it. The caller holds r.mu.
func (r *Rounds[R]) ask(rd *round[R], all bool) (done *round[R]) {
	r.nonce++
	rd.nonce, rd.acks, rd.started = r.nonce, rd.acks[:0], r.cfg.Mono()
	rd.lease, rd.changes, rd.promises = r.wanted(), r.cfg.Changes(), 0
	servers := r.cfg.Raft.GetConfiguration().Configuration().Servers
	rd.need = confirmations(servers, r.cfg.Self)
	if rd.need == 0 {
		return r.end(rd)
	}
	asked := 0
	question := func(s raft.Server) {
		streams := r.streams[s.ID]
		if len(streams) == 0 || s.Suffrage != raft.Voter || s.ID == r.cfg.Self {
			return
		}
		for _, v := range streams {
			v.Confirm(r.cfg.Term, rd.nonce, rd.lease)
		}
		asked++
	}
	for _, s := range servers {
		if s.ID == r.prefer {
			question(s)
		}
	}
	for _, s := range servers {
		if s.ID != r.prefer && (all || asked < rd.need) {
			question(s)
		}
	}
	return nil
}

// confirmations returns how many voters other than self are needed for a
// majority. A leader is not a voter from the moment its own removal is in its
// log until the removal is committed. During that time, its own confirmation
// does not count, and the others must form the whole majority.
func confirmations(servers []raft.Server, self raft.ServerID) int {
	voters, own := 0, 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == self {
			own = 1
		}
	}
	return voters/2 + 1 - own
}

// end removes a confirmed round from the running rounds. The caller holds r.mu.
func (r *Rounds[R]) end(rd *round[R]) *round[R] {
	r.rounds = slices.DeleteFunc(r.rounds, func(x *round[R]) bool { return x == rd })
	r.cfg.Rounds.Add(1)
	return rd
}

// Ack counts the answer of a voter. ok says whether the voter follows this
// leader. promised says whether the voter has given the promise that the
// question asked for.
func (r *Rounds[R]) Ack(from raft.ServerID, term, nonce uint64, ok, promised bool) {
	r.mu.Lock()
	i := slices.IndexFunc(r.rounds, func(rd *round[R]) bool { return rd.nonce == nonce })
	if r.closed || term != r.cfg.Term || i < 0 || !ok || slices.Contains(r.rounds[i].acks, from) {
		r.mu.Unlock()
		return
	}
	rd := r.rounds[i]
	rd.acks = append(rd.acks, from) // only voters were asked: see ask
	r.prefer = from
	if promised {
		rd.promises++
	}
	if len(rd.acks) < rd.need {
		r.mu.Unlock()
		return
	}
	r.promised(rd)
	done := r.end(rd)
	next := r.startNext()
	r.mu.Unlock()
	r.finish(done)
	r.finish(next)
}

// finish passes the reads of a confirmed round to Config.Confirmed once the
// machine has applied the round's index. This node's own confirmation counts
// only if the node still leads the term, so finish checks that first. The caller
// must not hold r.mu.
func (r *Rounds[R]) finish(rd *round[R]) {
	if rd == nil {
		return
	}
	done := rd.readers
	ended := func() {
		if rd.done != nil {
			rd.done()
		}
	}
	if !r.leads() {
		lose(done)
		ended()
		return
	}
	r.cfg.WhenApplied(rd.index, func(ok bool) {
		defer ended()
		if !ok {
			lose(done)
			return
		}
		r.cfg.Reads.Add(float64(len(done)))
		r.cfg.Confirmed(done, rd.index)
	})
}

// Watch asks all voters again in each round whose last questions are at least
// Config.Retry old, because the questions may have been lost with a stream. The
// leadership calls Watch periodically.
func (r *Rounds[R]) Watch() { r.repeat(r.cfg.Retry) }

// repeat asks all voters again in every round whose last questions are at least
// age old.
func (r *Rounds[R]) repeat(age time.Duration) {
	r.mu.Lock()
	var done []*round[R]
	if !r.closed {
		now := r.cfg.Mono()
		for _, rd := range slices.Clone(r.rounds) {
			if now-rd.started >= age {
				done = append(done, r.ask(rd, true))
			}
		}
		done = append(done, r.startNext())
	}
	r.mu.Unlock()
	for _, rd := range done {
		r.finish(rd)
	}
}

// Waiting returns how many reads wait for the next round, while another round
// is under way.
func (r *Rounds[R]) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)
}

// Close ends the rounds, and calls Lost for the reads that wait.
func (r *Rounds[R]) Close() {
	r.mu.Lock()
	r.closed = true
	lost := r.waiting
	for _, rd := range r.rounds {
		lost = append(lost, rd.readers...)
	}
	r.rounds, r.waiting = nil, nil
	r.mu.Unlock()
	lose(lost)
}

func lose[R Reader](readers []R) {
	for _, rd := range readers {
		rd.Lost()
	}
}
