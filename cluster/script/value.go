package script

import (
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// Value is a Lua value: lua.LNumber, lua.LString, lua.LBool, *Table,
// *lua.LFunction, *lua.LUserData, *lua.LState (a coroutine) or Nil.
type Value = lua.LValue

// Table is a Lua table. What scripts can reach must only be changed through
// State, which charges for it and knows which tables are read-only.
type Table = lua.LTable

// Nil, True and False are the values without content.
var (
	Nil   = lua.LNil
	True  = Value(lua.LTrue)
	False = Value(lua.LFalse)
)

var smallInts = func() (list [256]Value) {
	for i := range list {
		list[i] = lua.LNumber(i)
	}
	return list
}()

// Number is a number value.
func Number(f float64) Value { return lua.LNumber(f) }

// Int is a number value.
func Int(n int) Value {
	if n >= 0 && n < len(smallInts) {
		return smallInts[n]
	}
	return lua.LNumber(n)
}

// Bool is a boolean value.
func Bool(b bool) Value {
	if b {
		return True
	}
	return False
}

// Const is a string that no State pays for: names and fixed texts.
func Const(s string) Value { return lua.LString(s) }

func truth(v Value) bool { return v != Nil && v != False }

// asBool returns the content of a boolean.
func asBool(v Value) (b, ok bool) {
	l, ok := v.(lua.LBool)
	return bool(l), ok
}

// asNumber returns the content of a number, without coercion.
func asNumber(v Value) (float64, bool) {
	n, ok := v.(lua.LNumber)
	return float64(n), ok
}

// asString returns the content of a string, without coercion.
func asString(v Value) (string, bool) {
	s, ok := v.(lua.LString)
	return string(s), ok
}

func asTable(v Value) (*Table, bool) {
	t, ok := v.(*Table)
	return t, ok
}

// toNumber coerces numbers and numerals in strings.
func toNumber(v Value) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return ParseNumber(string(v))
	}
	return 0, false
}

// toString coerces strings and numbers.
func toString(v Value) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return FormatNumber(float64(v)), true
	}
	return "", false
}

// typeName is what type() answers.
func typeName(v Value) string { return v.Type().String() }

// rawEqual is == without metamethods.
func rawEqual(a, b Value) bool { return a == b }

// text is tostring without metamethods. Objects show a number of the run, not
// an address: the same script prints the same text on every machine, and learns
// nothing of the process.
func (st *State) text(v Value) string {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return FormatNumber(float64(v))
	case lua.LBool:
		return strconv.FormatBool(bool(v))
	case *lua.LUserData:
		if v == jsonNull {
			return "userdata: (nil)"
		}
	}
	if v == Nil {
		return "nil"
	}
	id, ok := st.ids[v]
	if !ok {
		st.Alloc(pairBytes)
		id = len(st.ids) + 1
		if st.ids == nil {
			st.ids = make(map[Value]int)
		}
		st.ids[v] = id
	}
	return typeName(v) + ": 0x" + strconv.FormatInt(0x7f0000000000+int64(id)*0x20, 16)
}
