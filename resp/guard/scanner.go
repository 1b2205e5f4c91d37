package guard

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// The reasons of protocol errors, with the text of Redis 7.0.15 after "-ERR
// Protocol error: ".
const (
	badMulti      = "invalid multibulk length"
	badBulk       = "invalid bulk length"
	badQuotes     = "unbalanced quotes in request"
	longInline    = "too big inline request"
	longMulti     = "too big mbulk count string"
	longBulk      = "too big bulk count string"
	unauthMulti   = "unauthenticated multibulk length"
	unauthBulk    = "unauthenticated bulk length"
	expectedBulk  = "expected '$', got '%c'"
	tooBigCommand = "too big command, the limit is %d bytes" // Redis has no such error: it closes the connection
)

// An event says why scanner.next returned.
type event uint8

const (
	eventMore   event = iota // no more input; the command is incomplete
	eventWhole               // a complete multibulk command
	eventInline              // a complete inline command with its line end
	eventBlank               // a command without arguments, which Redis ignores
	eventWeb                 // a command named POST or Host:
	eventFail                // a protocol error: see scanner.reason
)

type state uint8

const (
	atStart     state = iota // before the first byte of a command
	inLine                   // inside an inline command
	inCount                  // in the count line *n, after the star
	afterCount               // after *n\r
	atLength                 // before the first byte of $n
	inLength                 // in the length line $n, after the dollar sign
	afterLength              // after $n\r
	inBody                   // inside the bytes of an argument or their CRLF
)

// A scanner parses the current command byte by byte. It keeps its state, which is
// a few numbers, from one call of next to the following one. So it does not parse
// a byte twice, and its cost does not depend on how the input is split into
// packets.
//
// It parses as Redis does, including three peculiarities of Redis. A count or
// length line ends at the first CR, whatever byte follows. If a NUL precedes
// that CR, the line has no end, because strchr stops at the NUL. The two bytes
// after an argument are not checked. Where redcon would parse such bytes
// differently, the scanner overwrites them with CR LF in place.
type scanner struct {
	state  state
	dead   bool // a NUL precedes the line's end, so only the length limit ends the line
	first  bool // the next argument is the command's name
	head   byte // first byte of a length line
	number decimal
	line   int // bytes of the current line, without its end
	args   int // number of arguments still to come
	body   int // bytes of the argument still to come, with CR LF
	name   int // length of the command's name
	size   int // bytes of the command so far

	reason string // set for eventFail
	char   byte   // the byte that replaces %c in expectedBulk
}

// next scans b[i:] up to the end of the current command. It returns the index
// after the last byte that it has processed, and the event there. The bytes of
// the command from earlier calls must be directly before b[i].
func (s *scanner) next(b []byte, i int, l *Limits, auth bool) (int, event) {
	for i < len(b) {
		from := i
		ev := eventMore
		switch s.state {
		case atStart:
			i, ev = s.start(b, i)
		case inLine:
			i, ev = s.inline(b, i, l)
		case inCount, inLength:
			i, ev = s.digits(b, i, l)
		case atLength:
			s.head = b[i]
			s.state = inLength
			if s.head == '$' {
				s.line++
				i++
			}
		case afterCount:
			b[i] = '\n'
			i++
			ev = s.count(l, auth)
		case afterLength:
			b[i] = '\n'
			i++
			ev = s.length(l, auth, s.size+i-from)
		case inBody:
			i, ev = s.bytes(b, i)
		}
		s.size += i - from
		if ev != eventMore {
			reason, char := s.reason, s.char
			*s = scanner{reason: reason, char: char}
			return i, ev
		}
	}
	return i, eventMore
}

func (s *scanner) start(b []byte, i int) (int, event) {
	switch b[i] {
	case '*':
		s.state = inCount
		s.line = 1
		return i + 1, eventMore
	case '\n':
		return i + 1, eventBlank
	}
	s.state = inLine
	return i, eventMore
}

// inline searches for the end of the line. A NUL before the end hides the end.
func (s *scanner) inline(b []byte, i int, l *Limits) (int, event) {
	rest := b[i:min(len(b), i+l.MaxInline-s.line+1)]
	if !s.dead {
		end := bytes.IndexByte(rest, '\n')
		if end >= 0 {
			rest = rest[:end]
		}
		s.dead = bytes.IndexByte(rest, 0) >= 0
		if end >= 0 && !s.dead {
			return i + end + 1, eventInline
		}
	}
	s.line += len(rest)
	if s.line > l.MaxInline {
		s.reason = longInline
		return i + len(rest), eventFail
	}
	return i + len(rest), eventMore
}

// digits parses a count or length line, including its CR.
func (s *scanner) digits(b []byte, i int, l *Limits) (int, event) {
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case s.dead:
		case c == '\r':
			s.state++ // inCount becomes afterCount, inLength becomes afterLength
			return i + 1, eventMore
		case c == 0:
			s.dead = true
		default:
			s.number.add(c)
		}
		if s.line++; s.line > l.MaxInline {
			s.reason = longMulti
			if s.state == inLength {
				s.reason = longBulk
			}
			return i + 1, eventFail
		}
	}
	return i, eventMore
}

// count checks the number of *n against the limits.
func (s *scanner) count(l *Limits, auth bool) event {
	n, ok := s.number.value()
	switch {
	case !ok || n > math.MaxInt32:
		s.reason = badMulti
		return eventFail
	case n > int64(l.UnauthArgs) && !auth:
		s.reason = unauthMulti
		return eventFail
	case n > int64(l.MaxArgs):
		s.reason = badMulti
		return eventFail
	case n <= 0:
		return eventBlank
	}
	s.args = int(n)
	s.first = true
	s.expectLength()
	return eventMore
}

// length checks the number of $n against the limits. size is the size of the
// command so far, including this line.
func (s *scanner) length(l *Limits, auth bool, size int) event {
	n, ok := s.number.value()
	switch {
	case s.head != '$':
		s.reason, s.char = expectedBulk, s.head
		return eventFail
	case !ok || n < 0 || n > int64(l.MaxBulk):
		s.reason = badBulk
		return eventFail
	case n > int64(l.UnauthBulk) && !auth:
		s.reason = unauthBulk
		return eventFail
	case size+int(n)+2 > l.MaxCommand:
		s.reason = tooBigCommand
		return eventFail
	}
	s.body = int(n) + 2
	if s.first {
		s.name = int(n)
	}
	s.state = inBody
	return eventMore
}

// bytes skips the bytes of an argument.
func (s *scanner) bytes(b []byte, i int) (int, event) {
	n := min(s.body, len(b)-i)
	s.body -= n
	i += n
	if s.body > 0 {
		return i, eventMore
	}
	b[i-2], b[i-1] = '\r', '\n'
	if s.first && isWebWord(b[i-2-s.name:i-2]) {
		return i, eventWeb
	}
	s.first = false
	if s.args--; s.args == 0 {
		return i, eventWhole
	}
	s.expectLength()
	return i, eventMore
}

func (s *scanner) expectLength() {
	s.state = atLength
	s.number = decimal{}
	s.line = 0
}

// text returns the error text for an eventFail.
func (s *scanner) text(l *Limits) string {
	switch s.reason {
	case tooBigCommand:
		return fmt.Sprintf(tooBigCommand, l.MaxCommand)
	case expectedBulk:
		char := s.char
		if char == '\r' || char == '\n' {
			char = ' ' // as in Redis, because the error is one line
		}
		// %c would encode a byte above 127 as two bytes.
		return strings.Replace(expectedBulk, "%c", string([]byte{char}), 1)
	}
	return s.reason
}

// A decimal parses a decimal number as Redis' string2ll does: it accepts no
// plus sign, no blanks, no leading zero, no -0 and nothing beyond 64 bits.
type decimal struct {
	n      uint64
	digits int
	neg    bool
	bad    bool
}

func (n *decimal) add(c byte) {
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

func (n *decimal) value() (int64, bool) {
	switch {
	case n.bad || n.digits == 0:
		return 0, false
	case n.neg:
		return -int64(n.n), n.n <= math.MaxInt64+1
	}
	return int64(n.n), n.n <= math.MaxInt64
}

// scanRun returns the length of the part at the start of b that consists of
// complete multibulk commands. redcon can parse these commands as they are. The
// parameter most limits their number. scanRun is the fast path for the normal
// input of clients: canonical numbers, CR LF at every line end, and nothing
// beyond a limit. scanRun stops at any other input, which a scanner then
// checks.
func scanRun(b []byte, most int, l *Limits, auth bool) int {
	maxArgs, maxBulk := l.MaxArgs, l.MaxBulk
	if !auth {
		maxArgs, maxBulk = min(maxArgs, l.UnauthArgs), min(maxBulk, l.UnauthBulk)
	}
	end := 0
	for ; most > 0; most-- {
		i, args := runNumber(b, end, '*')
		if args < 1 || args > maxArgs {
			return end
		}
		for a := 0; a < args; a++ {
			body, n := runNumber(b, i, '$')
			if n < 0 || n > maxBulk {
				return end
			}
			i = body + n + 2
			if i > len(b) || b[i-2] != '\r' || b[i-1] != '\n' {
				return end
			}
			if a == 0 && isWebWord(b[body:body+n]) {
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

// runNumber parses mark, a number of at most nine digits without a leading
// zero, and CR LF at b[i:]. It returns the index after them and the number. If
// b[i:] contains anything else, the number is -1.
func runNumber(b []byte, i int, mark byte) (next, n int) {
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
