package glob

import (
	"strings"
	"testing"
)

func TestMatcher(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", false}, {"*", "a", true}, {"**", "ab", true},
		{"a*", "a", true}, {"*a", "a", true}, {"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbYbZ", false}, {"?", "", false}, {"?", "\xff", true}, {"??", "a", false},
		{"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false}, {"h[^e]llo", "hallo", true},
		{"h[^e]llo", "hello", false}, {"h[a-b]llo", "hbllo", true}, {"[b-a]", "a", true}, {"[\x01-\xff]", "a", false},
		{"[\x80-\xff]", "\xc3", true}, {"[a-]", "]", true}, {"[a-]", "b", false},
		{"[", "[", false}, {"[", "a", false}, {"[^", "a", true}, {"[a", "a", true}, {"[]a]", "]a]", false},
		{"[^]a", "xa", true}, {`\*`, "*", true}, {`\*`, "a", false}, {`\`, `\`, true}, {`a\`, `a\`, true},
		{`[\]]`, "]", true},
		{`[\`, `\`, true}, {"a**", "a", true}, {"*a*", "bab", true}, {"*ab", "aab", true}, {"*?", "a", true},
		{"*??", "a", false}, {"a*?", "a", false}, {"*[b]", "ab", true},
	} {
		g := Matcher{pattern: c.pattern, steps: 1000}
		if got := g.Match(c.s); got != c.want || g.Spent() {
			t.Errorf("match(%q, %q) = %v, spent %v, want %v and not spent", c.pattern, c.s, got, g.Spent(), c.want)
		}
	}
}

// TestMatcher_Steps checks that a match against a pattern with many stars takes
// few steps, although a simple matcher needs exponential time for it. It also
// checks that Spent reports a match that stopped because its steps were used
// up.
func TestMatcher_Steps(t *testing.T) {
	g := Matcher{pattern: strings.Repeat("a*", 50) + "b", steps: 1 << 20}
	if g.Match(strings.Repeat("a", 1000)) || g.Spent() {
		t.Errorf("many stars: got a match, or spent %v after %d steps; want no match and steps left",
			g.Spent(), 1<<20-g.steps)
	}
	if used := 1<<20 - g.steps; used > 100_000 {
		t.Errorf("many stars took %d steps, want at most 100000", used)
	}
	g = Matcher{pattern: "*" + strings.Repeat("a", 5000) + "b", steps: 1 << 20}
	if g.Match(strings.Repeat("a", 10000)) || !g.Spent() {
		t.Errorf("a quadratic match succeeded or ended with %d steps left, want no match and no steps left", g.steps)
	}
}
