package command

import (
	"math"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var counterCommands = []fsm.Command{
	{
		Name: "incr", Run: incr, Arity: 2, Flags: fsm.Write | fsm.Fast | fsm.DenyOOM,
		Keys: fsm.KeysAt(1, 1, 1), Access: counterAccess,
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Increment the integer value of a key by one",
	},
	{
		Name: "decr", Run: decr, Arity: 2, Flags: fsm.Write | fsm.Fast | fsm.DenyOOM,
		Keys: fsm.KeysAt(1, 1, 1), Access: counterAccess,
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Decrement the integer value of a key by one",
	},
	{
		Name: "incrby", Run: incrby, Arity: 3, Flags: fsm.Write | fsm.Fast | fsm.DenyOOM,
		Keys: fsm.KeysAt(1, 1, 1), Access: counterAccess,
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key increment",
		Doc:        "Increment the integer value of a key by the given amount",
	},
	{
		Name: "decrby", Run: decrby, Arity: 3, Flags: fsm.Write | fsm.Fast | fsm.DenyOOM,
		Keys: fsm.KeysAt(1, 1, 1), Access: counterAccess,
		Group: "string", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key decrement",
		Doc:        "Decrement the integer value of a key by the given number",
	},
	{
		Name: "incrbyfloat", Run: incrbyfloat, Arity: 3, Flags: fsm.Write | fsm.Fast | fsm.DenyOOM,
		Work: fsm.WorkHooks{Call: 368},
		Keys: fsm.KeysAt(1, 1, 1), Access: counterAccess,
		Group: "string", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key increment",
		Doc:        "Increment the float value of a key by the given amount",
	},
}

var counterAccess = fsm.Access{Mode: "RW", Flags: "access update"}

func incr(c *fsm.Ctx, args [][]byte) fsm.Reply { return add(c, args[1], 1) }
func decr(c *fsm.Ctx, args [][]byte) fsm.Reply { return add(c, args[1], -1) }

func incrby(c *fsm.Ctx, args [][]byte) fsm.Reply {
	n, ok := number.ParseInt(args[2])
	if !ok {
		return fsm.Error(fsm.MsgNotInt)
	}
	return add(c, args[1], n)
}

func decrby(c *fsm.Ctx, args [][]byte) fsm.Reply {
	n, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return fsm.Error(fsm.MsgNotInt)
	case n == math.MinInt64: // -n would overflow
		return fsm.Error(msgDecrOverflow)
	}
	return add(c, args[1], -n)
}

func add(c *fsm.Ctx, key []byte, n int64) fsm.Reply {
	o, wrong := c.LookupString(key)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	var old int64
	if o != nil {
		var ok bool
		if old, ok = number.ParseInt([]byte(o.Str)); !ok {
			return fsm.Error(fsm.MsgNotInt)
		}
	}
	if number.AddOverflows(old, n) {
		return fsm.Error(msgOverflow)
	}
	replace(c, o, key, strconv.AppendInt(nil, old+n, 10), "incrby")
	return fsm.Int(old + n)
}

// replace stores a value that was computed from the old one and keeps the key's
// time to live.
func replace(c *fsm.Ctx, old *keyspace.Object, key, val []byte, event string) {
	n := keyspace.NewObject(key, val)
	if old != nil {
		within(n, lifeOf(old))
	}
	c.Assign(n)
	c.Notify("$", event, n.Key)
}

func incrbyfloat(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupString(args[1])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	was := []byte("0")
	if o != nil {
		was = []byte(o.Str)
	}
	old, ok1 := number.ParseLongDouble(was)
	n, ok2 := number.ParseLongDouble(args[2])
	if !ok1 || !ok2 {
		return fsm.Error(msgNotFloat)
	}
	sum, ok := number.AddLongDouble(old, n)
	if !ok {
		return fsm.Error(msgNaN)
	}
	text := number.FormatLongDouble(sum)
	replace(c, o, args[1], []byte(text), "incrbyfloat")
	return fsm.Bulk(text)
}
