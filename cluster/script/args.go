package script

import lua "github.com/yuin/gopher-lua"

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
	s, ok := toString(arg(args, n))
	if !ok {
		st.argTypeError(args, n, "string")
	}
	return s
}

// OptString is CheckString with a default for nil and nothing.
func (st *State) OptString(args []Value, n int, def string) string {
	if arg(args, n) == Nil {
		return def
	}
	return st.CheckString(args, n)
}

// CheckNumber wants a number or a numeral.
func (st *State) CheckNumber(args []Value, n int) float64 {
	f, ok := toNumber(arg(args, n))
	if !ok {
		st.argTypeError(args, n, "number")
	}
	return f
}

// CheckInt is CheckNumber, cut to an integer as C does.
func (st *State) CheckInt(args []Value, n int) int { return int(ToInt64(st.CheckNumber(args, n))) }

// OptInt is CheckInt with a default for nil and nothing.
func (st *State) OptInt(args []Value, n, def int) int {
	if arg(args, n) == Nil {
		return def
	}
	return st.CheckInt(args, n)
}

// CheckTable wants a table.
func (st *State) CheckTable(args []Value, n int) *Table {
	t, ok := asTable(arg(args, n))
	if !ok {
		st.argTypeError(args, n, "table")
	}
	return t
}

// checkFunction wants a function.
func (st *State) checkFunction(args []Value, n int) Value {
	f := arg(args, n)
	if _, ok := f.(*lua.LFunction); !ok {
		st.argTypeError(args, n, "function")
	}
	return f
}
