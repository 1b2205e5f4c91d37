package script

import (
	"errors"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/library"
	lua "github.com/yuin/gopher-lua"
)

// libraryGlobals and functionGlobals are the globals of a library. The library's
// code runs again for each call of one of its functions, so a call never sees
// state of an earlier call, whichever node executed it. While the top-level code
// runs, the library sees only libraryGlobals. During the call of the function,
// it sees functionGlobals.
var (
	libraryGlobals  = newTable()
	functionGlobals = newTable()
)

// libraryState is the part of a State that describes the library that it runs.
type libraryState struct {
	env       *Table // globals of the code: the hidden functions, and the globals that meta provides
	meta      *Table // metatable of env; its __index is libraryGlobals or functionGlobals
	loading   bool
	functions map[string]*lua.LFunction // by the names under which the code registered them
	callee    *lua.LFunction            // the function that the client called
}

func newLibraryState() libraryState {
	l := libraryState{env: newTable(), meta: newTable()}
	for name, f := range hidden {
		l.env.RawSetString(name, f)
	}
	l.env.Metatable = l.meta
	return l
}

func (l *libraryState) show(globals *Table) { l.meta.RawSetString("__index", globals) }

// fillLibrary fills the globals of libraries. It must run after the globals of
// scripts are filled, because it copies from them.
func fillLibrary() {
	loading, calling := newTable(), newTable()
	for k, v := redisTable.Next(Nil); k != Nil; k, v = redisTable.Next(k) {
		name, _ := asString(k)
		switch {
		case name == "breakpoint" || name == "debug" || name == "replicate_commands":
			continue
		case name == "log" || strings.HasPrefix(name, "LOG_") || strings.HasPrefix(name, "REDIS_"):
			loading.RawSetString(name, v)
		}
		calling.RawSetString(name, v)
	}
	loading.RawSetString("register_function", builtin(registerFunction))
	loading.Metatable = globalsMeta
	libraryGlobals.RawSetString("redis", loading)
	for _, name := range globalNames {
		if name != "redis" && name != handlerName {
			functionGlobals.RawSetString(name, field(globalTable, name))
		}
	}
	functionGlobals.RawSetString("redis", freeze(calling))
	functionGlobals.RawSetString("_G", functionGlobals)
	libraryGlobals.Metatable, functionGlobals.Metatable = globalsMeta, globalsMeta
}

// Error texts of redis.register_function.
const (
	textRegister       = "redis.register_function"
	textRegisterLate   = textRegister + " can only be called on FUNCTION LOAD command"
	textRegisterCount  = "wrong number of arguments to " + textRegister
	textRegisterSingle = "calling " + textRegister + " with a single argument is only applicable to Lua table " +
		"(representing named arguments)."
	textRegisterFirst  = "first argument to " + textRegister + " must be a string"
	textRegisterSecond = "second argument to " + textRegister + " must be a function"
	textRegisterKey    = "named argument key given to " + textRegister + " is not a string"
	textRegisterName   = "function_name argument given to " + textRegister + " must be a string"
	textRegisterText   = "description argument given to " + textRegister + " must be a string"
	textRegisterCall   = "callback argument given to " + textRegister + " must be a function"
	textRegisterFlags  = "flags argument to " + textRegister + " must be a table representing function flags"
	textRegisterFlag   = "unknown flag given"
	textRegisterOther  = "unknown argument given to " + textRegister
	textRegisterNoName = textRegister + " must get a function name argument"
	textRegisterNoCall = textRegister + " must get a callback argument"
)

// registerSteps is the cost of redis.register_function in steps.
const registerSteps = 50

func registerFunction(st *State, args []Value) []Value {
	st.Step(registerSteps)
	if !st.lib.loading {
		return raiseText(st, textRegisterLate)
	}
	var f library.Function
	var callback *lua.LFunction
	var refusal string
	switch len(args) {
	case 1:
		t, ok := asTable(args[0])
		if !ok {
			return raiseText(st, textRegisterSingle)
		}
		f, callback, refusal = st.named(t)
	case 2:
		var ok bool
		if f.Name, ok = toString(args[0]); !ok {
			refusal = textRegisterFirst
		} else if callback, ok = args[1].(*lua.LFunction); !ok {
			refusal = textRegisterSecond
		}
	default:
		refusal = textRegisterCount
	}
	if refusal != "" {
		return raiseText(st, refusal)
	}
	st.Alloc(pairBytes + len(f.Name) + len(f.Description))
	if st.call.Register != nil {
		if refusal := st.call.Register(f); refusal != "" {
			return raiseText(st, refusal)
		}
	}
	if st.lib.functions == nil {
		st.lib.functions = make(map[string]*lua.LFunction)
	}
	st.lib.functions[f.Name] = callback
	return nil
}

// named reads the arguments of redis.register_function from a table of named
// arguments.
func (st *State) named(t *Table) (f library.Function, callback *lua.LFunction, refusal string) {
	hasName := false
	var v Value
	for k := Nil; ; {
		if k, v = st.next(t, k); k == Nil {
			break
		}
		st.Step(1)
		key, ok := toString(k)
		if !ok {
			return f, nil, textRegisterKey
		}
		switch strings.ToLower(key) {
		case "function_name":
			if f.Name, ok = toString(v); !ok {
				return f, nil, textRegisterName
			}
			hasName = true
		case "description":
			if f.Description, ok = toString(v); !ok {
				return f, nil, textRegisterText
			}
			f.Described = true
		case "callback":
			if callback, ok = v.(*lua.LFunction); !ok {
				return f, nil, textRegisterCall
			}
		case "flags":
			list, ok := asTable(v)
			if !ok {
				return f, nil, textRegisterFlags
			}
			if f.Flags, ok = st.flags(list); !ok {
				return f, nil, textRegisterFlag
			}
		default:
			return f, nil, textRegisterOther
		}
	}
	switch {
	case !hasName:
		return f, nil, textRegisterNoName
	case callback == nil:
		return f, nil, textRegisterNoCall
	}
	return f, callback, ""
}

// flags reads the list of flags up to its first nil.
func (st *State) flags(list *Table) (flags library.Flags, ok bool) {
	for i := 1; ; i++ {
		st.Step(1)
		v := getInt(list, i)
		if v == Nil {
			return flags, true
		}
		word, _ := asString(v)
		flag, known := library.FlagNamed(word)
		if !known {
			return 0, false
		}
		flags |= flag
	}
}

// runLibrary is the counterpart of runMain for libraries. It runs the library's
// code, and then the function that the client called. In FUNCTION LOAD and
// FUNCTION RESTORE, it runs only the code.
func runLibrary(st *State) {
	st.lib.loading = true
	st.lib.show(libraryGlobals)
	st.Call(st.main.NewFunctionFromProto(st.chunks[0].Proto))
	st.lib.loading = false
	if st.call.Register != nil {
		st.reply = fsm.Null
		return
	}
	st.lib.show(functionGlobals)
	f := st.lib.functions[st.call.Function]
	if f == nil {
		st.plainErrorf("the library no longer registers the function")
	}
	st.lib.callee = f
	st.reply = st.toReply(st.Call(f, bytesTable(st, st.call.Keys), bytesTable(st, st.call.Args)))
}

// isLibrary reports whether the State runs a library's code.
func (st *State) isLibrary() bool { return ofLibrary(st.call) }

func ofLibrary(call fsm.ScriptCall) bool { return call.Function != "" || call.Register != nil }

// Error texts of FUNCTION LOAD and FUNCTION RESTORE.
const (
	loadStart   = "ERR Error registering functions: "
	loadTimeout = "ERR FUNCTION LOAD timeout"
)

// loadAborted returns the reply to a FUNCTION LOAD or FUNCTION RESTORE whose run
// was aborted.
func loadAborted(a *Abort) fsm.Reply {
	var i *interrupted
	switch {
	case errors.As(a.Reason, &i):
		return fsm.Error(loadStart + i.text)
	case errors.Is(a, ErrSteps), errors.Is(a, ErrTime):
		return fsm.Error(loadStart + loadTimeout)
	}
	return fsm.Error(loadStart + "ERR " + oneLine(a.Error()))
}
