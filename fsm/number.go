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

// longDoubleBits is the mantissa of the x87 long double in which Redis adds
// for INCRBYFLOAT: with the same width, 0.1 + 0.2 is 0.3 here too.
const longDoubleBits = 64

// maxLongDouble is where that type ends (2^16384, about 1.19e4932).
const maxLongDoubleExp = 16384

func parseLongDouble(b []byte) (*big.Float, bool) {
	s := string(b)
	if s == "" || len(s) > 5000 || strings.ContainsAny(s, " \t\r\n_pP") {
		return nil, false
	}
	f, _, err := big.ParseFloat(s, 10, longDoubleBits, big.ToNearestEven)
	if err != nil || f.IsInf() || f.MantExp(nil) > maxLongDoubleExp {
		return nil, false
	}
	return f, true
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
