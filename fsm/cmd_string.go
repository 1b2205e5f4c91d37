package fsm

import (
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/subsequence"
)

var stringCommands = []Command{
	{
		Name: "get", Run: get, Arity: 2, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the value of a key",
	},
	{
		Name: "set", Run: set, Arity: -3, Flags: Write | DenyOOM | VariableFlags,
		Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RW", Flags: "access update variable_flags", Notes: "RW and ACCESS due to the " +
			"optional `GET` argument"},
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax: "key value [NX | XX | IFEQ comparison-value | IFNE comparison-value] [GET] [EX seconds | PX " +
			"milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
		Doc: "Set the string value of a key",
		History: []Change{
			{"2.6.12", "Added the `EX`, `PX`, `NX` and `XX` options."},
			{"6.0.0", "Added the `KEEPTTL` option."},
			{"6.2.0", "Added the `GET`, `EXAT` and `PXAT` option."},
			{"7.0.0", "Allowed the `NX` and `GET` options to be used together."},
			{"8.4.0", "Added the `IFEQ` and `IFNE` options."},
		},
	},
	{
		Name: "setnx", Run: setnx, Arity: 3, Flags: Write | Fast | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "insert"},
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key value",
		Doc:        "Set the value of a key, only if the key does not exist",
	},
	{
		Name: "setex", Run: setex, Arity: 4, Flags: Write | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"},
		Group: "string", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key seconds value",
		Doc:        "Set the value and expiration of a key",
	},
	{
		Name: "psetex", Run: psetex, Arity: 4, Flags: Write | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"},
		Group: "string", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key milliseconds value",
		Doc:        "Set the value and expiration in milliseconds of a key",
	},
	{
		Name: "getset", Run: getset, Arity: 3, Flags: Write | Fast | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update"},
		Group: "string", Since: "1.0.0", DeprecatedSince: "6.2.0", ReplacedBy: "`SET` with the `!GET` argument",
		Complexity: "O(1)",
		Syntax:     "key value",
		Doc:        "Set the string value of a key and return its old value",
	},
	{
		Name: "getdel", Run: getdel, Arity: 2, Flags: Write | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"},
		Group: "string", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the value of a key and delete the key",
	},
	{
		Name: "getex", Run: getex, Arity: -2, Flags: Write | Fast,
		Keys: Keys{1, 1, 1},
		Access: Access{
			Flags: "access update", Mode: "RW", Notes: "RW and UPDATE because it changes the TTL",
		},
		Group: "string", Since: "6.2.0",
		Complexity: "O(1)",
		Syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | " +
			"PERSIST]",
		Doc: "Get the value of a key and optionally set its expiration",
	},
	{
		Name: "mget", Run: mget, Arity: -2, Flags: ReadOnly | Fast,
		Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys to retrieve.",
		Syntax:     "key [key ...]",
		Doc:        "Get the values of all the given keys",
		Tips:       []string{"request_policy:multi_shard"},
	},
	{
		Name: "mset", Run: mset, Arity: -3, Flags: Write | DenyOOM,
		Keys: Keys{1, -1, 2}, Access: Access{Mode: "OW", Flags: "update"},
		Group: "string", Since: "1.0.1",
		Complexity: "O(N) where N is the number of keys to set.",
		Syntax:     "key value [key value ...]",
		Doc:        "Set multiple keys to multiple values",
		Tips:       []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
	},
	{
		Name: "msetnx", Run: msetnx, Arity: -3, Flags: Write | DenyOOM,
		Keys: Keys{1, -1, 2}, Access: Access{Mode: "OW", Flags: "insert"},
		Group: "string", Since: "1.0.1",
		Complexity: "O(N) where N is the number of keys to set.",
		Syntax:     "key value [key value ...]",
		Doc:        "Set multiple keys to multiple values, only if none of the keys exist",
		Tips:       []string{"request_policy:multi_shard", "response_policy:agg_min"},
	},
	{
		Name: "append", Run: appendTo, Arity: 3, Flags: Write | Fast | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "string", Since: "2.0.0",
		Complexity: "O(1). The amortized time complexity is O(1) assuming the appended value is small and the " +
			"already present value is of any size, since the dynamic string library used by Redis will double the " +
			"free space available on every reallocation.",
		Syntax: "key value",
		Doc:    "Append a value to a key",
	},
	{
		Name: "strlen", Run: strlen, Arity: 2, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"},
		Group: "string", Since: "2.2.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the length of the value stored in a key",
	},
	{
		Name: "getrange", Run: getrange, Arity: 4, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "2.4.0",
		Complexity: rangeComplexity,
		Syntax:     "key start end",
		Doc:        "Get a substring of the string stored at a key",
	},
	{
		Name: "substr", Run: getrange, Arity: 4, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "1.0.0", DeprecatedSince: "2.0.0", ReplacedBy: "`GETRANGE`",
		Complexity: rangeComplexity,
		Syntax:     "key start end",
		Doc:        "Get a substring of the string stored at a key",
	},
	{
		Name: "setrange", Run: setrange, Arity: 4, Flags: Write | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "string", Since: "2.2.0",
		Complexity: "O(1), not counting the time taken to copy the new string in place. Usually, this string is " +
			"very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M being the length " +
			"of the value argument.",
		Syntax: "key offset value",
		Doc:    "Overwrite part of a string at key starting at the specified offset",
	},
	{
		Name: "lcs", Run: lcs, Arity: -3, Flags: ReadOnly | Slow,
		Keys: Keys{1, 2, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "string", Since: "7.0.0",
		Complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
		Syntax:     "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]",
		Doc:        "Find longest common substring",
	},
	{
		Name: "delex", Run: delex, Arity: -2, Flags: Write | Fast | KeyspaceCat | VariableFlags,
		Keys: Keys{1, 1, 1},
		Access: Access{
			Flags: "access delete variable_flags", Mode: "RW", Notes: "RW and ACCESS due to the optional comparison",
		},
		Group: "string", Since: "8.4.0",
		Complexity: "O(1)",
		Syntax:     "key [IFEQ comparison-value | IFNE comparison-value]",
		Doc:        "Delete a key if its value meets a condition",
	},
	{
		Name: "delifeq", Run: delifeq, Arity: 3, Flags: Write | Fast,
		Keys: Keys{1, 1, 1},
		Access: Access{
			Flags: "access delete", Mode: "RW",
			Notes: "RW and ACCESS because the answer tells whether the value is the given one",
		},
		Group: "string", Since: "valkey 9.0",
		Complexity: "O(1)",
		Syntax:     "key value",
		Doc:        "Delete a key if it has the given value",
	},
	{
		Name: "msetex", Run: msetex, Arity: -4, Flags: Write | DenyOOM | MovableKeys,
		KeysOf: msetexKeys, Access: Access{Mode: "OW", Flags: "update"},
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

// setAccess returns how a call of SET accesses its key. GET returns the value.
// A comparison also needs read access, because a client could find out the
// value by trying.
func setAccess(args [][]byte) Access {
	for _, a := range args[min(3, len(args)):] {
		if fold(a, "GET") || fold(a, "IFEQ") || fold(a, "IFNE") {
			return Access{Mode: "RW", Flags: "access update"}
		}
	}
	return Access{Mode: "OW", Flags: "update"}
}

func get(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	if wrong {
		return Error(msgWrongType)
	}
	return valueOf(o)
}

// valueOf returns the value of a string object, or null if o is nil.
func valueOf(o *keyspace.Object) Reply {
	if o == nil {
		return Null
	}
	return Bulk(o.Str)
}

// options has the options of SET, GETEX and MSETEX.
type options struct {
	nx, xx, get      bool
	keepTTL, persist bool
	unit             timeUnit
	expire           []byte
	cond             condition
	value            []byte // the operand of cond
}

// condition is a comparison with the current value of a key.
type condition byte

const (
	condNone condition = iota
	condIFEQ
	condIFNE
)

// The options that a command accepts in addition to the time units, which all
// commands accept.
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

// parseOptions parses options in any order and in any case. As in Redis,
// repeating an option is allowed, but options that exclude each other are not.
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
		case has(allowNXXX) && fold(arg, "NX") && !p.xx && p.cond == condNone:
			p.nx = true
		case has(allowNXXX) && fold(arg, "XX") && !p.nx && p.cond == condNone:
			p.xx = true
		case has(allowGet) && fold(arg, "GET"):
			p.get = true
		case has(allowKeepTTL) && fold(arg, "KEEPTTL") && p.unit == unitNone:
			p.keepTTL = true
		case has(allowPersist) && fold(arg, "PERSIST") && p.unit == unitNone:
			p.persist = true
		case has(allowCond) && fold(arg, "IFEQ") && hasNext && !p.conditional():
			p.cond, p.value = condIFEQ, next
			i++
		case has(allowCond) && fold(arg, "IFNE") && hasNext && !p.conditional():
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

func set(c *Ctx, args [][]byte) Reply {
	p, ok := parseOptions(args[3:], allowNXXX|allowGet|allowKeepTTL|allowCond)
	if !ok {
		return Error(msgSyntax)
	}
	var l lifetime
	if p.unit != unitNone {
		var fail Reply
		if l, fail = c.lifetimeIn(p.unit, p.expire, "set"); fail.IsError() {
			return fail
		}
	}
	o := c.lookup(args[1])
	if (p.get || p.cond != condNone) && o != nil && o.Type != keyspace.TypeString {
		return Error(msgWrongType)
	}
	done, refused := OK, Null
	if p.get {
		done, refused = valueOf(o), valueOf(o)
	}
	if !p.holds(o) {
		return refused
	}
	if p.keepTTL && o != nil {
		n := within(keyspace.NewObject(args[1], args[2]), lifeOf(o))
		c.assign(n)
		c.notify("$", "set", n.Key)
		return done
	}
	c.put(args[1], args[2], o, l)
	return done
}

// put stores a value with a lifetime. old is the object that the key has. old
// may be nil if the key does not exist, or if l cannot be in the past.
func (c *Ctx) put(key, val []byte, old *keyspace.Object, l lifetime) {
	n := within(keyspace.NewObject(key, val), l)
	switch {
	case !l.past:
		c.assign(n)
	case old != nil: // the lifetime has already passed
		c.remove(old)
	default:
		c.changes++ // the state is the same, but all nodes publish the events: see tookEffect
		c.notify("n", "new", n.Key)
	}
	c.notify("$", "set", n.Key)
	if l.set() {
		c.notify("g", "expire", n.Key)
	}
	if l.past {
		c.notify("x", "expired", n.Key)
	}
}

func setnx(c *Ctx, args [][]byte) Reply {
	if c.lookup(args[1]) != nil {
		return Zero
	}
	c.put(args[1], args[2], nil, lifetime{})
	return One
}

func setex(c *Ctx, args [][]byte) Reply  { return setExpiring(c, args, unitEX) }
func psetex(c *Ctx, args [][]byte) Reply { return setExpiring(c, args, unitPX) }

func setExpiring(c *Ctx, args [][]byte, unit timeUnit) Reply {
	l, fail := c.lifetimeIn(unit, args[2], string(args[0]))
	if fail.IsError() {
		return fail
	}
	c.put(args[1], args[3], c.lookup(args[1]), l)
	return OK
}

func getset(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	if wrong {
		return Error(msgWrongType)
	}
	c.put(args[1], args[2], o, lifetime{})
	return valueOf(o)
}

func getdel(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	switch {
	case wrong:
		return Error(msgWrongType)
	case o != nil:
		c.delete(o)
	}
	return valueOf(o)
}

func getex(c *Ctx, args [][]byte) Reply {
	p, ok := parseOptions(args[2:], allowPersist)
	if !ok {
		return Error(msgSyntax)
	}
	o, wrong := c.lookupString(args[1])
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Null // Redis checks the time only if the key exists
	case p.persist && o.Deadline != 0:
		c.persist(o)
	case p.unit != unitNone:
		l, fail := c.lifetimeIn(p.unit, p.expire, "getex")
		if fail.IsError() {
			return fail
		}
		if l.past {
			c.delete(o)
			break
		}
		c.store(within(o.With(o.Str), l))
		c.notify("g", "expire", o.Key)
	}
	return Bulk(o.Str)
}

func mget(c *Ctx, args [][]byte) Reply {
	values := make([]Reply, 0, len(args)-1)
	for _, key := range args[1:] {
		o, wrong := c.lookupString(key)
		if wrong {
			o = nil // as in Redis, null instead of an error
		}
		values = append(values, valueOf(o))
	}
	return Array(values)
}

func mset(c *Ctx, args [][]byte) Reply {
	if len(args)%2 == 0 {
		return Error(WrongArity("mset"))
	}
	for i := 1; i < len(args); i += 2 {
		c.put(args[i], args[i+1], nil, lifetime{})
	}
	return OK
}

func msetnx(c *Ctx, args [][]byte) Reply {
	if len(args)%2 == 0 {
		return Error(WrongArity("msetnx"))
	}
	for i := 1; i < len(args); i += 2 {
		if c.lookup(args[i]) != nil {
			return Zero
		}
	}
	for i := 1; i < len(args); i += 2 {
		c.put(args[i], args[i+1], nil, lifetime{})
	}
	return One
}

func appendTo(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	if wrong {
		return Error(msgWrongType)
	}
	var n *keyspace.Object
	if o == nil {
		n = keyspace.NewObject(args[1], args[2])
	} else {
		if len(o.Str)+len(args[2]) > MaxStringBytes {
			return Error(msgTooLong)
		}
		c.charge(len(o.Str) / copyBytes)
		n = o.Overlaid(len(o.Str), args[2])
	}
	c.assign(n)
	c.notify("$", "append", n.Key)
	return Int(int64(len(n.Str)))
}

func strlen(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	}
	return Int(int64(len(o.Str)))
}

func getrange(c *Ctx, args [][]byte) Reply {
	start, ok1 := number.ParseInt(args[2])
	end, ok2 := number.ParseInt(args[3])
	if !ok1 || !ok2 {
		return Error(msgNotInt)
	}
	o, wrong := c.lookupString(args[1])
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil, start < 0 && end < 0 && start > end:
		return Bulk("")
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
		return Bulk("")
	}
	return Bulk(o.Str[start : end+1])
}

func setrange(c *Ctx, args [][]byte) Reply {
	offset, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return Error(msgNotInt)
	case offset < 0:
		return Error(msgOffset)
	}
	o, wrong := c.lookupString(args[1])
	if wrong {
		return Error(msgWrongType)
	}
	if o == nil {
		o = keyspace.NewObject(args[1], nil)
	}
	val := args[3]
	switch {
	case len(val) == 0:
		return Int(int64(len(o.Str))) // the key is not created and the value is not padded
	case offset > MaxStringBytes-int64(len(val)):
		return Error(msgTooLong)
	}
	c.charge(max(len(o.Str), int(offset)) / copyBytes)
	n := o.Overlaid(int(offset), val)
	c.assign(n)
	c.notify("$", "setrange", n.Key)
	return Int(int64(len(n.Str)))
}

const (
	msgLcsType = "ERR The specified keys must contain string values"
	msgLcsBoth = "ERR If you want both the length and indexes, please just use IDX."
	msgLcsSize = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
	// maxLcsCells is the largest table that LCS computes. It takes 2 MiB and a
	// tenth of a second.
	maxLcsCells = 1 << 24
)

func lcs(c *Ctx, args [][]byte) Reply {
	var s [2]string
	for i := range s {
		o, wrong := c.lookupString(args[1+i])
		if wrong {
			return Error(msgLcsType)
		}
		if o != nil {
			s[i] = o.Str
		}
	}
	var idx, length, withLength bool
	least := int64(0)
	for i := 3; i < len(args); i++ {
		switch {
		case fold(args[i], "IDX"):
			idx = true
		case fold(args[i], "LEN"):
			length = true
		case fold(args[i], "WITHMATCHLEN"):
			withLength = true
		case fold(args[i], "MINMATCHLEN") && i+1 < len(args):
			i++
			var ok bool
			if least, ok = number.ParseInt(args[i]); !ok {
				return Error(msgNotInt)
			}
		default:
			return Error(msgSyntax)
		}
	}
	switch {
	case idx && length:
		return Error(msgLcsBoth)
	case int64(len(s[0])+1)*int64(len(s[1])+1) > maxLcsCells:
		return Error(msgLcsSize)
	}
	meter := subsequence.Meter{Charge: c.charge, Hold: c.hold}
	if length {
		return Int(int64(subsequence.Length(s[0], s[1], meter)))
	}
	t := subsequence.NewTable(s[0], s[1], meter)
	total := Int(int64(t.Length()))
	text, matches := t.Trace()
	if !idx {
		return Bulk(text)
	}
	c.hold(3 * replyBytes * len(matches))
	var list []Reply
	for _, m := range matches {
		if int64(m.N) < least {
			continue
		}
		span := func(from int) Reply { return Array([]Reply{Int(int64(from)), Int(int64(from + m.N - 1))}) }
		match := []Reply{span(m.A), span(m.B)}
		if withLength {
			match = append(match, Int(int64(m.N)))
		}
		list = append(list, Array(match))
	}
	return Map([]Reply{Bulk("matches"), Array(list), Bulk("len"), total})
}

// delexAccess returns how a call of DELEX accesses its key: see setAccess.
func delexAccess(args [][]byte) Access {
	if len(args) > 2 {
		return Access{Mode: "RW", Flags: "access delete"}
	}
	return Access{Mode: "RM", Flags: "delete"}
}

// delex and the commands below are compare-and-set and compare-and-delete
// without a script, as in Redis 8.4 and Valkey 9; SET has IFEQ and IFNE. The
// digest forms (IFDEQ, IFDNE) are not supported and return a syntax error.
func delex(c *Ctx, args [][]byte) Reply {
	if len(args) != 2 && len(args) != 4 {
		return Error(WrongArity("delex"))
	}
	var p options
	if len(args) == 4 {
		switch word := args[2]; {
		case fold(word, "IFEQ"):
			p.cond = condIFEQ
		case fold(word, "IFNE"):
			p.cond = condIFNE
		case fold(word, "IFDEQ"), fold(word, "IFDNE"):
			return Error(msgSyntax)
		default:
			return Error(msgCondition)
		}
		p.value = args[3]
	}
	o := c.lookup(args[1])
	switch {
	case o == nil:
		return Zero // with IFNE too: there is nothing to delete
	case p.cond != condNone && o.Type != keyspace.TypeString:
		return Error(msgCondType)
	case !p.holds(o):
		return Zero
	}
	c.delete(o)
	return One
}

func delifeq(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil || o.Str != string(args[2]):
		return Zero
	}
	c.delete(o)
	return One
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

func msetex(c *Ctx, args [][]byte) Reply {
	n, fail := msetexPairs(args)
	if fail != "" {
		return Error(fail)
	}
	pairs, rest := args[2:2+2*n], args[2+2*n:]
	p, ok := parseOptions(rest, allowNXXX|allowKeepTTL)
	if !ok {
		return Error(msgSyntax)
	}
	var l lifetime
	if p.unit != unitNone {
		var fail Reply
		if l, fail = c.lifetimeIn(p.unit, p.expire, "msetex"); fail.IsError() {
			return fail
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if !p.holds(c.lookup(pairs[i])) {
			return Zero
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		old := c.lookup(pairs[i])
		if p.keepTTL && old != nil {
			l = lifeOf(old)
		} else if p.keepTTL {
			l = lifetime{}
		}
		c.put(pairs[i], pairs[i+1], old, l)
	}
	return One
}
