package script

import (
	"fmt"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// chunk is a compiled text with the data that errors report about it.
type chunk struct {
	proto  *lua.FunctionProto
	name   string // name in error texts: user_script, [string "..."]
	source string // name at the end of an error reply: @user_script
	sites  []site
}

// site is one operation or line of the source. The rewriter gives gopher-lua
// the number of a site wherever gopher-lua expects a line number. Therefore an
// error of the interpreter identifies the operation that failed, and its
// message can name the operands as Lua does.
type site struct {
	line int
	call bool       // a call written in the text, not one of a hidden function
	ops  []*operand // operands of an operation; the called value of a call
}

// operand is the name of a value in an error message, such as local 'x' or
// field 'y'. An operand whose kind is empty has no name.
type operand struct {
	kind, name string
	typ        string // type of a constant
	reg        int    // register of a local variable, from 1; 0 when unknown
}

func (o *operand) String() string {
	if o == nil || o.kind == "" {
		return ""
	}
	return o.kind + " '" + o.name + "'"
}

// mark is the first byte of the SourceName of every function that this package
// compiles. A script's own error text does not begin with it by chance.
const mark = "\x1b"

// parsePosition parses "<mark>chunk:site:" at the start of a text.
func parsePosition(s string) (chunk, site int, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, mark)
	if !ok {
		return 0, 0, "", false
	}
	c, s, ok1 := strings.Cut(s, ":")
	n, rest, ok2 := strings.Cut(s, ":")
	chunk, err1 := strconv.Atoi(c)
	site, err2 := strconv.Atoi(n)
	return chunk, site, rest, ok1 && ok2 && err1 == nil && err2 == nil
}

// at returns the current chunk and site of the function that is level calls
// above the running one.
func (st *State) at(L *lua.LState, level int) (*chunk, *site) {
	c, n, _, ok := parsePosition(L.Where(level))
	if !ok {
		return nil, nil
	}
	return st.lookup(c, n)
}

func (st *State) lookup(c, n int) (*chunk, *site) {
	if c >= len(st.chunks) || n >= len(st.chunks[c].sites) || c < 0 || n < 0 {
		return nil, nil
	}
	return st.chunks[c], &st.chunks[c].sites[n]
}

// where returns the prefix of an error text: the position of the function that
// is level calls above the running builtin.
func (st *State) where(level int) string {
	c, s := st.at(st.cur, level)
	if c == nil {
		return ""
	}
	return c.name + ":" + strconv.Itoa(s.line) + ": "
}

// innermost returns the position of the function that failed, as Redis' error
// handler sees it. That is the running function, or its caller if the running
// function is a builtin.
func (st *State) innermost(L *lua.LState) (source string, line int) {
	for level, last := 0, 1; level <= last; level++ {
		where := L.Where(level)
		if c, n, _, ok := parsePosition(where); ok {
			if c, s := st.lookup(c, n); c != nil {
				return c.source, s.line
			}
		}
		if strings.HasPrefix(where, yieldChunk) { // yield stands for a builtin
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
			return s.line
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
	if _, s := st.at(st.cur, 1); s != nil && len(s.ops) > 0 {
		if o := s.ops[len(s.ops)-1]; o != nil && o.name != "" {
			name = o.name
			if o.kind == "method" {
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
func typeErrorText(o *operand, op, typ string) string {
	if name := o.String(); name != "" {
		return fmt.Sprintf("attempt to %s %s (a %s value)", op, name, typ)
	}
	return fmt.Sprintf("attempt to %s a %s value", op, typ)
}

// opError raises a text for the operation that called the running builtin.
func (st *State) opError(text string) { st.Raise(st.NewString(st.where(1) + text)) }

// operand returns the name of operand i of the operation that called the
// running builtin.
func (st *State) operand(i int) *operand {
	if _, s := st.at(st.cur, 1); s != nil && i < len(s.ops) {
		return s.ops[i]
	}
	return nil
}

// translate turns an error of the interpreter into the corresponding error of
// Lua. It returns false for other texts.
func (st *State) translate(L *lua.LState, text string) (string, bool) {
	ci, si, msg, ok := parsePosition(text)
	if !ok {
		return "", false
	}
	c, s := st.lookup(ci, si)
	if c == nil {
		return "", false
	}
	return c.name + ":" + strconv.Itoa(s.line) + ": " + st.translateMessage(L, s, strings.TrimPrefix(msg, " ")), true
}

// calledType returns the type of the value that the script could not call,
// which gopher-lua does not report. A field or a global that is not a function
// is nearly always nil.
func (st *State) calledType(L *lua.LState, s *site) string {
	if len(s.ops) == 0 {
		return "nil"
	}
	o := s.ops[len(s.ops)-1]
	switch {
	case o == nil:
	case o.typ != "":
		return o.typ
	case o.kind == "global":
		if st.isLibrary() {
			globals, _ := asTable(field(st.lib.meta, "__index"))
			return typeName(field(globals, o.name))
		}
		return typeName(field(st.env, o.name))
	case o.kind == "local" && o.reg > 0:
		if v := L.Get(o.reg); v != nil {
			return typeName(v)
		}
	case o.kind == "upvalue":
		return upvalueType(L, o.name)
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
func (st *State) translateMessage(L *lua.LState, s *site, msg string) string {
	op := func(i int) *operand {
		if i < len(s.ops) {
			return s.ops[i]
		}
		return nil
	}
	switch {
	case strings.HasPrefix(msg, "attempt to index a non-table object("):
		typ, _, _ := strings.Cut(strings.TrimPrefix(msg, "attempt to index a non-table object("), ")")
		return typeErrorText(op(0), "index", typ)
	case msg == "attempt to call a non-function object":
		return typeErrorText(op(len(s.ops)-1), "call", st.calledType(L, s))
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
