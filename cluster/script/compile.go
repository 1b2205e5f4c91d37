package script

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// MaxBytes is the size of the longest script, and of the longest text that load
// takes inside of one.
const MaxBytes = 256 << 10

// compileError is what Lua says about a text that it cannot compile.
type compileError struct{ text string }

func (e *compileError) Error() string { return e.text }

// compileChunk compiles a text. index is its place in State.chunks.
func compileChunk(src, source string, index int) (c *chunk, err error) {
	c = &chunk{name: chunkName(source), source: source}
	src = mendComments(src)
	tokens, err := scan(src)
	if err != nil {
		return nil, &compileError{c.name + ":" + err.Error()}
	}
	name := mark + strconv.Itoa(index)
	stmts, err := parse.Parse(strings.NewReader(src), name)
	if err != nil {
		return nil, &compileError{c.name + ":" + tokens.complain(err)}
	}
	defer func() {
		if r := recover(); r != nil {
			ce, ok := r.(*compileError)
			if !ok {
				panic(r)
			}
			c, err = nil, ce
		}
	}()
	w := &rewriter{chunk: c, tokens: tokens, plain: make(map[int]int)}
	w.fn = &function{vararg: true, blocks: [][]string{nil, nil}, consts: make(map[string]struct{})}
	w.site(0) // so that no node has site 0, which is no line
	stmts = w.stmts(stmts)
	if c.proto, err = generate(stmts, name); err != nil {
		return nil, c.generateError(err)
	}
	compact(c.proto)
	return c, nil
}

// generate is lua.Compile with its panics, which come from limits that it does
// not check.
func generate(stmts []ast.Stmt, name string) (p *lua.FunctionProto, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("function or expression too complex")
		}
	}()
	return lua.Compile(stmts, name)
}

// generateError words the limits of gopher-lua as Lua words its own.
func (c *chunk) generateError(err error) error {
	line, text := 1, err.Error()
	var ce *lua.CompileError
	if errors.As(err, &ce) {
		text = ce.Message
		if ce.Line >= 0 && ce.Line < len(c.sites) {
			line = max(c.sites[ce.Line].line, 1)
		}
	}
	if strings.Contains(text, "register overflow") {
		text = "function or expression too complex"
	}
	return &compileError{c.name + ":" + strconv.Itoa(line) + ": " + text}
}

// compact gives back what gopher-lua has allocated in reserve: 12 KiB a function.
func compact(p *lua.FunctionProto) {
	p.Code = append([]uint32(nil), p.Code...)
	p.DbgSourcePositions = append([]int(nil), p.DbgSourcePositions...)
	p.Constants = slices.Clip(p.Constants)
	p.DbgCalls = nil
	for _, f := range p.FunctionPrototypes {
		compact(f)
	}
}

// chunkName is how messages call a source.
func chunkName(source string) string {
	const most = 60 // including the terminator that C needs
	if source == "" {
		return `[string ""]`
	}
	switch source[0] {
	case '=':
		return source[1:min(len(source), most)]
	case '@':
		name := source[1:]
		if room := most - len("...") - 5; len(name) > room {
			name = "..." + name[len(name)-room:]
		}
		return name
	}
	line, _, cut := strings.Cut(source, "\n")
	if i := strings.IndexByte(line, '\r'); i >= 0 {
		line, cut = line[:i], true
	}
	if room := most - len(`[string "..."] `) - 2; len(line) > room {
		line, cut = line[:room], true
	}
	if cut {
		line += "..."
	}
	return `[string "` + line + `"]`
}
