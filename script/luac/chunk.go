package luac

import (
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Chunk is a compiled text with the data that errors report about it.
type Chunk struct {
	Proto  *lua.FunctionProto
	Name   string // name in error texts: user_script, [string "..."]
	Source string // name at the end of an error reply: @user_script
	Sites  []Site // indexed by the number that the compiled program has in place of a line number
}

// Site is one operation or line of the source. The rewriter gives gopher-lua
// the number of a site wherever gopher-lua expects a line number. Therefore an
// error of the interpreter identifies the operation that failed, and its
// message can name the operands as Lua does.
type Site struct {
	Line int
	Call bool       // a call written in the text, not one of a hidden function
	Ops  []*Operand // operands of an operation, or the called value of a call
}

// Operand is the name of a value in an error message, such as local 'x' or
// field 'y'. If the kind is empty, String returns "".
type Operand struct {
	Kind, Name string
	Type       string // type of a constant
	Reg        int    // register of a local variable, from 1; 0 when unknown
}

func (o *Operand) String() string {
	if o == nil || o.Kind == "" {
		return ""
	}
	return o.Kind + " '" + o.Name + "'"
}

// mark is the first byte of the SourceName of every function that this package
// compiles. gopher-lua puts the SourceName and the number of the site before an
// error text. The mark distinguishes that prefix from a text that the script
// has raised itself.
const mark = "\x1b"

// ParsePosition parses the position "<mark>chunk:site:" that gopher-lua puts
// before an error text. It returns the index of the chunk, the number of the
// site, and the rest of the text.
func ParsePosition(s string) (chunk, site int, rest string, ok bool) {
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
