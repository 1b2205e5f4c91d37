// Package number parses and prints numbers exactly as Redis does: integers,
// doubles, and the x87 long doubles that INCRBYFLOAT adds. The digits do not
// depend on the processor, so all nodes print the same digits.
package number

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unsafe"
)

// ParseInt parses a decimal integer as strictly as Redis does. The only sign
// that it accepts is '-'. It rejects leading zeros, blanks and numbers that
// exceed 64 bits.
func ParseInt(b []byte) (n int64, ok bool) {
	s := unsafe.String(unsafe.SliceData(b), len(b)) // safe, because strconv does not keep it
	if len(s) == 0 || len(s) > 20 {
		return 0, false
	}
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	if len(digits) == 0 || digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && len(s) > 1) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// LongDoubleBits is the width of the mantissa of the x87 long double, the type
// in which Redis adds for INCRBYFLOAT. With this width, the sum of 0.1 and 0.2
// is printed as 0.3.
const LongDoubleBits = 64

// These constants are the range of the exponents that big.Float.MantExp returns
// for long doubles. All finite long doubles are below 2^16384, about 1.19e4932.
// The smallest positive long double is 2^-16445. Numbers below half of it,
// 2^-16446, are rounded to zero.
const (
	maxLongDoubleExp = 16384
	minLongDoubleExp = -16445
)

// maxLongDoubleText is the length of the longest text that Redis parses as a
// long double.
const maxLongDoubleText = 5*1024 - 1

// ParseLongDouble parses a text that C's strtold consumes entirely, including
// hexadecimal numbers and infinities. It rejects NaN, leading blanks, and
// numbers that overflow or that underflow to zero.
func ParseLongDouble(b []byte) (*big.Float, bool) {
	s := strings.ToLower(string(b))
	if s == "" || len(s) > maxLongDoubleText || strings.ContainsAny(s, " \t\r\n\v\f_") {
		return nil, false
	}
	digits := strings.TrimLeft(s[:1], "+-") + s[1:]
	base := 10
	switch {
	case digits == "inf" || digits == "infinity":
		return new(big.Float).SetInf(s[0] == '-'), true
	case strings.HasPrefix(digits, "0x"):
		base = 0 // big.ParseFloat takes the base from the prefix and allows a binary exponent
	case strings.Contains(digits, "p"):
		return nil, false
	}
	f, _, err := big.ParseFloat(s, base, LongDoubleBits, big.ToNearestEven)
	if err != nil || f.IsInf() || !inLongDouble(f) {
		return nil, false
	}
	return f, true
}

func inLongDouble(f *big.Float) bool {
	exp := f.MantExp(nil)
	return f.Sign() == 0 || exp <= maxLongDoubleExp && exp >= minLongDoubleExp
}

// AddLongDouble returns a + b. It reports false if the sum is not finite.
func AddLongDouble(a, b *big.Float) (*big.Float, bool) {
	if a.IsInf() || b.IsInf() {
		return nil, false
	}
	sum := new(big.Float).SetPrec(LongDoubleBits).SetMode(big.ToNearestEven).Add(a, b)
	return sum, sum.MantExp(nil) <= maxLongDoubleExp
}

// FormatLongDouble prints f in the "human" form of Redis: at most 17 digits
// after the decimal point, no trailing zeros and no exponent.
func FormatLongDouble(f *big.Float) string {
	s := f.Text('f', 17)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

// AddOverflows reports whether a + b overflows 64 bits.
func AddOverflows(a, b int64) bool {
	return (b > 0 && a > math.MaxInt64-b) || (b < 0 && a < math.MinInt64-b)
}

// ParseFloat parses a text that C's strtod consumes entirely, including
// hexadecimal numbers and infinities. It rejects NaN, leading blanks, and
// numbers that overflow or that underflow to zero.
func ParseFloat(b []byte) (f float64, ok bool) {
	if len(b) == 0 || b[0] == ' ' || '\t' <= b[0] && b[0] <= '\r' {
		return 0, false
	}
	f, inRange, ok := Strtod(string(b))
	return f, ok && inRange && !math.IsNaN(f)
}

// Strtod parses s as C's strtod does. ok is false if strtod would not consume
// all of s, or if s begins with a blank. inRange is false if a finite number
// was rounded to infinity, or a number other than zero to zero.
func Strtod(s string) (f float64, inRange, ok bool) {
	digits := strings.ToLower(strings.TrimLeft(s[:min(1, len(s))], "+-") + s[min(1, len(s)):])
	if strings.ContainsAny(s, "_ ") {
		return 0, false, false
	}
	if strings.HasPrefix(digits, "0x") && !strings.Contains(digits, "p") {
		s += "p0" // Go requires the exponent
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false, false
	}
	if f == 0 {
		mantissa, _, _ := strings.Cut(digits, "e")
		if strings.HasPrefix(digits, "0x") {
			mantissa, _, _ = strings.Cut(digits[2:], "p")
			return f, !strings.ContainsAny(mantissa, "123456789abcdef"), true
		}
		return f, !strings.ContainsAny(mantissa, "123456789"), true
	}
	return f, err == nil, true
}

// FormatDouble prints a double as Redis does: with 17 significant digits, or as
// an integer if it is integral and has at most 17 digits.
func FormatDouble(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}
