package fsm

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// kind is the RESP3 type of a reply. If RESP2 does not have this type, the
// reply is encoded as the closest RESP2 type.
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
	kindDouble    // s is the text; if s is "", the text is that of FormatDouble
	kindBoolean   // n is 0 or 1
	kindBigNumber // s contains the digits
	kindVerbatim  // elems[0], if present, is the format
	kindRaw       // s contains encoded RESP
	kindNone      // encoded as nothing
)

// Reply is the result of a command. It is a value that is not encoded yet, so
// the same function of a command serves clients, MULTI and scripts.
type Reply struct {
	kind  kind
	n     int64
	f     float64
	s     string
	elems []Reply
}

// These are common replies.
var (
	OK        = Reply{kind: kindSimple, s: "OK"}
	Null      = Reply{kind: kindNull}
	NullArray = Reply{kind: kindNullArray}
	None      = Reply{kind: kindNone}
	Zero      = Int(0)
	One       = Int(1)
)

// Int returns an integer reply.
func Int(n int64) Reply { return Reply{kind: kindInt, n: n} }

// Bool returns the integer 1 or 0. Redis' commands reply with integers in RESP3
// too.
func Bool(b bool) Reply {
	if b {
		return One
	}
	return Zero
}

// Simple returns a status line such as +OK.
func Simple(s string) Reply { return Reply{kind: kindSimple, s: s} }

// Bulk returns a binary-safe string.
func Bulk(s string) Reply { return Reply{kind: kindBulk, s: s} }

// Error returns an error line; text begins with its code ("ERR syntax error").
func Error(text string) Reply { return Reply{kind: kindError, s: text} }

// ErrorResult returns an error line that a script returned as its value. The
// script has ended normally, so its writes stay. Any other error of a script
// rolls the script back.
func ErrorResult(text string) Reply { return Reply{kind: kindError, n: 1, s: text} }

// Array returns a list of replies.
func Array(elems []Reply) Reply { return Reply{kind: kindArray, elems: elems} }

// Map returns a RESP3 map, which is a flat array in RESP2. elems are key,
// value, key, value.
func Map(elems []Reply) Reply { return Reply{kind: kindMap, elems: elems} }

// Set returns a RESP3 set, which is an array in RESP2.
func Set(elems []Reply) Reply { return Reply{kind: kindSet, elems: elems} }

// Double returns a RESP3 double, which is a bulk string in RESP2.
func Double(f float64) Reply { return Reply{kind: kindDouble, f: f} }

// DecimalDouble returns a double whose printed form is exactly the given text. It
// panics if text is not a number.
func DecimalDouble(text string) Reply {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("fsm: " + err.Error())
	}
	return Reply{kind: kindDouble, f: f, s: text}
}

// Boolean returns a RESP3 boolean, which is 1 or 0 in RESP2. Only scripts and
// DEBUG PROTOCOL return it.
func Boolean(b bool) Reply {
	r := Bool(b)
	r.kind = kindBoolean
	return r
}

// BigNumber returns a RESP3 big number, which is a bulk string in RESP2.
func BigNumber(digits string) Reply { return Reply{kind: kindBigNumber, s: digits} }

// Verbatim returns a RESP3 verbatim text, which is a bulk string in RESP2.
func Verbatim(s string) Reply { return Reply{kind: kindVerbatim, s: s} }

// VerbatimAs returns a verbatim text with the given three-letter format.
func VerbatimAs(format, s string) Reply {
	return Reply{kind: kindVerbatim, s: s, elems: []Reply{Bulk(format)}}
}

// Raw returns a reply that is already encoded for the connection's protocol.
func Raw(b []byte) Reply { return Reply{kind: kindRaw, s: string(b)} }

// Strings returns an array of bulk strings.
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

// Text returns the string of a simple, error, bulk or verbatim reply, or the
// printed form of a double.
func (r Reply) Text() string {
	if r.kind == kindDouble && r.s == "" {
		return number.FormatDouble(r.f)
	}
	return r.s
}

// Append encodes the reply for a connection with RESP version proto (2 or 3).
// It stops when a list grows beyond MaxReplyBytes. If it did not stop, MGET of
// the same large value a million times would take the memory of a million
// copies. So the caller must not send a larger result.
func (r Reply) Append(dst []byte, proto int) []byte { return r.appendUpTo(dst, proto, MaxReplyBytes) }

// appendUpTo is like Append, and stops when a list grows beyond limit bytes.
func (r Reply) appendUpTo(dst []byte, proto, limit int) []byte {
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
	start := len(dst)
	dst = r.appendHead(dst, proto)
	for i := range r.elems {
		if dst = r.elems[i].appendUpTo(dst, proto, limit); len(dst)-start > limit {
			break
		}
	}
	return dst
}

// appendHead appends the line before the elements of a list.
func (r Reply) appendHead(dst []byte, proto int) []byte {
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
	return AppendHead(dst, head, int64(n))
}

// AppendHead appends a RESP line of a type byte and a number: ":1\r\n",
// "*3\r\n".
func AppendHead(dst []byte, typ byte, n int64) []byte {
	dst = append(dst, typ)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

func appendLine(dst []byte, typ byte, s string) []byte {
	dst = append(dst, typ)
	for i := 0; i < len(s); i++ { // a line break inside a text would break the framing
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

// Exceeds reports whether the encoding of the reply takes more than about n
// bytes.
func (r *Reply) Exceeds(n int) bool { return r.within(n) < 0 }

// headBytes is about the number of bytes that frame a value on the wire.
const headBytes = 8

// within estimates how many of n bytes are left when the reply has been encoded.
// The result is negative if the reply needs more than n bytes. within stops
// counting below 0.
func (r *Reply) within(n int) int {
	n -= len(r.s) + headBytes
	for i := range r.elems {
		if n < 0 {
			break
		}
		n = r.elems[i].within(n)
	}
	return n
}

// encodedSize returns the exact number of bytes that Append adds. If that is
// more than MaxReplyBytes, it returns some number above MaxReplyBytes.
func (r *Reply) encodedSize(proto int) int {
	var scratch [128]byte
	switch {
	case r.kind == kindArray || r.kind == kindMap || r.kind == kindSet:
		size := len(AppendHead(scratch[:0], '*', int64(len(r.elems))))
		if proto >= 3 && r.kind == kindMap {
			size = len(AppendHead(scratch[:0], '%', int64(len(r.elems)/2)))
		}
		for i := 0; i < len(r.elems) && size <= MaxReplyBytes; i++ {
			size += r.elems[i].encodedSize(proto)
		}
		return size
	case len(r.s) > 0:
		switch head := len(AppendHead(scratch[:0], '$', int64(len(r.s)))); r.kind {
		case kindBulk:
			return head + len(r.s) + 2
		case kindVerbatim:
			if proto < 3 {
				return head + len(r.s) + 2
			}
			return len(AppendHead(scratch[:0], '=', int64(len(r.s)+4))) + 4 + len(r.s) + 2
		case kindDouble, kindBigNumber:
			if proto < 3 {
				return head + len(r.s) + 2
			}
		case kindRaw:
			return len(r.s)
		}
		return 1 + len(r.s) + 2 // a line
	}
	return len(r.Append(scratch[:0], proto))
}

// replyMemory is the memory of a Reply, in bytes, without its string and its
// elements.
const replyMemory = int64(unsafe.Sizeof(Reply{}))

// Held estimates how many bytes of memory the reply keeps alive if the state no
// longer refers to its strings.
func (r *Reply) Held() int64 {
	n := replyMemory + int64(len(r.s))
	for i := range r.elems {
		n += r.elems[i].Held()
	}
	return n
}

// Charged estimates the encoded size of the reply, in bytes, for a command that
// collects replies in a list. It counts the texts of the reply and of its elements,
// and their RESP framing. It counts the text of a DecimalDouble, but not that of a
// Double.
func (r *Reply) Charged() int {
	n := len(r.s) + len("$1\r\n\r\n")
	for i := range r.elems {
		n += len(r.elems[i].s) + len("$1\r\n\r\n")
	}
	return n
}

const (
	encodeSlice = 64 << 10 // bytes that Encode collects before it calls write
	encodeAlone = 16 << 10 // size, in bytes, above which Encode passes a string to write without a copy
)

// Encode passes the encoding of the reply to write in pieces, and returns the
// first error of write. A piece may be part of the state, so write must neither
// change it nor keep it.
func (r *Reply) Encode(proto int, write func(b []byte) error) error {
	e := encoder{proto: proto, write: write}
	if err := e.reply(r); err != nil {
		return err
	}
	return e.flush()
}

type encoder struct {
	proto int
	write func(b []byte) error
	buf   []byte
}

func (e *encoder) flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	err := e.write(e.buf)
	e.buf = e.buf[:0]
	return err
}

func (e *encoder) reply(r *Reply) error {
	switch {
	case len(r.elems) > 0 && r.kind != kindVerbatim:
		head := Reply{kind: r.kind, elems: r.elems}
		e.buf = head.appendHead(e.buf, e.proto)
		for i := range r.elems {
			if err := e.reply(&r.elems[i]); err != nil {
				return err
			}
		}
		return nil
	case r.kind == kindBulk && len(r.s) > encodeAlone:
		e.buf = AppendHead(e.buf, '$', int64(len(r.s)))
		if err := e.flush(); err != nil {
			return err
		}
		// This avoids a copy of the string. It is safe because write does not
		// change its argument.
		if err := e.write(unsafe.Slice(unsafe.StringData(r.s), len(r.s))); err != nil {
			return err
		}
		e.buf = append(e.buf, '\r', '\n')
	default:
		e.buf = r.Append(e.buf, e.proto)
	}
	if len(e.buf) > encodeSlice {
		return e.flush()
	}
	return nil
}

// cost estimates the cost of encoding a reply, in steps and in bytes.
func (r *Reply) cost() (steps, bytes int) {
	if r.elems == nil {
		return 1 + len(r.s)/CopyBytes, len(r.s)
	}
	for i := range r.elems {
		s, b := r.elems[i].cost()
		steps += s
		if bytes += b; bytes > MaxReplyBytes {
			break
		}
	}
	return steps + 1, bytes
}

// Kind is the RESP3 type of a reply. Kind is for code that converts replies
// into something other than bytes, such as values of a script.
type Kind byte

// These are the kinds of a Reply.
const (
	KindNull      = Kind(kindNull)
	KindNullArray = Kind(kindNullArray)
	KindSimple    = Kind(kindSimple)
	KindError     = Kind(kindError)
	KindInt       = Kind(kindInt)
	KindBulk      = Kind(kindBulk)
	KindArray     = Kind(kindArray)
	KindMap       = Kind(kindMap) // Elems are key, value, key, value
	KindSet       = Kind(kindSet)
	KindDouble    = Kind(kindDouble)
	KindBoolean   = Kind(kindBoolean) // Int64 is 0 or 1
	KindBigNumber = Kind(kindBigNumber)
	KindVerbatim  = Kind(kindVerbatim)
	KindRaw       = Kind(kindRaw) // Text is encoded RESP
	KindNone      = Kind(kindNone)
)

// Kind returns the type of the reply.
func (r Reply) Kind() Kind { return Kind(r.kind) }

// Int64 returns the number of an integer reply.
func (r Reply) Int64() int64 { return r.n }

// Float64 returns the number of a double.
func (r Reply) Float64() float64 { return r.f }

// Elems returns the elements of an array, map or set. The caller must not
// change them.
func (r Reply) Elems() []Reply { return r.elems }

// Format returns the three-letter format of a verbatim text.
func (r Reply) Format() string {
	if r.kind == kindVerbatim && len(r.elems) > 0 {
		return r.elems[0].s
	}
	return "txt"
}

// These are error texts. All but msgArguments are exactly those of Redis, because
// clients match on them.
//
// The replies to logged commands are part of the hash chain. So the text of an
// error that Apply can produce is part of the meaning of an entry. A change of
// the text needs a feature version. Otherwise, nodes with two versions of the
// program diverge. An error of a speculative execution is logged with its text,
// so all nodes give the same text, and a new program may change it.
const (
	MsgWrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	MsgSyntax    = "ERR syntax error"
	MsgNotInt    = "ERR value is not an integer or out of range"
	MsgDBIndex   = "ERR DB index is out of range"
	msgArguments = "ERR command has too many arguments"
	MsgTooLong   = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
)

// These errors report a failure to decode an entry, a group or a snapshot.
var (
	// ErrShort means that an entry, group or snapshot ends in the middle of a
	// field.
	ErrShort = codec.ErrShort
	// ErrChecksum means that bytes have changed since they were written.
	ErrChecksum = codec.ErrChecksum
	// ErrVersion means that a newer program wrote the bytes.
	ErrVersion = codec.ErrVersion
	// ErrFormat means that the bytes do not have the required format.
	ErrFormat = codec.ErrFormat
)

// WrongArity returns Redis' error text for a wrong number of arguments. It
// prints name in lower case, because a script may have spelled it differently.
func WrongArity(name string) string {
	return "ERR wrong number of arguments for '" + strings.ToLower(name) + "' command"
}

// UnknownCommand returns Redis' error text for an unknown command. Clients
// recognize a missing command by the beginning of the text, "ERR unknown command".
func UnknownCommand(args [][]byte) string {
	name := clip(args[0], 128)
	text := "ERR unknown command '" + name + "', with args beginning with: "
	for used, i := 0, 1; i < len(args) && used < 128; i++ {
		arg := clip(args[i], 128-used)
		used += len(arg) + 1
		text += "'" + arg + "' "
	}
	return text
}

// UnknownSubcommand returns Redis' error text for an unknown subcommand. upper
// is the name of the container command in upper case.
func UnknownSubcommand(sub []byte, upper string) string {
	return "ERR unknown subcommand '" + clip(sub, 128) + "'. Try " + upper + " HELP."
}

func clip(b []byte, n int) string {
	if len(b) > n {
		b = b[:n]
	}
	return string(b)
}
