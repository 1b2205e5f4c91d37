package script

import (
	"fmt"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/holdfast-kv/holdfast/script/luac"
)

// at returns the chunk and the site that a function is executing. level is the
// number of calls between this function and the running one, which has level 0.
func (st *State) at(L *lua.LState, level int) (*luac.Chunk, *luac.Site) {
	c, n, _, ok := luac.ParsePosition(L.Where(level))
	if !ok {
		return nil, nil
	}
	return st.lookup(c, n)
}

func (st *State) lookup(c, n int) (*luac.Chunk, *luac.Site) {
	if c >= len(st.chunks) || n >= len(st.chunks[c].Sites) || c < 0 || n < 0 {
		return nil, nil
	}
	return st.chunks[c], &st.chunks[c].Sites[n]
}

// where returns the prefix of an error text: the position that a function has
// reached. level is the number of calls between this function and the running
// builtin, which has level 0.
func (st *State) where(level int) string {
	c, s := st.at(st.cur, level)
	if c == nil {
		return ""
	}
	return c.Name + ":" + strconv.Itoa(s.Line) + ": "
}

// innermost returns the position of the function that failed, as Redis' error
// handler sees it. That is the running function, or its caller if the running
// function is a builtin.
func (st *State) innermost(L *lua.LState) (source string, line int) {
	for level, last := 0, 1; level <= last; level++ {
		where := L.Where(level)
		if c, n, _, ok := luac.ParsePosition(where); ok {
			if c, s := st.lookup(c, n); c != nil {
				return c.Source, s.Line
			}
		}
		if strings.HasPrefix(where, yieldChunk) { // yield is a Lua function but counts as a builtin
			last++
		}
	}
	return "=[C]", -1
}

// line returns the current line of the script for an Abort, or 0 when it is
// unknown.
func (st *State) line() int {
	for level := range 5 {
		if c, s := st.at(st.cur, level); c != nil && c == st.chunks[0] {
			return s.Line
		}
	}
	return 0
}

// Errorf raises a text, prefixed with the position of the function that called
// the running builtin.
func (st *State) Errorf(format string, args ...any) {
	st.Raise(st.NewString(st.where(1) + fmt.Sprintf(format, args...)))
}

// plainErrorf raises a text without a position. C's Lua does so when the
// function that fails is not a Lua function.
func (st *State) plainErrorf(format string, args ...any) {
	st.Raise(st.NewString(fmt.Sprintf(format, args...)))
}

// ArgError raises an error about argument n (from 1) of the running builtin.
func (st *State) ArgError(n int, msg string) {
	name := "?"
	if _, s := st.at(st.cur, 1); s != nil && len(s.Ops) > 0 {
		if o := s.Ops[len(s.Ops)-1]; o != nil && o.Name != "" {
			name = o.Name
			if o.Kind == "method" {
				if n--; n == 0 {
					st.Errorf("calling '%s' on bad self (%s)", name, msg)
				}
			}
		}
	}
	st.Errorf("bad argument #%d to '%s' (%s)", n, name, msg)
}

func (st *State) argTypeError(args []Value, n int, want string) {
	got := "no value"
	if n <= len(args) {
		got = typeName(args[n-1])
	}
	st.ArgError(n, want+" expected, got "+got)
}

// typeErrorText returns the text for an operation op on a value whose type does
// not support it.
func typeErrorText(o *luac.Operand, op, typ string) string {
	if name := o.String(); name != "" {
		return fmt.Sprintf("attempt to %s %s (a %s value)", op, name, typ)
	}
	return fmt.Sprintf("attempt to %s a %s value", op, typ)
}

// opError raises a text for the operation that called the running builtin.
func (st *State) opError(text string) { st.Raise(st.NewString(st.where(1) + text)) }

// operand returns the name of operand i of the operation that called the
// running builtin.
func (st *State) operand(i int) *luac.Operand {
	if _, s := st.at(st.cur, 1); s != nil && i < len(s.Ops) {
		return s.Ops[i]
	}
	return nil
}

// translate turns an error of the interpreter into the corresponding error of
// Lua. It returns false for other texts.
func (st *State) translate(L *lua.LState, text string) (string, bool) {
	ci, si, msg, ok := luac.ParsePosition(text)
	if !ok {
		return "", false
	}
	c, s := st.lookup(ci, si)
	if c == nil {
		return "", false
	}
	return c.Name + ":" + strconv.Itoa(s.Line) + ": " + st.translateMessage(L, s, strings.TrimPrefix(msg, " ")), true
}

// calledType returns the type of the value that the script could not call,
// which gopher-lua does not report. For a field, it returns "nil" without a
// lookup, because a field that is not a function is nearly always nil.
func (st *State) calledType(L *lua.LState, s *luac.Site) string {
	if len(s.Ops) == 0 {
		return "nil"
	}
	o := s.Ops[len(s.Ops)-1]
	switch {
	case o == nil:
	case o.Type != "":
		return o.Type
	case o.Kind == "global":
		if st.isLibrary() {
			globals, _ := asTable(field(st.lib.meta, "__index"))
			return typeName(field(globals, o.Name))
		}
		return typeName(field(st.env, o.Name))
	case o.Kind == "local" && o.Reg > 0:
		if v := L.Get(o.Reg); v != nil {
			return typeName(v)
		}
	case o.Kind == "upvalue":
		return upvalueType(L, o.Name)
	}
	return "nil"
}

func upvalueType(L *lua.LState, name string) string {
	dbg, ok := L.GetStack(0)
	if !ok {
		return "nil"
	}
	f, err := L.GetInfo("f", dbg, Nil)
	fn, ok := f.(*lua.LFunction)
	if err != nil || !ok {
		return "nil"
	}
	for i := 1; i <= len(fn.Upvalues); i++ {
		if n, v := L.GetUpvalue(fn, i); n == name {
			return typeName(v)
		}
	}
	return "nil"
}

// translateMessage translates the error texts of gopher-lua v1.1.2.
func (st *State) translateMessage(L *lua.LState, s *luac.Site, msg string) string {
	op := func(i int) *luac.Operand {
		if i < len(s.Ops) {
			return s.Ops[i]
		}
		return nil
	}
	switch {
	case strings.HasPrefix(msg, "attempt to index a non-table object("):
		typ, _, _ := strings.Cut(strings.TrimPrefix(msg, "attempt to index a non-table object("), ")")
		return typeErrorText(op(0), "index", typ)
	case msg == "attempt to call a non-function object":
		return typeErrorText(op(len(s.Ops)-1), "call", st.calledType(L, s))
	case strings.HasPrefix(msg, "cannot perform "):
		_, types, _ := strings.Cut(msg, "operation between ")
		a, b, _ := strings.Cut(types, " and ")
		if a == "number" || a == "string" && b != "number" && b != "string" {
			return typeErrorText(op(1), "perform arithmetic on", b)
		}
		return typeErrorText(op(0), "perform arithmetic on", a)
	case strings.HasPrefix(msg, "attempt to compare "):
		a, b, _ := strings.Cut(strings.TrimPrefix(msg, "attempt to compare "), " with ")
		if a == b {
			return "attempt to compare two " + a + " values"
		}
	case msg == "registry overflow":
		return "stack overflow"
	case msg == "too many recursions in gettable":
		return "loop in gettable"
	case msg == "too many recursions in settable":
		return "loop in settable"
	}
	return msg
}
