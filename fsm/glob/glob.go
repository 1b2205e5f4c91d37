// Package glob matches texts against patterns as Redis does for KEYS, SCAN and
// PSUBSCRIBE: * ? [a-z] [^x] \x. Patterns match bytes, not runes. Ranges
// compare signed bytes. A class without a closing bracket extends to the end of
// the pattern.
package glob

// Matcher matches texts against one pattern. If many positions must be tried
// for a *, a match takes quadratic time in the worst case (Redis took
// exponential time before it fixed CVE-2022-36021). The number of steps is
// therefore limited. The limit applies to all texts of a Matcher together.
type Matcher struct {
	pattern string
	steps   int // steps that are left, or negative if a match needed more

	// charge, if it is not nil, is called once for every chargedSteps steps.
	// The next call is made when steps falls below due.
	charge func(steps int)
	due    int
}

// chargedSteps is the number of steps that are charged at a time.
const chargedSteps = 1024

// NewMatcher returns a matcher of a pattern. steps is the maximum number of
// steps that the matcher may take. If charge is not nil, the matcher reports
// its steps to charge, chargedSteps at a time; it may then take up to
// chargedSteps more if steps is not a multiple of chargedSteps. It always
// completes a class that it has begun.
func NewMatcher(pattern string, steps int, charge func(steps int)) Matcher {
	return Matcher{pattern: pattern, steps: steps, charge: charge, due: steps - chargedSteps}
}

// Match reports whether s matches. If the match needs more steps than are left,
// Spent reports true from then on, and the result may be false although s
// matches.
func (g *Matcher) Match(s string) bool {
	p := g.pattern
	// backP and backS are the positions at which to continue if the part after
	// the last * does not match here. A later * can match every text that an
	// earlier * could match, so only the last one counts.
	backP, backS := -1, 0
	i, j := 0, 0
	for i < len(p) && j < len(s) {
		if g.steps--; g.steps < g.due {
			if g.pay(); g.steps < 0 {
				return false
			}
		}
		if p[i] == '*' {
			for i < len(p) && p[i] == '*' {
				i++
			}
			if i == len(p) {
				return true
			}
			backP, backS = i, j
			continue
		}
		next, ok := g.one(i, s[j])
		if ok {
			i, j = next, j+1
			if j == len(s) {
				for i < len(p) && p[i] == '*' {
					i++
				}
			}
			if i < len(p) && j < len(s) || i == len(p) && j == len(s) {
				continue
			}
		}
		// The bytes differ, or only one of the pattern and s is at its end.
		backS++
		if backP < 0 || backS >= len(s) {
			return false
		}
		i, j = backP, backS
	}
	return i == len(p) && j == len(s)
}

// maxSteps is the maximum number of steps of one call of Match or
// Pattern.Match.
const maxSteps = 1 << 16

// Match reports whether s matches a pattern. If the match needs more than
// maxSteps steps, the result may be false although s matches.
func Match(pattern, s string) bool {
	g := Matcher{pattern: pattern, steps: maxSteps}
	return g.Match(s)
}

// pay charges the steps that are due.
func (g *Matcher) pay() {
	for g.charge != nil && g.steps < g.due {
		g.charge(chargedSteps)
		g.due -= chargedSteps
	}
}

// Left returns the number of steps that are left, or 0 if none are.
func (g *Matcher) Left() int { return max(g.steps, 0) }

// Spent reports whether a match needed more steps than were left.
func (g *Matcher) Spent() bool { return g.steps < 0 }

// one matches a single byte against the element of the pattern at i and returns
// the position of the next element.
func (g *Matcher) one(i int, b byte) (next int, ok bool) {
	p := g.pattern
	switch {
	case p[i] == '?':
		return i + 1, true
	case p[i] == '[':
		return g.class(i+1, b)
	case p[i] == '\\' && i+1 < len(p):
		i++
	}
	return i + 1, p[i] == b
}

// class matches a byte against the class whose content begins at i.
func (g *Matcher) class(i int, b byte) (next int, ok bool) {
	p := g.pattern
	negated := i < len(p) && p[i] == '^'
	if negated {
		i++
	}
	for ; i < len(p) && p[i] != ']'; i++ {
		g.steps--
		switch rest := len(p) - i; {
		case rest >= 2 && p[i] == '\\':
			i++
			ok = ok || p[i] == b
		case rest >= 3 && p[i+1] == '-':
			lo, hi := int8(p[i]), int8(p[i+2])
			if lo > hi {
				lo, hi = hi, lo
			}
			ok = ok || lo <= int8(b) && int8(b) <= hi
			i += 2
		default:
			ok = ok || p[i] == b
		}
	}
	return min(i+1, len(p)), ok != negated
}
