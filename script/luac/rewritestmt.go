package luac

import (
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// block rewrites statements that have a scope of their own.
func (w *rewriter) block(list []ast.Stmt) []ast.Stmt {
	w.fn.blocks = append(w.fn.blocks, nil)
	list = w.stmts(list)
	w.fn.blocks = w.fn.blocks[:len(w.fn.blocks)-1]
	return list
}

func (w *rewriter) stmts(list []ast.Stmt) []ast.Stmt {
	out := make([]ast.Stmt, 0, len(list))
	for _, s := range list {
		w.nest(s.Line())
		out = w.stmt(out, s)
		w.level--
	}
	return out
}

// stmt rewrites a statement and appends the result to out.
func (w *rewriter) stmt(out []ast.Stmt, s ast.Stmt) []ast.Stmt {
	line := s.Line()
	switch s := s.(type) {
	case *ast.AssignStmt:
		return append(out, w.assign(s))
	case *ast.LocalAssignStmt:
		return w.local(out, s)
	case *ast.FuncDefStmt:
		return append(out, w.funcDef(s))
	case *ast.FuncCallStmt:
		s.Expr = w.expr(s.Expr)
	case *ast.DoBlockStmt:
		s.Stmts = w.block(s.Stmts)
	case *ast.WhileStmt:
		s.Condition = w.expr(s.Condition)
		w.fn.loops++
		s.Stmts = w.block(s.Stmts)
		w.fn.loops--
	case *ast.RepeatStmt:
		w.fn.loops++
		w.fn.blocks = append(w.fn.blocks, nil)
		s.Stmts = w.stmts(s.Stmts)
		s.Condition = w.expr(s.Condition)
		w.fn.blocks = w.fn.blocks[:len(w.fn.blocks)-1]
		w.fn.loops--
	case *ast.IfStmt:
		w.ifStmt(s)
	case *ast.NumberForStmt:
		w.numberFor(s)
	case *ast.GenericForStmt:
		o := &Operand{Name: "(for generator)"}
		each := w.call(HiddenEach, w.site(line, o), w.exprs(s.Exprs)...)
		each.AdjustRet = false
		s.Exprs = []ast.Expr{each}
		w.fn.blocks = append(w.fn.blocks,
			append([]string{"(for generator)", "(for state)", "(for control)"}, s.Names...))
		w.fn.loops++
		s.Stmts = w.block(s.Stmts)
		w.fn.loops--
		w.fn.blocks = w.fn.blocks[:len(w.fn.blocks)-1]
		w.position(s, o)
		return append(out, s)
	case *ast.ReturnStmt:
		s.Exprs = w.exprs(s.Exprs)
	case *ast.BreakStmt:
		if w.fn.loops == 0 {
			w.fail(line, "no loop to break near '%s'", w.tokens.afterBreak(line))
		}
	case *ast.LabelStmt:
		w.fail(line, "unexpected symbol near ':'")
	case *ast.GotoStmt:
		w.fail(line, "'=' expected near '%s'", s.Label)
	}
	w.position(s)
	return append(out, s)
}

// ifStmt rewrites an if statement. The syntax tree nests each elseif in the
// previous branch. ifStmt visits such a chain in a loop, because a recursive
// call for each elseif would count them as nested statements.
func (w *rewriter) ifStmt(s *ast.IfStmt) {
	first := s
	for {
		s.Condition = w.expr(s.Condition)
		s.Then = w.block(s.Then)
		next, ok := (*ast.IfStmt)(nil), false
		if len(s.Else) == 1 && w.chain < maxChain {
			next, ok = s.Else[0].(*ast.IfStmt)
		}
		if !ok {
			break
		}
		if s != first {
			w.position(s)
		}
		w.chain++
		defer func() { w.chain-- }()
		s = next
	}
	s.Else = w.block(s.Else)
	if s != first {
		w.position(s)
	}
}

func (w *rewriter) numberFor(s *ast.NumberForStmt) {
	part := func(e ast.Expr, n int) ast.Expr {
		if e == nil {
			return nil
		}
		line := e.Line()
		if e = w.expr(e); isNumeral(e) {
			return e
		}
		which := &ast.NumberExpr{Value: strconv.Itoa(n)}
		site := w.site(line)
		which.SetLine(site)
		return w.call(HiddenFor, site, single(e), which)
	}
	s.Init, s.Limit, s.Step = part(s.Init, 1), part(s.Limit, 2), part(s.Step, 3)
	w.fn.blocks = append(w.fn.blocks, []string{"(for index)", "(for limit)", "(for step)", s.Name})
	w.fn.loops++
	s.Stmts = w.block(s.Stmts)
	w.fn.loops--
	w.fn.blocks = w.fn.blocks[:len(w.fn.blocks)-1]
}

// local rewrites "local a, b = ..." and "local function f". In "local f = function
// ... end", the body does not see the new f; in "local function f", it does. The
// tree does not distinguish these two forms, but the tokens do. gopher-lua compiles
// a local statement as "local function f" if its value is a function expression. So
// the rewriter turns the value of "local f = function" into a call of
// HiddenFunction.
func (w *rewriter) local(out []ast.Stmt, s *ast.LocalAssignStmt) []ast.Stmt {
	isFunction := w.tokens.localFunction(w.localStmt)
	w.localStmt++
	line := s.Line()
	if isFunction {
		w.declare(s.Names...)
		pay := &ast.FuncCallStmt{Expr: w.call(HiddenFunction, w.site(line))}
		pay.SetLine(w.site(line))
		w.function(s.Exprs[0].(*ast.FunctionExpr))
		w.position(s)
		return append(out, pay, s)
	}
	s.Exprs = w.exprs(s.Exprs)
	w.declare(s.Names...)
	w.position(s)
	return append(out, s)
}

// assign rewrites an assignment. It rewrites the assignment of one value to one
// target directly. For several targets or values it uses temporary variables, and
// it evaluates and assigns in Lua's order.
func (w *rewriter) assign(s *ast.AssignStmt) ast.Stmt {
	line := s.Line()
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 {
		target := w.target(s.Lhs[0])
		return target.assign(w.expr(s.Rhs[0]), line)
	}
	do := &ast.DoBlockStmt{}
	var names []string
	var values []ast.Expr
	temp := func(e ast.Expr) ast.Expr {
		name := "\x00" + strconv.Itoa(len(names))
		names, values = append(names, name), append(values, e)
		return w.ident(name, line)
	}
	targets := make([]target, len(s.Lhs))
	for i, e := range s.Lhs {
		targets[i] = w.target(e)
		if t := &targets[i]; t.object != nil {
			t.object, t.key = temp(single(t.object)), temp(single(t.key))
		}
	}
	if len(names) > 0 {
		do.Stmts = append(do.Stmts, w.locals(names, values, line))
	}
	var results []string
	for i := range s.Lhs {
		results = append(results, "\x01"+strconv.Itoa(i))
	}
	do.Stmts = append(do.Stmts, w.locals(results, w.exprs(s.Rhs), line))
	for i := len(targets) - 1; i >= 0; i-- {
		do.Stmts = append(do.Stmts, targets[i].assign(w.ident(results[i], line), line))
	}
	do.SetLine(w.site(line))
	do.SetLastLine(w.site(line))
	return do
}

func (w *rewriter) ident(name string, line int) ast.Expr {
	e := &ast.IdentExpr{Value: name}
	e.SetLine(w.site(line))
	return e
}

func (w *rewriter) locals(names []string, values []ast.Expr, line int) ast.Stmt {
	s := &ast.LocalAssignStmt{Names: names, Exprs: values}
	s.SetLine(w.site(line))
	return s
}

// target is a variable or a field to which an assignment assigns a value.
type target struct {
	w           *rewriter
	name        *ast.IdentExpr // set for a local variable or an upvalue
	global      bool
	object, key ast.Expr // set for a field
	site        int
}

func (w *rewriter) target(e ast.Expr) target {
	switch e := e.(type) {
	case *ast.IdentExpr:
		if w.resolve(e.Value) == "global" {
			return target{w: w, global: true}
		}
		w.position(e)
		return target{w: w, name: e}
	case *ast.AttrGetExpr:
		site := w.site(e.Line(), w.describe(e.Object))
		return target{w: w, object: w.left(e.Object), key: w.expr(e.Key), site: site}
	}
	w.fail(e.Line(), "syntax error")
	return target{}
}

// assign returns the statement that assigns v to the target.
func (t target) assign(v ast.Expr, line int) ast.Stmt {
	if t.name != nil {
		s := &ast.AssignStmt{Lhs: []ast.Expr{t.name}, Rhs: []ast.Expr{v}}
		s.SetLine(t.w.site(line))
		return s
	}
	var call *ast.FuncCallExpr
	if t.global {
		call = t.w.call(HiddenGlobal, t.w.site(line), single(v))
	} else {
		call = t.w.call(HiddenSet, t.site, single(t.object), single(t.key), single(v))
	}
	s := &ast.FuncCallStmt{Expr: call}
	s.SetLine(call.Line())
	return s
}

// funcDef rewrites "function a.b:c() end" into an assignment.
func (w *rewriter) funcDef(s *ast.FuncDefStmt) ast.Stmt {
	line := s.Line()
	var t target
	if s.Name.Func != nil {
		t = w.target(s.Name.Func)
	} else {
		key := &ast.StringExpr{Value: s.Name.Method}
		key.SetLine(line)
		e := &ast.AttrGetExpr{Object: s.Name.Receiver, Key: key}
		e.SetLine(s.Name.Receiver.Line())
		t = w.target(e)
		s.Func.ParList.Names = append([]string{"self"}, s.Func.ParList.Names...)
	}
	return t.assign(w.expr(s.Func), line)
}
