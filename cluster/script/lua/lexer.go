package lua

import (
	"fmt"
	"strings"
)

// token is a kind of lexeme; single characters stand for themselves.
type token int

const (
	tkEOF token = 257 + iota
	tkAnd
	tkBreak
	tkDo
	tkElse
	tkElseif
	tkEnd
	tkFalse
	tkFor
	tkFunction
	tkIf
	tkIn
	tkLocal
	tkNil
	tkNot
	tkOr
	tkRepeat
	tkReturn
	tkThen
	tkTrue
	tkUntil
	tkWhile
	tkConcat
	tkDots
	tkEq
	tkGe
	tkLe
	tkNe
	tkNumber
	tkName
	tkString
)

var tokenNames = [...]string{"<eof>", "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in",
	"local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while", "..", "...", "==", ">=", "<=", "~=",
	"<number>", "<name>", "<string>"}

var keywords = func() map[string]token {
	m := make(map[string]token)
	for t := tkAnd; t <= tkWhile; t++ {
		m[tokenNames[t-tkEOF]] = t
	}
	return m
}()

func (t token) String() string {
	if t >= tkEOF {
		return tokenNames[t-tkEOF]
	}
	if t < 32 || t == 127 {
		return fmt.Sprintf("char(%d)", int(t))
	}
	return string([]byte{byte(t)})
}

// lexeme is a token with its content.
type lexeme struct {
	tok token
	str string
	num float64
}

// syntaxError ends a compilation; Compile recovers it.
type syntaxError struct{ msg string }

// lexer splits a source into lexemes. Its complaints are worded as those of the
// reference implementation.
type lexer struct {
	src      string
	pos      int
	line     int
	lastLine int // of the last consumed lexeme
	chunk    string
	cur      lexeme
	ahead    lexeme
	peeked   bool
	text     string // raw text of the newest name, number or string
}

// next moves to the next lexeme.
func (lx *lexer) next() {
	lx.lastLine = lx.line
	if lx.peeked {
		lx.cur, lx.peeked = lx.ahead, false
		return
	}
	lx.cur = lx.lex()
}

// peek returns the lexeme after the current one.
func (lx *lexer) peek() token {
	if !lx.peeked {
		lx.ahead, lx.peeked = lx.lex(), true
	}
	return lx.ahead.tok
}

func (lx *lexer) fail(msg string, near token) {
	msg = fmt.Sprintf("%s:%d: %s", lx.chunk, lx.line, msg)
	if near != 0 {
		t := near.String()
		if near == tkName || near == tkString || near == tkNumber {
			t = lx.text
		}
		msg += " near '" + t + "'"
	}
	panic(&syntaxError{msg})
}

// failHere complains about the current lexeme.
func (lx *lexer) failHere(msg string) { lx.fail(msg, lx.cur.tok) }

func (lx *lexer) at(i int) byte {
	if lx.pos+i < len(lx.src) {
		return lx.src[lx.pos+i]
	}
	return 0
}

func (lx *lexer) newline() {
	c := lx.src[lx.pos]
	lx.pos++
	if d := lx.at(0); (d == '\n' || d == '\r') && d != c && lx.pos < len(lx.src) {
		lx.pos++
	}
	lx.line++
}

func (lx *lexer) lex() lexeme {
	for lx.pos < len(lx.src) {
		c := lx.src[lx.pos]
		switch {
		case c == '\n' || c == '\r':
			lx.newline()
		case c == ' ' || c == '\t' || c == '\v' || c == '\f':
			lx.pos++
		case c == '-':
			if lx.at(1) != '-' {
				lx.pos++
				return lexeme{tok: '-'}
			}
			lx.comment()
		case c == '[':
			if n := lx.longBracket(); n >= 0 {
				return lexeme{tok: tkString, str: lx.longString(n, "string")}
			} else if n == -1 {
				lx.pos++
				return lexeme{tok: '['}
			}
			end := lx.pos + 1
			for end < len(lx.src) && lx.src[end] == '=' {
				end++
			}
			lx.text = lx.src[lx.pos:end]
			lx.fail("invalid long string delimiter", tkString)
		case c == '=':
			return lx.oneOrTwo('=', tkEq)
		case c == '<':
			return lx.oneOrTwo('<', tkLe)
		case c == '>':
			return lx.oneOrTwo('>', tkGe)
		case c == '~':
			return lx.oneOrTwo('~', tkNe)
		case c == '"' || c == '\'':
			return lexeme{tok: tkString, str: lx.quoted(c)}
		case c == '.':
			if lx.at(1) == '.' {
				if lx.at(2) == '.' {
					lx.pos += 3
					return lexeme{tok: tkDots}
				}
				lx.pos += 2
				return lexeme{tok: tkConcat}
			}
			if !isDigit(lx.at(1)) {
				lx.pos++
				return lexeme{tok: '.'}
			}
			return lx.numeral()
		case isDigit(c):
			return lx.numeral()
		case isAlpha(c):
			start := lx.pos
			for lx.pos < len(lx.src) && (isAlpha(lx.src[lx.pos]) || isDigit(lx.src[lx.pos])) {
				lx.pos++
			}
			word := lx.src[start:lx.pos]
			if t, ok := keywords[word]; ok {
				return lexeme{tok: t}
			}
			lx.text = word
			return lexeme{tok: tkName, str: word}
		default:
			lx.pos++
			return lexeme{tok: token(c)}
		}
	}
	return lexeme{tok: tkEOF}
}

func (lx *lexer) oneOrTwo(one, two token) lexeme {
	lx.pos++
	if lx.at(0) == '=' && lx.pos < len(lx.src) {
		lx.pos++
		return lexeme{tok: two}
	}
	return lexeme{tok: one}
}

func (lx *lexer) comment() {
	lx.pos += 2
	if lx.at(0) == '[' {
		if n := lx.longBracket(); n >= 0 {
			lx.longString(n, "comment")
			return
		}
	}
	for lx.pos < len(lx.src) && lx.src[lx.pos] != '\n' && lx.src[lx.pos] != '\r' {
		lx.pos++
	}
}

// longBracket returns the number of = in an opening [==[, -1 for a plain
// bracket and -2 for a broken one.
func (lx *lexer) longBracket() int {
	n := 0
	for lx.at(1+n) == '=' {
		n++
	}
	switch {
	case lx.at(1+n) == '[':
		return n
	case n == 0:
		return -1
	}
	return -2
}

func (lx *lexer) longString(level int, what string) string {
	start := lx.pos
	lx.pos += level + 2
	if c := lx.at(0); lx.pos < len(lx.src) && (c == '\n' || c == '\r') {
		lx.newline()
	}
	closing := "]" + strings.Repeat("=", level) + "]"
	var b strings.Builder
	for lx.pos < len(lx.src) {
		switch c := lx.src[lx.pos]; {
		case c == ']' && strings.HasPrefix(lx.src[lx.pos:], closing):
			lx.pos += len(closing)
			lx.text = lx.src[start:lx.pos]
			return b.String()
		case c == '\n' || c == '\r':
			lx.newline()
			b.WriteByte('\n')
		case c == '[' && level == 0 && lx.at(1) == '[': // Lua 5.0 nested these
			lx.pos++
			lx.fail("nesting of [[...]] is deprecated", '[')
		default:
			b.WriteByte(c)
			lx.pos++
		}
	}
	lx.fail("unfinished long "+what, tkEOF)
	return ""
}

func (lx *lexer) quoted(quote byte) string {
	start := lx.pos
	lx.pos++
	var b strings.Builder
	for {
		if lx.pos >= len(lx.src) {
			lx.fail("unfinished string", tkEOF)
		}
		switch c := lx.src[lx.pos]; c {
		case quote:
			lx.pos++
			lx.text = lx.src[start:lx.pos]
			return b.String()
		case '\n', '\r':
			lx.text = lx.src[start:lx.pos]
			lx.fail("unfinished string", tkString)
		case '\\':
			lx.pos++
			lx.escape(&b, start)
		default:
			b.WriteByte(c)
			lx.pos++
		}
	}
}

const escapes, escaped = "abfnrtv", "\a\b\f\n\r\t\v"

func (lx *lexer) escape(b *strings.Builder, start int) {
	if lx.pos >= len(lx.src) {
		return // the end is reported by quoted
	}
	c := lx.src[lx.pos]
	switch i := strings.IndexByte(escapes, c); {
	case i >= 0:
		b.WriteByte(escaped[i])
		lx.pos++
	case c == '\n' || c == '\r':
		b.WriteByte('\n')
		lx.newline()
	case isDigit(c):
		n, from := 0, lx.pos-1
		for i := 0; i < 3 && isDigit(lx.at(0)); i++ {
			n = n*10 + int(lx.at(0)-'0')
			lx.pos++
		}
		if n > 255 {
			lx.text = lx.src[start:from]
			lx.fail("escape sequence too large", tkString)
		}
		b.WriteByte(byte(n))
	default:
		b.WriteByte(c)
		lx.pos++
	}
}

func (lx *lexer) numeral() lexeme {
	start := lx.pos
	for isDigit(lx.at(0)) || lx.at(0) == '.' {
		lx.pos++
	}
	if c := lx.at(0); c == 'e' || c == 'E' {
		lx.pos++
		if c := lx.at(0); c == '+' || c == '-' {
			lx.pos++
		}
	}
	for isAlpha(lx.at(0)) || isDigit(lx.at(0)) {
		lx.pos++
	}
	lx.text = lx.src[start:lx.pos]
	f, ok := ParseNumber(lx.text)
	if !ok {
		lx.fail("malformed number", tkNumber)
	}
	return lexeme{tok: tkNumber, num: f}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
