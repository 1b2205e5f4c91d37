package rdb

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file writes and reads listpacks. A listpack consists of a header (size
// in bytes, number of elements), the elements and an end mark. Each element is
// a number or a text, followed by its size so that the elements can be read
// backward.

const (
	listpackHead = 4 + 2
	// packUnknown is the number of elements in the header if the real number
	// does not fit into 16 bits.
	packUnknown = math.MaxUint16
	packEnd     = 0xff
)

// listpack is a listpack that is being written.
type listpack struct {
	b []byte // listpack with its header and without its end mark
	n int
}

func newListpack() listpack { return listpack{b: make([]byte, listpackHead, 256)} }

// size returns the size of the complete listpack in bytes.
func (l *listpack) size() int { return len(l.b) + 1 }

// text adds an element. The element is stored as a number if s is the canonical
// text of an integer.
func (l *listpack) text(s string) {
	if len(s) <= 20 {
		if n, ok := number.ParseInt([]byte(s)); ok {
			l.integer(n)
			return
		}
	}
	start := len(l.b)
	switch n := len(s); {
	case n < 1<<6:
		l.b = append(l.b, 0x80|byte(n))
	case n < 1<<12:
		l.b = append(l.b, 0xe0|byte(n>>8), byte(n))
	default:
		l.b = binary.LittleEndian.AppendUint32(append(l.b, 0xf0), uint32(n))
	}
	l.b = append(l.b, s...)
	l.close(start)
}

func (l *listpack) integer(n int64) {
	start := len(l.b)
	switch {
	case 0 <= n && n < 1<<7:
		l.b = append(l.b, byte(n))
	case -1<<12 <= n && n < 1<<12:
		l.b = append(l.b, 0xc0|byte(n>>8)&0x1f, byte(n))
	case n == int64(int16(n)):
		l.b = binary.LittleEndian.AppendUint16(append(l.b, 0xf1), uint16(n))
	case -1<<23 <= n && n < 1<<23:
		l.b = append(l.b, 0xf2, byte(n), byte(n>>8), byte(n>>16))
	case n == int64(int32(n)):
		l.b = binary.LittleEndian.AppendUint32(append(l.b, 0xf3), uint32(n))
	default:
		l.b = binary.LittleEndian.AppendUint64(append(l.b, 0xf4), uint64(n))
	}
	l.close(start)
}

// close appends the size of the element that begins at start.
func (l *listpack) close(start int) {
	l.b = appendBacklen(l.b, len(l.b)-start)
	l.n++
}

// appendBacklen appends a size in a form that can be read backward: seven bits
// a byte, with the highest bits first. All bytes but the first are marked by
// their high bit.
func appendBacklen(b []byte, n int) []byte {
	size := backlenSize(n)
	for i := size - 1; i >= 0; i-- {
		c := byte(n >> (7 * i) & 0x7f)
		if i < size-1 {
			c |= 0x80
		}
		b = append(b, c)
	}
	return b
}

// backlenSize returns the number of bytes that the encoded form of a size
// takes. As in Redis, the largest sizes that would fit into two, three and four
// bytes take one byte more.
func backlenSize(n int) int {
	switch {
	case n < 1<<7:
		return 1
	case n < 1<<14-1:
		return 2
	case n < 1<<21-1:
		return 3
	case n < 1<<28-1:
		return 4
	}
	return 5
}

// bytes completes the listpack and returns it. No element may be added
// afterward.
func (l *listpack) bytes() []byte {
	b := append(l.b, packEnd)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint16(b[4:], uint16(min(l.n, packUnknown)))
	return b
}

// packed is the content of a listpack, a ziplist, a zipmap or an intset. It is
// known to be well-formed.
type packed struct {
	b      []byte
	n      int // the number of remaining elements
	decode func(b []byte) (e packedElement, size int)
	digits [20]byte
}

// packedElement is an element: a text or a number.
type packedElement struct {
	text    []byte
	number  int64
	numeric bool
}

// next returns the next element as text. There must be one. The result is valid
// until the next call.
func (p *packed) next() []byte {
	e, size := p.decode(p.b)
	p.b = p.b[size:]
	p.n--
	if e.numeric {
		return strconv.AppendInt(p.digits[:0], e.number, 10)
	}
	return e.text
}

// openListpack checks a whole listpack and returns its content. ok is false if
// the listpack is not well-formed. If ok is true, the caller can use the
// elements without further checks.
func openListpack(b []byte) (p packed, ok bool) {
	if len(b) < listpackHead+1 || uint64(binary.LittleEndian.Uint32(b)) != uint64(len(b)) || b[len(b)-1] != packEnd {
		return p, false
	}
	p = packed{b: b[listpackHead : len(b)-1], decode: listpackElement}
	for rest := p.b; len(rest) > 0; p.n++ {
		_, size := p.decode(rest)
		if size == 0 {
			return p, false
		}
		rest = rest[size:]
	}
	n := int(binary.LittleEndian.Uint16(b[4:]))
	return p, n == packUnknown || n == p.n
}

// listpackElement reads the element at the start of b. size is the size of the
// whole element in bytes, or 0 if b does not begin with a valid element.
func listpackElement(b []byte) (e packedElement, size int) {
	head, text := 1, 0
	c := b[0]
	switch {
	case c < 0x80:
		e.number, e.numeric = int64(c), true
	case c < 0xc0:
		text = int(c & 0x3f)
	case c < 0xe0 && len(b) > 1:
		head = 2
		e.number, e.numeric = int64(int16(uint16(c)<<11|uint16(b[1])<<3)>>3), true
	case c < 0xf0 && len(b) > 1:
		head = 2
		text = int(c&0x0f)<<8 | int(b[1])
	case c == 0xf0 && len(b) > 4:
		head = 5
		text = int(binary.LittleEndian.Uint32(b[1:]))
	case 0xf1 <= c && c <= 0xf4:
		width := [...]int{2, 3, 4, 8}[c-0xf1]
		if head += width; head > len(b) {
			return e, 0
		}
		e.number, e.numeric = littleEndian(b[1:head]), true
	default:
		return e, 0
	}
	if text > len(b)-head {
		return e, 0
	}
	if !e.numeric {
		e.text = b[head : head+text]
	}
	n := head + text
	var want [5]byte
	backlen := appendBacklen(want[:0], n)
	if size = n + len(backlen); size > len(b) || string(b[n:size]) != string(backlen) {
		return e, 0
	}
	return e, size
}

// littleEndian reads a signed number of up to eight bytes.
func littleEndian(b []byte) int64 {
	var n uint64
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	shift := 64 - 8*len(b)
	return int64(n<<shift) >> shift
}
