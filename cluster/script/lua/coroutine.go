package lua

import (
	"iter"
	"slices"
)

// thread is a coroutine. It runs in a goroutine of its own (iter.Pull), but
// never at the same time as another: resume and yield switch. It spends the
// budget of its State, and ends with it.
type thread struct {
	st     *State
	fn     Value
	id     uint32
	status string
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	passed []Value // values on their way in or out
	err    any     // panic that ended it

	parent   *thread
	frame    *frame
	stack    []Value
	top      int
	boundary int // builtins between the running function and the resume
	held     int // call depth of the suspended frames
	slot     int // in State.threads
}

const threadBytes = 8 << 10 // with its goroutine

// unwind is the panic that ends a coroutine which nobody will resume.
type unwind struct{}

var coroutineLib = lib{"coroutine", []Builtin{
	{name: "create", fn: coCreate}, {name: "resume", fn: coResume}, {name: "running", fn: coRunning},
	{name: "status", fn: coStatus}, {name: "wrap", fn: coWrap}, {name: "yield", fn: coYield},
}}

func (st *State) newThread(args []Value) *thread {
	f := arg(args, 1)
	if _, ok := f.ref.(*closure); !ok {
		st.ArgError(1, "Lua function expected")
	}
	st.Alloc(threadBytes)
	th := &thread{st: st, fn: f, id: st.newID(), status: "suspended"}
	th.frame = &frame{st: st, site: &site{}}
	return th
}

func coCreate(st *State, args []Value) []Value {
	return st.Ret(Value{ref: st.newThread(args)})
}

func (st *State) checkThread(args []Value) *thread {
	th, ok := arg(args, 1).ref.(*thread)
	if !ok {
		st.ArgError(1, "coroutine expected")
	}
	return th
}

func coStatus(st *State, args []Value) []Value {
	return st.Ret(st.NewString(st.checkThread(args).status))
}

func coRunning(st *State, args []Value) []Value {
	if st.current == nil {
		return st.Ret(Nil)
	}
	return st.Ret(Value{ref: st.current})
}

func coResume(st *State, args []Value) []Value {
	th := st.checkThread(args)
	ret, err := st.resume(th, args[1:])
	if err != nil {
		return []Value{False, err.Value}
	}
	st.Alloc((len(ret) + 1) * valueBytes)
	return append([]Value{True}, ret...)
}

func coWrap(st *State, args []Value) []Value {
	th := st.newThread(args)
	return st.Ret(st.NewBuiltin("wrap", func(st *State, args []Value) []Value {
		ret, err := st.resume(th, args)
		if err != nil {
			v := err.Value
			if s, ok := v.AsString(); ok {
				v = st.NewString(st.where(1) + s)
			}
			st.Raise(v)
		}
		return ret
	}))
}

func coYield(st *State, args []Value) []Value {
	th := st.current
	if th == nil || st.boundary != 0 {
		st.opErrorf(nil, "attempt to yield across metamethod/C-call boundary")
	}
	st.Step(1)
	st.Alloc(len(args) * valueBytes)
	th.passed = slices.Clone(args)
	if !th.yield(struct{}{}) {
		panic(unwind{})
	}
	return th.passed
}

// resume runs a coroutine until it yields or ends.
func (st *State) resume(th *thread, args []Value) ([]Value, *Error) {
	if th.status != "suspended" {
		return nil, &Error{Value: st.NewString("cannot resume " + th.status + " coroutine")}
	}
	st.deepen(4)
	st.Step(10)
	st.Alloc(len(args) * valueBytes)
	th.passed = slices.Clone(args)
	depth := st.depth
	st.deepen(th.held)
	if th.next == nil {
		th.next, th.stop = iter.Pull(th.body)
		th.slot = len(st.threads)
		st.threads = append(st.threads, th)
	}
	st.enterThread(th)
	_, alive := th.next()
	st.leaveThread(th)
	th.held = depth - st.depth
	st.depth = depth + 4
	if alive {
		th.status = "suspended"
		return th.passed, nil
	}
	th.status = "dead"
	last := st.threads[len(st.threads)-1]
	st.threads[th.slot], last.slot = last, th.slot
	st.threads = st.threads[:len(st.threads)-1]
	switch err := th.err.(type) {
	case nil:
		return th.passed, nil
	case *Error:
		return nil, err
	default:
		panic(err)
	}
}

// enterThread makes a coroutine the running one; the State keeps its caller's
// context in the thread meanwhile.
func (st *State) enterThread(th *thread) {
	if st.current != nil {
		st.current.status = "normal"
	}
	th.parent, st.current = st.current, th
	th.status = "running"
	st.swap(th)
}

func (st *State) leaveThread(th *thread) {
	st.swap(th)
	st.current = th.parent
	if st.current != nil {
		st.current.status = "running"
	}
}

func (st *State) swap(th *thread) {
	st.frame, th.frame = th.frame, st.frame
	st.stack, th.stack = th.stack, st.stack
	st.top, th.top = th.top, st.top
	st.boundary, th.boundary = th.boundary, st.boundary
	st.spare = nil
}

// body is the coroutine's goroutine.
func (th *thread) body(yield func(struct{}) bool) {
	th.yield = yield
	st := th.st
	depth := st.depth
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(unwind); !ok {
				th.err = r
			}
		}
		st.depth = depth
	}()
	ret := st.call(th.fn, th.passed)
	th.passed = slices.Clone(ret)
}

// closeThreads ends the coroutines that are still suspended.
func (st *State) closeThreads() {
	for _, th := range st.threads {
		if th.stop != nil {
			th.stop()
		}
	}
	st.threads = nil
}
