package script

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

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
	st  *State
	cfg *jsonConfig
	src string
	pos int

	tok   jsonToken
	at    int // offset of the token
	str   string
	num   float64
	truth bool
}

func jsonDecode(st *State, cfg *jsonConfig, args []Value) []Value {
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

// invalid makes the current token an error at the current offset.
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

// invalidNumber reports whether s begins with a number that C accepts but JSON does
// not allow: a number with a leading plus or zero, a hexadecimal number, inf or
// nan.
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
	f, n := numeral.Scan(rest)
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
	if d.char(end) == '"' { // no escape sequence to translate
		d.tok, d.str = jsonString, d.src[d.pos:end]
		d.pos = end + 1
		return
	}
	b := NewBuffer(d.st)
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

func (d *jsonDecoder) escape(b *Buffer) bool {
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

// value returns the value that begins with the current token.
func (d *jsonDecoder) value(depth int) Value {
	switch d.tok {
	case jsonString:
		return d.st.NewString(d.str)
	case jsonNumber:
		return Number(d.num)
	case jsonBoolean:
		return Bool(d.truth)
	case jsonNil:
		return jsonNull
	case jsonObjBegin:
		return d.object(d.descend(depth))
	case jsonArrBegin:
		return d.array(d.descend(depth))
	}
	d.expected("value")
	return Nil
}

func (d *jsonDecoder) descend(depth int) int {
	if depth++; depth > d.cfg.decodeDepth {
		d.st.Errorf("Found too many nested data structures (%d) at character %d", depth, d.pos)
	}
	return depth
}

func (d *jsonDecoder) object(depth int) Value {
	d.st.Deepen(jsonDepth)
	defer d.st.Deepen(-jsonDepth)
	t := d.st.NewTable(0, 0)
	if d.next(); d.tok == jsonObjEnd {
		return t
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
			return t
		}
		if d.tok != jsonComma {
			d.expected("comma or object end")
		}
		d.next()
	}
}

func (d *jsonDecoder) array(depth int) Value {
	d.st.Deepen(jsonDepth)
	defer d.st.Deepen(-jsonDepth)
	t := d.st.NewTable(0, 0)
	if d.next(); d.tok == jsonArrEnd {
		return t
	}
	for i := 1; ; i++ {
		d.st.setInt(t, i, d.value(depth))
		if d.next(); d.tok == jsonArrEnd {
			return t
		}
		if d.tok != jsonComma {
			d.expected("comma or array end")
		}
		d.next()
	}
}
