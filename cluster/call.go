package cluster

import (
	"errors"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Session is one client connection's way into the cluster: one group at a time.
// It is not safe for concurrent use; make one per connection.
type Session struct {
	node *Node
	call call
	buf  []byte

	wait   *wait  // the present one: see Block
	origin uint64 // whose it is
}

// call is a group on its way. Its owner waits on done and touches nothing else
// until then.
type call struct {
	gateway *gateway

	body []byte
	slow bool
	// trial asks for a trial of the group in place of a read: see trial.go.
	trial bool
	done  chan struct{} // capacity 1: one token a group

	reply []byte
	err   error
	// early, unless nil, is called with the replies before the owner is told: see
	// gateway.answer.
	early func(replies []byte)
	// ready asks the owner to run the read itself, at the office's now.
	ready *office

	// first and last are the numbers that the session's groups got since Do began:
	// a group that is run in pieces gets several. 0 for none.
	first, last uint64

	now   int64 // lease clock for the read, with ready
	since int64 // gateway.coarse when the call was made
}

func (c *call) finish(reply []byte, err error) {
	c.reply, c.err = reply, err
	c.done <- struct{}{}
}

// NewSession returns a session for a connection.
func (n *Node) NewSession() *Session {
	return &Session{node: n, call: call{gateway: n.gateway, done: make(chan struct{}, 1)}}
}

// Do runs a group and returns its replies, valid until the next Do. It blocks
// until the outcome is known, or known to be unknown: the error, if any, is an
// OutcomeError. The group must not change meanwhile. Reads are linearizable, unless
// local is set: then they see this node's state, however old it is.
//
// early, unless nil, is called once with the replies of a group that writes, before
// Do returns the same, if there is no error. It runs on a goroutine that answers
// other connections next, and must not block.
func (s *Session) Do(g *fsm.Group, local bool, early func(replies []byte)) ([]byte, error) {
	c := &s.call
	c.body, c.slow, c.reply, c.err, c.ready, c.early = g.Bytes(), g.Slow, nil, nil, nil, nil
	c.first, c.last = 0, 0
	if g.Feature > 0 && s.node.FeatureVersion(g.Feature) < g.Feature {
		return nil, ErrFeature
	}
	if !g.Write {
		reply, err := s.read(local)
		if !errors.Is(err, fsm.ErrUnlogged) {
			return reply, readFailed(err)
		}
		c.reply, c.err = nil, nil
	} else {
		c.early = early
	}
	s.node.gateway.write(c)
	<-c.done
	if c.err == nil && fsm.TooLong(c.reply) {
		return s.inPieces()
	}
	return c.reply, c.err
}

// Sent returns the numbers of the first and the last group that the last Do sent
// through the log; they differ if it ran its group in pieces. Both are 0 if it sent
// none.
func (s *Session) Sent() (first, last uint64) { return s.call.first, s.call.last }

// read runs the group of the call as a read.
func (s *Session) read(local bool) ([]byte, error) {
	c := &s.call
	if local || seeded.On(seeded.StaleRead) {
		n := s.node
		reply, _, err := n.machine.read(s.buf[:0], c.slow, fsm.ReadRequest{Body: c.body, Seed: n.seed(), Runner: n.scripts.until(n.ctx.Done()), Scripts: n.scripts})
		s.keep(reply)
		return reply, err
	}
	for {
		s.node.gateway.read(c)
		<-c.done
		if c.err != nil || c.ready == nil {
			return c.reply, c.err
		}
		o := c.ready
		c.ready = nil
		reply, overdue, err := o.runRead(s.buf[:0], c, c.now)
		s.keep(reply)
		if err != nil || !overdue {
			return reply, err
		}
		// The answer hangs on a key whose time is over, but no entry says so
		// yet: commit a tick, then read again. If the office closes meanwhile
		// the read simply starts over at the next leader.
		o.tick(func() { c.done <- struct{}{} })
		<-c.done
	}
}

// keep holds on to a reply buffer of moderate size for the next read.
func (s *Session) keep(buf []byte) {
	if cap(buf) <= 16<<10 {
		s.buf = buf
	} else {
		s.buf = nil
	}
}
