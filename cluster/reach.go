package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// errNotFed ends a request to a member that is away when there is no reason left
// to send it.
var errNotFed = errors.New("this node does not lead that term any more, or the node is no member")

// feedCheck is how often somebody who is away is tried.
const feedCheck = 100 * time.Millisecond

// reach keeps raft from trying in vain to feed a member that is away. After each
// failure hashicorp/raft 1.7.3 doubles a pause, up to ten seconds, which nothing
// ends: a member that is back then hears heartbeats, and gets no entries, and does
// not count for a majority, though a leader is there to feed it. So after a failure the
// next request waits until something has got through, a heartbeat of raft's or
// one of its own, and raft counts one failure, not ten. (Raft's alone would not do: a
// leader whose timers are slow sends them so seldom that its followers live on
// the appends; simulator, seed 628.)
type reach struct {
	// feeds reports whether this node leads a term and has that member.
	feeds func(id raft.ServerID, term uint64) bool
	ctx   context.Context // of the node

	mu   sync.Mutex
	away map[raft.ServerID]chan struct{} // closed when the member has been reached
}

func newReach(ctx context.Context, feeds func(id raft.ServerID, term uint64) bool) *reach {
	return &reach{feeds: feeds, ctx: ctx, away: make(map[raft.ServerID]chan struct{})}
}

// heard notes whether a heartbeat has got through.
func (r *reach) heard(id raft.ServerID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if back := r.away[id]; back != nil && err == nil {
		close(back)
		delete(r.away, id)
	}
}

// feed makes a request that brings entries, or a snapshot, when the member is
// there; heartbeat tries whether it is. raft feeds a member from one goroutine.
func (r *reach) feed(id raft.ServerID, term uint64, heartbeat, request func() error) error {
	if err := r.await(id, term, heartbeat); err != nil {
		return err
	}
	err := request()
	if err != nil {
		r.mu.Lock()
		if r.away[id] == nil {
			r.away[id] = make(chan struct{})
		}
		r.mu.Unlock()
	}
	return err
}

// await waits until the member has been reached after its last failure.
func (r *reach) await(id raft.ServerID, term uint64, heartbeat func() error) error {
	r.mu.Lock()
	back := r.away[id]
	r.mu.Unlock()
	if back == nil {
		return nil
	}
	t := time.NewTicker(feedCheck)
	defer t.Stop()
	for {
		if !r.feeds(id, term) {
			return errNotFed
		}
		err := heartbeat()
		r.heard(id, err)
		if err == nil {
			return nil
		}
		select {
		case <-back:
			return nil
		case <-r.ctx.Done():
			return r.ctx.Err()
		case <-t.C:
		}
	}
}
