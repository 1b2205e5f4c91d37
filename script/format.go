package script

import (
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

// spec is one directive of string.format, with C's flags, width and precision.
type spec struct {
	minus, plus, space, sharp, zero bool
	width                           int
	prec                            int // -1 when the directive has no precision
	verb                            byte
}

func strFormat(st *State, args []Value) []Value {
	format := st.CheckString(args, 1)
	out := NewBuffer(st)
	next := 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.AddByte(format[i])
			continue
		}
		i++
		if i < len(format) && format[i] == '%' {
			out.AddByte('%')
			continue
		}
		if next++; next > len(args) {
			st.ArgError(next, "no value")
		}
		var sp spec
		sp, i = st.parseSpec(format, i)
		out.Add(st.formatArg(args, next, sp))
	}
	st.Step(len(format) / charsPerStep)
	return st.Ret(st.NewString(out.String()))
}

// parseSpec parses a directive after its % and returns the index of its verb.
func (st *State) parseSpec(format string, i int) (spec, int) {
	sp := spec{prec: -1}
	start := i
	for ; i < len(format) && strings.IndexByte("-+ #0", format[i]) >= 0; i++ {
		switch format[i] {
		case '-':
			sp.minus = true
		case '+':
			sp.plus = true
		case ' ':
			sp.space = true
		case '#':
			sp.sharp = true
		case '0':
			sp.zero = true
		}
	}
	if i-start > 5 {
		st.Errorf("invalid format (repeated flags)")
	}
	digits := func() (n int) {
		for k := 0; k < 2 && i < len(format) && numeral.IsDigit(format[i]); k++ {
			n = n*10 + int(format[i]-'0')
			i++
		}
		return n
	}
	sp.width = digits()
	if i < len(format) && format[i] == '.' {
		i++
		sp.prec = digits()
	}
	if i < len(format) && numeral.IsDigit(format[i]) {
		st.Errorf("invalid format (width or precision too long)")
	}
	if i < len(format) {
		sp.verb = format[i]
	}
	return sp, i
}

func (st *State) formatArg(args []Value, n int, sp spec) string {
	switch sp.verb {
	case 'c':
		return sp.pad(string([]byte{byte(numeral.ToInt64(st.CheckNumber(args, n)))}))
	case 'd', 'i':
		return sp.integer(numeral.ToInt64(st.CheckNumber(args, n)))
	case 'o', 'u', 'x', 'X':
		return sp.unsigned(ToUint64(st.CheckNumber(args, n)))
	case 'e', 'E', 'f', 'g', 'G':
		f := st.CheckNumber(args, n)
		if st.Step(4); sp.prec > 17 || math.Abs(f) > 1e18 {
			st.Step(200) // exact decimals with all their digits are slow
		}
		return sp.float(f)
	case 'q':
		s := st.CheckString(args, n)
		st.Alloc(len(s) + 4*strings.Count(s, "\x00"))
		st.Step(len(s) / 16)
		return quote(s)
	case 's':
		s := st.CheckString(args, n)
		if sp.prec < 0 && len(s) >= 100 {
			return s // not padded, as in Lua
		}
		if i := strings.IndexByte(s, 0); i >= 0 {
			s = s[:i] // C's strings end at a zero byte
		}
		if sp.prec >= 0 {
			s = s[:min(sp.prec, len(s))]
		}
		return sp.pad(s)
	}
	verb := ""
	if sp.verb != 0 {
		verb = string([]byte{sp.verb})
	}
	st.Errorf("invalid option '%%%s' to 'format'", verb)
	return ""
}

// ToUint64 converts f to an unsigned integer as C does on x86.
func ToUint64(f float64) uint64 {
	if f >= 9223372036854775808 && f < 18446744073709551616 {
		return uint64(f)
	}
	return uint64(numeral.ToInt64(f))
}

// pad fills s with blanks up to the width.
func (sp spec) pad(s string) string {
	fill := strings.Repeat(" ", max(sp.width-len(s), 0))
	if sp.minus {
		return s + fill
	}
	return fill + s
}

// number pads a number to the width: with zeros between its sign and its
// digits, or with blanks before or after both.
func (sp spec) number(sign, digits string, zero bool) string {
	if zero && !sp.minus {
		digits = strings.Repeat("0", max(sp.width-len(sign)-len(digits), 0)) + digits
	}
	return sp.pad(sign + digits)
}

// minDigits pads an integer with zeros to the precision.
func (sp spec) minDigits(digits string) string {
	if sp.prec == 0 && digits == "0" {
		return ""
	}
	return strings.Repeat("0", max(sp.prec-len(digits), 0)) + digits
}

func (sp spec) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case sp.plus:
		return "+"
	case sp.space:
		return " "
	}
	return ""
}

func (sp spec) integer(n int64) string {
	digits := strings.TrimPrefix(strconv.FormatInt(n, 10), "-")
	return sp.number(sp.sign(n < 0), sp.minDigits(digits), sp.zero && sp.prec < 0)
}

func (sp spec) unsigned(n uint64) string {
	base, prefix := 10, ""
	switch sp.verb {
	case 'o':
		base = 8
	case 'x':
		base, prefix = 16, "0x"
	case 'X':
		base, prefix = 16, "0X"
	}
	digits := strconv.FormatUint(n, base)
	if sp.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	digits = sp.minDigits(digits)
	if !sp.sharp || n == 0 {
		prefix = ""
	}
	if sp.sharp && sp.verb == 'o' && !strings.HasPrefix(digits, "0") {
		digits = "0" + digits
	}
	return sp.number(prefix, digits, sp.zero && sp.prec < 0)
}

func (sp spec) float(f float64) string {
	negative := math.Signbit(f)
	if s, ok := numeral.FormatSpecial(f); ok {
		s = strings.TrimPrefix(s, "-")
		if sp.verb < 'a' {
			s = strings.ToUpper(s)
		}
		return sp.number(sp.sign(negative), s, false)
	}
	prec := sp.prec
	if prec < 0 {
		prec = 6
	}
	var s string
	switch f = math.Abs(f); sp.verb {
	case 'e', 'E', 'f':
		s = strconv.FormatFloat(f, sp.verb, prec, 64)
		if sp.sharp && prec == 0 {
			s = addPoint(s)
		}
	default:
		s = sp.general(f, max(prec, 1))
	}
	return sp.number(sp.sign(negative), s, sp.zero)
}

// general formats f with %g. The flag # keeps trailing zeros.
func (sp spec) general(f float64, prec int) string {
	s := strconv.FormatFloat(f, sp.verb, prec, 64)
	if !sp.sharp {
		return s
	}
	mantissa, exp := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exp = s[:i], s[i:]
	}
	digits := strings.TrimLeft(strings.Replace(mantissa, ".", "", 1), "0")
	if f == 0 {
		digits = "0"
	}
	mantissa = addPoint(mantissa)
	return mantissa + strings.Repeat("0", max(prec-len(digits), 0)) + exp
}

func addPoint(s string) string {
	if strings.Contains(s, ".") {
		return s
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		return s[:i] + "." + s[i:]
	}
	return s + "."
}

// quote implements %q: it returns a literal that Lua reads back as s.
func quote(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 3*strings.Count(s, "\x00") + 2)
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\r':
			b.WriteString(`\r`)
		case 0:
			b.WriteString(`\000`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
