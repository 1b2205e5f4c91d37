package fsm

import (
	"encoding/binary"
	"slices"
	"strconv"
)

// The types of values in Redis' RDB format, of which DUMP writes the newest for
// each kind and RESTORE reads all.
const (
	rdbString          = 0
	rdbList            = 1
	rdbSet             = 2
	rdbZSetText        = 3 // with scores as text
	rdbHash            = 4
	rdbZSet            = 5
	rdbHashZipmap      = 9
	rdbListZiplist     = 10
	rdbSetIntset       = 11
	rdbZSetZiplist     = 12
	rdbHashZiplist     = 13
	rdbListZiplists    = 14
	rdbStreamOld       = 15 // without what Redis 7.0 knows of a stream beside its entries
	rdbHashListpack    = 16
	rdbZSetListpack    = 17
	rdbListQuicklist   = 18
	rdbStreamListpacks = 19
)

// The first two bits of a length, and what stands in its place for strings that
// are not kept as they are.
const (
	rdbLen6    = 0
	rdbLen14   = 1 << 6
	rdbLen32   = 2 << 6
	rdbLen64   = 2<<6 | 1
	rdbEncoded = 3 << 6

	rdbInt8  = rdbEncoded
	rdbInt16 = rdbEncoded | 1
	rdbInt32 = rdbEncoded | 2
	rdbLZF   = rdbEncoded | 3
)

const (
	rdbIntegerText = 11 // the longest text that is looked at as a number
	rdbPlainText   = 20 // the longest that is not compressed
)

// How a node of a list holds its elements.
const (
	quicklistPlain  = 1 // it is one
	quicklistPacked = 2
)

// rdbWriter writes values.
type rdbWriter struct {
	b []byte
	z lzf
	// size is that of what was written, uncompressed.
	size int
}

// over reports whether more was written than anybody may be sent.
func (w *rdbWriter) over() bool { return w.size > MaxReplyBytes }

func (w *rdbWriter) byte(c byte) { w.b = append(w.b, c) }

func (w *rdbWriter) length(n uint64) {
	switch {
	case n < 1<<6:
		w.b = append(w.b, rdbLen6|byte(n))
	case n < 1<<14:
		w.b = append(w.b, rdbLen14|byte(n>>8), byte(n))
	case n < 1<<32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, rdbLen32), uint32(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, rdbLen64), n)
	}
}

// lengthAt puts a length in front of what was written from start on.
func (w *rdbWriter) lengthAt(start int, n uint64) {
	end := len(w.b)
	w.length(n)
	head := slices.Clone(w.b[end:])
	w.b = slices.Insert(w.b[:end], start, head...)
}

// string writes a string as a small number or compressed if it can be.
func (w *rdbWriter) string(s string) {
	w.size += len(s) + 1
	if len(s) <= rdbIntegerText {
		if n, ok := parseInt([]byte(s)); ok && n == int64(int32(n)) {
			w.number(int32(n))
			return
		}
	}
	if len(s) > rdbPlainText && !w.over() {
		if out, ok := w.z.compress(s); ok {
			w.byte(rdbLZF)
			w.length(uint64(len(out)))
			w.length(uint64(len(s)))
			w.b = append(w.b, out...)
			return
		}
	}
	w.length(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *rdbWriter) number(n int32) {
	switch {
	case n == int32(int8(n)):
		w.b = append(w.b, rdbInt8, byte(n))
	case n == int32(int16(n)):
		w.b = binary.LittleEndian.AppendUint16(append(w.b, rdbInt16), uint16(n))
	default:
		w.b = binary.LittleEndian.AppendUint32(append(w.b, rdbInt32), uint32(n))
	}
}

// blob is string for bytes that nobody changes any more.
func (w *rdbWriter) blob(b []byte) { w.string(viewString(b)) }

// Bounds of what a payload may become: it is read by all nodes at one place of
// the log.
const (
	// maxUnfolded bounds by how many bytes a value may be larger than its payload,
	// which is compressed.
	maxUnfolded = MaxReplyBytes
	// maxRestored bounds the elements; they take as long as words that are added.
	maxRestored = MaxArguments
)

// rdbReader reads values from bytes that may be anything. Once something was
// wrong it reads nothing but zeros.
type rdbReader struct {
	b        []byte
	fail     string // the error, "" for none
	unfolded int
	elements int
}

func (r *rdbReader) bad() { r.stop(msgBadData) }

func (r *rdbReader) stop(msg string) {
	if r.fail == "" {
		r.fail = msg
	}
	r.b = nil
}

func (r *rdbReader) failed() bool { return r.fail != "" }

// unfold notes bytes of the value that the payload does not have.
func (r *rdbReader) unfold(n int) {
	if r.unfolded += n; r.unfolded > maxUnfolded {
		r.stop(msgTooLong)
	}
}

// more notes n elements, and reports whether they may be read.
func (r *rdbReader) more(n int) bool {
	if r.elements += n; r.elements > maxRestored {
		r.stop(msgTooMany)
	}
	return !r.failed()
}

// take returns the next n bytes.
func (r *rdbReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *rdbReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *rdbReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// head reads a length, or how a string is encoded.
func (r *rdbReader) head() (n uint64, encoding byte) {
	switch c := r.byte(); {
	case c>>6 == rdbLen6>>6:
		return uint64(c), 0
	case c>>6 == rdbLen14>>6:
		return uint64(c&0x3f)<<8 | uint64(r.byte()), 0
	case c == rdbLen32:
		if b := r.take(4); b != nil {
			return uint64(binary.BigEndian.Uint32(b)), 0
		}
	case c == rdbLen64:
		if b := r.take(8); b != nil {
			return binary.BigEndian.Uint64(b), 0
		}
	case c>>6 == rdbEncoded>>6:
		return 0, c
	default:
		r.bad()
	}
	return 0, 0
}

func (r *rdbReader) length() uint64 {
	n, encoding := r.head()
	if encoding != 0 {
		r.bad()
	}
	return n
}

// count reads a number of parts of least bytes each, which must be there.
func (r *rdbReader) count(least int) int {
	n := r.length()
	if n > uint64(len(r.b)/least) {
		r.bad()
		return 0
	}
	return int(n)
}

// string reads a string of up to MaxStringBytes; it may be a part of the payload.
func (r *rdbReader) string() []byte {
	b := r.blob()
	if len(b) > MaxStringBytes {
		r.stop(msgTooLong)
		return nil
	}
	return b
}

// blob is string for what holds many elements.
func (r *rdbReader) blob() []byte {
	n, encoding := r.head()
	switch encoding {
	case 0:
		return r.take(n)
	case rdbInt8:
		return r.digits(1)
	case rdbInt16:
		return r.digits(2)
	case rdbInt32:
		return r.digits(4)
	case rdbLZF:
		packed, size := r.length(), r.length()
		in := r.take(packed)
		switch {
		case r.failed():
			return nil
		case size/lzfRatio > packed || size == 0:
			r.bad()
			return nil
		}
		if r.unfold(int(size)); r.failed() {
			return nil
		}
		out, ok := lzfExpand(in, int(size))
		if !ok {
			r.bad()
		}
		return out
	}
	r.bad()
	return nil
}

// digits reads a number of n bytes as a text.
func (r *rdbReader) digits(n uint64) []byte {
	b := r.take(n)
	if b == nil {
		return nil
	}
	return strconv.AppendInt(nil, littleEndian(b), 10)
}
