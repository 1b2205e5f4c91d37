package lua

import (
	"fmt"
	"runtime/debug"
	"time"
)

// Limits bound one run.
type Limits struct {
	Steps int           // nodes of the syntax tree evaluated and comparable work in the library
	Bytes int           // created in strings, tables and frames, garbage included
	Depth int           // of nested calls
	Time  time.Duration // backstop by the clock; 0 for none
}

// State is one run of a script: its budget, its stack and its globals. It
// serves one goroutine and one call of Run.
type State struct {
	fuel  int // steps until the next look at the clock and the Stop channel
	steps int // left after that
	bytes int // left
	depth int // left

	limits   Limits
	stop     <-chan struct{}
	deadline time.Time

	frame   *frame
	stack   []Value // registers and arguments
	top     int
	spare   []Value // a larger stack that was left
	globals *Table
	one     [1]Value // single results
	two     [2]Value // pairs, of iterators
	ids     uint32

	current   *thread // nil in the main one
	threads   []*thread
	boundary  int // builtins on the stack that call functions: no yield across them
	strings   *Table
	random    Rand
	hostValue any
}

// frame is a call in progress: of a Lua function, or of a builtin that calls
// functions (fn is nil then).
type frame struct {
	st       *State
	parent   *frame
	next     *frame // kept for the next call at this depth
	fn       *closure
	regs     []Value
	varargs  []Value
	site     *site // where in the function: set before whatever can fail or call
	ret      []Value
	buf      []Value // results of a return with many values
	tailFn   Value
	tailArgs []Value
	tails    int // frames that tail calls replaced
}

// site is a place in the source with the names that an error there mentions.
type site struct {
	line int
	a, b operand
}

// operand is how an error calls a value: local 'x', field 'y'.
type operand struct{ kind, name string }

// closure is a Lua function.
type closure struct {
	proto  *Proto
	upvals []*cell
	id     uint32
}

// cell is a local variable that functions share.
type cell struct{ v Value }

const (
	slice       = 4096 // steps between two looks at the clock
	firstStack  = 64
	frameBytes  = 1024 // of a frame and the Go stack below it
	stringBytes = 40
)

// Options are what a run is made of.
type Options struct {
	Limits  Limits
	Stop    <-chan struct{} // closing it ends the run with ErrKilled
	Globals *Table          // frozen; each run gets a copy of its first level
	Strings *Table          // frozen metatable of strings
	Host    any             // for builtins of the host
	Seed    uint64          // of math.random
}

// NewState prepares a run.
func NewState(o Options) *State {
	st := &State{
		steps: o.Limits.Steps, bytes: o.Limits.Bytes, depth: o.Limits.Depth,
		limits: o.Limits, stop: o.Stop, ids: firstID, strings: o.Strings, hostValue: o.Host,
	}
	st.random.Seed(int32(o.Seed ^ o.Seed>>32))
	st.frame = &frame{st: st, site: &site{}}
	if o.Globals != nil {
		st.globals = o.Globals.clone(st)
		st.globals.meta = o.Globals.meta
	}
	return st
}

// Host returns the value that the run was made with.
func (st *State) Host() any { return st.hostValue }

// Globals returns the table of globals of this run.
func (st *State) Globals() *Table { return st.globals }

// Used returns what the run has spent so far.
func (st *State) Used() (steps, bytes int) {
	return st.limits.Steps - st.steps - st.fuel, st.limits.Bytes - st.bytes
}

func (st *State) newID() uint32 {
	st.ids++
	return st.ids
}

// Step charges n steps of work.
func (st *State) Step(n int) {
	if st.fuel -= n; st.fuel < 0 {
		st.refuel()
	}
}

// refuel takes the next slice of the budget.
func (st *State) refuel() {
	total := st.steps + st.fuel
	if total < 0 {
		st.steps, st.fuel = 0, 0
		st.abort(ErrSteps)
	}
	st.fuel = min(total, slice)
	st.steps = total - st.fuel
	select {
	case <-st.stop:
		st.abort(ErrKilled)
	default:
	}
	if st.limits.Time > 0 && time.Now().After(st.deadline) {
		st.abort(ErrTime)
	}
}

// Alloc charges n bytes before they are allocated.
func (st *State) Alloc(n int) {
	if n > st.bytes || n < 0 {
		st.abort(ErrMemory)
	}
	st.bytes -= n
}

func (st *State) abort(reason error) {
	a := &Abort{Reason: reason}
	for fr := st.frame; fr != nil; fr = fr.parent {
		if fr.fn != nil {
			a.Line = fr.site.line
			break
		}
	}
	panic(a)
}

// NewString makes a string that the run pays for.
func (st *State) NewString(s string) Value {
	st.Alloc(stringBytes + len(s))
	return Value{ref: newString(s)}
}

// Run calls the main function of a chunk between two functions of the host: what
// prepare and finish do with the State is paid for by the run like the script
// itself. The results are valid until finish returns. The error is an *Error
// that the script did not handle, or an *Abort. All that the run started has
// ended when Run returns.
func (st *State) Run(p *Proto, prepare func(), finish func(results []Value)) (err error) {
	if st.limits.Time > 0 {
		st.deadline = time.Now().Add(st.limits.Time)
	}
	defer st.closeThreads()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Error:
			err = r
		case *Abort:
			err = r
		default:
			err = &Abort{Reason: ErrPanic, Detail: fmt.Sprint(r), Stack: debug.Stack()}
		}
	}()
	st.stack = make([]Value, firstStack)
	st.refuel()
	st.boundary = 1
	prepare()
	finish(st.callLua(&closure{proto: p}, nil))
	return nil
}

// push takes n registers from the stack. The caller puts stack and top back
// when it is done with them.
func (st *State) push(n int) []Value {
	if st.top+n > len(st.stack) {
		st.grow(n)
	}
	s := st.stack[st.top : st.top+n : st.top+n]
	st.top += n
	return s
}

// grow changes to a larger stack. The old one stays with the frames that use
// it, and comes back when they put it back.
func (st *State) grow(n int) {
	if len(st.spare) < n || len(st.spare) <= len(st.stack) {
		size := max(2*len(st.stack), 2*n)
		st.Alloc(size * valueBytes)
		st.spare = make([]Value, size)
	}
	st.stack, st.top = st.spare, 0
	st.spare = nil
}

// release puts back a stack that was current before.
func (st *State) release(stack []Value, top int) {
	if len(st.stack) > len(stack) && len(st.stack) > len(st.spare) {
		st.spare = st.stack
	}
	st.stack, st.top = stack, top
}

// enter makes a frame.
func (st *State) enter() *frame {
	fr := st.frame.next
	if fr == nil {
		st.Alloc(frameBytes)
		fr = &frame{st: st, parent: st.frame}
		st.frame.next = fr
	}
	st.frame = fr
	return fr
}

// Deepen charges n levels of call depth to a builtin that recurses; a negative n
// gives them back. An error gives back by itself.
func (st *State) Deepen(n int) {
	if n < 0 {
		st.depth -= n
		return
	}
	st.deepen(n)
}

// deepen charges call depth.
func (st *State) deepen(weight int) {
	if st.depth < weight {
		at := (*site)(nil)
		if st.frame.fn != nil {
			at = st.frame.site
		}
		st.opErrorf(at, "stack overflow")
	}
	st.depth -= weight
}

// call calls a value from Lua code, whose frame has its site set.
func (st *State) call(f Value, args []Value) []Value {
	switch r := f.ref.(type) {
	case *closure:
		return st.callLua(r, args)
	case *Builtin:
		return r.fn(st, args)
	}
	f, args = st.callable(f, args)
	return st.call(f, args)
}

// callable resolves __call.
func (st *State) callable(f Value, args []Value) (Value, []Value) {
	h := st.metamethod(f, "__call")
	switch h.ref.(type) {
	case *closure, *Builtin:
	default:
		if fr := st.frame; fr.fn != nil {
			st.typeError(fr.site, fr.site.a, f, "call")
		}
		st.typeError(nil, operand{}, f, "call")
	}
	st.Alloc((len(args) + 1) * valueBytes)
	return h, append([]Value{f}, args...)
}

// Call calls a value from a builtin. The results are valid until the next call.
func (st *State) Call(f Value, args ...Value) []Value {
	fr := st.enter()
	fr.fn, fr.tails = nil, 0
	ret := st.invoke(f, args)
	st.frame = fr.parent
	return ret
}

// call1 is Call for one result.
func (st *State) call1(f Value, args ...Value) Value { return first(st.Call(f, args...)) }

// handler calls a metamethod for an operation at a place in the running Lua
// function, or for the running builtin when at is nil.
func (st *State) handler(at *site, f Value, args ...Value) Value {
	if at == nil || st.frame.fn == nil {
		return first(st.Call(f, args...))
	}
	st.frame.site = at
	return first(st.invoke(f, args))
}

// invoke calls a value from Go code.
func (st *State) invoke(f Value, args []Value) []Value {
	st.deepen(2)
	st.Step(len(args) >> 3)
	stack, top := st.stack, st.top
	st.boundary++
	held := st.push(len(args))
	copy(held, args)
	ret := st.call(f, held)
	st.boundary--
	st.release(stack, top)
	st.depth += 2
	return ret
}

func first(vs []Value) Value {
	if len(vs) > 0 {
		return vs[0]
	}
	return Nil
}

// Ret returns a single result from a builtin.
func (st *State) Ret(v Value) []Value {
	st.one[0] = v
	return st.one[:]
}

func (st *State) callLua(cl *closure, args []Value) []Value {
	p := cl.proto
	weight := p.weight
	st.deepen(weight)
	fr := st.enter()
	fr.tails = 0
	for {
		stack, top := st.stack, st.top
		fr.fn, fr.site = cl, p.entry
		fr.regs = st.push(p.slots)
		p.bind(fr, args)
		ctl := p.body(fr)
		st.release(stack, top)
		if ctl == ctlTail {
			f := fr.tailFn
			args = fr.tailArgs
			fr.tailFn, fr.tailArgs = Nil, nil
			cl = f.ref.(*closure)
			p = cl.proto
			fr.tails++
			if p.weight != weight {
				st.depth += weight
				weight = 0
				st.deepen(p.weight)
				weight = p.weight
			}
			continue
		}
		ret := fr.ret
		fr.ret, fr.varargs = nil, nil
		st.frame = fr.parent
		st.depth += weight
		if ctl != ctlReturn {
			return nil
		}
		return ret
	}
}

// Protect calls a value and returns its error instead of raising it. Results
// are valid until the next call. An *Abort passes through.
func (st *State) protect(f Value, args []Value, handler Value) (ret []Value, err *Error) {
	frame, depth, boundary := st.frame, st.depth, st.boundary
	stack, top := st.stack, st.top
	defer func() {
		if err == nil && !failedOver(&err, recover()) {
			return
		}
		st.frame, st.depth, st.boundary = frame, depth, boundary
		st.release(stack, top)
	}()
	if handler.ref == nil {
		return st.Call(f, args...), nil
	}
	ret, err = st.handled(f, args, handler)
	return ret, err
}

// failedOver turns a recovered *Error into a result; other panics go on.
func failedOver(err **Error, r any) bool {
	switch r := r.(type) {
	case nil:
		return false
	case *Error:
		*err = r
		return true
	default:
		panic(r)
	}
}

// handled runs a message handler where the error was raised, before the stack
// unwinds, so that it sees the error's position.
func (st *State) handled(f Value, args []Value, handler Value) (ret []Value, err *Error) {
	defer func() {
		if failedOver(&err, recover()) {
			at := st.frame
			st.handle(err, handler)
			st.frame = at
		}
	}()
	return st.Call(f, args...), nil
}

func (st *State) handle(e *Error, handler Value) {
	defer func() {
		var nested *Error
		if failedOver(&nested, recover()) {
			e.Value = st.NewString("error in error handling")
		}
	}()
	if st.depth < 64 {
		st.depth += 64 // a stack overflow must not starve its handler
		defer func() { st.depth -= 64 }()
	}
	e.Value = st.call1(handler, e.Value)
}

// SetGlobal sets a global before the run; scripts cannot.
func (st *State) SetGlobal(name *String, v Value) { st.globals.Set(Value{ref: name}, v) }

// Seal makes the globals read-only.
func (st *State) Seal() { st.globals.frozen = true }

// Name makes a string that is used again and again, with its hash.
func Name(s string) *String { return newString(s) }

// Field returns a field by a prepared name, without metamethods.
func (t *Table) Field(name *String) Value { return t.getStr(name) }

// Position is where the innermost function stands: its source and line.
func (st *State) Position() (source string, line int) { return st.position() }
