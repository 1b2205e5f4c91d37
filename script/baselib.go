package script

import (
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/holdfast-kv/holdfast/script/luac"
	"github.com/holdfast-kv/holdfast/script/numeral"
)

var baseLib []entry

func init() {
	nextValue, ipairsNext = builtin(baseNext), builtin(baseIpairsNext)
	baseLib = []entry{
		{"assert", baseAssert}, {"collectgarbage", baseCollectGarbage},
		{"error", baseError}, {"gcinfo", baseGCInfo},
		{"getmetatable", baseGetMetatable}, {"loadstring", baseLoadString},
		{"load", baseLoad}, {"next", baseNext}, {"pcall", pcall},
		{"rawequal", baseRawEqual}, {"rawget", baseRawGet}, {"rawset", baseRawSet},
		{"select", baseSelect}, {"setmetatable", baseSetMetatable},
		{"tonumber", baseToNumber}, {"tostring", baseToString}, {"type", baseType},
		{"unpack", baseUnpack}, {"xpcall", baseXpcall},
		{"ipairs", baseIpairs}, {"pairs", basePairs},
	}
}

func baseAssert(st *State, args []Value) []Value {
	if !truth(st.CheckAny(args, 1)) {
		st.Errorf("%s", st.OptString(args, 2, "assertion failed!"))
	}
	return args
}

// baseCollectGarbage implements collectgarbage. It collects nothing, because
// the garbage collector is Go's. A script can only ask how much memory the run
// has allocated, which is the same on every node.
func baseCollectGarbage(st *State, args []Value) []Value {
	switch opt := st.OptString(args, 1, "collect"); opt {
	case "count":
		bytes := st.used().Bytes
		return st.Ret(Number(32 + float64(bytes)/1024))
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
	bytes := st.used().Bytes
	return st.Ret(Int(32 + bytes>>10))
}

func baseError(st *State, args []Value) []Value {
	level := st.OptInt(args, 2, 1)
	v := arg(args, 1)
	if s, ok := toString(v); ok && level > 0 {
		v = st.NewString(st.where(level) + s)
	}
	st.Raise(v)
	return nil
}

func baseGetMetatable(st *State, args []Value) []Value {
	v := st.CheckAny(args, 1)
	m := st.metatable(v)
	switch m {
	case nil, frozenMeta:
		return st.Ret(Nil)
	case globalsMeta:
		return st.Ret(metaOfGlobals)
	}
	if p := field(m, "__metatable"); p != Nil {
		return st.Ret(p)
	}
	return st.Ret(m)
}

func baseSetMetatable(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	m, ok := asTable(arg(args, 2))
	if !ok && (len(args) < 2 || args[1] != Nil) {
		st.ArgError(2, "nil or table expected")
	}
	if readOnly(t) {
		st.plainErrorf("Attempt to modify a readonly table")
	}
	if st.metamethod(t, "__metatable") != Nil {
		st.Errorf("cannot change a protected metatable")
	}
	t.Metatable = Nil
	if ok {
		t.Metatable = m
	}
	return args[:1]
}

// baseLoadString implements loadstring. It refuses binary chunks.
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
		s, ok := toString(piece)
		if piece == Nil || ok && s == "" {
			return st.load(b.String(), source)
		}
		if !ok {
			st.Errorf("reader function must return a string")
		}
		st.Alloc(len(s))
		b.WriteString(s)
	}
}

// The cost of compiling one character of a text is at most this many bytes and
// steps.
const (
	bytesPerChar = 400
	stepsPerChar = 50
)

func (st *State) load(src, source string) []Value {
	switch {
	case strings.HasPrefix(src, "\x1b"):
		return []Value{Nil, st.NewString(luac.ChunkName(source) + ": bad header in precompiled chunk")}
	case len(src) > luac.MaxBytes:
		return []Value{Nil, st.NewString(luac.ChunkName(source) + ": chunk is too long")}
	}
	st.Step(len(src) * stepsPerChar)
	st.Alloc(len(src)*bytesPerChar + 16<<10)
	c, err := luac.Compile(src, source, len(st.chunks))
	if err != nil {
		return []Value{Nil, st.NewString(err.Error())}
	}
	st.look()
	st.chunks = append(st.chunks, c)
	return st.Ret(st.main.NewFunctionFromProto(c.Proto))
}

func baseNext(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	k, v := st.next(t, arg(args, 2))
	if k == Nil {
		return st.Ret(Nil)
	}
	return st.ret2(k, v)
}

var nextValue, ipairsNext *lua.LFunction

func basePairs(st *State, args []Value) []Value {
	st.CheckTable(args, 1)
	return []Value{nextValue, args[0], Nil}
}

func baseIpairsNext(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	i := st.CheckInt(args, 2) + 1
	v := getInt(t, i)
	if v == Nil {
		return nil
	}
	return st.ret2(Int(i), v)
}

func baseIpairs(st *State, args []Value) []Value {
	st.CheckTable(args, 1)
	return []Value{ipairsNext, args[0], Int(0)}
}

// protectSteps is the cost of a protected call in steps. It covers Go's panic
// and recover.
const protectSteps = 50

// Protect calls f for pcall and xpcall. It returns true and the results of f, or
// the error of f.
func (st *State) Protect(f Value, args []Value) ([]Value, *scriptError) {
	ret, err := st.protect(f, args)
	st.Step(protectSteps)
	if err != nil {
		return nil, err
	}
	st.Alloc((len(ret) + 1) * valueBytes)
	return append([]Value{True}, ret...), nil
}

func baseXpcall(st *State, args []Value) []Value {
	h := st.CheckAny(args, 2)
	ret, err := st.Protect(args[0], nil)
	if err == nil {
		return ret
	}
	v, err := st.protect(h, []Value{err.value})
	if err != nil {
		return []Value{False, st.NewString("error in error handling")}
	}
	return []Value{False, first(v)}
}

func baseRawEqual(st *State, args []Value) []Value {
	a, b := st.CheckAny(args, 1), st.CheckAny(args, 2)
	if s, ok := asString(a); ok {
		st.Step(len(s) >> 8)
	}
	return st.Ret(Bool(rawEqual(a, b)))
}

func baseRawGet(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	return st.Ret(t.RawGet(st.CheckAny(args, 2)))
}

func baseRawSet(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	k, v := st.CheckAny(args, 2), st.CheckAny(args, 3)
	st.RawSet(t, k, v)
	return args[:1]
}

func baseSelect(st *State, args []Value) []Value {
	n := len(args)
	if s, ok := asString(arg(args, 1)); ok && strings.HasPrefix(s, "#") {
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
		if f, ok := toNumber(st.CheckAny(args, 1)); ok {
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

// parseBase parses s as Lua's tonumber does with C's strtoul, within the
// precision of a double. It reports whether s is a number in the base, apart from
// spaces around it.
func parseBase(s string, base int) (float64, bool) {
	s, _, _ = strings.Cut(s, "\x00")
	s = strings.ToLower(strings.Trim(s, numeral.Spaces))
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
		case numeral.IsDigit(c):
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

// ToStringMeta implements tostring: it calls __tostring if the value has that
// metamethod, and otherwise returns the plain text.
func (st *State) ToStringMeta(v Value) Value {
	if h := st.metamethod(v, "__tostring"); h != Nil {
		return st.call1(h, v)
	}
	if _, ok := v.(lua.LString); ok {
		return v
	}
	st.Step(2)
	return st.NewString(st.text(v))
}

var typeNames = func() map[string]Value {
	m := make(map[string]Value)
	for _, n := range []string{"nil", "number", "boolean", "string", "table", "function", "thread", "userdata"} {
		m[n] = Const(n)
	}
	return m
}()

func baseType(st *State, args []Value) []Value {
	return st.Ret(typeNames[typeName(st.CheckAny(args, 1))])
}

func baseUnpack(st *State, args []Value) []Value {
	t := st.CheckTable(args, 1)
	from := st.OptInt(args, 2, 1)
	to := st.length(t)
	if arg(args, 3) != Nil {
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
		ret[i] = getInt(t, from+i)
	}
	return ret
}
