package fsm

import (
	"math"
	"strconv"
)

// kind is the RESP3 type of a reply; RESP2 falls back where it has no such type.
type kind byte

const (
	kindNull kind = iota
	kindNullArray
	kindSimple
	kindError
	kindInt
	kindBulk
	kindArray
	kindMap // elems are key, value, key, value
	kindSet
	kindDouble    // s is the text, if it is not FormatDouble's
	kindBoolean   // n is 0 or 1
	kindBigNumber // s holds the digits
	kindVerbatim  // elems[0], if there is one, is the format
	kindRaw       // s holds ready RESP bytes
	kindNone      // nothing is written
)

// Reply is what a command answers: a value, not yet bytes, so that clients,
// MULTI and scripts are served by the same function.
type Reply struct {
	kind  kind
	n     int64
	f     float64
	s     string
	elems []Reply
}

// Common replies.
var (
	OK        = Reply{kind: kindSimple, s: "OK"}
	Null      = Reply{kind: kindNull}
	NullArray = Reply{kind: kindNullArray}
	None      = Reply{kind: kindNone}
	Zero      = Int(0)
	One       = Int(1)
)

// Int is an integer reply.
func Int(n int64) Reply { return Reply{kind: kindInt, n: n} }

// Bool is 1 or 0: Redis' commands answer integers, in RESP3 too.
func Bool(b bool) Reply {
	if b {
		return One
	}
	return Zero
}

// Simple is a status line such as +OK.
func Simple(s string) Reply { return Reply{kind: kindSimple, s: s} }

// Bulk is a binary-safe string.
func Bulk(s string) Reply { return Reply{kind: kindBulk, s: s} }

// Error is an error line; text begins with its code ("ERR syntax error").
func Error(text string) Reply { return Reply{kind: kindError, s: text} }

// ErrorResult is an error line that a script returned as its value, having ended
// well: what the script wrote stays. Any other error of a script undoes it.
func ErrorResult(text string) Reply { return Reply{kind: kindError, n: 1, s: text} }

// Array is a list of replies.
func Array(elems []Reply) Reply { return Reply{kind: kindArray, elems: elems} }

// Map is a RESP3 map, a flat array in RESP2; elems are key, value, key, value.
func Map(elems []Reply) Reply { return Reply{kind: kindMap, elems: elems} }

// Set is a RESP3 set, an array in RESP2.
func Set(elems []Reply) Reply { return Reply{kind: kindSet, elems: elems} }

// Double is a RESP3 double, a bulk string in RESP2.
func Double(f float64) Reply { return Reply{kind: kindDouble, f: f} }

// DecimalDouble is a double that is printed as it is written in text.
func DecimalDouble(text string) Reply {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("fsm: " + err.Error())
	}
	return Reply{kind: kindDouble, f: f, s: text}
}

// Boolean is a RESP3 boolean, 1 or 0 in RESP2. Only scripts answer it.
func Boolean(b bool) Reply {
	r := Bool(b)
	r.kind = kindBoolean
	return r
}

// BigNumber is a RESP3 big number, a bulk string in RESP2.
func BigNumber(digits string) Reply { return Reply{kind: kindBigNumber, s: digits} }

// Verbatim is a RESP3 verbatim text, a bulk string in RESP2.
func Verbatim(s string) Reply { return Reply{kind: kindVerbatim, s: s} }

// VerbatimAs is Verbatim with another format than txt: three letters.
func VerbatimAs(format, s string) Reply {
	return Reply{kind: kindVerbatim, s: s, elems: []Reply{Bulk(format)}}
}

// Raw is a reply that is already encoded for the connection's protocol.
func Raw(b []byte) Reply { return Reply{kind: kindRaw, s: string(b)} }

// Strings is an array of bulk strings.
func Strings(ss ...string) Reply {
	elems := make([]Reply, len(ss))
	for i, s := range ss {
		elems[i] = Bulk(s)
	}
	return Array(elems)
}

// IsError reports whether the reply is an error.
func (r Reply) IsError() bool { return r.kind == kindError }

// failed reports whether the reply is an error that ended a script.
func (r Reply) failed() bool { return r.kind == kindError && r.n == 0 }

// Text returns the string of a simple, error, bulk or verbatim reply, or a double
// as it is printed.
func (r Reply) Text() string {
	if r.kind == kindDouble && r.s == "" {
		return FormatDouble(r.f)
	}
	return r.s
}

// Append encodes the reply for a connection that speaks RESP proto (2 or 3). A
// list that grows beyond MaxReplyBytes is cut short there, since nobody may be
// sent it: MGET of a million times the same large value must not take the memory
// that it would take.
func (r Reply) Append(dst []byte, proto int) []byte {
	switch r.kind {
	case kindNull:
		if proto >= 3 {
			return append(dst, "_\r\n"...)
		}
		return append(dst, "$-1\r\n"...)
	case kindNullArray:
		if proto >= 3 {
			return append(dst, "_\r\n"...)
		}
		return append(dst, "*-1\r\n"...)
	case kindSimple:
		return appendLine(dst, '+', r.s)
	case kindError:
		return appendLine(dst, '-', r.s)
	case kindInt:
		return AppendHead(dst, ':', r.n)
	case kindBulk:
		return appendBulk(dst, r.s)
	case kindVerbatim:
		if proto < 3 {
			return appendBulk(dst, r.s)
		}
		dst = AppendHead(dst, '=', int64(len(r.s)+4))
		dst = append(dst, r.Format()...)
		dst = append(dst, ':')
		dst = append(dst, r.s...)
		return append(dst, '\r', '\n')
	case kindDouble:
		if proto < 3 {
			return appendBulk(dst, r.Text())
		}
		return appendLine(dst, ',', r.Text())
	case kindBoolean:
		switch {
		case proto < 3:
			return AppendHead(dst, ':', r.n)
		case r.n != 0:
			return append(dst, "#t\r\n"...)
		}
		return append(dst, "#f\r\n"...)
	case kindBigNumber:
		if proto < 3 {
			return appendBulk(dst, r.s)
		}
		return appendLine(dst, '(', r.s)
	case kindRaw:
		return append(dst, r.s...)
	case kindNone:
		return dst
	}
	head := byte('*')
	n := len(r.elems)
	if proto >= 3 {
		switch r.kind {
		case kindMap:
			head, n = '%', n/2
		case kindSet:
			head = '~'
		}
	}
	start := len(dst)
	dst = AppendHead(dst, head, int64(n))
	for i := range r.elems {
		if dst = r.elems[i].Append(dst, proto); len(dst)-start > MaxReplyBytes {
			break
		}
	}
	return dst
}

// AppendHead appends a RESP line of a type byte and a number: ":1\r\n", "*3\r\n".
func AppendHead(dst []byte, typ byte, n int64) []byte {
	dst = append(dst, typ)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

func appendLine(dst []byte, typ byte, s string) []byte {
	dst = append(dst, typ)
	for i := 0; i < len(s); i++ { // a line break in a text would break the framing
		if b := s[i]; b == '\r' || b == '\n' {
			b = ' '
			dst = append(dst, b)
		} else {
			dst = append(dst, b)
		}
	}
	return append(dst, '\r', '\n')
}

func appendBulk(dst []byte, s string) []byte {
	dst = AppendHead(dst, '$', int64(len(s)))
	dst = append(dst, s...)
	return append(dst, '\r', '\n')
}

// FormatDouble prints a double as Redis does: with 17 digits, and with those that
// it has if it is integral and has no more.
func FormatDouble(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}
