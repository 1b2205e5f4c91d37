package rdb

import "encoding/binary"

// Weight is an approximate upper bound on the cost of restoring a payload.
type Weight struct {
	// Elements is the number of elements of a collection. The fields and values
	// of a stream's entries count as elements.
	Elements int
	// Bytes is the size of the value after it has been decompressed.
	Bytes int
}

// Weigh returns the cost of restoring the value in b. A packed part of the
// value is a listpack, ziplist, zipmap or intset. Weigh decompresses only the
// heads of the packed parts and does not look at each of their elements, so it
// takes much less time than restoring. It trusts the number of elements in the
// head of a packed part. This is safe, because a Reader refuses a part with a
// wrong number before it adds an element. If b is not valid, Weigh returns the
// weight of the bytes before the error.
func Weigh(b []byte, limits Limits) (w Weight) {
	r := NewReader(b, limits)
	t := r.Type()
	if !r.failed() {
		r.weigh(&w, t)
	}
	w.Elements = min(w.Elements, limits.Elements)
	w.Bytes = min(w.Bytes, len(b)+limits.Unfolded)
	return w
}

func (r *Reader) weigh(w *Weight, t Type) {
	switch r.kind {
	case typeString:
		r.skim(w, nil)
	case typeList, typeSet, typeHash, typeZSetText, typeZSet:
		// Each element takes at least one byte of the payload.
		n := r.count(1)
		w.Elements, w.Bytes = w.Elements+n, w.Bytes+len(r.b)
		r.skimTexts(w, n, t)
	case typeListZiplist, typeHashZiplist, typeZSetZiplist:
		r.skim(w, ziplistCount)
	case typeListZiplists:
		for n := r.count(1); n > 0 && !r.failed(); n-- {
			r.skim(w, ziplistCount)
		}
	case typeSetIntset:
		r.skim(w, intsetCount)
	case typeHashZipmap:
		r.skim(w, unknownCount)
	case typeHashListpack, typeZSetListpack:
		r.skim(w, listpackCount)
	case typeListQuicklist:
		for n := r.count(2); n > 0 && !r.failed(); n-- {
			if r.length() == quicklistPlain {
				w.Elements++
				r.skim(w, nil)
			} else {
				r.skim(w, listpackCount)
			}
		}
	case typeStreamOld, typeStreamListpacks:
		for n := r.count(2); n > 0 && !r.failed(); n-- {
			r.skim(w, nil) // the key
			r.skim(w, listpackCount)
		}
		// Groups follow. A pending entry takes at least 16 bytes.
		w.Elements, w.Bytes = w.Elements+len(r.b)/16, w.Bytes+len(r.b)
	}
}

// skimTexts skips the n elements of a collection, and counts the bytes of their
// texts after they have been decompressed.
func (r *Reader) skimTexts(w *Weight, n int, t Type) {
	width := 1
	if t == Hash {
		width = 2
	}
	for ; n > 0 && !r.failed(); n-- {
		for range width {
			r.skim(w, nil)
		}
		switch r.kind {
		case typeZSet:
			r.take(8)
		case typeZSetText:
			if size := r.Byte(); size < 253 {
				r.take(uint64(size))
			}
		}
	}
}

// countFunc returns the number of elements of a packed part from its head, or
// -1 if the head does not contain the number.
type countFunc func(head []byte) int

// leastElement is the minimum size of an element of a packed part, in bytes.
// Two elements of a zipmap take at least three bytes.
const leastElement = 1

// headBytes is the number of bytes at the start of a packed part that a
// countFunc needs.
const headBytes = ziplistHead

func listpackCount(head []byte) int { return known(int(binary.LittleEndian.Uint16(head[4:]))) }
func ziplistCount(head []byte) int  { return known(int(binary.LittleEndian.Uint16(head[8:]))) }
func intsetCount(head []byte) int   { return int(binary.LittleEndian.Uint32(head[4:])) }
func unknownCount([]byte) int       { return -1 }

func known(n int) int {
	if n == packUnknown {
		return -1
	}
	return n
}

// skim skips a text and counts its bytes. Unless count is nil, the text is a
// packed part, and skim counts its elements too.
func (r *Reader) skim(w *Weight, count countFunc) {
	var head []byte
	size := 0
	switch n, encoding := r.head(); encoding {
	case 0:
		head = r.take(n)
		size = len(head)
	case lzfText:
		packed, n := r.length(), r.length()
		in := r.take(packed)
		if r.failed() || n/lzfRatio > packed {
			r.bad()
			return
		}
		size = int(n)
		if count != nil {
			head = lzfHead(in, headBytes)
		}
	default: // a number
		switch encoding {
		case int8Text:
			r.take(1)
		case int16Text:
			r.take(2)
		case int32Text:
			r.take(4)
		default:
			r.bad()
		}
	}
	w.Bytes += size
	if count == nil || r.failed() {
		return
	}
	most, n := size/leastElement, -1
	if len(head) >= headBytes {
		n = count(head)
	}
	if n >= 0 {
		most = min(most, n)
	}
	w.Elements += most
}

// lzfHead decompresses LZF data until the text has at least size bytes. It
// returns fewer bytes if the whole text is shorter or if the data is not valid.
func lzfHead(in []byte, size int) (out []byte) {
	for len(in) > 0 && len(out) < size {
		token := int(in[0])
		in = in[1:]
		n := token + 1
		if token < lzfLiteral {
			if n > len(in) {
				return out
			}
			out, in = append(out, in[:n]...), in[n:]
			continue
		}
		n = token>>5 + 2
		if token>>5 == 7 && len(in) > 0 {
			n += int(in[0])
			in = in[1:]
		}
		if len(in) == 0 {
			return out
		}
		from := len(out) - (token&31<<8 | int(in[0])) - 1
		in = in[1:]
		if from < 0 {
			return out
		}
		for ; n > 0; n-- { // byte by byte, because a repetition may overlap with its own output
			out = append(out, out[from])
			from++
		}
	}
	return out
}
