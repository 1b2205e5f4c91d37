package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/checker"
)

// The clients change to new keys when one of the keys has had opsPerKey
// operations, or unknownPerKey operations with an unknown outcome. The
// checker's memory grows with the square of the length of a key's history, and
// its time grows with the number of commands whose outcome is unknown.
const (
	opsPerKey     = 120
	unknownPerKey = 6
)

// family is a set of keys for one use. Each generation of a family has new
// keys.
type family struct {
	name string
	keys int
	gen  int
	uses map[string]int
	open map[string]int
}

func newFamily(name string, keys int) *family {
	return &family{name: name, keys: keys, uses: make(map[string]int), open: make(map[string]int)}
}

// key draws a key. The caller must hold h.mu.
func (f *family) key(draw func(int) int) string {
	for {
		key := fmt.Sprintf("%s%d.%d", f.name, f.gen, draw(f.keys))
		if f.uses[key] < opsPerKey && f.open[key] < unknownPerKey {
			f.uses[key]++
			return key
		}
		f.gen++
	}
}

func (c *client) key(f *family) string {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return f.key(c.r.IntN)
}

// think waits between two commands. The average wait is the schedule's Think.
// think reports false when the history is over.
func (c *client) think() bool {
	return c.h.pause(time.Duration(c.r.Int64N(int64(2 * c.h.plan.think()))))
}

// register runs random commands on keys that all clients share.
func (c *client) register() {
	recent := []string{"none"} // values that DELIFEQ, DELEX and SET IFEQ compare
	for n := 0; c.think() && c.connect(); n++ {
		f := c.h.registers
		if c.r.IntN(6) == 0 {
			f = c.h.counters
		}
		o := checker.Op{Key: c.key(f)}
		fresh := checker.ValueFor(o.Key, c.id, n)
		cmp := recent[c.r.IntN(len(recent))]
		ttl := time.Duration(1+c.r.IntN(40)) * 100 * time.Millisecond
		var cmd command
		switch {
		case f == c.h.counters && c.r.IntN(4) == 0:
			o.Kind, cmd = checker.Get, command{"get", o.Key}
		case f == c.h.counters:
			o.Kind, cmd = checker.Incr, command{"incr", o.Key}
		default:
			cmd = c.draw(&o, fresh, cmp, ttl)
		}
		var x exchange
		transaction := o.Kind == checker.GetSet && c.r.IntN(2) == 0
		if transaction { // do the same as GETSET with a transaction of two commands
			x = c.transaction(nil, command{"get", o.Key}, command{"set", o.Key, fresh})
			if x.outcome == checker.Done {
				if v := x.first(); len(v.Array) == 2 {
					o.Reply = v.Array[0].Reply
				} else {
					c.w.audit.violate("client %d: EXEC answered %+v", c.id, x.replies)
				}
			}
		} else {
			x = c.do(cmd)
			o.Reply = x.first().Reply
		}
		x.finish(&o, c.id)
		c.h.op(f, o)
		c.h.write(o, cmd, transaction)
		if o.Outcome == checker.Done && o.Arg != "" {
			recent = append(recent, o.Arg)
		}
		if o.Kind == checker.Get && o.Reply.Text != "" {
			recent = append(recent, o.Reply.Text)
		}
		recent = recent[max(0, len(recent)-6):]
		if c.r.IntN(40) == 0 {
			c.leave()
		}
	}
}

// draw picks a random command on a register.
func (c *client) draw(o *checker.Op, fresh, cmp string, ttl time.Duration) command {
	px := strconv.FormatInt(ttl.Milliseconds(), 10)
	switch c.r.IntN(17) {
	case 0, 1, 2, 3:
		o.Kind = checker.Get
		return command{"get", o.Key}
	case 4, 5:
		o.Kind, o.Arg = checker.Set, fresh
		return command{"set", o.Key, fresh}
	case 6, 7:
		o.Kind, o.Arg, o.NX, o.TTL = checker.Set, fresh, true, ttl
		return command{"set", o.Key, fresh, "nx", "px", px}
	case 8:
		o.Kind, o.Arg = checker.GetSet, fresh
		return command{"getset", o.Key, fresh}
	case 9:
		o.Kind = checker.Del
		return command{"del", o.Key}
	case 10:
		o.Kind, o.Cmp = checker.DelIfEq, cmp
		return command{"delifeq", o.Key, cmp}
	case 11:
		o.Kind, o.Cmp = checker.DelIfEq, cmp
		return command{"delex", o.Key, "ifeq", cmp}
	case 12:
		o.Kind, o.Arg, o.Cmp, o.TTL = checker.Set, fresh, cmp, ttl
		return command{"set", o.Key, fresh, "ifeq", cmp, "px", px}
	case 13:
		o.Kind, o.TTL = checker.PExpire, ttl
		return command{"pexpire", o.Key, px}
	case 14, 15:
		o.Kind = checker.PTTL
		return command{"pttl", o.Key}
	}
	o.Kind = checker.GetDel
	return command{"getdel", o.Key}
}

// watcher changes keys with WATCH, MULTI and EXEC. No other command writes
// these keys, and all values differ. EXEC therefore succeeds exactly when a SET
// that compares the value would succeed.
func (c *client) watcher() {
	for n := 0; c.think() && c.connect(); n++ {
		o := checker.Op{Key: c.key(c.h.watched)}
		x := c.do(command{fsm.VersionCommand, o.Key}, command{"get", o.Key})
		if x.outcome != checker.Done || len(x.replies) != 2 {
			continue
		}
		version, held := uint64(x.replies[0].Int), x.replies[1].Reply
		read := checker.Op{Key: o.Key, Kind: checker.Get, Reply: held}
		x.finish(&read, c.id)
		c.h.op(c.h.watched, read)
		if !c.h.pause(time.Duration(c.r.Int64N(int64(100 * time.Millisecond)))) {
			return
		}
		if !c.connect() {
			return
		}
		o.Kind, o.Arg, o.Cmp, o.NX = checker.Set, checker.ValueFor(o.Key, c.id, n), held.Text, held.Null
		x = c.transaction([]fsm.Watch{{Key: o.Key, Version: version}}, command{"set", o.Key, o.Arg})
		switch v := x.first(); {
		case x.outcome != checker.Done:
		case v.Null:
			o.Reply.Null = true
		case len(v.Array) == 1:
			o.Reply = v.Array[0].Reply
		default:
			c.w.audit.violate("client %d: EXEC answered %+v", c.id, x.replies)
		}
		x.finish(&o, c.id)
		c.h.op(c.h.watched, o)
	}
}

// locker takes locks and owns them for a while. It sometimes renews them, and
// then releases them or lets them expire.
func (c *client) locker() {
	for n := 0; c.think() && c.connect(); n++ {
		h := checker.Hold{
			Lock: fmt.Sprintf("lock%d", c.r.IntN(3)), Token: fmt.Sprintf("t%d.%d", c.id, n), Client: c.id,
			TTL: time.Duration(5+c.r.IntN(20)) * 100 * time.Millisecond,
		}
		px := strconv.FormatInt(h.TTL.Milliseconds(), 10)
		x := c.do(command{"set", h.Lock, h.Token, "nx", "px", px}, command{fsm.VersionCommand, h.Lock})
		h.Call, h.Granted = x.call, x.ret
		o := checker.Op{Kind: checker.Set, Key: h.Lock, Arg: h.Token, NX: true, TTL: h.TTL, Reply: x.first().Reply}
		x.finish(&o, c.id)
		c.h.write(o, nil, false)
		switch {
		case x.outcome == checker.Refused:
			continue
		case x.outcome == checker.Unknown:
			h.Granted = checker.Forever
			c.h.hold(h)
			continue
		case len(x.replies) != 2:
			c.w.audit.violate("client %d: two commands got %d replies", c.id, len(x.replies))
			continue
		case x.first().Null:
			c.h.refusal(checker.Refusal{Lock: h.Lock, Client: c.id, Call: x.call, Return: x.ret})
			continue
		}
		h.Fence = x.replies[1].Int
		c.own(&h, px)
		c.h.hold(h)
	}
}

// own acts as the owner of a lock: it may renew the lock, and releases it or lets
// it expire.
func (c *client) own(h *checker.Hold, px string) {
	c.h.pause(time.Duration(c.r.Int64N(int64(h.TTL))))
	for range c.r.IntN(3) {
		if !c.connect() {
			return
		}
		x := c.do(command{"set", h.Lock, h.Token, "ifeq", h.Token, "px", px})
		if x.outcome == checker.Refused {
			continue
		}
		h.Renewals = append(h.Renewals, checker.Step{Call: x.call, Return: x.ret, Outcome: x.outcome,
			Mine: x.first().Text == "OK"})
		if x.outcome != checker.Done || x.first().Null {
			break
		}
		c.h.pause(time.Duration(c.r.Int64N(int64(h.TTL))))
	}
	if c.r.IntN(3) == 0 || !c.connect() {
		return // the lock expires
	}
	x := c.do(command{"delifeq", h.Lock, h.Token})
	if x.outcome == checker.Refused {
		return
	}
	h.Release = &checker.Step{Call: x.call, Return: x.ret, Outcome: x.outcome, Mine: x.first().Int == 1}
}

// appender adds unique IDs to a list.
func (c *client) appender() {
	for n := 0; c.think() && c.connect(); n++ {
		a := checker.Append{List: "list", ID: fmt.Sprintf("%d.%d", c.id, n), Client: c.id}
		x := c.do(command{"rpush", a.List, a.ID})
		a.Call, a.Return, a.Outcome = x.call, x.ret, x.outcome
		c.h.append(a)
	}
}

// pipeliner sends pipelines of INCR on a counter that no other client uses.
func (c *client) pipeliner() {
	key := fmt.Sprintf("pipe%d", c.id)
	for c.think() && c.connect() {
		b := checker.Batch{Client: c.id, Key: key, Sent: 1 + c.r.IntN(8)}
		cmds := make([]command, b.Sent)
		for i := range cmds {
			cmds[i] = command{"incr", key}
		}
		x := c.do(cmds...)
		b.Call, b.Return = x.call, x.ret
		if x.outcome == checker.Refused {
			continue
		}
		for _, v := range x.replies {
			if v.Error {
				b.Errors = append(b.Errors, v.Text)
				continue
			}
			b.Numbers = append(b.Numbers, v.Int)
		}
		c.h.batch(b)
	}
}
