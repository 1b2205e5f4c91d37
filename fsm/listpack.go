package fsm

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Listpacks: elements one behind the other, each a number or a text with its
// size behind it, between a header of (bytes, elements) and an end mark.

const (
	listpackHead = 4 + 2
	// packUnknown stands for the number of elements where it has no room.
	packUnknown = math.MaxUint16
	packEnd     = 0xff
)

// listpack is one that is being written.
type listpack struct {
	b []byte // with the header, without the end mark
	n int
}

func newListpack() listpack { return listpack{b: make([]byte, listpackHead, 256)} }

// size is that of the whole.
func (l *listpack) size() int { return len(l.b) + 1 }

// text adds an element that is kept as a number if it is the text of one.
func (l *listpack) text(s string) {
	if len(s) <= 20 {
		if n, ok := parseInt([]byte(s)); ok {
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

// close adds the size of the element that begins at start.
func (l *listpack) close(start int) {
	l.b = appendBacklen(l.b, len(l.b)-start)
	l.n++
}

// appendBacklen appends a size so that it can be read from its end: seven bits a
// byte, the highest first, and all but the first marked.
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

// backlenSize is the number of bytes of a size. The largest that would fit is
// given one more, save among those of one byte.
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

// bytes returns the whole, to which nothing can be added any more.
func (l *listpack) bytes() []byte {
	b := append(l.b, packEnd)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint16(b[4:], uint16(min(l.n, packUnknown)))
	return b
}

// packed is the inside of a listpack, a ziplist or a zipmap that is known to be
// well-formed.
type packed struct {
	b      []byte
	n      int // elements
	decode func(b []byte) (e packedElement, size int)
	digits [20]byte
}

// packedElement is an element: a text, or a number.
type packedElement struct {
	text    []byte
	number  int64
	numeric bool
}

// next returns the next element, which must be there, as a text; it is valid
// until the call after.
func (p *packed) next() []byte {
	e, size := p.decode(p.b)
	p.b = p.b[size:]
	p.n--
	if e.numeric {
		return strconv.AppendInt(p.digits[:0], e.number, 10)
	}
	return e.text
}

// openListpack looks at all of a listpack before any of it is used.
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

// listpackElement reads an element; size is 0 if it is none, and else that of
// all of it.
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
