package load

import (
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

// useLocks takes locks until the load stops. It keeps each lock for a while,
// sometimes renews it, and then releases it or lets it expire.
func (c *client) useLocks() {
	for c.ready() {
		h, got := c.acquire()
		if !got {
			// Another client has the lock. A short wait reduces the number of
			// refusals to check.
			Sleep(c.load.ctx, time.Duration(c.rng.Int64N(int64(30*time.Millisecond))))
			continue
		}
		if h.Granted != checker.Forever {
			c.keep(&h)
		}
		c.load.rec.add(func(hist *History) { hist.Holds = append(hist.Holds, h) })
	}
}

// acquire tries to take a lock, and in nine of ten attempts also a fencing
// token. got is true for a grant, and for an attempt of unknown outcome.
func (c *client) acquire() (h checker.Hold, got bool) {
	l := c.load
	lock := l.mark(l.locks.take(c.rng, 3))
	o := checker.Op{Kind: checker.Set, Key: lock, Arg: c.unique(lock), NX: true, TTL: l.cfg.LockTTL, Client: c.id,
		Node: c.node(), Outcome: checker.Unknown}
	h = checker.Hold{Lock: lock, Token: o.Arg, Client: c.id, TTL: o.TTL, Granted: checker.Forever}
	cmds := [][]string{l.command(&o)}
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
		if o.Outcome == checker.Done && o.Reply.Null {
			hist.Refusals = append(hist.Refusals, checker.Refusal{Lock: lock, Client: c.id, Call: call, Return: ret})
		}
	})
	switch {
	case o.Outcome == checker.Unknown:
		l.locks.doubtful()
		return h, true
	case o.Outcome == checker.Done && o.Reply.Text == "OK":
		h.Granted = ret
		return h, true
	}
	return h, false
}

// keep acts as the owner of a lock: it waits, perhaps renews the lock, and then
// releases it or lets it expire.
func (c *client) keep(h *checker.Hold) {
	l := c.load
	if c.rng.IntN(4) == 0 {
		return // the lock expires, as after the death of its owner
	}
	Sleep(l.ctx, time.Duration(c.rng.Int64N(int64(h.TTL)/2)))
	if c.rng.IntN(4) == 0 && c.connected() {
		h.Renewals = append(h.Renewals, c.renew(h))
		Sleep(l.ctx, time.Duration(c.rng.Int64N(int64(h.TTL)/2)))
	}
	if !c.connected() {
		return
	}
	o := c.run([]checker.Op{{Kind: checker.DelIfEq, Key: h.Lock, Cmp: h.Token}}, l.locks)[0]
	if o.Outcome != checker.Refused {
		h.Release = &checker.Step{Call: o.Call, Return: o.Return, Outcome: o.Outcome, Mine: o.Reply.Int == 1}
	}
}

// renew sets the TTL of the lock to its full length again if the lock still
// belongs to this client.
func (c *client) renew(h *checker.Hold) checker.Step {
	l := c.load
	o := checker.Op{Kind: checker.Set, Key: h.Lock, Arg: h.Token, Cmp: h.Token, TTL: h.TTL}
	if !l.script {
		o = c.run([]checker.Op{o}, l.locks)[0]
		return checker.Step{Call: o.Call, Return: o.Return, Outcome: o.Outcome, Mine: o.Reply.Text == "OK"}
	}
	// A script is not a command of the model. This script does the same as SET
	// IFEQ with the same value, but has another reply.
	o.Client, o.Node, o.Outcome = c.id, c.node(), checker.Unknown
	replies, call, ret := c.send([][]string{{"EVAL", renewScript, "1", h.Lock, h.Token,
		strconv.FormatInt(h.TTL.Milliseconds(), 10)}})
	o.Call, o.Return = call, ret
	if len(replies) > 0 {
		c.settle(&o, replies[0])
		if o.Outcome == checker.Done && !o.Reply.Error {
			o.Reply = map[bool]checker.Reply{true: {Text: "OK"}, false: {Null: true}}[o.Reply.Int == 1]
		}
	}
	if o.Outcome == checker.Unknown {
		l.locks.doubtful()
	}
	l.rec.add(func(hist *History) { hist.Ops = append(hist.Ops, o) })
	return checker.Step{Call: call, Return: ret, Outcome: o.Outcome, Mine: o.Reply.Text == "OK"}
}

// connected is like ready, but does not pause if the client is connected,
// because the owner of a lock must renew it in time.
func (c *client) connected() bool {
	if c.load.ctx.Err() != nil {
		return false
	}
	if c.conn == nil {
		return c.ready()
	}
	return true
}
