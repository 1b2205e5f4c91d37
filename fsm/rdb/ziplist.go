package rdb

import (
	"encoding/binary"
)

// This file reads the formats that Redis used before listpacks: ziplists, in
// which each element begins with the size of the previous element, and zipmaps.
// Redis 7 no longer writes them, and Holdfast only reads them.

const (
	ziplistHead = 4 + 4 + 2
	ziplistWide = 0xfe // marks a size that takes the next four bytes
)

// openZiplist checks a whole ziplist and returns its content. ok is false if
// the ziplist is not well-formed.
func openZiplist(b []byte) (p packed, ok bool) {
	if len(b) < ziplistHead+1 || uint64(binary.LittleEndian.Uint32(b)) != uint64(len(b)) || b[len(b)-1] != packEnd {
		return p, false
	}
	p = packed{b: b[ziplistHead : len(b)-1], decode: ziplistElement}
	last, tail := 0, ziplistHead // the size of the previous element and the offset of the last one
	at := ziplistHead
	for rest := p.b; len(rest) > 0; p.n++ {
		before, _ := ziplistBefore(rest)
		_, size := p.decode(rest)
		if size == 0 || before != last {
			return p, false
		}
		last, tail = size, at
		at += size
		rest = rest[size:]
	}
	n := int(binary.LittleEndian.Uint16(b[8:]))
	return p, (n == packUnknown || n == p.n) && uint64(binary.LittleEndian.Uint32(b[4:])) == uint64(tail)
}

// ziplistBefore reads the size of the previous element. head is the number of
// bytes that the size itself takes, or 0 if there is no valid size.
func ziplistBefore(b []byte) (size, head int) {
	switch c := b[0]; {
	case c < ziplistWide:
		return int(c), 1
	case c == ziplistWide && len(b) >= 5:
		return int(binary.LittleEndian.Uint32(b[1:])), 5
	}
	return 0, 0
}

// ziplistElement reads an element as listpackElement does.
func ziplistElement(b []byte) (e packedElement, size int) {
	_, head := ziplistBefore(b)
	if head == 0 || head == len(b) {
		return e, 0
	}
	rest := b[head:]
	c := rest[0]
	text, width, own := 0, 0, 1
	switch {
	case c < 0x40:
		text = int(c)
	case c < 0x80 && len(rest) > 1:
		own = 2
		text = int(c&0x3f)<<8 | int(rest[1])
	case c == 0x80 && len(rest) > 4:
		own = 5
		text = int(binary.BigEndian.Uint32(rest[1:]))
	case c == 0xc0:
		width = 2
	case c == 0xd0:
		width = 4
	case c == 0xe0:
		width = 8
	case c == 0xf0:
		width = 3
	case c == 0xfe:
		width = 1
	case 0xf1 <= c && c <= 0xfd:
		e.number, e.numeric = int64(c-0xf1), true
	default:
		return e, 0
	}
	if n := own + text + width; n < own || n > len(rest) {
		return e, 0
	}
	switch {
	case width > 0:
		e.number, e.numeric = littleEndian(rest[own:own+width]), true
	case !e.numeric:
		e.text = rest[own : own+text]
	}
	return e, head + own + text + width
}

// openZipmap checks a whole zipmap and returns its content. ok is false if the
// zipmap is not well-formed. The elements of a zipmap are alternately names and
// values.
func openZipmap(b []byte) (p packed, ok bool) {
	if len(b) < 2 || b[len(b)-1] != packEnd {
		return p, false
	}
	p.b = b[1 : len(b)-1]
	value := false
	p.decode = func(b []byte) (e packedElement, size int) {
		e, size = zipmapElement(b, value)
		value = !value
		return e, size
	}
	for rest := p.b; len(rest) > 0; p.n++ {
		_, size := p.decode(rest)
		if size == 0 {
			return p, false
		}
		rest = rest[size:]
	}
	n := int(b[0])
	return p, p.n%2 == 0 && (n >= ziplistWide || n == p.n/2)
}

// zipmapElement reads a name or a value. Unused bytes may follow a value.
func zipmapElement(b []byte, value bool) (e packedElement, size int) {
	n, head := ziplistBefore(b)
	if head == 0 || n > len(b)-head {
		return e, 0
	}
	free := 0
	if value {
		if head == len(b) {
			return e, 0
		}
		free = 1 + int(b[head])
	}
	if n > len(b)-head-free {
		return e, 0
	}
	if free > 0 {
		head++
		free--
	}
	e.text = b[head : head+n]
	return e, head + n + free
}
