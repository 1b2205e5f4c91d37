package sim

import (
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

// transactor writes one value to keys of several types in one transaction, and
// reads all of them in another. Together the keys behave like one register: the
// transactions correspond to SET and GET.
func (c *remote) transactor() {
	for n := 0; c.think() && c.connect(); n++ {
		c.h.mu.Lock()
		key := c.h.typed.key(c.r.IntN)
		c.h.mu.Unlock()
		if c.r.IntN(2) == 0 {
			c.readTypes(key)
			continue
		}
		o := checker.Op{Key: key, Kind: checker.Set, Arg: fmt.Sprintf("%d.%d", c.id, n)}
		x := c.do(typesWrite(key, o.Arg)...)
		x.last()
		if x.outcome == checker.Done {
			if v := x.replies[len(x.replies)-1]; len(v.Array) != 7 {
				c.h.w.audit.violate("client %d: EXEC answered %+v", c.id, v)
			}
		}
		o.Reply = checker.Reply{Text: "OK"}
		x.finish(&o, c.id)
		if o.Outcome == checker.Unknown {
			c.h.mu.Lock()
			c.h.typed.open[key]++
			c.h.mu.Unlock()
		}
		c.h.served.op(o)
	}
}

func typesWrite(key, v string) []command {
	return []command{
		{"multi"},
		{"set", key + ":string", v},
		{"lpush", key + ":list", v},
		{"ltrim", key + ":list", "0", "2"},
		{"hset", key + ":hash", "f", v},
		{"del", key + ":set"},
		{"sadd", key + ":set", v},
		{"xadd", key + ":stream", "maxlen", "3", "*", "f", v},
		{"exec"},
	}
}

func typesRead(key string) []command {
	return []command{
		{"multi"},
		{"get", key + ":string"},
		{"lindex", key + ":list", "0"},
		{"hget", key + ":hash", "f"},
		{"srandmember", key + ":set"},
		{"xrevrange", key + ":stream", "+", "-", "count", "1"},
		{"exec"},
	}
}

// last sets the outcome of the exchange to that of EXEC, its last command. The
// error of EXEC may differ from the error of MULTI.
func (x *exchange) last() {
	if x.outcome != checker.Done || len(x.replies) == 0 {
		return
	}
	if v := x.replies[len(x.replies)-1]; v.Error {
		if x.outcome = outcomeOf(v.Text); x.outcome != checker.Done {
			x.err = fmt.Errorf("%s", v.Text)
		}
	}
}

// readTypes reads, in one transaction, the keys that typesWrite writes. It
// checks that they all have the same value.
func (c *remote) readTypes(key string) {
	x := c.do(typesRead(key)...)
	x.last()
	if x.outcome != checker.Done {
		return
	}
	seen := x.replies[len(x.replies)-1].Array
	if len(seen) != 5 {
		c.h.w.audit.violate("client %d: EXEC answered %+v", c.id, x.replies)
		return
	}
	o := checker.Op{Key: key, Kind: checker.Get, Reply: seen[0].Reply}
	all := []string{}
	for _, v := range seen {
		for len(v.Array) > 0 { // in a stream, the value is in the last field of the only entry
			v = v.Array[len(v.Array)-1]
		}
		all = append(all, v.Text)
	}
	for _, v := range all {
		if v != all[0] {
			c.h.w.audit.violate(
				"client %d: a transaction read different values from keys that are written together: %q", c.id, all)
			break
		}
	}
	x.finish(&o, c.id)
	c.h.served.op(o)
}

func (s *served) op(o checker.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, o)
}

const users = 2

// administrator changes users of the ACL. Each change gives a user a new key
// pattern, so the pattern of a user behaves like a register. readUsers reads
// the rules at the end.
func (c *remote) administrator() {
	for n := 0; c.h.pause(time.Duration(c.r.Int64N(int64(4*time.Second)))) && c.connect(); n++ {
		user := number("user", c.r.IntN(users))
		o := checker.Op{Key: user, Kind: checker.Set, Arg: fmt.Sprintf("~%d.%d", c.id, n),
			Reply: checker.Reply{Text: "OK"}}
		x := c.do(command{"acl", "setuser", user, "resetkeys", o.Arg})
		if x.outcome == checker.Done && x.first().Error {
			c.h.w.audit.violate("client %d: ACL SETUSER answered %s", c.id, x.first().Text)
		}
		x.finish(&o, c.id)
		c.h.served.op(o)
	}
}

// readUsers reads the rules of the users at the end of the history.
func (h *history) readUsers() {
	for i := range users {
		x, ok := h.ask(command{"acl", "getuser", number("user", i)})
		if !ok {
			continue
		}
		o := checker.Op{Key: number("user", i), Kind: checker.Get, Reply: checker.Reply{Null: true}}
		for j, e := range x.first().Array {
			if e.Text == "keys" && j+1 < len(x.first().Array) {
				o.Reply = x.first().Array[j+1].Reply
			}
		}
		x.finish(&o, 2500)
		h.served.op(o)
	}
}
