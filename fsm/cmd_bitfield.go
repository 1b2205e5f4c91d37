package fsm

import (
	"math"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

var bitfieldCommands = []Command{
	{
		Name: "bitfield", Run: bitfield, Arity: -2, Flags: Write | DenyOOM | VariableFlags, Keys: Keys{1, 1, 1},
		Access: Access{
			Flags: "access update variable_flags", Mode: "RW",
			Notes: "This command allows both access and modification of the key",
		},
		Group: "bitmap", Since: "3.2.0",
		Complexity: "O(1) for each subcommand specified",
		Syntax:     "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> ...]",
		Doc:        "Perform arbitrary bitfield integer operations on strings",
	},
	{
		Name: "bitfield_ro", Run: bitfieldRO, Arity: -2, Flags: ReadOnly | Fast, Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RO", Flags: "access"},
		Group:  "bitmap", Since: "6.0.0",
		Complexity: "O(1) for each subcommand specified",
		Syntax:     "key [GET encoding offset ...]",
		Doc:        "Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD",
	},
}

const (
	msgBitType     = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
	msgBitOverflow = "ERR Invalid OVERFLOW type specified"
	msgBitReadOnly = "ERR BITFIELD_RO only supports the GET subcommand"
)

// overflow is what BITFIELD does with a number that does not fit its field.
type overflow byte

const (
	overflowWrap overflow = iota
	overflowSaturate
	overflowFail
)

// bitOp is one operation of BITFIELD. It applies to the field of bits bits that
// begins at bit at.
type bitOp struct {
	write, add bool
	signed     bool
	bits, at   int
	value      int64
	over       overflow
}

// parseBitOps parses the operations of BITFIELD. end is the number of bits that
// the string needs for all writes, or 0 if no operation writes.
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
		if !op.offset(args[i+2]) {
			return nil, 0, Error(msgBitOffset)
		}
		i += 2
		if op.write {
			i++
			var ok bool
			if op.value, ok = number.ParseInt(args[i]); !ok {
				return nil, 0, Error(msgNotInt)
			}
			end = max(end, op.at+op.bits)
		}
		ops = append(ops, op)
	}
	return ops, end, Null
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

// offset parses where a field begins: the number of a bit, or # followed by a
// multiple of the field's width.
func (op *bitOp) offset(arg []byte) bool {
	unit := int64(1)
	if len(arg) > 0 && arg[0] == '#' {
		arg, unit = arg[1:], int64(op.bits)
	}
	n, ok := number.ParseInt(arg)
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

// sum adds two numbers and makes the result fit the field, as the overflow mode
// says. fits is false if the exact result did not fit.
func (op *bitOp) sum(value, add int64) (result int64, fits bool) {
	var high, low bool // does not fit: too high, too low
	limits := [2]int64{0, 1<<(op.bits&63) - 1}
	if op.signed {
		limits[1] = int64(uint64(math.MaxInt64) >> (64 - op.bits))
		limits[0] = -limits[1] - 1
		// As in Redis, a number far below the range of a small field wraps to
		// one above it.
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
		c.charge(2 * len(o.str) / copyBytes)
		s = []byte(o.str)
	}
	grown := (end+7)/8 > len(s)
	if grown {
		s = append(s, make([]byte, (end+7)/8-len(s))...)
	}
	replies, changes := make([]Reply, len(ops)), false
	for i := range ops {
		c.charge(stepsPerKey)
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
		if changes { // even an operation that failed makes the string longer
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

// bitfieldAccess returns how a call of BITFIELD accesses its key.
func bitfieldAccess(args [][]byte) Access {
	if onlyReads(args) {
		return Access{Mode: "RO", Flags: "access"}
	}
	return Access{Mode: "RW", Flags: "access update"}
}
