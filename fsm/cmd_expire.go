package fsm

import (
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file has the times to live. The deadline on the lease clock decides when
// a key expires. The object also has the expiry time on the wall clock, for
// EXPIRETIME. The command converts one to the other once, when it runs, with
// the wall clock of its own entry.

var expireNotes = []Change{{"7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`."}}

const expireSyntax = " [NX | XX | GT | LT]"

var expireCommands = []Command{
	{
		Name: "expire", Run: expire, Arity: -3, Flags: Write | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key seconds" + expireSyntax,
		Doc:        "Set a key's time to live in seconds",
		History:    expireNotes,
	},
	{
		Name: "pexpire", Run: pexpire, Arity: -3, Flags: Write | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key milliseconds" + expireSyntax,
		Doc:        "Set a key's time to live in milliseconds",
		History:    expireNotes,
	},
	{
		Name: "expireat", Run: expireat, Arity: -3, Flags: Write | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "1.2.0",
		Complexity: "O(1)",
		Syntax:     "key unix-time-seconds" + expireSyntax,
		Doc:        "Set the expiration for a key as a UNIX timestamp",
		History:    expireNotes,
	},
	{
		Name: "pexpireat", Run: pexpireat, Arity: -3, Flags: Write | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key unix-time-milliseconds" + expireSyntax,
		Doc:        "Set the expiration for a key as a UNIX timestamp specified in milliseconds",
		History:    expireNotes,
	},
	{
		Name: "persist", Run: persist, Arity: 2, Flags: Write | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "2.2.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Remove the expiration from a key",
	},
	{
		Name: "ttl", Run: ttl, Arity: 2, Flags: ReadOnly | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the time to live for a key in seconds",
		Tips:       []string{"nondeterministic_output"},
		History:    []Change{{"2.8.0", "Added the -2 reply."}},
	},
	{
		Name: "pttl", Run: pttl, Arity: 2, Flags: ReadOnly | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the time to live for a key in milliseconds",
		Tips:       []string{"nondeterministic_output"},
		History:    []Change{{"2.8.0", "Added the -2 reply."}},
	},
	{
		Name: "expiretime", Run: expiretime, Arity: 2, Flags: ReadOnly | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "7.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the expiration Unix timestamp for a key",
	},
	{
		Name: "pexpiretime", Run: pexpiretime, Arity: 2, Flags: ReadOnly | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "7.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the expiration Unix timestamp for a key in milliseconds",
	},
}

// timeUnit is the form in which a command gives a time to live.
type timeUnit byte

const (
	unitNone timeUnit = iota
	unitEX            // seconds from now
	unitPX            // milliseconds from now
	unitEXAT          // Unix time in seconds
	unitPXAT          // Unix time in milliseconds
)

func (u timeUnit) seconds() bool  { return u == unitEX || u == unitEXAT }
func (u timeUnit) absolute() bool { return u == unitEXAT || u == unitPXAT }

// unitOf returns the unit of the option EX, PX, EXAT or PXAT, and unitNone for
// any other argument.
func unitOf(arg []byte) timeUnit {
	switch {
	case fold(arg, "EX"):
		return unitEX
	case fold(arg, "PX"):
		return unitPX
	case fold(arg, "EXAT"):
		return unitEXAT
	case fold(arg, "PXAT"):
		return unitPXAT
	}
	return unitNone
}

// lifetime is the time at which a key expires. The zero value means that the
// key does not expire.
type lifetime struct {
	deadline int64 // on the lease clock, in nanoseconds
	expireAt int64 // the same time on the wall clock, in milliseconds
	past     bool  // the time has already passed, so the key is removed at once
}

func (l lifetime) set() bool { return l.expireAt != 0 || l.past }

// within sets the lifetime of o, which must not be stored yet, and returns o.
func within(o *keyspace.Object, l lifetime) *keyspace.Object {
	o.Deadline, o.ExpireAt = l.deadline, l.expireAt
	return o
}

// lifeOf returns the lifetime of o.
func lifeOf(o *keyspace.Object) lifetime { return lifetime{deadline: o.Deadline, expireAt: o.ExpireAt} }

func (c *Ctx) wallMs() int64 { return c.wall / 1000 }

// lifetimeAt returns the lifetime that ends at ts, in milliseconds on the wall
// clock.
func (c *Ctx) lifetimeAt(ts int64) lifetime {
	if ts <= c.wallMs() {
		return lifetime{expireAt: ts, past: true}
	}
	return lifetime{deadline: deadlineIn(c.now, ts-c.wallMs()), expireAt: ts}
}

// lifetimeIn parses the time to live that SET and similar commands are given.
// It returns an error for zero, for negative numbers, and for numbers that
// overflow 64 bits when converted to milliseconds, as Redis does.
func (c *Ctx) lifetimeIn(unit timeUnit, arg []byte, name string) (l lifetime, fail Reply) {
	n, ok := number.ParseInt(arg)
	if !ok {
		return l, Error(msgNotInt)
	}
	if n <= 0 || unit.seconds() && n > maxSeconds {
		return l, invalidExpire(name)
	}
	if unit.seconds() {
		n *= 1000
	}
	if !unit.absolute() {
		if number.AddOverflows(n, c.wallMs()) {
			return l, invalidExpire(name)
		}
		n += c.wallMs()
	}
	return c.lifetimeAt(n), Null
}

// maxSeconds is the largest number of seconds whose milliseconds fit into 64
// bits.
const maxSeconds = (1<<63 - 1) / 1000

func expire(c *Ctx, args [][]byte) Reply    { return expireGeneric(c, args, unitEX) }
func pexpire(c *Ctx, args [][]byte) Reply   { return expireGeneric(c, args, unitPX) }
func expireat(c *Ctx, args [][]byte) Reply  { return expireGeneric(c, args, unitEXAT) }
func pexpireat(c *Ctx, args [][]byte) Reply { return expireGeneric(c, args, unitPXAT) }

func expireGeneric(c *Ctx, args [][]byte, unit timeUnit) Reply {
	var nx, xx, gt, lt bool
	for _, arg := range args[3:] {
		switch {
		case fold(arg, "NX"):
			nx = true
		case fold(arg, "XX"):
			xx = true
		case fold(arg, "GT"):
			gt = true
		case fold(arg, "LT"):
			lt = true
		default:
			return Error("ERR Unsupported option " + string(arg))
		}
	}
	switch {
	case nx && (xx || gt || lt):
		return Error(msgExpireNX)
	case gt && lt:
		return Error(msgExpireGTLT)
	}
	n, ok := number.ParseInt(args[2])
	if !ok {
		return Error(msgNotInt)
	}
	if unit.seconds() {
		if n > maxSeconds || n < -maxSeconds {
			return invalidExpire(string(args[0]))
		}
		n *= 1000
	}
	if !unit.absolute() {
		if n > 0 && number.AddOverflows(n, c.wallMs()) {
			return invalidExpire(string(args[0]))
		}
		n += c.wallMs()
	}
	o := c.lookup(args[1])
	if o == nil {
		return Zero
	}
	l := c.lifetimeAt(n)
	switch {
	case nx && o.Deadline != 0, xx && o.Deadline == 0,
		gt && !later(l, lifeOf(o)), lt && o.Deadline != 0 && !later(lifeOf(o), l):
		return Zero
	}
	if l.past {
		c.delete(o)
		return One
	}
	c.store(within(o.With(o.Str), l))
	c.notify("g", "expire", o.Key)
	return One
}

// later reports whether a ends after b. A lifetime without an end is the
// latest. If both have the same wall-clock time, they count as equal, even if
// the two clocks have drifted between the commands that set them. Otherwise the
// lease clock decides.
func later(a, b lifetime) bool {
	switch {
	case b.deadline == 0 && !b.past:
		return false
	case a.expireAt == b.expireAt:
		return false
	case a.past || b.past: // only one of them is in the past
		return b.past
	case a.deadline == never && b.deadline == never:
		return a.expireAt > b.expireAt
	}
	return a.deadline > b.deadline
}

func persist(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[1])
	if o == nil || o.Deadline == 0 {
		return Zero
	}
	c.persist(o)
	return One
}

// persist removes the time to live from o. o must have one.
func (c *Ctx) persist(o *keyspace.Object) {
	c.store(within(o.With(o.Str), lifetime{}))
	c.notify("g", "persist", o.Key)
}

// Replies of TTL and PTTL for a key that does not exist and for a key that does
// not expire.
const (
	ttlNoKey = -2
	ttlNone  = -1
)

// remaining returns the time to live of a key in milliseconds, rounded up, so
// that it never reports less than what remains. It returns ttlNoKey or ttlNone
// if there is no time to live.
func (c *Ctx) remaining(key []byte) int64 {
	o := c.lookup(key)
	switch {
	case o == nil:
		return ttlNoKey
	case o.Deadline == 0:
		return ttlNone
	case o.Deadline == never:
		return max(o.ExpireAt-c.wallMs(), 0)
	}
	left := o.Deadline - c.now
	ms := left / 1e6
	if left%1e6 != 0 {
		ms++
	}
	return ms
}

// toSeconds rounds milliseconds to seconds as Redis does. It returns negative
// values unchanged.
func toSeconds(ms int64) int64 {
	if ms < 0 {
		return ms
	}
	return ms/1000 + (ms%1000+500)/1000 // (ms+500)/1000 without overflow
}

func ttl(c *Ctx, args [][]byte) Reply  { return Int(toSeconds(c.remaining(args[1]))) }
func pttl(c *Ctx, args [][]byte) Reply { return Int(c.remaining(args[1])) }

// expiresAt returns the wall-clock time at which a key expires, in
// milliseconds, as it was computed when the time to live was set.
func (c *Ctx) expiresAt(key []byte) int64 {
	o := c.lookup(key)
	switch {
	case o == nil:
		return ttlNoKey
	case o.Deadline == 0:
		return ttlNone
	}
	return o.ExpireAt
}

func expiretime(c *Ctx, args [][]byte) Reply  { return Int(toSeconds(c.expiresAt(args[1]))) }
func pexpiretime(c *Ctx, args [][]byte) Reply { return Int(c.expiresAt(args[1])) }
