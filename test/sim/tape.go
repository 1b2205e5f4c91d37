package sim

import (
	"io"
	"slices"

	"github.com/holdfast-kv/holdfast/rpc"
)

// tape is the beginning of what a node sent on one raft connection: the
// handshake, then requests. Played on a connection of its own, later, it is what
// a network does that delivers a message twice, late, and out of order with
// all others. TCP does not do that; a proxy in between may.
type tape struct {
	dir  direction
	data []byte
	full bool
}

const (
	tapeBytes = 64 << 10
	maxTapes  = 64
	// serviceAt is where the dialler's first bytes name the service: see package rpc.
	serviceAt = 7
)

// newTape starts a recording. n.mu is held.
func (n *network) newTape(from, to string) *tape {
	t := &tape{dir: direction{from, to}}
	if n.tapes = append(n.tapes, t); len(n.tapes) > maxTapes {
		n.tapes = slices.Delete(n.tapes, 0, 1)
	}
	return t
}

// record keeps whole writes only: a request that is cut off would be an error
// of the recording.
func (t *tape) record(b []byte) {
	if t.full || len(t.data)+len(b) > tapeBytes {
		t.full = true
		return
	}
	t.data = append(t.data, b...)
}

func (t *tape) raft() bool {
	return len(t.data) > serviceAt && rpc.Service(t.data[serviceAt]) == rpc.ServiceRaft
}

// replay plays an old raft connection's requests to their receiver again. It
// reports false when there is none to play.
func (n *network) replay(pick func(int) int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	var old []*tape
	for _, t := range n.tapes {
		l := n.hosts[t.dir.to]
		if t.raft() && l != nil && !l.dark && !l.closed && n.link(t.dir).cuts == 0 {
			old = append(old, t)
		}
	}
	if len(old) == 0 {
		return false
	}
	t := old[pick(len(old))]
	near, far := n.pair(t.dir.from, t.dir.to)
	near.out.push(slices.Clone(t.data))
	near.shutLocked()
	l := n.hosts[t.dir.to]
	l.backlog = append(l.backlog, far)
	l.changed.Broadcast()
	n.seen.replayed++
	go func() {
		// The answers belong to nobody; they only have to be taken.
		_, _ = io.Copy(io.Discard, near)
		near.Close()
	}()
	return true
}
