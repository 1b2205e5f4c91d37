package script

import (
	"math"

	lua "github.com/yuin/gopher-lua"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/script/luac"
)

const (
	// callStackSize is the maximum depth of calls. gopher-lua allocates 80
	// bytes for each level in advance, and walks the whole stack for every
	// error.
	callStackSize = 5000
	// maxCalls is the maximum depth of calls from Go: pcall, coroutine.resume,
	// metamethods that builtins call, and callbacks such as those of gsub and sort.
	// It is similar to LUAI_MAXCCALLS of C's Lua.
	maxCalls = 195
	// unpack and string.byte must return fewer than maxResults values at once. C's
	// Lua has the same limit, because of its limit on the C stack.
	maxResults = 8000

	registrySize = 2048
	registryMax  = 128 << 10
	registryStep = 16 << 10
)

// State is an interpreter that runs one script at a time. Later runs may reuse a
// State. All States share the builtins. A builtin finds its State as the context of
// the LState.
type State struct {
	budget
	main    *lua.LState
	cur     *lua.LState // the coroutine that is running
	env     *Table      // globals in which scripts look up names, and the hidden functions of package luac
	visible *Table      // _G
	lib     libraryState

	call   fsm.ScriptCall
	runner *Runner
	chunks []*luac.Chunk // 0 is the script; the others are the texts that the function load compiled
	resp   int           // RESP version of the replies that the script sees, see redis.setresp
	json   jsonConfig
	random Rand
	ids    map[Value]int
	sparse map[*Table]struct{} // lists that a script began to fill beyond their end
	calls  int                 // depth of calls from Go
	nested int                 // depth of the data that a builtin is walking down
	argbuf []Value
	one    [1]Value
	two    [2]Value

	// The position at which the last error was raised.
	errSource string
	errLine   int

	coroutines map[*lua.LState]*coroutine
	boundary   int // number of calls from Go inside the running coroutine, which cannot yield across them

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

// builtin returns a Lua function that calls fn. All States share the function.
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

// ret2 returns two results from a builtin.
func (st *State) ret2(a, b Value) []Value {
	st.two[0], st.two[1] = a, b
	return st.two[:]
}

// NewString makes a string and charges the run for it.
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

// grew records that a string of length n, longer than any before it, exists.
// One instruction may take as long as a comparison of that string, so grew
// makes the run check the clock more often.
func (st *State) grew(n int) {
	st.longest = n
	if n >= slice {
		st.steps += st.fuel
		st.fuel = 0
	}
}

// NewTable makes a table and charges the run for it.
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

// call1 calls a value like Call and returns its first result.
func (st *State) call1(f Value, args ...Value) Value { return first(st.Call(f, args...)) }

func first(vs []Value) Value {
	if len(vs) > 0 {
		return vs[0]
	}
	return Nil
}

// maxNested bounds the use of Go's stack when builtins walk down into data.
const maxNested = 10_000

// Deepen adds n to the depth of the data that a builtin walks down. When the
// builtin returns from that depth, it calls Deepen with a negative n. After an
// error, the methods protect and resume set the depth to its value before the
// call.
func (st *State) Deepen(n int) {
	if st.nested += n; st.nested > maxNested {
		st.plainErrorf("stack overflow")
	}
}

// callable raises the error that C's Lua raises for a call of a value that
// cannot be called.
func (st *State) callable(f Value) {
	if _, ok := f.(*lua.LFunction); ok {
		return
	}
	if _, ok := st.metamethod(f, "__call").(*lua.LFunction); !ok {
		st.plainErrorf("attempt to call a %s value", typeName(f))
	}
}

// protect calls a value and returns its error instead of raising it. An Abort
// passes through protect.
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

// protected is the function that PCall calls. It calls the value with its
// arguments. It builds errors with raise, and it ends the run when Go panics.
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

// raise handles every error inside a protected call. An error of a builtin
// already has its final text. raise translates the text of an error of the
// interpreter into Lua's. In a coroutine, an error outside a protected call of the
// coroutine does not reach raise; resume translates it.
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

// getInt returns t[i] without metamethods.
func getInt(t *Table, i int) Value {
	if i < lua.MaxArrayIndex {
		if i >= 1 {
			return t.RawGetInt(i)
		}
	}
	return t.RawGetH(lua.LNumber(i))
}

// field returns t[name] without metamethods.
func field(t *Table, name string) Value { return t.RawGetString(name) }

// RawSet sets t[k] = v without metamethods, for builtins.
func (st *State) RawSet(t *Table, k, v Value) {
	if text := st.store(t, k, v); text != "" {
		st.plainErrorf("%s", text)
	}
}

// store sets t[k] = v without metamethods. It returns the text of an error if
// the assignment is not possible.
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

// storeNumber sets t[k] = v for a number k. gopher-lua keeps the values of whole
// numbers from 1 up to MaxArrayIndex, exclusive, in a list. It fills the list
// with nils up to the index.
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
			return // nothing to remove: do not fill up the list
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

// storeFar charges for the nils that gopher-lua inserts before the index i. It
// also records the list in st.sparse, so that the method length stops at the
// first hole of the list, as in Lua.
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

// setInt sets t[i] = v for a builtin that fills a table of its own.
func (st *State) setInt(t *Table, i int, v Value) { st.storeNumber(t, lua.LNumber(i), v) }

// length returns #t.
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

// next returns the pair that follows the key k, or Nil at the end of the table.
func (st *State) next(t *Table, k Value) (key, val Value) {
	st.walk(func() { key, val = t.Next(k) })
	return key, val
}

// metatable returns the metatable that is in effect. For scripts, the field
// __metatable may hide it.
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

// index evaluates v[k] for a builtin. It honors the metamethod __index.
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
