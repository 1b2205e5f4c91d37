package script

import (
	"strconv"

	lua "github.com/yuin/gopher-lua"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

// Value is a Lua value: lua.LNumber, lua.LString, lua.LBool, *Table,
// *lua.LFunction, *lua.LUserData, *lua.LState (a coroutine) or Nil.
type Value = lua.LValue

// Table is a Lua table. A table that scripts can reach must only be changed
// through State, which charges for the change and knows which tables are
// read-only.
type Table = lua.LTable

// Nil, True and False are the constant values of type nil and boolean.
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

// Number returns f as a Lua number.
func Number(f float64) Value { return lua.LNumber(f) }

// Int returns n as a Lua number.
func Int(n int) Value {
	if n >= 0 && n < len(smallInts) {
		return smallInts[n]
	}
	return lua.LNumber(n)
}

// Bool returns b as a Lua boolean.
func Bool(b bool) Value {
	if b {
		return True
	}
	return False
}

// Const returns s as a string that no State is charged for. It is meant for
// names and fixed texts.
func Const(s string) Value { return lua.LString(s) }

func truth(v Value) bool { return v != Nil && v != False }

// asBool returns the boolean that v holds.
func asBool(v Value) (b, ok bool) {
	l, ok := v.(lua.LBool)
	return bool(l), ok
}

// asNumber returns the number that v holds, without coercion.
func asNumber(v Value) (float64, bool) {
	n, ok := v.(lua.LNumber)
	return float64(n), ok
}

// asString returns the string that v holds, without coercion.
func asString(v Value) (string, bool) {
	s, ok := v.(lua.LString)
	return string(s), ok
}

func asTable(v Value) (*Table, bool) {
	t, ok := v.(*Table)
	return t, ok
}

// toNumber returns v as a number. It coerces numerals in strings.
func toNumber(v Value) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return numeral.Parse(string(v))
	}
	return 0, false
}

// toString returns v as a string. It coerces numbers.
func toString(v Value) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return numeral.Format(float64(v)), true
	}
	return "", false
}

// typeName returns the result of Lua's type function for v.
func typeName(v Value) string { return v.Type().String() }

// rawEqual compares a and b like ==, without metamethods.
func rawEqual(a, b Value) bool { return a == b }

// text returns the text of v as tostring does, without metamethods. For an
// object, the text contains a number that the run gives to the object, instead
// of an address. Therefore the same script prints the same text on every node,
// and it learns nothing about the process.
func (st *State) text(v Value) string {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return numeral.Format(float64(v))
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
