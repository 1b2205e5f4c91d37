package command

import (
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var genericCommands = []fsm.Command{
	{
		Name: "del", Run: del, Arity: -2, Flags: fsm.Write | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 240, PerArgument: stepsKey},
		Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RM", Flags: "delete"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys that will be removed. When a key to remove holds a value " +
			"other than a string, the individual complexity for this key is O(M) where M is the number of elements " +
			"in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).",
		Syntax: "key [key ...]",
		Doc:    "Delete a key",
		Tips:   sumOverShards,
	},
	{
		Name: "unlink", Run: del, Arity: -2, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 240, PerArgument: stepsKey},
		Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RM", Flags: "delete"},
		Group: "generic", Since: "4.0.0",
		Complexity: "O(1) for each key removed regardless of its size. Then the command does O(N) work in a " +
			"different thread in order to reclaim memory, where N is the number of allocations the deleted objects " +
			"where composed of.",
		Syntax: "key [key ...]",
		Doc:    "Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non blocking.",
		Tips:   sumOverShards,
	},
	{
		Name: "exists", Run: exists, Arity: -2, Flags: fsm.ReadOnly | fsm.Fast | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(N) where N is the number of keys to check.",
		Syntax:     "key [key ...]",
		Doc:        "Determine if a key exists",
		Tips:       sumOverShards,
		History:    []fsm.Change{{Since: "3.0.3", What: "Accepts multiple `key` arguments."}},
	},
	{
		Name: "touch", Run: exists, Arity: -2, Flags: fsm.ReadOnly | fsm.Fast | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, -1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "generic", Since: "3.2.1",
		Complexity: "O(N) where N is the number of keys that will be touched.",
		Syntax:     "key [key ...]",
		Doc:        "Alters the last access time of a key(s). Returns the number of existing keys specified.",
		Tips:       sumOverShards,
	},
	{
		Name: "type", Run: typeOf, Arity: 2, Flags: fsm.ReadOnly | fsm.Fast | fsm.KeyspaceCat,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key",
		Doc:        "Determine the type stored at key",
	},
	{
		Name: "rename", Run: rename, Arity: 3, Flags: fsm.Write | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 272, Steps: copyWork, Depends: neverDepends},
		Keys: fsm.KeysAt(1, 2, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
		},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key newkey",
		Doc:        "Rename a key",
	},
	{
		Name: "renamenx", Run: renamenx, Arity: 3, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 272, Steps: copyWork, Depends: neverDepends},
		Keys: fsm.KeysAt(1, 2, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access delete"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "OW", Flags: "insert"}},
		},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key newkey",
		Doc:        "Rename a key, only if the new key does not exist",
		History: []fsm.Change{
			{Since: "3.2.0",
				What: "The command no longer returns an error when source and destination names are the same."},
		},
	},
	{
		Name: "copy", Run: copyKey, Arity: -3, Flags: fsm.Write | fsm.DenyOOM | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 272, Steps: copyWork, Depends: neverDepends},
		Keys: fsm.KeysAt(1, 2, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
		},
		Group: "generic", Since: "6.2.0",
		Complexity: "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.",
		Syntax:     "source destination [DB destination-db] [REPLACE]",
		Doc:        "Copy a key",
	},
	{
		Name: "move", Run: move, Arity: 3, Flags: fsm.Write | fsm.Fast | fsm.KeyspaceCat,
		Work: fsm.WorkHooks{Call: 272, Steps: moveWork, Depends: neverDepends},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access update"},
		Group: "generic", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "key db",
		Doc:        "Move a key to another database",
	},
	{
		Name: "time", Run: now, Arity: 1, Flags: fsm.Loading | fsm.Stale | fsm.Fast,
		Group: "server", Since: "2.6.0",
		Complexity: "O(1)",
		Doc:        "Return the current server time",
		Tips:       []string{"nondeterministic_output"},
	},
	{
		Name: "object", Arity: -2,
		Group: "generic", Since: "2.2.3",
		Complexity: "Depends on subcommand.",
		Syntax:     "ENCODING | FREQ | IDLETIME | REFCOUNT | HELP [key]",
		Doc:        "A container for object introspection commands",
		Sub: []fsm.Command{
			{
				Name: "encoding", Run: objectEncoding, Arity: 3, Flags: fsm.ReadOnly | fsm.KeyspaceCat,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO"},
				Group: "generic", Since: "2.2.3",
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "Inspect the internal encoding of a Redis object",
				Tips:       []string{"nondeterministic_output"},
			},
			{
				Name: "freq", Run: objectFreq, Arity: 3, Flags: fsm.ReadOnly | fsm.KeyspaceCat,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO"},
				Group: "generic", Since: "4.0.0",
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "Get the logarithmic access frequency counter of a Redis object",
				Tips:       []string{"nondeterministic_output"},
			},
			{
				Name: "help", Run: objectHelp, Arity: 2, Flags: fsm.Loading | fsm.Stale | fsm.KeyspaceCat,
				Group: "generic", Since: "6.2.0",
				Complexity: "O(1)",
				Doc:        "Show helpful text about the different subcommands",
			},
			{
				Name: "idletime", Run: objectIdletime, Arity: 3, Flags: fsm.ReadOnly | fsm.KeyspaceCat,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO"},
				Group: "generic", Since: "2.2.3",
				Complexity: "O(1)",
				Syntax:     "key",
				Doc:        "Get the time since a Redis object was last accessed",
				Tips:       []string{"nondeterministic_output"},
			},
			{
				Name: "refcount", Run: objectRefcount, Arity: 3, Flags: fsm.ReadOnly | fsm.KeyspaceCat,
				Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO"},
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

func del(c *fsm.Ctx, args [][]byte) fsm.Reply {
	n := int64(0)
	for _, key := range args[1:] {
		if o := c.Lookup(key); o != nil {
			c.Delete(o)
			n++
		}
	}
	return fsm.Int(n)
}

// exists counts the keys that exist; a key that is named twice counts twice. It
// also implements TOUCH: reads do not change the state, so there is no access
// time to update.
func exists(c *fsm.Ctx, args [][]byte) fsm.Reply {
	n := int64(0)
	for _, key := range args[1:] {
		if c.Lookup(key) != nil {
			n++
		}
	}
	return fsm.Int(n)
}

func typeOf(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o := c.Lookup(args[1])
	if o == nil {
		return fsm.Simple("none")
	}
	return fsm.Simple(keyspace.TypeNames[o.Type])
}

func rename(c *fsm.Ctx, args [][]byte) fsm.Reply   { return renameGeneric(c, args, false) }
func renamenx(c *fsm.Ctx, args [][]byte) fsm.Reply { return renameGeneric(c, args, true) }

func renameGeneric(c *fsm.Ctx, args [][]byte, nx bool) fsm.Reply {
	o := c.Lookup(args[1])
	done := fsm.OK
	if nx {
		done = fsm.One
	}
	switch {
	case o == nil:
		return fsm.Error(msgNoSuchKey)
	case o.Key == string(args[2]) && nx:
		return fsm.Zero
	case o.Key == string(args[2]):
		return fsm.OK
	case nx && c.Lookup(args[2]) != nil:
		return fsm.Zero
	}
	n := o.Named(args[2])
	c.RemoveAs(o, fsm.LockRenamed)
	storeAsNew(c, n)
	c.Notify("g", "rename_from", o.Key)
	c.Notify("g", "rename_to", n.Key)
	return done
}

// database parses the number of a database.
func database(arg []byte) (db int, fail fsm.Reply) {
	n, ok := number.ParseInt(arg)
	switch {
	case !ok:
		return 0, fsm.Error(fsm.MsgNotInt)
	case n != int64(int32(n)):
		return 0, fsm.Error(msgNotInt32)
	case n < 0 || n >= fsm.Databases:
		return 0, fsm.Error(fsm.MsgDBIndex)
	}
	return int(n), fsm.Null
}

func copyKey(c *fsm.Ctx, args [][]byte) fsm.Reply {
	replace, src, dst := false, c.DB(), c.DB()
	for i := 3; i < len(args); i++ {
		switch {
		case fsm.IsWord(args[i], "REPLACE"):
			replace = true
		case fsm.IsWord(args[i], "DB") && i+1 < len(args):
			i++
			var fail fsm.Reply
			if dst, fail = database(args[i]); fail.IsError() {
				return fail
			}
		default:
			return fsm.Error(fsm.MsgSyntax)
		}
	}
	if src == dst && string(args[1]) == string(args[2]) {
		return fsm.Error(msgSameObject)
	}
	o := c.Lookup(args[1])
	if o == nil {
		return fsm.Zero
	}
	c.Select(dst)
	defer func() { c.Select(src) }()
	if c.Lookup(args[2]) != nil && !replace {
		return fsm.Zero
	}
	n := o.Named(args[2])
	if n.Coll != nil {
		c.Disown() // o and n share tree nodes now
	}
	storeAsNew(c, n)
	c.Notify("g", "copy_to", n.Key)
	return fsm.One
}

func move(c *fsm.Ctx, args [][]byte) fsm.Reply {
	src := c.DB()
	dst, fail := database(args[2])
	switch {
	case fail.IsError():
		return fail
	case src == dst:
		return fsm.Error(msgSameObject)
	}
	o := c.Lookup(args[1])
	if o == nil {
		return fsm.Zero
	}
	c.Select(dst)
	defer func() { c.Select(src) }()
	if c.Lookup(args[1]) != nil {
		return fsm.Zero
	}
	c.Select(src)
	c.RemoveAs(o, fsm.LockRenamed)
	n := *o
	c.Select(dst)
	c.Assign(&n)
	c.Select(src)
	c.Notify("g", "move_from", o.Key)
	c.Select(dst)
	c.Notify("g", "move_to", n.Key)
	return fsm.One
}

// now implements TIME. It returns the wall clock of the leader that built the
// entry, or of the node that executes the read.
func now(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return fsm.Strings(strconv.FormatInt(c.Wall()/1e6, 10), strconv.FormatInt(c.Wall()%1e6, 10))
}

// storeAsNew stores an object for a key. If the key exists, storeAsNew removes
// it first, so that the key counts as new.
func storeAsNew(c *fsm.Ctx, o *keyspace.Object) {
	if old := c.Lookup([]byte(o.Key)); old != nil {
		c.RemoveAs(old, fsm.LockOverwritten)
	}
	c.Assign(o)
}

// These constants describe how Redis encodes strings.
const (
	embeddedBytes  = 44    // longer strings are "raw"
	sharedIntegers = 10000 // all keys share the objects of integers below this number
	sharedRefs     = 1<<31 - 1
)

// objectEncoding returns the name of the encoding that Redis would use.
// Holdfast stores all strings in the same way.
func objectEncoding(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o := c.Lookup(args[2])
	if o == nil {
		return fsm.Null
	}
	if o.Type != keyspace.TypeString {
		return fsm.Bulk(o.Encoding())
	}
	if _, ok := o.Integer(); ok {
		return fsm.Bulk("int")
	}
	if o.Raw || len(o.Str) > embeddedBytes {
		return fsm.Bulk("raw")
	}
	return fsm.Bulk("embstr")
}

func objectFreq(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if c.Lookup(args[2]) == nil {
		return fsm.Null
	}
	return fsm.Error(msgNoFrequency)
}

// objectIdletime returns the time since the last write. Reads do not change the
// state, so they do not count.
func objectIdletime(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o := c.Lookup(args[2])
	if o == nil {
		return fsm.Null
	}
	return fsm.Int(max(c.Now()-o.Touched, 0) / 1e9)
}

func objectRefcount(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o := c.Lookup(args[2])
	if o == nil {
		return fsm.Null
	}
	if n, ok := o.Integer(); ok && n >= 0 && n < sharedIntegers {
		return fsm.Int(sharedRefs)
	}
	return fsm.One
}

func objectHelp(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return fsm.Help("OBJECT",
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
