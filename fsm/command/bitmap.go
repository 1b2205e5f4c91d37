package command

import (
	"math"
	"math/bits"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var bitmapCommands = []fsm.Command{
	{
		Name: "setbit", Run: setbit, Arity: 4, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: setbitWork},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "access update"},
		Group: "bitmap", Since: "2.2.0",
		Complexity: "O(1)",
		Syntax:     "key offset value",
		Doc:        "Sets or clears the bit at offset in the string value stored at key",
	},
	{
		Name: "getbit", Run: getbit, Arity: 3, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "bitmap", Since: "2.2.0",
		Complexity: "O(1)",
		Syntax:     "key offset",
		Doc:        "Returns the bit value at offset in the string value stored at key",
	},
	{
		Name: "bitcount", Run: bitcount, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "bitmap", Since: "2.6.0",
		Complexity: "O(N)",
		Syntax:     "key [start end [BYTE | BIT]]",
		Doc:        "Count set bits in a string",
		History:    []fsm.Change{{Since: "7.0.0", What: "Added the `BYTE|BIT` option."}},
	},
	{
		Name: "bitpos", Run: bitpos, Arity: -3, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "bitmap", Since: "2.8.7",
		Complexity: "O(N)",
		Syntax:     "key bit [start [end [BYTE | BIT]]]",
		Doc:        "Find first bit set or clear in a string",
		History:    []fsm.Change{{Since: "7.0.0", What: "Added the `BYTE|BIT` option."}},
	},
	{
		Name: "bitop", Run: bitop, Arity: -4, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: bitopWork},
		Keys: fsm.KeysAt(2, -1, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "OW", Flags: "update"}},
			{Keys: fsm.KeysAt(3, -1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		},
		Group: "bitmap", Since: "2.6.0",
		Complexity: "O(N)",
		Syntax:     "operation destkey key [key ...]",
		Doc:        "Perform bitwise operations between strings",
	},
	{
		Name: "bitfield", Run: bitfield, Arity: -2, Flags: fsm.Write | fsm.DenyOOM | fsm.VariableFlags,
		Work: fsm.WorkHooks{Steps: bitfieldWork}, AccessOf: bitfieldAccess,
		Keys: fsm.KeysAt(1, 1, 1),
		Access: fsm.Access{
			Flags: "access update variable_flags", Mode: "RW",
			Notes: "This command allows both access and modification of the key",
		},
		Group: "bitmap", Since: "3.2.0",
		Complexity: "O(1) for each subcommand specified",
		Syntax: "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY " +
			"encoding offset increment> ...]",
		Doc: "Perform arbitrary bitfield integer operations on strings",
	},
	{
		Name: "bitfield_ro", Run: bitfieldRO, Arity: -2, Flags: fsm.ReadOnly | fsm.Fast,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "bitmap", Since: "6.0.0",
		Complexity: "O(1) for each subcommand specified",
		Syntax:     "key [GET encoding offset ...]",
		Doc:        "Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD",
	},
}

const (
	msgBitOffset = "ERR bit offset is not an integer or out of range"
	msgBit       = "ERR bit is not an integer or out of range"
	msgBitArg    = "ERR The bit argument must be 1 or 0."
	msgBitNot    = "ERR BITOP NOT must be called with a single source key."
)

// bitBatch is the number of bytes for which BITCOUNT and BITPOS charge at a
// time.
const bitBatch = 16 << 10

// bitOffset parses the offset of a bit. The first bit of a byte is its highest.
func bitOffset(arg []byte) (n int, ok bool) {
	offset, ok := number.ParseInt(arg)
	return int(offset), ok && offset >= 0 && offset>>3 < fsm.MaxStringBytes
}

func bitAt(s string, n int) byte {
	if n>>3 >= len(s) {
		return 0
	}
	return s[n>>3] >> (7 - n&7) & 1
}

func setbit(c *fsm.Ctx, args [][]byte) fsm.Reply {
	n, ok := bitOffset(args[2])
	if !ok {
		return fsm.Error(msgBitOffset)
	}
	bit, ok := number.ParseInt(args[3])
	if !ok || bit&^1 != 0 {
		return fsm.Error(msgBit)
	}
	o, wrong := c.LookupString(args[1])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	if o == nil {
		o = keyspace.NewObject(args[1], nil)
	}
	old := bitAt(o.Str, n)
	if at := n >> 3; at >= len(o.Str) || old != byte(bit) {
		var b byte
		if at < len(o.Str) {
			b = o.Str[at]
		}
		mask := byte(1) << (7 - n&7)
		if b &^= mask; bit == 1 {
			b |= mask
		}
		c.Charge(max(len(o.Str), at) / fsm.WriteBytes)
		changed := o.Overlaid(at, []byte{b})
		c.Assign(changed)
		c.Notify("$", "setbit", changed.Key)
	}
	return fsm.Int(int64(old))
}

func getbit(c *fsm.Ctx, args [][]byte) fsm.Reply {
	n, ok := bitOffset(args[2])
	if !ok {
		return fsm.Error(msgBitOffset)
	}
	o, wrong := c.LookupString(args[1])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	}
	return fsm.Int(int64(bitAt(o.Str, n)))
}

// bitRange parses the start, end and unit of a range in a string of size bytes.
// It returns the half-open range [from, to) in bits.
func bitRange(args [][]byte, size int) (from, to int64, fail fsm.Reply) {
	total := int64(size)
	start, ok := number.ParseInt(args[0])
	end := total - 1
	if ok && len(args) > 1 {
		end, ok = number.ParseInt(args[1])
	}
	if !ok {
		return 0, 0, fsm.Error(fsm.MsgNotInt)
	}
	byBit := false
	if len(args) > 2 {
		if byBit = fsm.IsWord(args[2], "BIT"); !byBit && !fsm.IsWord(args[2], "BYTE") {
			return 0, 0, fsm.Error(fsm.MsgSyntax)
		}
	}
	if byBit {
		total *= 8
	}
	if start < 0 {
		start = max(start+total, 0)
	}
	if end < 0 {
		end = max(end+total, 0)
	}
	end = min(end, total-1)
	if start > end {
		return 0, 0, fsm.Null
	}
	if byBit {
		return start, end + 1, fsm.Null
	}
	return start * 8, (end + 1) * 8, fsm.Null
}

func bitcount(c *fsm.Ctx, args [][]byte) fsm.Reply {
	o, wrong := c.LookupString(args[1])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Zero
	case len(args) == 3 || len(args) > 5:
		return fsm.Error(fsm.MsgSyntax)
	}
	from, to := int64(0), int64(len(o.Str))*8
	if len(args) > 2 {
		start, ok1 := number.ParseInt(args[2])
		end, ok2 := number.ParseInt(args[3])
		if ok1 && ok2 && start < 0 && end < 0 && start > end {
			return fsm.Zero // whatever the unit is
		}
		var fail fsm.Reply
		if from, to, fail = bitRange(args[2:], len(o.Str)); fail.IsError() {
			return fail
		}
	}
	count := 0
	for n, next := from, from; n < to; {
		if n >= next {
			next = n + 8*bitBatch
			c.Charge(int(min(next, to)-n) / (8 * fsm.ScanBytes))
		}
		if n&7 == 0 && to-n >= 8 {
			count += bits.OnesCount8(o.Str[n>>3])
			n += 8
			continue
		}
		count += int(bitAt(o.Str, int(n)))
		n++
	}
	return fsm.Int(int64(count))
}

func bitpos(c *fsm.Ctx, args [][]byte) fsm.Reply {
	bit, ok := number.ParseInt(args[2])
	switch {
	case !ok:
		return fsm.Error(fsm.MsgNotInt)
	case bit != 0 && bit != 1:
		return fsm.Error(msgBitArg)
	}
	o, wrong := c.LookupString(args[1])
	switch {
	case wrong:
		return fsm.Error(fsm.MsgWrongType)
	case o == nil:
		return fsm.Int(-bit) // a missing key is an endless string of zeros
	case len(args) > 6:
		return fsm.Error(fsm.MsgSyntax)
	case len(args) == 6 && !fsm.IsWord(args[5], "BIT") && !fsm.IsWord(args[5], "BYTE"):
		return fsm.Error(fsm.MsgSyntax) // reported before errors in the numbers
	}
	from, to := int64(0), int64(len(o.Str))*8
	if len(args) > 3 {
		var fail fsm.Reply
		if from, to, fail = bitRange(args[3:], len(o.Str)); fail.IsError() {
			return fail
		}
	}
	skip := byte(0) // a byte with this value contains no match
	if bit == 0 {
		skip = 0xff
	}
	for n, next := from, from; n < to; {
		if n >= next {
			next = n + 8*bitBatch
			c.Charge(int(min(next, to)-n) / (8 * fsm.ScanBytes))
		}
		if n&7 == 0 && to-n >= 8 && o.Str[n>>3] == skip {
			n += 8
			continue
		}
		if int64(bitAt(o.Str, int(n))) == bit {
			return fsm.Int(n)
		}
		n++
	}
	if bit == 0 && len(args) < 5 && from < to {
		return fsm.Int(to) // the first zero beyond the end of the string
	}
	return fsm.Int(-1)
}

// bitAnd, bitOr and bitXor combine result with a string that is not longer than
// result. The string counts as padded with zeros.
func bitAnd(result []byte, s string) {
	for i := range len(s) {
		result[i] &= s[i]
	}
	clear(result[len(s):])
}

func bitOr(result []byte, s string) {
	for i := range len(s) {
		result[i] |= s[i]
	}
}

func bitXor(result []byte, s string) {
	for i := range len(s) {
		result[i] ^= s[i]
	}
}

func bitop(c *fsm.Ctx, args [][]byte) fsm.Reply {
	var op func(result []byte, s string)
	xor, not := false, false
	switch {
	case fsm.IsWord(args[1], "AND"):
		op = bitAnd
	case fsm.IsWord(args[1], "OR"):
		op = bitOr
	case fsm.IsWord(args[1], "XOR"):
		op, xor = bitXor, true
	case fsm.IsWord(args[1], "NOT"):
		not = true
	default:
		return fsm.Error(fsm.MsgSyntax)
	}
	if not && len(args) != 4 {
		return fsm.Error(msgBitNot)
	}
	// A command may name the same key a million times. For AND and OR, using
	// the key once is enough. For XOR, using it twice has no effect.
	times := make(map[string]int)
	for _, key := range args[3:] {
		times[string(key)]++
	}
	var sources []string
	size := 0
	for _, key := range args[3:] {
		n := times[string(key)]
		if n == 0 {
			continue
		}
		times[string(key)] = 0
		o, wrong := c.LookupString(key)
		switch {
		case wrong:
			return fsm.Error(fsm.MsgWrongType)
		case o == nil:
			sources = append(sources, "")
			continue
		case xor && n%2 == 0:
			sources = append(sources, "")
		default:
			sources = append(sources, o.Str)
		}
		size = max(size, len(o.Str))
	}
	if size == 0 {
		if old := c.Lookup(args[2]); old != nil {
			c.Delete(old)
		}
		return fsm.Zero
	}
	c.Charge(size / fsm.ScanBytes)
	result := make([]byte, size)
	copy(result, sources[0])
	for _, s := range sources[1:] {
		c.Charge(size / fsm.ScanBytes)
		op(result, s)
	}
	if not {
		for i := range result {
			result[i] = ^result[i]
		}
	}
	n := keyspace.NewObject(args[2], result)
	n.Raw = true
	c.Assign(n)
	c.Notify("$", "set", n.Key)
	return fsm.Int(int64(size))
}

const (
	msgBitType     = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
	msgBitOverflow = "ERR Invalid OVERFLOW type specified"
	msgBitReadOnly = "ERR BITFIELD_RO only supports the GET subcommand"
)

// overflow is the way in which BITFIELD handles a number that does not fit into
// its field.
type overflow byte

const (
	overflowWrap overflow = iota
	overflowSaturate
	overflowFail
)

// bitOp is one operation of BITFIELD. at is the number of the first bit of its
// field, and bits is the width of the field.
type bitOp struct {
	write, add bool
	signed     bool
	bits, at   int
	value      int64
	over       overflow
}

// parseBitOps parses the operations of BITFIELD. end is the number of bits that
// the string needs for all writes, or 0 if no operation writes.
func parseBitOps(args [][]byte) (ops []bitOp, end int, fail fsm.Reply) {
	over := overflowWrap
	for i := 2; i < len(args); i++ {
		more := len(args) - i - 1
		op := bitOp{over: over, add: fsm.IsWord(args[i], "INCRBY")}
		op.write = op.add || fsm.IsWord(args[i], "SET")
		switch {
		case op.write && more >= 3, fsm.IsWord(args[i], "GET") && more >= 2:
		case fsm.IsWord(args[i], "OVERFLOW") && more >= 1:
			i++
			switch {
			case fsm.IsWord(args[i], "WRAP"):
				over = overflowWrap
			case fsm.IsWord(args[i], "SAT"):
				over = overflowSaturate
			case fsm.IsWord(args[i], "FAIL"):
				over = overflowFail
			default:
				return nil, 0, fsm.Error(msgBitOverflow)
			}
			continue
		default:
			return nil, 0, fsm.Error(fsm.MsgSyntax)
		}
		if !op.field(args[i+1]) {
			return nil, 0, fsm.Error(msgBitType)
		}
		if !op.offset(args[i+2]) {
			return nil, 0, fsm.Error(msgBitOffset)
		}
		i += 2
		if op.write {
			i++
			var ok bool
			if op.value, ok = number.ParseInt(args[i]); !ok {
				return nil, 0, fsm.Error(fsm.MsgNotInt)
			}
			end = max(end, op.at+op.bits)
		}
		ops = append(ops, op)
	}
	return ops, end, fsm.Null
}

// field parses the type of a field: i or u, followed by the number of bits.
func (op *bitOp) field(arg []byte) bool {
	if len(arg) < 2 || arg[0] != 'i' && arg[0] != 'u' {
		return false
	}
	op.signed = arg[0] == 'i'
	n, ok := number.ParseInt(arg[1:])
	op.bits = int(n)
	return ok && n >= 1 && (n < 64 || n == 64 && op.signed)
}

// offset parses the position at which a field begins: the number of a bit, or #
// followed by a number that is multiplied by the field's width.
func (op *bitOp) offset(arg []byte) bool {
	unit := int64(1)
	if len(arg) > 0 && arg[0] == '#' {
		arg, unit = arg[1:], int64(op.bits)
	}
	n, ok := number.ParseInt(arg)
	if !ok || n < 0 || n > fsm.MaxStringBytes*8 {
		return false
	}
	op.at = int(n * unit)
	last := op.at
	if op.write {
		last += op.bits - 1
	}
	return last>>3 < fsm.MaxStringBytes
}

// get reads the field from a string. Bits beyond the end of the string are
// zeros.
func (op *bitOp) get(s []byte) int64 {
	v := uint64(0)
	for n := op.at; n < op.at+op.bits; n++ {
		v <<= 1
		if n>>3 < len(s) {
			v |= uint64(s[n>>3] >> (7 - n&7) & 1)
		}
	}
	return op.trim(v)
}

// trim converts the lowest bits of v to a number of the field's type.
func (op *bitOp) trim(v uint64) int64 {
	left := 64 - op.bits
	if op.signed {
		return int64(v<<left) >> left
	}
	return int64(v << left >> left)
}

func (op *bitOp) set(s []byte, value int64) {
	for i := range op.bits {
		n := op.at + i
		mask := byte(1) << (7 - n&7)
		s[n>>3] &^= mask
		if value>>(op.bits-1-i)&1 == 1 {
			s[n>>3] |= mask
		}
	}
}

// sum adds two numbers and makes the result fit into the field as the overflow
// mode demands. fits is false if the exact sum does not fit.
func (op *bitOp) sum(value, add int64) (result int64, fits bool) {
	var high, low bool // whether the sum is too high or too low for the field
	limits := [2]int64{0, 1<<(op.bits&63) - 1}
	if op.signed {
		limits[1] = int64(uint64(math.MaxInt64) >> (64 - op.bits))
		limits[0] = -limits[1] - 1
		// As in Redis, the subtraction for above overflows if the number is far
		// below the range of a small field, so the number counts as too high.
		above, below := limits[1]-value, limits[0]-value
		high = value > limits[1] || add > above && (op.bits < 64 || value >= 0 && add > 0)
		low = value < limits[0] || add < below && (op.bits < 64 || value < 0 && add < 0)
	} else {
		high = uint64(value) > uint64(limits[1]) || add > 0 && add > limits[1]-value
		low = add < 0 && add < -value
	}
	switch {
	case !high && !low:
		return value + add, true
	case op.over == overflowSaturate && high:
		return limits[1], false
	case op.over == overflowSaturate:
		return limits[0], false
	}
	return op.trim(uint64(value + add)), false
}

// run executes the operation on a string that is long enough for it.
func (op *bitOp) run(s []byte) (r fsm.Reply, changed bool) {
	old := op.get(s)
	if !op.write {
		return fsm.Int(old), false
	}
	from, add := op.value, int64(0)
	if op.add {
		from, add = old, op.value
	}
	value, fits := op.sum(from, add)
	if !fits && op.over == overflowFail {
		return fsm.Null, false
	}
	op.set(s, value)
	if op.add {
		return fsm.Int(value), value != old
	}
	return fsm.Int(old), value != old
}

func bitfield(c *fsm.Ctx, args [][]byte) fsm.Reply   { return runBitfield(c, args, false) }
func bitfieldRO(c *fsm.Ctx, args [][]byte) fsm.Reply { return runBitfield(c, args, true) }

func runBitfield(c *fsm.Ctx, args [][]byte, readOnly bool) fsm.Reply {
	ops, end, fail := parseBitOps(args)
	switch {
	case fail.IsError():
		return fail
	case readOnly && end > 0:
		return fsm.Error(msgBitReadOnly)
	}
	o, wrong := c.LookupString(args[1])
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	if o == nil {
		o = keyspace.NewObject(args[1], nil)
	}
	c.Charge(max(len(o.Str), (end+7)/8) / fsm.WriteBytes)
	n, s := o.Extended((end + 7) / 8)
	grown := len(s) > len(o.Str)
	replies, changes := make([]fsm.Reply, len(ops)), false
	for i := range ops {
		c.Charge(fsm.StepsPerKey)
		var changed bool
		replies[i], changed = ops[i].run(s)
		changes = changes || changed || grown && ops[i].write && replies[i].Kind() != fsm.KindNull
	}
	if grown || changes {
		c.Assign(n)
		if changes { // no event if all writes failed, although the string has grown
			c.Notify("$", "setbit", n.Key)
		}
	}
	return fsm.Array(replies)
}

// onlyReads reports whether a call of BITFIELD only reads.
func onlyReads(args [][]byte) bool {
	for i := 2; i < len(args); i++ {
		switch more := len(args) - i - 1; {
		case fsm.IsWord(args[i], "GET") && more >= 2:
			i += 2
		case fsm.IsWord(args[i], "OVERFLOW") && more >= 1:
			i++
		default:
			return false
		}
	}
	return true
}

// bitfieldAccess returns how a call of BITFIELD accesses its key.
func bitfieldAccess(args [][]byte) fsm.Access {
	if onlyReads(args) {
		return fsm.Access{Mode: "RO", Flags: "access"}
	}
	return fsm.Access{Mode: "RW", Flags: "access update"}
}
