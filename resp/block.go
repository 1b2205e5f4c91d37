package resp

import (
	"math"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// blocked is a connection whose command waits.
type blocked struct {
	wake chan wakeUp // capacity 1: whoever takes the blocked from its conn may send
}

// wakeUp says why somebody else ends a wait.
type wakeUp int

const (
	wakeTimeout wakeUp = iota // CLIENT UNBLOCK: as if its time were over
	wakeError                 // CLIENT UNBLOCK … ERROR
	wakeKilled                // CLIENT KILL
)

const msgUnblocked = "UNBLOCKED client unblocked via CLIENT UNBLOCK"

// block runs a blocking command, and returns when it is answered or the
// connection ends. It is a group of its own: what came before it is answered
// first, what follows it in the pipeline waits.
func (c *conn) block(cmd *fsm.Command, args [][]byte) {
	c.flush()
	if c.ended() {
		return
	}
	c.show(cmd, c.db, args)
	c.group.Command(c.srv.table.Waits(cmd, args), c.db, args)
	c.cmds, c.first = append(c.cmds, cmd), args
	c.doing.Store(&c.srv.metrics.byCommand[cmd.ID()].name)
	c.waitPause(true)
	c.exec.begin()
	start := time.Now()
	own := c.hears()
	c.waiter = 0
	out, err := c.exec.Block(&c.group, c.id, own)
	ran := time.Since(start)
	if pos, ms, waits := fsm.Waiting(out); err == nil && waits {
		c.waiter = pos
		if resume, changed := fsm.ResumeArgs(args, out); changed {
			c.group.Reset(c.proto, c.id)
			c.group.Command(c.srv.table.Waits(cmd, resume), c.db, resume)
		}
		var over <-chan time.Time
		if ms > 0 && ms < math.MaxInt64/int64(time.Millisecond) {
			t := time.NewTimer(time.Duration(ms) * time.Millisecond)
			defer t.Stop()
			over = t.C
		}
		c.edit(func(i *clientInfo) { i.blocked = true })
		c.srv.blocked.Add(1)
		for out = nil; err == nil && out == nil && !c.done; {
			out, err = c.await(over)
		}
		c.srv.blocked.Add(-1)
		c.edit(func(i *clientInfo) { i.blocked = false })
	}
	if own && err == nil && !c.done {
		c.hear()
		if c.waiter != 0 { // the reply is not of the group that was sent last
			c.heard = cause{}
		}
	}
	c.answerGroup(out, err, ran)
}

// await waits until the wait that is under way has ended. It returns nothing if the
// connection has: then done is set.
func (c *conn) await(over <-chan time.Time) (reply []byte, err error) {
	// What came before in the pipeline is answered before, and what the connection
	// did not ask for need not wait. redcon keeps the error and ends the connection
	// by it.
	_ = c.out.endBefore(c.waiter)
	defer c.out.begin()
	b := &blocked{wake: make(chan wakeUp, 1)}
	c.blocked.Store(b)
	defer c.blocked.Store(nil)
	if c.killed.Load() { // before there was anybody to wake
		c.abandon()
		return nil, nil
	}
	var gone <-chan struct{}
	if g, ok := c.net.(*Guard); ok {
		left, stop, err := g.readAhead()
		if err != nil {
			c.abandon()
			return nil, nil
		}
		defer stop()
		gone = left
	}
	instead := fsm.NullArray
	select {
	case reply = <-c.exec.Waited():
		if reply != nil {
			return reply, nil
		}
		// The cluster has forgotten this node's waiters while it had no way to the
		// leader: the client does not need to know.
		if reply, err = c.exec.Block(&c.group, c.id, c.hears()); err != nil {
			return nil, err
		}
		if pos, _, waits := fsm.Waiting(reply); waits {
			c.waiter = pos
			return nil, nil
		}
		return reply, nil
	case <-gone:
		c.abandon()
		return nil, nil
	case <-over:
	case why := <-b.wake:
		switch why {
		case wakeKilled:
			c.abandon()
			return nil, nil
		case wakeError:
			instead = fsm.Error(msgUnblocked)
		}
	case <-c.srv.stopping:
		c.done = true // a client that is served all the same is told before
		reply, err := c.exec.Unblock()
		if err != nil {
			c.srv.log.Debug("wait of a client not ended", "client", c.id, "error", err)
		}
		return reply, nil
	}
	if reply, err = c.exec.Unblock(); err != nil || reply != nil {
		return reply, err
	}
	return instead.Append(nil, c.proto), nil
}

// abandon ends the wait of a client that is gone.
func (c *conn) abandon() {
	c.exec.Abandon()
	c.done = true
}

// wakeBlocked ends a wait, and reports whether there was one.
func (c *conn) wakeBlocked(why wakeUp) bool {
	b := c.blocked.Swap(nil)
	if b == nil {
		return false
	}
	b.wake <- why
	return true
}
