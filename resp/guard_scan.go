package resp

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// The reasons of protocol errors, as Redis 7.0.15 words them after
// "-ERR Protocol error: ".
const (
	guardBadMulti      = "invalid multibulk length"
	guardBadBulk       = "invalid bulk length"
	guardBadQuotes     = "unbalanced quotes in request"
	guardLongInline    = "too big inline request"
	guardLongMulti     = "too big mbulk count string"
	guardLongBulk      = "too big bulk count string"
	guardUnauthMulti   = "unauthenticated multibulk length"
	guardUnauthBulk    = "unauthenticated bulk length"
	guardExpectedBulk  = "expected '$', got '%c'"
	guardTooBigCommand = "too big command, the limit is %d bytes" // ours: Redis closes without a word
)

// A guardEvent is what ended the bytes that guardScanner.next took.
type guardEvent uint8

const (
	guardMore   guardEvent = iota // no more input: the command goes on
	guardWhole                    // a whole multibulk command
	guardInline                   // a whole inline command with its line end
	guardBlank                    // a command without arguments, which Redis ignores
	guardWeb                      // a command named POST or Host:
	guardFail                     // a protocol error: see guardScanner.reason
)

type guardState uint8

const (
	guardAtStart     guardState = iota // before the first byte of a command
	guardInLine                        // inside an inline command
	guardInCount                       // inside *n, its star taken
	guardAfterCount                    // *n\r taken
	guardAtLength                      // before the first byte of $n
	guardInLength                      // inside $n
	guardAfterLength                   // $n\r taken
	guardInBody                        // inside the bytes of an argument or their CRLF
)

// A guardScanner follows the command in progress byte by byte: it keeps what it
// has seen as a few numbers, so it never looks back and its cost does not depend
// on how the input is cut into packets. It reads as Redis does, oddities
// included: a count or length line ends at the first CR whatever follows it, a
// NUL before that CR (strchr stops there) makes the line endless, and the two
// bytes behind an argument are not looked at. What redcon would read otherwise is
// written over with CR LF in place.
type guardScanner struct {
	state  guardState
	dead   bool // a NUL came before the line's end: only the length limit ends it
	first  bool // the next argument is the command's name
	head   byte // first byte of a length line
	number guardNumber
	line   int // bytes of the current line, without its end
	args   int // arguments still to come
	body   int // bytes of the argument still to come, CR LF included
	name   int // length of the command's name
	size   int // bytes of the command so far

	reason string // after guardFail
	char   byte   // the %c of guardExpectedBulk
}

// next scans b[i:] up to the end of the command in progress and returns the
// index after the last byte that it took and what it found there. The command's
// bytes that earlier calls took must lie directly before b[i].
func (s *guardScanner) next(b []byte, i int, l *Limits, auth bool) (int, guardEvent) {
	for i < len(b) {
		from := i
		ev := guardMore
		switch s.state {
		case guardAtStart:
			i, ev = s.start(b, i)
		case guardInLine:
			i, ev = s.inline(b, i, l)
		case guardInCount, guardInLength:
			i, ev = s.digits(b, i, l)
		case guardAtLength:
			s.head = b[i]
			s.state = guardInLength
			if s.head == '$' {
				s.line++
				i++
			}
		case guardAfterCount:
			b[i] = '\n'
			i++
			ev = s.count(l, auth)
		case guardAfterLength:
			b[i] = '\n'
			i++
			ev = s.length(l, auth, s.size+i-from)
		case guardInBody:
			i, ev = s.bytes(b, i)
		}
		s.size += i - from
		if ev != guardMore {
			reason, char := s.reason, s.char
			*s = guardScanner{reason: reason, char: char}
			return i, ev
		}
	}
	return i, guardMore
}

func (s *guardScanner) start(b []byte, i int) (int, guardEvent) {
	switch b[i] {
	case '*':
		s.state = guardInCount
		s.line = 1
		return i + 1, guardMore
	case '\n':
		return i + 1, guardBlank
	}
	s.state = guardInLine
	return i, guardMore
}

// inline looks for the line's end. A NUL in front of it hides it.
func (s *guardScanner) inline(b []byte, i int, l *Limits) (int, guardEvent) {
	rest := b[i:min(len(b), i+l.MaxInline-s.line+1)]
	if !s.dead {
		end := bytes.IndexByte(rest, '\n')
		if end >= 0 {
			rest = rest[:end]
		}
		s.dead = bytes.IndexByte(rest, 0) >= 0
		if end >= 0 && !s.dead {
			return i + end + 1, guardInline
		}
	}
	s.line += len(rest)
	if s.line > l.MaxInline {
		s.reason = guardLongInline
		return i + len(rest), guardFail
	}
	return i + len(rest), guardMore
}

// digits takes a count or length line up to and with its CR.
func (s *guardScanner) digits(b []byte, i int, l *Limits) (int, guardEvent) {
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case s.dead:
		case c == '\r':
			s.state++ // guardInCount to guardAfterCount, guardInLength to guardAfterLength
			return i + 1, guardMore
		case c == 0:
			s.dead = true
		default:
			s.number.add(c)
		}
		if s.line++; s.line > l.MaxInline {
			s.reason = guardLongMulti
			if s.state == guardInLength {
				s.reason = guardLongBulk
			}
			return i + 1, guardFail
		}
	}
	return i, guardMore
}

// count judges *n.
func (s *guardScanner) count(l *Limits, auth bool) guardEvent {
	n, ok := s.number.value()
	switch {
	case !ok || n > math.MaxInt32:
		s.reason = guardBadMulti
		return guardFail
	case n > int64(l.UnauthArgs) && !auth:
		s.reason = guardUnauthMulti
		return guardFail
	case n > int64(l.MaxArgs):
		s.reason = guardBadMulti
		return guardFail
	case n <= 0:
		return guardBlank
	}
	s.args = int(n)
	s.first = true
	s.expectLength()
	return guardMore
}

// length judges $n; size is the command's size with this line.
func (s *guardScanner) length(l *Limits, auth bool, size int) guardEvent {
	n, ok := s.number.value()
	switch {
	case s.head != '$':
		s.reason, s.char = guardExpectedBulk, s.head
		return guardFail
	case !ok || n < 0 || n > int64(l.MaxBulk):
		s.reason = guardBadBulk
		return guardFail
	case n > int64(l.UnauthBulk) && !auth:
		s.reason = guardUnauthBulk
		return guardFail
	case size+int(n)+2 > l.MaxCommand:
		s.reason = guardTooBigCommand
		return guardFail
	}
	s.body = int(n) + 2
	if s.first {
		s.name = int(n)
	}
	s.state = guardInBody
	return guardMore
}

// bytes passes over an argument.
func (s *guardScanner) bytes(b []byte, i int) (int, guardEvent) {
	n := min(s.body, len(b)-i)
	s.body -= n
	i += n
	if s.body > 0 {
		return i, guardMore
	}
	b[i-2], b[i-1] = '\r', '\n'
	if s.first && guardIsWebWord(b[i-2-s.name:i-2]) {
		return i, guardWeb
	}
	s.first = false
	if s.args--; s.args == 0 {
		return i, guardWhole
	}
	s.expectLength()
	return i, guardMore
}

func (s *guardScanner) expectLength() {
	s.state = guardAtLength
	s.number = guardNumber{}
	s.line = 0
}

// text returns the reason of a guardFail in words.
func (s *guardScanner) text(l *Limits) string {
	switch s.reason {
	case guardTooBigCommand:
		return fmt.Sprintf(guardTooBigCommand, l.MaxCommand)
	case guardExpectedBulk:
		char := s.char
		if char == '\r' || char == '\n' {
			char = ' ' // as Redis does: the error is one line
		}
		// Not %c, which would turn a byte above 127 into two.
		return strings.Replace(guardExpectedBulk, "%c", string([]byte{char}), 1)
	}
	return s.reason
}

// A guardNumber reads a decimal number as string2ll of Redis does: no plus, no
// blanks, no leading zero, no -0, nothing beyond 64 bits.
type guardNumber struct {
	n      uint64
	digits int
	neg    bool
	bad    bool
}

func (n *guardNumber) add(c byte) {
	switch {
	case n.bad:
	case n.digits == 0 && c == '-' && !n.neg:
		n.neg = true
	case c < '0' || c > '9',
		n.digits == 0 && n.neg && c == '0',
		n.digits > 0 && n.n == 0,
		n.n > (math.MaxInt64+1)/10:
		n.bad = true
	default:
		n.n = n.n*10 + uint64(c-'0')
		n.digits++
	}
}

func (n *guardNumber) value() (int64, bool) {
	switch {
	case n.bad || n.digits == 0:
		return 0, false
	case n.neg:
		return -int64(n.n), n.n <= math.MaxInt64+1
	}
	return int64(n.n), n.n <= math.MaxInt64
}

// guardRun returns how many bytes at the front of b are whole multibulk commands
// that can go to redcon as they are, at most most of them. It is the short way for
// what clients normally send: canonical numbers, CR LF everywhere, nothing beyond
// a limit. It stops without a verdict at anything else, and a guardScanner decides.
func guardRun(b []byte, most int, l *Limits, auth bool) int {
	maxArgs, maxBulk := l.MaxArgs, l.MaxBulk
	if !auth {
		maxArgs, maxBulk = min(maxArgs, l.UnauthArgs), min(maxBulk, l.UnauthBulk)
	}
	end := 0
	for ; most > 0; most-- {
		i, args := guardRunNumber(b, end, '*')
		if args < 1 || args > maxArgs {
			return end
		}
		for a := 0; a < args; a++ {
			body, n := guardRunNumber(b, i, '$')
			if n < 0 || n > maxBulk {
				return end
			}
			i = body + n + 2
			if i > len(b) || b[i-2] != '\r' || b[i-1] != '\n' {
				return end
			}
			if a == 0 && guardIsWebWord(b[body:body+n]) {
				return end
			}
		}
		if i-end > l.MaxCommand {
			return end
		}
		end = i
	}
	return end
}

// guardRunNumber reads mark, a number of at most nine digits without a leading
// zero, and CR LF at b[i:]. It returns the index behind them and the number, or
// a number of -1 if something else is there.
func guardRunNumber(b []byte, i int, mark byte) (next, n int) {
	if i >= len(b) || b[i] != mark {
		return 0, -1
	}
	first := i + 1
	for i = first; i < len(b) && i < first+9 && '0' <= b[i] && b[i] <= '9'; i++ {
		n = n*10 + int(b[i]-'0')
	}
	switch {
	case i == first, i+1 >= len(b), b[i] != '\r', b[i+1] != '\n', b[first] == '0' && i > first+1:
		return 0, -1
	}
	return i + 2, n
}
