package command

import (
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/subsequence"
)

var stringCommands = []fsm.Command{
	{
		Name: "get", Run: get, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast,
		Work: fsm.WorkHooks{Steps: valueWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the value of a key",
	},
	{
		Name: "set", Run: set, Arity: -3, Flags: fsm.Write | fsm.DenyOOM | fsm.VariableFlags,
		Work: fsm.WorkHooks{Call: 112, PerArgument: 48, Steps: setWork, Depends: setDepends}, AccessOf: setAccess,
		Keys: fsm.KeysAt(1, 1, 1),
		Access: fsm.Access{Mode: "RW", Flags: "access update variable_flags", Notes: "RW and ACCESS due to the " +
			"optional `GET` argument"},
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax: "key value [NX | XX | IFEQ comparison-value | IFNE comparison-value] [GET] [EX seconds | PX " +
			"milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
		Doc: "Set the string value of a key",
		History: []fsm.Change{
			{Since: "2.6.12", What: "Added the `EX`, `PX`, `NX` and `XX` options."},
			{Since: "6.0.0", What: "Added the `KEEPTTL` option."},
			{Since: "6.2.0", What: "Added the `GET`, `EXAT` and `PXAT` option."},
			{Since: "7.0.0", What: "Allowed the `NX` and `GET` options to be used together."},
			{Since: "8.4.0", What: "Added the `IFEQ` and `IFNE` options."},
		},
	},
	{
		Name: "setnx", Run: setnx, Arity: 3, Flags: fsm.Write | fsm.Fast | fsm.DenyOOM,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "insert"},
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key value",
		Doc:        "Set the value of a key, only if the key does not exist",
	},
	{
		Name: "setex", Run: setex, Arity: 4, Flags: fsm.Write | fsm.DenyOOM,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"},
		Group: "string", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key seconds value",
		Doc:        "Set the value and expiration of a key",
	},
	{
		Name: "psetex", Run: psetex, Arity: 4, Flags: fsm.Write | fsm.DenyOOM,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "OW", Flags: "update"},
		Group: "string", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key milliseconds value",
		Doc:        "Set the value and expiration in milliseconds of a key",
	},
	{
		Name: "getset", Run: getset, Arity: 3, Flags: fsm.Write | fsm.Fast | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: valueWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access update"},
		Group: "string", Since: "1.0.0", DeprecatedSince: "6.2.0", ReplacedBy: "`SET` with the `!GET` argument",
		Complexity: "O(1)",
		Syntax:     "key value",
		Doc:        "Set the string value of a key and return its old value",
	},
	{
		Name: "getdel", Run: getdel, Arity: 2, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Steps: valueWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"},
		Group: "string", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the value of a key and delete the key",
	},
	{
		Name: "getex", Run: getex, Arity: -2, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Steps: valueWork},
		Keys: fsm.KeysAt(1, 1, 1),
		Access: fsm.Access{
			Flags: "access update", Mode: "RW", Notes: "RW and UPDATE because it changes the TTL",
		},
		Group: "string", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | " +
			"PERSIST]",
		Doc: "Get the value of a key and optionally set its expiration",
	},
	{
		Name: "mget", Run: mget, Arity: -2, Flags: fsm.ReadOnly | fsm.Fast,
		Work: fsm.WorkHooks{Steps: valueWork},
		Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys to retrieve.",
		Syntax:     "key [key ...]",
		Doc:        "Get the values of all the given keys",
		Tips:       []string{"request_policy:multi_shard"},
	},
	{
		Name: "mset", Run: mset, Arity: -3, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Call: 160, PerArgument: stepsName},
		Keys: fsm.KeysAt(1, -1, 2), Access: fsm.Access{Mode: "OW", Flags: "update"},
		Group: "string", Since: "1.0.1",
		Complexity: "O(N) where N is the number of keys to set.",
		Syntax:     "key value [key value ...]",
		Doc:        "Set multiple keys to multiple values",
		Tips:       []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
	},
	{
		Name: "msetnx", Run: msetnx, Arity: -3, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Call: 160, PerArgument: stepsName},
		Keys: fsm.KeysAt(1, -1, 2), Access: fsm.Access{Mode: "OW", Flags: "insert"},
		Group: "string", Since: "1.0.1",
		Complexity: "O(N) where N is the number of keys to set.",
		Syntax:     "key value [key value ...]",
		Doc:        "Set multiple keys to multiple values, only if none of the keys exist",
		Tips:       []string{"request_policy:multi_shard", "response_policy:agg_min"},
	},
	{
		Name: "append", Run: appendTo, Arity: 3, Flags: fsm.Write | fsm.Fast | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: appendWork, Stores: true},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "string", Since: "2.0.0",
		Complexity: "O(1). The amortized time complexity is O(1) assuming the appended value is small and the " +
			"already present value is of any size, since the dynamic string library used by Redis will double the " +
			"free space available on every reallocation.",
		Syntax: "key value",
		Doc:    "Append a value to a key",
	},
	{
		Name: "strlen", Run: strlen, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "string", Since: "2.2.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the length of the value stored in a key",
	},
	{
		Name: "getrange", Run: getrange, Arity: 4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "2.4.0",
		Complexity: rangeComplexity,
		Syntax:     "key start end",
		Doc:        "Get a substring of the string stored at a key",
	},
	{
		Name: "substr", Run: getrange, Arity: 4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "1.0.0", DeprecatedSince: "2.0.0", ReplacedBy: "`GETRANGE`",
		Complexity: rangeComplexity,
		Syntax:     "key start end",
		Doc:        "Get a substring of the string stored at a key",
	},
	{
		Name: "setrange", Run: setrange, Arity: 4, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: setrangeWork, Stores: true},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "string", Since: "2.2.0",
		Complexity: "O(1), not counting the time taken to copy the new string in place. Usually, this string is " +
			"very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M being the length " +
			"of the value argument.",
		Syntax: "key offset value",
		Doc:    "Overwrite part of a string at key starting at the specified offset",
	},
	{
		Name: "lcs", Run: lcs, Arity: -3, Flags: fsm.ReadOnly | fsm.Slow,
		Keys: fsm.KeysAt(1, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "7.0.0",
		Complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
		Syntax:     "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]",
		Doc:        "Find longest common substring",
	},
	{
		Name: "msetex", Run: msetex, Arity: -4, Flags: fsm.Write | fsm.DenyOOM | fsm.MovableKeys,
		Work:   fsm.WorkHooks{Call: 160, PerArgument: stepsLeased},
		KeysOf: msetexKeys, Access: fsm.Access{Mode: "OW", Flags: "update"},
		Group: "string", Since: "8.4.0",
		Complexity: "O(N) where N is the number of keys to set.",
		Syntax: "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT " +
			"unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
		Doc:  "Set multiple keys to multiple values with one expiration, all of them or none",
		Tips: []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
	},
}

const rangeComplexity = "O(N) where N is the length of the returned string. The complexity is ultimately " +
	"determined by the returned length, but because creating a substring from an existing string is very cheap, it " +
	"can be considered O(1) for small strings."

// setAccess returns how a call of SET accesses its key. The option GET needs
// read access, because it returns the old value. A comparison needs read access
// too, because a client could otherwise find out the value by guessing.
func setAccess(args [][]byte) fsm.Access {
	for _, a := range args[min(3, len(args)):] {
		if fsm.IsWord(a, "GET") || fsm.IsWord(a, "IFEQ") || fsm.IsWord(a, "IFNE") {
			return fsm.Access{Mode: "RW", Flags: "access update"}
		}
	}
	return fsm.Access{Mode: "OW", Flags: "update"}
}

func get(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupString(args[1])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	return valueOf(o)
}

// valueOf returns the value of a string object, or null if o is nil.
func valueOf(o *keyspace.Object) fsm.Reply {
	if o == nil {
		return fsm.Null
	}
	return fsm.Bulk(o.Str)
}

// options has the options of SET, GETEX and MSETEX, and the condition of DELEX.
type options struct {
	nx, xx, get      bool
	keepTTL, persist bool
	unit             timeUnit
	expire           []byte
	cond             condition
	value            []byte // value that cond compares with
}

// condition is a comparison with the current value of a key.
type condition byte

const (
	condNone condition = iota
	condIFEQ
	condIFNE
)

// These flags say which options parseOptions accepts in addition to the time
// units, which it always accepts.
const (
	allowNXXX = 1 << iota
	allowGet
	allowKeepTTL
	allowPersist
	allowCond
)

// conditional reports whether the call has a condition on the existence or the
// value of the key. A call can have only one.
func (p *options) conditional() bool { return p.nx || p.xx || p.cond != condNone }

// parseOptions parses options in any order, in upper or lower case. As in
// Redis, options that exclude each other are not allowed. Repeating an option
// is allowed, except for IFEQ and IFNE.
func parseOptions(args [][]byte, allow int) (p options, ok bool) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		var next []byte
		if i+1 < len(args) {
			next = args[i+1]
		}
		hasNext := i+1 < len(args)
		has := func(option int) bool { return allow&option != 0 }
		switch {
		case has(allowNXXX) && fsm.IsWord(arg, "NX") && !p.xx && p.cond == condNone:
			p.nx = true
		case has(allowNXXX) && fsm.IsWord(arg, "XX") && !p.nx && p.cond == condNone:
			p.xx = true
		case has(allowGet) && fsm.IsWord(arg, "GET"):
			p.get = true
		case has(allowKeepTTL) && fsm.IsWord(arg, "KEEPTTL") && p.unit == unitNone:
			p.keepTTL = true
		case has(allowPersist) && fsm.IsWord(arg, "PERSIST") && p.unit == unitNone:
			p.persist = true
		case has(allowCond) && fsm.IsWord(arg, "IFEQ") && hasNext && !p.conditional():
			p.cond, p.value = condIFEQ, next
			i++
		case has(allowCond) && fsm.IsWord(arg, "IFNE") && hasNext && !p.conditional():
			p.cond, p.value = condIFNE, next
			i++
		default:
			unit := unitOf(arg)
			if unit == unitNone || !hasNext || p.keepTTL || p.persist || p.unit != unitNone && p.unit != unit {
				return p, false
			}
			p.unit, p.expire = unit, next
			i++
		}
	}
	return p, true
}

// holds reports whether o meets the condition. o is nil if the key does not
// exist.
func (p *options) holds(o *keyspace.Object) bool {
	switch {
	case p.nx:
		return o == nil
	case p.xx:
		return o != nil
	case p.cond == condIFEQ:
		return o != nil && o.Str == string(p.value)
	case p.cond == condIFNE:
		return o == nil || o.Str != string(p.value)
	}
	return true
}

func set(c *fsm.Ctx, args [][]byte) fsm.Reply {
	p, ok := parseOptions(args[3:], allowNXXX|allowGet|allowKeepTTL|allowCond)
	if !ok {
		return fsm.Error(fsm.MsgSyntax)
	}
	var l lifetime
	if p.unit != unitNone {
		var fail fsm.Reply
		if l, fail = lifetimeIn(c, p.unit, p.expire, "set"); fail.IsError() {
			return fail
		}
	}
	o := c.Lookup(args[1])
	if (p.get || p.cond != condNone) && o != nil && o.Type != keyspace.TypeString {
		return fsm.Error(fsm.MsgWrongType)
	}
	done, refused := fsm.OK, fsm.Null
	if p.get {
		done, refused = valueOf(o), valueOf(o)
	}
	if p.nx && !p.get && takenBy(c, o, args[2]) {
		confirmTaken(c, o, l, p.unit != unitNone)
		return done
	}
	if p.get && o == nil && p.holds(o) { // a null reply would say that the lock was free
		if fail := c.DelayError(args[1]); fail.IsError() {
			return fail
		}
		if p.nx {
			if fail := c.ReservedError(args[1]); fail.IsError() {
				return fail
			}
		}
	}
	if !p.holds(o) || p.nx && c.LockReserved(args[1]) {
		if p.nx {
			lockRefused(c, o)
		}
		return refused
	}
	if p.nx {
		if fail := c.Quarantined(); fail.IsError() {
			return fail
		}
	}
	if p.keepTTL && o != nil {
		n := within(keyspace.NewObject(args[1], args[2]), lifeOf(o))
		n.Mark = p.mark(o)
		c.Assign(n)
		c.Notify("$", "set", n.Key)
		return done
	}
	put(c, args[1], args[2], o, l, p.mark(o))
	return done
}

// mark returns the mark of the value that SET stores. o is the object that this
// value replaces, or nil if the key does not exist.
func (p *options) mark(o *keyspace.Object) keyspace.LockMark {
	switch {
	case p.nx:
		return keyspace.MadeIfAbsent
	case p.get:
		return handedOver(o)
	}
	return keyspace.NoLock
}

// lockRefused counts a SET NX or SETNX that does not get a lock. It does not
// count keys that are not locks. o is the object of the key, or nil if the key
// does not exist but the lock is reserved: see fsm.Ctx.LockReserved.
func lockRefused(c *fsm.Ctx, o *keyspace.Object) {
	if o == nil || o.Mark != keyspace.NoLock || o.Granted || o.Type == keyspace.TypeLock {
		c.LockRefused()
	}
}

// handedOver returns the mark of a value that replaces o, for a command that
// returns the value of o. Some clients set no time to live on a lock. In the
// value of the lock, they store the time at which it ends, and they use GETSET
// to take a lock that has ended.
func handedOver(o *keyspace.Object) keyspace.LockMark {
	if o != nil && o.Mark != keyspace.NoLock {
		return keyspace.IsLock
	}
	return keyspace.NoLock
}

// put stores a value with a lifetime and a mark. old is the object of the key. old
// may be nil if the key does not exist, or if l cannot be in the past.
func put(c *fsm.Ctx, key, val []byte, old *keyspace.Object, l lifetime, mark keyspace.LockMark) {
	n := within(keyspace.NewObject(key, val), l)
	n.Mark = mark
	switch {
	case !l.past:
		c.Assign(n)
	case old != nil: // the lifetime has already passed
		c.Remove(old)
	default:
		c.Change() // the state is the same, but all nodes must execute the command to publish its events
		c.Notify("n", "new", n.Key)
	}
	c.Notify("$", "set", n.Key)
	if l.set() {
		c.Notify("g", "expire", n.Key)
	}
	if l.past {
		c.Notify("x", "expired", n.Key)
	}
}

func setnx(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o := c.Lookup(args[1])
	if takenBy(c, o, args[2]) {
		if c.Features() >= fsm.FeatureParts && c.Grant(o) != nil {
			c.RenewGrant(o, nil)
			c.Change() // the value is the same, but all nodes must count the renewal
		}
		return fsm.One
	}
	if o != nil || c.LockReserved(args[1]) {
		lockRefused(c, o)
		return fsm.Zero
	}
	if fail := c.Quarantined(); fail.IsError() {
		return fail
	}
	put(c, args[1], args[2], nil, lifetime{}, keyspace.MadeIfAbsent)
	return fsm.One
}

func setex(c *fsm.Ctx, args [][]byte) fsm.Reply  { return setExpiring(c, args, unitEX) }
func psetex(c *fsm.Ctx, args [][]byte) fsm.Reply { return setExpiring(c, args, unitPX) }

func setExpiring(c *fsm.Ctx, args [][]byte, unit timeUnit) fsm.Reply {
	l, fail := lifetimeIn(c, unit, args[2], string(args[0]))
	if fail.IsError() {
		return fail
	}
	put(c, args[1], args[3], c.Lookup(args[1]), l, keyspace.NoLock)
	return fsm.OK
}

func getset(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupString(args[1])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	if fail := c.Quarantined(); fail.IsError() {
		return fail
	}
	if o == nil { // a null reply would say that the lock was free
		if fail := c.DelayError(args[1]); fail.IsError() {
			return fail
		}
	}
	put(c, args[1], args[2], o, lifetime{}, handedOver(o))
	return valueOf(o)
}

func getdel(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupString(args[1])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o != nil:
		c.Delete(o)
	}
	return valueOf(o)
}

func getex(c *fsm.Ctx, args [][]byte) fsm.Reply {
	p, ok := parseOptions(args[2:], allowPersist)
	if !ok {
		return fsm.Error(fsm.MsgSyntax)
	}
	o, wrong := c.LookupString(args[1])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Null // Redis checks the time only if the key exists
	case p.persist && o.Deadline != 0:
		persistKey(c, o)
	case p.unit != unitNone:
		l, fail := lifetimeIn(c, p.unit, p.expire, "getex")
		if fail.IsError() {
			return fail
		}
		if l.past {
			c.Delete(o)
			break
		}
		c.Store(within(o.With(o.Str), l))
		c.Notify("g", "expire", o.Key)
	}
	return fsm.Bulk(o.Str)
}

func mget(c *fsm.Ctx, args [][]byte) fsm.Reply {
	values := make([]fsm.Reply, 0, len(args)-1)
	for _, key := range args[1:] {
		o, wrong := c.LookupString(key)
		if wrong {
			o = nil // as in Redis, the reply is null and not an error
		}
		values = append(values, valueOf(o))
	}
	return fsm.Array(values)
}

func mset(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if len(args)%2 == 0 {
		return fsm.Error(fsm.WrongArity("mset"))
	}
	for i := 1; i < len(args); i += 2 {
		put(c, args[i], args[i+1], nil, lifetime{}, keyspace.NoLock)
	}
	return fsm.OK
}

func msetnx(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if len(args)%2 == 0 {
		return fsm.Error(fsm.WrongArity("msetnx"))
	}
	for i := 1; i < len(args); i += 2 {
		if c.Lookup(args[i]) != nil || c.Delayed(args[i]) {
			return fsm.Zero
		}
	}
	if fail := c.Quarantined(); fail.IsError() {
		return fail
	}
	for i := 1; i < len(args); i += 2 {
		put(c, args[i], args[i+1], nil, lifetime{}, keyspace.MadeIfAbsent)
	}
	return fsm.One
}

func appendTo(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupString(args[1])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	var n *keyspace.Object
	if o == nil {
		n = keyspace.NewObject(args[1], args[2])
	} else {
		if len(o.Str)+len(args[2]) > fsm.MaxStringBytes {
			return fsm.Error(fsm.MsgTooLong)
		}
		c.Charge(len(o.Str) / fsm.WriteBytes)
		n = o.Overlaid(len(o.Str), args[2])
	}
	c.Assign(n)
	c.Notify("$", "append", n.Key)
	return fsm.Int(int64(len(n.Str)))
}

func strlen(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupString(args[1])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	return fsm.Int(int64(len(o.Str)))
}

func getrange(c *fsm.Ctx, args [][]byte) fsm.Reply {
	start, ok1 := number.ParseInt(args[2])
	end, ok2 := number.ParseInt(args[3])
	if !ok1 || !ok2 {
		return fsm.Error(fsm.MsgNotInt)
	}
	o, wrong := c.LookupString(args[1])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil, start < 0 && end < 0 && start > end:
		return fsm.Bulk("")
	}
	n := int64(len(o.Str))
	if start < 0 {
		start = max(start+n, 0)
	}
	if end < 0 {
		end = max(end+n, 0)
	}
	end = min(end, n-1)
	if start > end {
		return fsm.Bulk("")
	}
	return fsm.Bulk(o.Str[start : end+1])
}

func setrange(c *fsm.Ctx, args [][]byte) fsm.Reply {
	offset, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return fsm.Error(fsm.MsgNotInt)
	case offset < 0:
		return fsm.Error(msgOffset)
	}
	o, wrong := c.LookupString(args[1])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	if o == nil {
		o = keyspace.NewObject(args[1], nil)
	}
	val := args[3]
	switch {
	case len(val) == 0:
		return fsm.Int(int64(len(o.Str))) // the key is not created and the value is not padded
	case offset > fsm.MaxStringBytes-int64(len(val)):
		return fsm.Error(fsm.MsgTooLong)
	}
	c.Charge(max(len(o.Str), int(offset)) / fsm.WriteBytes)
	n := o.Overlaid(int(offset), val)
	c.Assign(n)
	c.Notify("$", "setrange", n.Key)
	return fsm.Int(int64(len(n.Str)))
}

const (
	msgLcsType = "ERR The specified keys must contain string values"
	msgLcsBoth = "ERR If you want both the length and indexes, please just use IDX."
	msgLcsSize = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
	// maxLcsCells is the maximum number of cells of the table that LCS computes.
	// Such a table takes 2 MiB and a tenth of a second.
	maxLcsCells = 1 << 24
)

func lcs(c *fsm.Ctx, args [][]byte) fsm.Reply {
	var s [2]string
	for i := range s {
		o, wrong := c.LookupString(args[1+i])
		if wrong {
			return fsm.Error(msgLcsType)
		}
		if o != nil {
			s[i] = o.Str
		}
	}
	var idx, length, withLength bool
	least := int64(0)
	for i := 3; i < len(args); i++ {
		switch {
		case fsm.IsWord(args[i], "IDX"):
			idx = true
		case fsm.IsWord(args[i], "LEN"):
			length = true
		case fsm.IsWord(args[i], "WITHMATCHLEN"):
			withLength = true
		case fsm.IsWord(args[i], "MINMATCHLEN") && i+1 < len(args):
			i++
			var ok bool
			if least, ok = number.ParseInt(args[i]); !ok {
				return fsm.Error(fsm.MsgNotInt)
			}
		default:
			return fsm.Error(fsm.MsgSyntax)
		}
	}
	switch {
	case idx && length:
		return fsm.Error(msgLcsBoth)
	case int64(len(s[0])+1)*int64(len(s[1])+1) > maxLcsCells:
		return fsm.Error(msgLcsSize)
	}
	meter := subsequence.Meter{Charge: c.Charge, Hold: c.ChargeMemory}
	if length {
		return fsm.Int(int64(subsequence.Length(s[0], s[1], meter)))
	}
	t := subsequence.NewTable(s[0], s[1], meter)
	total := fsm.Int(int64(t.Length()))
	text, matches := t.Trace()
	if !idx {
		return fsm.Bulk(text)
	}
	c.ChargeMemory(3 * replyBytes * len(matches))
	var list []fsm.Reply
	for _, m := range matches {
		if int64(m.N) < least {
			continue
		}
		span := func(from int) fsm.Reply {
			return fsm.Array([]fsm.Reply{fsm.Int(int64(from)), fsm.Int(int64(from + m.N - 1))})
		}
		match := []fsm.Reply{span(m.A), span(m.B)}
		if withLength {
			match = append(match, fsm.Int(int64(m.N)))
		}
		list = append(list, fsm.Array(match))
	}
	return fsm.Map([]fsm.Reply{fsm.Bulk("matches"), fsm.Array(list), fsm.Bulk("len"), total})
}

// msetexPairs returns the number of key-value pairs that the first argument of
// MSETEX gives.
func msetexPairs(args [][]byte) (n int, fail string) {
	if len(args) < 2 {
		return 0, msgNumKeys
	}
	count, ok := number.ParseInt(args[1])
	switch {
	case !ok || count < 1 || count > 1<<31-1:
		return 0, msgNumKeys
	case count > int64(len(args)-2)/2:
		return 0, msgPairs
	}
	return int(count), ""
}

func msetexKeys(args [][]byte) []int {
	n, fail := msetexPairs(args)
	if fail != "" {
		return nil
	}
	pos := make([]int, n)
	for i := range pos {
		pos[i] = 2 + 2*i
	}
	return pos
}

func msetex(c *fsm.Ctx, args [][]byte) fsm.Reply {
	n, fail := msetexPairs(args)
	if fail != "" {
		return fsm.Error(fail)
	}
	pairs, rest := args[2:2+2*n], args[2+2*n:]
	p, ok := parseOptions(rest, allowNXXX|allowKeepTTL)
	if !ok {
		return fsm.Error(fsm.MsgSyntax)
	}
	var l lifetime
	if p.unit != unitNone {
		var fail fsm.Reply
		if l, fail = lifetimeIn(c, p.unit, p.expire, "msetex"); fail.IsError() {
			return fail
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if !p.holds(c.Lookup(pairs[i])) || p.nx && c.Delayed(pairs[i]) {
			return fsm.Zero
		}
	}
	if p.nx && c.Features() >= fsm.FeatureDeferred {
		if fail := c.Quarantined(); fail.IsError() {
			return fail
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		old := c.Lookup(pairs[i])
		if p.keepTTL && old != nil {
			l = lifeOf(old)
		} else if p.keepTTL {
			l = lifetime{}
		}
		put(c, pairs[i], pairs[i+1], old, l, p.mark(old))
	}
	return fsm.One
}

// takenBy reports whether SET NX or SETNX succeeds because the key already has the
// value owner: see the setting lock-idempotent.
func takenBy(c *fsm.Ctx, o *keyspace.Object, owner []byte) bool {
	return o != nil && o.Type == keyspace.TypeString && o.Str == string(owner) && c.Idempotent([]byte(o.Key))
}

// confirmTaken renews a lock whose owner learns from the reply that it holds
// the lock. If a waiter of the owner got the lock, and the waiter's node has
// not claimed the grant, the renewal keeps the grant from passing to the next
// waiter.
func confirmTaken(c *fsm.Ctx, o *keyspace.Object, l lifetime, expires bool) {
	renewLease(c, o, l, expires)
	if c.Features() >= fsm.FeatureParts {
		c.RenewGrant(o, nil)
	}
}
