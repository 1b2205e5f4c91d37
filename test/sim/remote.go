package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// remote is a client outside the nodes. It speaks the Redis protocol over a
// connection to one node's client port, and outlives that node's process. If the
// connection is lost, the outcome of the commands under way is unknown.
type remote struct {
	h    *history
	id   int
	r    *rand.Rand
	home string // the node that the client prefers

	conn    *respwire.Conn
	proc    *process    // the process that serves the connection
	origin  uint64      // the connection's ID on that process, if setup contains CLIENT ID
	setup   []command   // sent first on every connection
	pushed  func(value) // called for each push, in the order of the stream
	dropped func()      // called when a connection is lost or closed
	stays   bool        // true if the connection stays open when the client has ended
}

func (h *history) remote(id int, purpose string) *remote {
	return &remote{h: h, id: id, r: stream(h.w.seed, fmt.Sprintf("%s %d", purpose, id))}
}

// replyTimeout is how long a client waits for the reply to a command that does
// not block. The cluster must reply earlier than that, if only to say that the
// outcome is unknown.
const replyTimeout = 20 * time.Second

// think waits between two commands. It reports false when the history is over.
func (c *remote) think() bool {
	return c.h.pause(time.Duration(c.r.Int64N(int64(2 * c.h.plan.think()))))
}

// connect makes sure that there is a connection. It reports false when the
// history is over.
func (c *remote) connect() bool {
	for !c.h.ended() {
		if c.conn != nil {
			return true
		}
		if c.home == "" {
			ids := c.h.w.ids()
			c.home = ids[c.r.IntN(len(ids))]
		}
		if c.dial() {
			return true
		}
		// A client usually tries the same node again, because a node
		// that was only restarted is back soon.
		if c.r.IntN(4) == 0 {
			c.home = ""
		}
		if !c.h.pause(20 * time.Millisecond) {
			return false
		}
	}
	return false
}

func (c *remote) dial() bool {
	p := c.h.w.node(c.home).running()
	if p == nil || p.port == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	conn, err := c.h.w.net.dialer(clientHost, func() bool { return true })(ctx, address(portHost(c.home)))
	if err != nil {
		return false
	}
	c.conn, c.proc = respwire.NewConn(conn), p
	if len(c.setup) == 0 {
		return true
	}
	x := c.do(c.setup...)
	if x.outcome != checker.Done {
		c.leave()
		return false
	}
	for i, v := range x.replies {
		switch {
		case v.Error && strings.HasPrefix(fmt.Sprint(v.Reply), "error CLUSTERDOWN"):
			// The node has found no leader since its start, so it does not know
			// the users of the cluster.
			c.leave()
			return false
		case v.Error:
			c.h.w.audit.violate("client %d: %v answered %v", c.id, c.setup[i], v.Reply)
		}
		if c.setup[i][0] == "client" && c.setup[i][1] == "id" {
			c.origin = uint64(v.Int)
		}
	}
	return true
}

// leave closes the connection. The next connection may be to another node.
func (c *remote) leave() {
	c.close()
	if c.r.IntN(2) == 0 {
		c.home = ""
	}
}

// close closes the connection.
func (c *remote) close() {
	if c.conn == nil {
		return
	}
	_ = c.conn.Close() // the connection may be broken already
	c.conn = nil
	if c.dropped != nil {
		c.dropped()
	}
}

// do sends commands in one pipeline and waits for their replies.
func (c *remote) do(cmds ...command) exchange {
	x := c.send(cmds...)
	if x.outcome != checker.Done {
		return x
	}
	return c.receive(x, len(cmds), replyTimeout)
}

// send sends commands and returns the exchange without waiting for replies. Its
// outcome is Done if the commands were sent; receive then determines the final
// outcome.
func (c *remote) send(cmds ...command) exchange {
	x := exchange{node: c.home, call: c.h.w.elapsed()}
	if err := c.conn.Send(cmds...); err != nil {
		c.lost(&x, err)
	}
	return x
}

// receive waits for n replies to an exchange.
func (c *remote) receive(x exchange, n int, limit time.Duration) exchange {
	deadline := time.Now().Add(limit)
	for len(x.replies) < n {
		v, err := c.read(deadline)
		if err != nil {
			c.lost(&x, err)
			return x
		}
		x.replies = append(x.replies, v)
	}
	x.ret = c.h.w.elapsed()
	if v := x.replies[0]; v.Error {
		x.outcome = outcomeOf(v.Text)
		if x.outcome != checker.Done {
			x.err = errors.New(v.Text)
		}
	}
	c.h.count(x.err)
	return x
}

// receiveOrLeave waits for a reply, and leaves if none arrives within limit.
func (c *remote) receiveOrLeave(x exchange, limit time.Duration) exchange {
	v, err := c.read(time.Now().Add(limit))
	if err == nil {
		x.replies = append(x.replies, v)
		return c.receive(x, 1, 0)
	}
	x.ret, x.outcome, x.err = c.h.w.elapsed(), checker.Unknown, errors.New("the client left before the reply")
	c.h.count(x.err)
	c.leave()
	return x
}

// lost records that the connection ended before the replies arrived.
func (c *remote) lost(x *exchange, err error) {
	x.ret, x.outcome, x.err, x.disconnected = c.h.w.elapsed(), checker.Unknown, errors.New("connection lost"), true
	if isDeadline(err) && !c.proc.dead.Load() { // a host without power causes timeouts
		c.h.w.audit.violate("client %d: no reply from %s within its timeout, sent at %v", c.id, x.node, x.call)
	}
	c.h.count(x.err)
	c.leave()
}

func isDeadline(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// outcomeOf returns the outcome of a command that got an error reply with the
// given text: see resp/errors.go.
func outcomeOf(text string) checker.Outcome {
	switch {
	case strings.HasPrefix(text, "CLUSTERDOWN "), strings.HasPrefix(text, "EXECABORT "):
		return checker.Refused
	case strings.HasPrefix(text, "UNKNOWN "):
		return checker.Unknown
	}
	return checker.Done
}

// read returns the next reply. If pushes come before the reply, read passes
// them to the function pushed.
func (c *remote) read(deadline time.Time) (value, error) {
	for {
		if err := c.conn.SetReadDeadline(deadline); err != nil {
			return value{}, err
		}
		v, err := c.conn.Receive()
		if err != nil {
			return value{}, err
		}
		if !v.IsPush() {
			return valueOf(v), nil
		}
		if c.pushed != nil {
			c.pushed(valueOf(v))
		}
	}
}
