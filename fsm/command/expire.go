package command

import (
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file contains the commands that set and read times to live. The deadline
// on the lease clock decides when a key expires. The object also has the expiry
// time on the wall clock, for EXPIRETIME. A command converts one time to the
// other once, when it runs, with the wall clock of its own entry.

var expireNotes = []fsm.Change{{Since: "7.0.0", What: "Added options: `NX`, `XX`, `GT` and `LT`."}}

const expireSyntax = " [NX | XX | GT | LT]"

var expireCommands = []fsm.Command{
	{
		Name: "expire", Run: expire, Arity: -3, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 272},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key seconds" + expireSyntax,
		Doc:        "Set a key's time to live in seconds",
		History:    expireNotes,
	},
	{
		Name: "pexpire", Run: pexpire, Arity: -3, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 272},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key milliseconds" + expireSyntax,
		Doc:        "Set a key's time to live in milliseconds",
		History:    expireNotes,
	},
	{
		Name: "expireat", Run: expireat, Arity: -3, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 272},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "1.2.0",
		Complexity: "O(1)",
		Syntax:     "key unix-time-seconds" + expireSyntax,
		Doc:        "Set the expiration for a key as a UNIX timestamp",
		History:    expireNotes,
	},
	{
		Name: "pexpireat", Run: pexpireat, Arity: -3, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 272},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key unix-time-milliseconds" + expireSyntax,
		Doc:        "Set the expiration for a key as a UNIX timestamp specified in milliseconds",
		History:    expireNotes,
	},
	{
		Name: "persist", Run: persist, Arity: 2, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "generic", Since: "2.2.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Remove the expiration from a key",
	},
	{
		Name: "ttl", Run: ttl, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the time to live for a key in seconds",
		Tips:       []string{"nondeterministic_output"},
		History:    []fsm.Change{{Since: "2.8.0", What: "Added the -2 reply."}},
	},
	{
		Name: "pttl", Run: pttl, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the time to live for a key in milliseconds",
		Tips:       []string{"nondeterministic_output"},
		History:    []fsm.Change{{Since: "2.8.0", What: "Added the -2 reply."}},
	},
	{
		Name: "expiretime", Run: expiretime, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "generic", Since: "7.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the expiration Unix timestamp for a key",
	},
	{
		Name: "pexpiretime", Run: pexpiretime, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
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
	case fsm.IsWord(arg, "EX"):
		return unitEX
	case fsm.IsWord(arg, "PX"):
		return unitPX
	case fsm.IsWord(arg, "EXAT"):
		return unitEXAT
	case fsm.IsWord(arg, "PXAT"):
		return unitPXAT
	}
	return unitNone
}

// lifetime is the time at which a key expires. The zero value means that the
// key does not expire.
type lifetime struct {
	deadline int64 // on the lease clock, in nanoseconds
	expireAt int64 // the same time as deadline on the wall clock, in milliseconds
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

func wallMs(c *fsm.Ctx) int64 { return c.Wall() / 1000 }

// lifetimeAt returns the lifetime that ends at ts, in milliseconds on the wall
// clock.
func lifetimeAt(c *fsm.Ctx, ts int64) lifetime {
	if ts <= wallMs(c) {
		return lifetime{expireAt: ts, past: true}
	}
	return lifetime{deadline: fsm.DeadlineIn(c.Now(), ts-wallMs(c)), expireAt: ts}
}

// lifetimeIn parses the time to live in the arguments of SET and similar
// commands. Like Redis, it returns an error for zero, for negative numbers, and
// for times that overflow 64 bits in milliseconds.
func lifetimeIn(c *fsm.Ctx, unit timeUnit, arg []byte, name string) (l lifetime, fail fsm.Reply) {
	n, ok := number.ParseInt(arg)
	if !ok {
		return l, fsm.Error(fsm.MsgNotInt)
	}
	if n <= 0 || unit.seconds() && n > maxSeconds {
		return l, invalidExpire(name)
	}
	if unit.seconds() {
		n *= 1000
	}
	if !unit.absolute() {
		if number.AddOverflows(n, wallMs(c)) {
			return l, invalidExpire(name)
		}
		n += wallMs(c)
	}
	return lifetimeAt(c, n), fsm.Null
}

// maxSeconds is the largest number of seconds whose milliseconds fit into 64
// bits.
const maxSeconds = (1<<63 - 1) / 1000

// msgLeases is the error for a keyspace.Lock in EXPIRE and the other commands
// that change the time to live of a key.
const msgLeases = "ERR each owner of a shared lock has a lease of its own: use LOCK RENEW"

func expire(c *fsm.Ctx, args [][]byte) fsm.Reply    { return expireGeneric(c, args, unitEX) }
func pexpire(c *fsm.Ctx, args [][]byte) fsm.Reply   { return expireGeneric(c, args, unitPX) }
func expireat(c *fsm.Ctx, args [][]byte) fsm.Reply  { return expireGeneric(c, args, unitEXAT) }
func pexpireat(c *fsm.Ctx, args [][]byte) fsm.Reply { return expireGeneric(c, args, unitPXAT) }

func expireGeneric(c *fsm.Ctx, args [][]byte, unit timeUnit) fsm.Reply {
	var nx, xx, gt, lt bool
	for _, arg := range args[3:] {
		switch {
		case fsm.IsWord(arg, "NX"):
			nx = true
		case fsm.IsWord(arg, "XX"):
			xx = true
		case fsm.IsWord(arg, "GT"):
			gt = true
		case fsm.IsWord(arg, "LT"):
			lt = true
		default:
			return fsm.Error("ERR Unsupported option " + string(arg))
		}
	}
	switch {
	case nx && (xx || gt || lt):
		return fsm.Error(msgExpireNX)
	case gt && lt:
		return fsm.Error(msgExpireGTLT)
	}
	n, ok := number.ParseInt(args[2])
	if !ok {
		return fsm.Error(fsm.MsgNotInt)
	}
	if unit.seconds() {
		if n > maxSeconds || n < -maxSeconds {
			return invalidExpire(string(args[0]))
		}
		n *= 1000
	}
	if !unit.absolute() {
		if n > 0 && number.AddOverflows(n, wallMs(c)) {
			return invalidExpire(string(args[0]))
		}
		n += wallMs(c)
	}
	o := c.Lookup(args[1])
	if o == nil {
		return fsm.Zero
	}
	l := lifetimeAt(c, n)
	switch {
	case o.Type == keyspace.TypeLock:
		return fsm.Error(msgLeases)
	case nx && o.Deadline != 0, xx && o.Deadline == 0,
		gt && !later(l, lifeOf(o)), lt && o.Deadline != 0 && !later(lifeOf(o), l):
		return fsm.Zero
	}
	if l.past {
		c.Delete(o)
		return fsm.One
	}
	c.Store(within(o.With(o.Str), l))
	c.Notify("g", "expire", o.Key)
	return fsm.One
}

// later reports whether a ends after b. a must have an end; if b has none,
// later returns false. If both end at the same wall-clock time, they count as
// equal, even if the two clocks have drifted between the commands that set the
// lifetimes. Otherwise the lease clock decides, unless both deadlines are
// fsm.Never.
func later(a, b lifetime) bool {
	switch {
	case b.deadline == 0 && !b.past:
		return false
	case a.expireAt == b.expireAt:
		return false
	case a.past || b.past: // only one of them is in the past
		return b.past
	case a.deadline == fsm.Never && b.deadline == fsm.Never:
		return a.expireAt > b.expireAt
	}
	return a.deadline > b.deadline
}

func persist(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o := c.Lookup(args[1])
	switch {
	case o == nil || o.Deadline == 0:
		return fsm.Zero
	case o.Type == keyspace.TypeLock:
		return fsm.Error(msgLeases)
	}
	persistKey(c, o)
	return fsm.One
}

// persistKey removes the time to live from o. o must have one.
func persistKey(c *fsm.Ctx, o *keyspace.Object) {
	c.Store(within(o.With(o.Str), lifetime{}))
	c.Notify("g", "persist", o.Key)
}

// renewLease extends the lease of a lock to the end of l if expires is set. It
// never shortens the lease.
func renewLease(c *fsm.Ctx, o *keyspace.Object, l lifetime, expires bool) {
	if !expires || l.past || !later(l, lifeOf(o)) {
		l = lifeOf(o)
	}
	n := within(o.With(o.Str), l)
	c.Store(n)
	c.Notify("g", "expire", n.Key)
}

// These are the replies of TTL and similar commands for a key that does not
// exist and for a key that does not expire.
const (
	ttlNoKey = -2
	ttlNone  = -1
)

// remaining returns the time to live of a key in milliseconds, rounded up, so
// that the result is never less than the remaining time. It returns ttlNoKey or
// ttlNone if there is no time to live.
func remaining(c *fsm.Ctx, key []byte) int64 {
	o := c.Lookup(key)
	switch {
	case o == nil:
		return ttlNoKey
	case o.Deadline == 0:
		return ttlNone
	}
	return left(c, lifeOf(o))
}

// left returns the milliseconds until a lifetime ends, rounded up: see remaining.
// The lifetime must have an end.
func left(c *fsm.Ctx, l lifetime) int64 {
	if l.deadline == fsm.Never {
		return max(l.expireAt-wallMs(c), 0)
	}
	left := l.deadline - c.Now()
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

func ttl(c *fsm.Ctx, args [][]byte) fsm.Reply  { return fsm.Int(toSeconds(remaining(c, args[1]))) }
func pttl(c *fsm.Ctx, args [][]byte) fsm.Reply { return fsm.Int(remaining(c, args[1])) }

// expiresAt returns the wall-clock time at which a key expires, in
// milliseconds. This time was computed when the time to live was set.
func expiresAt(c *fsm.Ctx, key []byte) int64 {
	o := c.Lookup(key)
	switch {
	case o == nil:
		return ttlNoKey
	case o.Deadline == 0:
		return ttlNone
	}
	return o.ExpireAt
}

func expiretime(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return fsm.Int(toSeconds(expiresAt(c, args[1])))
}
func pexpiretime(c *fsm.Ctx, args [][]byte) fsm.Reply { return fsm.Int(expiresAt(c, args[1])) }
