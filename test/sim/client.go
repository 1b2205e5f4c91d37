package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// client is a client of one node at a time. It calls the node directly, as the
// goroutine that serves a connection does. So it does not test how a broken
// connection affects requests; the clients in remote.go do.
type client struct {
	w    *world
	h    *history
	id   int
	r    *rand.Rand
	home string // the node that the client is connected to

	proc *process
	s    *cluster.Session
	g    fsm.Group
}

func (h *history) client(id int, purpose string) *client {
	return &client{w: h.w, h: h, id: id, r: stream(h.w.seed, fmt.Sprintf("%s %d", purpose, id))}
}

// connect chooses a node at random if the client has left its node or if that
// node is down. It waits until the chosen node runs. It reports false when the
// history is over.
func (c *client) connect() bool {
	for !c.h.ended() {
		if c.home == "" {
			ids := c.w.ids()
			c.home = ids[c.r.IntN(len(ids))]
		}
		if p := c.w.node(c.home).running(); p != nil {
			if c.proc != p {
				c.proc, c.s = p, p.n.NewSession()
			}
			return true
		}
		c.home = ""
		if !c.h.pause(50 * time.Millisecond) {
			return false
		}
	}
	return false
}

// leave disconnects the client. Before its next command, the client chooses a
// node at random.
func (c *client) leave() { c.home = "" }

type command = []string

func (c *client) build(cmds []command) {
	c.g.Reset(2, 1)
	for _, cmd := range cmds {
		c.g.Command(c.row(cmd), 0, args(cmd))
	}
}

func (c *client) row(cmd command) *fsm.Command {
	row := c.proc.n.Table().Find([]byte(cmd[0]))
	if row == nil {
		panic("sim: no command " + cmd[0])
	}
	return row
}

func args(cmd command) [][]byte {
	return respwire.Args(cmd...)
}

// do sends commands as one group. The client must be connected.
func (c *client) do(cmds ...command) exchange {
	c.build(cmds)
	return c.send()
}

// transaction sends commands as a MULTI block that depends on watches.
func (c *client) transaction(watches []fsm.Watch, cmds ...command) exchange {
	queued := make([]fsm.Queued, len(cmds))
	for i, cmd := range cmds {
		queued[i] = fsm.Queued{Cmd: c.row(cmd), Args: args(cmd)}
	}
	c.g.Reset(2, 1)
	c.g.Transaction(watches, queued)
	return c.send()
}

// exchange is a request and its result.
type exchange struct {
	node         string
	call, ret    time.Duration
	outcome      checker.Outcome
	replies      []value
	err          error
	disconnected bool // the node's process died, or the connection was lost
}

func (c *client) send() exchange {
	x := exchange{node: c.proc.id, call: c.w.elapsed()}
	raw, err := c.s.Do(&c.g, false, nil)
	x.ret = c.w.elapsed()
	c.h.count(err)
	switch {
	case c.proc.dead.Load():
		// A dead process answers nothing, although its goroutines may have
		// completed the request after its death.
		x.outcome, x.disconnected, x.err = checker.Unknown, true, errors.New("connection closed")
		c.leave()
		return x
	case err == nil:
		x.outcome = checker.Done
		if x.replies, err = parse(string(raw)); err != nil {
			c.w.audit.violate("client %d: %v", c.id, err)
		}
		return x
	case errors.Is(err, outcome.ErrNoLeader), errors.Is(err, outcome.ErrClosed), errors.Is(err, outcome.ErrRemoved):
		x.outcome = checker.Refused
	case errors.Is(err, outcome.ErrUnknown), errors.Is(err, outcome.ErrReplyLost):
		x.outcome = checker.Unknown
	default:
		c.w.audit.violate("client %d: %v", c.id, err)
		x.outcome = checker.Unknown
	}
	x.err = err
	c.leave()
	return x
}

// finish copies the result of an exchange to an operation.
func (x *exchange) finish(o *checker.Op, client int) {
	o.Client, o.Node, o.Call, o.Return, o.Outcome = client, x.node, x.call, x.ret, x.outcome
	if x.err != nil {
		o.Error = x.err.Error()
	}
}

// first returns the reply to the first command, or a zero value if there is
// none.
func (x *exchange) first() (v value) {
	if len(x.replies) > 0 {
		v = x.replies[0]
	}
	return v
}
