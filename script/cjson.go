package script

import (
	"fmt"
	"math"
	"strconv"

	lua "github.com/yuin/gopher-lua"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

// jsonConfig holds the settings of a cjson library. Each run begins with the
// defaults. In Redis, the settings that a script changes also apply to all later
// scripts on the same server, until SCRIPT FLUSH or a restart. A cluster cannot
// reproduce that.
type jsonConfig struct {
	sparseConvert           bool
	sparseRatio, sparseSafe int
	encodeDepth             int
	decodeDepth             int
	encodeInvalid           string // off, on or null
	decodeInvalid           bool
	keepBuffer              bool
	precision               int
}

var defaultJSON = jsonConfig{
	sparseRatio: 2, sparseSafe: 10, encodeDepth: 1000, decodeDepth: 1000,
	encodeInvalid: "off", decodeInvalid: true, keepBuffer: true, precision: 14,
}

// jsonNull represents null, because a table cannot hold nil.
var jsonNull Value = &lua.LUserData{Metatable: Nil}

// jsonLibrary makes a cjson table. If st is nil, it makes the table that all
// runs share, which uses the configuration of the current run. Otherwise it
// makes a table for one run, with a configuration of its own.
func jsonLibrary(st *State) *Table {
	t := newTable()
	var cfg *jsonConfig
	if st != nil {
		st.Alloc(8 << 10)
		own := defaultJSON
		cfg = &own
	}
	fn := func(name string, f func(st *State, cfg *jsonConfig, args []Value) []Value) {
		t.RawSetString(name, builtin(func(st *State, args []Value) []Value {
			c := cfg
			if c == nil {
				c = &st.json
			}
			return f(st, c, args)
		}))
	}
	fn("encode", jsonEncode)
	fn("decode", jsonDecode)
	fn("encode_sparse_array", jsonSparseArray)
	fn("encode_max_depth", func(st *State, c *jsonConfig, args []Value) []Value {
		return jsonInt(st, args, 1, &c.encodeDepth, 1, intMax)
	})
	fn("decode_max_depth", func(st *State, c *jsonConfig, args []Value) []Value {
		return jsonInt(st, args, 1, &c.decodeDepth, 1, intMax)
	})
	fn("encode_number_precision", func(st *State, c *jsonConfig, args []Value) []Value {
		return jsonInt(st, args, 1, &c.precision, 1, 14)
	})
	fn("encode_keep_buffer", func(st *State, c *jsonConfig, args []Value) []Value {
		return jsonBool(st, args, 1, &c.keepBuffer)
	})
	fn("encode_invalid_numbers", jsonEncodeInvalid)
	fn("decode_invalid_numbers", func(st *State, c *jsonConfig, args []Value) []Value {
		return jsonBool(st, args, 1, &c.decodeInvalid)
	})
	t.RawSetString("new", builtin(func(st *State, _ []Value) []Value {
		return st.Ret(jsonLibrary(st))
	}))
	t.RawSetString("null", jsonNull)
	t.RawSetString("_NAME", Const("cjson"))
	t.RawSetString("_VERSION", Const("2.1.0"))
	return t
}

// jsonGiven reports whether argument n was given. If it was not, a function for a
// setting returns the current value.
func jsonGiven(args []Value, n int) bool { return n <= len(args) && !(args[n-1] == Nil) }

func jsonInt(st *State, args []Value, n int, at *int, low, high int) []Value {
	if jsonGiven(args, n) {
		v := st.CheckInt(args, n)
		if v < low || v > high {
			st.ArgError(n, fmt.Sprintf("expected integer between %d and %d", low, high))
		}
		*at = v
	}
	return st.Ret(Int(*at))
}

func jsonBool(st *State, args []Value, n int, at *bool) []Value {
	if jsonGiven(args, n) {
		if b, ok := asBool(args[n-1]); ok {
			*at = b
		} else {
			*at = jsonOption(st, args, n, "off", "on") == "on"
		}
	}
	return st.Ret(Bool(*at))
}

func jsonOption(st *State, args []Value, n int, options ...string) string {
	s := st.CheckString(args, n)
	for _, o := range options {
		if s == o {
			return o
		}
	}
	st.ArgError(n, "invalid option '"+s+"'")
	return ""
}

func jsonEncodeInvalid(st *State, c *jsonConfig, args []Value) []Value {
	if jsonGiven(args, 1) {
		if b, ok := asBool(args[0]); ok {
			c.encodeInvalid = map[bool]string{false: "off", true: "on"}[b]
		} else {
			c.encodeInvalid = jsonOption(st, args, 1, "off", "on", "null")
		}
	}
	if c.encodeInvalid == "null" {
		return st.Ret(Const("null"))
	}
	return st.Ret(Bool(c.encodeInvalid == "on"))
}

func jsonSparseArray(st *State, c *jsonConfig, args []Value) []Value {
	jsonBool(st, args, 1, &c.sparseConvert)
	jsonInt(st, args, 2, &c.sparseRatio, 0, intMax)
	jsonInt(st, args, 3, &c.sparseSafe, 0, intMax)
	return []Value{Bool(c.sparseConvert), Int(c.sparseRatio), Int(c.sparseSafe)}
}

// jsonEncoder is the state of one call of cjson.encode. It collects the JSON
// text in out.
type jsonEncoder struct {
	st  *State
	cfg *jsonConfig
	out Buffer
}

func jsonEncode(st *State, cfg *jsonConfig, args []Value) []Value {
	if len(args) != 1 {
		st.ArgError(1, "expected 1 argument")
	}
	e := &jsonEncoder{st: st, cfg: cfg, out: NewBuffer(st)}
	e.value(args[0], 0)
	return st.Ret(st.NewString(e.out.String()))
}

func (e *jsonEncoder) fail(v Value, reason string) {
	e.st.Errorf("Cannot serialise %s: %s", typeName(v), reason)
}

func (e *jsonEncoder) value(v Value, depth int) {
	e.st.Step(1)
	if s, ok := asString(v); ok {
		e.text(s)
		return
	}
	if f, ok := asNumber(v); ok {
		e.number(v, f)
		return
	}
	if b, ok := asBool(v); ok {
		e.out.Add(strconv.FormatBool(b))
		return
	}
	if t, ok := asTable(v); ok {
		e.table(t, depth+1)
		return
	}
	if (v == Nil) || v == jsonNull {
		e.out.Add("null")
		return
	}
	e.fail(v, "type not supported")
}

func (e *jsonEncoder) number(v Value, f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		switch {
		case e.cfg.encodeInvalid == "off":
			e.fail(v, "must not be NaN or Inf")
		case e.cfg.encodeInvalid == "null":
			e.out.Add("null")
			return
		case math.IsNaN(f):
			e.out.Add("nan")
			return
		}
	}
	e.out.Add(numeral.FormatG(f, e.cfg.precision))
}

const hexDigits = "0123456789abcdef"

// text writes a string. It escapes slashes, so that the text can be embedded in
// HTML.
func (e *jsonEncoder) text(s string) {
	e.out.AddByte('"')
	start := 0
	for i := 0; i < len(s); i++ {
		esc := ""
		switch c := s[i]; {
		case c == '"':
			esc = `\"`
		case c == '\\':
			esc = `\\`
		case c == '/':
			esc = `\/`
		case c == '\b':
			esc = `\b`
		case c == '\t':
			esc = `\t`
		case c == '\n':
			esc = `\n`
		case c == '\f':
			esc = `\f`
		case c == '\r':
			esc = `\r`
		case c < 32 || c == 127:
			esc = `\u00` + string([]byte{hexDigits[c>>4], hexDigits[c&15]})
		default:
			continue
		}
		e.out.Add(s[start:i])
		e.out.Add(esc)
		start = i + 1
	}
	e.out.Add(s[start:])
	e.out.AddByte('"')
	e.st.Step(len(s) >> 6)
}

func (e *jsonEncoder) table(t *Table, depth int) {
	if depth > e.cfg.encodeDepth {
		e.st.Errorf("Cannot serialise, excessive nesting (%d)", depth)
	}
	e.st.Deepen(jsonDepth)
	defer e.st.Deepen(-jsonDepth)
	if n := e.arrayLength(t); n > 0 {
		e.out.AddByte('[')
		for i := 1; i <= n; i++ {
			if i > 1 {
				e.out.AddByte(',')
			}
			e.value(getInt(t, i), depth)
		}
		e.out.AddByte(']')
		return
	}
	e.out.AddByte('{')
	first := true
	for k := Nil; ; first = false {
		var v Value
		if k, v = e.st.next(t, k); k == Nil {
			break
		}
		if !first {
			e.out.AddByte(',')
		}
		if f, ok := asNumber(k); ok {
			e.out.AddByte('"')
			e.number(k, f)
			e.out.AddByte('"')
		} else if s, ok := asString(k); ok {
			e.text(s)
		} else {
			e.fail(k, "table key must be a number or string")
		}
		e.out.AddByte(':')
		e.value(v, depth)
	}
	e.out.AddByte('}')
}

// jsonDepth is the number that one level of nesting adds to State.nested.
const jsonDepth = 1

// arrayLength returns the length of a table that is a list, or -1 if the table
// is not a list.
func (e *jsonEncoder) arrayLength(t *Table) int {
	most, items := int32(0), 0.0
	for k := Nil; ; items++ {
		if k, _ = e.st.next(t, k); k == Nil {
			break
		}
		e.st.Step(1)
		f, ok := asNumber(k)
		if !ok || f < 1 || f != math.Floor(f) {
			return -1
		}
		switch {
		case f > math.MaxInt32: // C's conversion to int yields the smallest int
			most = math.MinInt32
		case f > float64(most):
			most = int32(f)
		}
	}
	if m := float64(most); e.cfg.sparseRatio > 0 && m > items*float64(e.cfg.sparseRatio) &&
		m > float64(e.cfg.sparseSafe) {
		if !e.cfg.sparseConvert {
			e.fail(t, "excessively sparse array")
		}
		return -1
	}
	return int(most)
}
