package lua

import (
	"strconv"
	"sync/atomic"
)

// Value is a Lua value; the zero Value is nil. Values of one State must not be
// handed to another, but for constants and frozen tables.
type Value struct {
	ref any // nil, number, boolean, *String, *Table, *closure, *Builtin, *thread, *Light or, in registers only, *cell
	num float64
}

// number and boolean mark a Value whose content is in num. They are empty, so
// that making such a Value allocates nothing.
type (
	number  struct{}
	boolean struct{}
)

// Nil, True and False are the values without content.
var (
	Nil   = Value{}
	True  = Value{ref: boolean{}, num: 1}
	False = Value{ref: boolean{}, num: 0}
)

// String is a Lua string: bytes with the hash that tables use.
type String struct {
	s    string
	hash uint32
}

// Light is a light userdata: a name without content, such as cjson.null.
type Light struct {
	name string
	id   uint32
}

// Builtin is a function written in Go. args are valid during the call only; the
// results are valid until the next call into the State.
type Builtin struct {
	name string
	fn   func(st *State, args []Value) []Value
	id   uint32
}

// shared counts the objects that all States share.
var shared atomic.Uint32

func sharedID() uint32 { return shared.Add(1) }

// firstID is the number of the first object of a run: those of the libraries
// come before it.
const firstID = 1 << 16

// identity stands in for the address of an object, which Lua hashes and prints:
// a number counted from the start of the run.
func identity(v Value) uint32 {
	switch r := v.ref.(type) {
	case *Table:
		return r.id
	case *closure:
		return r.id
	case *Builtin:
		return r.id
	case *thread:
		return r.id
	case *Light:
		return r.id
	}
	return 0
}

// NewBuiltin makes a function value; it may be shared by all States.
func NewBuiltin(name string, fn func(st *State, args []Value) []Value) Value {
	return Value{ref: &Builtin{name, fn, sharedID()}}
}

// NewLight makes a light userdata that tostring shows as "userdata: name".
func NewLight(name string) Value { return Value{ref: &Light{name, sharedID()}} }

// Number is a number value.
func Number(f float64) Value { return Value{number{}, f} }

// Int is a number value.
func Int(n int) Value { return Value{number{}, float64(n)} }

// Bool is a boolean value.
func Bool(b bool) Value {
	if b {
		return True
	}
	return False
}

// Const is a string that no State pays for: names and fixed texts.
func Const(s string) Value { return Value{ref: newString(s)} }

func newString(s string) *String { return &String{s, hashString(s)} }

// IsNil reports whether the value is nil.
func (v Value) IsNil() bool { return v.ref == nil }

func (v Value) isNumber() bool { _, ok := v.ref.(number); return ok }

// Truth is the value as a condition: all but nil and false are true.
func (v Value) Truth() bool {
	if v.ref == nil {
		return false
	}
	if _, ok := v.ref.(boolean); ok {
		return v.num != 0
	}
	return true
}

// AsBool returns the content of a boolean.
func (v Value) AsBool() (b, ok bool) { _, ok = v.ref.(boolean); return v.num != 0, ok }

// AsNumber returns the content of a number, without coercion.
func (v Value) AsNumber() (float64, bool) { _, ok := v.ref.(number); return v.num, ok }

// AsString returns the content of a string, without coercion.
func (v Value) AsString() (string, bool) {
	if s, ok := v.ref.(*String); ok {
		return s.s, true
	}
	return "", false
}

// AsTable returns the table that the value is.
func (v Value) AsTable() (*Table, bool) { t, ok := v.ref.(*Table); return t, ok }

// ToNumber coerces numbers and numerals in strings.
func (v Value) ToNumber() (float64, bool) {
	switch r := v.ref.(type) {
	case number:
		return v.num, true
	case *String:
		return ParseNumber(r.s)
	}
	return 0, false
}

// ToString coerces strings and numbers.
func (v Value) ToString() (string, bool) {
	switch r := v.ref.(type) {
	case *String:
		return r.s, true
	case number:
		return FormatNumber(v.num), true
	}
	return "", false
}

// Same reports whether two values are the same object.
func (v Value) Same(o Value) bool { return rawEqual(v, o) }

// TypeName is what type() answers.
func (v Value) TypeName() string {
	switch v.ref.(type) {
	case nil:
		return "nil"
	case number:
		return "number"
	case boolean:
		return "boolean"
	case *String:
		return "string"
	case *Table:
		return "table"
	case *closure, *Builtin:
		return "function"
	case *thread:
		return "thread"
	}
	return "userdata"
}

// rawEqual is == without metamethods.
func rawEqual(a, b Value) bool {
	if s, ok := a.ref.(*String); ok {
		o, ok := b.ref.(*String)
		return ok && (s == o || s.s == o.s)
	}
	return a == b
}

// Text is tostring without metamethods. Objects show a number of the run, not
// an address: the same script prints the same text on every machine, and learns
// nothing of the process.
func Text(v Value) string {
	switch r := v.ref.(type) {
	case nil:
		return "nil"
	case boolean:
		return strconv.FormatBool(v.num != 0)
	case number:
		return FormatNumber(v.num)
	case *String:
		return r.s
	case *Light:
		return "userdata: " + r.name
	}
	id := "0x" + strconv.FormatUint(0x7f0000000000+uint64(identity(v))*0x20, 16)
	return v.TypeName() + ": " + id
}

// hashString is Lua 5.1's: it decides the order in which pairs shows keys.
func hashString(s string) uint32 {
	h := uint32(len(s))
	step := len(s)>>5 + 1
	for i := len(s); i >= step; i -= step {
		h ^= h<<5 + h>>2 + uint32(s[i-1])
	}
	return h
}
