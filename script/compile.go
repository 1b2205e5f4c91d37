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

	"github.com/holdfast-kv/holdfast/cluster/yield"
)

// MaxBytes is the maximum size of a script, and of a text that a script passes
// to load.
const MaxBytes = 256 << 10

// compileError is the error that Lua reports for a text that it cannot compile.
type compileError struct{ text string }

func (e *compileError) Error() string { return e.text }

// compileChunk compiles a text. index is the chunk's index in State.chunks. It
// takes about a millisecond for each KiB of a text that consists of short
// statements, and yields meanwhile, except in lua.Compile.
func compileChunk(src, source string, index int) (c *chunk, err error) {
	c = &chunk{name: chunkName(source), source: source}
	src = mendComments(src)
	pace := &yield.Pace{}
	tokens, err := scan(src, pace)
	if err != nil {
		return nil, &compileError{c.name + ":" + err.Error()}
	}
	name := mark + strconv.Itoa(index)
	stmts, err := parse.Parse(&pacedReader{src, pace}, name)
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
	w := &rewriter{chunk: c, tokens: tokens, plain: make(map[int]int), pace: pace}
	w.fn = &function{vararg: true, blocks: [][]string{nil, nil}, consts: make(map[string]struct{})}
	w.site(0) // reserves site 0, which does not stand for a line, so that no node gets it
	stmts = w.stmts(stmts)
	if c.proto, err = generate(stmts, name); err != nil {
		return nil, c.generateError(err)
	}
	compact(c.proto)
	return c, nil
}

// generate calls lua.Compile and recovers its panics, which come from limits
// that lua.Compile does not check.
func generate(stmts []ast.Stmt, name string) (p *lua.FunctionProto, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("function or expression too complex")
		}
	}()
	return lua.Compile(stmts, name)
}

// generateError returns an error with Lua's text for a limit of gopher-lua.
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

// compact frees the memory that gopher-lua has allocated in reserve, which is
// 12 KiB for each function.
func compact(p *lua.FunctionProto) {
	p.Code = append([]uint32(nil), p.Code...)
	p.DbgSourcePositions = append([]int(nil), p.DbgSourcePositions...)
	p.Constants = slices.Clip(p.Constants)
	p.DbgCalls = nil
	for _, f := range p.FunctionPrototypes {
		compact(f)
	}
}

// chunkName returns the name that messages use for a source.
func chunkName(source string) string {
	const most = 60 // includes the terminating zero byte of C
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
