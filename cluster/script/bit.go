package script

import (
	"math/bits"

	"github.com/holdfast-kv/holdfast/cluster/script/lua"
)

// bitLibrary is LuaBitOp: numbers are cut to 32 bits, and results are signed.
func bitLibrary() *lua.Table {
	t := lua.NewShared(16)
	unary := func(name string, f func(x uint32) uint32) {
		t.SetStr(name, lua.NewBuiltin(name, func(st *lua.State, args []lua.Value) []lua.Value {
			return st.Ret(signed(f(bitArg(st, args, 1))))
		}))
	}
	fold := func(name string, f func(a, b uint32) uint32) {
		t.SetStr(name, lua.NewBuiltin(name, func(st *lua.State, args []lua.Value) []lua.Value {
			x := bitArg(st, args, 1)
			for i := 2; i <= len(args); i++ {
				x = f(x, bitArg(st, args, i))
			}
			return st.Ret(signed(x))
		}))
	}
	shift := func(name string, f func(x, n uint32) uint32) {
		t.SetStr(name, lua.NewBuiltin(name, func(st *lua.State, args []lua.Value) []lua.Value {
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
	t.SetStr("tohex", lua.NewBuiltin("tohex", bitToHex))
	return t.Freeze()
}

func signed(x uint32) lua.Value { return lua.Number(float64(int32(x))) }

// bitArg rounds to the nearest integer and keeps its low 32 bits.
func bitArg(st *lua.State, args []lua.Value, n int) uint32 {
	return lua.ToBits(st.CheckNumber(args, n))
}

func bitToHex(st *lua.State, args []lua.Value) []lua.Value {
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
