// Package numeral converts between numbers and texts as Lua does, which means as
// C does.
package numeral

import (
	"math"
	"strconv"
	"strings"
)

// Format formats a number as Lua does, with C's %.14g.
func Format(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e14 && (f != 0 || !math.Signbit(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return FormatG(f, 14)
}

// FormatG formats a number as C's %.<prec>g does. Like C, it shows the sign of a
// NaN.
func FormatG(f float64, prec int) string {
	if s, ok := FormatSpecial(f); ok {
		return s
	}
	return strconv.FormatFloat(f, 'g', max(prec, 1), 64)
}

// FormatSpecial formats infinities and NaN, which have no digits.
func FormatSpecial(f float64) (string, bool) {
	switch {
	case math.IsNaN(f) && math.Signbit(f):
		return "-nan", true
	case math.IsNaN(f):
		return "nan", true
	case math.IsInf(f, 1):
		return "inf", true
	case math.IsInf(f, -1):
		return "-inf", true
	}
	return "", false
}

// ToInt64 converts f as a C compiler for x86 does. It rounds toward zero, and
// returns the smallest integer for all values that do not fit.
func ToInt64(f float64) int64 {
	if f >= -9223372036854775808 && f < 9223372036854775808 {
		return int64(f)
	}
	return math.MinInt64
}

// Spaces are the characters that isspace accepts in C.
const Spaces = " \t\n\v\f\r"

// Parse parses a numeral as strtod does. The numeral may be decimal,
// hexadecimal, inf or nan, with white space around it.
func Parse(s string) (float64, bool) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i] // a C string ends at a zero byte
	}
	s = strings.Trim(s, Spaces)
	if n := len(s); n > 0 && n < 16 { // the common case: a short integer
		v, neg, i := int64(0), false, 0
		if s[0] == '-' {
			neg, i = true, 1
		}
		for ; i < n && s[i]-'0' <= 9; i++ {
			v = v*10 + int64(s[i]-'0')
		}
		if i == n && s[n-1] != '-' && (v != 0 || !neg) {
			if neg {
				v = -v
			}
			return float64(v), true
		}
	}
	sign, body := "", s
	if body != "" && (body[0] == '-' || body[0] == '+') {
		sign, body = body[:1], body[1:]
	}
	if body == "" {
		return 0, false
	}
	switch c := body[0]; {
	case c == 'i' || c == 'I' || c == 'n' || c == 'N':
		return parseSpecial(sign, strings.ToLower(body))
	case c != '.' && (c < '0' || c > '9'):
		return 0, false
	}
	if strings.IndexByte(body, '_') >= 0 {
		return 0, false // Go accepts _ between digits, C does not
	}
	if len(body) > 1 && (body[1] == 'x' || body[1] == 'X') {
		if !strings.ContainsAny(body, "pP") {
			body += "p0"
		}
	}
	f, err := strconv.ParseFloat(sign+body, 64)
	if err != nil && f == 0 { // a number out of range is infinity, as in strtod
		return 0, false
	}
	return f, true
}

func parseSpecial(sign, body string) (float64, bool) {
	var f float64
	switch body {
	case "inf", "infinity":
		f = math.Inf(1)
	case "nan":
		f = math.NaN()
	default:
		return 0, false
	}
	if sign == "-" {
		f = math.Copysign(f, -1)
	}
	return f, true
}

// ToBits rounds f to the nearest integer, half to even, and returns the low 32
// bits. It does so as LuaBitOp does: it adds 2^52 + 2^51 and takes the bits of
// the mantissa.
func ToBits(f float64) uint32 { return uint32(math.Float64bits(f + 6755399441055744)) }

// Scan parses the longest numeral at the start of s, as strtod does. It
// returns the number of bytes of the numeral, or 0 when there is none.
func Scan(s string) (f float64, n int) {
	i := 0
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	word := strings.ToLower(s[i:min(len(s), i+8)])
	switch {
	case word == "infinity":
		i += 8
	case strings.HasPrefix(word, "inf"), strings.HasPrefix(word, "nan"):
		i += 3
	default:
		i = scanDigits(s, i)
	}
	f, ok := Parse(s[:i])
	if !ok {
		return 0, 0
	}
	return f, i
}

// scanDigits returns the end of the digits, point and exponent that start at i.
func scanDigits(s string, i int) int {
	digits, exp := IsDigit, byte('e')
	if i+2 < len(s) && s[i] == '0' && s[i+1]|0x20 == 'x' && isHex(s[i+2]) {
		digits, exp = isHex, 'p'
		i += 2
	}
	start := i
	for i < len(s) && digits(s[i]) {
		i++
	}
	if i < len(s) && s[i] == '.' && (i > start || i+1 < len(s) && digits(s[i+1])) {
		for i++; i < len(s) && digits(s[i]); i++ {
		}
	}
	if i > start && i < len(s) && s[i]|0x20 == exp {
		j := i + 1
		if j < len(s) && (s[j] == '-' || s[j] == '+') {
			j++
		}
		if j < len(s) && IsDigit(s[j]) {
			for i = j; i < len(s) && IsDigit(s[i]); i++ {
			}
		}
	}
	return i
}

func isHex(c byte) bool { return IsDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// IsDigit reports whether c is a decimal digit.
func IsDigit(c byte) bool { return c >= '0' && c <= '9' }

// IsAlnum reports whether c is an ASCII letter or a decimal digit.
func IsAlnum(c byte) bool { return IsDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' }
