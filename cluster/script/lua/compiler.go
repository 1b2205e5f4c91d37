package lua

import "math"

// control says how a statement ended.
type control int

const (
	ctlNext control = iota
	ctlBreak
	ctlReturn
	ctlTail // the frame is to be reused for frame.tailFn
)

type (
	evalFn  func(fr *frame) Value
	multiFn func(fr *frame) []Value // valid until the next call or push
	block   func(fr *frame) control
)

// compiler turns a syntax tree into closures. Each block is charged as a whole
// when it is entered: one step for every node of the statements that stand
// directly in it.
type compiler struct {
	source, chunk string
	cost          int // nodes of the block being compiled
	depth         int // nesting of the expression being compiled
	deepest       int
}

// nodesPerDepth is how many nested closures weigh as much as a call.
const nodesPerDepth = 8

func (c *compiler) function(fs *funcState) *Proto {
	inner := &compiler{source: c.source, chunk: c.chunk}
	p := &Proto{
		source: c.source, chunk: c.chunk, slots: fs.slots, vararg: fs.vararg, upvals: fs.upvals,
		entry: &site{line: fs.line},
	}
	for _, l := range fs.params {
		p.params = append(p.params, param{l.slot, l.captured})
	}
	if fs.arg != nil && !fs.usesDot {
		p.arg = &param{fs.arg.slot, fs.arg.captured}
	}
	p.body = inner.block(fs.body)
	if fs.arg != nil && fs.usesDot { // the variable exists, and is nil
		body, slot, captured := p.body, fs.arg.slot, fs.arg.captured
		p.body = func(fr *frame) control {
			fr.set(slot, captured, Nil)
			return body(fr)
		}
	}
	p.weight = 1 + inner.deepest/nodesPerDepth
	return p
}

// Statements.

func (c *compiler) block(body []stmt) block {
	outer := c.cost
	c.cost = 1
	list := make([]block, 0, len(body))
	for _, s := range body {
		c.cost++
		c.nest()
		list = append(list, c.stmt(s))
		c.depth--
	}
	cost := c.cost
	c.cost = outer
	switch len(list) {
	case 0:
		return func(fr *frame) control {
			fr.st.Step(cost)
			return ctlNext
		}
	case 1:
		only := list[0]
		return func(fr *frame) control {
			fr.st.Step(cost)
			return only(fr)
		}
	}
	return func(fr *frame) control {
		fr.st.Step(cost)
		for _, s := range list {
			if ctl := s(fr); ctl != ctlNext {
				return ctl
			}
		}
		return ctlNext
	}
}

func (c *compiler) nest() {
	c.depth++
	c.deepest = max(c.deepest, c.depth)
}

func (c *compiler) stmt(s stmt) block {
	switch s := s.(type) {
	case *localStmt:
		return c.localStmt(s)
	case *localFuncStmt:
		slot, captured := s.v.slot, s.v.captured
		fn := c.closure(s.fn)
		if !captured {
			return func(fr *frame) control {
				fr.regs[slot] = fn(fr)
				return ctlNext
			}
		}
		return func(fr *frame) control {
			v := fr.newCell(Nil)
			fr.regs[slot] = v
			v.ref.(*cell).v = fn(fr)
			return ctlNext
		}
	case *assignStmt:
		return c.assign(s)
	case *callStmt:
		call := c.call(s.call)
		return func(fr *frame) control {
			call(fr)
			return ctlNext
		}
	case *doStmt:
		return c.block(s.body)
	case *whileStmt:
		return c.while(s)
	case *repeatStmt:
		return c.repeat(s)
	case *ifStmt:
		return c.branch(s)
	case *numForStmt:
		return c.numFor(s)
	case *genForStmt:
		return c.genFor(s)
	case *returnStmt:
		return c.ret(s)
	}
	return func(*frame) control { return ctlBreak }
}

func (c *compiler) localStmt(s *localStmt) block {
	if len(s.vars) == 1 && len(s.vals) == 1 {
		slot, captured, val := s.vars[0].slot, s.vars[0].captured, c.expr(s.vals[0])
		if captured {
			return func(fr *frame) control {
				fr.regs[slot] = fr.newCell(val(fr))
				return ctlNext
			}
		}
		return func(fr *frame) control {
			fr.regs[slot] = val(fr)
			return ctlNext
		}
	}
	fill := c.fill(s.vals, len(s.vars))
	base := s.vars[0].slot
	var captured []int
	for i, v := range s.vars {
		if v.captured {
			captured = append(captured, i)
		}
	}
	n := len(s.vars)
	return func(fr *frame) control {
		regs := fr.regs[base : base+n] // not in scope yet: the values cannot see them
		fill(fr, regs)
		for _, i := range captured {
			regs[i] = fr.newCell(regs[i])
		}
		return ctlNext
	}
}

// fill evaluates a list of expressions into exactly n places.
func (c *compiler) fill(vals []expr, n int) func(fr *frame, dst []Value) {
	singles, rest, multi := c.list(vals)
	return func(fr *frame, dst []Value) {
		got := 0
		for _, e := range singles {
			v := e(fr)
			if got < n {
				dst[got] = v
				got++
			}
		}
		if multi && got <= n {
			got += copy(dst[got:], rest(fr))
		} else if multi {
			rest(fr)
		}
		clear(dst[got:])
	}
}

// list compiles expressions of which the last may have many values.
func (c *compiler) list(vals []expr) (singles []evalFn, rest multiFn, multi bool) {
	if n := len(vals); n > 0 && isMulti(vals[n-1]) {
		for _, e := range vals[:n-1] {
			singles = append(singles, c.expr(e))
		}
		return singles, c.multi(vals[n-1]), true
	}
	for _, e := range vals {
		singles = append(singles, c.expr(e))
	}
	return singles, nil, false
}

func isMulti(e expr) bool {
	switch e.(type) {
	case *callExpr, *dotsExpr:
		return true
	}
	return false
}

func (c *compiler) assign(s *assignStmt) block {
	if len(s.targets) == 1 && len(s.vals) == 1 {
		return c.assignOne(s.targets[0], s.vals[0])
	}
	return c.assignMany(s)
}

func (c *compiler) assignOne(target, val expr) block {
	c.cost++
	switch t := target.(type) {
	case *localExpr:
		slot, v := t.l.slot, c.expr(val)
		if t.l.captured {
			return func(fr *frame) control {
				x := v(fr)
				fr.regs[slot].ref.(*cell).v = x
				return ctlNext
			}
		}
		return func(fr *frame) control {
			fr.regs[slot] = v(fr)
			return ctlNext
		}
	case *indexExpr:
		at := &site{line: t.line, a: describe(t.obj)}
		obj, key, v := c.expr(t.obj), c.expr(t.key), c.expr(val)
		return func(fr *frame) control {
			o, k := obj(fr), key(fr)
			fr.st.setIndex(at, o, k, v(fr))
			return ctlNext
		}
	}
	v, store := c.expr(val), c.store(target)
	return func(fr *frame) control {
		store(fr, v(fr))
		return ctlNext
	}
}

// store compiles the assignment to a variable.
func (c *compiler) store(target expr) func(fr *frame, v Value) {
	switch t := target.(type) {
	case *localExpr:
		slot := t.l.slot
		if t.l.captured {
			return func(fr *frame, v Value) { fr.regs[slot].ref.(*cell).v = v }
		}
		return func(fr *frame, v Value) { fr.regs[slot] = v }
	case *upvalExpr:
		i := t.index
		return func(fr *frame, v Value) { fr.fn.upvals[i].v = v }
	}
	g := target.(*globalExpr)
	name, at := Value{ref: g.name}, &site{line: g.line}
	return func(fr *frame, v Value) { fr.st.setGlobal(at, name, v) }
}

func (c *compiler) assignMany(s *assignStmt) block {
	type place struct {
		obj, key evalFn
		at       *site
		store    func(fr *frame, v Value)
	}
	n := len(s.targets)
	places := make([]place, n)
	for i, target := range s.targets {
		c.cost++
		if t, ok := target.(*indexExpr); ok {
			places[i] = place{obj: c.expr(t.obj), key: c.expr(t.key), at: &site{line: t.line, a: describe(t.obj)}}
		} else {
			places[i] = place{store: c.store(target)}
		}
	}
	fill := c.fill(s.vals, n)
	return func(fr *frame) control {
		st := fr.st
		stack, top := st.stack, st.top
		tmp := st.push(3 * n)
		objs, keys, vals := tmp[:n], tmp[n:2*n], tmp[2*n:]
		for i := range places {
			if p := &places[i]; p.obj != nil {
				objs[i], keys[i] = p.obj(fr), p.key(fr)
			}
		}
		fill(fr, vals)
		for i := n - 1; i >= 0; i-- {
			if p := &places[i]; p.obj != nil {
				st.setIndex(p.at, objs[i], keys[i], vals[i])
			} else {
				p.store(fr, vals[i])
			}
		}
		st.release(stack, top)
		return ctlNext
	}
}

func (c *compiler) while(s *whileStmt) block {
	outer := c.cost
	c.cost = 1
	cond := c.expr(s.cond)
	cost := c.cost
	c.cost = outer
	body, at := c.block(s.body), &site{line: s.line}
	return func(fr *frame) control {
		fr.site = at // for an abort inside
		for {
			fr.st.Step(cost)
			if !cond(fr).Truth() {
				return ctlNext
			}
			if ctl := body(fr); ctl == ctlBreak {
				return ctlNext
			} else if ctl != ctlNext {
				return ctl
			}
		}
	}
}

func (c *compiler) repeat(s *repeatStmt) block {
	body := c.block(s.body)
	outer := c.cost
	c.cost = 1
	cond := c.expr(s.cond)
	cost, at := c.cost, &site{line: s.line}
	c.cost = outer
	return func(fr *frame) control {
		fr.site = at
		for {
			if ctl := body(fr); ctl == ctlBreak {
				return ctlNext
			} else if ctl != ctlNext {
				return ctl
			}
			fr.st.Step(cost)
			if cond(fr).Truth() {
				return ctlNext
			}
		}
	}
}

func (c *compiler) branch(s *ifStmt) block {
	conds := make([]evalFn, len(s.conds))
	blocks := make([]block, len(s.conds))
	for i := range s.conds {
		conds[i] = c.expr(s.conds[i])
		blocks[i] = c.block(s.blocks[i])
	}
	var orElse block
	if s.orElse != nil {
		orElse = c.block(s.orElse)
	}
	return func(fr *frame) control {
		for i, cond := range conds {
			if cond(fr).Truth() {
				return blocks[i](fr)
			}
		}
		if orElse != nil {
			return orElse(fr)
		}
		return ctlNext
	}
}

func (c *compiler) numFor(s *numForStmt) block {
	start, limit := c.expr(s.start), c.expr(s.limit)
	step := func(*frame) Value { return Int(1) }
	if s.step != nil {
		step = c.expr(s.step)
	}
	at := &site{line: s.line}
	slot, captured := s.v.slot, s.v.captured
	body := c.block(s.body)
	return func(fr *frame) control {
		v1, v2, v3 := start(fr), limit(fr), step(fr)
		i := fr.forNumber(at, v1, "initial value")
		end := fr.forNumber(at, v2, "limit")
		by := fr.forNumber(at, v3, "step")
		fr.site = at
		for ; by > 0 && i <= end || !(by > 0) && end <= i; i += by {
			fr.set(slot, captured, Number(i))
			if ctl := body(fr); ctl == ctlBreak {
				return ctlNext
			} else if ctl != ctlNext {
				return ctl
			}
		}
		return ctlNext
	}
}

func (fr *frame) forNumber(at *site, v Value, what string) float64 {
	f, ok := v.ToNumber()
	if !ok {
		fr.st.opErrorf(at, "'for' %s must be a number", what)
	}
	return f
}

func (c *compiler) genFor(s *genForStmt) block {
	fill := c.fill(s.vals, 3)
	at := &site{line: s.line, a: operand{name: "(for generator)"}} // no kind: not for "attempt to call"
	base, n := s.vars[0].slot, len(s.vars)
	var captured []int
	for i, v := range s.vars {
		if v.captured {
			captured = append(captured, i)
		}
	}
	body := c.block(s.body)
	return func(fr *frame) control {
		var head [3]Value
		{
			st := fr.st
			stack, top := st.stack, st.top
			tmp := st.push(3)
			fill(fr, tmp)
			copy(head[:], tmp)
			st.release(stack, top)
		}
		f, state, key := head[0], head[1], head[2]
		for {
			regs := fr.regs[base : base+n]
			fr.site = at
			fr.iterate(f, state, key, regs)
			if key = regs[0]; key.ref == nil {
				return ctlNext
			}
			for _, i := range captured {
				regs[i] = fr.newCell(regs[i])
			}
			if ctl := body(fr); ctl == ctlBreak {
				return ctlNext
			} else if ctl != ctlNext {
				return ctl
			}
		}
	}
}

// iterate calls an iterator for the next values of a loop.
func (fr *frame) iterate(f, state, key Value, dst []Value) {
	st := fr.st
	stack, top := st.stack, st.top
	args := st.push(2)
	args[0], args[1] = state, key
	got := copy(dst, st.call(f, args))
	clear(dst[got:])
	st.release(stack, top)
}

func (c *compiler) ret(s *returnStmt) block {
	if len(s.vals) == 1 {
		switch e := s.vals[0].(type) {
		case *callExpr:
			return c.tailCall(e)
		case *dotsExpr:
		default:
			val := c.expr(e)
			return func(fr *frame) control {
				fr.ret = fr.st.Ret(val(fr))
				return ctlReturn
			}
		}
	}
	singles, rest, multi := c.list(s.vals)
	if len(singles) == 0 && !multi {
		return func(fr *frame) control {
			fr.ret = nil
			return ctlReturn
		}
	}
	return func(fr *frame) control {
		buf := fr.buf[:0]
		for _, e := range singles {
			buf = append(buf, e(fr))
		}
		if multi {
			vs := rest(fr)
			fr.st.Alloc(len(vs) * valueBytes)
			fr.st.Step(len(vs) >> 3)
			buf = append(buf, vs...)
		}
		fr.buf, fr.ret = buf, buf
		return ctlReturn
	}
}

func (c *compiler) tailCall(e *callExpr) block {
	prepare := c.prepare(e)
	return func(fr *frame) control {
		st := fr.st
		stack, top := st.stack, st.top
		f, args := prepare(fr)
		switch f.ref.(type) {
		case *closure, *Builtin:
		default:
			f, args = st.callable(f, args)
		}
		if _, ok := f.ref.(*closure); ok {
			st.Alloc(len(args) * valueBytes)
			st.Step(len(args) >> 3)
			fr.tailFn, fr.tailArgs = f, append([]Value(nil), args...)
			st.release(stack, top)
			return ctlTail
		}
		fr.ret = st.call(f, args)
		st.release(stack, top)
		return ctlReturn
	}
}

// Expressions.

// describe names an expression for error texts.
func describe(e expr) operand {
	switch e := e.(type) {
	case *localExpr:
		return operand{"local", e.l.name}
	case *upvalExpr:
		return operand{"upvalue", e.name}
	case *globalExpr:
		return operand{"global", e.name.s}
	case *indexExpr:
		if k, ok := e.key.(*constExpr); ok {
			if s, ok := k.v.AsString(); ok {
				return operand{"field", s}
			}
		}
		return operand{"field", "?"}
	case *parenExpr:
		return describe(e.e)
	}
	return operand{}
}

// expr compiles an expression for its first value.
func (c *compiler) expr(e expr) evalFn {
	c.cost++
	c.nest()
	defer func() { c.depth-- }()
	switch e := e.(type) {
	case *constExpr:
		v := e.v
		return func(*frame) Value { return v }
	case *localExpr:
		slot := e.l.slot
		if e.l.captured {
			return func(fr *frame) Value { return fr.regs[slot].ref.(*cell).v }
		}
		return func(fr *frame) Value { return fr.regs[slot] }
	case *upvalExpr:
		i := e.index
		return func(fr *frame) Value { return fr.fn.upvals[i].v }
	case *globalExpr:
		name, at := e.name, &site{line: e.line}
		return func(fr *frame) Value { return fr.st.global(at, name) }
	case *indexExpr:
		return c.index(e)
	case *callExpr:
		call := c.call(e)
		return func(fr *frame) Value { return first(call(fr)) }
	case *dotsExpr:
		return func(fr *frame) Value { return first(fr.varargs) }
	case *funcExpr:
		return c.closure(e)
	case *parenExpr:
		return c.expr(e.e)
	case *unExpr:
		return c.unary(e)
	case *binExpr:
		return c.binary(e)
	}
	return c.table(e.(*tableExpr))
}

// multi compiles an expression for all its values.
func (c *compiler) multi(e expr) multiFn {
	c.cost++
	c.nest()
	defer func() { c.depth-- }()
	if call, ok := e.(*callExpr); ok {
		return c.call(call)
	}
	return func(fr *frame) []Value { return fr.varargs }
}

func (st *State) global(at *site, name *String) Value {
	if v := st.globals.getStr(name); v.ref != nil || st.globals.meta == nil {
		return v
	}
	return st.index(at, st.globals.Value(), Value{ref: name})
}

func (st *State) setGlobal(at *site, name, v Value) {
	st.setIndex(at, st.globals.Value(), name, v)
}

func (c *compiler) index(e *indexExpr) evalFn {
	at := &site{line: e.line, a: describe(e.obj)}
	obj := c.expr(e.obj)
	if k, ok := e.key.(*constExpr); ok {
		if s, ok := k.v.ref.(*String); ok {
			key := k.v
			return func(fr *frame) Value {
				o := obj(fr)
				if t, ok := o.ref.(*Table); ok {
					if v := t.getStr(s); v.ref != nil || t.meta == nil {
						return v
					}
				}
				return fr.st.index(at, o, key)
			}
		}
	}
	key := c.expr(e.key)
	return func(fr *frame) Value {
		o, k := obj(fr), key(fr)
		if t, ok := o.ref.(*Table); ok {
			if v := t.Get(k); v.ref != nil || t.meta == nil {
				return v
			}
		}
		return fr.st.index(at, o, k)
	}
}

// prepare compiles the evaluation of a call's function and arguments.
func (c *compiler) prepare(e *callExpr) func(fr *frame) (Value, []Value) {
	singles, rest, multi := c.list(e.args)
	fn := c.expr(e.fn)
	n, self := len(singles), 0
	at := &site{line: e.line, a: describe(e.fn)}
	var method Value
	var lookup *site
	if e.method != nil {
		self = 1
		method = Value{ref: e.method}
		lookup = &site{line: e.line, a: describe(e.fn)}
		at.a = operand{"method", e.method.s}
	}
	return func(fr *frame) (Value, []Value) {
		st := fr.st
		f := fn(fr)
		args := st.push(n + self)
		if self == 1 {
			args[0] = f
			f = st.index(lookup, f, method)
		}
		for i, e := range singles {
			args[i+self] = e(fr)
		}
		if multi {
			args = st.extend(args, rest(fr))
		}
		fr.site = at
		return f, args
	}
}

// extend adds values to arguments on top of the stack.
func (st *State) extend(args, more []Value) []Value {
	st.Step(len(more) >> 3)
	n := len(args)
	if st.top+len(more) <= len(st.stack) && n <= st.top && (n == 0 || &st.stack[st.top-n] == &args[0]) {
		st.push(len(more))
		args = st.stack[st.top-n-len(more) : st.top : st.top]
		copy(args[n:], more)
		return args
	}
	all := st.push(n + len(more))
	copy(all[n:], more) // first: more may lie where all begins
	copy(all, args)
	return all
}

func (c *compiler) call(e *callExpr) multiFn {
	prepare := c.prepare(e)
	return func(fr *frame) []Value {
		st := fr.st
		stack, top := st.stack, st.top
		f, args := prepare(fr)
		ret := st.call(f, args)
		st.release(stack, top)
		return ret
	}
}

const closureBytes = 64

func (c *compiler) closure(e *funcExpr) evalFn {
	p := c.function(e.fs)
	return func(fr *frame) Value {
		st := fr.st
		st.Alloc(closureBytes + 8*len(p.upvals))
		cl := &closure{proto: p, id: st.newID()}
		if len(p.upvals) > 0 {
			cl.upvals = make([]*cell, len(p.upvals))
			for i := range p.upvals {
				if u := &p.upvals[i]; u.local != nil {
					cl.upvals[i] = fr.regs[u.local.slot].ref.(*cell)
				} else {
					cl.upvals[i] = fr.fn.upvals[u.index]
				}
			}
		}
		return Value{ref: cl}
	}
}

func (c *compiler) unary(e *unExpr) evalFn {
	a, at := c.expr(e.a), &site{line: e.line, a: describe(e.a)}
	switch e.op {
	case tkNot:
		return func(fr *frame) Value { return Bool(!a(fr).Truth()) }
	case '#':
		return func(fr *frame) Value { return fr.st.length(at, a(fr)) }
	}
	return func(fr *frame) Value {
		if v := a(fr); !v.isNumber() {
			return fr.st.negate(at, v)
		} else {
			return Number(-v.num)
		}
	}
}

func (c *compiler) binary(e *binExpr) evalFn {
	switch e.op {
	case opConcat:
		return c.concat(e)
	case opAnd:
		a, b := c.expr(e.a), c.expr(e.b)
		return func(fr *frame) Value {
			if v := a(fr); !v.Truth() {
				return v
			}
			return b(fr)
		}
	case opOr:
		a, b := c.expr(e.a), c.expr(e.b)
		return func(fr *frame) Value {
			if v := a(fr); v.Truth() {
				return v
			}
			return b(fr)
		}
	}
	a, b := c.expr(e.a), c.expr(e.b)
	at := &site{line: e.line, a: describe(e.a), b: describe(e.b)}
	switch e.op {
	case opEq:
		return func(fr *frame) Value { x := a(fr); return Bool(fr.st.equal(at, x, b(fr))) }
	case opNe:
		return func(fr *frame) Value { x := a(fr); return Bool(!fr.st.equal(at, x, b(fr))) }
	case opLt:
		return func(fr *frame) Value { x := a(fr); return Bool(fr.st.less(at, x, b(fr))) }
	case opLe:
		return func(fr *frame) Value { x := a(fr); return Bool(fr.st.lessEqual(at, x, b(fr))) }
	case opGt:
		return func(fr *frame) Value { x := a(fr); return Bool(fr.st.less(at, b(fr), x)) }
	case opGe:
		return func(fr *frame) Value { x := a(fr); return Bool(fr.st.lessEqual(at, b(fr), x)) }
	}
	return arithmetic(e.op, a, b, at)
}

// arithmetic makes a closure for each operator: the common case of two numbers
// is then a compare and an instruction.
func arithmetic(op binOp, a, b evalFn, at *site) evalFn {
	switch op {
	case opAdd:
		return func(fr *frame) Value {
			x, y := a(fr), b(fr)
			if x.isNumber() && y.isNumber() {
				return Number(x.num + y.num)
			}
			return fr.st.arith(at, op, x, y)
		}
	case opSub:
		return func(fr *frame) Value {
			x, y := a(fr), b(fr)
			if x.isNumber() && y.isNumber() {
				return Number(x.num - y.num)
			}
			return fr.st.arith(at, op, x, y)
		}
	case opMul:
		return func(fr *frame) Value {
			x, y := a(fr), b(fr)
			if x.isNumber() && y.isNumber() {
				return Number(x.num * y.num)
			}
			return fr.st.arith(at, op, x, y)
		}
	case opDiv:
		return func(fr *frame) Value {
			x, y := a(fr), b(fr)
			if x.isNumber() && y.isNumber() {
				return Number(x.num / y.num)
			}
			return fr.st.arith(at, op, x, y)
		}
	case opMod:
		return func(fr *frame) Value {
			x, y := a(fr), b(fr)
			if x.isNumber() && y.isNumber() {
				return Number(x.num - math.Floor(x.num/y.num)*y.num)
			}
			return fr.st.arith(at, op, x, y)
		}
	}
	return func(fr *frame) Value {
		x, y := a(fr), b(fr)
		if x.isNumber() && y.isNumber() {
			return Number(math.Pow(x.num, y.num))
		}
		return fr.st.arith(at, op, x, y)
	}
}

// concat compiles a chain a .. b .. c as one join.
func (c *compiler) concat(e *binExpr) evalFn {
	at := &site{line: e.line}
	var parts []evalFn
	var names []operand
	var add func(x expr)
	add = func(x expr) {
		if b, ok := x.(*binExpr); ok && b.op == opConcat {
			parts, names = append(parts, c.expr(b.a)), append(names, describe(b.a))
			add(b.b)
			return
		}
		parts, names = append(parts, c.expr(x)), append(names, describe(x))
	}
	add(e)
	n := len(parts)
	return func(fr *frame) Value {
		st := fr.st
		stack, top := st.stack, st.top
		vals := st.push(n)
		for i, p := range parts {
			vals[i] = p(fr)
		}
		v := st.concat(at, vals, names)
		st.release(stack, top)
		return v
	}
}

// flush is how many positional fields a constructor collects before it stores
// them: a named field in between may come first or last, as in Lua 5.1.
const flush = 50

func (c *compiler) table(e *tableExpr) evalFn {
	type item struct {
		key, val evalFn
	}
	var items []item
	var rest multiFn
	narr, nhash := 0, 0
	for i, it := range e.items {
		switch {
		case it.key != nil:
			nhash++
			items = append(items, item{c.expr(it.key), c.expr(it.val)})
		case i == len(e.items)-1 && isMulti(it.val):
			rest = c.multi(it.val)
		default:
			narr++
			items = append(items, item{nil, c.expr(it.val)})
		}
	}
	at := &site{line: e.line}
	room, width := roundSize(narr), min(narr, flush)
	return func(fr *frame) Value {
		st := fr.st
		t := st.NewTable(room, nhash)
		if len(items) == 0 && rest == nil {
			return t.Value()
		}
		stack, top := st.stack, st.top
		held := st.push(width)
		stored, n := 0, 0
		for i := range items {
			it := &items[i]
			if it.key != nil {
				k := it.key(fr)
				st.rawSet(at, t, k, it.val(fr))
				continue
			}
			if n == flush {
				t.store(stored, held[:n])
				stored, n = stored+n, 0
			}
			held[n] = it.val(fr)
			n++
		}
		var more []Value
		if rest != nil {
			more = rest(fr)
			st.Step(len(more) >> 3)
			if total := stored + n + len(more); total > len(t.array) {
				t.resize(total, len(t.nodes))
			}
		}
		t.store(stored, held[:n])
		t.store(stored+n, more)
		st.release(stack, top)
		return t.Value()
	}
}

// store sets consecutive fields.
func (t *Table) store(from int, vals []Value) {
	for i, v := range vals {
		t.SetInt(from+i+1, v)
	}
}

// roundSize is the size that Lua 5.1 encodes for a constructor: a number with
// three bits of mantissa.
func roundSize(n int) int {
	shift := 0
	for n >= 16 {
		n = (n + 1) >> 1
		shift++
	}
	return n << shift
}
