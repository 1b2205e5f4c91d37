package glob

// Pattern is a parsed pattern, for patterns that are matched often. Apart from
// the limit on the steps, it matches the same texts as the function Match.
type Pattern struct {
	text string
	// prefix is the number of literal bytes at the beginning of the text, and
	// suffix the number at its end. Both are len(text) if the whole text is
	// literal.
	prefix, suffix int
}

// NewPattern parses a pattern.
func NewPattern(text string) Pattern {
	p := Pattern{text: text, prefix: len(text)}
	g := Matcher{pattern: text}
	suffix := 0 // where the literal bytes at the end begin
	for i := 0; i < len(text); {
		next := i + 1
		switch text[i] {
		case '*', '?':
		case '[':
			next, _ = g.class(i+1, 0)
		case '\\':
			next = min(i+2, len(text))
		default:
			i++
			continue
		}
		p.prefix = min(p.prefix, i)
		suffix, i = next, next
	}
	p.suffix = len(text) - suffix
	return p
}

// Prefix returns the literal bytes at the beginning of the pattern. Every text
// that the pattern matches begins with them.
func (p *Pattern) Prefix() string { return p.text[:p.prefix] }

// String returns the text of the pattern.
func (p Pattern) String() string { return p.text }

// Match reports whether s matches, and how many steps the match took. s must
// begin with Prefix. A step takes a few nanoseconds. If the match needs more
// than maxSteps steps, ok may be false although s matches.
func (p *Pattern) Match(s string) (ok bool, steps int) {
	ok, steps, _ = p.MatchWithin(s, maxSteps)
	return ok, steps
}

// MatchWithin is like Match, but the match may take at most limit steps, and
// never more than maxSteps. These limits do not include the fixed steps. If the
// match needs more steps, spent is true, and ok may be false although s
// matches.
func (p *Pattern) MatchWithin(s string, limit int) (ok bool, steps int, spent bool) {
	// The fixed steps are the cost of loading the pattern.
	const fixed, bytesPerStep = 16, 16
	steps = fixed + p.suffix/bytesPerStep
	switch {
	case p.prefix == len(p.text):
		return len(s) == len(p.text), steps, false
	case len(s) < p.suffix || s[len(s)-p.suffix:] != p.text[len(p.text)-p.suffix:]:
		return false, steps, false
	}
	limit = max(min(limit, maxSteps), 0)
	g := Matcher{pattern: p.text, steps: limit}
	ok = g.Match(s)
	return ok, steps + limit - g.Left(), g.Spent()
}
