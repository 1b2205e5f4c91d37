package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// readRounds makes reads linearizable. All reads that arrive while a round is
// under way share the next one:
//
//  1. note the commit index,
//  2. ask every voter to confirm that it follows this leader in this term, with
//     a nonce: only an answer to a question asked after the reads arrived counts,
//  3. when a majority (this node included) has confirmed, no later leader can
//     have existed before step 1, because it needs a majority that persisted a
//     higher term first, and two majorities share a node,
//  4. wait until this node's machine has applied the noted index, and read.
//
// raft.VerifyLeader is not used: it counts non-voters, and acknowledgements of
// heartbeats that were sent before the call (hashicorp/raft; the class of
// etcd issue 20418).
type readRounds struct {
	o *office

	mu      sync.Mutex
	closed  bool
	peers   map[raft.ServerID]*readServer // nodes that read through this one, and confirm
	waiting []reader                      // arrived, not in a round yet
	round   []reader                      // in the round under way; nil if there is none
	nonce   uint64
	acks    map[raft.ServerID]bool
	need    int // confirmations that the round needs besides this node's
	index   uint64
	started time.Duration
	// prefer is the voter that answered last: as long as it answers, a round asks
	// no more voters than it needs.
	prefer raft.ServerID
}

// reader is a read that waits for its round.
type reader interface {
	// confirmed is called once the read may run on the machine as it is; now is
	// the lease clock to judge by, taken once for all reads of a round.
	confirmed(o *office, now int64)
	// lost is called when the office closed first: the read has not run.
	lost()
}

func (r *readRounds) init(o *office) {
	r.o = o
	r.peers = make(map[raft.ServerID]*readServer)
	r.acks = make(map[raft.ServerID]bool)
}

// attach adds the stream of a node that follows.
func (r *readRounds) attach(id raft.ServerID, p *readServer) {
	r.mu.Lock()
	r.peers[id] = p
	r.mu.Unlock()
}

func (r *readRounds) detach(id raft.ServerID, p *readServer) {
	r.mu.Lock()
	if r.peers[id] == p {
		delete(r.peers, id)
	}
	r.mu.Unlock()
	r.repeat(0) // the question may have been lost with the stream
}

// add takes a read into the next round.
func (r *readRounds) add(rd reader) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		rd.lost()
		return
	}
	r.waiting = append(r.waiting, rd)
	if r.round != nil {
		r.mu.Unlock()
		return
	}
	done, index := r.start()
	r.mu.Unlock()
	r.finish(done, index)
}

// start begins a round with all that wait. It returns the readers at once if
// no other node has to confirm. r.mu is held.
func (r *readRounds) start() (done []reader, index uint64) {
	r.round, r.waiting = r.waiting, nil
	r.index = r.o.raft.CommitIndex()
	return r.ask(false)
}

// ask sends the questions of the round under way, with a new nonce: to as many
// voters as are needed, beginning with the one that answered last, or to all.
// The voters are those of the latest configuration, committed or not.
func (r *readRounds) ask(all bool) (done []reader, index uint64) {
	r.nonce++
	clear(r.acks)
	r.started = r.o.clock.Mono()
	servers := r.o.raft.GetConfiguration().Configuration().Servers
	voters := 0
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	r.need = voters / 2
	if r.need == 0 {
		return r.end()
	}
	asked := 0
	question := func(s raft.Server) {
		if p := r.peers[s.ID]; p != nil && s.Suffrage == raft.Voter && s.ID != r.o.self {
			p.confirm(r.o.term, r.nonce)
			asked++
		}
	}
	for _, s := range servers {
		if s.ID == r.prefer {
			question(s)
		}
	}
	for _, s := range servers {
		if s.ID != r.prefer && (all || asked < r.need) {
			question(s)
		}
	}
	return nil, 0
}

// end takes the round's readers; r.mu is held.
func (r *readRounds) end() ([]reader, uint64) {
	done, index := r.round, r.index
	r.round = nil
	r.o.stats.ReadRounds.Add(1)
	return done, index
}

// ack counts the answer of a voter.
func (r *readRounds) ack(from raft.ServerID, term, nonce uint64, ok bool) {
	r.mu.Lock()
	if r.closed || term != r.o.term || nonce != r.nonce || r.round == nil || !ok {
		r.mu.Unlock()
		return
	}
	r.acks[from] = true // each asked was a voter: see ask
	r.prefer = from
	if len(r.acks) < r.need {
		r.mu.Unlock()
		return
	}
	done, index := r.end()
	next, nextIndex := r.startNext()
	r.mu.Unlock()
	r.finish(done, index)
	r.finish(next, nextIndex)
}

// finish lets the readers of a confirmed round read once the machine has
// applied index. This node counts itself only if it still leads the term.
func (r *readRounds) finish(done []reader, index uint64) {
	if len(done) == 0 {
		return
	}
	if r.o.raft.State() != raft.Leader || r.o.raft.CurrentTerm() != r.o.term {
		lose(done)
		return
	}
	r.o.machine.whenApplied(index, func(ok bool) {
		if !ok {
			lose(done)
			return
		}
		r.o.stats.ReadGroups.Add(float64(len(done)))
		now := r.o.now()
		for _, rd := range done {
			rd.confirmed(r.o, now)
		}
	})
}

// watch asks again when the answers of a round stay away: a stream may have
// been lost with the question in it. keepTime calls it.
func (r *readRounds) watch() { r.repeat(r.o.opts.ConfirmRetry) }

// repeat asks all voters again if the round under way is older than age.
func (r *readRounds) repeat(age time.Duration) {
	r.mu.Lock()
	if r.closed || r.round == nil || r.o.clock.Mono()-r.started < age {
		r.mu.Unlock()
		return
	}
	done, index := r.ask(true)
	next, nextIndex := r.startNext()
	r.mu.Unlock()
	r.finish(done, index)
	r.finish(next, nextIndex)
}

// startNext starts a round with those that wait, if none is under way. r.mu is
// held.
func (r *readRounds) startNext() (done []reader, index uint64) {
	if r.round != nil || len(r.waiting) == 0 {
		return nil, 0
	}
	return r.start()
}

func (r *readRounds) close() {
	r.mu.Lock()
	r.closed = true
	lost := append(r.round, r.waiting...)
	r.round, r.waiting = nil, nil
	r.mu.Unlock()
	lose(lost)
}

func lose(readers []reader) {
	for _, rd := range readers {
		rd.lost()
	}
}
