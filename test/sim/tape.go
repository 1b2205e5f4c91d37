package sim

import (
	"io"
	"slices"

	"github.com/holdfast-kv/holdfast/rpc"
)

// tape is a recording of the first bytes that the dialer of a connection sent:
// the handshake and then requests. Playing the tape later on a new connection
// simulates a network that delivers messages a second time, late and out of
// order. TCP does not do that, but a proxy may. Only tapes of raft connections
// are played.
type tape struct {
	dir  direction
	data []byte
	full bool
}

const (
	tapeBytes = 64 << 10
	maxTapes  = 64
	// serviceAt is the offset of the byte with which the dialer names the
	// service: see package rpc.
	serviceAt = 7
)

// newTape starts a recording. The caller must hold n.mu.
func (n *network) newTape(from, to string) *tape {
	t := &tape{dir: direction{from, to}}
	if n.tapes = append(n.tapes, t); len(n.tapes) > maxTapes {
		n.tapes = slices.Delete(n.tapes, 0, 1)
	}
	return t
}

// record adds a write to the tape. It records a write completely or not at all,
// because a truncated request on the tape would be a mistake of the simulator.
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

// replay sends the recorded requests of an old raft connection to their
// receiver again. It reports false if there is no recording to play.
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
	l.pending = append(l.pending, far)
	l.changed.Broadcast()
	n.seen.replayed++
	go func() {
		// The answers are read and discarded.
		_, _ = io.Copy(io.Discard, near)
		near.Close()
	}()
	return true
}
