package script

import (
	"bytes"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

var stringLib = []entry{
	{name: "byte", fn: strByte}, {name: "char", fn: strChar}, {name: "dump", fn: strDump},
	{name: "find", fn: strFind}, {name: "format", fn: strFormat}, {name: "gfind", fn: strGmatch},
	{name: "gmatch", fn: strGmatch},
	{name: "gsub", fn: strGsub}, {name: "len", fn: strLen}, {name: "lower", fn: strLower},
	{name: "match", fn: strMatch}, {name: "rep", fn: strRep}, {name: "reverse", fn: strReverse},
	{name: "sub", fn: strSub}, {name: "upper", fn: strUpper},
}

// charsPerStep is how many characters of a string a simple loop processes in
// one step.
const charsPerStep = 128

// posRelative converts a position that may count from the end into one that
// counts from the start.
func posRelative(pos, n int) int {
	if pos < 0 {
		pos += n + 1
	}
	return max(pos, 0)
}

func strLen(st *State, args []Value) []Value {
	return st.Ret(Int(len(st.CheckString(args, 1))))
}

func strSub(st *State, args []Value) []Value {
	s := st.CheckString(args, 1)
	from := max(posRelative(st.CheckInt(args, 2), len(s)), 1)
	to := min(posRelative(st.OptInt(args, 3, -1), len(s)), len(s))
	if from > to {
		return st.Ret(st.NewString(""))
	}
	return st.Ret(st.NewString(s[from-1 : to]))
}

func strReverse(st *State, args []Value) []Value {
	s := st.CheckString(args, 1)
	st.Alloc(len(s))
	st.Step(len(s) / charsPerStep)
	b := make([]byte, len(s))
	for i := range b {
		b[i] = s[len(s)-1-i]
	}
	return st.Ret(st.NewString(string(b)))
}

func (st *State) mapBytes(s string, f func(c byte) byte) []Value {
	st.Alloc(len(s))
	st.Step(len(s) / charsPerStep)
	b := []byte(s)
	for i, c := range b {
		b[i] = f(c)
	}
	return st.Ret(st.NewString(string(b)))
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

func strLower(st *State, args []Value) []Value { return st.mapBytes(st.CheckString(args, 1), lower) }

func strUpper(st *State, args []Value) []Value { return st.mapBytes(st.CheckString(args, 1), upper) }

func strRep(st *State, args []Value) []Value {
	s, n := st.CheckString(args, 1), st.CheckInt(args, 2)
	if n <= 0 || s == "" {
		return st.Ret(st.NewString(""))
	}
	if n > st.bytes/len(s) {
		st.Alloc(-1)
	}
	size := n * len(s)
	st.Step(size / charsPerStep)
	st.Alloc(size + stringBytes)
	st.grewTo(size)
	return st.Ret(Value(lua.LString(strings.Repeat(s, n))))
}

func strByte(st *State, args []Value) []Value {
	s := st.CheckString(args, 1)
	at := posRelative(st.OptInt(args, 2, 1), len(s))
	from := max(at, 1)
	to := min(posRelative(st.OptInt(args, 3, at), len(s)), len(s))
	if from > to {
		return nil
	}
	n := to - from + 1
	if n == 1 {
		return st.Ret(Int(int(s[from-1])))
	}
	if n >= maxResults {
		st.Errorf("string slice too long")
	}
	st.Step(n)
	st.Alloc(n * valueBytes)
	ret := make([]Value, n)
	for i := range ret {
		ret[i] = Int(int(s[from-1+i]))
	}
	return ret
}

func strChar(st *State, args []Value) []Value {
	b := make([]byte, len(args))
	st.Step(len(args))
	for i := range args {
		c := st.CheckInt(args, i+1)
		if c < 0 || c > 255 {
			st.ArgError(i+1, "invalid value")
		}
		b[i] = byte(c)
	}
	return st.Ret(st.NewString(string(b)))
}

// strDump raises an error: a compiled function is not text, and load would not
// accept it.
func strDump(st *State, args []Value) []Value {
	st.checkFunction(args, 1)
	st.Errorf("unable to dump given function")
	return nil
}

func strFind(st *State, args []Value) []Value { return st.strSearch(args, true) }

func strMatch(st *State, args []Value) []Value { return st.strSearch(args, false) }

func (st *State) strSearch(args []Value, find bool) []Value {
	s, pat := st.CheckString(args, 1), st.CheckString(args, 2)
	init := posRelative(st.OptInt(args, 3, 1), len(s)) - 1
	init = min(max(init, 0), len(s))
	if find && (truth(arg(args, 4)) || !strings.ContainsAny(pat, "^$*+?.([%-")) {
		st.Step((len(s)-init)>>5 + len(pat)>>5)
		i := strings.Index(s[init:], pat)
		if i < 0 {
			return st.Ret(Nil)
		}
		return st.ret2(Int(init+i+1), Int(init+i+len(pat)))
	}
	m := matcher{st: st, src: s, pat: pat}
	p := 0
	anchored := strings.HasPrefix(pat, "^")
	if anchored {
		p = 1
	}
	for at := init; at <= len(s); at++ {
		m.level = 0
		if end := m.match(at, p); end >= 0 {
			if find {
				return append([]Value{Int(at + 1), Int(end)}, m.captures(at, end, false)...)
			}
			return m.captures(at, end, true)
		}
		if anchored {
			break
		}
	}
	return st.Ret(Nil)
}

func strGmatch(st *State, args []Value) []Value {
	s, pat := st.CheckString(args, 1), st.CheckString(args, 2)
	at := 0
	return st.Ret(builtin(func(st *State, args []Value) []Value {
		m := matcher{st: st, src: s, pat: pat}
		for ; at <= len(s); at++ {
			m.level = 0
			if end := m.match(at, 0); end >= 0 {
				from := at
				at = end
				if end == from {
					at++ // after an empty match, continue one character later
				}
				return m.captures(from, end, true)
			}
		}
		return st.Ret(Nil)
	}))
}

func strGsub(st *State, args []Value) []Value {
	s, pat := st.CheckString(args, 1), st.CheckString(args, 2)
	repl := arg(args, 3)
	switch repl.(type) {
	case lua.LNumber, lua.LString, *Table, *lua.LFunction:
	default:
		st.ArgError(3, "string/function/table expected")
	}
	most := st.OptInt(args, 4, len(s)+1)
	p := 0
	anchored := strings.HasPrefix(pat, "^")
	if anchored {
		p = 1
	}
	m := matcher{st: st, src: s, pat: pat}
	out := NewBuffer(st)
	at, n := 0, 0
	for n < most {
		m.level = 0
		end := m.match(at, p)
		if end >= 0 {
			n++
			m.substitute(&out, repl, at, end)
		}
		switch {
		case end > at:
			at = end
		case at < len(s):
			out.AddByte(s[at])
			at++
		default:
			at++
		}
		if at > len(s) || anchored {
			break
		}
	}
	if at < len(s) {
		out.Add(s[at:])
	}
	result := st.NewString(out.String())
	return st.ret2(result, Int(n))
}

// substitute appends the replacement of a match.
func (m *matcher) substitute(out *Buffer, repl Value, from, to int) {
	st := m.st
	var v Value
	switch repl.(type) {
	case *lua.LFunction:
		v = first(st.Call(repl, m.captures(from, to, true)...))
	case *Table:
		v = st.index(repl, m.capture(0, from, to))
	default:
		text, _ := toString(repl)
		m.expand(out, text, from, to)
		return
	}
	if !truth(v) {
		out.Add(m.src[from:to])
		return
	}
	s, ok := toString(v)
	if !ok {
		st.Errorf("invalid replacement value (a %s)", typeName(v))
	}
	out.Add(s)
}

// expand appends a replacement text and expands %0 to %9 in it.
func (m *matcher) expand(out *Buffer, text string, from, to int) {
	for i := 0; i < len(text); i++ {
		if n := strings.IndexByte(text[i:], '%'); n < 0 {
			out.Add(text[i:])
			return
		} else {
			out.Add(text[i : i+n])
			i += n + 1
		}
		switch {
		case i == len(text):
			out.AddByte(0) // C's string ends with a zero byte here
		case !numeral.IsDigit(text[i]):
			out.AddByte(text[i])
		case text[i] == '0':
			out.Add(m.src[from:to])
		default:
			s, ok := toString(m.capture(int(text[i]-'1'), from, to))
			if ok {
				out.Add(s)
			}
		}
	}
}

// Buffer collects a string, and charges the run for the string while it grows.
type Buffer struct {
	st  *State
	buf bytes.Buffer
}

// NewBuffer returns an empty buffer.
func NewBuffer(st *State) Buffer { return Buffer{st: st} }

func (b *Buffer) room(n int) {
	if b.buf.Available() < n {
		size := max(2*b.buf.Cap(), b.buf.Len()+n, 64)
		b.st.Alloc(size)
		b.buf.Grow(size - b.buf.Len())
	}
}

// Add appends a string.
func (b *Buffer) Add(s string) {
	b.room(len(s))
	b.st.Step(len(s) / charsPerStep)
	b.buf.WriteString(s)
}

// AddByte appends a byte.
func (b *Buffer) AddByte(c byte) {
	b.room(1)
	b.buf.WriteByte(c)
}

func (b *Buffer) String() string { return b.buf.String() }
