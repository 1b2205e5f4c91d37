package luac

import (
	"fmt"
	"strconv"

	"github.com/yuin/gopher-lua/ast"

	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/script/numeral"
)

// rewriter rewrites the syntax tree of a text. gopher-lua compiles the result
// to a program that stays within a budget and behaves as in Lua 5.1, apart from
// the exceptions that package script documents:
//
//   - Operations that can allocate any amount of memory become calls of hidden
//     functions, which charge for the memory (hidden.go).
//   - Operations that gopher-lua gets wrong also become such calls, for example
//     numeric for with strings, # with metatables, %, and constructors whose
//     list ends in a call.
//   - Every node gets the number of a site instead of its line, so that errors
//     can name the operation that failed (chunk.go).
//   - A text that Lua 5.1 refuses is refused with Lua's error text.
type rewriter struct {
	chunk     *Chunk
	tokens    *tokenList
	fn        *function
	plain     map[int]int // sites without operands, by line
	localStmt int         // number of local statements seen so far
	level     int         // depth of nesting, as Lua counts it
	chain     int         // length of the current chain of left parts: see the method left
	pace      *yield.Pace
	nodes     int // number of nodes seen so far
}

// function is the state of one function while the rewriter rewrites it.
type function struct {
	parent *function
	blocks [][]string // names of local variables, by block
	vararg bool
	dots   bool // the body uses the expression ...
	arg    bool // the body uses the variable arg
	loops  int
	consts map[string]struct{}
	work   int // work that gopher-lua will do to look up constants: see the method constant
}

const (
	maxLevel = 200 // LUAI_MAXCCALLS
	maxChain = 1000
	// maxItems is the maximum length of the list in a constructor: gopher-lua
	// miscompiles longer ones.
	maxItems = 25000
	// itemsPerFlush is how many elements of a list gopher-lua writes at a time
	// (FieldsPerFlush).
	itemsPerFlush = 50
	// nodesPerCheck is the number of nodes between two checks of the clock.
	// Rewriting that many nodes takes about 30 microseconds.
	nodesPerCheck = 64
	// maxConstantWork is the maximum of function.work. gopher-lua needs about
	// 50 ms for that much work.
	maxConstantWork = 10_000_000
)

// fail ends the compilation with a panic, which Compile recovers.
func (w *rewriter) fail(line int, format string, args ...any) {
	panic(&compileError{fmt.Sprintf("%s:%d: %s", w.chunk.Name, line, fmt.Sprintf(format, args...))})
}

func (w *rewriter) site(line int, ops ...*Operand) int {
	if len(ops) == 0 {
		if id, ok := w.plain[line]; ok {
			return id
		}
		w.plain[line] = len(w.chunk.Sites)
	}
	w.chunk.Sites = append(w.chunk.Sites, Site{Line: line, Ops: ops})
	return len(w.chunk.Sites) - 1
}

// position replaces the lines of a node with the numbers of their sites.
func (w *rewriter) position(n ast.PositionHolder, ops ...*Operand) {
	n.SetLine(w.site(n.Line(), ops...))
	if last := n.LastLine(); last > 0 {
		n.SetLastLine(w.site(last))
	}
}

// nest enters a statement or an expression. After every nodesPerCheck nodes, it
// lets other goroutines run if enough time has passed.
func (w *rewriter) nest(line int) {
	if w.nodes++; w.nodes%nodesPerCheck == 0 {
		w.pace.Check()
	}
	if w.level++; w.level > maxLevel {
		w.fail(line, "chunk has too many syntax levels")
	}
}

// constant counts the work that gopher-lua does for a constant: gopher-lua
// searches all constants of the function.
func (w *rewriter) constant(line int, c string) {
	fn := w.fn
	if _, ok := fn.consts[c]; !ok {
		fn.consts[c] = struct{}{}
	}
	if fn.work += len(fn.consts); fn.work > maxConstantWork {
		w.fail(line, "constant table overflow")
	}
}

// declare adds local variables to the innermost block.
func (w *rewriter) declare(names ...string) {
	b := &w.fn.blocks[len(w.fn.blocks)-1]
	*b = append(*b, names...)
}

// resolve returns the kind of the variable that a name refers to: local,
// upvalue or global.
func (w *rewriter) resolve(name string) string {
	for fn := w.fn; fn != nil; fn = fn.parent {
		for i := len(fn.blocks) - 1; i >= 0; i-- {
			for _, n := range fn.blocks[i] {
				if n == name {
					if name == "arg" && i == 0 {
						fn.arg = true
					}
					if fn == w.fn {
						return "local"
					}
					return "upvalue"
				}
			}
		}
	}
	return "global"
}

// register returns the register in which gopher-lua keeps a local variable,
// from 1. The registers follow the order in which the variables are declared.
// register returns 0 when the register is unknown.
func (fn *function) register(name string) int {
	if fn.arg {
		return 0 // the register of the table arg may be before or after that of the variable
	}
	reg, found := 0, 0
	for _, names := range fn.blocks[1:] {
		for _, n := range names {
			if reg++; n == name {
				found = reg
			}
		}
	}
	return found
}

// describe returns the name that an error uses for the value of an expression.
func (w *rewriter) describe(e ast.Expr) *Operand {
	switch e := e.(type) {
	case *ast.IdentExpr:
		o := &Operand{Kind: w.resolve(e.Value), Name: e.Value}
		if o.Kind == "local" {
			o.Reg = w.fn.register(e.Value)
		}
		return o
	case *ast.AttrGetExpr:
		if key, ok := e.Key.(*ast.StringExpr); ok {
			return &Operand{Kind: "field", Name: key.Value}
		}
		return &Operand{Kind: "field", Name: "?"}
	case *ast.NumberExpr:
		return &Operand{Type: "number"}
	case *ast.StringExpr:
		return &Operand{Type: "string"}
	case *ast.TableExpr:
		return &Operand{Type: "table"}
	case *ast.TrueExpr, *ast.FalseExpr:
		return &Operand{Type: "boolean"}
	}
	return nil
}

// call returns the call of a hidden function.
func (w *rewriter) call(name string, site int, args ...ast.Expr) *ast.FuncCallExpr {
	f := &ast.IdentExpr{Value: name}
	f.SetLine(site)
	c := &ast.FuncCallExpr{Func: f, Args: args, AdjustRet: true}
	c.SetLine(site)
	return c
}

// single limits a call, or the expression "...", to one value.
func single(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
	return e
}

func isMulti(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		return !e.AdjustRet
	case *ast.Comma3Expr:
		return !e.AdjustRet
	}
	return false
}

func (w *rewriter) exprs(list []ast.Expr) []ast.Expr {
	for i, e := range list {
		list[i] = w.expr(e)
	}
	return list
}

// expr rewrites an expression.
func (w *rewriter) expr(e ast.Expr) ast.Expr {
	line := e.Line()
	w.nest(line)
	defer func() { w.level-- }()
	switch e := e.(type) {
	case *ast.NumberExpr:
		f, ok := numeral.Parse(e.Value)
		if !ok {
			w.fail(line, "malformed number near '%s'", e.Value)
		}
		e.Value = strconv.FormatFloat(f, 'g', 17, 64)
		w.constant(line, e.Value)
		w.position(e)
	case *ast.StringExpr:
		w.constant(line, "s"+e.Value)
		w.position(e)
	case *ast.IdentExpr:
		if w.resolve(e.Value) == "global" {
			w.constant(line, "s"+e.Value)
		}
		w.position(e)
	case *ast.Comma3Expr:
		if !w.fn.vararg {
			w.fail(line, "cannot use '...' outside a vararg function near '...'")
		}
		w.fn.dots = true
		w.position(e)
	case *ast.AttrGetExpr:
		o := w.describe(e.Object)
		e.Object, e.Key = w.left(e.Object), w.expr(e.Key)
		w.position(e, o)
	case *ast.TableExpr:
		return w.table(e)
	case *ast.FuncCallExpr:
		w.funcCall(e)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = w.left(e.Lhs), w.expr(e.Rhs)
		w.position(e)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = w.left(e.Lhs), w.expr(e.Rhs)
		w.position(e)
	case *ast.StringConcatOpExpr:
		return w.concat(e)
	case *ast.ArithmeticOpExpr:
		a, b := w.describe(e.Lhs), w.describe(e.Rhs)
		e.Lhs, e.Rhs = w.left(e.Lhs), w.expr(e.Rhs)
		if e.Operator == "%" {
			return w.call(HiddenModulo, w.site(line, a, b), single(e.Lhs), single(e.Rhs))
		}
		w.position(e, a, b)
	case *ast.UnaryMinusOpExpr:
		o := w.describe(e.Expr)
		e.Expr = w.expr(e.Expr)
		if isNumeral(e.Expr) {
			w.position(e)
			return e
		}
		return w.call(HiddenMinus, w.site(line, o), single(e.Expr))
	case *ast.UnaryNotOpExpr:
		e.Expr = w.expr(e.Expr)
		w.position(e)
	case *ast.UnaryLenOpExpr:
		o := w.describe(e.Expr)
		return w.call(HiddenLength, w.site(line, o), single(w.expr(e.Expr)))
	case *ast.FunctionExpr:
		w.function(e)
		return w.call(HiddenFunction, w.site(line), e)
	default:
		w.position(e)
	}
	return e
}

// left rewrites the left part of an expression: the left operand of an operator,
// the indexed object, or the called value. Lua does not count a chain of left parts
// as nesting. But the functions that walk over the tree call themselves for each
// part of the chain, so the length of the chain has its own limit.
func (w *rewriter) left(e ast.Expr) ast.Expr {
	if w.chain++; w.chain > maxChain {
		w.fail(e.Line(), "function or expression too complex")
	}
	w.level--
	e = w.expr(e)
	w.level++
	w.chain--
	return e
}

// isNumeral reports whether gopher-lua computes the value of an expression at
// compile time.
func isNumeral(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.NumberExpr:
		return true
	case *ast.UnaryMinusOpExpr:
		return isNumeral(e.Expr)
	case *ast.ArithmeticOpExpr:
		return isNumeral(e.Lhs) && isNumeral(e.Rhs)
	}
	return false
}

func (w *rewriter) funcCall(e *ast.FuncCallExpr) {
	ops := make([]*Operand, 0, 2)
	if e.Func != nil {
		o := w.describe(e.Func)
		if o == nil {
			o = &Operand{}
		}
		ops = append(ops, o)
		e.Func = w.left(e.Func)
	} else {
		ops = append(ops, w.describe(e.Receiver), &Operand{Kind: "method", Name: e.Method})
		w.constant(e.Line(), "s"+e.Method)
		e.Receiver = w.left(e.Receiver)
	}
	e.Args = w.exprs(e.Args)
	w.position(e, ops...)
	w.chunk.Sites[e.Line()].Call = true
}

// maxOperands is the number of operands after which concat makes the rest of a
// concatenation one argument, which is a concatenation of its own. Each argument
// takes a register, and a function has 200 registers.
const maxOperands = 50

// concat flattens a .. (b .. c) into one call, up to maxOperands.
func (w *rewriter) concat(e *ast.StringConcatOpExpr) ast.Expr {
	line := e.Line()
	var ops []*Operand
	var args []ast.Expr
	var rest ast.Expr = e
	for len(args) < maxOperands {
		c, ok := rest.(*ast.StringConcatOpExpr)
		if !ok {
			break
		}
		ops = append(ops, w.describe(c.Lhs))
		args = append(args, single(w.expr(c.Lhs)))
		rest = c.Rhs
	}
	ops = append(ops, w.describe(rest))
	args = append(args, single(w.expr(rest)))
	return w.call(HiddenConcat, w.site(line, ops...), args...)
}

// table rewrites a constructor. gopher-lua writes the list of a constructor in
// blocks of 50. Its code is wrong in two cases: when the last expression can have
// several values and begins a block other than the first, and when named fields
// follow a full block.
func (w *rewriter) table(e *ast.TableExpr) ast.Expr {
	line := e.Line()
	items := 0
	for i, f := range e.Fields {
		if f.Key == nil {
			items++
		} else {
			f.Key = w.expr(f.Key)
		}
		f.Value = w.expr(f.Value)
		if i < len(e.Fields)-1 || f.Key != nil {
			f.Value = single(f.Value)
		}
	}
	if items > maxItems {
		w.fail(line, "constructor too long")
	}
	var last []ast.Expr
	if n := len(e.Fields); n > 0 && items > itemsPerFlush {
		if f := e.Fields[n-1]; f.Key == nil && isMulti(f.Value) {
			last = []ast.Expr{f.Value}
			e.Fields = e.Fields[:n-1]
		}
	}
	if items >= itemsPerFlush {
		var named, list []*ast.Field
		for _, f := range e.Fields {
			if f.Key != nil {
				named = append(named, f)
			} else {
				list = append(list, f)
			}
		}
		e.Fields = append(named, list...)
	}
	w.position(e)
	return w.call(HiddenTable, w.site(line), append([]ast.Expr{e}, last...)...)
}

// function rewrites the body of a function.
func (w *rewriter) function(e *ast.FunctionExpr) {
	fn := &function{parent: w.fn, vararg: e.ParList.HasVargs, consts: make(map[string]struct{})}
	w.fn = fn
	// The table arg is a local variable in a block outside the parameters, so
	// that a parameter of the same name hides it.
	fn.blocks = [][]string{nil}
	if fn.vararg {
		w.declare("arg")
	}
	fn.blocks = append(fn.blocks, nil)
	w.declare(e.ParList.Names...)
	level, chain := w.level, w.chain
	w.chain = 0
	e.Stmts = w.block(e.Stmts)
	w.level, w.chain = level, chain
	line := e.Line()
	w.position(e)
	if fn.vararg {
		e.Stmts = append(w.varargs(fn, line), e.Stmts...)
	}
	w.fn = fn.parent
}

// varargs returns the first statements of a vararg function. They charge for
// its arguments. If the body uses arg, they also declare it. As in Lua 5.1, arg
// is nil if the body uses the expression ..., and otherwise a table.
func (w *rewriter) varargs(fn *function, line int) []ast.Stmt {
	site := w.site(line)
	dots := func() ast.Expr {
		e := &ast.Comma3Expr{}
		e.SetLine(site)
		return e
	}
	pay := &ast.FuncCallStmt{Expr: w.call(HiddenVarargs, site, dots())}
	pay.SetLine(site)
	if !fn.arg {
		return []ast.Stmt{pay}
	}
	arg := &ast.LocalAssignStmt{Names: []string{"arg"}}
	if !fn.dots {
		arg.Exprs = []ast.Expr{w.call(HiddenArg, site, dots())}
	}
	arg.SetLine(site)
	return []ast.Stmt{pay, arg}
}
