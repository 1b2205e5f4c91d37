package script

import (
	"fmt"
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/holdfast-kv/holdfast/script/luac"
)

// hidden holds the functions that compiled scripts call in place of operations;
// see luac.
var hidden map[string]*lua.LFunction

func init() {
	hidden = map[string]*lua.LFunction{
		luac.HiddenSet:      builtin(opSet),
		luac.HiddenGlobal:   builtin(opGlobal),
		luac.HiddenConcat:   builtin(opConcat),
		luac.HiddenTable:    builtin(opTable),
		luac.HiddenFunction: builtin(opFunction),
		luac.HiddenLength:   builtin(opLength),
		luac.HiddenMinus:    builtin(opMinus),
		luac.HiddenModulo:   arithmetic("__mod", modulo),
		luac.HiddenFor:      builtin(opFor),
		luac.HiddenEach:     builtin(opEach),
		luac.HiddenVarargs:  builtin(opVarargs),
		luac.HiddenArg:      builtin(opArg),
	}
}

func opSet(st *State, args []Value) []Value {
	v, k, x := args[0], args[1], args[2]
	for range metaLoops {
		t, ok := v.(*Table)
		var h Value
		if ok {
			if t.Metatable == Nil || t.RawGet(k) != Nil {
				h = Nil
			} else {
				h = st.metamethod(t, "__newindex")
			}
			if h == Nil {
				if text := st.store(t, k, x); text != "" {
					st.opError(text)
				}
				return nil
			}
		} else if h = st.metamethod(v, "__newindex"); h == Nil {
			st.opError(typeErrorText(st.operand(0), "index", typeName(v)))
		}
		if _, ok := h.(*lua.LFunction); ok {
			st.Call(h, v, k, x)
			return nil
		}
		v = h
		st.Step(1)
	}
	st.opError("loop in settable")
	return nil
}

// opGlobal raises an error, because all globals are read-only, including those
// that do not exist.
func opGlobal(st *State, _ []Value) []Value {
	st.opError("Attempt to modify a readonly table")
	return nil
}

// opConcat joins values from the right, because .. is right-associative. It
// uses args as scratch space.
func opConcat(st *State, args []Value) []Value {
	for n := len(args); n > 1; {
		a, b := args[n-2], args[n-1]
		_, okA := textLen(a)
		size, okB := textLen(b)
		if !okA || !okB {
			h := st.metamethod(a, "__concat")
			if h == Nil {
				h = st.metamethod(b, "__concat")
			}
			if h == Nil {
				i := n - 2
				if okA {
					i = n - 1
				}
				st.opError(typeErrorText(st.operand(i), "concatenate", typeName(args[i])))
			}
			n--
			args[n-1] = st.call1(h, a, b)
			continue
		}
		from := n - 1
		for from > 0 {
			l, ok := textLen(args[from-1])
			if !ok {
				break
			}
			size += l
			from--
		}
		args[from] = st.join(args[from:n], size)
		n = from + 1
	}
	return st.Ret(args[0])
}

// textLen returns the maximum length of the text that concatenation makes of v.
// It returns false when v is neither a string nor a number.
func textLen(v Value) (int, bool) {
	switch v := v.(type) {
	case lua.LString:
		return len(v), true
	case lua.LNumber:
		return 32, true
	}
	return 0, false
}

func (st *State) join(vals []Value, size int) Value {
	st.Step(1 + size>>7)
	st.Alloc(size)
	var b strings.Builder
	b.Grow(size)
	for _, v := range vals {
		s, _ := toString(v)
		b.WriteString(s)
	}
	s := b.String()
	st.grewTo(len(s))
	st.Alloc(stringBytes)
	return lua.LString(s)
}

// opTable charges for the table args[0] that a constructor has made. It appends
// the remaining arguments to the table's list.
func opTable(st *State, args []Value) []Value {
	t := args[0].(*Table)
	n := t.MaxN()
	pairs := 0
	t.ForEach(func(k, _ Value) {
		if i, listed := k.(lua.LNumber); !listed || i < 1 || int(i) > n || lua.LNumber(int(i)) != i {
			pairs++
		}
	})
	// A table that grows by single assignments is charged pairBytes for each pair. The
	// constructor reserves room in advance, which takes up to twice as much.
	st.Alloc(tableBytes + n*slotBytes + pairs*2*pairBytes)
	st.Step((n + pairs) >> 3)
	for i, v := range args[1:] {
		st.setInt(t, n+1+i, v)
	}
	return st.Ret(t)
}

const closureBytes = 256

// opFunction charges for a new function.
func opFunction(st *State, args []Value) []Value {
	st.Alloc(closureBytes)
	return args
}

func opLength(st *State, args []Value) []Value {
	switch v := args[0].(type) {
	case lua.LString:
		return st.Ret(Int(len(v)))
	case *Table:
		return st.Ret(Int(st.length(v)))
	}
	st.opError(typeErrorText(st.operand(0), "get length of", typeName(args[0])))
	return nil
}

func opMinus(st *State, args []Value) []Value {
	if x, ok := toNumber(args[0]); ok {
		return st.Ret(Number(-x))
	}
	h := st.metamethod(args[0], "__unm")
	if h == Nil {
		st.opError(typeErrorText(st.operand(0), "perform arithmetic on", typeName(args[0])))
	}
	return st.Ret(st.call1(h, args[0], args[0]))
}

var forParts = [...]string{1: "initial value", 2: "limit", 3: "step"}

func opFor(st *State, args []Value) []Value {
	f, ok := toNumber(args[0])
	if !ok {
		part, _ := asNumber(args[1])
		st.opError(fmt.Sprintf("'for' %s must be a number", forParts[int(part)]))
	}
	return st.Ret(Number(f))
}

// opEach returns all three values of a generic for, because gopher-lua only sets as
// many of them as the loop has variables. If the first value cannot be called,
// opEach raises an error that names the type of that value. The error of gopher-lua
// does not name the type.
func opEach(st *State, args []Value) []Value {
	f := arg(args, 1)
	if _, ok := f.(*lua.LFunction); !ok {
		if _, ok := st.metamethod(f, "__call").(*lua.LFunction); !ok {
			st.opError(typeErrorText(nil, "call", typeName(f)))
		}
	}
	return []Value{f, arg(args, 2), arg(args, 3)}
}

// opVarargs does nothing: builtin has already charged for passing the
// arguments.
func opVarargs(*State, []Value) []Value { return nil }

func opArg(st *State, args []Value) []Value {
	t := st.NewTable(len(args), 1)
	for i, v := range args {
		st.setInt(t, i+1, v)
	}
	t.RawSetString("n", Int(len(args)))
	return st.Ret(t)
}

// operatorsOfStrings is the table that gopher-lua uses as the metatable of
// strings. gopher-lua parses numerals as Go does, so that "010" is 8.
// Arithmetic on strings therefore uses the metamethods of this table. Scripts
// see metaOfStrings instead.
var operatorsOfStrings = newTable()

func fillOperators() {
	t := operatorsOfStrings
	t.RawSetString("__index", stringTable)
	for name, f := range map[string]func(a, b float64) float64{
		"__add": func(a, b float64) float64 { return a + b },
		"__sub": func(a, b float64) float64 { return a - b },
		"__mul": func(a, b float64) float64 { return a * b },
		"__div": func(a, b float64) float64 { return a / b },
		"__mod": modulo,
		"__pow": math.Pow,
	} {
		t.RawSetString(name, arithmetic(name, f))
	}
}

// modulo computes a % b with the rounding of Lua 5.1, which gopher-lua's
// operator does not have.
func modulo(a, b float64) float64 { return a - float64(math.Floor(a/b)*b) }

// arithmetic returns a builtin that applies an operator to two values. f
// computes the result for two numbers, and name is the operator's metamethod.
func arithmetic(name string, f func(a, b float64) float64) *lua.LFunction {
	return builtin(func(st *State, args []Value) []Value {
		a, b := args[0], args[1]
		x, ok := toNumber(a)
		if ok {
			if y, ok := toNumber(b); ok {
				return st.Ret(Number(f(x, y)))
			}
		}
		h := st.metamethod(a, name)
		if h == Nil {
			h = st.metamethod(b, name)
		}
		if h != Nil {
			return st.Ret(st.call1(h, a, b))
		}
		bad := 0
		if ok {
			bad = 1
		}
		st.opError(typeErrorText(st.operand(bad), "perform arithmetic on", typeName(args[bad])))
		return nil
	})
}
