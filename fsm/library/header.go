package library

import (
	"strconv"
	"strings"
)

// These are the errors for a library's first line. Their texts are exactly
// those of Redis.
const (
	msgNoMetadata  = "ERR Missing library metadata"
	msgBadMetadata = "ERR Invalid library metadata"
	msgNameTwice   = "ERR Invalid metadata value, name argument was given multiple times"
	msgNoName      = "ERR Library name was not given"
)

// Engine is the name of the only engine, as FUNCTION LIST prints it.
const Engine = "LUA"

// ParseName returns the name in the first line of a library's code, "#!lua
// name=mylib".
func ParseName(code []byte) (name, refusal string) {
	text := string(code)
	if !strings.HasPrefix(text, "#!") {
		return "", msgNoMetadata
	}
	line, _, found := strings.Cut(text, "\n")
	words, ok := splitWords(line)
	if !found || !ok {
		return "", msgBadMetadata
	}
	named := false
	for _, w := range words[1:] {
		const key = "name="
		switch {
		case len(w) < len(key) || !strings.EqualFold(w[:len(key)], key):
			return "", "ERR Invalid metadata value given: " + w
		case named:
			return "", msgNameTwice
		}
		name, named = w[len(key):], true
	}
	engine := words[0][len("#!"):]
	switch {
	case !named:
		return "", msgNoName
	case !ValidName(name):
		return "", "ERR " + MsgName
	case !strings.EqualFold(engine, Engine):
		return "", "ERR Engine '" + engine + "' not found"
	}
	return name, ""
}

// splitWords splits a line into words as Redis splits an inline command. White
// space separates words, except in quotes. ok is false if the line contains a
// zero byte, if a quote is not closed, or if a closing quote is followed by
// something other than white space.
func splitWords(line string) (words []string, ok bool) {
	line, _, cut := strings.Cut(line, "\x00") // a C string ends at a zero byte
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return words, !cut
		}
		var w []byte
		for i < len(line) && !isSpace(line[i]) {
			if q := line[i]; q == '"' || q == '\'' {
				n := 0
				if w, n, ok = quoted(w, line[i:]); !ok {
					return nil, false
				}
				if i += n; i < len(line) && !isSpace(line[i]) {
					return nil, false
				}
				break
			}
			w = append(w, line[i])
			i++
		}
		words = append(words, string(w))
	}
}

// quoted appends to w the quoted text with which s begins, without its quotes.
// n is the length of this text in s, including the quotes.
func quoted(w []byte, s string) (_ []byte, n int, ok bool) {
	q := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == q:
			return w, i + 1, true
		case s[i] != '\\' || i+1 == len(s):
			w = append(w, s[i])
		case q == '\'':
			if s[i+1] == '\'' {
				i++
			}
			w = append(w, s[i])
		default:
			b, n := escaped(s[i+1:])
			w = append(w, b)
			i += n
		}
	}
	return nil, 0, false
}

// escaped returns the byte that a backslash and the first n bytes of s stand
// for, in a text in double quotes.
func escaped(s string) (b byte, n int) {
	if s[0] == 'x' && len(s) >= 3 {
		if v, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
			return byte(v), 3
		}
	}
	if i := strings.IndexByte("nrtba", s[0]); i >= 0 {
		return "\n\r\t\b\a"[i], 1
	}
	return s[0], 1
}

func isSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }
