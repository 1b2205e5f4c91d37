package script

import (
	"strings"

	"github.com/holdfast-kv/holdfast/script/numeral"
)

// matcher matches a Lua pattern by backtracking. It charges the run's budget for
// the characters that it compares, so a script cannot evade the budget with a
// pattern.
type matcher struct {
	st    *State
	src   string
	pat   string
	level int // number of captures, including open ones
	caps  [maxCaptures]capture
	depth int
}

const (
	maxCaptures  = 32
	maxRecursion = 4000 // depth of match; bounds Go's stack

	capOpen     = -1
	capPosition = -2
)

type capture struct{ at, size int }

// match returns the end of a match of pat[p:] at src[s:], or -1 when there is
// no match.
func (m *matcher) match(s, p int) int {
	if m.depth++; m.depth > maxRecursion {
		m.st.Errorf("pattern too complex")
	}
	end := m.advance(s, p)
	m.depth--
	return end
}

func (m *matcher) advance(s, p int) int {
	for {
		m.st.Step(1)
		if p == len(m.pat) {
			return s
		}
		switch c := m.pat[p]; {
		case c == '(':
			if p+1 < len(m.pat) && m.pat[p+1] == ')' {
				return m.open(s, p+2, capPosition)
			}
			return m.open(s, p+1, capOpen)
		case c == ')':
			return m.close(s, p+1)
		case c == '%' && p+1 < len(m.pat) && m.pat[p+1] == 'b':
			if s = m.balance(s, p+2); s < 0 {
				return -1
			}
			p += 4
			continue
		case c == '%' && p+1 < len(m.pat) && m.pat[p+1] == 'f':
			p += 2
			if p >= len(m.pat) || m.pat[p] != '[' {
				m.st.Errorf("missing '[' after '%%f' in pattern")
			}
			end := m.classEnd(p)
			var prev, here byte
			if s > 0 {
				prev = m.src[s-1]
			}
			if s < len(m.src) {
				here = m.src[s]
			}
			if m.inSet(prev, p, end-1) || !m.inSet(here, p, end-1) {
				return -1
			}
			p = end
			continue
		case c == '%' && p+1 < len(m.pat) && numeral.IsDigit(m.pat[p+1]):
			if s = m.back(s, m.pat[p+1]); s < 0 {
				return -1
			}
			p += 2
			continue
		case c == '$' && p+1 == len(m.pat):
			if s == len(m.src) {
				return s
			}
			return -1
		}
		end := m.classEnd(p)
		var suffix byte
		if end < len(m.pat) {
			suffix = m.pat[end]
		}
		switch suffix {
		case '?':
			if s < len(m.src) && m.single(s, p, end) {
				if r := m.match(s+1, end+1); r >= 0 {
					return r
				}
			}
			p = end + 1
		case '*':
			return m.maxExpand(s, p, end)
		case '+':
			if s < len(m.src) && m.single(s, p, end) {
				return m.maxExpand(s+1, p, end)
			}
			return -1
		case '-':
			return m.minExpand(s, p, end)
		default:
			if s >= len(m.src) || !m.single(s, p, end) {
				return -1
			}
			s++
			p = end
		}
	}
}

func (m *matcher) maxExpand(s, p, end int) int {
	i := 0
	for s+i < len(m.src) && m.single(s+i, p, end) {
		m.st.Step(1)
		i++
	}
	for ; i >= 0; i-- {
		if r := m.match(s+i, end+1); r >= 0 {
			return r
		}
	}
	return -1
}

func (m *matcher) minExpand(s, p, end int) int {
	for {
		if r := m.match(s, end+1); r >= 0 {
			return r
		}
		if s >= len(m.src) || !m.single(s, p, end) {
			return -1
		}
		s++
	}
}

func (m *matcher) open(s, p, what int) int {
	if m.level >= maxCaptures {
		m.st.Errorf("too many captures")
	}
	m.caps[m.level] = capture{s, what}
	m.level++
	r := m.match(s, p)
	if r < 0 {
		m.level--
	}
	return r
}

func (m *matcher) close(s, p int) int {
	l := m.level - 1
	for ; l >= 0 && m.caps[l].size != capOpen; l-- {
	}
	if l < 0 {
		m.st.Errorf("invalid pattern capture")
	}
	m.caps[l].size = s - m.caps[l].at
	r := m.match(s, p)
	if r < 0 {
		m.caps[l].size = capOpen
	}
	return r
}

// balance matches %bxy.
func (m *matcher) balance(s, p int) int {
	if p+1 >= len(m.pat) {
		m.st.Errorf("unbalanced pattern")
	}
	opening, closing := m.pat[p], m.pat[p+1]
	if s >= len(m.src) || m.src[s] != opening {
		return -1
	}
	nested := 1
	for i := s + 1; i < len(m.src); i++ {
		if (i-s)&7 == 0 {
			m.st.Step(1)
		}
		switch m.src[i] {
		case closing:
			if nested--; nested == 0 {
				return i + 1
			}
		case opening:
			nested++
		}
	}
	return -1
}

// back matches the text of an earlier capture.
func (m *matcher) back(s int, digit byte) int {
	l := int(digit - '1')
	if digit == '0' || l >= m.level || m.caps[l].size == capOpen {
		m.st.Errorf("invalid capture index")
	}
	text := ""
	if c := m.caps[l]; c.size > 0 {
		text = m.src[c.at : c.at+c.size]
	}
	m.st.Step(len(text) / 16)
	if m.caps[l].size == capPosition || !strings.HasPrefix(m.src[s:], text) {
		return -1
	}
	return s + len(text)
}

// classEnd returns the index after the single character class at p.
func (m *matcher) classEnd(p int) int {
	c, start := m.pat[p], p
	p++
	switch c {
	case '%':
		if p >= len(m.pat) {
			m.st.Errorf("malformed pattern (ends with '%%')")
		}
		return p + 1
	case '[':
		if p < len(m.pat) && m.pat[p] == '^' {
			p++
		}
		for first := true; first || m.at(p) != ']'; first = false {
			if p >= len(m.pat) {
				m.st.Errorf("malformed pattern (missing ']')")
			}
			p++
			if m.pat[p-1] == '%' && p < len(m.pat) {
				p++
			}
		}
		m.st.Step((p - start) >> 4)
		return p + 1
	}
	return p
}

func (m *matcher) at(p int) byte {
	if p < len(m.pat) {
		return m.pat[p]
	}
	return 0
}

// single reports whether the character at s belongs to the class pat[p:end].
func (m *matcher) single(s, p, end int) bool {
	c := m.src[s]
	switch m.pat[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pat[p+1])
	case '[':
		return m.inSet(c, p, end-1)
	}
	return m.pat[p] == c
}

// inSet reports whether c belongs to the set whose brackets are at p and end.
func (m *matcher) inSet(c byte, p, end int) bool {
	if n := end - p; n > 16 {
		m.st.Step(n >> 4)
	}
	want := true
	p++
	if m.pat[p] == '^' {
		want = false
		p++
	}
	for p < end {
		switch {
		case m.pat[p] == '%' && p+1 < end:
			if inClass(c, m.pat[p+1]) {
				return want
			}
			p += 2
		case p+2 < end && m.pat[p+1] == '-':
			if m.pat[p] <= c && c <= m.pat[p+2] {
				return want
			}
			p += 3
		default:
			if m.pat[p] == c {
				return want
			}
			p++
		}
	}
	return !want
}

// inClass implements C's isalpha and similar functions, in the C locale.
func inClass(c, class byte) bool {
	var in bool
	switch lower(class) {
	case 'a':
		in = c|0x20 >= 'a' && c|0x20 <= 'z'
	case 'c':
		in = c < 32 || c == 127
	case 'd':
		in = numeral.IsDigit(c)
	case 'l':
		in = c >= 'a' && c <= 'z'
	case 'p':
		in = c > 32 && c < 127 && !numeral.IsDigit(c) && !(c|0x20 >= 'a' && c|0x20 <= 'z')
	case 's':
		in = c == ' ' || c >= 9 && c <= 13
	case 'u':
		in = c >= 'A' && c <= 'Z'
	case 'w':
		in = numeral.IsDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z'
	case 'x':
		in = numeral.IsDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f'
	case 'z':
		in = c == 0
	default:
		return class == c
	}
	return in == (class >= 'a')
}

// capture returns capture number i. If the pattern has no captures, the first
// capture is the whole match.
func (m *matcher) capture(i, from, to int) Value {
	if i >= m.level {
		if i != 0 {
			m.st.Errorf("invalid capture index")
		}
		return m.st.NewString(m.src[from:to])
	}
	switch c := m.caps[i]; c.size {
	case capOpen:
		m.st.Errorf("unfinished capture")
		return Nil
	case capPosition:
		return Int(c.at + 1)
	default:
		return m.st.NewString(m.src[c.at : c.at+c.size])
	}
}

// captures returns all captures. If there are none and whole is set, it returns
// the whole match.
func (m *matcher) captures(from, to int, whole bool) []Value {
	n := m.level
	if n == 0 && whole {
		return m.st.Ret(m.capture(0, from, to))
	}
	vs := make([]Value, n)
	for i := range vs {
		vs[i] = m.capture(i, from, to)
	}
	return vs
}
