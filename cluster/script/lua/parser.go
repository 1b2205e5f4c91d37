package lua

import (
	"fmt"
	"math"
)

// The limits of Lua 5.1, which scripts meet as compile errors.
const (
	maxLocals = 200
	maxUpvals = 60
	maxLevels = 190 // of nested blocks and expressions
)

// parser builds the tree of one chunk by recursive descent.
type parser struct {
	lx     *lexer
	fs     *funcState
	levels int
}

// parse returns the main function of a chunk; it panics with a *syntaxError.
func parse(src, chunk string) *funcState {
	lx := &lexer{src: src, chunk: chunk, line: 1, lastLine: 1}
	p := &parser{lx: lx}
	fs := &funcState{isMain: true, vararg: true, lx: lx, names: make(map[string]int)}
	p.fs = fs
	lx.next()
	fs.body = p.block()
	p.check(tkEOF)
	return fs
}

func (p *parser) enter() {
	if p.levels++; p.levels > maxLevels {
		p.lx.fail("chunk has too many syntax levels", 0)
	}
}

func (p *parser) leave() { p.levels-- }

func (p *parser) tok() token { return p.lx.cur.tok }

func (p *parser) accept(t token) bool {
	if p.tok() != t {
		return false
	}
	p.lx.next()
	return true
}

func (p *parser) check(t token) {
	if p.tok() != t {
		p.lx.failHere("'" + t.String() + "' expected")
	}
}

func (p *parser) expect(t token) {
	p.check(t)
	p.lx.next()
}

// match wants the end of what was opened by who at a line.
func (p *parser) match(what, who token, line int) {
	if p.accept(what) {
		return
	}
	if line == p.lx.line {
		p.lx.failHere("'" + what.String() + "' expected")
	}
	p.lx.failHere(fmt.Sprintf("'%s' expected (to close '%s' at line %d)", what, who, line))
}

func (p *parser) name() string {
	p.check(tkName)
	s := p.lx.cur.str
	p.lx.next()
	return s
}

// Scopes.

func (fs *funcState) limit(n, max int, what string) {
	if n <= max {
		return
	}
	where := "main function"
	if !fs.isMain {
		where = fmt.Sprintf("function at line %d", fs.line)
	}
	fs.lx.fail(fmt.Sprintf("%s has more than %d %s", where, max, what), 0)
}

// declare brings a local into scope.
func (fs *funcState) declare(l *local) *local {
	fs.limit(len(fs.active)+1, maxLocals, "local variables")
	l.slot = len(fs.active)
	fs.active = append(fs.active, l)
	fs.names[l.name]++
	fs.slots = max(fs.slots, len(fs.active))
	return l
}

// leave ends the scope of the locals above a mark.
func (fs *funcState) leave(mark int) {
	for _, l := range fs.active[mark:] {
		fs.names[l.name]--
	}
	fs.active = fs.active[:mark]
}

func (fs *funcState) find(name string) *local {
	for i := len(fs.active) - 1; i >= 0; i-- {
		if fs.active[i].name == name {
			return fs.active[i]
		}
	}
	return nil
}

// upvalue returns the index of an outer variable, or -1 for a global.
func (fs *funcState) upvalue(name string) int {
	for i := range fs.upvals {
		if fs.upvals[i].name == name {
			return i
		}
	}
	if fs.parent == nil {
		return -1
	}
	u := upval{name: name}
	if u.local = fs.parent.find(name); u.local != nil {
		u.local.captured = true
	} else if u.index = fs.parent.upvalue(name); u.index < 0 {
		return -1
	}
	fs.limit(len(fs.upvals)+1, maxUpvals, "upvalues")
	fs.upvals = append(fs.upvals, u)
	return len(fs.upvals) - 1
}

func (p *parser) variable(name string) expr {
	if p.fs.names[name] == 0 {
		return &globalExpr{newString(name), p.lx.lastLine}
	}
	if l := p.fs.find(name); l != nil {
		return &localExpr{l}
	}
	if i := p.fs.upvalue(name); i >= 0 {
		return &upvalExpr{i, name}
	}
	return &globalExpr{newString(name), p.lx.lastLine}
}

// Statements.

func (p *parser) blockEnds() bool {
	switch p.tok() {
	case tkElse, tkElseif, tkEnd, tkEOF, tkUntil:
		return true
	}
	return false
}

// block parses a list of statements in a scope of its own.
func (p *parser) block() []stmt {
	mark := len(p.fs.active)
	body := p.chunk()
	p.fs.leave(mark)
	return body
}

func (p *parser) chunk() []stmt {
	p.enter()
	var body []stmt
	for last := false; !last && !p.blockEnds(); {
		var s stmt
		s, last = p.statement()
		body = append(body, s)
		p.accept(';')
	}
	p.leave()
	return body
}

func (p *parser) statement() (s stmt, last bool) {
	line := p.lx.line
	switch p.tok() {
	case tkIf:
		return p.ifStat(line), false
	case tkWhile:
		p.lx.next()
		cond := p.expr()
		p.expect(tkDo)
		s := &whileStmt{cond: cond, body: p.loopBody(), line: line}
		p.match(tkEnd, tkWhile, line)
		return s, false
	case tkDo:
		p.lx.next()
		s := &doStmt{p.block()}
		p.match(tkEnd, tkDo, line)
		return s, false
	case tkFor:
		return p.forStat(line), false
	case tkRepeat:
		return p.repeatStat(line), false
	case tkFunction:
		return p.funcStat(line), false
	case tkLocal:
		p.lx.next()
		if p.accept(tkFunction) {
			v := p.fs.declare(&local{name: p.name()})
			return &localFuncStmt{v, p.body(false, p.lx.line)}, false
		}
		return p.localStat(), false
	case tkReturn:
		p.lx.next()
		r := &returnStmt{}
		if !p.blockEnds() && p.tok() != ';' {
			r.vals = p.exprList()
		}
		return r, true
	case tkBreak:
		p.lx.next()
		if p.fs.loops == 0 {
			p.lx.failHere("no loop to break")
		}
		return &breakStmt{}, true
	}
	return p.exprStat(), false
}

func (p *parser) loopBody() []stmt {
	p.fs.loops++
	body := p.block()
	p.fs.loops--
	return body
}

func (p *parser) ifStat(line int) stmt {
	s := &ifStmt{}
	for {
		p.lx.next() // if, elseif
		s.conds = append(s.conds, p.expr())
		p.expect(tkThen)
		s.blocks = append(s.blocks, p.block())
		if p.tok() != tkElseif {
			break
		}
	}
	if p.accept(tkElse) {
		s.orElse = p.block()
	}
	p.match(tkEnd, tkIf, line)
	return s
}

func (p *parser) repeatStat(line int) stmt {
	p.lx.next()
	mark := len(p.fs.active)
	p.fs.loops++
	s := &repeatStmt{body: p.chunk(), line: line}
	p.fs.loops--
	p.match(tkUntil, tkRepeat, line)
	s.cond = p.expr() // sees the locals of the body
	p.fs.leave(mark)
	return s
}

func (p *parser) forStat(line int) stmt {
	p.lx.next()
	name := p.name()
	mark := len(p.fs.active)
	var s stmt
	switch p.tok() {
	case '=':
		p.lx.next()
		f := &numForStmt{line: line, start: p.expr()}
		p.expect(',')
		f.limit = p.expr()
		if p.accept(',') {
			f.step = p.expr()
		}
		p.expect(tkDo)
		p.hidden(3)
		f.v = p.fs.declare(&local{name: name})
		f.body = p.loopBody()
		s = f
	case ',', tkIn:
		f := &genForStmt{}
		names := []string{name}
		for p.accept(',') {
			names = append(names, p.name())
		}
		p.expect(tkIn)
		f.line = p.lx.line
		f.vals = p.exprList()
		p.expect(tkDo)
		p.hidden(3)
		for _, n := range names {
			f.vars = append(f.vars, p.fs.declare(&local{name: n}))
		}
		f.body = p.loopBody()
		s = f
	default:
		p.lx.failHere("'=' or 'in' expected")
	}
	p.match(tkEnd, tkFor, line)
	p.fs.leave(mark)
	return s
}

// hidden declares the loop variables that a script cannot name: they count as
// locals.
func (p *parser) hidden(n int) {
	for range n {
		p.fs.declare(&local{name: "(for state)"})
	}
}

func (p *parser) funcStat(line int) stmt {
	p.lx.next()
	target := p.variable(p.name())
	for p.tok() == '.' {
		target = p.field(target)
	}
	method := p.tok() == ':'
	if method {
		target = p.field(target)
	}
	return &assignStmt{[]expr{target}, []expr{p.body(method, line)}}
}

func (p *parser) localStat() stmt {
	s := &localStmt{}
	for {
		s.vars = append(s.vars, &local{name: p.name()})
		p.fs.limit(len(p.fs.active)+len(s.vars), maxLocals, "local variables")
		if !p.accept(',') {
			break
		}
	}
	if p.accept('=') {
		s.vals = p.exprList()
	}
	for _, v := range s.vars {
		p.fs.declare(v)
	}
	return s
}

func (p *parser) exprStat() stmt {
	e := p.suffixed()
	if call, ok := e.(*callExpr); ok {
		return &callStmt{call}
	}
	targets := []expr{e}
	for {
		switch e.(type) {
		case *localExpr, *upvalExpr, *globalExpr, *indexExpr:
		default:
			p.lx.failHere("syntax error")
		}
		if !p.accept(',') {
			break
		}
		e = p.suffixed()
		targets = append(targets, e)
		if len(targets) > maxLevels {
			p.fs.limit(len(targets), maxLevels, "variables in assignment")
		}
	}
	p.expect('=')
	return &assignStmt{targets, p.exprList()}
}

// body parses parameters and body of a function.
func (p *parser) body(method bool, line int) *funcExpr {
	fs := &funcState{parent: p.fs, line: line, lx: p.lx, names: p.fs.names}
	p.fs = fs
	p.expect('(')
	if method {
		fs.params = append(fs.params, fs.declare(&local{name: "self"}))
	}
	for p.tok() != ')' {
		switch p.tok() {
		case tkName:
			fs.params = append(fs.params, fs.declare(&local{name: p.name()}))
		case tkDots:
			p.lx.next()
			fs.vararg = true
			fs.arg = fs.declare(&local{name: "arg"})
		default:
			p.lx.failHere("<name> or '...' expected")
		}
		if fs.vararg || !p.accept(',') {
			break
		}
		if p.tok() == ')' {
			p.lx.failHere("<name> or '...' expected")
		}
	}
	p.expect(')')
	fs.body = p.chunk()
	p.match(tkEnd, tkFunction, line)
	fs.leave(0)
	p.fs = fs.parent
	return &funcExpr{fs}
}

// Expressions.

func (p *parser) exprList() []expr {
	list := []expr{p.expr()}
	for p.accept(',') {
		list = append(list, p.expr())
	}
	return list
}

func (p *parser) expr() expr { return p.subexpr(0) }

func (p *parser) subexpr(limit int) expr {
	p.enter()
	var e expr
	switch t := p.tok(); t {
	case tkNot, '-', '#':
		p.lx.next()
		a := p.subexpr(unaryPriority)
		e = foldUnary(t, a, p.lx.lastLine)
	default:
		e = p.simple()
	}
	for {
		op, ok := binOps[p.tok()]
		if !ok || priorities[op][0] <= limit {
			break
		}
		p.lx.next()
		b := p.subexpr(priorities[op][1])
		e = foldBinary(op, e, b, p.lx.lastLine)
	}
	p.leave()
	return e
}

// foldBinary makes a binary expression, or its value: Lua 5.1 computes numbers
// while it compiles, which error texts show ("local 't'" for (1/1) and t).
func foldBinary(op binOp, a, b expr, line int) expr {
	if decided(op, a) {
		if _, ok := b.(*constExpr); ok {
			return b
		}
		return &parenExpr{b}
	}
	x, ok1 := a.(*constExpr)
	y, ok2 := b.(*constExpr)
	if ok1 && ok2 && op <= opPow && x.v.isNumber() && y.v.isNumber() {
		zero := y.v.num == 0 && (op == opDiv || op == opMod)
		if f := compute(op, x.v.num, y.v.num); !zero && !math.IsNaN(f) {
			return &constExpr{Number(f)}
		}
	}
	return &binExpr{op, a, b, line}
}

func foldUnary(op token, a expr, line int) expr {
	if c, ok := a.(*constExpr); ok {
		switch {
		case op == tkNot:
			return &constExpr{Bool(!c.v.Truth())}
		case op == '-' && c.v.isNumber() && !math.IsNaN(c.v.num):
			return &constExpr{Number(-c.v.num)}
		}
	}
	return &unExpr{op, a, line}
}

// decided reports whether a constant leaves the value to the right operand.
func decided(op binOp, a expr) bool {
	c, ok := a.(*constExpr)
	return ok && (op == opAnd && c.v.Truth() || op == opOr && !c.v.Truth())
}

func (p *parser) simple() expr {
	var e expr
	switch p.tok() {
	case tkNumber:
		e = &constExpr{Number(p.lx.cur.num)}
	case tkString:
		e = &constExpr{Const(p.lx.cur.str)}
	case tkNil:
		e = &constExpr{Nil}
	case tkTrue:
		e = &constExpr{True}
	case tkFalse:
		e = &constExpr{False}
	case tkDots:
		if !p.fs.vararg {
			p.lx.failHere("cannot use '...' outside a vararg function")
		}
		p.fs.usesDot = true
		e = &dotsExpr{}
	case '{':
		return p.table()
	case tkFunction:
		line := p.lx.line
		p.lx.next()
		return p.body(false, line)
	default:
		return p.suffixed()
	}
	p.lx.next()
	return e
}

func (p *parser) prefix() expr {
	switch p.tok() {
	case tkName:
		return p.variable(p.name())
	case '(':
		line := p.lx.line
		p.lx.next()
		e := p.expr()
		p.match(')', '(', line)
		if _, ok := e.(*constExpr); ok {
			return e
		}
		return &parenExpr{e}
	}
	p.lx.failHere("unexpected symbol")
	return nil
}

// field parses .name or :name.
func (p *parser) field(obj expr) expr {
	p.lx.next()
	return &indexExpr{obj, &constExpr{Const(p.name())}, p.lx.lastLine}
}

func (p *parser) suffixed() expr {
	e := p.prefix()
	for {
		switch p.tok() {
		case '.':
			e = p.field(e)
		case '[':
			p.lx.next()
			key := p.expr()
			p.expect(']')
			e = &indexExpr{e, key, p.lx.lastLine}
		case ':':
			p.lx.next()
			method := newString(p.name())
			line := p.lx.line
			e = &callExpr{e, method, p.args(), line}
		case '(', '{', tkString:
			line := p.lx.line
			e = &callExpr{e, nil, p.args(), line}
		default:
			return e
		}
	}
}

func (p *parser) args() []expr {
	line := p.lx.line
	switch p.tok() {
	case '(':
		if line != p.lx.lastLine {
			p.lx.failHere("ambiguous syntax (function call x new statement)")
		}
		p.lx.next()
		var list []expr
		if p.tok() != ')' {
			list = p.exprList()
		}
		p.match(')', '(', line)
		return list
	case '{':
		return []expr{p.table()}
	case tkString:
		s := Const(p.lx.cur.str)
		p.lx.next()
		return []expr{&constExpr{s}}
	}
	p.lx.failHere("function arguments expected")
	return nil
}

func (p *parser) table() expr {
	line := p.lx.line
	t := &tableExpr{line: line}
	p.expect('{')
	for p.tok() != '}' {
		var item tableItem
		switch {
		case p.tok() == '[':
			p.lx.next()
			item.key = p.expr()
			p.expect(']')
			p.expect('=')
		case p.tok() == tkName && p.lx.peek() == '=':
			item.key = &constExpr{Const(p.name())}
			p.lx.next()
		}
		item.val = p.expr()
		t.items = append(t.items, item)
		if !p.accept(',') && !p.accept(';') {
			break
		}
	}
	p.match('}', '{', line)
	return t
}
