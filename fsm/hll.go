package fsm

import (
	"strconv"
	"strings"
)

var hllCommands = []Command{
	{Name: "pfadd", Arity: -2, Flags: Write | DenyOOM | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "insert"}, Group: "hyperloglog", Since: "2.8.9", Complexity: "O(1) to add every element.", Syntax: "key [element [element ...]]", Doc: "Adds the specified elements to the specified HyperLogLog.", Run: pfadd},
	{Name: "pfcount", Arity: -2, Flags: ReadOnly, Keys: Keys{1, -1, 1}, Access: Access{Mode: "RW", Flags: "access", Notes: "RW because it may change the internal representation of the key, and propagate to replicas"}, Group: "hyperloglog", Since: "2.8.9", Complexity: "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.", Syntax: "key [key ...]", Doc: "Return the approximated cardinality of the set(s) observed by the HyperLogLog at key(s).", Run: pfcount},
	{Name: "pfmerge", Arity: -2, Flags: Write | DenyOOM, Keys: Keys{1, -1, 1}, Specs: []KeySpec{{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access insert"}}, {Keys: Keys{2, -1, 1}, Access: Access{Mode: "RO", Flags: "access"}}}, Group: "hyperloglog", Since: "2.8.9", Complexity: "O(N) to merge N HyperLogLogs, but with high constant times.", Syntax: "destkey sourcekey [sourcekey ...]", Doc: "Merge N different HyperLogLogs into a single one.", Run: pfmerge},
	{Name: "pfdebug", Arity: 3, Flags: Write | DenyOOM | Admin, Keys: Keys{2, 2, 1}, Access: Access{Mode: "RW", Flags: "access"}, Group: "hyperloglog", Since: "2.8.9", Complexity: "N/A", Syntax: "subcommand key", Doc: "Internal commands for debugging HyperLogLog values", Run: pfdebug},
	{Name: "pfselftest", Arity: 1, Flags: Admin | Slow, Group: "hyperloglog", Since: "2.8.9", Complexity: "N/A", Doc: "An internal command for testing HyperLogLog values", Run: pfselftest},
}

const (
	msgHLLType    = "WRONGTYPE Key is not a valid HyperLogLog string value."
	msgHLLCorrupt = "INVALIDOBJ Corrupted HLL object detected"
	msgHLLNoKey   = "ERR The specified key does not exist"
	msgHLLDense   = "ERR HLL encoding is not sparse"
)

// lookupHLL returns the object of a key, nil if there is none, and a copy of its
// value to be changed.
func (c *Ctx) lookupHLL(key []byte) (o *object, h hll, fail Reply) {
	o, wrong := c.lookupString(key)
	switch {
	case wrong:
		return nil, h, Error(msgWrongType)
	case o == nil:
		return nil, newHLL(), Null
	case !isHLL(o.str):
		return nil, h, Error(msgHLLType)
	}
	return o, hll{[]byte(o.str)}, Null
}

// storeHLL gives a key a value; o is the object that it had, nil for none.
func (c *Ctx) storeHLL(o *object, key []byte, h hll) {
	n := newObject(key, h.b)
	n.raw = true
	if o != nil {
		n = n.within(o.life())
	}
	c.assign(n)
}

// hllProbes is the number of elements that PFADD looks up run by run. For more
// it has all registers at hand, or repeating one element would cost a walk each time.
const hllProbes = 16

// pfadd changes nothing if it meets broken registers; Redis keeps what it did
// before it came to them.
func pfadd(c *Ctx, args [][]byte) Reply {
	o, h, fail := c.lookupHLL(args[1])
	if fail.IsError() {
		return fail
	}
	var known *hllUnion
	if len(args)-2 > hllProbes {
		known = new(hllUnion)
		known.add(&h) // as far as they are whole
	}
	updated := o == nil
	for _, elem := range args[2:] {
		i, value := hllHash(elem)
		if known != nil {
			if known[i] >= value {
				continue
			}
			known[i] = value
		}
		changed, whole := h.raise(i, value)
		if !whole {
			return Error(msgHLLCorrupt)
		}
		updated = updated || changed
	}
	if !updated {
		return Zero
	}
	h.invalidate()
	c.storeHLL(o, args[1], h)
	c.notify("$", "pfadd", string(args[1]))
	return One
}

// pfcount never writes. Redis puts the count of a single key into its header; as
// that would make a write of every read, the header keeps saying here that its
// count is out of date, and the registers are counted each time.
func pfcount(c *Ctx, args [][]byte) Reply {
	if len(args) == 2 {
		o, h, fail := c.lookupHLL(args[1])
		switch {
		case fail.IsError():
			return fail
		case o == nil:
			return Zero
		}
		n, whole := h.count()
		if !whole {
			return Error(msgHLLCorrupt)
		}
		return Int(n)
	}
	u, _, fail := c.unite(args[1:])
	if fail.IsError() {
		return fail
	}
	return Int(u.count())
}

// unite merges the values of keys, each once. dense is set if one of them is.
func (c *Ctx) unite(keys [][]byte) (u *hllUnion, dense bool, fail Reply) {
	u = new(hllUnion)
	seen := make(map[*object]bool)
	for _, key := range keys {
		o, h, fail := c.lookupHLL(key)
		switch {
		case fail.IsError():
			return nil, false, fail
		case o == nil || seen[o]:
			continue
		}
		seen[o] = true
		dense = dense || !h.sparse()
		if !u.add(&h) {
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
	case dense && !h.toDense():
		return Error(msgHLLCorrupt)
	}
	for i, value := range u {
		if value == 0 {
			continue
		}
		if _, whole := h.raise(i, value); !whole {
			return Error(msgHLLCorrupt)
		}
	}
	h.invalidate()
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
	switch sparse := h.sparse(); {
	case fold(args[1], "GETREG"), fold(args[1], "TODENSE"):
		if !h.toDense() {
			return Error(msgHLLCorrupt)
		}
		if sparse {
			c.storeHLL(o, args[2], h)
		}
		if fold(args[1], "TODENSE") {
			return Bool(sparse)
		}
		regs := make([]Reply, hllRegisters)
		for i := range regs {
			regs[i] = Int(int64(h.denseAt(i)))
		}
		return Array(regs)
	case fold(args[1], "DECODE"):
		if !sparse {
			return Error(msgHLLDense)
		}
		return Bulk(h.describe())
	case fold(args[1], "ENCODING"):
		if sparse {
			return Simple("sparse")
		}
		return Simple("dense")
	}
	return Error("ERR Unknown PFDEBUG subcommand '" + string(args[1]) + "'")
}

// describe prints the runs of a sparse value, up to what is cut off.
func (h *hll) describe() string {
	var runs []string
	for b := h.b[hllHeader:]; ; {
		run := runAt(b)
		text := strconv.Itoa(run.n)
		switch {
		case run.size == 0:
			return strings.Join(runs, " ")
		case run.size == 2:
			text = "Z:" + text
		case run.value == 0:
			text = "z:" + text
		default:
			text = "v:" + strconv.Itoa(int(run.value)) + "," + text
		}
		runs = append(runs, text)
		b = b[run.size:]
	}
}

func pfselftest(c *Ctx, args [][]byte) Reply {
	if err := hllSelfTest(); err != nil {
		return Error("ERR TESTFAILED " + err.Error())
	}
	return OK
}
