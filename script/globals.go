package script

import (
	"math"

	lua "github.com/yuin/gopher-lua"
)

func init() {
	// Both variables belong to gopher-lua and apply to the whole process. An
	// assignment fills a list with nils up to its index, so MaxArrayIndex
	// limits the memory that one instruction may allocate to 8 MiB.
	lua.MaxArrayIndex = maxList
	// With CompatVarArg, gopher-lua makes the table arg in every vararg function.
	// Package luac makes the table only in the functions that use it.
	lua.CompatVarArg = false
}

// maxList bounds the list of a table: gopher-lua keeps only indices below maxList
// in the list. So # returns less than maxList.
const maxList = 1 << 19

// A table is read-only when its metatable is one of these two. No script can
// get a reference to either of them.
var (
	frozenMeta  = newTable()
	globalsMeta = newTable()
)

func readOnly(t *Table) bool { return t.Metatable == frozenMeta || t.Metatable == globalsMeta }

func newTable() *Table { return &Table{Metatable: Nil} }

// freeze makes t read-only and returns it. All States share t.
func freeze(t *Table) *Table {
	t.Metatable = frozenMeta
	return t
}

// entry is a field of a library. The order of the entries is the order that
// pairs shows.
type entry struct {
	name string
	fn   func(st *State, args []Value) []Value
}

// setFunctions sets the functions of a library in its table t.
func setFunctions(t *Table, list []entry) *Table {
	for _, e := range list {
		t.RawSetString(e.name, builtin(e.fn))
	}
	return t
}

// Tables that all States share. init fills them, because their functions refer
// to the tables themselves.
var (
	stringTable    = newTable()
	metaOfStrings  = newTable() // the metatable of strings as scripts see it
	metaOfGlobals  = newTable() // the metatable of _G as scripts see it
	mathTable      = newTable()
	coroutineTable = newTable()
	msgpackTable   = newTable()
	bitTable       = newTable()
	redisTable     = newTable()
)

// globalNames are the names of the globals that all States share, without KEYS,
// ARGV and _G.
var (
	globalNames []string
	globalTable = newTable()
)

func init() {
	noSuchGlobal := builtin(noSuchGlobal)
	globalsMeta.RawSetString("__index", noSuchGlobal)
	metaOfGlobals.RawSetString("__index", noSuchGlobal)
	freeze(metaOfGlobals)
	freeze(setFunctions(stringTable, stringLib))
	metaOfStrings.RawSetString("__index", stringTable)
	freeze(metaOfStrings)
	fillOperators()
	setFunctions(mathTable, mathLib)
	mathTable.RawSetString("pi", Number(math.Pi))
	mathTable.RawSetString("huge", Number(math.Inf(1)))
	mathTable.RawSetString("mod", field(mathTable, "fmod"))
	freeze(mathTable)
	fillCoroutine()
	fillMsgpack()
	fillBit()
	fillRedis()

	add := func(name string, v Value) {
		globalNames = append(globalNames, name)
		globalTable.RawSetString(name, v)
	}
	for _, e := range baseLib {
		add(e.name, builtin(e.fn))
	}
	add("_VERSION", Const("Lua 5.1"))
	add("coroutine", coroutineTable)
	add("table", freeze(setFunctions(newTable(), tableLib)))
	add("string", stringTable)
	add("math", mathTable)
	add("cjson", freeze(jsonLibrary(nil)))
	add("struct", freeze(setFunctions(newTable(), structLib)))
	add("cmsgpack", msgpackTable)
	add("bit", bitTable)
	add("redis", redisTable)
	add(handlerName, builtin(errorHandler))
	fillLibrary()
}

// handlerName is the name of the global that contains the error handler of
// scripts. Libraries do not have this global.
const handlerName = "__redis__err__handler"

// newGlobals makes the two tables of globals of a State. The functions of a
// script look up names in env. The table visible is the script's _G.
func newGlobals() (env, visible *Table) {
	env, visible = newTable(), newTable()
	for _, name := range globalNames {
		v := field(globalTable, name)
		env.RawSetString(name, v)
		visible.RawSetString(name, v)
	}
	for _, name := range []string{"KEYS", "ARGV", "_G"} {
		setGlobal(env, visible, name, visible)
	}
	for name, f := range hidden {
		env.RawSetString(name, f)
	}
	env.Metatable, visible.Metatable = globalsMeta, globalsMeta
	return env, visible
}

func setGlobal(env, visible *Table, name string, v Value) {
	env.RawSetString(name, v)
	visible.RawSetString(name, v)
}

func noSuchGlobal(st *State, args []Value) []Value {
	name, ok := toString(arg(args, 2))
	if !ok {
		st.Errorf("Second argument to luaProtectedTableError must be a string or number")
	}
	st.Errorf("Script attempted to access nonexistent global variable '%s'", name)
	return nil
}

// errorHandler is the function that Redis leaves in the globals. It builds the
// table for an error that the script did not handle.
func errorHandler(st *State, args []Value) []Value {
	v := arg(args, 1)
	t, ok := asTable(v)
	if !ok {
		t = st.NewTable(0, 4)
		text, _ := toString(st.ToStringMeta(v))
		st.RawSet(t, Const("err"), st.NewString("ERR "+text))
	}
	source, line := st.innermost(st.cur)
	st.RawSet(t, Const("source"), st.NewString(source))
	st.RawSet(t, Const("line"), Int(line))
	return st.Ret(t)
}

// pcall is Lua's pcall, except for errors that are tables. If the field err of
// the table is a text, pcall returns this text as the error, as scripts written
// before Redis 7 expect. Otherwise, it returns the field err as a third result,
// as Redis does.
func pcall(st *State, args []Value) []Value {
	// Redis' pcall puts a boolean on the stack as a placeholder for its first
	// result. Without arguments, it calls this boolean.
	if len(args) == 0 {
		return []Value{False, st.NewString("attempt to call a boolean value")}
	}
	results, err := st.Protect(args[0], args[1:])
	if err == nil {
		return results
	}
	t, ok := asTable(err.value)
	if !ok {
		return []Value{False, err.value}
	}
	text := field(t, "err")
	if _, ok := toString(text); ok {
		return []Value{False, text}
	}
	return []Value{False, err.value, text}
}

// setField sets t[name] = v for a builtin that fills a table of its own.
func (st *State) setField(t *Table, name string, v Value) { st.RawSet(t, Const(name), v) }
