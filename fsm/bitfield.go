package fsm

import "math"

var bitfieldCommands = []Command{
	{Name: "bitfield", Arity: -2, Flags: Write | DenyOOM | VariableFlags, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RW", Flags: "access update variable_flags", Notes: "This command allows both access and modification of the key"}, Group: "bitmap", Since: "3.2.0", Complexity: "O(1) for each subcommand specified", Syntax: "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> ...]", Doc: "Perform arbitrary bitfield integer operations on strings", Run: bitfield},
	{Name: "bitfield_ro", Arity: -2, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}, Group: "bitmap", Since: "6.0.0", Complexity: "O(1) for each subcommand specified", Syntax: "key [GET encoding offset ...]", Doc: "Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD", Run: bitfieldRO},
}

const (
	msgBitType     = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
	msgBitOverflow = "ERR Invalid OVERFLOW type specified"
	msgBitReadOnly = "ERR BITFIELD_RO only supports the GET subcommand"
)

// overflow says what becomes of a number that does not fit its field.
type overflow byte

const (
	overflowWrap overflow = iota
	overflowSaturate
	overflowFail
)

// bitOp is one of BITFIELD's operations: on a field of bits bits from at on.
type bitOp struct {
	write, add bool
	signed     bool
	bits, at   int
	value      int64
	over       overflow
}

// parseBitOps reads the operations of BITFIELD. end is the first bit behind all
// that are to be written, 0 if nothing is.
func parseBitOps(args [][]byte) (ops []bitOp, end int, fail Reply) {
	over := overflowWrap
	for i := 2; i < len(args); i++ {
		more := len(args) - i - 1
		op := bitOp{over: over, add: fold(args[i], "INCRBY")}
		op.write = op.add || fold(args[i], "SET")
		switch {
		case op.write && more >= 3, fold(args[i], "GET") && more >= 2:
		case fold(args[i], "OVERFLOW") && more >= 1:
			i++
			switch {
			case fold(args[i], "WRAP"):
				over = overflowWrap
			case fold(args[i], "SAT"):
				over = overflowSaturate
			case fold(args[i], "FAIL"):
				over = overflowFail
			default:
				return nil, 0, Error(msgBitOverflow)
			}
			continue
		default:
			return nil, 0, Error(msgSyntax)
		}
		if !op.field(args[i+1]) {
			return nil, 0, Error(msgBitType)
		}
		if !op.place(args[i+2]) {
			return nil, 0, Error(msgBitOffset)
		}
		i += 2
		if op.write {
			i++
			var ok bool
			if op.value, ok = parseInt(args[i]); !ok {
				return nil, 0, Error(msgNotInt)
			}
			end = max(end, op.at+op.bits)
		}
		ops = append(ops, op)
	}
	return ops, end, Null
}

// field reads the type of a field: i and u, and the number of bits.
func (op *bitOp) field(arg []byte) bool {
	if len(arg) < 2 || arg[0] != 'i' && arg[0] != 'u' {
		return false
	}
	op.signed = arg[0] == 'i'
	n, ok := parseInt(arg[1:])
	op.bits = int(n)
	return ok && n >= 1 && (n < 64 || n == 64 && op.signed)
}

// place reads where a field begins: a bit, or behind # how many such fields come
// before it.
func (op *bitOp) place(arg []byte) bool {
	unit := int64(1)
	if len(arg) > 0 && arg[0] == '#' {
		arg, unit = arg[1:], int64(op.bits)
	}
	n, ok := parseInt(arg)
	if !ok || n < 0 || n > MaxStringBytes*8 {
		return false
	}
	op.at = int(n * unit)
	last := op.at
	if op.write {
		last += op.bits - 1
	}
	return last>>3 < MaxStringBytes
}

// get reads the field of a string that has zeros behind its end.
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

// trim makes a number of the lowest bits of v.
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

// sum adds to a number what must be added, and makes the result fit the field. fits
// is false if it did not.
func (op *bitOp) sum(value, add int64) (result int64, fits bool) {
	var high, low bool // does not fit, and on which side
	limits := [2]int64{0, 1<<(op.bits&63) - 1}
	if op.signed {
		limits[1] = int64(uint64(math.MaxInt64) >> (64 - op.bits))
		limits[0] = -limits[1] - 1
		// As in Redis, a number far below a small field wraps to one above it.
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

// run does the operation to a string that is long enough for it.
func (op *bitOp) run(s []byte) (r Reply, changed bool) {
	old := op.get(s)
	if !op.write {
		return Int(old), false
	}
	from, add := op.value, int64(0)
	if op.add {
		from, add = old, op.value
	}
	value, fits := op.sum(from, add)
	if !fits && op.over == overflowFail {
		return Null, false
	}
	op.set(s, value)
	if op.add {
		return Int(value), value != old
	}
	return Int(old), value != old
}

func bitfield(c *Ctx, args [][]byte) Reply   { return c.bitfield(args, false) }
func bitfieldRO(c *Ctx, args [][]byte) Reply { return c.bitfield(args, true) }

func (c *Ctx) bitfield(args [][]byte, readOnly bool) Reply {
	ops, end, fail := parseBitOps(args)
	switch {
	case fail.IsError():
		return fail
	case readOnly && end > 0:
		return Error(msgBitReadOnly)
	}
	o, wrong := c.lookupString(args[1])
	if wrong {
		return Error(msgWrongType)
	}
	var s []byte
	if o != nil {
		s = []byte(o.str)
	}
	grown := (end+7)/8 > len(s)
	if grown {
		s = append(s, make([]byte, (end+7)/8-len(s))...)
	}
	replies, changes := make([]Reply, len(ops)), false
	for i := range ops {
		var changed bool
		replies[i], changed = ops[i].run(s)
		changes = changes || changed || grown && ops[i].write && replies[i].kind != kindNull
	}
	if grown || changes {
		if o == nil {
			o = newObject(args[1], nil)
		}
		n := o.overlaid(0, s)
		c.assign(n)
		if changes { // an operation that failed makes the string longer all the same
			c.notify("$", "setbit", n.key)
		}
	}
	return Array(replies)
}

// onlyReads reports whether a call of BITFIELD only reads.
func onlyReads(args [][]byte) bool {
	for i := 2; i < len(args); i++ {
		switch more := len(args) - i - 1; {
		case fold(args[i], "GET") && more >= 2:
			i += 2
		case fold(args[i], "OVERFLOW") && more >= 1:
			i++
		default:
			return false
		}
	}
	return true
}

// bitfieldAccess is what a call of BITFIELD does with its key.
func bitfieldAccess(args [][]byte) Access {
	if onlyReads(args) {
		return Access{Mode: "RO", Flags: "access"}
	}
	return Access{Mode: "RW", Flags: "access update"}
}
