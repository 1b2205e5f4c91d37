package script

import (
	"math"

	"github.com/holdfast-kv/holdfast/fsm"
	lua "github.com/yuin/gopher-lua"
)

const (
	// callStackSize is how deep calls nest: gopher-lua takes 88 bytes for each at
	// once, and walks the whole stack for every error.
	callStackSize = 5000
	// maxCalls is how deep calls from Go nest (pcall, metamethods of the library,
	// callbacks of gsub and sort), as in C's Lua: LUAI_MAXCCALLS.
	maxCalls = 195
	// maxResults is how many values a function may return at once: Lua's C stack.
	maxResults = 8000

	registrySize = 2048
	registryMax  = 128 << 10
	registryStep = 16 << 10
)

// State is an interpreter that runs one script at a time, and is used again for
// the next one. It is the context of its LState, by which builtins, which all
// States share, find it.
type State struct {
	budget
	main    *lua.LState
	cur     *lua.LState // the coroutine that runs
	env     *Table      // globals as scripts resolve them, with the hidden operators
	visible *Table      // _G
	lib     libraryState

	call   fsm.ScriptCall
	runner *Runner
	chunks []*chunk // 0 is the script, then what load compiled
	resp   int      // of the replies that the script sees: redis.setresp
	json   jsonConfig
	random Rand
	ids    map[Value]int
	sparse map[*Table]struct{} // lists that were begun beyond their end
	calls  int                 // from Go, nested
	nested int                 // levels of data that a builtin walks down
	argbuf []Value
	one    [1]Value
	two    [2]Value

	// Where the last error was raised.
	errSource string
	errLine   int

	coroutines map[*lua.LState]*coroutine
	boundary   int // calls from Go inside the running coroutine: no yield across them

	reply fsm.Reply
}

func newState() *State {
	st := &State{lib: newLibraryState()}
	st.position = st.line
	L := lua.NewState(lua.Options{
		CallStackSize: callStackSize, RegistrySize: registrySize, RegistryMaxSize: registryMax,
		RegistryGrowStep: registryStep, SkipOpenLibs: true,
	})
	st.main, st.cur = L, L
	st.env, st.visible = newGlobals()
	L.Env, L.G.Global = st.env, st.env
	L.SetContext(st)
	L.SetMetatable(lua.LString(""), operatorsOfStrings)
	return st
}

func stateOf(L *lua.LState) *State { return L.Context().(*State) }

// builtin makes a function value. All States share it.
func builtin(fn func(st *State, args []Value) []Value) *lua.LFunction {
	return &lua.LFunction{IsG: true, GFunction: func(L *lua.LState) int {
		st := stateOf(L)
		prev := st.cur
		st.cur = L
		base := len(st.argbuf)
		n := L.GetTop()
		st.Step(n >> 2)
		for i := 1; i <= n; i++ {
			st.argbuf = append(st.argbuf, L.Get(i))
		}
		ret := fn(st, st.argbuf[base:base+n:base+n])
		for _, v := range ret {
			L.Push(v)
		}
		clear(st.argbuf[base:])
		st.argbuf = st.argbuf[:base]
		st.cur = prev
		return len(ret)
	}}
}

// Ret returns a single result from a builtin.
func (st *State) Ret(v Value) []Value {
	st.one[0] = v
	return st.one[:]
}

// ret2 returns two.
func (st *State) ret2(a, b Value) []Value {
	st.two[0], st.two[1] = a, b
	return st.two[:]
}

// NewString makes a string that the run pays for.
func (st *State) NewString(s string) Value {
	st.Alloc(stringBytes + len(s))
	st.grewTo(len(s))
	return lua.LString(s)
}

func (st *State) grewTo(n int) {
	if n > st.longest {
		st.grew(n)
	}
}

// grew notes that there is a longer string than before: one instruction may take
// as long as it takes to compare it, so that the clock is looked at more often.
func (st *State) grew(n int) {
	st.longest = n
	if n >= slice {
		st.steps += st.fuel
		st.fuel = 0
	}
}

// NewTable makes a table that the run pays for.
func (st *State) NewTable(list, pairs int) *Table {
	st.Alloc(tableBytes + list*valueBytes + pairs*pairBytes)
	return st.main.CreateTable(list, pairs)
}

// Call calls a value from a builtin. The results are valid until the next call.
func (st *State) Call(f Value, args ...Value) []Value {
	st.callable(f)
	L := st.cur
	top := L.GetTop()
	L.Push(f)
	for _, v := range args {
		L.Push(v)
	}
	st.enter()
	L.Call(len(args), lua.MultRet)
	st.leave()
	n := L.GetTop() - top
	if n == 1 {
		st.one[0] = L.Get(-1)
		L.SetTop(top)
		return st.one[:]
	}
	ret := make([]Value, n)
	for i := range ret {
		ret[i] = L.Get(top + 1 + i)
	}
	L.SetTop(top)
	return ret
}

func (st *State) enter() {
	if st.calls >= maxCalls {
		st.plainErrorf("C stack overflow")
	}
	st.calls++
	st.boundary++
}

func (st *State) leave() {
	st.calls--
	st.boundary--
}

// call1 is Call for one result.
func (st *State) call1(f Value, args ...Value) Value { return first(st.Call(f, args...)) }

func first(vs []Value) Value {
	if len(vs) > 0 {
		return vs[0]
	}
	return Nil
}

// maxNested bounds Go's stack when builtins walk down into data.
const maxNested = 10_000

// Deepen counts levels of data that a builtin walks down; a negative n gives
// them back. An error gives back by itself.
func (st *State) Deepen(n int) {
	if st.nested += n; st.nested > maxNested {
		st.plainErrorf("stack overflow")
	}
}

// callable raises what C raises when it calls a value that cannot be called.
func (st *State) callable(f Value) {
	if _, ok := f.(*lua.LFunction); ok {
		return
	}
	if _, ok := st.metamethod(f, "__call").(*lua.LFunction); !ok {
		st.plainErrorf("attempt to call a %s value", typeName(f))
	}
}

// protect calls a value and returns its error instead of raising it. Results are
// valid until the next call. An Abort passes through.
func (st *State) protect(f Value, args []Value) ([]Value, *scriptError) {
	L := st.cur
	st.enter()
	calls, boundary, nested, buffered, top := st.calls, st.boundary, st.nested, len(st.argbuf), L.GetTop()
	L.Push(protected)
	L.Push(f)
	for _, v := range args {
		L.Push(v)
	}
	err := L.PCall(1+len(args), lua.MultRet, nil)
	st.cur, st.calls, st.boundary = L, calls, boundary
	st.leave()
	if st.aborted != nil {
		panic(abortPanic())
	}
	if err != nil {
		st.nested = nested
		clear(st.argbuf[buffered:])
		st.argbuf = st.argbuf[:buffered]
		L.SetTop(top)
		e, ok := err.(*lua.ApiError)
		if !ok || e.Object == nil {
			st.failed(err)
		}
		return nil, &scriptError{e.Object, st.errSource, st.errLine}
	}
	ret := make([]Value, L.GetTop()-top)
	for i := range ret {
		ret[i] = L.Get(top + 1 + i)
	}
	L.SetTop(top)
	return ret, nil
}

// protected is what PCall calls: the function with its arguments, errors made by
// raise, and panics of Go turned into the end of the run.
var protected = &lua.LFunction{IsG: true, GFunction: runProtected}

func runProtected(L *lua.LState) int {
	st := stateOf(L)
	L.Panic = raise
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *lua.ApiError:
			panic(r)
		default:
			st.failed(r)
		}
	}()
	st.cur = L
	st.callable(L.Get(1))
	L.Call(L.GetTop()-1, lua.MultRet)
	return L.GetTop()
}

// raise is where every error passes: of builtins, whose text is as it should be,
// and of the interpreter, whose text is translated into Lua's.
func raise(L *lua.LState) {
	st := stateOf(L)
	v := L.Get(-1)
	if s, ok := v.(lua.LString); ok {
		if text, ok := st.translate(L, string(s)); ok {
			v = lua.LString(text)
		}
	}
	st.errSource, st.errLine = st.innermost(L)
	panic(&lua.ApiError{Type: lua.ApiErrorRun, Object: v, StackTrace: "none"})
}

// Raise ends the running builtin with an error value.
func (st *State) Raise(v Value) {
	st.Alloc(64)
	st.Step(20)
	st.cur.Error(v, 0)
}

// getInt is t[i] without metamethods.
func getInt(t *Table, i int) Value {
	if i < lua.MaxArrayIndex {
		if i >= 1 {
			return t.RawGetInt(i)
		}
	}
	return t.RawGetH(lua.LNumber(i))
}

// field is t[name] without metamethods.
func field(t *Table, name string) Value { return t.RawGetString(name) }

// RawSet is t[k] = v without metamethods, for builtins.
func (st *State) RawSet(t *Table, k, v Value) {
	if text := st.store(t, k, v); text != "" {
		st.plainErrorf("%s", text)
	}
}

// store is t[k] = v without metamethods, or returns why it is not possible.
func (st *State) store(t *Table, k, v Value) string {
	if readOnly(t) {
		return "Attempt to modify a readonly table"
	}
	switch k := k.(type) {
	case lua.LNumber:
		if math.IsNaN(float64(k)) {
			return "table index is NaN"
		}
		st.storeNumber(t, k, v)
		return ""
	case lua.LString:
		if v == Nil {
			st.deleted++
		} else if t.RawGetString(string(k)) == Nil {
			st.Alloc(pairBytes)
		}
		t.RawSetString(string(k), v)
		return ""
	}
	if k == Nil {
		return "table index is nil"
	}
	if v == Nil {
		st.deleted++
	} else if t.RawGetH(k) == Nil {
		st.Alloc(pairBytes)
	}
	t.RawSetH(k, v)
	return ""
}

// storeNumber stores under a number. gopher-lua keeps whole numbers below
// MaxArrayIndex in a list and fills it up with nils to the index.
func (st *State) storeNumber(t *Table, k lua.LNumber, v Value) {
	i := int(k)
	if lua.LNumber(i) != k || i < 1 || i >= lua.MaxArrayIndex {
		if v == Nil {
			st.deleted++
			if t.RawGetH(k) == Nil {
				return
			}
		} else if t.RawGetH(k) == Nil {
			st.Alloc(pairBytes)
		}
		t.RawSetH(k, v)
		return
	}
	old := t.RawGetInt(i)
	if v == Nil {
		if old == Nil {
			return // do not fill up a list to remove what is not there
		}
		st.deleted += 1 + i>>8
	} else if old == Nil {
		st.Alloc(slotBytes)
		if i > 1 && t.RawGetInt(i-1) == Nil {
			st.storeFar(t, i)
		}
	}
	t.RawSetInt(i, v)
}

// storeFar pays for the nils in front of an index, and notes that the length of
// such a list is where it ends first, as in Lua.
func (st *State) storeFar(t *Table, i int) {
	var have int
	st.walk(func() { have = t.MaxN() })
	if gap := i - have; gap > 0 {
		st.Alloc(2 * gap * valueBytes)
		st.Step(gap >> 3)
		st.deleted += gap >> 8
	}
	if _, ok := st.sparse[t]; !ok {
		st.Alloc(64)
		if st.sparse == nil {
			st.sparse = make(map[*Table]struct{})
		}
		st.sparse[t] = struct{}{}
	}
}

// setInt is t[i] = v for a builtin that fills a table of its own.
func (st *State) setInt(t *Table, i int, v Value) { st.storeNumber(t, lua.LNumber(i), v) }

// length is #t.
func (st *State) length(t *Table) int {
	var n int
	st.walk(func() { n = t.Len() })
	if n == 0 || len(st.sparse) == 0 {
		return n
	}
	if _, ok := st.sparse[t]; !ok {
		return n
	}
	for i := 1; i <= n; i++ {
		if t.RawGetInt(i) == Nil {
			st.Step(i >> 3)
			return i - 1
		}
	}
	st.Step(n >> 3)
	return n
}

// next returns the pair behind a key: Nil at the end.
func (st *State) next(t *Table, k Value) (key, val Value) {
	st.walk(func() { key, val = t.Next(k) })
	return key, val
}

// metatable returns the real one, which scripts may not see.
func (st *State) metatable(v Value) *Table {
	switch v := v.(type) {
	case *Table:
		m, _ := v.Metatable.(*Table)
		return m
	case lua.LString:
		return metaOfStrings
	}
	return nil
}

func (st *State) metamethod(v Value, event string) Value {
	if m := st.metatable(v); m != nil {
		return field(m, event)
	}
	return Nil
}

// index is v[k] from a builtin.
func (st *State) index(v, k Value) Value {
	for range metaLoops {
		var h Value
		if t, ok := v.(*Table); ok {
			r := t.RawGet(k)
			if r != Nil {
				return r
			}
			if h = st.metamethod(t, "__index"); h == Nil {
				return Nil
			}
		} else if h = st.metamethod(v, "__index"); h == Nil {
			st.plainErrorf("attempt to index a %s value", typeName(v))
		}
		if _, ok := h.(*lua.LFunction); ok {
			return st.call1(h, v, k)
		}
		v = h
		st.Step(1)
	}
	st.plainErrorf("loop in gettable")
	return Nil
}

// metaLoops bounds chains of __index and __newindex, as Lua and gopher-lua do.
const metaLoops = 100
