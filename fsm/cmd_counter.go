package fsm

import (
	"math"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var counterCommands = []Command{
	{
		Name: "incr", Run: incr, Arity: 2, Flags: Write | Fast | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: counterAccess,
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Increment the integer value of a key by one",
	},
	{
		Name: "decr", Run: decr, Arity: 2, Flags: Write | Fast | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: counterAccess,
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Decrement the integer value of a key by one",
	},
	{
		Name: "incrby", Run: incrby, Arity: 3, Flags: Write | Fast | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: counterAccess,
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key increment",
		Doc:        "Increment the integer value of a key by the given amount",
	},
	{
		Name: "decrby", Run: decrby, Arity: 3, Flags: Write | Fast | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: counterAccess,
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key decrement",
		Doc:        "Decrement the integer value of a key by the given number",
	},
	{
		Name: "incrbyfloat", Run: incrbyfloat, Arity: 3, Flags: Write | Fast | DenyOOM,
		Keys: Keys{1, 1, 1}, Access: counterAccess,
		Group: "string", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key increment",
		Doc:        "Increment the float value of a key by the given amount",
	},
}

var counterAccess = Access{Mode: "RW", Flags: "access update"}

func incr(c *Ctx, args [][]byte) Reply { return add(c, args[1], 1) }
func decr(c *Ctx, args [][]byte) Reply { return add(c, args[1], -1) }

func incrby(c *Ctx, args [][]byte) Reply {
	n, ok := number.ParseInt(args[2])
	if !ok {
		return Error(msgNotInt)
	}
	return add(c, args[1], n)
}

func decrby(c *Ctx, args [][]byte) Reply {
	n, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return Error(msgNotInt)
	case n == math.MinInt64: // -n would overflow
		return Error(msgDecrOverflow)
	}
	return add(c, args[1], -n)
}

func add(c *Ctx, key []byte, n int64) Reply {
	o, wrong := c.lookupString(key)
	if wrong {
		return Error(msgWrongType)
	}
	var old int64
	if o != nil {
		var ok bool
		if old, ok = number.ParseInt([]byte(o.Str)); !ok {
			return Error(msgNotInt)
		}
	}
	if number.AddOverflows(old, n) {
		return Error(msgOverflow)
	}
	c.replace(o, key, strconv.AppendInt(nil, old+n, 10), "incrby")
	return Int(old + n)
}

// replace stores a value that was computed from the old one and keeps the key's
// time to live.
func (c *Ctx) replace(old *keyspace.Object, key, val []byte, event string) {
	n := keyspace.NewObject(key, val)
	if old != nil {
		within(n, lifeOf(old))
	}
	c.assign(n)
	c.notify("$", event, n.Key)
}

func incrbyfloat(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupString(args[1])
	if wrong {
		return Error(msgWrongType)
	}
	was := []byte("0")
	if o != nil {
		was = []byte(o.Str)
	}
	old, ok1 := number.ParseLongDouble(was)
	n, ok2 := number.ParseLongDouble(args[2])
	if !ok1 || !ok2 {
		return Error(msgNotFloat)
	}
	sum, ok := number.AddLongDouble(old, n)
	if !ok {
		return Error(msgNaN)
	}
	text := number.FormatLongDouble(sum)
	c.replace(o, args[1], []byte(text), "incrbyfloat")
	return Bulk(text)
}
