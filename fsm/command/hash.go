package command

import (
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var hashCommands = []fsm.Command{
	{
		Name: "hset", Run: hset, Arity: -4, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 96, PerArgument: stepsField},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is " +
			"called with multiple field/value pairs.",
		Syntax:  "key field value [field value ...]",
		Doc:     "Set the string value of a hash field",
		History: []fsm.Change{{Since: "4.0.0", What: "Accepts multiple `field` and `value` arguments."}},
	},
	{
		Name: "hsetnx", Run: hsetnx, Arity: 4, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key field value",
		Doc:        "Set the value of a hash field, only if the field does not exist",
	},
	{
		Name: "hget", Run: hget, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
		Work: fsm.WorkHooks{Steps: fieldWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key field",
		Doc:        "Get the value of a hash field",
	},
	{
		Name: "hmset", Run: hmset, Arity: -4, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 96, PerArgument: stepsField},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "hash", Since: "2.0.0", DeprecatedSince: "4.0.0", ReplacedBy: "`HSET` with multiple field-value pairs",
		Complexity: "O(N) where N is the number of fields being set.",
		Syntax:     "key field value [field value ...]",
		Doc:        "Set multiple hash fields to multiple values",
	},
	{
		Name: "hmget", Run: hmget, Arity: -3, Flags: fsm.ReadOnly | fsm.Fast,
		Work: fsm.WorkHooks{Steps: fieldWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the number of fields being requested.",
		Syntax:     "key field [field ...]",
		Doc:        "Get the values of all the given hash fields",
	},
	{
		Name: "hgetall", Run: hgetall, Arity: 2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the size of the hash.",
		Syntax:     "key",
		Doc:        "Get all the fields and values in a hash",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "hdel", Run: hdel, Arity: -3, Flags: fsm.Write | fsm.Fast,
		Work: fsm.WorkHooks{Call: 96, PerArgument: stepsRemove},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "delete"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the number of fields to be removed.",
		Syntax:     "key field [field ...]",
		Doc:        "Delete one or more hash fields",
		History:    []fsm.Change{{Since: "2.4.0", What: "Accepts multiple `field` arguments."}},
	},
	{
		Name: "hexists", Run: hexists, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key field",
		Doc:        "Determine if a hash field exists",
	},
	{
		Name: "hincrby", Run: hincrby, Arity: 4, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access update"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key field increment",
		Doc:        "Increment the integer value of a hash field by the given number",
	},
	{
		Name: "hincrbyfloat", Run: hincrbyfloat, Arity: 4, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{Call: 416},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access update"},
		Group: "hash", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key field increment",
		Doc:        "Increment the float value of a hash field by the given amount",
	},
	{
		Name: "hlen", Run: hlen, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the number of fields in a hash",
	},
	{
		Name: "hkeys", Run: hkeys, Arity: 2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the size of the hash.",
		Syntax:     "key",
		Doc:        "Get all the fields in a hash",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "hvals", Run: hvals, Arity: 2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the size of the hash.",
		Syntax:     "key",
		Doc:        "Get all the values in a hash",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "hstrlen", Run: hstrlen, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "hash", Since: "3.2.0",
		Complexity: "O(1)",
		Syntax:     "key field",
		Doc:        "Get the length of the value of a hash field",
	},
	{
		Name: "hrandfield", Run: hrandfield, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "6.2.0",
		Complexity: "O(N) where N is the number of fields returned",
		Syntax:     "key [count [WITHVALUES]]",
		Doc:        "Get one or multiple random fields from a hash",
		Tips:       []string{"nondeterministic_output"},
	},
	{
		Name: "hscan", Run: hscan, Arity: -3, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.8.0",
		Complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the " +
			"cursor to return back to 0. N is the number of elements inside the collection..",
		Syntax: "key cursor [MATCH pattern] [COUNT count]",
		Doc:    "Incrementally iterate hash fields and associated values",
		Tips:   []string{"nondeterministic_output"},
	},
}

const (
	msgInfinite     = "ERR value is NaN or Infinity"
	msgHashNotInt   = "ERR hash value is not an integer"
	msgHashNotFloat = "ERR hash value is not a float"
)

func hset(c *fsm.Ctx, args [][]byte) fsm.Reply {
	added, fail := setFields(c, args)
	if fail.IsError() {
		return fail
	}
	return fsm.Int(added)
}

func hmset(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if _, fail := setFields(c, args); fail.IsError() {
		return fail
	}
	return fsm.OK
}

func setFields(c *fsm.Ctx, args [][]byte) (added int64, fail fsm.Reply) {
	if len(args)%2 == 1 {
		return 0, fsm.Error(fsm.WrongArity(string(args[0])))
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeHash)
	if wrong {
		return 0, fsm.Error(fsm.MsgWrongType)
	}
	for i := 2; i < len(args); i += 2 {
		if len(args[i]) > fsm.MaxKeyBytes {
			return 0, fsm.Error(fsm.MsgTooLong)
		}
	}
	if !room(o, len(args)/2) {
		return 0, fsm.Error(msgTooMany)
	}
	n := open(c, o, args[1], keyspace.TypeHash)
	for _, arg := range args[2:] {
		if len(arg) > keyspace.CompactBytes { // as in Redis, before any field is added
			n.Coll.Grow(c.Owner(), keyspace.TypeHash)
		}
	}
	for i := 2; i < len(args); i += 2 {
		c.Charge(stepsFind(&n.Coll.Hash) + fsm.StepsPut)
		if n.Coll.PutField(c.Owner(), string(args[i]), string(args[i+1])) {
			added++
		}
	}
	storeOrRemove(c, n, "h", "hset")
	return added, fsm.Null
}

// setField sets one field of a hash.
func setField(c *fsm.Ctx, o *keyspace.Object, key, field []byte, value, event string) fsm.Reply {
	switch {
	case len(field) > fsm.MaxKeyBytes:
		return fsm.Error(fsm.MsgTooLong)
	case !room(o, 1):
		return fsm.Error(msgTooMany)
	}
	n := open(c, o, key, keyspace.TypeHash)
	n.Coll.PutField(c.Owner(), string(field), value)
	storeOrRemove(c, n, "h", event)
	return fsm.One
}

func hsetnx(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeHash)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	if _, ok := patternField(c, o, args[2]); ok {
		return fsm.Zero
	}
	if o == nil {
		if fail := c.Quarantined(); fail.IsError() {
			return fail
		}
		if c.Delayed(args[1]) {
			return fsm.Zero
		}
	}
	return setField(c, o, args[1], args[2], string(args[3]), "hset")
}

// patternField returns the value of a field of a hash. o may be nil.
func patternField(c *fsm.Ctx, o *keyspace.Object, field []byte) (string, bool) {
	if o == nil {
		return "", false
	}
	c.Charge(stepsFind(&o.Coll.Hash))
	return o.Coll.Hash.Get(codec.View(field))
}

func hget(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeHash)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	return fieldReply(c, o, args[2])
}

func fieldReply(c *fsm.Ctx, o *keyspace.Object, field []byte) fsm.Reply {
	if v, ok := patternField(c, o, field); ok {
		return fsm.Bulk(v)
	}
	return fsm.Null
}

func hmget(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeHash)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	values := make([]fsm.Reply, 0, len(args)-2)
	for _, field := range args[2:] {
		values = append(values, fieldReply(c, o, field))
	}
	return fsm.Array(values)
}

func hgetall(c *fsm.Ctx, args [][]byte) fsm.Reply { return fields(c, args[1], true, true, fsm.Map) }
func hkeys(c *fsm.Ctx, args [][]byte) fsm.Reply   { return fields(c, args[1], true, false, fsm.Array) }
func hvals(c *fsm.Ctx, args [][]byte) fsm.Reply   { return fields(c, args[1], false, true, fsm.Array) }

func fields(c *fsm.Ctx, key []byte, names, values bool, form func([]fsm.Reply) fsm.Reply) fsm.Reply {
	o, wrong := c.LookupType(key, keyspace.TypeHash)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	l := collector{c: c}
	if o != nil {
		o.Coll.Hash.Ascend(0, func(e *container.Item[string]) bool {
			if names {
				l.add(fsm.Bulk(e.Name))
			}
			if values {
				l.add(fsm.Bulk(e.Value))
			}
			return !l.over()
		})
	}
	return l.reply(form)
}

func hdel(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return removeElements(c, args, keyspace.TypeHash, "h", "hdel", func(v *keyspace.Collection, field string) bool {
		c.Charge(stepsFind(&v.Hash) + fsm.StepsPut)
		return v.Hash.Remove(c.Owner(), field)
	})
}

func hexists(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeHash)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	_, ok := patternField(c, o, args[2])
	return fsm.Bool(ok)
}

func hincrby(c *fsm.Ctx, args [][]byte) fsm.Reply {
	by, ok := number.ParseInt(args[3])
	if !ok {
		return fsm.Error(fsm.MsgNotInt)
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeHash)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	var old int64
	if v, ok := patternField(c, o, args[2]); ok {
		if old, ok = number.ParseInt([]byte(v)); !ok {
			return fsm.Error(msgHashNotInt)
		}
	}
	if number.AddOverflows(old, by) {
		return fsm.Error(msgOverflow)
	}
	if r := setField(c, o, args[1], args[2], strconv.FormatInt(old+by, 10), "hincrby"); r.IsError() {
		return r
	}
	return fsm.Int(old + by)
}

func hincrbyfloat(c *fsm.Ctx, args [][]byte) fsm.Reply {
	by, ok := number.ParseLongDouble(args[3])
	switch {
	case !ok:
		return fsm.Error(msgNotFloat)
	case by.IsInf():
		return fsm.Error(msgInfinite)
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeHash)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	was := "0"
	if v, ok := patternField(c, o, args[2]); ok {
		was = v
	}
	old, ok := number.ParseLongDouble([]byte(was))
	if !ok {
		return fsm.Error(msgHashNotFloat)
	}
	sum, ok := number.AddLongDouble(old, by)
	if !ok {
		return fsm.Error(msgNaN)
	}
	text := number.FormatLongDouble(sum)
	if r := setField(c, o, args[1], args[2], text, "hincrbyfloat"); r.IsError() {
		return r
	}
	return fsm.Bulk(text)
}

func hlen(c *fsm.Ctx, args [][]byte) fsm.Reply { return size(c, args[1], keyspace.TypeHash) }

// size returns the number of elements of a collection.
func size(c *fsm.Ctx, key []byte, t keyspace.Type) fsm.Reply {
	o, wrong := c.LookupType(key, t)
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	return fsm.Int(int64(o.Coll.Len(t)))
}

func hstrlen(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeHash)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	v, _ := patternField(c, o, args[2])
	return fsm.Int(int64(len(v)))
}

func hrandfield(c *fsm.Ctx, args [][]byte) fsm.Reply {
	add := func(l *collector, v *keyspace.Collection, i int, with bool) bool {
		e := v.Hash.At(i)
		switch {
		case !with:
			l.add(fsm.Bulk(e.Name))
		case c.Proto() >= 3:
			l.add(fsm.Array([]fsm.Reply{fsm.Bulk(e.Name), fsm.Bulk(e.Value)}))
		default:
			l.add(fsm.Bulk(e.Name))
			l.add(fsm.Bulk(e.Value))
		}
		return !l.over()
	}
	return randomElements(c, args, keyspace.TypeHash, "WITHVALUES", add)
}

func hscan(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return scanCollection(c, args, keyspace.TypeHash, func(o *keyspace.Object, s *elementScan) {
		scanDict(&o.Coll.Hash, s, o.Coll.Big, func(e *container.Item[string]) fsm.Reply { return fsm.Bulk(e.Value) })
	})
}
