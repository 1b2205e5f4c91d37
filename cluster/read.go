package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// readIndex makes reads linearizable with ReadIndex rounds (Raft dissertation,
// 6.4). All waiting reads share one round, and a second round may run behind
// the first: see roundAhead. A round has these steps:
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
// Holdfast does not use raft.VerifyLeader, because it counts non-voters, and
// also acknowledgements of heartbeats that were sent before the call
// (hashicorp/raft; the same class of bug as etcd issue 20418).
type readIndex struct {
	ld *leadership

	mu     sync.Mutex
	closed bool
	// peers contains the streams of the nodes that read through this leader and
	// confirm its leadership. See leadership.attach.
	peers   map[raft.ServerID][]*readServer
	waiting []reader          // reads that are not in a round yet
	rounds  []*readIndexRound // running rounds, oldest first, at most maxRounds
	nonce   uint64
	// prefer is the voter that answered last. While it answers, a round asks no
	// more voters than it needs.
	prefer raft.ServerID
}

// A round takes a round trip to another process, most of which is waiting time.
// A second round starts behind the first when at least roundAhead reads wait
// for it. Fewer reads do not justify another message.
const (
	maxRounds  = 2
	roundAhead = 8
)

// readIndexRound is one running ReadIndex round. It is guarded by readIndex.mu.
type readIndexRound struct {
	readers []reader
	nonce   uint64
	index   uint64
	acks    []raft.ServerID
	need    int // confirmations that the round needs in addition to this node's own
	started time.Duration
}

// reader is a read that waits for its round.
type reader interface {
	// confirmed is called once the read may run on the current state of the
	// machine. now is the lease clock that decides expiry; it is read once for
	// all reads of a round. index is the lowest log index that the read must
	// include; the machine has applied it. confirmed must be short, because the
	// goroutine may be the one that applies the log.
	confirmed(ld *leadership, now int64, index uint64)
	// lost is called when the leadership ended before the read ran.
	lost()
}

func (r *readIndex) init(ld *leadership) {
	r.ld = ld
	r.peers = make(map[raft.ServerID][]*readServer)
}

// attach adds a stream of the node with the given id.
func (r *readIndex) attach(id raft.ServerID, p *readServer) {
	r.mu.Lock()
	r.peers[id] = with(r.peers[id], p)
	r.mu.Unlock()
}

func (r *readIndex) detach(id raft.ServerID, p *readServer) {
	r.mu.Lock()
	if left := without(r.peers[id], p); len(left) > 0 {
		r.peers[id] = left
	} else {
		delete(r.peers, id)
	}
	r.mu.Unlock()
	r.repeat(0) // the question may have been lost with the stream
}

// add puts a read into the next round.
func (r *readIndex) add(rd reader) {
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

// startNext starts a round with all waiting reads, unless maxRounds are running
// or too few reads wait. It returns the round if no other node has to confirm
// it. The caller holds r.mu and passes the result to finish after unlocking it.
func (r *readIndex) startNext() (done *readIndexRound) {
	if n := len(r.rounds); len(r.waiting) == 0 || n >= maxRounds || n > 0 && len(r.waiting) < roundAhead {
		return nil
	}
	rd := &readIndexRound{readers: r.waiting, index: r.ld.committed()}
	r.waiting = nil
	r.rounds = append(r.rounds, rd)
	return r.ask(rd, false)
}

// ask sends the questions of a round under a new nonce. If all is false, it
// asks as many voters as are needed, beginning with the voter that answered
// last. The voters are those of the latest configuration, committed or not. The
// caller holds r.mu.
func (r *readIndex) ask(rd *readIndexRound, all bool) (done *readIndexRound) {
	r.nonce++
	rd.nonce, rd.acks, rd.started = r.nonce, rd.acks[:0], r.ld.clock.Mono()
	servers := r.ld.raft.GetConfiguration().Configuration().Servers
	rd.need = confirmations(servers, r.ld.self)
	if rd.need == 0 {
		return r.end(rd)
	}
	asked := 0
	question := func(s raft.Server) {
		streams := r.peers[s.ID]
		if len(streams) == 0 || s.Suffrage != raft.Voter || s.ID == r.ld.self {
			return
		}
		// ask on all streams: it is not known which one the node reads, see
		// leadership.attach
		for _, p := range streams {
			p.confirm(r.ld.term, rd.nonce)
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
// log until the removal is committed. During that time its own confirmation
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
func (r *readIndex) end(rd *readIndexRound) *readIndexRound {
	r.rounds = slices.DeleteFunc(r.rounds, func(x *readIndexRound) bool { return x == rd })
	r.ld.stats.ReadIndexRounds.Add(1)
	return rd
}

// ack counts the answer of a voter.
func (r *readIndex) ack(from raft.ServerID, term, nonce uint64, ok bool) {
	r.mu.Lock()
	i := slices.IndexFunc(r.rounds, func(rd *readIndexRound) bool { return rd.nonce == nonce })
	if r.closed || term != r.ld.term || i < 0 || !ok || slices.Contains(r.rounds[i].acks, from) {
		r.mu.Unlock()
		return
	}
	rd := r.rounds[i]
	rd.acks = append(rd.acks, from) // only voters were asked: see ask
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

// finish executes the reads of a confirmed round once the machine has applied
// the round's index. This node's own confirmation counts only if the node still
// leads the term, so finish checks that first. The caller must not hold r.mu.
func (r *readIndex) finish(rd *readIndexRound) {
	if rd == nil {
		return
	}
	done := rd.readers
	if r.ld.raft.State() != raft.Leader || r.ld.raft.CurrentTerm() != r.ld.term {
		lose(done)
		return
	}
	r.ld.machine.WhenApplied(rd.index, func(ok bool) {
		if !ok {
			lose(done)
			return
		}
		r.ld.stats.ReadGroups.Add(float64(len(done)))
		r.ld.confirm(done, rd.index)
	})
}

// maxInline is how many remote reads confirm runs on its own goroutine. Each of
// them may take as long as inlineSteps permit.
const maxInline = 16

// confirm executes the reads. After maxInline remote reads it passes the rest
// to another goroutine, which does the same.
func (ld *leadership) confirm(readers []reader, index uint64) {
	now, inline := ld.now(), 0
	for i, reader := range readers {
		if _, remote := reader.(*remoteRead); remote {
			if inline++; inline > maxInline {
				go ld.confirm(readers[i:], index)
				return
			}
		}
		reader.confirmed(ld, now, index)
	}
}

// watch asks again in rounds that have not been answered for ConfirmRetry,
// because a stream may have been lost together with the question. keepTime
// calls it.
func (r *readIndex) watch() { r.repeat(r.ld.opts.ConfirmRetry) }

// repeat asks all voters again in every round that is at least age old.
func (r *readIndex) repeat(age time.Duration) {
	r.mu.Lock()
	var done []*readIndexRound
	if !r.closed {
		now := r.ld.clock.Mono()
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

func (r *readIndex) close() {
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
