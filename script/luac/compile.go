package luac

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

// Compile compiles the text src. source is the name of its source as Lua writes it,
// such as "@user_script". index is the number that ParsePosition returns for the
// chunk; it distinguishes the chunks of one run. The text of an error is the text
// that Lua reports.
//
// Compile takes about a millisecond for each KiB of a text that consists of short
// statements. Meanwhile, Compile lets other goroutines run (package yield), except
// during lua.Compile.
func Compile(src, source string, index int) (c *Chunk, err error) {
	c = &Chunk{Name: ChunkName(source), Source: source}
	src = fixComments(src)
	pace := &yield.Pace{}
	tokens, err := scan(src, pace)
	if err != nil {
		return nil, &compileError{c.Name + ":" + err.Error()}
	}
	name := mark + strconv.Itoa(index)
	stmts, err := parse.Parse(&pacedReader{src, pace}, name)
	if err != nil {
		return nil, &compileError{c.Name + ":" + tokens.parseError(err)}
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
	w.site(0) // site 0 stands for no line, so no node may get it
	stmts = w.stmts(stmts)
	if c.Proto, err = generate(stmts, name); err != nil {
		return nil, c.generateError(err)
	}
	compact(c.Proto)
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
func (c *Chunk) generateError(err error) error {
	line, text := 1, err.Error()
	var ce *lua.CompileError
	if errors.As(err, &ce) {
		text = ce.Message
		if ce.Line >= 0 && ce.Line < len(c.Sites) {
			line = max(c.Sites[ce.Line].Line, 1)
		}
	}
	if strings.Contains(text, "register overflow") {
		text = "function or expression too complex"
	}
	return &compileError{c.Name + ":" + strconv.Itoa(line) + ": " + text}
}

// compact frees the memory that gopher-lua has allocated but does not use, which
// is about 12 KiB for each function.
func compact(p *lua.FunctionProto) {
	p.Code = append([]uint32(nil), p.Code...)
	p.DbgSourcePositions = append([]int(nil), p.DbgSourcePositions...)
	p.Constants = slices.Clip(p.Constants)
	p.DbgCalls = nil
	for _, f := range p.FunctionPrototypes {
		compact(f)
	}
}

// ChunkName returns the name that error texts use for a source, as
// luaO_chunkid does in Lua.
func ChunkName(source string) string {
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
