package glob

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestPattern_Match checks that Pattern.Match and Match agree.
func TestPattern_Match(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(alphabet string, n int) string {
		var b strings.Builder
		for range r.IntN(n) {
			b.WriteByte(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	matched := 0
	for range 200_000 {
		text, s := word(`aab*?[]^-\`, 8), word(`aab]-\`, 6)
		p := NewPattern(text)
		want := Match(text, s)
		got := strings.HasPrefix(s, p.Prefix())
		if got {
			got, _ = p.Match(s)
		}
		if got != want {
			t.Fatalf("pattern %q (prefix %q) on %q: %v, want %v", text, p.Prefix(), s, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 1000 {
		t.Errorf("only %d texts match, want at least 1000: the test proves too little", matched)
	}
}

// TestPattern_Steps checks that Match rejects a text without the pattern's
// suffix in a few steps. For other texts that do not match, it checks that the
// reported steps are in the expected range.
func TestPattern_Steps(t *testing.T) {
	s := strings.Repeat("a", 10_000)
	for _, c := range []struct {
		text      string
		low, high int
	}{{"*" + strings.Repeat("a", 100) + "b17", 1, 50}, {"aaa*b", 1, 50}, {"*aab*", 10_000, 40_000},
		{"*" + strings.Repeat("a", 100) + "b*", 1 << 16, 1<<16 + 50}} {
		p := NewPattern(c.text)
		if ok, steps := p.Match(s); ok || steps < c.low || steps > c.high {
			t.Errorf("%q: Match returns %v after %d steps, want false after %d to %d", c.text, ok, steps, c.low, c.high)
		}
	}
}
