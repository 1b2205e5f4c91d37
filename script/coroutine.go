package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/holdfast-kv/holdfast/script/luac"
)

// coroutine is a gopher-lua thread with a small stack of its own. Its context is
// the State, so the coroutine spends the budget of the State.
type coroutine struct {
	L      *lua.LState
	fn     *lua.LFunction
	status string
	passed []Value // values that yield or resume is passing
}

const (
	threadBytes    = 48 << 10
	threadCalls    = 200
	threadRegistry = 256
)

// yieldChunk is the chunk name of the Lua function that implements yield.
const yieldChunk = "yield"

const textYield = "attempt to yield across metamethod/C-call boundary"

// fillCoroutine fills the table of the library. yield is a Lua function that
// wraps a builtin, because gopher-lua does not adjust the number of results of
// a resumed yield to the number that the caller expects.
func fillCoroutine() {
	setFunctions(coroutineTable, []entry{
		{"create", coCreate}, {"resume", coResume}, {"running", coRunning},
		{"status", coStatus}, {"wrap", coWrap},
	})
	stmts, err := parse.Parse(strings.NewReader(
		`local suspend, passed = ... return function(...) local _ = suspend(...) return passed() end`), yieldChunk)
	if err != nil {
		panic(err)
	}
	proto, err := lua.Compile(stmts, yieldChunk)
	if err != nil {
		panic(err)
	}
	L := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer L.Close()
	L.Push(L.NewFunctionFromProto(proto))
	L.Push(&lua.LFunction{IsG: true, GFunction: suspend})
	L.Push(builtin(coPassed))
	L.Call(2, 1)
	coroutineTable.RawSetString("yield", L.Get(-1))
	freeze(coroutineTable)
}

// suspend implements yield: it returns control to resume.
func suspend(L *lua.LState) int {
	st := stateOf(L)
	st.cur = L
	co := st.coroutines[L]
	if co == nil || st.boundary != 0 || st.nestedLoop(L) {
		st.plainErrorf(textYield)
		return 0 // not reached: plainErrorf panics
	}
	n := L.GetTop()
	st.Step(1)
	st.Alloc(n * valueBytes)
	co.passed = make([]Value, n)
	for i := range co.passed {
		co.passed[i] = L.Get(i + 1)
	}
	return L.Yield()
}

// nestedLoop reports whether a metamethod or the iterator of a generic for is
// running. gopher-lua runs these in an interpreter loop of their own. A yield
// would leave that loop without ending it.
func (st *State) nestedLoop(L *lua.LState) bool {
	for level := 2; ; level++ { // 0 is suspend, 1 is yield
		where := L.Where(level)
		if where == "" {
			return false
		}
		c, n, _, ok := luac.ParsePosition(where)
		if !ok {
			return true
		}
		if _, s := st.lookup(c, n); s == nil || !s.Call {
			return true
		}
	}
}

// coPassed returns the results of yield.
func coPassed(st *State, _ []Value) []Value {
	co := st.coroutines[st.cur]
	ret := co.passed
	co.passed = nil
	return ret
}

func (st *State) newCoroutine(args []Value) *coroutine {
	f, ok := arg(args, 1).(*lua.LFunction)
	if !ok || f.IsG {
		st.ArgError(1, "Lua function expected")
	}
	st.Alloc(threadBytes)
	st.Step(500)
	st.main.Options.CallStackSize = threadCalls
	st.main.Options.RegistrySize = threadRegistry
	L, _ := st.main.NewThread()
	L.SetContext(st)
	co := &coroutine{L: L, fn: f, status: "suspended"}
	if st.coroutines == nil {
		st.coroutines = make(map[*lua.LState]*coroutine)
	}
	st.coroutines[L] = co
	return co
}

func coCreate(st *State, args []Value) []Value { return st.Ret(st.newCoroutine(args).L) }

func (st *State) checkCoroutine(args []Value) *coroutine {
	L, ok := arg(args, 1).(*lua.LState)
	if !ok {
		st.ArgError(1, "coroutine expected")
	}
	return st.coroutines[L]
}

func coStatus(st *State, args []Value) []Value {
	return st.Ret(st.NewString(st.checkCoroutine(args).status))
}

func coRunning(st *State, _ []Value) []Value {
	if st.cur == st.main {
		return st.Ret(Nil)
	}
	return st.Ret(st.cur)
}

func coResume(st *State, args []Value) []Value {
	co := st.checkCoroutine(args)
	ret, err := st.resume(co, args[1:])
	if err != nil {
		return []Value{False, err.value}
	}
	return append([]Value{True}, ret...)
}

func coWrap(st *State, args []Value) []Value {
	co := st.newCoroutine(args)
	return st.Ret(builtin(func(st *State, args []Value) []Value {
		ret, err := st.resume(co, args)
		if err != nil {
			v := err.value
			if s, ok := asString(v); ok {
				v = st.NewString(st.where(1) + s)
			}
			st.Raise(v)
		}
		return ret
	}))
}

// resume runs a coroutine until it yields or ends.
func (st *State) resume(co *coroutine, args []Value) ([]Value, *scriptError) {
	if co.status != "suspended" {
		return nil, &scriptError{value: st.NewString("cannot resume " + co.status + " coroutine")}
	}
	st.Step(20)
	st.Alloc(2 * len(args) * valueBytes)
	L := st.cur
	caller := st.coroutines[L]
	st.enter()
	calls, boundary, nested, buffered := st.calls, st.boundary, st.nested, len(st.argbuf)
	if caller != nil {
		caller.status = "normal"
	}
	co.status = "running"
	co.passed = append([]Value(nil), args...)
	st.cur, st.boundary = co.L, 0
	fn := co.fn
	if co.fn = nil; fn == nil {
		args = []Value{Nil} // for yield, which ignores args and returns the values in co.passed
	}
	state, err, ret := L.Resume(co.L, fn, args...)
	st.cur, st.calls, st.boundary, st.nested = L, calls, boundary, nested
	clear(st.argbuf[buffered:])
	st.argbuf = st.argbuf[:buffered]
	st.leave()
	if st.aborted != nil {
		panic(abortPanic())
	}
	if caller != nil {
		caller.status = "running"
	}
	switch state {
	case lua.ResumeYield:
		co.status = "suspended"
		ret = co.passed
		co.passed = nil
		return ret, nil
	case lua.ResumeOK:
		co.status = "dead"
		return ret, nil
	}
	co.status = "dead"
	e, ok := err.(*lua.ApiError)
	if !ok || e.Object == nil {
		st.failed(err)
	}
	v := e.Object
	if s, ok := v.(lua.LString); ok {
		if text, ok := st.translate(co.L, string(s)); ok {
			v = st.NewString(text)
		}
	}
	return nil, &scriptError{value: v}
}
