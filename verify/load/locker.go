package load

import (
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// useLocks takes locks, holds them for a while, sometimes renews them, and gives
// them back or lets them run out, until the load stops.
func (c *client) useLocks() {
	for c.ready() {
		h, got := c.acquire()
		if !got {
			// Somebody has it: waiting a little makes fewer refusals to be checked.
			pause(c.load.ctx, time.Duration(c.rng.Int64N(int64(30*time.Millisecond))))
			continue
		}
		if h.Granted != oracle.Forever {
			c.keep(&h)
		}
		c.load.rec.add(func(hist *History) { hist.Holds = append(hist.Holds, h) })
	}
}

// acquire tries to take a lock, together with a fencing token in nine of ten
// times. got is true for a grant, and for an attempt of unknown outcome.
func (c *client) acquire() (h oracle.Hold, got bool) {
	l := c.load
	lock := l.mark(l.locks.take(c.rng, 3))
	o := oracle.Op{Kind: oracle.Set, Key: lock, Arg: c.unique(lock), NX: true, TTL: l.cfg.LockTTL, Client: c.id, Node: c.node(), Outcome: oracle.Unknown}
	h = oracle.Hold{Lock: lock, Token: o.Arg, Client: c.id, TTL: o.TTL, Granted: oracle.Forever}
	cmds := [][]string{l.words(&o)}
	if c.rng.IntN(10) > 0 {
		cmds = [][]string{{"MULTI"}, cmds[0], {"INCR", l.mark(lock + ":fence")}, {"EXEC"}}
	}
	replies, call, ret := c.send(cmds)
	o.Call, o.Return, h.Call = call, ret, call
	if len(replies) == len(cmds) {
		v := replies[len(replies)-1]
		if len(v.Elems) == 2 {
			h.Fence = v.Elems[1].Int
			v = v.Elems[0]
		}
		c.settle(&o, v)
	}
	l.rec.add(func(hist *History) {
		hist.Ops = append(hist.Ops, o)
		if o.Outcome == oracle.Done && o.Reply.Null {
			hist.Refusals = append(hist.Refusals, oracle.Refusal{Lock: lock, Client: c.id, Call: call, Return: ret})
		}
	})
	switch {
	case o.Outcome == oracle.Unknown:
		l.locks.doubtful()
		return h, true
	case o.Outcome == oracle.Done && o.Reply.Text == "OK":
		h.Granted = ret
		return h, true
	}
	return h, false
}

// keep is what an owner does with its lock.
func (c *client) keep(h *oracle.Hold) {
	l := c.load
	if c.rng.IntN(4) == 0 {
		return // it dies, or forgets: the lock runs out
	}
	pause(l.ctx, time.Duration(c.rng.Int64N(int64(h.TTL)/2)))
	if c.rng.IntN(4) == 0 && c.connected() {
		h.Renewals = append(h.Renewals, c.renew(h))
		pause(l.ctx, time.Duration(c.rng.Int64N(int64(h.TTL)/2)))
	}
	if !c.connected() {
		return
	}
	o := c.run([]oracle.Op{{Kind: oracle.DelIfEq, Key: h.Lock, Cmp: h.Token}}, l.locks)[0]
	if o.Outcome != oracle.Refused {
		h.Release = &oracle.Step{Call: o.Call, Return: o.Return, Outcome: o.Outcome, Mine: o.Reply.Int == 1}
	}
}

// renew gives the lock its full time again, if it still is this client's.
func (c *client) renew(h *oracle.Hold) oracle.Step {
	l := c.load
	o := oracle.Op{Kind: oracle.Set, Key: h.Lock, Arg: h.Token, Cmp: h.Token, TTL: h.TTL}
	if !l.script {
		o = c.run([]oracle.Op{o}, l.locks)[0]
		return oracle.Step{Call: o.Call, Return: o.Return, Outcome: o.Outcome, Mine: o.Reply.Text == "OK"}
	}
	// A script is no command of the model: what it does is SET IFEQ of the same
	// value, with another reply.
	o.Client, o.Node, o.Outcome = c.id, c.node(), oracle.Unknown
	replies, call, ret := c.send([][]string{{"EVAL", renewScript, "1", h.Lock, h.Token, strconv.FormatInt(h.TTL.Milliseconds(), 10)}})
	o.Call, o.Return = call, ret
	if len(replies) > 0 {
		c.settle(&o, replies[0])
		if o.Outcome == oracle.Done && !o.Reply.Error {
			o.Reply = map[bool]oracle.Reply{true: {Text: "OK"}, false: {Null: true}}[o.Reply.Int == 1]
		}
	}
	if o.Outcome == oracle.Unknown {
		l.locks.doubtful()
	}
	l.rec.add(func(hist *History) { hist.Ops = append(hist.Ops, o) })
	return oracle.Step{Call: call, Return: ret, Outcome: o.Outcome, Mine: o.Reply.Text == "OK"}
}

// connected is ready without the pause: an owner does not dawdle.
func (c *client) connected() bool {
	if c.load.ctx.Err() != nil {
		return false
	}
	if c.conn == nil {
		return c.ready()
	}
	return true
}
