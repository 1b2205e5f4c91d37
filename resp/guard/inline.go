package guard

import (
	"bytes"
	"strconv"
)

// splitInline splits the line of an inline command, without its line end, into
// arguments. It returns false for unbalanced quotes. A blank line has no arguments.
//
// The quoting rules are those of sdssplitargs in Redis 7.0. Between double quotes,
// \xHH, \n, \r, \t, \b and \a are escape sequences, and any other escaped byte
// stands for itself. Between single quotes, only \' is an escape sequence. A
// closing quote must be followed by white space or by the end of the line. redcon
// has other rules: it has no quotes inside a word, no \x and no tabs. Therefore,
// inline commands never reach redcon.
func splitInline(line []byte) ([][]byte, bool) {
	var args [][]byte
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return args, true
		}
		arg, next, ok := inlineWord(line, i)
		if !ok {
			return nil, false
		}
		args = append(args, arg)
		i = next
	}
}

// inlineWord parses the word that starts at line[i]. It returns the word
// and the index after it.
func inlineWord(line []byte, i int) (word []byte, next int, ok bool) {
	word = []byte{}
	for ; i < len(line); i++ {
		switch c := line[i]; c {
		// A vertical tab or form feed separates words only in front of a word.
		// Inside a word, Redis keeps that character.
		case ' ', '\n', '\r', '\t':
			return word, i, true
		case '"', '\'':
			if word, i, ok = inlineQuoted(word, line, i); !ok {
				return nil, 0, false
			}
			return word, i, true
		default:
			word = append(word, c)
		}
	}
	return word, i, true
}

// inlineQuoted appends the quoted text whose opening quote is line[i] to
// word. It returns the word and the index after the closing quote.
func inlineQuoted(word, line []byte, i int) ([]byte, int, bool) {
	quote := line[i]
	for i++; i < len(line); i++ {
		c := line[i]
		switch {
		case c == quote:
			i++
			return word, i, i == len(line) || isSpace(line[i])
		case c != '\\' || i+1 == len(line):
			word = append(word, c)
		case quote == '\'':
			if line[i+1] == '\'' {
				i++
				c = '\''
			}
			word = append(word, c)
		case line[i+1] == 'x' && i+3 < len(line) && hexDigit(line[i+2]) >= 0 && hexDigit(line[i+3]) >= 0:
			word = append(word, byte(hexDigit(line[i+2])<<4|hexDigit(line[i+3])))
			i += 3
		default:
			i++
			word = append(word, unescape(line[i]))
		}
	}
	return nil, 0, false
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// isSpace is isspace in the C locale.
func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// encode appends args as a multibulk command to dst.
func encode(dst []byte, args [][]byte) []byte {
	dst = append(dst, '*')
	dst = strconv.AppendInt(dst, int64(len(args)), 10)
	dst = append(dst, '\r', '\n')
	for _, arg := range args {
		dst = append(dst, '$')
		dst = strconv.AppendInt(dst, int64(len(arg)), 10)
		dst = append(dst, '\r', '\n')
		dst = append(dst, arg...)
		dst = append(dst, '\r', '\n')
	}
	return dst
}

// isWebWord reports whether a command name shows that a web browser was
// made to send an HTTP request to this port. Redis closes the connection for
// the same two names (securityWarningCommand).
func isWebWord(name []byte) bool {
	switch len(name) {
	case 4:
		return bytes.EqualFold(name, []byte("post"))
	case 5:
		return bytes.EqualFold(name, []byte("host:"))
	}
	return false
}

// isWebRequest reports whether an inline command is the request line or the Host:
// line of an HTTP request. Redis executes the request line, except that of a POST,
// as a command, and drops the reply if the Host: line arrives in the same packet.
// Here, the reply must not depend on how the input is split into packets, so the
// request line alone decides. No method of HTTP is a command with two arguments, so
// no valid command is refused.
func isWebRequest(args [][]byte) bool {
	if len(args) > 0 && isWebWord(args[0]) {
		return true
	}
	if len(args) != 3 || !bytes.HasPrefix(args[2], []byte("HTTP/")) {
		return false
	}
	switch string(args[0]) {
	case "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PRI":
		return true
	}
	return false
}
