package resp

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// The reasons of protocol errors, with the text of Redis 7.0.15 after "-ERR
// Protocol error: ".
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
	guardTooBigCommand = "too big command, the limit is %d bytes" // ours: Redis closes the connection without a reply
)

// A guardEvent is the reason for which guardScanner.next returned.
type guardEvent uint8

const (
	guardMore   guardEvent = iota // no more input; the command is incomplete
	guardWhole                    // a complete multibulk command
	guardInline                   // a complete inline command with its line end
	guardBlank                    // a command without arguments, which Redis ignores
	guardWeb                      // a command named POST or Host:
	guardFail                     // a protocol error: see guardScanner.reason
)

type guardState uint8

const (
	guardAtStart     guardState = iota // before the first byte of a command
	guardInLine                        // inside an inline command
	guardInCount                       // inside *n, after the star
	guardAfterCount                    // after *n\r
	guardAtLength                      // before the first byte of $n
	guardInLength                      // inside $n
	guardAfterLength                   // after $n\r
	guardInBody                        // inside the bytes of an argument or their CRLF
)

// A guardScanner parses the current command byte by byte. Its state is a few
// numbers, so it never reads a byte twice, and its cost does not depend on how
// the input is split into packets.
//
// It parses as Redis does, with three peculiarities. A count or length line
// ends at the first CR, whatever byte follows. If a NUL precedes that CR, the
// line has no end, because strchr stops at the NUL. The two bytes behind an
// argument are not checked. Where redcon would parse such bytes differently,
// the scanner overwrites them with CR LF in place.
type guardScanner struct {
	state  guardState
	dead   bool // a NUL precedes the line's end, so only the length limit ends the line
	first  bool // the next argument is the command's name
	head   byte // first byte of a length line
	number guardNumber
	line   int // bytes of the current line, without its end
	args   int // number of arguments still to come
	body   int // bytes of the argument still to come, with CR LF
	name   int // length of the command's name
	size   int // bytes of the command so far

	reason string // after guardFail
	char   byte   // the %c of guardExpectedBulk
}

// next scans b[i:] up to the end of the current command. It returns the index
// behind the last byte that it has processed, and the event there. The bytes of
// the command from earlier calls must be directly before b[i].
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

// inline searches for the end of the line. A NUL before the end hides the end.
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

// digits parses a count or length line, including its CR.
func (s *guardScanner) digits(b []byte, i int, l *Limits) (int, guardEvent) {
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case s.dead:
		case c == '\r':
			s.state++ // guardInCount becomes guardAfterCount, guardInLength becomes guardAfterLength
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

// count checks the number of *n against the limits.
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

// length checks the number of $n against the limits. size is the size of the
// command so far, including this line.
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

// bytes skips the bytes of an argument.
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

// text returns the text of a guardFail.
func (s *guardScanner) text(l *Limits) string {
	switch s.reason {
	case guardTooBigCommand:
		return fmt.Sprintf(guardTooBigCommand, l.MaxCommand)
	case guardExpectedBulk:
		char := s.char
		if char == '\r' || char == '\n' {
			char = ' ' // as in Redis, because the error is one line
		}
		// %c would encode a byte above 127 as two bytes.
		return strings.Replace(guardExpectedBulk, "%c", string([]byte{char}), 1)
	}
	return s.reason
}

// A guardNumber parses a decimal number as Redis' string2ll does: it accepts no
// plus sign, no blanks, no leading zero, no -0 and nothing beyond 64 bits.
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

// guardRun returns the number of bytes at the start of b that are complete
// multibulk commands which redcon can parse as they are. It accepts at most
// most commands. It is the fast path for what clients normally send: canonical
// numbers, CR LF at every line end, and nothing beyond a limit. At anything
// else it stops without a decision, and a guardScanner decides.
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

// guardRunNumber parses mark, a number of at most nine digits without a leading
// zero, and CR LF at b[i:]. It returns the index behind them and the number. If
// b[i:] contains anything else, the number is -1.
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
