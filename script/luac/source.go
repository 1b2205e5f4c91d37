package luac

import (
	"io"
	"strings"

	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/script/numeral"
)

// pacedReader reads a text in small parts, and yields between them. Its caller,
// gopher-lua's scanner or parser, works on each part before it reads the next.
type pacedReader struct {
	text string // the rest of the text
	pace *yield.Pace
}

// pacedBytes is the size of a part. The parser takes up to a microsecond for
// each byte.
const pacedBytes = 128

func (r *pacedReader) Read(b []byte) (int, error) {
	if r.text == "" {
		return 0, io.EOF
	}
	r.pace.Check()
	n := copy(b[:min(len(b), pacedBytes)], r.text)
	r.text = r.text[n:]
	return n, nil
}

// sourceLines are the lines of a text as the scanner counts them, without their
// line ends.
type sourceLines []string

func splitLines(src string) sourceLines {
	var lines sourceLines
	for {
		i := strings.IndexAny(src, "\r\n")
		if i < 0 {
			return append(lines, src)
		}
		lines = append(lines, src[:i])
		n := 1
		if i+1 < len(src) && src[i+1] != src[i] && strings.IndexByte("\r\n", src[i+1]) >= 0 {
			n = 2
		}
		src = src[i+n:]
	}
}

func (l sourceLines) at(line int) string {
	if line < 1 || line > len(l) {
		return ""
	}
	return l[line-1]
}

// quote returns the quotation mark with which an unfinished string on a line began.
func (l sourceLines) quote(line int, text string) string {
	s := l.at(line)
	if i := strings.LastIndex(s, text); i > 0 && s[i-1] == '\'' {
		return "'"
	}
	return `"`
}

// numeral returns the text that Lua reads as one number at a position: a number,
// and all letters and digits that directly follow it. gopher-lua reads "3x" as two
// tokens.
func (l sourceLines) numeral(line, col int) string {
	s := l.at(line)
	if col < 1 || col > len(s) {
		return ""
	}
	s = s[col-1:]
	n := 0
	for n < len(s) && (numeral.IsDigit(s[n]) || s[n] == '.') {
		n++
	}
	if n < len(s) && s[n]|0x20 == 'e' {
		if n++; n < len(s) && (s[n] == '+' || s[n] == '-') {
			n++
		}
	}
	for n < len(s) && (numeral.IsAlnum(s[n]) || s[n] == '_') {
		n++
	}
	return s[:n]
}

// delimiter returns the text on a line that looks like the beginning of a long
// string but is not a valid one.
func (l sourceLines) delimiter(line int) string {
	s := l.at(line)
	i := strings.LastIndex(s, "[=")
	if i < 0 {
		return "["
	}
	return "[" + s[i+1:len(s)-len(strings.TrimLeft(s[i+1:], "="))]
}

// fixComments replaces the bracket of comments such as "--[==== title" with a
// blank. For Lua, this is a comment of one line, but gopher-lua takes it for the
// beginning of a long comment.
func fixComments(src string) string {
	if !strings.Contains(src, "--[=") {
		return src
	}
	b := []byte(src)
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case c == '"' || c == '\'':
			i = skipQuoted(src, i)
		case c == '[' && longBracket(src, i) >= 0:
			i = skipLong(src, i)
		case strings.HasPrefix(src[i:], "--"):
			if i += 2; longBracket(src, i) >= 0 {
				i = skipLong(src, i)
				continue
			}
			if strings.HasPrefix(src[i:], "[=") {
				b[i] = ' '
			}
			for i < len(src) && src[i] != '\n' && src[i] != '\r' {
				i++
			}
		default:
			i++
		}
	}
	return string(b)
}

// longBracket returns the number of = in the long bracket at i, or -1 if there
// is no long bracket.
func longBracket(src string, i int) int {
	rest := src[i:]
	if !strings.HasPrefix(rest, "[") {
		return -1
	}
	n := len(rest) - 1 - len(strings.TrimLeft(rest[1:], "="))
	if strings.HasPrefix(rest[1+n:], "[") {
		return n
	}
	return -1
}

func skipLong(src string, i int) int {
	end := "]" + strings.Repeat("=", longBracket(src, i)) + "]"
	if n := strings.Index(src[i:], end); n >= 0 {
		return i + n + len(end)
	}
	return len(src)
}

func skipQuoted(src string, i int) int {
	quote := src[i]
	for i++; i < len(src) && src[i] != quote && src[i] != '\n'; i++ {
		if src[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(src))
}
