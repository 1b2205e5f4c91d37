package fsm

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

// Types of values in the RDB format of Redis. DUMP writes the newest type of
// each kind of value; RESTORE reads all of them.
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
	rdbStreamOld       = 15 // without the fields that Redis 7.0 added to a stream
	rdbHashListpack    = 16
	rdbZSetListpack    = 17
	rdbListQuicklist   = 18
	rdbStreamListpacks = 19
)

// The first two bits of a length, and the codes that replace the length of a
// string that is not stored as it is.
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
	rdbIntegerText = 11 // the longest text that may be stored as a number
	rdbPlainText   = 20 // the longest text that is not compressed
)

// How a node of a list stores its elements.
const (
	quicklistPlain  = 1 // the node is a single element
	quicklistPacked = 2
)

// rdbWriter writes values.
type rdbWriter struct {
	c *Ctx // the context that is charged
	b []byte
	z lzf
	// size is the uncompressed size of what was written, in bytes.
	size int
}

// over reports whether the value exceeds the maximum size of a reply.
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

// lengthAt inserts a length in front of what was written since start.
func (w *rdbWriter) lengthAt(start int, n uint64) {
	end := len(w.b)
	w.length(n)
	head := slices.Clone(w.b[end:])
	w.b = slices.Insert(w.b[:end], start, head...)
}

// string writes a string. It stores the string as a number or compressed if
// that is possible.
func (w *rdbWriter) string(s string) {
	w.size += len(s) + 1
	w.c.charge(1 + len(s)/compressBytes)
	w.c.hold(2 * len(s))
	if len(s) <= rdbIntegerText {
		if n, ok := number.ParseInt([]byte(s)); ok && n == int64(int32(n)) {
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

// blob writes bytes as string does, without copying them. The caller must not
// change b afterward.
func (w *rdbWriter) blob(b []byte) { w.string(viewString(b)) }

// Limits on the value that a payload unfolds to. Every node restores the
// payload when it applies the entry, so a small payload must not cost much
// memory or time.
const (
	// maxUnfolded is the largest number of bytes by which a value may exceed
	// its payload, which may be compressed.
	maxUnfolded = MaxReplyBytes
	// maxRestored is the largest number of elements. Restoring an element costs
	// about as much as adding one with a write command.
	maxRestored = MaxArguments
)

// rdbReader reads values from untrusted bytes. After the first error it reads
// only zeros.
type rdbReader struct {
	b        []byte
	fail     string // the first error, or "" if there is none
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

// unfold counts n bytes of the value that the payload does not contain. It
// stops the reader when the sum exceeds maxUnfolded.
func (r *rdbReader) unfold(n int) {
	if r.unfolded += n; r.unfolded > maxUnfolded {
		r.stop(msgTooLong)
	}
}

// more counts n elements and reports whether they may be read.
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

// head reads a length or the encoding of a string.
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

// count reads the number of parts that follow. Each part takes at least least
// bytes, and the payload must be long enough for all of them.
func (r *rdbReader) count(least int) int {
	n := r.length()
	if n > uint64(len(r.b)/least) {
		r.bad()
		return 0
	}
	return int(n)
}

// string reads a string of at most MaxStringBytes bytes. The result may alias
// the payload.
func (r *rdbReader) string() []byte {
	b := r.blob()
	if len(b) > MaxStringBytes {
		r.stop(msgTooLong)
		return nil
	}
	return b
}

// blob reads a string that contains many elements. It is not limited to
// MaxStringBytes.
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

// digits reads a number of n bytes and returns it as text.
func (r *rdbReader) digits(n uint64) []byte {
	b := r.take(n)
	if b == nil {
		return nil
	}
	return strconv.AppendInt(nil, littleEndian(b), 10)
}
