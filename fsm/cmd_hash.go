package fsm

import (
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var hashCommands = []Command{
	{
		Name: "hset", Run: hset, Arity: -4, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is " +
			"called with multiple field/value pairs.",
		Syntax:  "key field value [field value ...]",
		Doc:     "Set the string value of a hash field",
		History: []Change{{"4.0.0", "Accepts multiple `field` and `value` arguments."}},
	},
	{
		Name: "hsetnx", Run: hsetnx, Arity: 4, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key field value",
		Doc:        "Set the value of a hash field, only if the field does not exist",
	},
	{
		Name: "hget", Run: hget, Arity: 3, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key field",
		Doc:        "Get the value of a hash field",
	},
	{
		Name: "hmset", Run: hmset, Arity: -4, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "update"},
		Group: "hash", Since: "2.0.0", DeprecatedSince: "4.0.0", ReplacedBy: "`HSET` with multiple field-value pairs",
		Complexity: "O(N) where N is the number of fields being set.",
		Syntax:     "key field value [field value ...]",
		Doc:        "Set multiple hash fields to multiple values",
	},
	{
		Name: "hmget", Run: hmget, Arity: -3, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the number of fields being requested.",
		Syntax:     "key field [field ...]",
		Doc:        "Get the values of all the given hash fields",
	},
	{
		Name: "hgetall", Run: hgetall, Arity: 2, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the size of the hash.",
		Syntax:     "key",
		Doc:        "Get all the fields and values in a hash",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "hdel", Run: hdel, Arity: -3, Flags: Write | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "delete"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the number of fields to be removed.",
		Syntax:     "key field [field ...]",
		Doc:        "Delete one or more hash fields",
		History:    []Change{{"2.4.0", "Accepts multiple `field` arguments."}},
	},
	{
		Name: "hexists", Run: hexists, Arity: 3, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key field",
		Doc:        "Determine if a hash field exists",
	},
	{
		Name: "hincrby", Run: hincrby, Arity: 4, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key field increment",
		Doc:        "Increment the integer value of a hash field by the given number",
	},
	{
		Name: "hincrbyfloat", Run: hincrbyfloat, Arity: 4, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update"},
		Group: "hash", Since: "2.6.0",
		Complexity: "O(1)",
		Syntax:     "key field increment",
		Doc:        "Increment the float value of a hash field by the given amount",
	},
	{
		Name: "hlen", Run: hlen, Arity: 2, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Get the number of fields in a hash",
	},
	{
		Name: "hkeys", Run: hkeys, Arity: 2, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the size of the hash.",
		Syntax:     "key",
		Doc:        "Get all the fields in a hash",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "hvals", Run: hvals, Arity: 2, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "2.0.0",
		Complexity: "O(N) where N is the size of the hash.",
		Syntax:     "key",
		Doc:        "Get all the values in a hash",
		Tips:       []string{"nondeterministic_output_order"},
	},
	{
		Name: "hstrlen", Run: hstrlen, Arity: 3, Flags: ReadOnly | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"},
		Group: "hash", Since: "3.2.0",
		Complexity: "O(1)",
		Syntax:     "key field",
		Doc:        "Get the length of the value of a hash field",
	},
	{
		Name: "hrandfield", Run: hrandfield, Arity: -2, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "hash", Since: "6.2.0",
		Complexity: "O(N) where N is the number of fields returned",
		Syntax:     "key [count [WITHVALUES]]",
		Doc:        "Get one or multiple random fields from a hash",
		Tips:       []string{"nondeterministic_output"},
	},
	{
		Name: "hscan", Run: hscan, Arity: -3, Flags: ReadOnly,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
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

func hset(c *Ctx, args [][]byte) Reply {
	added, fail := c.setFields(args)
	if fail.IsError() {
		return fail
	}
	return Int(added)
}

func hmset(c *Ctx, args [][]byte) Reply {
	if _, fail := c.setFields(args); fail.IsError() {
		return fail
	}
	return OK
}

func (c *Ctx) setFields(args [][]byte) (added int64, fail Reply) {
	if len(args)%2 == 1 {
		return 0, Error(WrongArity(string(args[0])))
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeHash)
	if wrong {
		return 0, Error(msgWrongType)
	}
	for i := 2; i < len(args); i += 2 {
		if len(args[i]) > MaxKeyBytes {
			return 0, Error(msgTooLong)
		}
	}
	if !room(o, len(args)/2) {
		return 0, Error(msgTooMany)
	}
	n := c.open(o, args[1], keyspace.TypeHash)
	for _, arg := range args[2:] {
		if len(arg) > keyspace.CompactBytes { // as in Redis, before the first field is added
			n.Coll.Grow(c.m.owner, keyspace.TypeHash)
		}
	}
	for i := 2; i < len(args); i += 2 {
		c.charge(stepsFind(&n.Coll.Hash) + stepsPut)
		if n.Coll.PutField(c.m.owner, string(args[i]), string(args[i+1])) {
			added++
		}
	}
	c.close(n, "h", "hset")
	return added, Null
}

// setField sets one field of a hash.
func (c *Ctx) setField(o *keyspace.Object, key, field []byte, value, event string) Reply {
	switch {
	case len(field) > MaxKeyBytes:
		return Error(msgTooLong)
	case !room(o, 1):
		return Error(msgTooMany)
	}
	n := c.open(o, key, keyspace.TypeHash)
	n.Coll.PutField(c.m.owner, string(field), value)
	c.close(n, "h", event)
	return One
}

func hsetnx(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeHash)
	if wrong {
		return Error(msgWrongType)
	}
	if _, ok := c.field(o, args[2]); ok {
		return Zero
	}
	return c.setField(o, args[1], args[2], string(args[3]), "hset")
}

// field returns the value of a field of a hash. o may be nil.
func (c *Ctx) field(o *keyspace.Object, field []byte) (string, bool) {
	if o == nil {
		return "", false
	}
	c.charge(stepsFind(&o.Coll.Hash))
	return o.Coll.Hash.Get(codec.View(field))
}

func hget(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeHash)
	if wrong {
		return Error(msgWrongType)
	}
	return c.fieldReply(o, args[2])
}

func (c *Ctx) fieldReply(o *keyspace.Object, field []byte) Reply {
	if v, ok := c.field(o, field); ok {
		return Bulk(v)
	}
	return Null
}

func hmget(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeHash)
	if wrong {
		return Error(msgWrongType)
	}
	values := make([]Reply, 0, len(args)-2)
	for _, field := range args[2:] {
		values = append(values, c.fieldReply(o, field))
	}
	return Array(values)
}

func hgetall(c *Ctx, args [][]byte) Reply { return c.fields(args[1], true, true, Map) }
func hkeys(c *Ctx, args [][]byte) Reply   { return c.fields(args[1], true, false, Array) }
func hvals(c *Ctx, args [][]byte) Reply   { return c.fields(args[1], false, true, Array) }

func (c *Ctx) fields(key []byte, names, values bool, form func([]Reply) Reply) Reply {
	o, wrong := c.lookupType(key, keyspace.TypeHash)
	if wrong {
		return Error(msgWrongType)
	}
	l := collector{c: c}
	if o != nil {
		o.Coll.Hash.Ascend(0, func(e *container.Item[string]) bool {
			if names {
				l.add(Bulk(e.Name))
			}
			if values {
				l.add(Bulk(e.Value))
			}
			return !l.over()
		})
	}
	return l.reply(form)
}

func hdel(c *Ctx, args [][]byte) Reply {
	return c.removeElements(args, keyspace.TypeHash, "h", "hdel", func(v *keyspace.Collection, field string) bool {
		c.charge(stepsFind(&v.Hash) + stepsPut)
		return v.Hash.Remove(c.m.owner, field)
	})
}

func hexists(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeHash)
	if wrong {
		return Error(msgWrongType)
	}
	_, ok := c.field(o, args[2])
	return Bool(ok)
}

func hincrby(c *Ctx, args [][]byte) Reply {
	by, ok := number.ParseInt(args[3])
	if !ok {
		return Error(msgNotInt)
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeHash)
	if wrong {
		return Error(msgWrongType)
	}
	var old int64
	if v, ok := c.field(o, args[2]); ok {
		if old, ok = number.ParseInt([]byte(v)); !ok {
			return Error(msgHashNotInt)
		}
	}
	if number.AddOverflows(old, by) {
		return Error(msgOverflow)
	}
	if r := c.setField(o, args[1], args[2], strconv.FormatInt(old+by, 10), "hincrby"); r.IsError() {
		return r
	}
	return Int(old + by)
}

func hincrbyfloat(c *Ctx, args [][]byte) Reply {
	by, ok := number.ParseLongDouble(args[3])
	switch {
	case !ok:
		return Error(msgNotFloat)
	case by.IsInf():
		return Error(msgInfinite)
	}
	o, wrong := c.lookupType(args[1], keyspace.TypeHash)
	if wrong {
		return Error(msgWrongType)
	}
	was := "0"
	if v, ok := c.field(o, args[2]); ok {
		was = v
	}
	old, ok := number.ParseLongDouble([]byte(was))
	if !ok {
		return Error(msgHashNotFloat)
	}
	sum, ok := number.AddLongDouble(old, by)
	if !ok {
		return Error(msgNaN)
	}
	text := number.FormatLongDouble(sum)
	if r := c.setField(o, args[1], args[2], text, "hincrbyfloat"); r.IsError() {
		return r
	}
	return Bulk(text)
}

func hlen(c *Ctx, args [][]byte) Reply { return c.size(args[1], keyspace.TypeHash) }

// size returns the number of elements of a collection.
func (c *Ctx) size(key []byte, t keyspace.Type) Reply {
	o, wrong := c.lookupType(key, t)
	switch {
	case wrong:
		return Error(msgWrongType)
	case o == nil:
		return Zero
	}
	return Int(int64(o.Coll.Len(t)))
}

func hstrlen(c *Ctx, args [][]byte) Reply {
	o, wrong := c.lookupType(args[1], keyspace.TypeHash)
	if wrong {
		return Error(msgWrongType)
	}
	v, _ := c.field(o, args[2])
	return Int(int64(len(v)))
}

func hrandfield(c *Ctx, args [][]byte) Reply {
	add := func(l *collector, v *keyspace.Collection, i int, with bool) bool {
		e := v.Hash.At(i)
		switch {
		case !with:
			l.add(Bulk(e.Name))
		case c.proto >= 3:
			l.add(Array([]Reply{Bulk(e.Name), Bulk(e.Value)}))
		default:
			l.add(Bulk(e.Name))
			l.add(Bulk(e.Value))
		}
		return !l.over()
	}
	return c.randomElements(args, keyspace.TypeHash, "WITHVALUES", add)
}

func hscan(c *Ctx, args [][]byte) Reply {
	return c.scanCollection(args, keyspace.TypeHash, func(o *keyspace.Object, s *elementScan) {
		scanDict(&o.Coll.Hash, s, o.Coll.Big, func(e *container.Item[string]) Reply { return Bulk(e.Value) })
	})
}
