package fsm

import (
	"fmt"
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", false}, {"*", "a", true}, {"**", "ab", true}, {"a*", "a", true}, {"*a", "a", true}, {"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbYbZ", false}, {"?", "", false}, {"?", "\xff", true}, {"??", "a", false}, {"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false}, {"h[^e]llo", "hallo", true},
		{"h[^e]llo", "hello", false}, {"h[a-b]llo", "hbllo", true}, {"[b-a]", "a", true}, {"[\x01-\xff]", "a", false}, {"[\x80-\xff]", "\xc3", true}, {"[a-]", "]", true}, {"[a-]", "b", false},
		{"[", "[", false}, {"[", "a", false}, {"[^", "a", true}, {"[a", "a", true}, {"[]a]", "]a]", false}, {"[^]a", "xa", true}, {`\*`, "*", true}, {`\*`, "a", false}, {`\`, `\`, true}, {`a\`, `a\`, true}, {`[\]]`, "]", true},
		{`[\`, `\`, true}, {"a**", "a", true}, {"*a*", "bab", true}, {"*ab", "aab", true}, {"*?", "a", true}, {"*??", "a", false}, {"a*?", "a", false}, {"*[b]", "ab", true},
	} {
		g := glob{pattern: c.pattern, steps: 1000}
		if got := g.match(c.s); got != c.want || g.spent() {
			t.Errorf("match(%q, %q) = %v, spent %v, want %v", c.pattern, c.s, got, g.spent(), c.want)
		}
	}
}

// TestGlob_Steps: patterns that take for ever elsewhere take a bounded time, and
// it is said that they have no answer.
func TestGlob_Steps(t *testing.T) {
	g := glob{pattern: strings.Repeat("a*", 50) + "b", steps: 1 << 20}
	if g.match(strings.Repeat("a", 1000)) || g.spent() {
		t.Errorf("many stars: spent %v after %d steps", g.spent(), 1<<20-g.steps)
	}
	if used := 1<<20 - g.steps; used > 100_000 {
		t.Errorf("many stars took %d steps", used)
	}
	g = glob{pattern: "*" + strings.Repeat("a", 5000) + "b", steps: 1 << 20}
	if g.match(strings.Repeat("a", 10000)) || !g.spent() {
		t.Errorf("a quadratic match ended with %d steps left", g.steps)
	}
	m := New(NewTable())
	c := Ctx{m: m}
	c.assign(newObject([]byte(strings.Repeat("a", 30000)), nil))
	// KEYS has the same loop with a limit that takes seconds to reach.
	pattern := "*" + strings.Repeat("a", 14000) + "b*" + strings.Repeat("[a-z]", 3000)
	if got := scan(&c, [][]byte{[]byte("scan"), []byte("0"), []byte("match"), []byte(pattern)}).Text(); got != msgSteps {
		t.Errorf("SCAN: %q", got)
	}
}

// TestScan_EqualHashes: keys of one hash are returned by one call, since the
// cursor cannot tell them apart.
func TestScan_EqualHashes(t *testing.T) {
	m := New(NewTable())
	c := Ctx{m: m}
	for i := range 30 {
		o := newObject(fmt.Appendf(nil, "k%d", i), nil)
		o.hash = uint64(1 + i/10)
		c.assign(o)
	}
	cursor, total := "0", 0
	for range 3 {
		r := scan(&c, [][]byte{[]byte("scan"), []byte(cursor), []byte("count"), []byte("1")})
		if got, want := len(r.elems[1].elems), 10; got != want {
			t.Errorf("from %s: %d keys, want %d", cursor, got, want)
		}
		total += len(r.elems[1].elems)
		cursor = r.elems[0].s
	}
	if cursor != "0" || total != 30 {
		t.Errorf("ended at %s with %d keys", cursor, total)
	}
}
