// Package rdb writes and reads values in the RDB format of Redis, as DUMP
// returns them and RESTORE takes them: the types of values, LZF compression,
// listpacks, and the ziplists, zipmaps and intsets of older versions.
//
// A Writer writes the same bytes as Redis for the same value, unless the bytes
// of Redis depend on more than the value. A Reader reads the payloads of all
// versions of Redis up to 7.0, except those of values of modules. It checks
// every part of a payload before it uses the part. Its Limits bound the size to
// which a small payload may unfold.
package rdb

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"unsafe"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

// These are the types of values in the RDB format of Redis. A Writer writes the
// newest type of each kind of value; a Reader reads all of them.
const (
	typeString          = 0
	typeList            = 1
	typeSet             = 2
	typeZSetText        = 3 // sorted set with scores as text
	typeHash            = 4
	typeZSet            = 5
	typeHashZipmap      = 9
	typeListZiplist     = 10
	typeSetIntset       = 11
	typeZSetZiplist     = 12
	typeHashZiplist     = 13
	typeListZiplists    = 14
	typeStreamOld       = 15 // stream without the fields that Redis 7.0 added
	typeHashListpack    = 16
	typeZSetListpack    = 17
	typeListQuicklist   = 18
	typeStreamListpacks = 19
)

// These are the first bits of a length, and the codes that replace the length
// if a string is not stored as plain bytes. len6, len14 and encoded use two
// bits of the first byte; len32, len64 and the codes are the whole first byte.
const (
	len6    = 0
	len14   = 1 << 6
	len32   = 2 << 6
	len64   = 2<<6 | 1
	encoded = 3 << 6

	int8Text  = encoded
	int16Text = encoded | 1
	int32Text = encoded | 2
	lzfText   = encoded | 3
)

const (
	integerText = 11 // the longest text that may be stored as a number
	plainText   = 20 // texts of up to this length are not compressed
)

// These constants say how a node of a list stores its elements.
const (
	quicklistPlain  = 1 // the node is a single element
	quicklistPacked = 2
)

// These constants determine costs, in steps of package fsm. A step takes about
// 10 ns.
const (
	compressBytes = 2  // bytes per step, if they are compressed
	scanBytes     = 8  // bytes per step, if they are scanned one by one
	stepsPart     = 16 // steps per entry of a stream, per field, and per value
)

// Writer writes values.
type Writer struct {
	b []byte
	z lzf
	// size is the uncompressed size of the payload so far, in bytes.
	size  int
	limit int
	// charge is called with the steps that writing takes, and hold with the
	// bytes of memory.
	charge, hold func(n int)
}

// NewWriter returns a Writer for values of at most limit bytes, counted before
// they are compressed. The Writer reports its work to charge, in steps, and the
// memory that it takes to hold, in bytes.
func NewWriter(limit int, charge, hold func(n int)) *Writer {
	return &Writer{limit: limit, charge: charge, hold: hold}
}

// Over reports whether the values exceed the limit, counted before they are
// compressed. The written bytes may then be incomplete and must not be used.
func (w *Writer) Over() bool { return w.size > w.limit }

// Payload returns the written bytes, followed by the trailer of a payload. The
// Writer must not be used afterward.
func (w *Writer) Payload() []byte { return Seal(w.b) }

// Byte writes a byte.
func (w *Writer) Byte(c byte) { w.b = append(w.b, c) }

func (w *Writer) length(n uint64) {
	switch {
	case n < 1<<6:
		w.b = append(w.b, len6|byte(n))
	case n < 1<<14:
		w.b = append(w.b, len14|byte(n>>8), byte(n))
	case n < 1<<32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, len32), uint32(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, len64), n)
	}
}

// lengthAt inserts a length in front of the bytes that were written from the
// offset start on.
func (w *Writer) lengthAt(start int, n uint64) {
	end := len(w.b)
	w.length(n)
	head := slices.Clone(w.b[end:])
	w.b = slices.Insert(w.b[:end], start, head...)
}

// Text writes a string, without a type. It stores the string as a number or
// compressed if that is possible.
func (w *Writer) Text(s string) {
	w.size += len(s) + 1
	w.charge(1 + len(s)/compressBytes)
	w.hold(2 * len(s))
	if len(s) <= integerText {
		if n, ok := number.ParseInt([]byte(s)); ok && n == int64(int32(n)) {
			w.number(int32(n))
			return
		}
	}
	if len(s) > plainText && !w.Over() {
		if out, ok := w.z.compress(s); ok {
			w.Byte(lzfText)
			w.length(uint64(len(out)))
			w.length(uint64(len(s)))
			w.b = append(w.b, out...)
			return
		}
	}
	w.length(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *Writer) number(n int32) {
	switch {
	case n == int32(int8(n)):
		w.b = append(w.b, int8Text, byte(n))
	case n == int32(int16(n)):
		w.b = binary.LittleEndian.AppendUint16(append(w.b, int16Text), uint16(n))
	default:
		w.b = binary.LittleEndian.AppendUint32(append(w.b, int32Text), uint32(n))
	}
}

// blob writes bytes as Text does. The string that it passes to Text shares the
// memory of b, and Text does not keep the string.
func (w *Writer) blob(b []byte) { w.Text(unsafe.String(unsafe.SliceData(b), len(b))) }

// Limits bound the value that a Reader reads. Every node restores a payload
// when it applies the entry of RESTORE. So a small payload must not cost much
// memory or time.
type Limits struct {
	// String is the maximum size of a string, in bytes.
	String int
	// Unfolded is the maximum number of bytes that the Reader may produce by
	// decompressing texts and by repeating the field names of stream entries.
	Unfolded int
	// Elements is the maximum number of elements that the Reader reads. In a
	// stream, entries, fields, values, groups, consumers and pending entries
	// count as elements.
	Elements int
}

// These are the errors of a Reader.
var (
	ErrFormat  = errors.New("bad data format")
	ErrTooLong = errors.New("value too long")
	ErrTooMany = errors.New("too many elements")
)

// Reader reads values from untrusted bytes. After the first error, it reads
// only zero values.
type Reader struct {
	b        []byte
	limits   Limits
	kind     byte // type byte that Type has read
	err      error
	unfolded int
	elements int
}

// NewReader returns a Reader of the values in b.
func NewReader(b []byte, limits Limits) *Reader { return &Reader{b: b, limits: limits} }

// Len returns the number of bytes that have not been read yet.
func (r *Reader) Len() int { return len(r.b) }

// Err returns the first error, or nil if there is none.
func (r *Reader) Err() error { return r.err }

func (r *Reader) bad() { r.stop(ErrFormat) }

func (r *Reader) stop(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// Reject makes the payload invalid because of its elements, for example if two
// of them are equal. Err then returns ErrFormat, even if there was another
// error before.
func (r *Reader) Reject() { r.b, r.err = nil, ErrFormat }

func (r *Reader) failed() bool { return r.err != nil }

// unfold counts n bytes that the Reader decompresses or repeats. It stops the
// Reader when the sum exceeds Limits.Unfolded.
func (r *Reader) unfold(n int) {
	if r.unfolded += n; r.unfolded > r.limits.Unfolded {
		r.stop(ErrTooLong)
	}
}

// more counts n elements and reports whether they may be read.
func (r *Reader) more(n int) bool {
	if r.elements += n; r.elements > r.limits.Elements {
		r.stop(ErrTooMany)
	}
	return !r.failed()
}

// take returns the next n bytes.
func (r *Reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *Reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// head reads a length or the encoding of a string.
func (r *Reader) head() (n uint64, encoding byte) {
	switch c := r.Byte(); {
	case c>>6 == len6>>6:
		return uint64(c), 0
	case c>>6 == len14>>6:
		return uint64(c&0x3f)<<8 | uint64(r.Byte()), 0
	case c == len32:
		if b := r.take(4); b != nil {
			return uint64(binary.BigEndian.Uint32(b)), 0
		}
	case c == len64:
		if b := r.take(8); b != nil {
			return binary.BigEndian.Uint64(b), 0
		}
	case c>>6 == encoded>>6:
		return 0, c
	default:
		r.bad()
	}
	return 0, 0
}

func (r *Reader) length() uint64 {
	n, encoding := r.head()
	if encoding != 0 {
		r.bad()
	}
	return n
}

// count reads the number of parts that follow. The parameter least is the
// minimum size of a part, in bytes. If the payload is too short for all parts,
// count stops the Reader.
func (r *Reader) count(least int) int {
	n := r.length()
	if n > uint64(len(r.b)/least) {
		r.bad()
		return 0
	}
	return int(n)
}

// Text reads a string, without a type. The result may alias the payload.
func (r *Reader) Text() []byte {
	b := r.blob()
	if len(b) > r.limits.String {
		r.stop(ErrTooLong)
		return nil
	}
	return b
}

// blob reads a string, which may contain many elements and be longer than
// Limits.String.
func (r *Reader) blob() []byte {
	n, encoding := r.head()
	switch encoding {
	case 0:
		return r.take(n)
	case int8Text:
		return r.digits(1)
	case int16Text:
		return r.digits(2)
	case int32Text:
		return r.digits(4)
	case lzfText:
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

// digits reads a number of n bytes and returns it as text.
func (r *Reader) digits(n uint64) []byte {
	b := r.take(n)
	if b == nil {
		return nil
	}
	return strconv.AppendInt(nil, littleEndian(b), 10)
}
