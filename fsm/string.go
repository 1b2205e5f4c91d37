package fsm

import "strings"

var stringCommands = []Command{
	{Name: "get", Arity: 2, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "string", Since: "1.0.0", Complexity: "O(1)", Syntax: "key", Doc: "Get the value of a key", Run: get},
	{Name: "set", Arity: -3, Flags: Write | DenyOOM | VariableFlags, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update variable_flags", Notes: "RW and ACCESS due to the optional `GET` argument"}, Group: "string", Since: "1.0.0", Complexity: "O(1)",
		Syntax: "key value [NX | XX | IFEQ comparison-value | IFNE comparison-value] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]", Doc: "Set the string value of a key",
		History: []Change{
			{"2.6.12", "Added the `EX`, `PX`, `NX` and `XX` options."},
			{"6.0.0", "Added the `KEEPTTL` option."},
			{"6.2.0", "Added the `GET`, `EXAT` and `PXAT` option."},
			{"7.0.0", "Allowed the `NX` and `GET` options to be used together."},
			{"8.4.0", "Added the `IFEQ` and `IFNE` options."},
		}, Run: set},
	{Name: "setnx", Arity: 3, Flags: Write | Fast | DenyOOM, Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "insert"}, Group: "string", Since: "1.0.0", Complexity: "O(1)", Syntax: "key value", Doc: "Set the value of a key, only if the key does not exist", Run: setnx},
	{Name: "setex", Arity: 4, Flags: Write | DenyOOM, Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"}, Group: "string", Since: "2.0.0", Complexity: "O(1)", Syntax: "key seconds value", Doc: "Set the value and expiration of a key", Run: setex},
	{Name: "psetex", Arity: 4, Flags: Write | DenyOOM, Keys: Keys{1, 1, 1}, Access: Access{Mode: "OW", Flags: "update"}, Group: "string", Since: "2.6.0", Complexity: "O(1)", Syntax: "key milliseconds value", Doc: "Set the value and expiration in milliseconds of a key", Run: psetex},
	{Name: "getset", Arity: 3, Flags: Write | Fast | DenyOOM, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update"}, Group: "string", Since: "1.0.0", Complexity: "O(1)", Syntax: "key value", Doc: "Set the string value of a key and return its old value", DeprecatedSince: "6.2.0", ReplacedBy: "`SET` with the `!GET` argument", Run: getset},
	{Name: "getdel", Arity: 2, Flags: Write | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}, Group: "string", Since: "6.2.0", Complexity: "O(1)", Syntax: "key", Doc: "Get the value of a key and delete the key", Run: getdel},
	{Name: "getex", Arity: -2, Flags: Write | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update", Notes: "RW and UPDATE because it changes the TTL"}, Group: "string", Since: "6.2.0", Complexity: "O(1)", Syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]", Doc: "Get the value of a key and optionally set its expiration", Run: getex},
	{Name: "mget", Arity: -2, Flags: ReadOnly | Fast, Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "string", Since: "1.0.0", Complexity: "O(N) where N is the number of keys to retrieve.", Syntax: "key [key ...]", Doc: "Get the values of all the given keys", Tips: []string{"request_policy:multi_shard"}, Run: mget},
	{Name: "mset", Arity: -3, Flags: Write | DenyOOM, Keys: Keys{1, -1, 2}, Access: Access{Mode: "OW", Flags: "update"}, Group: "string", Since: "1.0.1", Complexity: "O(N) where N is the number of keys to set.", Syntax: "key value [key value ...]", Doc: "Set multiple keys to multiple values", Tips: []string{"request_policy:multi_shard", "response_policy:all_succeeded"}, Run: mset},
	{Name: "msetnx", Arity: -3, Flags: Write | DenyOOM, Keys: Keys{1, -1, 2}, Access: Access{Mode: "OW", Flags: "insert"}, Group: "string", Since: "1.0.1", Complexity: "O(N) where N is the number of keys to set.", Syntax: "key value [key value ...]", Doc: "Set multiple keys to multiple values, only if none of the keys exist", Tips: []string{"request_policy:multi_shard", "response_policy:agg_min"}, Run: msetnx},
	{Name: "append", Arity: 3, Flags: Write | Fast | DenyOOM, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"}, Group: "string", Since: "2.0.0", Complexity: "O(1). The amortized time complexity is O(1) assuming the appended value is small and the already present value is of any size, since the dynamic string library used by Redis will double the free space available on every reallocation.", Syntax: "key value", Doc: "Append a value to a key", Run: appendTo},
	{Name: "strlen", Arity: 2, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"}, Group: "string", Since: "2.2.0", Complexity: "O(1)", Syntax: "key", Doc: "Get the length of the value stored in a key", Run: strlen},
	{Name: "getrange", Arity: 4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "string", Since: "2.4.0", Complexity: rangeComplexity, Syntax: "key start end", Doc: "Get a substring of the string stored at a key", Run: getrange},
	{Name: "substr", Arity: 4, Flags: ReadOnly, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "string", Since: "1.0.0", Complexity: rangeComplexity, Syntax: "key start end", Doc: "Get a substring of the string stored at a key", DeprecatedSince: "2.0.0", ReplacedBy: "`GETRANGE`", Run: getrange},
	{Name: "setrange", Arity: 4, Flags: Write | DenyOOM, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"}, Group: "string", Since: "2.2.0", Complexity: "O(1), not counting the time taken to copy the new string in place. Usually, this string is very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M being the length of the value argument.", Syntax: "key offset value", Doc: "Overwrite part of a string at key starting at the specified offset", Run: setrange},
}

const rangeComplexity = "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings."

func get(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	if wrong {
		return Error(msgWrongType)
	}
	return valueOf(o)
}

// valueOf answers a string object, or null for none.
func valueOf(o *object) Reply {
	if o == nil {
		return Null
	}
	return Bulk(o.str)
}

// options are what SET, GETEX and MSETEX may be told after their values.
type options struct {
	nx, xx, get      bool
	keepTTL, persist bool
	unit             timeUnit
	expire           []byte
	cond             condition
	value            []byte // of the condition
}

// condition is a comparison with the value that a key has.
type condition byte

const (
	condNone condition = iota
	condIFEQ
	condIFNE
)

// Options that differ from command to command; the time units are common to all.
const (
	allowNXXX = 1 << iota
	allowGet
	allowKeepTTL
	allowPersist
	allowCond
)

// conditional reports whether a condition on existence or value is set, of which
// there can be one.
func (p *options) conditional() bool { return p.nx || p.xx || p.cond != condNone }

// parseOptions reads options in any order and any case. The same one twice is
// fine, as in Redis, two that exclude each other are not.
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

// fold compares an argument with a word in capitals, in any case.
func fold(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, b := range arg {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != word[i] {
			return false
		}
	}
	return true
}

// holds says whether o, nil if the key is absent, meets the conditions.
func (p *options) holds(o *object) bool {
	switch {
	case p.nx:
		return o == nil
	case p.xx:
		return o != nil
	case p.cond == condIFEQ:
		return o != nil && o.str == string(p.value)
	case p.cond == condIFNE:
		return o == nil || o.str != string(p.value)
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
	if (p.get || p.cond != condNone) && o != nil && o.typ != typeString {
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
		n := newObject(args[1], args[2]).within(o.life())
		c.assign(n)
		c.notify("$", "set", n.key)
		return done
	}
	c.put(args[1], args[2], o, l)
	return done
}

// put gives key a value and a life; old is what it had, nil for nothing or
// where l cannot be over.
func (c *Ctx) put(key, val []byte, old *object, l lifetime) {
	n := newObject(key, val).within(l)
	switch {
	case !l.past:
		c.assign(n)
	case old != nil: // over before it began
		c.remove(old)
	default:
		c.changes++ // nothing changes, but all nodes tell of it: see tookEffect
		c.notify("n", "new", n.key)
	}
	c.notify("$", "set", n.key)
	if l.set() {
		c.notify("g", "expire", n.key)
	}
	if l.past {
		c.notify("x", "expired", n.key)
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
		return Null // Redis looks at the time only if there is a key
	case p.persist && o.deadline != 0:
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
		c.store(o.with(o.str).within(l))
		c.notify("g", "expire", o.key)
	}
	return Bulk(o.str)
}

func mget(c *Ctx, args [][]byte) Reply {
	values := make([]Reply, 0, len(args)-1)
	for _, key := range args[1:] {
		o, wrong := c.lookupString(key)
		if wrong {
			o = nil // null, not an error: Redis
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
	var n *object
	if o == nil {
		n = newObject(args[1], args[2])
	} else {
		if len(o.str)+len(args[2]) > MaxStringBytes {
			return Error(msgTooLong)
		}
		n = o.overlaid(len(o.str), args[2])
	}
	c.assign(n)
	c.notify("$", "append", n.key)
	return Int(int64(len(n.str)))
}

func strlen(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	}
	return Int(int64(len(o.str)))
}

func getrange(c *Ctx, args [][]byte) Reply {
	start, ok1 := parseInt(args[2])
	end, ok2 := parseInt(args[3])
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
	n := int64(len(o.str))
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
	return Bulk(o.str[start : end+1])
}

func setrange(c *Ctx, args [][]byte) Reply {
	offset, ok := parseInt(args[2])
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
		o = newObject(args[1], nil)
	}
	val := args[3]
	switch {
	case len(val) == 0:
		return Int(int64(len(o.str))) // nothing is made, nothing is padded
	case offset > MaxStringBytes-int64(len(val)):
		return Error(msgTooLong)
	}
	n := o.overlaid(int(offset), val)
	c.assign(n)
	c.notify("$", "setrange", n.key)
	return Int(int64(len(n.str)))
}

// overlaid returns a copy of o with val written at offset of its value; what
// lies between is zeros. Key and value are copied together: a key that is a part
// of the old allocation would keep all of that alive.
func (o *object) overlaid(offset int, val []byte) *object {
	s := o.str
	var b strings.Builder
	b.Grow(len(o.key) + max(len(s), offset+len(val)))
	b.WriteString(o.key)
	b.WriteString(s[:min(offset, len(s))])
	for i := len(s); i < offset; i++ {
		b.WriteByte(0)
	}
	b.Write(val)
	if end := offset + len(val); end < len(s) {
		b.WriteString(s[end:])
	}
	both := b.String()
	n := *o
	n.key, n.str, n.raw = both[:len(o.key)], both[len(o.key):], true
	return &n
}
