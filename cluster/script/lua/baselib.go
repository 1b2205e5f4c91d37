package lua

import (
	"math"
	"strings"
)

var baseFuncs []Builtin

func init() { // not an initialiser: load refers to Compile and back
	baseFuncs = []Builtin{
		{name: "assert", fn: baseAssert}, {name: "collectgarbage", fn: baseCollectGarbage},
		{name: "error", fn: baseError}, {name: "gcinfo", fn: baseGCInfo},
		{name: "getmetatable", fn: baseGetMetatable}, {name: "loadstring", fn: baseLoadString},
		{name: "load", fn: baseLoad}, {name: "next", fn: baseNext}, {name: "pcall", fn: basePcall},
		{name: "rawequal", fn: baseRawEqual}, {name: "rawget", fn: baseRawGet}, {name: "rawset", fn: baseRawSet},
		{name: "select", fn: baseSelect}, {name: "setmetatable", fn: baseSetMetatable},
		{name: "tonumber", fn: baseToNumber}, {name: "tostring", fn: baseToString}, {name: "type", fn: baseType},
		{name: "unpack", fn: baseUnpack}, {name: "xpcall", fn: baseXpcall},
		{name: "ipairs", fn: baseIpairs}, {name: "pairs", fn: basePairs},
	}
}

// maxResults is how many values a function may return at once: Lua's C stack.
const maxResults = 8000

func baseAssert(st *State, args []Value) []Value {
	if !st.CheckAny(args, 1).Truth() {
		st.Errorf("%s", st.OptString(args, 2, "assertion failed!"))
	}
	return args
}

// baseCollectGarbage: the collector is Go's. Only what the run has created can
// be asked for, which is the same on every machine.
func baseCollectGarbage(st *State, args []Value) []Value {
	switch opt := st.OptString(args, 1, "collect"); opt {
	case "count":
		_, bytes := st.Used()
		return st.Ret(Number(float64(bytes) / 1024))
	case "collect", "stop", "restart", "setpause", "setstepmul":
		return st.Ret(Int(0))
	case "step":
		return st.Ret(True)
	default:
		st.ArgError(1, "invalid option '"+opt+"'")
		return nil
	}
}

func baseGCInfo(st *State, args []Value) []Value {
	_, bytes := st.Used()
	return st.Ret(Int(bytes >> 10))
}

func baseError(st *State, args []Value) []Value {
	level := st.OptInt(args, 2, 1)
	v := arg(args, 1)
	if s, ok := v.ToString(); ok && level > 0 {
		v = st.NewString(st.where(level) + s)
	}
	st.Raise(v)
	return nil
}

func baseGetMetatable(st *State, args []Value) []Value {
	m := st.metatable(st.CheckAny(args, 1))
	if m == nil {
		return st.Ret(Nil)
	}
	if v := m.getStr(metaNames["__metatable"]); v.ref != nil {
		return st.Ret(v)
	}
	return st.Ret(m.Value())
}

func baseSetMetatable(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	m, ok := arg(args, 2).ref.(*Table)
	if !ok && (len(args) < 2 || args[1].ref != nil) {
		st.ArgError(2, "nil or table expected")
	}
	if t.meta != nil && t.meta.getStr(metaNames["__metatable"]).ref != nil {
		st.Errorf("cannot change a protected metatable")
	}
	if t.frozen {
		st.opErrorf(nil, "Attempt to modify a readonly table")
	}
	t.meta = m
	return args[:1]
}

// baseLoadString compiles text. Binary chunks are not text.
func baseLoadString(st *State, args []Value) []Value {
	s := st.CheckString(args, 1)
	return st.load(s, st.OptString(args, 2, s))
}

func baseLoad(st *State, args []Value) []Value {
	reader := st.checkFunction(args, 1)
	source := st.OptString(args, 2, "=(load)")
	var b strings.Builder
	for {
		piece := st.call1(reader)
		s, ok := piece.ToString()
		if piece.ref == nil || ok && s == "" {
			return st.load(b.String(), source)
		}
		if !ok {
			st.Errorf("reader function must return a string")
		}
		st.Alloc(len(s))
		b.WriteString(s)
	}
}

// MaxChunk is the size of the largest text that load compiles, in bytes.
const MaxChunk = 64 << 10

// bytesPerChar is what a compiled text takes for each of its characters.
const bytesPerChar = 200

func (st *State) load(src, source string) []Value {
	switch {
	case strings.HasPrefix(src, "\x1b"):
		return []Value{Nil, st.NewString(chunkName(source) + ": bad header in precompiled chunk")}
	case len(src) > MaxChunk:
		return []Value{Nil, st.NewString(chunkName(source) + ": chunk is too long")}
	}
	st.Step(len(src))
	st.Alloc(len(src) * bytesPerChar)
	p, err := Compile(src, source)
	if err != nil {
		return []Value{Nil, st.NewString(err.Error())}
	}
	return st.Ret(Value{ref: &closure{proto: p, id: st.newID()}})
}

func baseNext(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	k, v, ok := t.Next(arg(args, 2))
	if !ok {
		st.opErrorf(nil, "invalid key to 'next'")
	}
	if k.ref == nil {
		return st.Ret(Nil)
	}
	st.two[0], st.two[1] = k, v
	return st.two[:]
}

var nextValue = NewBuiltin("next", baseNext)

func basePairs(st *State, args []Value) []Value {
	st.CheckTable(args, 1)
	return []Value{nextValue, args[0], Nil}
}

var ipairsNext = NewBuiltin("ipairs", func(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	i := st.CheckInt(args, 2) + 1
	v := t.GetInt(i)
	if v.ref == nil {
		return nil
	}
	st.two[0], st.two[1] = Int(i), v
	return st.two[:]
})

func baseIpairs(st *State, args []Value) []Value {
	st.CheckTable(args, 1)
	return []Value{ipairsNext, args[0], Int(0)}
}

// protectSteps is the price of a protected call: Go's panic and recover.
const protectSteps = 50

func basePcall(st *State, args []Value) []Value {
	ret, err := st.Protect(st.CheckAny(args, 1), args[1:])
	if err != nil {
		return []Value{False, err.Value}
	}
	return ret
}

// Protect is what pcall does: true and the results, or the error.
func (st *State) Protect(f Value, args []Value) ([]Value, *Error) {
	ret, err := st.protect(f, args, Nil)
	st.Step(protectSteps)
	if err != nil {
		return nil, err
	}
	st.Alloc((len(ret) + 1) * valueBytes)
	return append([]Value{True}, ret...), nil
}

func baseXpcall(st *State, args []Value) []Value {
	h := st.CheckAny(args, 2)
	ret, err := st.protect(args[0], nil, h)
	st.Step(protectSteps)
	if err != nil {
		return []Value{False, err.Value}
	}
	st.Alloc((len(ret) + 1) * valueBytes)
	return append([]Value{True}, ret...)
}

func baseRawEqual(st *State, args []Value) []Value {
	a, b := st.CheckAny(args, 1), st.CheckAny(args, 2)
	if s, ok := a.AsString(); ok {
		st.Step(len(s) >> 8)
	}
	return st.Ret(Bool(rawEqual(a, b)))
}

func baseRawGet(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	return st.Ret(t.Get(st.CheckAny(args, 2)))
}

func baseRawSet(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	k, v := st.CheckAny(args, 2), st.CheckAny(args, 3)
	st.RawSet(t, k, v)
	return args[:1]
}

func baseSelect(st *State, args []Value) []Value {
	n := len(args)
	if s, ok := arg(args, 1).AsString(); ok && strings.HasPrefix(s, "#") {
		return st.Ret(Int(n - 1))
	}
	i := st.CheckInt(args, 1)
	if i < 0 {
		i += n
	} else if i > n {
		i = n
	}
	if i < 1 {
		st.ArgError(1, "index out of range")
	}
	return args[i:]
}

func baseToNumber(st *State, args []Value) []Value {
	base := st.OptInt(args, 2, 10)
	if base == 10 {
		if f, ok := st.CheckAny(args, 1).ToNumber(); ok {
			return st.Ret(Number(f))
		}
		return st.Ret(Nil)
	}
	s := st.CheckString(args, 1)
	if base < 2 || base > 36 {
		st.ArgError(2, "base out of range")
	}
	if n, ok := parseBase(s, base); ok {
		return st.Ret(Number(n))
	}
	return st.Ret(Nil)
}

// parseBase is C's strtoul, as far as a double can tell.
func parseBase(s string, base int) (float64, bool) {
	s, _, _ = strings.Cut(s, "\x00")
	s = strings.ToLower(strings.Trim(s, spaces))
	neg := strings.HasPrefix(s, "-")
	if neg || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if base == 16 && len(s) > 2 && s[:2] == "0x" {
		s = s[2:]
	}
	if s == "" {
		return 0, false
	}
	var n uint64
	over := false
	for i := 0; i < len(s); i++ {
		d := 99
		switch c := s[i]; {
		case isDigit(c):
			d = int(c - '0')
		case c >= 'a' && c <= 'z':
			d = int(c-'a') + 10
		}
		if d >= base {
			return 0, false
		}
		if n > (math.MaxUint64-uint64(d))/uint64(base) {
			over = true
		}
		n = n*uint64(base) + uint64(d)
	}
	switch {
	case over:
		n = math.MaxUint64
	case neg:
		n = -n
	}
	return float64(n), true
}

func baseToString(st *State, args []Value) []Value {
	return st.Ret(st.ToStringMeta(st.CheckAny(args, 1)))
}

// ToStringMeta is tostring: __tostring, then the plain text.
func (st *State) ToStringMeta(v Value) Value {
	if h := st.metamethod(v, "__tostring"); h.ref != nil {
		return st.call1(h, v)
	}
	if _, ok := v.ref.(*String); ok {
		return v
	}
	st.Step(2)
	return st.NewString(Text(v))
}

var typeNames = func() map[string]Value {
	m := make(map[string]Value)
	for _, n := range []string{"nil", "number", "boolean", "string", "table", "function", "thread", "userdata"} {
		m[n] = Const(n)
	}
	return m
}()

func baseType(st *State, args []Value) []Value {
	return st.Ret(typeNames[st.CheckAny(args, 1).TypeName()])
}

func baseUnpack(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	from := st.OptInt(args, 2, 1)
	to := t.Len()
	if arg(args, 3).ref != nil {
		to = st.CheckInt(args, 3)
	}
	if from > to {
		return nil
	}
	n := to - from + 1
	if n <= 0 || n >= maxResults {
		st.Errorf("too many results to unpack")
	}
	st.Step(n)
	st.Alloc(n * valueBytes)
	ret := make([]Value, n)
	for i := range ret {
		ret[i] = t.GetInt(from + i)
	}
	return ret
}
