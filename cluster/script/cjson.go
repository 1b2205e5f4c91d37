package script

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-kv/holdfast/cluster/script/lua"
)

// jsonConfig holds the settings of a cjson library. A run begins with the
// defaults: in Redis a script's settings stay for all that follow, on one node
// and until it restarts, which a cluster cannot have.
type jsonConfig struct {
	sparseConvert           bool
	sparseRatio, sparseSafe int
	encodeDepth             int
	decodeDepth             int
	encodeInvalid           string // off, on, null
	decodeInvalid           bool
	keepBuffer              bool
	precision               int
}

var defaultJSON = jsonConfig{
	sparseRatio: 2, sparseSafe: 10, encodeDepth: 1000, decodeDepth: 1000,
	encodeInvalid: "off", decodeInvalid: true, keepBuffer: true, precision: 14,
}

// jsonNull stands for null inside of tables, which cannot hold nil.
var jsonNull = lua.NewLight("(nil)")

// jsonLibrary makes the cjson table: the one that all runs share (st is nil),
// which works with the run's configuration, or one of a run with its own.
func jsonLibrary(st *lua.State) *lua.Table {
	t, builtin := lua.NewShared(16), lua.NewBuiltin
	var cfg *jsonConfig
	if st != nil {
		st.Alloc(1 << 10)
		t, builtin = st.NewTable(0, 16), st.NewBuiltin
		own := defaultJSON
		cfg = &own
	}
	fn := func(name string, f func(st *lua.State, cfg *jsonConfig, args []lua.Value) []lua.Value) {
		t.SetStr(name, builtin(name, func(st *lua.State, args []lua.Value) []lua.Value {
			c := cfg
			if c == nil {
				c = &hostRun(st).json
			}
			return f(st, c, args)
		}))
	}
	fn("encode", jsonEncode)
	fn("decode", jsonDecode)
	fn("encode_sparse_array", jsonSparseArray)
	fn("encode_max_depth", func(st *lua.State, c *jsonConfig, args []lua.Value) []lua.Value {
		return jsonInt(st, args, 1, &c.encodeDepth, 1, intMax)
	})
	fn("decode_max_depth", func(st *lua.State, c *jsonConfig, args []lua.Value) []lua.Value {
		return jsonInt(st, args, 1, &c.decodeDepth, 1, intMax)
	})
	fn("encode_number_precision", func(st *lua.State, c *jsonConfig, args []lua.Value) []lua.Value {
		return jsonInt(st, args, 1, &c.precision, 1, 14)
	})
	fn("encode_keep_buffer", func(st *lua.State, c *jsonConfig, args []lua.Value) []lua.Value {
		return jsonBool(st, args, 1, &c.keepBuffer)
	})
	fn("encode_invalid_numbers", jsonEncodeInvalid)
	fn("decode_invalid_numbers", func(st *lua.State, c *jsonConfig, args []lua.Value) []lua.Value {
		return jsonBool(st, args, 1, &c.decodeInvalid)
	})
	t.SetStr("new", builtin("new", func(st *lua.State, _ []lua.Value) []lua.Value {
		return st.Ret(jsonLibrary(st).Value())
	}))
	t.SetStr("null", jsonNull)
	t.SetStr("_NAME", lua.Const("cjson"))
	t.SetStr("_VERSION", lua.Const("2.1.0"))
	return t
}

// Settings: without an argument they only answer.

func jsonGiven(args []lua.Value, n int) bool { return n <= len(args) && !args[n-1].IsNil() }

func jsonInt(st *lua.State, args []lua.Value, n int, at *int, low, high int) []lua.Value {
	if jsonGiven(args, n) {
		v := st.CheckInt(args, n)
		if v < low || v > high {
			st.ArgError(n, fmt.Sprintf("expected integer between %d and %d", low, high))
		}
		*at = v
	}
	return st.Ret(lua.Int(*at))
}

func jsonBool(st *lua.State, args []lua.Value, n int, at *bool) []lua.Value {
	if jsonGiven(args, n) {
		if b, ok := args[n-1].AsBool(); ok {
			*at = b
		} else {
			*at = jsonOption(st, args, n, "off", "on") == "on"
		}
	}
	return st.Ret(lua.Bool(*at))
}

func jsonOption(st *lua.State, args []lua.Value, n int, options ...string) string {
	s := st.CheckString(args, n)
	for _, o := range options {
		if s == o {
			return o
		}
	}
	st.ArgError(n, "invalid option '"+s+"'")
	return ""
}

func jsonEncodeInvalid(st *lua.State, c *jsonConfig, args []lua.Value) []lua.Value {
	if jsonGiven(args, 1) {
		if b, ok := args[0].AsBool(); ok {
			c.encodeInvalid = map[bool]string{false: "off", true: "on"}[b]
		} else {
			c.encodeInvalid = jsonOption(st, args, 1, "off", "on", "null")
		}
	}
	if c.encodeInvalid == "null" {
		return st.Ret(lua.Const("null"))
	}
	return st.Ret(lua.Bool(c.encodeInvalid == "on"))
}

func jsonSparseArray(st *lua.State, c *jsonConfig, args []lua.Value) []lua.Value {
	jsonBool(st, args, 1, &c.sparseConvert)
	jsonInt(st, args, 2, &c.sparseRatio, 0, intMax)
	jsonInt(st, args, 3, &c.sparseSafe, 0, intMax)
	return []lua.Value{lua.Bool(c.sparseConvert), lua.Int(c.sparseRatio), lua.Int(c.sparseSafe)}
}

// Encoding.

type jsonEncoder struct {
	st  *lua.State
	cfg *jsonConfig
	out lua.Buffer
}

func jsonEncode(st *lua.State, cfg *jsonConfig, args []lua.Value) []lua.Value {
	if len(args) != 1 {
		st.ArgError(1, "expected 1 argument")
	}
	e := &jsonEncoder{st: st, cfg: cfg, out: lua.NewBuffer(st)}
	e.value(args[0], 0)
	return st.Ret(st.NewString(e.out.String()))
}

func (e *jsonEncoder) fail(v lua.Value, reason string) {
	e.st.Errorf("Cannot serialise %s: %s", v.TypeName(), reason)
}

func (e *jsonEncoder) value(v lua.Value, depth int) {
	e.st.Step(1)
	if s, ok := v.AsString(); ok {
		e.text(s)
		return
	}
	if f, ok := v.AsNumber(); ok {
		e.number(v, f)
		return
	}
	if b, ok := v.AsBool(); ok {
		e.out.Add(strconv.FormatBool(b))
		return
	}
	if t, ok := v.AsTable(); ok {
		e.table(t, depth+1)
		return
	}
	if v.IsNil() || v.Same(jsonNull) {
		e.out.Add("null")
		return
	}
	e.fail(v, "type not supported")
}

func (e *jsonEncoder) number(v lua.Value, f float64) {
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
	e.out.Add(lua.FormatG(f, e.cfg.precision))
}

const hexDigits = "0123456789abcdef"

// text writes a string. Slashes are escaped, so that a text can stand in HTML.
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

func (e *jsonEncoder) table(t *lua.Table, depth int) {
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
			e.value(t.GetInt(i), depth)
		}
		e.out.AddByte(']')
		return
	}
	e.out.AddByte('{')
	first := true
	for k := lua.Nil; ; first = false {
		var v lua.Value
		if k, v, _ = t.Next(k); k.IsNil() {
			break
		}
		if !first {
			e.out.AddByte(',')
		}
		if f, ok := k.AsNumber(); ok {
			e.out.AddByte('"')
			e.number(k, f)
			e.out.AddByte('"')
		} else if s, ok := k.AsString(); ok {
			e.text(s)
		} else {
			e.fail(k, "table key must be a number or string")
		}
		e.out.AddByte(':')
		e.value(v, depth)
	}
	e.out.AddByte('}')
}

// jsonDepth is what a level of nesting costs of the call depth.
const jsonDepth = 1

// arrayLength returns the length of a table that is a list, or -1.
func (e *jsonEncoder) arrayLength(t *lua.Table) int {
	most, items := 0.0, 0.0
	for k := lua.Nil; ; items++ {
		if k, _, _ = t.Next(k); k.IsNil() {
			break
		}
		e.st.Step(1)
		f, ok := k.AsNumber()
		if !ok || f < 1 || f != math.Floor(f) {
			return -1
		}
		most = max(most, f)
	}
	if e.cfg.sparseRatio > 0 && most > items*float64(e.cfg.sparseRatio) && most > float64(e.cfg.sparseSafe) {
		if !e.cfg.sparseConvert {
			e.fail(t.Value(), "excessively sparse array")
		}
		return -1
	}
	return int(min(most, intMax))
}

// Decoding.

type jsonToken int

const (
	jsonObjBegin jsonToken = iota
	jsonObjEnd
	jsonArrBegin
	jsonArrEnd
	jsonString
	jsonNumber
	jsonBoolean
	jsonNil
	jsonColon
	jsonComma
	jsonEnd
	jsonError
)

var jsonTokenNames = [...]string{"T_OBJ_BEGIN", "T_OBJ_END", "T_ARR_BEGIN", "T_ARR_END", "T_STRING", "T_NUMBER",
	"T_BOOLEAN", "T_NULL", "T_COLON", "T_COMMA", "T_END"}

type jsonDecoder struct {
	st  *lua.State
	cfg *jsonConfig
	src string
	pos int

	tok   jsonToken
	at    int // position of the token
	str   string
	num   float64
	truth bool
}

func jsonDecode(st *lua.State, cfg *jsonConfig, args []lua.Value) []lua.Value {
	if len(args) != 1 {
		st.ArgError(1, "expected 1 argument")
	}
	d := &jsonDecoder{st: st, cfg: cfg, src: st.CheckString(args, 1)}
	if len(d.src) >= 2 && (d.src[0] == 0 || d.src[1] == 0) {
		st.Errorf("JSON parser does not support UTF-16 or UTF-32")
	}
	d.next()
	v := d.value(0)
	d.next()
	if d.tok != jsonEnd {
		d.expected("the end")
	}
	return st.Ret(v)
}

func (d *jsonDecoder) expected(what string) {
	found := d.str
	if d.tok != jsonError {
		found = jsonTokenNames[d.tok]
	}
	d.st.Errorf("Expected %s but found %s at character %d", what, found, d.at+1)
}

func (d *jsonDecoder) char(i int) byte {
	if i < len(d.src) {
		return d.src[i]
	}
	return 0
}

// invalid makes the token an error at the present position.
func (d *jsonDecoder) invalid(what string) { d.tok, d.at, d.str = jsonError, d.pos, what }

func (d *jsonDecoder) next() {
	d.st.Step(1)
	start := d.pos
	for c := d.char(d.pos); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = d.char(d.pos) {
		d.pos++
	}
	d.st.Step((d.pos - start) >> 6)
	d.at = d.pos
	c := d.char(d.pos)
	if i := strings.IndexByte("{}[]", c); i >= 0 {
		d.tok = jsonToken(i)
		d.pos++
		return
	}
	rest := d.src[min(d.pos, len(d.src)):]
	switch {
	case c == 0:
		d.tok = jsonEnd
	case c == ':':
		d.tok = jsonColon
		d.pos++
	case c == ',':
		d.tok = jsonComma
		d.pos++
	case c == '"':
		d.quoted()
	case c == '-' || c >= '0' && c <= '9':
		if !d.cfg.decodeInvalid && invalidNumber(rest) {
			d.invalid("invalid number")
			return
		}
		d.number(rest)
	case strings.HasPrefix(rest, "true"):
		d.tok, d.truth = jsonBoolean, true
		d.pos += 4
	case strings.HasPrefix(rest, "false"):
		d.tok, d.truth = jsonBoolean, false
		d.pos += 5
	case strings.HasPrefix(rest, "null"):
		d.tok = jsonNil
		d.pos += 4
	case d.cfg.decodeInvalid && strings.IndexByte("+iInN", c) >= 0 && invalidNumber(rest):
		d.number(rest)
	default:
		d.invalid("invalid token")
	}
}

// invalidNumber reports whether C would read a number here that JSON does not
// have: a leading plus or zero, hexadecimal, inf, nan.
func invalidNumber(s string) bool {
	if strings.HasPrefix(s, "+") {
		return true
	}
	s = strings.TrimPrefix(s, "-")
	switch {
	case s == "":
		return false
	case s[0] == '0':
		return len(s) > 1 && (s[1] >= '0' && s[1] <= '9' || s[1]|0x20 == 'x')
	case s[0] >= '1' && s[0] <= '9':
		return false
	}
	word := strings.ToLower(s[:min(len(s), 3)])
	return word == "inf" || word == "nan"
}

func (d *jsonDecoder) number(rest string) {
	f, n := lua.ScanNumber(rest)
	if n == 0 {
		d.invalid("invalid number")
		return
	}
	d.tok, d.num = jsonNumber, f
	d.pos += n
}

// quoted reads a string.
func (d *jsonDecoder) quoted() {
	d.pos++
	end := d.pos
	for c := d.char(end); c != '"' && c != '\\' && c != 0; c = d.char(end) {
		end++
	}
	d.st.Step((end - d.pos) >> 6)
	if d.char(end) == '"' { // nothing to translate
		d.tok, d.str = jsonString, d.src[d.pos:end]
		d.pos = end + 1
		return
	}
	b := lua.NewBuffer(d.st)
	for {
		switch c := d.char(d.pos); c {
		case '"':
			d.pos++
			d.tok, d.str = jsonString, b.String()
			d.st.Step(len(d.str) >> 4)
			return
		case 0:
			d.invalid("unexpected end of string")
			return
		case '\\':
			if !d.escape(&b) {
				return
			}
		default:
			b.AddByte(c)
			d.pos++
		}
	}
}

const jsonEscapes, jsonEscaped = `"\/btnfr`, "\"\\/\b\t\n\f\r"

func (d *jsonDecoder) escape(b *lua.Buffer) bool {
	c := d.char(d.pos + 1)
	if i := strings.IndexByte(jsonEscapes, c); i >= 0 && c != 0 {
		b.AddByte(jsonEscaped[i])
		d.pos += 2
		return true
	}
	if c != 'u' {
		d.invalid("invalid escape code")
		return false
	}
	r, n := d.unicode()
	if n == 0 {
		d.invalid("invalid unicode escape code")
		return false
	}
	b.Add(string(utf8.AppendRune(nil, r)))
	d.pos += n
	return true
}

// unicode reads \uXXXX, or two of them for a character beyond 16 bits.
func (d *jsonDecoder) unicode() (r rune, n int) {
	hi, ok := d.hex4(d.pos)
	if !ok || hi >= 0xdc00 && hi < 0xe000 {
		return 0, 0
	}
	if hi < 0xd800 || hi >= 0xe000 {
		return hi, 6
	}
	lo, ok := d.hex4(d.pos + 6)
	if !ok || lo < 0xdc00 || lo >= 0xe000 {
		return 0, 0
	}
	return 0x10000 + (hi-0xd800)<<10 + lo - 0xdc00, 12
}

func (d *jsonDecoder) hex4(at int) (rune, bool) {
	if at+6 > len(d.src) || d.src[at:at+2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(d.src[at+2:at+6], 16, 16)
	return rune(n), err == nil
}

// value makes the value that begins with the current token.
func (d *jsonDecoder) value(depth int) lua.Value {
	switch d.tok {
	case jsonString:
		return d.st.NewString(d.str)
	case jsonNumber:
		return lua.Number(d.num)
	case jsonBoolean:
		return lua.Bool(d.truth)
	case jsonNil:
		return jsonNull
	case jsonObjBegin:
		return d.object(d.descend(depth))
	case jsonArrBegin:
		return d.array(d.descend(depth))
	}
	d.expected("value")
	return lua.Nil
}

func (d *jsonDecoder) descend(depth int) int {
	if depth++; depth > d.cfg.decodeDepth {
		d.st.Errorf("Found too many nested data structures (%d) at character %d", depth, d.pos)
	}
	return depth
}

func (d *jsonDecoder) object(depth int) lua.Value {
	d.st.Deepen(jsonDepth)
	defer d.st.Deepen(-jsonDepth)
	t := d.st.NewTable(0, 0)
	if d.next(); d.tok == jsonObjEnd {
		return t.Value()
	}
	for {
		if d.tok != jsonString {
			d.expected("object key string")
		}
		key := d.st.NewString(d.str)
		if d.next(); d.tok != jsonColon {
			d.expected("colon")
		}
		d.next()
		d.st.RawSet(t, key, d.value(depth))
		if d.next(); d.tok == jsonObjEnd {
			return t.Value()
		}
		if d.tok != jsonComma {
			d.expected("comma or object end")
		}
		d.next()
	}
}

func (d *jsonDecoder) array(depth int) lua.Value {
	d.st.Deepen(jsonDepth)
	defer d.st.Deepen(-jsonDepth)
	t := d.st.NewTable(0, 0)
	if d.next(); d.tok == jsonArrEnd {
		return t.Value()
	}
	for i := 1; ; i++ {
		t.SetInt(i, d.value(depth))
		if d.next(); d.tok == jsonArrEnd {
			return t.Value()
		}
		if d.tok != jsonComma {
			d.expected("comma or array end")
		}
		d.next()
	}
}
