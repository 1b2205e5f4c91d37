package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
)

// readRounds makes reads linearizable. All reads that wait share one round, and
// a second round may be under way behind the first: see roundAhead.
//
//  1. note the commit index,
//  2. ask every voter to confirm that it follows this leader in this term, with
//     a nonce: only an answer to a question asked after the reads arrived counts,
//  3. when a majority of the voters (this node included if it is one) has
//     confirmed, no later leader can have existed before step 1, because it needs a majority that persisted a
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
	peers   map[raft.ServerID][]*readServer // nodes that read through this one, and confirm; see office.attach
	waiting []reader                        // arrived, not in a round yet
	rounds  []*round                        // under way, oldest first, at most maxRounds
	nonce   uint64
	// prefer is the voter that answered last: as long as it answers, a round asks
	// no more voters than it needs.
	prefer raft.ServerID
}

// A round takes a round trip to another process, most of which is waiting. A
// second round is started behind the first when roundAhead reads wait for it:
// fewer are not worth a message.
const (
	maxRounds  = 2
	roundAhead = 8
)

// round is one round under way.
type round struct {
	readers []reader
	nonce   uint64
	index   uint64
	acks    []raft.ServerID
	need    int // confirmations that it needs besides this node's
	started time.Duration
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
	r.peers = make(map[raft.ServerID][]*readServer)
}

// attach adds the stream of a node that follows.
func (r *readRounds) attach(id raft.ServerID, p *readServer) {
	r.mu.Lock()
	r.peers[id] = with(r.peers[id], p)
	r.mu.Unlock()
}

func (r *readRounds) detach(id raft.ServerID, p *readServer) {
	r.mu.Lock()
	if left := without(r.peers[id], p); len(left) > 0 {
		r.peers[id] = left
	} else {
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
	done := r.startNext()
	r.mu.Unlock()
	r.finish(done)
}

// startNext starts a round with all that wait, if it may. It returns the round if
// no other node has to confirm. r.mu is held.
func (r *readRounds) startNext() (done *round) {
	if n := len(r.rounds); len(r.waiting) == 0 || n >= maxRounds || n > 0 && len(r.waiting) < roundAhead {
		return nil
	}
	rd := &round{readers: r.waiting, index: r.o.committed()}
	r.waiting = nil
	if seeded.On(seeded.VerifyLeader) {
		seededVerify(r.o.raft, func(leads bool) {
			if leads {
				r.finish(rd)
			} else {
				lose(rd.readers)
			}
		})
		return nil
	}
	r.rounds = append(r.rounds, rd)
	return r.ask(rd, false)
}

// ask sends the questions of a round, with a new nonce: to as many voters as are
// needed, beginning with the one that answered last, or to all. The voters are
// those of the latest configuration, committed or not.
func (r *readRounds) ask(rd *round, all bool) (done *round) {
	r.nonce++
	rd.nonce, rd.acks, rd.started = r.nonce, rd.acks[:0], r.o.clock.Mono()
	servers := r.o.raft.GetConfiguration().Configuration().Servers
	rd.need = confirmations(servers, r.o.self)
	if rd.need == 0 {
		return r.end(rd)
	}
	asked := 0
	question := func(s raft.Server) {
		streams := r.peers[s.ID]
		if len(streams) == 0 || s.Suffrage != raft.Voter || s.ID == r.o.self {
			return
		}
		for _, p := range streams { // which of them the node hears is not known: see office.attach
			p.confirm(r.o.term, rd.nonce)
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

// confirmations returns how many voters besides self make a majority with it. A
// leader is no voter from the moment its own removal is in its log until that is
// committed: then its own word counts for nothing, and the others need the whole
// majority.
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

// end takes a round that is confirmed from those under way; r.mu is held.
func (r *readRounds) end(rd *round) *round {
	r.rounds = slices.DeleteFunc(r.rounds, func(x *round) bool { return x == rd })
	r.o.stats.ReadRounds.Add(1)
	return rd
}

// ack counts the answer of a voter.
func (r *readRounds) ack(from raft.ServerID, term, nonce uint64, ok bool) {
	r.mu.Lock()
	i := slices.IndexFunc(r.rounds, func(rd *round) bool { return rd.nonce == nonce })
	if r.closed || term != r.o.term || i < 0 || !ok || slices.Contains(r.rounds[i].acks, from) {
		r.mu.Unlock()
		return
	}
	rd := r.rounds[i]
	rd.acks = append(rd.acks, from) // each asked was a voter: see ask
	r.prefer = from
	if len(rd.acks) < rd.need {
		r.mu.Unlock()
		return
	}
	done := r.end(rd)
	next := r.startNext()
	r.mu.Unlock()
	r.finish(done)
	r.finish(next)
}

// finish lets the readers of a confirmed round read once the machine has
// applied its index. This node counts itself only if it still leads the term.
func (r *readRounds) finish(rd *round) {
	if rd == nil {
		return
	}
	done := rd.readers
	if r.o.raft.State() != raft.Leader || r.o.raft.CurrentTerm() != r.o.term {
		lose(done)
		return
	}
	r.o.machine.whenApplied(rd.index, func(ok bool) {
		if !ok {
			lose(done)
			return
		}
		r.o.stats.ReadGroups.Add(float64(len(done)))
		now := r.o.now()
		for _, reader := range done {
			reader.confirmed(r.o, now)
		}
	})
}

// watch asks again when the answers of a round stay away: a stream may have
// been lost with the question in it. keepTime calls it.
func (r *readRounds) watch() { r.repeat(r.o.opts.ConfirmRetry) }

// repeat asks all voters again in the rounds that are older than age.
func (r *readRounds) repeat(age time.Duration) {
	r.mu.Lock()
	var done []*round
	if !r.closed {
		now := r.o.clock.Mono()
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

func (r *readRounds) close() {
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

func lose(readers []reader) {
	for _, rd := range readers {
		rd.lost()
	}
}
