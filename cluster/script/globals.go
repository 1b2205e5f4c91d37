package script

import "github.com/holdfast-kv/holdfast/cluster/script/lua"

// Names that are looked up in every run.
var (
	nameG        = lua.Name("_G")
	nameKeys     = lua.Name("KEYS")
	nameArgv     = lua.Name("ARGV")
	nameErr      = lua.Name("err")
	nameOK       = lua.Name("ok")
	nameDouble   = lua.Name("double")
	nameMap      = lua.Name("map")
	nameSet      = lua.Name("set")
	nameBig      = lua.Name("big_number")
	nameVerbatim = lua.Name("verbatim_string")
	nameFormat   = lua.Name("format")
	nameString   = lua.Name("string")
)

// stringMeta is the metatable of strings: ("x"):rep(3).
var stringMeta = func() *lua.Table {
	t := lua.NewShared(1)
	t.SetStr("__index", lua.Library("string").Value())
	return t.Freeze()
}()

// globals are what a script can see, less KEYS and ARGV, which each run sets in
// a copy of this table.
var globals = func() *lua.Table {
	t := lua.NewShared(64)
	for _, f := range lua.Base() {
		t.SetStr(f.Name(), f.Value())
	}
	t.SetStr("pcall", lua.NewBuiltin("pcall", pcall))
	t.SetStr("_VERSION", lua.Const("Lua 5.1"))
	for _, name := range []string{"coroutine", "table", "string", "math"} {
		t.SetStr(name, lua.Library(name).Value())
	}
	t.SetStr("cjson", jsonLibrary(nil).Freeze().Value())
	t.SetStr("struct", structLibrary().Value())
	t.SetStr("cmsgpack", msgpackLibrary().Value())
	t.SetStr("bit", bitLibrary().Value())
	t.SetStr("redis", redisLibrary().Value())
	t.SetStr("__redis__err__handler", lua.NewBuiltin("__redis__err__handler", errorHandler))
	for _, name := range []string{"_G", "KEYS", "ARGV"} {
		t.SetStr(name, lua.True) // a place for the run's own
	}
	meta := lua.NewShared(1)
	meta.SetStr("__index", lua.NewBuiltin("__index", noSuchGlobal))
	t.SetMeta(meta.Freeze())
	return t.Freeze()
}()

func noSuchGlobal(st *lua.State, args []lua.Value) []lua.Value {
	name, ok := args[1].ToString()
	if !ok {
		st.Errorf("Second argument to luaProtectedTableError must be a string or number")
	}
	st.Errorf("Script attempted to access nonexistent global variable '%s'", name)
	return nil
}

// errorHandler is the function that Redis leaves in the globals: it makes the
// table of an error that nobody handled.
func errorHandler(st *lua.State, args []lua.Value) []lua.Value {
	var v lua.Value
	if len(args) > 0 {
		v = args[0]
	}
	t, ok := v.AsTable()
	if !ok {
		t = st.NewTable(0, 4)
		text, _ := st.ToStringMeta(v).ToString()
		st.RawSet(t, lua.Const("err"), st.NewString("ERR "+text))
	}
	source, line := st.Position()
	st.RawSet(t, lua.Const("source"), st.NewString(source))
	st.RawSet(t, lua.Const("line"), lua.Int(line))
	return st.Ret(t.Value())
}

// pcall is Lua's, but for errors that are tables with a text: it returns the
// text, which is what scripts from before Redis 7 expect.
func pcall(st *lua.State, args []lua.Value) []lua.Value {
	if len(args) == 0 { // Redis calls what it keeps in the place of the result
		return []lua.Value{lua.False, st.NewString("attempt to call a boolean value")}
	}
	f := args[0]
	results, err := st.Protect(f, args[1:])
	if err == nil {
		return results
	}
	t, ok := err.Value.AsTable()
	if !ok {
		return []lua.Value{lua.False, err.Value}
	}
	text := t.Field(nameErr)
	if _, ok := text.ToString(); ok {
		return []lua.Value{lua.False, text}
	}
	return []lua.Value{lua.False, err.Value, text}
}
