package transport

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// errNotReplicating ends a request that waits for a member to answer again, if
// there is no longer a reason to send the request.
var errNotReplicating = errors.New("this node no longer leads in the term of the request, or the peer is not a member")

// peerProbeEvery is the interval of the probes that are sent to a member that
// does not answer.
const peerProbeEvery = 100 * time.Millisecond

// peerProbe delays entries and snapshots: after a member has failed to answer,
// they wait until the member can be reached again.
//
// hashicorp/raft 1.7.3 doubles a pause after each failed request, up to about
// ten seconds, and nothing ends the pause early. A member that answers again
// receives heartbeats but no entries until the pause is over. Until then it
// does not count for a majority, although the leader could send entries. So
// after a failure, the next request waits until a heartbeat has reached the
// member: one of raft's, or a probe of peerProbe. raft then counts one failure
// instead of ten.
//
// raft's heartbeats alone would not suffice. A leader whose timers are slow
// sends them so rarely that only the append requests keep its followers from
// campaigning (simulator, seed 628).
type peerProbe struct {
	// replicatesTo reports whether this node leads in term and the node id is a
	// member.
	replicatesTo func(id raft.ServerID, term uint64) bool
	ctx          context.Context // ends with the node

	mu sync.Mutex
	// away contains the members to which the last request failed. Each channel
	// is closed when its member has been reached. away is guarded by mu.
	away map[raft.ServerID]chan struct{}
}

func newPeerProbe(ctx context.Context, replicatesTo func(id raft.ServerID, term uint64) bool) *peerProbe {
	return &peerProbe{replicatesTo: replicatesTo, ctx: ctx, away: make(map[raft.ServerID]chan struct{})}
}

// heard records the result of a heartbeat.
func (p *peerProbe) heard(id raft.ServerID, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if back := p.away[id]; back != nil && err == nil {
		close(back)
		delete(p.away, id)
	}
}

// send waits until the member can be reached, and then calls request, which
// sends entries or a snapshot. heartbeat probes the member. raft sends entries
// to a member from one goroutine, so send is not called concurrently for the
// same member.
func (p *peerProbe) send(id raft.ServerID, term uint64, heartbeat, request func() error) error {
	if err := p.await(id, term, heartbeat); err != nil {
		return err
	}
	err := request()
	if err != nil {
		p.mu.Lock()
		if p.away[id] == nil {
			p.away[id] = make(chan struct{})
		}
		p.mu.Unlock()
	}
	return err
}

// await waits until the member has been reached after its last failure. It
// returns nil immediately if p.away does not contain the member.
func (p *peerProbe) await(id raft.ServerID, term uint64, heartbeat func() error) error {
	p.mu.Lock()
	back := p.away[id]
	p.mu.Unlock()
	if back == nil {
		return nil
	}
	t := time.NewTicker(peerProbeEvery)
	defer t.Stop()
	for {
		if !p.replicatesTo(id, term) {
			return errNotReplicating
		}
		err := heartbeat()
		p.heard(id, err)
		if err == nil {
			return nil
		}
		select {
		case <-back:
			return nil
		case <-p.ctx.Done():
			return p.ctx.Err()
		case <-t.C:
		}
	}
}
