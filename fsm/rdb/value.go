package rdb

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// String writes a string.
func (w *Writer) String(s string) {
	w.Byte(typeString)
	w.Text(s)
}

// Set writes a set that may contain any strings.
func (w *Writer) Set(v *container.Dict[struct{}]) {
	w.Byte(typeSet)
	w.length(uint64(v.Len()))
	v.Ascend(0, func(e *container.Item[struct{}]) bool {
		w.Text(e.Name)
		return !w.Over()
	})
}

// Hash writes a hash.
func (w *Writer) Hash(v *container.Dict[string]) {
	w.Byte(typeHash)
	w.length(uint64(v.Len()))
	v.Ascend(0, func(e *container.Item[string]) bool {
		w.Text(e.Name)
		w.Text(e.Value)
		return !w.Over()
	})
}

// SmallHash writes a hash as one listpack.
func (w *Writer) SmallHash(v *container.Dict[string]) {
	w.Byte(typeHashListpack)
	l := newListpack()
	v.Ascend(0, func(e *container.Item[string]) bool {
		l.text(e.Name)
		l.text(e.Value)
		return true
	})
	w.blob(l.bytes())
}

// SortedSet writes a sorted set. The members in v are in ascending order of
// their scores. As Redis does, SortedSet writes them in descending order.
func (w *Writer) SortedSet(v *container.Seq[container.Scored]) {
	w.Byte(typeZSet)
	w.length(uint64(v.Len()))
	v.Descend(v.Len()-1, func(m *container.Scored) bool {
		w.Text(m.Member)
		w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(m.Score))
		w.size += 8
		return !w.Over()
	})
}

// SmallSortedSet writes a sorted set as one listpack.
func (w *Writer) SmallSortedSet(v *container.Seq[container.Scored]) {
	w.Byte(typeZSetListpack)
	l := newListpack()
	v.Ascend(0, func(m *container.Scored) bool {
		l.text(m.Member)
		l.score(m.Score)
		return true
	})
	w.blob(l.bytes())
}

// integralScore is the greatest absolute value of a score that a listpack
// stores as an integer.
const integralScore = 1 << 62

func (l *listpack) score(f float64) {
	if f >= -integralScore && f <= integralScore && f == math.Trunc(f) {
		l.integer(int64(f))
		return
	}
	l.text(number.FormatDouble(f))
}

// Intset writes a set whose members are integers in ascending order. It writes
// them as an array of integers of equal width. The widest member determines the
// width.
func (w *Writer) Intset(v *container.Dict[struct{}]) {
	numbers := make([]int64, 0, v.Len())
	width := 2
	v.Ascend(0, func(e *container.Item[struct{}]) bool {
		n, _ := number.ParseInt([]byte(e.Name))
		switch {
		case n != int64(int32(n)):
			width = 8
		case n != int64(int16(n)):
			width = max(width, 4)
		}
		numbers = append(numbers, n)
		return true
	})
	b := binary.LittleEndian.AppendUint32(nil, uint32(width))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(numbers)))
	for _, n := range numbers {
		for i := range width {
			b = append(b, byte(n>>(8*i)))
		}
	}
	w.Byte(typeSetIntset)
	w.blob(b)
}

// These constants limit the nodes of a list. The nodes are as large as they
// become in Redis when the elements are appended one after the other.
const (
	listNodeBytes = 8 << 10
	// listElement is added to the size of each element to estimate the size of
	// its encoded form.
	listElement = 8
)

// List writes a list.
func (w *Writer) List(v *container.Seq[string]) {
	w.Byte(typeListQuicklist)
	start, n := len(w.b), uint64(0)
	l := newListpack()
	flush := func() {
		w.length(quicklistPacked)
		w.blob(l.bytes())
		l.b, l.n = l.b[:listpackHead], 0
		n++
	}
	v.Ascend(0, func(s *string) bool {
		w.charge(1 + len(*s)/scanBytes)
		if l.n > 0 && l.size()+len(*s)+listElement > listNodeBytes {
			flush()
		}
		l.text(*s)
		return !w.Over()
	})
	flush()
	w.lengthAt(start, n)
}

// Type is the type of a value, whatever form it is written in.
type Type byte

// These are the types of values. Unknown is the type of a value that a Reader
// cannot read.
const (
	Unknown Type = iota
	String
	List
	Set
	Hash
	SortedSet
	Stream
)

// Type reads the type of a value. The caller must then read the value with
// Text, Elements, Scores or Stream, depending on the type.
func (r *Reader) Type() Type {
	switch r.kind = r.Byte(); r.kind {
	case typeString:
		return String
	case typeList, typeListZiplist, typeListZiplists, typeListQuicklist:
		return List
	case typeSet, typeSetIntset:
		return Set
	case typeHash, typeHashZipmap, typeHashZiplist, typeHashListpack:
		return Hash
	case typeZSetText, typeZSet, typeZSetZiplist, typeZSetListpack:
		return SortedSet
	case typeStreamOld, typeStreamListpacks:
		return Stream
	}
	r.bad()
	return Unknown
}

// Adder adds an element to a collection. name is an element of a list or a set,
// or a field of a hash. value is the value of the field. The bytes are valid
// only during the call. An error stops the Reader.
type Adder func(name, value []byte) error

// Elements reads the elements of a list, a set or a hash.
func (r *Reader) Elements(add Adder) {
	switch r.kind {
	case typeList, typeSet:
		r.texts(add, 1)
	case typeHash:
		r.texts(add, 2)
	case typeListZiplist:
		r.packed(openZiplist, add, 1)
	case typeListZiplists:
		for n := r.count(1); n > 0 && !r.failed(); n-- {
			r.packed(openZiplist, add, 1)
		}
	case typeListQuicklist:
		r.quicklist(add)
	case typeSetIntset:
		r.packed(openIntset, add, 1)
	case typeHashZipmap:
		r.packed(openZipmap, add, 2)
	case typeHashZiplist:
		r.packed(openZiplist, add, 2)
	case typeHashListpack:
		r.packed(openListpack, add, 2)
	default:
		r.bad()
	}
}

// add reads an element of width parts and passes it to an Adder.
func (r *Reader) add(to Adder, width int, part func() []byte) {
	if !r.more(1) {
		return
	}
	name := part()
	var value []byte
	if width > 1 {
		name = bytes.Clone(name) // the next part may overwrite it
		value = part()
	}
	switch {
	case len(name) > r.limits.String || len(value) > r.limits.String:
		r.stop(ErrTooLong)
		return
	case r.failed():
		return
	}
	if err := to(name, value); err != nil {
		r.stop(err)
	}
}

// texts reads the number of elements, and then the elements, each of width
// strings.
func (r *Reader) texts(add Adder, width int) {
	for n := r.count(width); n > 0 && !r.failed(); n-- {
		r.add(add, width, r.Text)
	}
}

// packed reads a blob and adds its elements. open parses the blob.
func (r *Reader) packed(open func([]byte) (packed, bool), add Adder, width int) {
	blob := r.blob()
	if r.failed() {
		return
	}
	p, ok := open(blob)
	if !ok || p.n%width != 0 {
		r.bad()
		return
	}
	for p.n > 0 && !r.failed() {
		r.add(add, width, p.next)
	}
}

// quicklist reads the nodes of a list. Some of the nodes may be empty.
func (r *Reader) quicklist(add Adder) {
	for n := r.count(2); n > 0 && !r.failed(); n-- {
		switch r.length() {
		case quicklistPlain:
			r.add(add, 1, r.Text)
		case quicklistPacked:
			r.packed(openListpack, add, 1)
		default:
			r.bad()
		}
	}
}

// Small reports whether a sorted set is in one of the forms for small sorted
// sets.
func (r *Reader) Small() bool { return r.kind == typeZSetZiplist || r.kind == typeZSetListpack }

// Scores reads the members of a sorted set and passes them to add. An error of
// add stops the Reader.
func (r *Reader) Scores(add func(member []byte, score float64) error) {
	if r.Small() {
		open := openListpack
		if r.kind == typeZSetZiplist {
			open = openZiplist
		}
		r.packed(open, func(member, text []byte) error {
			score, ok := number.ParseFloat(text)
			if !ok {
				return ErrFormat
			}
			return add(member, score)
		}, 2)
		return
	}
	for n := r.count(2); n > 0 && r.more(1); n-- {
		member := r.Text()
		var score float64
		if r.kind == typeZSet {
			score = math.Float64frombits(r.uint64())
		} else {
			score = r.score()
		}
		if r.failed() {
			return
		}
		if err := add(member, score); err != nil {
			r.stop(err)
		}
	}
}

// score reads the size of a text and the text, which is a score. In place of a
// size, 253 stands for NaN, and 254 and 255 for the infinities.
func (r *Reader) score() float64 {
	switch n := r.Byte(); n {
	case 253: // not a number
		r.bad()
		return 0
	case 254:
		return math.Inf(1)
	case 255:
		return math.Inf(-1)
	default:
		f, ok := number.ParseFloat(r.take(uint64(n)))
		if !ok {
			r.bad()
		}
		return f
	}
}

// openIntset checks a whole array of integers, which must be in ascending
// order, and returns its content. ok is false if the array is not well-formed.
func openIntset(b []byte) (p packed, ok bool) {
	const head = 4 + 4
	if len(b) < head {
		return p, false
	}
	width := binary.LittleEndian.Uint32(b)
	n := binary.LittleEndian.Uint32(b[4:])
	p.b = b[head:]
	switch {
	case width != 2 && width != 4 && width != 8, uint64(n)*uint64(width) != uint64(len(p.b)):
		return p, false
	}
	p.n = int(n)
	size := int(width)
	p.decode = func(b []byte) (packedElement, int) {
		return packedElement{number: littleEndian(b[:size]), numeric: true}, size
	}
	for i := size; i < len(p.b); i += size {
		if littleEndian(p.b[i-size:i]) >= littleEndian(p.b[i:i+size]) {
			return p, false
		}
	}
	return p, true
}
