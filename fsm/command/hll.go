package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"github.com/holdfast-kv/holdfast/fsm/hll"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

var hllCommands = []fsm.Command{
	{
		Name: "pfadd", Run: pfadd, Arity: -2, Flags: fsm.Write | fsm.DenyOOM | fsm.Fast,
		Work: fsm.WorkHooks{PerArgument: fsm.StepsPerKey, Steps: pfaddWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "insert"},
		Group: "hyperloglog", Since: "2.8.9",
		Complexity: "O(1) to add every element.",
		Syntax:     "key [element [element ...]]",
		Doc:        "Adds the specified elements to the specified HyperLogLog.",
	},
	{
		Name: "pfcount", Run: pfcount, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, -1, 1),
		Access: fsm.Access{
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
		Name: "pfmerge", Run: pfmerge, Arity: -2, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: pfmergeWork},
		Keys: fsm.KeysAt(1, -1, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access insert"}},
			{Keys: fsm.KeysAt(2, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		},
		Group: "hyperloglog", Since: "2.8.9",
		Complexity: "O(N) to merge N HyperLogLogs, but with high constant times.",
		Syntax:     "destkey sourcekey [sourcekey ...]",
		Doc:        "Merge N different HyperLogLogs into a single one.",
	},
	{
		Name: "pfdebug", Run: pfdebug, Arity: 3, Flags: fsm.Write | fsm.DenyOOM | fsm.Admin,
		Work: fsm.WorkHooks{Steps: pfdebugWork},
		Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RW", Flags: "access"},
		Group: "hyperloglog", Since: "2.8.9",
		Complexity: "N/A",
		Syntax:     "subcommand key",
		Doc:        "Internal commands for debugging HyperLogLog values",
	},
	{
		Name: "pfselftest", Run: pfselftest, Arity: 1, Flags: fsm.Admin | fsm.Slow,
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

// lookupHLL is like copyHLL, for a command that reads all registers.
func lookupHLL(c *fsm.Ctx, key []byte) (o *keyspace.Object, h hll.Value, fail fsm.Reply) {
	if o, h, fail = copyHLL(c, key); o != nil {
		c.Charge(hllSteps)
	}
	return o, h, fail
}

// copyHLL returns the object of a key, or nil if there is none, and a copy of
// its value that may be changed.
func copyHLL(c *fsm.Ctx, key []byte) (o *keyspace.Object, h hll.Value, fail fsm.Reply) {
	o, wrong := c.LookupString(key)
	switch {
	case wrong:
		return nil, h, fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return nil, hll.New(), fsm.Null
	case !hll.Is(o.Str):
		return nil, h, fsm.Error(msgHLLType)
	}
	c.Charge(len(o.Str) / fsm.WriteBytes)
	return o, hll.Of(o.Str), fsm.Null
}

// storeHLL stores a value. o is the object that the key had, or nil.
func storeHLL(c *fsm.Ctx, o *keyspace.Object, key []byte, h hll.Value) {
	n := keyspace.NewObject(key, h.Bytes())
	n.Raw = true
	if o != nil {
		n = within(n, lifeOf(o))
	}
	c.Assign(n)
}

// hllProbes is the maximum number of elements for which PFADD looks up each
// element in the runs of the sparse encoding. For more elements, it expands all
// registers first; otherwise each repetition of an element would cost a walk
// through the runs.
const hllProbes = 16

// pfadd changes nothing if it finds broken registers. Redis keeps the changes
// that it made before it found the broken registers.
func pfadd(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, h, fail := copyHLL(c, args[1])
	if fail.IsError() {
		return fail
	}
	var known *hll.Union
	if len(args)-2 > hllProbes {
		c.Charge(hllSteps)
		known = new(hll.Union)
		known.Add(&h) // if h is broken, Add has read the registers before the damage
	}
	updated, raise := o == nil, h.Raise
	if known != nil {
		raise = hll.NewRaiser(&h).Raise
	}
	for _, elem := range args[2:] {
		c.Charge(fsm.StepsPut + len(elem)/fsm.ScanBytes)
		i, value := hll.Hash(elem)
		if known != nil {
			if known[i] >= value {
				continue
			}
			known[i] = value
		}
		changed, whole := raise(i, value)
		if !whole {
			return fsm.Error(msgHLLCorrupt)
		}
		updated = updated || changed
	}
	if !updated {
		return fsm.Zero
	}
	h.Invalidate()
	storeHLL(c, o, args[1], h)
	c.Notify("$", "pfadd", string(args[1]))
	return fsm.One
}

// pfcount never writes. Redis writes the count of a single key into the header
// of its value. In Holdfast, this would turn every read into a write. So PFADD
// and PFMERGE mark the count in the header as out of date, and pfcount computes
// the count from the registers each time. If a client stores a value of Redis
// whose count is up to date, pfcount returns that count.
func pfcount(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if len(args) == 2 {
		o, h, fail := lookupHLL(c, args[1])
		switch {
		case fail.IsError():
			return fail
		case o == nil:
			return fsm.Zero
		}
		n, whole := h.Count()
		if !whole {
			return fsm.Error(msgHLLCorrupt)
		}
		return fsm.Int(n)
	}
	u, _, fail := uniteSets(c, args[1:])
	if fail.IsError() {
		return fail
	}
	return fsm.Int(u.Count())
}

// uniteSets merges the values of the keys, each value once. dense reports whether
// one of the values is dense.
func uniteSets(c *fsm.Ctx, keys [][]byte) (u *hll.Union, dense bool, fail fsm.Reply) {
	u = new(hll.Union)
	seen := make(map[*keyspace.Object]bool)
	for _, key := range keys {
		o, h, fail := lookupHLL(c, key)
		switch {
		case fail.IsError():
			return nil, false, fail
		case o == nil || seen[o]:
			continue
		}
		seen[o] = true
		dense = dense || !h.Sparse()
		if !u.Add(&h) {
			return nil, false, fsm.Error(msgHLLCorrupt)
		}
	}
	return u, dense, fsm.Null
}

func pfmerge(c *fsm.Ctx, args [][]byte) fsm.Reply {
	u, dense, fail := uniteSets(c, args[1:])
	if fail.IsError() {
		return fail
	}
	o, h, fail := lookupHLL(c, args[1])
	switch {
	case fail.IsError():
		return fail
	case dense && !h.ToDense():
		return fsm.Error(msgHLLCorrupt)
	}
	r := hll.NewRaiser(&h)
	for i, value := range u {
		if value == 0 {
			continue
		}
		c.Charge(1)
		if _, whole := r.Raise(i, value); !whole {
			return fsm.Error(msgHLLCorrupt)
		}
	}
	h.Invalidate()
	storeHLL(c, o, args[1], h)
	c.Notify("$", "pfadd", string(args[1]))
	return fsm.OK
}

func pfdebug(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, h, fail := lookupHLL(c, args[2])
	switch {
	case fail.IsError():
		return fail
	case o == nil:
		return fsm.Error(msgHLLNoKey)
	}
	switch sparse := h.Sparse(); {
	case fsm.IsWord(args[1], "GETREG"), fsm.IsWord(args[1], "TODENSE"):
		if !h.ToDense() {
			return fsm.Error(msgHLLCorrupt)
		}
		if sparse {
			storeHLL(c, o, args[2], h)
		}
		if fsm.IsWord(args[1], "TODENSE") {
			return fsm.Bool(sparse)
		}
		regs := make([]fsm.Reply, hll.Registers)
		for i := range regs {
			regs[i] = fsm.Int(int64(h.Register(i)))
		}
		return fsm.Array(regs)
	case fsm.IsWord(args[1], "DECODE"):
		if !sparse {
			return fsm.Error(msgHLLDense)
		}
		return fsm.Bulk(h.Describe())
	case fsm.IsWord(args[1], "ENCODING"):
		if sparse {
			return fsm.Simple("sparse")
		}
		return fsm.Simple("dense")
	}
	return fsm.Error("ERR Unknown PFDEBUG subcommand '" + string(args[1]) + "'")
}

func pfselftest(c *fsm.Ctx, args [][]byte) fsm.Reply {
	if err := hll.SelfTest(c.Charge); err != nil {
		return fsm.Error("ERR TESTFAILED " + err.Error())
	}
	return fsm.OK
}
