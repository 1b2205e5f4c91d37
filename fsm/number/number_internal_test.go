package number

import (
	"math"
	"strings"
	"testing"
)

func TestParseInt(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "1": 1, "-1": -1, "9223372036854775807": math.MaxInt64,
		"-9223372036854775808": math.MinInt64, "10": 10} {
		if got, ok := ParseInt([]byte(s)); !ok || got != want {
			t.Errorf("ParseInt(%q) = %d, %v; the number is wrong, or ok is not true", s, got, ok)
		}
	}
	for _, s := range []string{"", "-", "+1", "-0", "00", "01", "-01", " 1", "1 ", "1.0", "1e3", "0x1",
		"9223372036854775808", "-9223372036854775809", "123456789012345678901", "1\x00", "١"} {
		if n, ok := ParseInt([]byte(s)); ok {
			t.Errorf("ParseInt(%q) = %d, want ok to be false", s, n)
		}
	}
}

func TestAddOverflows(t *testing.T) {
	for _, c := range []struct {
		a, b int64
		want bool
	}{{math.MaxInt64, 0, false}, {math.MaxInt64, 1, true}, {math.MaxInt64, -1, false}, {math.MinInt64, -1, true},
		{math.MinInt64, 1, false}, {math.MinInt64, math.MaxInt64, false}, {-1, math.MinInt64, true},
		{1, math.MaxInt64, true}} {
		if got := AddOverflows(c.a, c.b); got != c.want {
			t.Errorf("AddOverflows(%d, %d) = %v, want the opposite", c.a, c.b, got)
		}
	}
}

func TestLongDouble(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"0.1", "0.2", "0.3"}, {"3", "0.14", "3.14"}, {"1e17", "1", "100000000000000001"}, {"-0", "-0", "0"},
		{"0x10", "0.5", "16.5"}, {"1e-400", "0", "0"}, {".5", "5.", "5.5"},
		{"10.5", "0.1", "10.6"}, {"18446744073709551615", "1", "18446744073709551616"}, {"1", "-1", "0"},
	} {
		a, ok1 := ParseLongDouble([]byte(c.a))
		b, ok2 := ParseLongDouble([]byte(c.b))
		if !ok1 || !ok2 {
			t.Errorf("ParseLongDouble fails for %q or %q", c.a, c.b)
			continue
		}
		sum, ok := AddLongDouble(a, b)
		if got := FormatLongDouble(sum); !ok || got != c.want {
			t.Errorf("%s + %s = %s, want %s", c.a, c.b, got, c.want)
		}
	}
	for _, s := range []string{"", "x", "1x", "1_0", " 1", "1 ", "nan", "0x", "1p3", "0b1", "1e4933", "1e-4952",
		"1e99999999999", strings.Repeat("1", 5120), "1\x00"} {
		if f, ok := ParseLongDouble([]byte(s)); ok {
			t.Errorf("ParseLongDouble(%q) = %v, want ok to be false", s, f)
		}
	}
	if f, ok := ParseLongDouble([]byte(strings.Repeat("0", 5118) + "7")); !ok || FormatLongDouble(f) != "7" {
		t.Error("the longest text is not read")
	}
	inf, ok := ParseLongDouble([]byte("-Infinity"))
	if !ok || !inf.IsInf() {
		t.Error("infinity is not read")
	}
	if _, ok := AddLongDouble(inf, inf); ok {
		t.Error("the sum of opposite infinities is accepted")
	}
}
