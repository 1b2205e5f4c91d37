package fsm

import (
	"github.com/holdfast-kv/holdfast/fsm/hll"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

var hllCommands = []Command{
	{
		Name: "pfadd", Run: pfadd, Arity: -2, Flags: Write | DenyOOM | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"},
		Group: "hyperloglog", Since: "2.8.9",
		Complexity: "O(1) to add every element.",
		Syntax:     "key [element [element ...]]",
		Doc:        "Adds the specified elements to the specified HyperLogLog.",
	},
	{
		Name: "pfcount", Run: pfcount, Arity: -2, Flags: ReadOnly,
		Keys: Keys{1, -1, 1},
		Access: Access{
			Flags: "access", Mode: "RW",
			Notes: "RW because it may change the internal representation of the key, and propagate to replicas",
		},
		Group: "hyperloglog", Since: "2.8.9",
		Complexity: "O(1) with a very small average constant time when called with a single key. O(N) with N being " +
			"the number of keys, and much bigger constant times, when called with multiple keys.",
		Syntax: "key [key ...]",
		Doc:    "Return the approximated cardinality of the set(s) observed by the HyperLogLog at key(s).",
	},
	{
		Name: "pfmerge", Run: pfmerge, Arity: -2, Flags: Write | DenyOOM,
		Keys: Keys{1, -1, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access insert"}},
			{Keys: Keys{2, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		},
		Group: "hyperloglog", Since: "2.8.9",
		Complexity: "O(N) to merge N HyperLogLogs, but with high constant times.",
		Syntax:     "destkey sourcekey [sourcekey ...]",
		Doc:        "Merge N different HyperLogLogs into a single one.",
	},
	{
		Name: "pfdebug", Run: pfdebug, Arity: 3, Flags: Write | DenyOOM | Admin,
		Keys: Keys{2, 2, 1}, Access: Access{Mode: "RW", Flags: "access"},
		Group: "hyperloglog", Since: "2.8.9",
		Complexity: "N/A",
		Syntax:     "subcommand key",
		Doc:        "Internal commands for debugging HyperLogLog values",
	},
	{
		Name: "pfselftest", Run: pfselftest, Arity: 1, Flags: Admin | Slow,
		Group: "hyperloglog", Since: "2.8.9",
		Complexity: "N/A",
		Doc:        "An internal command for testing HyperLogLog values",
	},
}

const (
	msgHLLType    = "WRONGTYPE Key is not a valid HyperLogLog string value."
	msgHLLCorrupt = "INVALIDOBJ Corrupted HLL object detected"
	msgHLLNoKey   = "ERR The specified key does not exist"
	msgHLLDense   = "ERR HLL encoding is not sparse"
)

// lookupHLL returns the object of a key, or nil if there is none, and a copy of
// its value that may be changed.
func (c *Ctx) lookupHLL(key []byte) (o *keyspace.Object, h hll.Value, fail Reply) {
	o, wrong := c.lookupString(key)
	switch {
	case wrong:
		return nil, h, Error(msgWrongType)
	case o == nil:
		return nil, hll.New(), Null
	case !hll.Is(o.Str):
		return nil, h, Error(msgHLLType)
	}
	c.charge(hllSteps)
	return o, hll.Of(o.Str), Null
}

// storeHLL stores a value. o is the object that the key had, or nil.
func (c *Ctx) storeHLL(o *keyspace.Object, key []byte, h hll.Value) {
	n := keyspace.NewObject(key, h.Bytes())
	n.Raw = true
	if o != nil {
		n = within(n, lifeOf(o))
	}
	c.assign(n)
}

// hllProbes is the number of elements up to which PFADD looks up each element
// in the runs. For more elements, it expands all registers first; otherwise
// each repetition of an element would cost a walk through the runs.
const hllProbes = 16

// pfadd changes nothing if it finds broken registers. Redis keeps the changes
// that it made before it found them.
func pfadd(c *Ctx, args [][]byte) Reply {
	o, h, fail := c.lookupHLL(args[1])
	if fail.IsError() {
		return fail
	}
	var known *hll.Union
	if len(args)-2 > hllProbes {
		known = new(hll.Union)
		known.Add(&h) // if h is broken, the registers before the damage
	}
	updated := o == nil
	for _, elem := range args[2:] {
		c.charge(stepsPut + len(elem)/scanBytes)
		i, value := hll.Hash(elem)
		if known != nil {
			if known[i] >= value {
				continue
			}
			known[i] = value
		}
		changed, whole := h.Raise(i, value)
		if !whole {
			return Error(msgHLLCorrupt)
		}
		updated = updated || changed
	}
	if !updated {
		return Zero
	}
	h.Invalidate()
	c.storeHLL(o, args[1], h)
	c.notify("$", "pfadd", string(args[1]))
	return One
}

// pfcount never writes. Redis writes the count of a single key into the header
// of its value. Here that would turn every read into a write, so the header
// always marks its count as out of date, and pfcount counts the registers each
// time.
func pfcount(c *Ctx, args [][]byte) Reply {
	if len(args) == 2 {
		o, h, fail := c.lookupHLL(args[1])
		switch {
		case fail.IsError():
			return fail
		case o == nil:
			return Zero
		}
		n, whole := h.Count()
		if !whole {
			return Error(msgHLLCorrupt)
		}
		return Int(n)
	}
	u, _, fail := c.unite(args[1:])
	if fail.IsError() {
		return fail
	}
	return Int(u.Count())
}

// unite merges the values of the keys, each value once. dense reports whether
// one of the values is dense.
func (c *Ctx) unite(keys [][]byte) (u *hll.Union, dense bool, fail Reply) {
	u = new(hll.Union)
	seen := make(map[*keyspace.Object]bool)
	for _, key := range keys {
		o, h, fail := c.lookupHLL(key)
		switch {
		case fail.IsError():
			return nil, false, fail
		case o == nil || seen[o]:
			continue
		}
		seen[o] = true
		dense = dense || !h.Sparse()
		if !u.Add(&h) {
			return nil, false, Error(msgHLLCorrupt)
		}
	}
	return u, dense, Null
}

func pfmerge(c *Ctx, args [][]byte) Reply {
	u, dense, fail := c.unite(args[1:])
	if fail.IsError() {
		return fail
	}
	o, h, fail := c.lookupHLL(args[1])
	switch {
	case fail.IsError():
		return fail
	case dense && !h.ToDense():
		return Error(msgHLLCorrupt)
	}
	for i, value := range u {
		if value == 0 {
			continue
		}
		c.charge(1)
		if _, whole := h.Raise(i, value); !whole {
			return Error(msgHLLCorrupt)
		}
	}
	h.Invalidate()
	c.storeHLL(o, args[1], h)
	c.notify("$", "pfadd", string(args[1]))
	return OK
}

func pfdebug(c *Ctx, args [][]byte) Reply {
	o, h, fail := c.lookupHLL(args[2])
	switch {
	case fail.IsError():
		return fail
	case o == nil:
		return Error(msgHLLNoKey)
	}
	switch sparse := h.Sparse(); {
	case fold(args[1], "GETREG"), fold(args[1], "TODENSE"):
		if !h.ToDense() {
			return Error(msgHLLCorrupt)
		}
		if sparse {
			c.storeHLL(o, args[2], h)
		}
		if fold(args[1], "TODENSE") {
			return Bool(sparse)
		}
		regs := make([]Reply, hll.Registers)
		for i := range regs {
			regs[i] = Int(int64(h.Register(i)))
		}
		return Array(regs)
	case fold(args[1], "DECODE"):
		if !sparse {
			return Error(msgHLLDense)
		}
		return Bulk(h.Describe())
	case fold(args[1], "ENCODING"):
		if sparse {
			return Simple("sparse")
		}
		return Simple("dense")
	}
	return Error("ERR Unknown PFDEBUG subcommand '" + string(args[1]) + "'")
}

func pfselftest(c *Ctx, args [][]byte) Reply {
	if err := hll.SelfTest(c.charge); err != nil {
		return Error("ERR TESTFAILED " + err.Error())
	}
	return OK
}
