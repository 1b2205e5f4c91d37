package script

import (
	"encoding/binary"
	"math"
)

// packNesting is how many levels of nested tables pack encodes. pack encodes
// the tables below these levels as nil.
const packNesting = 16

// unpackNesting is how many levels of nesting unpack decodes. In the C library,
// only the size of the C stack limits the nesting.
const unpackNesting = 1000

// fillMsgpack fills the table of the library lua-cmsgpack.
func fillMsgpack() {
	t := msgpackTable
	t.RawSetString("pack", builtin(msgpackPack))
	t.RawSetString("unpack", builtin(func(st *State, args []Value) []Value {
		return msgpackUnpack(st, args, 0, 0)
	}))
	t.RawSetString("unpack_one", builtin(func(st *State, args []Value) []Value {
		return msgpackUnpack(st, args, 1, st.OptInt(args, 2, 0))
	}))
	t.RawSetString("unpack_limit", builtin(func(st *State, args []Value) []Value {
		limit := st.CheckInt(args, 2)
		return msgpackUnpack(st, args, limit, st.OptInt(args, 3, 0))
	}))
	t.RawSetString("_NAME", Const("cmsgpack"))
	t.RawSetString("_VERSION", Const("lua-cmsgpack 0.4.0"))
	t.RawSetString("_COPYRIGHT", Const("Copyright (C) 2012, Salvatore Sanfilippo"))
	t.RawSetString("_DESCRIPTION", Const("MessagePack C implementation for Lua"))
	freeze(t)
}

type packer struct {
	st  *State
	out Buffer
}

func msgpackPack(st *State, args []Value) []Value {
	if len(args) == 0 {
		st.ArgError(0, "MessagePack pack needs input.")
	}
	p := &packer{st, NewBuffer(st)}
	for _, v := range args {
		p.value(v, 0)
	}
	return st.Ret(st.NewString(p.out.String()))
}

func (p *packer) value(v Value, depth int) {
	p.st.Step(1)
	if s, ok := asString(v); ok {
		p.head(len(s), 0xa0, 31, 0xd9, 0xda, 0xdb)
		p.out.Add(s)
		return
	}
	if f, ok := asNumber(v); ok {
		p.number(f)
		return
	}
	if b, ok := asBool(v); ok {
		if b {
			p.out.AddByte(0xc3)
		} else {
			p.out.AddByte(0xc2)
		}
		return
	}
	if t, ok := asTable(v); ok && depth < packNesting {
		p.table(t, depth+1)
		return
	}
	p.out.AddByte(0xc0)
}

// head writes the type and the length n of a value. If n <= most, one byte
// combines the type fix and n. Otherwise, n follows the type t8, t16 or t32 in 1,
// 2 or 4 bytes. If t8 is 0, the format has no 1-byte length.
func (p *packer) head(n int, fix byte, most int, t8, t16, t32 byte) {
	switch {
	case n <= most:
		p.out.AddByte(fix | byte(n))
	case n <= 0xff && t8 != 0:
		p.out.AddByte(t8)
		p.out.AddByte(byte(n))
	case n <= 0xffff:
		p.big(t16, uint64(n), 2)
	default:
		p.big(t32, uint64(n), 4)
	}
}

// big writes the type typ and the number n in size bytes, the most significant byte
// first.
func (p *packer) big(typ byte, n uint64, size int) {
	b := binary.BigEndian.AppendUint64([]byte{typ}, n<<(64-8*size))
	p.out.Add(string(b[:1+size]))
}

func (p *packer) number(f float64) {
	if f != math.Trunc(f) || f < -(1<<63) || f >= 1<<63 {
		if g := float32(f); float64(g) == f {
			p.big(0xca, uint64(math.Float32bits(g)), 4)
		} else {
			p.big(0xcb, math.Float64bits(f), 8)
		}
		return
	}
	n := int64(f)
	switch {
	case n >= 0 && n <= 0x7f, n < 0 && n >= -32:
		p.out.AddByte(byte(n))
	case n >= 0 && n <= 0xff:
		p.big(0xcc, uint64(n), 1)
	case n >= 0 && n <= 0xffff:
		p.big(0xcd, uint64(n), 2)
	case n >= 0 && n <= 0xffffffff:
		p.big(0xce, uint64(n), 4)
	case n >= 0:
		p.big(0xcf, uint64(n), 8)
	case n >= math.MinInt8:
		p.big(0xd0, uint64(n), 1)
	case n >= math.MinInt16:
		p.big(0xd1, uint64(n), 2)
	case n >= math.MinInt32:
		p.big(0xd2, uint64(n), 4)
	default:
		p.big(0xd3, uint64(n), 8)
	}
}

// table writes t as a list when its keys are 1..n, and otherwise as a map.
func (p *packer) table(t *Table, depth int) {
	count, most := 0, 0.0
	list := true
	for k := Nil; ; count++ {
		if k, _ = p.st.next(t, k); k == Nil {
			break
		}
		p.st.Step(1)
		f, ok := asNumber(k)
		if !ok || f <= 0 || f != math.Floor(f) {
			list = false
		}
		most = max(most, f)
	}
	if list && float64(count) == most {
		p.head(count, 0x90, 15, 0, 0xdc, 0xdd)
		for i := 1; i <= count; i++ {
			p.value(getInt(t, i), depth)
		}
		return
	}
	p.head(count, 0x80, 15, 0, 0xde, 0xdf)
	for k := Nil; ; {
		var v Value
		if k, v = p.st.next(t, k); k == Nil {
			return
		}
		p.value(k, depth)
		p.value(v, depth)
	}
}

type unpacker struct {
	st  *State
	src string
	pos int
}

func msgpackUnpack(st *State, args []Value, limit, offset int) []Value {
	u := &unpacker{st: st, src: st.CheckString(args, 1)}
	// The text contains the length in place of the limit, as the text of
	// lua-cmsgpack does by mistake.
	if offset < 0 || limit < 0 {
		st.Errorf("Invalid request to unpack with offset of %d and limit of %d.", offset, len(u.src))
	}
	if offset > len(u.src) {
		st.Errorf("Start offset %d greater than input length %d.", offset, len(u.src))
	}
	u.pos = offset
	all := limit == 0 && offset == 0
	var out []Value
	if !all {
		out = append(out, Nil)
	}
	for n := 0; u.pos < len(u.src) && (all || n < limit); n++ {
		st.Alloc(48)
		out = append(out, u.value(0))
	}
	if !all {
		out[0] = Int(u.pos)
		if u.pos == len(u.src) {
			out[0] = Int(-1)
		}
	}
	return out
}

// take returns the next n bytes.
func (u *unpacker) take(n int) string {
	if n > len(u.src)-u.pos {
		u.st.Errorf("Missing bytes in input.")
	}
	s := u.src[u.pos : u.pos+n]
	u.pos += n
	return s
}

func (u *unpacker) uint(size int) uint64 {
	var n uint64
	for _, c := range []byte(u.take(size)) {
		n = n<<8 | uint64(c)
	}
	return n
}

func (u *unpacker) value(depth int) Value {
	u.st.Step(1)
	if depth > unpackNesting {
		u.st.Errorf("Bad data format in input.")
	}
	switch c := u.take(1)[0]; {
	case c <= 0x7f:
		return Int(int(c))
	case c >= 0xe0:
		return Int(int(int8(c)))
	case c <= 0x8f:
		return u.dict(int(c&15), depth)
	case c <= 0x9f:
		return u.list(int(c&15), depth)
	case c <= 0xbf:
		return u.text(int(c & 31))
	case c == 0xc0:
		return Nil
	case c == 0xc2:
		return False
	case c == 0xc3:
		return True
	case c == 0xca:
		return Number(float64(math.Float32frombits(uint32(u.uint(4)))))
	case c == 0xcb:
		return Number(math.Float64frombits(u.uint(8)))
	case c == 0xcf: // signed, as in lua-cmsgpack
		return Number(float64(int64(u.uint(8))))
	case c >= 0xcc && c <= 0xce:
		return Number(float64(u.uint(1 << (c - 0xcc))))
	case c >= 0xd0 && c <= 0xd3:
		size := 1 << (c - 0xd0)
		shift := 64 - 8*size
		return Number(float64(int64(u.uint(size)<<shift) >> shift))
	case c >= 0xd9 && c <= 0xdb:
		return u.text(int(u.uint(1 << (c - 0xd9))))
	case c == 0xdc || c == 0xdd:
		return u.list(int(u.uint(2<<(c-0xdc))), depth)
	case c == 0xde || c == 0xdf:
		return u.dict(int(u.uint(2<<(c-0xde))), depth)
	}
	u.st.Errorf("Bad data format in input.")
	return Nil
}

func (u *unpacker) text(n int) Value { return u.st.NewString(u.take(n)) }

func (u *unpacker) list(n, depth int) Value {
	u.st.Deepen(1)
	defer u.st.Deepen(-1)
	t := u.st.NewTable(0, 0)
	for i := 1; i <= n; i++ {
		u.st.setInt(t, i, u.value(depth+1))
	}
	return t
}

func (u *unpacker) dict(n, depth int) Value {
	u.st.Deepen(1)
	defer u.st.Deepen(-1)
	t := u.st.NewTable(0, 0)
	for range n {
		k := u.value(depth + 1)
		u.st.RawSet(t, k, u.value(depth+1))
	}
	return t
}
