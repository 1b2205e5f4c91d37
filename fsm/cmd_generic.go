package fsm

import (
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var genericCommands = []Command{
	{
		Name: "del", Run: del, Arity: -2, Flags: Write | KeyspaceCat,
		Keys: Keys{1, -1, 1}, Access: Access{Mode: "RM", Flags: "delete"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys that will be removed. When a key to remove holds a value " +
			"other than a string, the individual complexity for this key is O(M) where M is the number of elements " +
			"in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).",
		Syntax: "key [key ...]",
		Doc:    "Delete a key",
		Tips:   sumOverShards,
	},
	{
		Name: "unlink", Run: del, Arity: -2, Flags: Write | Fast | KeyspaceCat,
		Keys: Keys{1, -1, 1}, Access: Access{Mode: "RM", Flags: "delete"},
		Group: "generic", Since: "4.0.0",
		Complexity: "O(1) for each key removed regardless of its size. Then the command does O(N) work in a " +
			"different thread in order to reclaim memory, where N is the number of allocations the deleted objects " +
			"where composed of.",
		Syntax: "key [key ...]",
		Doc:    "Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non blocking.",
		Tips:   sumOverShards,
	},
	{
		Name: "exists", Run: exists, Arity: -2, Flags: ReadOnly | Fast | KeyspaceCat,
		Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys to check.",
		Syntax:     "key [key ...]",
		Doc:        "Determine if a key exists",
		Tips:       sumOverShards,
		History:    []Change{{"3.0.3", "Accepts multiple `key` arguments."}},
	},
	{
		Name: "touch", Run: exists, Arity: -2, Flags: ReadOnly | Fast | KeyspaceCat,
		Keys: Keys{1, -1, 1}, Access: Access{Mode: "RO"},
		Group: "generic", Since: "3.2.1",
		Complexity: "O(N) where N is the number of keys that will be touched.",
		Syntax:     "key [key ...]",
		Doc:        "Alters the last access time of a key(s). Returns the number of existing keys specified.",
		Tips:       sumOverShards,
	},
	{
		Name: "type", Run: typeOf, Arity: 2, Flags: ReadOnly | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Determine the type stored at key",
	},
	{
		Name: "rename", Run: rename, Arity: 3, Flags: Write | KeyspaceCat,
		Keys: Keys{1, 2, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "OW", Flags: "update"}},
		},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key newkey",
		Doc:        "Rename a key",
	},
	{
		Name: "renamenx", Run: renamenx, Arity: 3, Flags: Write | Fast | KeyspaceCat,
		Keys: Keys{1, 2, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access delete"}},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "OW", Flags: "insert"}},
		},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key newkey",
		Doc:        "Rename a key, only if the new key does not exist",
		History: []Change{
			{"3.2.0", "The command no longer returns an error when source and destination names are the same."},
		},
	},
	{
		Name: "copy", Run: copyKey, Arity: -3, Flags: Write | DenyOOM | KeyspaceCat,
		Keys: Keys{1, 2, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "OW", Flags: "update"}},
		},
		Group: "generic", Since: "6.2.0",
		Complexity: "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.",
		Syntax:     "source destination [DB destination-db] [REPLACE]",
		Doc:        "Copy a key",
	},
	{
		Name: "move", Run: move, Arity: 3, Flags: Write | Fast | KeyspaceCat,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key db",
		Doc:        "Move a key to another database",
	},
	{
		Name: "time", Run: now, Arity: 1, Flags: Loading | Stale | Fast,
		Group: "server", Since: "2.6.0",
		Complexity: "O(1)",
		Doc:        "Return the current server time",
		Tips:       []string{"nondeterministic_output"},
	},
	{
		Name: "object", Run: object_, Arity: -2,
		Group: "generic", Since: "2.2.3",
		Complexity: "Depends on subcommand.",
		Syntax:     "ENCODING | FREQ | IDLETIME | REFCOUNT | HELP [key]",
		Doc:        "A container for object introspection commands",
		Sub: []Command{
			{
				Name: "encoding", Run: objectEncoding, Arity: 3, Flags: ReadOnly | KeyspaceCat,
				Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO"},
				Group: "generic", Since: "2.2.3",
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "Inspect the internal encoding of a Redis object",
				Tips:       []string{"nondeterministic_output"},
			},
			{
				Name: "freq", Run: objectFreq, Arity: 3, Flags: ReadOnly | KeyspaceCat,
				Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO"},
				Group: "generic", Since: "4.0.0",
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "Get the logarithmic access frequency counter of a Redis object",
				Tips:       []string{"nondeterministic_output"},
			},
			{
				Name: "help", Run: objectHelp, Arity: 2, Flags: Loading | Stale | KeyspaceCat,
				Group: "generic", Since: "6.2.0",
				Complexity: "O(1)",
				Doc:        "Show helpful text about the different subcommands",
			},
			{
				Name: "idletime", Run: objectIdletime, Arity: 3, Flags: ReadOnly | KeyspaceCat,
				Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO"},
				Group: "generic", Since: "2.2.3",
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "Get the time since a Redis object was last accessed",
				Tips:       []string{"nondeterministic_output"},
			},
			{
				Name: "refcount", Run: objectRefcount, Arity: 3, Flags: ReadOnly | KeyspaceCat,
				Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO"},
				Group: "generic", Since: "2.2.3",
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "Get the number of references to the value of the key",
				Tips:       []string{"nondeterministic_output"},
			},
		},
	},
}

// sumOverShards are the command tips that tell a proxy how to combine the
// replies of several shards.
var sumOverShards = []string{"request_policy:multi_shard", "response_policy:agg_sum"}

func del(c *Ctx, args [][]byte) Reply {
	n := int64(0)
	for _, key := range args[1:] {
		if o := c.lookup(key); o != nil {
			c.delete(o)
			n++
		}
	}
	return Int(n)
}

// delete removes a key on behalf of a client and publishes the del event.
func (c *Ctx) delete(o *keyspace.Object) {
	c.remove(o)
	c.notify("g", "del", o.Key)
}

// exists counts the keys that exist; a key that is named twice counts twice. It
// also implements TOUCH: reads do not change the state, so there is no access
// time to update.
func exists(c *Ctx, args [][]byte) Reply {
	n := int64(0)
	for _, key := range args[1:] {
		if c.lookup(key) != nil {
			n++
		}
	}
	return Int(n)
}

func typeOf(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[1])
	if o == nil {
		return Simple("none")
	}
	return Simple(keyspace.TypeNames[o.Type])
}

func rename(c *Ctx, args [][]byte) Reply   { return renameGeneric(c, args, false) }
func renamenx(c *Ctx, args [][]byte) Reply { return renameGeneric(c, args, true) }

func renameGeneric(c *Ctx, args [][]byte, nx bool) Reply {
	o := c.lookup(args[1])
	done := OK
	if nx {
		done = One
	}
	switch {
	case o == nil:
		return Error(msgNoSuchKey)
	case o.Key == string(args[2]) && nx:
		return Zero
	case o.Key == string(args[2]):
		return OK
	case nx && c.lookup(args[2]) != nil:
		return Zero
	}
	n := o.Named(args[2])
	c.remove(o)
	c.storeAsNew(n)
	c.notify("g", "rename_from", o.Key)
	c.notify("g", "rename_to", n.Key)
	return done
}

// database parses the number of a database.
func database(arg []byte) (db int, fail Reply) {
	n, ok := number.ParseInt(arg)
	switch {
	case !ok:
		return 0, Error(msgNotInt)
	case n != int64(int32(n)):
		return 0, Error(msgNotInt32)
	case n < 0 || n >= Databases:
		return 0, Error(msgDBIndex)
	}
	return int(n), Null
}

func copyKey(c *Ctx, args [][]byte) Reply {
	replace, src, dst := false, c.db, c.db
	for i := 3; i < len(args); i++ {
		switch {
		case fold(args[i], "REPLACE"):
			replace = true
		case fold(args[i], "DB") && i+1 < len(args):
			i++
			var fail Reply
			if dst, fail = database(args[i]); fail.IsError() {
				return fail
			}
		default:
			return Error(msgSyntax)
		}
	}
	if src == dst && string(args[1]) == string(args[2]) {
		return Error(msgSameObject)
	}
	o := c.lookup(args[1])
	if o == nil {
		return Zero
	}
	c.db = dst
	defer func() { c.db = src }()
	if c.lookup(args[2]) != nil && !replace {
		return Zero
	}
	n := o.Named(args[2])
	if n.Coll != nil {
		c.m.disown() // o and n share nodes now
	}
	c.storeAsNew(n)
	c.notify("g", "copy_to", n.Key)
	return One
}

func move(c *Ctx, args [][]byte) Reply {
	src := c.db
	dst, fail := database(args[2])
	switch {
	case fail.IsError():
		return fail
	case src == dst:
		return Error(msgSameObject)
	}
	o := c.lookup(args[1])
	if o == nil {
		return Zero
	}
	c.db = dst
	defer func() { c.db = src }()
	if c.lookup(args[1]) != nil {
		return Zero
	}
	c.db = src
	c.remove(o)
	n := *o
	c.db = dst
	c.assign(&n)
	c.db = src
	c.notify("g", "move_from", o.Key)
	c.db = dst
	c.notify("g", "move_to", n.Key)
	return One
}

// now implements TIME. It returns the wall clock of the leader that built the
// entry, or of the node that executes the read.
func now(c *Ctx, args [][]byte) Reply {
	return Strings(strconv.FormatInt(c.wall/1e6, 10), strconv.FormatInt(c.wall%1e6, 10))
}

// storeAsNew stores an object for a key. If the key exists, storeAsNew removes
// it first, so that the key counts as new.
func (c *Ctx) storeAsNew(o *keyspace.Object) {
	if old := c.lookup([]byte(o.Key)); old != nil {
		c.remove(old)
	}
	c.assign(o)
}

func object_(c *Ctx, args [][]byte) Reply { return c.subcommand(args) }

// Limits of the encodings of strings in Redis.
const (
	embeddedBytes  = 44    // longer strings are "raw"
	sharedIntegers = 10000 // all keys share the objects of smaller numbers
	sharedRefs     = 1<<31 - 1
)

// objectEncoding returns the name of the encoding that Redis would use.
// Holdfast stores all strings in the same way.
func objectEncoding(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[2])
	if o == nil {
		return Null
	}
	if o.Type != keyspace.TypeString {
		return Bulk(o.Encoding())
	}
	if _, ok := o.Integer(); ok {
		return Bulk("int")
	}
	if o.Raw || len(o.Str) > embeddedBytes {
		return Bulk("raw")
	}
	return Bulk("embstr")
}

func objectFreq(c *Ctx, args [][]byte) Reply {
	if c.lookup(args[2]) == nil {
		return Null
	}
	return Error(msgNoFrequency)
}

// objectIdletime returns the time since the last write. Reads do not change the
// state, so they do not count.
func objectIdletime(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[2])
	if o == nil {
		return Null
	}
	return Int(max(c.now-o.Touched, 0) / 1e9)
}

func objectRefcount(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[2])
	if o == nil {
		return Null
	}
	if n, ok := o.Integer(); ok && n >= 0 && n < sharedIntegers {
		return Int(sharedRefs)
	}
	return One
}

func objectHelp(c *Ctx, args [][]byte) Reply {
	return help("OBJECT",
		"ENCODING <key>",
		"    Return the kind of internal representation used in order to store the value",
		"    associated with a <key>.",
		"FREQ <key>",
		"    Return the access frequency index of the <key>. The returned integer is",
		"    proportional to the logarithm of the recent access frequency of the key.",
		"IDLETIME <key>",
		"    Return the idle time of the <key>, that is the approximated number of",
		"    seconds elapsed since the last access to the key.",
		"REFCOUNT <key>",
		"    Return the number of references of the value associated with the specified",
		"    <key>.",
	)
}
