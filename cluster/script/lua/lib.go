package lua

import "math"

// lib is a library table in the order of registration, on which the order of
// pairs depends.
type lib struct {
	name  string
	funcs []Builtin
}

func (l *lib) fill(t *Table) *Table {
	for _, f := range l.funcs {
		t.SetStr(f.name, NewBuiltin(f.name, f.fn))
	}
	return t
}

// Library returns a frozen library of Lua 5.1: coroutine, string, table, math.
func Library(name string) *Table { return libraries[name] }

var libraries = func() map[string]*Table {
	m := make(map[string]*Table)
	for _, l := range []*lib{&coroutineLib, &stringLib, &tableLib, &mathLib} {
		t := l.fill(NewShared(len(l.funcs)))
		if l.name == "math" {
			t.SetStr("pi", Number(math.Pi))
			t.SetStr("huge", Number(math.Inf(1)))
			t.SetStr("mod", t.GetStr("fmod"))
		}
		m[l.name] = t.Freeze()
	}
	return m
}()

// Base returns the functions of the base library by name, in the order in which
// Lua registers them.
func Base() []Builtin { return baseFuncs }

// Name is the function's name in its library.
func (b Builtin) Name() string { return b.name }

// Value is the function as a value that all States may share.
func (b Builtin) Value() Value { return NewBuiltin(b.name, b.fn) }

// NewBuiltin makes a function that belongs to the run.
func (st *State) NewBuiltin(name string, fn func(st *State, args []Value) []Value) Value {
	st.Alloc(closureBytes)
	return Value{ref: &Builtin{name, fn, st.newID()}}
}

// arg returns argument n (from 1), nil when it is not there.
func arg(args []Value, n int) Value {
	if n <= len(args) {
		return args[n-1]
	}
	return Nil
}

// CheckAny wants argument n to be there.
func (st *State) CheckAny(args []Value, n int) Value {
	if n > len(args) {
		st.ArgError(n, "value expected")
	}
	return args[n-1]
}

// CheckString wants a string or a number.
func (st *State) CheckString(args []Value, n int) string {
	if n <= len(args) {
		switch r := args[n-1].ref.(type) {
		case *String:
			return r.s
		case number:
			return FormatNumber(args[n-1].num)
		}
	}
	st.argTypeError(args, n, "string")
	return ""
}

// OptString is CheckString with a default for nil and nothing.
func (st *State) OptString(args []Value, n int, def string) string {
	if arg(args, n).ref == nil {
		return def
	}
	return st.CheckString(args, n)
}

// CheckNumber wants a number or a numeral.
func (st *State) CheckNumber(args []Value, n int) float64 {
	f, ok := arg(args, n).ToNumber()
	if !ok {
		st.argTypeError(args, n, "number")
	}
	return f
}

// CheckInt is CheckNumber, cut to an integer as C does.
func (st *State) CheckInt(args []Value, n int) int { return int(ToInt64(st.CheckNumber(args, n))) }

// OptInt is CheckInt with a default for nil and nothing.
func (st *State) OptInt(args []Value, n, def int) int {
	if arg(args, n).ref == nil {
		return def
	}
	return st.CheckInt(args, n)
}

// CheckTable wants a table.
func (st *State) CheckTable(args []Value, n int) *Table {
	t, ok := arg(args, n).ref.(*Table)
	if !ok {
		st.argTypeError(args, n, "table")
	}
	return t
}

// checkFunction wants a function.
func (st *State) checkFunction(args []Value, n int) Value {
	f := arg(args, n)
	switch f.ref.(type) {
	case *closure, *Builtin:
	default:
		st.argTypeError(args, n, "function")
	}
	return f
}
