package fsm

import "github.com/holdfast-kv/holdfast/fsm/number"

var objectCommands = []Command{
	{Name: "object", Arity: -2, Group: "generic", Since: "2.2.3", Complexity: "Depends on subcommand.", Syntax: "ENCODING | FREQ | IDLETIME | REFCOUNT | HELP [key]", Doc: "A container for object introspection commands", Run: object_, Sub: []Command{
		{
			Name: "encoding", Run: objectEncoding, Arity: 3, Flags: ReadOnly | KeyspaceCat, Keys: Keys{2, 2, 1},
			Access: Access{Mode: "RO"},
			Group:  "generic", Since: "2.2.3",
			Complexity: "O(1)",
			Syntax:     "key",
			Doc:        "Inspect the internal encoding of a Redis object", Tips: []string{"nondeterministic_output"},
		},
		{
			Name: "freq", Run: objectFreq, Arity: 3, Flags: ReadOnly | KeyspaceCat, Keys: Keys{2, 2, 1},
			Access: Access{Mode: "RO"},
			Group:  "generic", Since: "4.0.0",
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
			Name: "idletime", Run: objectIdletime, Arity: 3, Flags: ReadOnly | KeyspaceCat, Keys: Keys{2, 2, 1},
			Access: Access{Mode: "RO"},
			Group:  "generic", Since: "2.2.3",
			Complexity: "O(1)",
			Syntax:     "key",
			Doc:        "Get the time since a Redis object was last accessed", Tips: []string{"nondeterministic_output"},
		},
		{
			Name: "refcount", Run: objectRefcount, Arity: 3, Flags: ReadOnly | KeyspaceCat, Keys: Keys{2, 2, 1},
			Access: Access{Mode: "RO"},
			Group:  "generic", Since: "2.2.3",
			Complexity: "O(1)",
			Syntax:     "key",
			Doc:        "Get the number of references to the value of the key", Tips: []string{"nondeterministic_output"},
		},
	}},
}

func object_(c *Ctx, args [][]byte) Reply { return c.subcommand(args) }

// Limits of the encodings of strings in Redis.
const (
	embeddedBytes  = 44    // longer strings are "raw"
	sharedIntegers = 10000 // all keys share the objects of smaller numbers
	sharedRefs     = 1<<31 - 1
)

// integer returns the number that Redis would store instead of o's text.
func (o *object) integer() (int64, bool) {
	if o.raw || o.typ != typeString {
		return 0, false
	}
	return number.ParseInt([]byte(o.str))
}

// objectEncoding returns the name of the encoding that Redis would use.
// Holdfast stores all strings in the same way.
func objectEncoding(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[2])
	if o == nil {
		return Null
	}
	if o.typ != typeString {
		return Bulk(o.encoding())
	}
	if _, ok := o.integer(); ok {
		return Bulk("int")
	}
	if o.raw || len(o.str) > embeddedBytes {
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
	return Int(max(c.now-o.touched, 0) / 1e9)
}

func objectRefcount(c *Ctx, args [][]byte) Reply {
	o := c.lookup(args[2])
	if o == nil {
		return Null
	}
	if n, ok := o.integer(); ok && n >= 0 && n < sharedIntegers {
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
