package script

import (
	"math/bits"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

// fillBit fills the table of the library LuaBitOp. The library reduces numbers
// to 32 bits, and its results are signed.
func fillBit() {
	t := bitTable
	unary := func(name string, f func(x uint32) uint32) {
		t.RawSetString(name, builtin(func(st *State, args []Value) []Value {
			return st.Ret(signed(f(bitArg(st, args, 1))))
		}))
	}
	fold := func(name string, f func(a, b uint32) uint32) {
		t.RawSetString(name, builtin(func(st *State, args []Value) []Value {
			x := bitArg(st, args, 1)
			for i := 2; i <= len(args); i++ {
				x = f(x, bitArg(st, args, i))
			}
			return st.Ret(signed(x))
		}))
	}
	shift := func(name string, f func(x, n uint32) uint32) {
		t.RawSetString(name, builtin(func(st *State, args []Value) []Value {
			x, n := bitArg(st, args, 1), bitArg(st, args, 2)
			return st.Ret(signed(f(x, n&31)))
		}))
	}
	unary("tobit", func(x uint32) uint32 { return x })
	unary("bnot", func(x uint32) uint32 { return ^x })
	fold("band", func(a, b uint32) uint32 { return a & b })
	fold("bor", func(a, b uint32) uint32 { return a | b })
	fold("bxor", func(a, b uint32) uint32 { return a ^ b })
	shift("lshift", func(x, n uint32) uint32 { return x << n })
	shift("rshift", func(x, n uint32) uint32 { return x >> n })
	shift("arshift", func(x, n uint32) uint32 { return uint32(int32(x) >> n) })
	shift("rol", func(x, n uint32) uint32 { return bits.RotateLeft32(x, int(n)) })
	shift("ror", func(x, n uint32) uint32 { return bits.RotateLeft32(x, -int(n)) })
	unary("bswap", bits.ReverseBytes32)
	t.RawSetString("tohex", builtin(bitToHex))
	freeze(t)
}

func signed(x uint32) Value { return Number(float64(int32(x))) }

// bitArg rounds argument n to the nearest integer and returns its low 32 bits.
func bitArg(st *State, args []Value, n int) uint32 {
	return numeral.ToBits(st.CheckNumber(args, n))
}

func bitToHex(st *State, args []Value) []Value {
	x := bitArg(st, args, 1)
	n, digits := 8, "0123456789abcdef"
	if len(args) > 1 {
		n = int(int32(bitArg(st, args, 2)))
	}
	if n < 0 {
		n, digits = -n, "0123456789ABCDEF"
	}
	if n > 8 || n < 0 {
		n = 8
	}
	buf := make([]byte, n)
	for i := n - 1; i >= 0; i-- {
		buf[i] = digits[x&15]
		x >>= 4
	}
	return st.Ret(st.NewString(string(buf)))
}
