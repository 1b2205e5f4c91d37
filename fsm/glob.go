package fsm

// glob matches keys against one pattern as Redis does: * ? [a-z] [^x] \x, bytes
// and not runes, ranges of signed bytes, an unclosed class closed at its end. A
// * that has to try many places makes a match quadratic in the worst case (Redis
// CVE-2022-36021 was worse), so the steps are counted over all keys of a command.
type glob struct {
	pattern string
	steps   int // left
}

// match reports whether s matches. When the steps have run out it reports false
// and spent is true from then on.
func (g *glob) match(s string) bool {
	p := g.pattern
	// Where to go on when the part after the last * does not match here: a later
	// * can do all that an earlier one could, so only the last one counts.
	backP, backS := -1, 0
	i, j := 0, 0
	for i < len(p) && j < len(s) {
		if g.steps--; g.steps < 0 {
			return false
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
		// Mismatch, or one of the two is at its end and the other is not.
		backS++
		if backP < 0 || backS >= len(s) {
			return false
		}
		i, j = backP, backS
	}
	return i == len(p) && j == len(s)
}

// globSteps bounds the effort of one match outside of the commands that walk keys.
const globSteps = 1 << 16

// Glob reports whether s matches a pattern of PSUBSCRIBE, KEYS and the like. A
// match that would take very many steps is none.
func Glob(pattern, s string) bool {
	g := glob{pattern: pattern, steps: globSteps}
	return g.match(s)
}

func (g *glob) spent() bool { return g.steps < 0 }

// one matches a single byte against the element of the pattern at i, and returns
// where the next element is.
func (g *glob) one(i int, b byte) (next int, ok bool) {
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

// class matches a byte against the class whose inside begins at i.
func (g *glob) class(i int, b byte) (next int, ok bool) {
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
