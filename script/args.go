package script

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

// arg returns argument n (from 1), or nil when the argument is missing.
func arg(args []Value, n int) Value {
	if n <= len(args) {
		return args[n-1]
	}
	return Nil
}

// CheckAny returns argument n. It raises an error when the argument is missing.
func (st *State) CheckAny(args []Value, n int) Value {
	if n > len(args) {
		st.ArgError(n, "value expected")
	}
	return args[n-1]
}

// CheckString returns argument n, which must be a string or a number, as a
// string.
func (st *State) CheckString(args []Value, n int) string {
	s, ok := toString(arg(args, n))
	if !ok {
		st.argTypeError(args, n, "string")
	}
	return s
}

// OptString is like CheckString, but it returns def when the argument is nil or
// missing.
func (st *State) OptString(args []Value, n int, def string) string {
	if arg(args, n) == Nil {
		return def
	}
	return st.CheckString(args, n)
}

// CheckNumber returns argument n, which must be a number or a numeral in a
// string.
func (st *State) CheckNumber(args []Value, n int) float64 {
	f, ok := toNumber(arg(args, n))
	if !ok {
		st.argTypeError(args, n, "number")
	}
	return f
}

// CheckInt is like CheckNumber, but it truncates the number to an integer as C
// does.
func (st *State) CheckInt(args []Value, n int) int {
	return int(numeral.ToInt64(st.CheckNumber(args, n)))
}

// OptInt is like CheckInt, but it returns def when the argument is nil or
// missing.
func (st *State) OptInt(args []Value, n, def int) int {
	if arg(args, n) == Nil {
		return def
	}
	return st.CheckInt(args, n)
}

// CheckTable returns argument n, which must be a table.
func (st *State) CheckTable(args []Value, n int) *Table {
	t, ok := asTable(arg(args, n))
	if !ok {
		st.argTypeError(args, n, "table")
	}
	return t
}

// checkFunction returns argument n, which must be a function.
func (st *State) checkFunction(args []Value, n int) Value {
	f := arg(args, n)
	if _, ok := f.(*lua.LFunction); !ok {
		st.argTypeError(args, n, "function")
	}
	return f
}
