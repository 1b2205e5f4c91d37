// Package wire reads encoded replies: their boundaries, the errors in them and
// their strings. It does not change the replies.
package wire

import (
	"bytes"
	"fmt"
	"strconv"
)

// Len returns the length of the first reply in b. It returns 0 if b does
// not begin with a complete reply.
func Len(b []byte) int {
	size := 0
	for parts := 1; parts > 0; parts-- {
		head, n, inner := Head(b[size:])
		if head == 0 || n > len(b)-size-head {
			return 0
		}
		size += head + n
		if parts += inner; parts > len(b) { // more parts than bytes: incomplete
			return 0
		}
	}
	return size
}

// Head parses the first line of a reply. head is the length of the line,
// payload the number of bytes after it, and inner the number of nested
// replies. head is 0 if the line is incomplete or malformed, if the number in
// the line exceeds len(b), or if the payload does not end in CR LF.
func Head(b []byte) (head, payload, inner int) {
	end := bytes.IndexByte(b, '\n')
	if end < 2 || b[end-1] != '\r' {
		return 0, 0, 0
	}
	switch b[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return end + 1, 0, 0
	case '$', '=', '*', '~', '>', '%':
		n, err := strconv.Atoi(string(b[1 : end-1]))
		switch {
		case err != nil || n > len(b):
			return 0, 0, 0
		case n < 0:
			return end + 1, 0, 0 // a null of RESP2
		case b[0] == '$' || b[0] == '=':
			if last := end + 1 + n; last+1 < len(b) && (b[last] != '\r' || b[last+1] != '\n') {
				return 0, 0, 0
			}
			return end + 1, n + 2, 0
		case b[0] == '%':
			return end + 1, 0, 2 * n
		}
		return end + 1, 0, n
	}
	return 0, 0, 0
}

// MayHoldError reports whether b may contain an error line. It is cheap. It
// rarely returns true for a reply that contains no error line.
func MayHoldError(b []byte) bool {
	return len(b) > 0 && (b[0] == '-' || bytes.Contains(b, []byte("\n-")))
}

// EachError calls f with every error line of a complete reply, including the
// errors in arrays. f receives the line without its minus sign and its line end.
func EachError(b []byte, f func(line []byte)) {
	for len(b) > 0 {
		head, payload, _ := Head(b)
		if head == 0 || head+payload > len(b) {
			return
		}
		if b[0] == '-' {
			f(b[1 : head-2])
		}
		b = b[head+payload:]
	}
}

// Bulks returns all bulk strings in a reply, at any depth. It returns an error if
// the reply contains no bulk string.
func Bulks(reply []byte) ([]string, error) {
	var out []string
	for rest := reply; len(rest) > 0; {
		head, payload, _ := Head(rest)
		if head == 0 {
			break
		}
		if rest[0] == '$' && payload > 0 {
			out = append(out, string(rest[head:head+payload-2]))
		}
		rest = rest[head+payload:]
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("unexpected reply %s", strconv.Quote(string(reply[:min(len(reply), 64)])))
	}
	return out, nil
}

// CutBulk splits encoded replies into the first reply, which must be a bulk string,
// and the rest. It returns false if the first reply is not a bulk string.
func CutBulk(b []byte) (value string, rest []byte, ok bool) {
	n := Len(b)
	head, payload, _ := Head(b)
	if n == 0 || b[0] != '$' || payload < 2 {
		return "", b, false
	}
	return string(b[head : head+payload-2]), b[n:], true
}
