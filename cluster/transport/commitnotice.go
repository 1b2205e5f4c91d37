package transport

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// commitNotices sends the commit index to followers when no further entry
// carries it.
//
// A follower learns the commit index from the append requests of its leader. If
// raft has no entries to send, it sends such a request after each
// raft.Config.CommitTimeout, whether the commit index has changed or not.
// Followers should learn of a commit within milliseconds, because clients wait
// for it: for a read on a follower, a message, or a lock that is passed on.
// With a CommitTimeout of milliseconds, an idle leader would send hundreds of
// useless requests a second. So raft's timeout is long, and commitNotices sends
// a request when a follower has not learned of a commit within the time
// commitNotices.after.
//
// Such a request is an append request without entries, as raft itself would
// send it, and Transport sends it under the same rules. The preceding entry
// that it names is one that the follower has acknowledged to this leader in
// this term. So the follower accepts the request, unless a later leader has
// replaced that entry. In that case, the follower's term is higher than that of
// the request, and the follower refuses it. If a request is lost, raft sends
// the commit index after its timeout.
//
// The methods are safe for concurrent use.
type commitNotices struct {
	after time.Duration
	// send sends a request and reports whether the follower accepted it.
	send func(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest) bool
	ctx  context.Context // ends with the node
	wg   sync.WaitGroup  // goroutines that send

	mu     sync.Mutex
	commit uint64 // highest index that this node has applied
	armed  bool   // a call of fire is due
	// armedAt is the value of commit when the due call of fire was scheduled.
	// If an append request has carried armedAt to a follower before the call,
	// further append requests carry later commits, and the call leaves the
	// follower out.
	armedAt uint64
	closed  bool
	// followers contains the members that have accepted a request of this node
	// as leader, each with data of the latest such request. tell removes a
	// member that does not accept a notice.
	followers map[raft.ServerID]*noticed
}

// noticed is a leader's knowledge about a follower.
type noticed struct {
	target raft.ServerAddress
	header raft.RPCHeader
	term   uint64 // term of the leader
	// last is the log index of the last entry that the follower is known to
	// share with the leader, and lastTerm is the term of that entry.
	last, lastTerm uint64
	accepted       uint64 // highest commit index that the follower has accepted
	sending        bool
}

func newCommitNotices(
	ctx context.Context, after time.Duration,
	send func(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest) bool,
) *commitNotices {
	return &commitNotices{after: after, send: send, ctx: ctx, followers: make(map[raft.ServerID]*noticed)}
}

// due returns the highest commit index that a request may tell the follower, or
// 0 if the follower has accepted it already.
func (f *noticed) due(commit uint64) uint64 {
	if upTo := min(commit, f.last); upTo > f.accepted {
		return upTo
	}
	return 0
}

// accepted records that a follower has accepted a request.
func (n *commitNotices) accepted(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest) {
	last, lastTerm := req.PrevLogEntry, req.PrevLogTerm
	if k := len(req.Entries); k > 0 {
		last, lastTerm = req.Entries[k-1].Index, req.Entries[k-1].Term
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.followers[id]
	if f == nil || f.term < req.Term {
		f = &noticed{term: req.Term}
		n.followers[id] = f
	}
	if f.term > req.Term {
		return // a late answer to an earlier leadership of this node
	}
	f.target, f.header = target, req.RPCHeader
	if last >= f.last {
		f.last, f.lastTerm = last, lastTerm
	}
	f.accepted = max(f.accepted, min(req.LeaderCommitIndex, last))
	if f.due(n.commit) > 0 {
		n.armLocked()
	}
}

// committed records that this node has applied an entry.
func (n *commitNotices) committed(index uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.commit = max(n.commit, index)
	if n.armed {
		return
	}
	for _, f := range n.followers {
		if f.due(n.commit) > 0 {
			n.armLocked()
			return
		}
	}
}

func (n *commitNotices) armLocked() {
	if n.armed || n.closed {
		return
	}
	n.armed, n.armedAt = true, n.commit
	time.AfterFunc(n.after, n.fire)
}

// fire sends a request to each follower that has not learned of the commits from
// an append request.
func (n *commitNotices) fire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = false
	if n.closed || n.ctx.Err() != nil {
		return
	}
	for id, f := range n.followers {
		upTo := f.due(n.commit)
		if upTo == 0 || f.sending {
			continue
		}
		if f.due(n.armedAt) == 0 { // an append request has carried armedAt meanwhile, and more are coming
			n.armLocked()
			continue
		}
		f.sending = true
		target, req := f.target, &raft.AppendEntriesRequest{
			RPCHeader: f.header, Term: f.term, PrevLogEntry: f.last, PrevLogTerm: f.lastTerm, LeaderCommitIndex: upTo,
		}
		n.wg.Go(func() { n.tell(id, f, target, req) })
	}
}

// tell sends a request to a follower. If the follower does not accept it, tell
// forgets the follower until the follower has accepted another request of raft.
// The follower may be down, or this node may no longer lead.
func (n *commitNotices) tell(
	id raft.ServerID, f *noticed, target raft.ServerAddress, req *raft.AppendEntriesRequest,
) {
	ok := n.send(id, target, req)
	n.mu.Lock()
	defer n.mu.Unlock()
	f.sending = false
	if !ok {
		if n.followers[id] == f {
			delete(n.followers, id)
		}
		return
	}
	// An entry may have been committed meanwhile.
	if f.due(n.commit) > 0 {
		n.armLocked()
	}
}

// close ensures that no further request is sent. It does not wait for
// requests that are on their way: see wait.
func (n *commitNotices) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
}

// wait waits for the requests that are on their way. It must be called after
// close.
func (n *commitNotices) wait() { n.wg.Wait() }
