package fsm

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// parseInt reads a decimal as strictly as Redis does: no sign but '-', no
// leading zeros, no blanks, nothing beyond 64 bits.
func parseInt(b []byte) (int64, bool) {
	s := viewString(b)
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

// ParseInt reads a decimal as strictly as Redis does: no sign but '-', no leading
// zeros, no blanks, nothing beyond 64 bits.
func ParseInt(b []byte) (n int64, ok bool) { return parseInt(b) }

// longDoubleBits is the mantissa of the x87 long double in which Redis adds
// for INCRBYFLOAT: with the same width, 0.1 + 0.2 is 0.3 here too.
const longDoubleBits = 64

// Where that type ends, as big.Float counts exponents: 2^16384 is about
// 1.19e4932, and half of the least number above zero is 2^-16446.
const (
	maxLongDoubleExp = 16384
	minLongDoubleExp = -16445
)

// maxLongDoubleText is the longest text that Redis tries to read as one.
const maxLongDoubleText = 5*1024 - 1

// parseLongDouble reads what C's strtold reads to the end, hexadecimal and
// infinities included, and what is neither too large nor vanishes.
func parseLongDouble(b []byte) (*big.Float, bool) {
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
		base = 0 // by the prefix, which admits a binary exponent
	case strings.Contains(digits, "p"):
		return nil, false
	}
	f, _, err := big.ParseFloat(s, base, longDoubleBits, big.ToNearestEven)
	if err != nil || f.IsInf() || !inLongDouble(f) {
		return nil, false
	}
	return f, true
}

func inLongDouble(f *big.Float) bool {
	exp := f.MantExp(nil)
	return f.Sign() == 0 || exp <= maxLongDoubleExp && exp >= minLongDoubleExp
}

// addLongDouble returns a + b, or false if the sum is no number.
func addLongDouble(a, b *big.Float) (*big.Float, bool) {
	if a.IsInf() || b.IsInf() {
		return nil, false
	}
	sum := new(big.Float).SetPrec(longDoubleBits).SetMode(big.ToNearestEven).Add(a, b)
	return sum, sum.MantExp(nil) <= maxLongDoubleExp
}

// formatLongDouble prints as Redis' "human" form: 17 digits after the point at
// most, no trailing zeros, no exponent.
func formatLongDouble(f *big.Float) string {
	s := f.Text('f', 17)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

func addOverflows(a, b int64) bool {
	return (b > 0 && a > math.MaxInt64-b) || (b < 0 && a < math.MinInt64-b)
}
