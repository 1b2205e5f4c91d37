// Package stream implements the data structure of streams: entries in the order
// of their IDs, and consumer groups with their pending entries. It defines the
// content of a stream and keeps its parts consistent; the commands on streams
// are in package command.
//
// A Stream and its groups consist of the sequences of package container. A
// change needs a container.Owner: see container.Seq.
package stream

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

// ID is the ID of an entry: a time in milliseconds and a sequence number within
// this millisecond. Entries are ordered by ID.
type ID struct{ Ms, Seq uint64 }

// MaxID is the last ID.
var MaxID = ID{math.MaxUint64, math.MaxUint64}

// Compare returns -1, 0 or 1 if a is before b, equal to b or after b.
func (a ID) Compare(b ID) int {
	return cmp.Or(cmp.Compare(a.Ms, b.Ms), cmp.Compare(a.Seq, b.Seq))
}

func (a ID) String() string {
	return strconv.FormatUint(a.Ms, 10) + "-" + strconv.FormatUint(a.Seq, 10)
}

// Next returns the ID after a. a must not be the last ID.
func (a ID) Next() ID {
	if a.Seq == math.MaxUint64 {
		return ID{a.Ms + 1, 0}
	}
	return ID{a.Ms, a.Seq + 1}
}

// Previous returns the ID before a. a must not be the first ID.
func (a ID) Previous() ID {
	if a.Seq == 0 {
		return ID{a.Ms - 1, math.MaxUint64}
	}
	return ID{a.Ms, a.Seq - 1}
}

// Entry is an entry of a stream. It never changes.
type Entry struct {
	ID     ID
	Fields []string // alternately a field and its value
}

// lengthBytes is the maximum size, in bytes, of the encoded length of a string
// in a stream entry of a snapshot.
const lengthBytes = 4

// Size returns the maximum number of bytes that the fields and values take in a
// snapshot.
func (e *Entry) Size() int {
	n := 0
	for _, f := range e.Fields {
		n += len(f) + lengthBytes
	}
	return n
}

// Info is the state of a stream in addition to its entries and groups. XSETID
// can set each of these fields to another value.
type Info struct {
	Last       ID     // the ID of the last entry that was ever added
	MaxDeleted ID     // the greatest ID of an entry that XDEL removed
	Added      uint64 // the number of entries that were ever added
}

// Stream is a stream with its consumer groups. A copy of a Stream shares the
// nodes of its sequences with the original, as a copy of a Seq does. The zero
// value is an empty stream.
type Stream struct {
	Entries container.Seq[Entry] // ordered by ID
	Info
	Groups container.Seq[Group] // ordered by name
}

// ParseID parses an ID of the form ms-seq, or of the form ms. missing is the
// sequence number of the latter form. Unless strict is set, ParseID also
// accepts - and +, the first and the last ID.
func ParseID(arg []byte, missing uint64, strict bool) (id ID, ok bool) {
	s := string(arg)
	switch {
	case len(s) > 127 || strict && (s == "-" || s == "+"):
		return id, false
	case s == "-":
		return id, true
	case s == "+":
		return MaxID, true
	}
	ms, seq, full := strings.Cut(s, "-")
	id.Seq = missing
	if id.Ms, ok = ParseUint(ms); ok && full {
		id.Seq, ok = ParseUint(seq)
	}
	return id, ok
}

// ParseUint parses a decimal integer that is not negative. Unlike
// number.ParseInt, it accepts leading blanks, a plus sign and leading zeros.
func ParseUint(s string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimLeft(s, " \t\n\v\f\r"), "+"), 10, 64)
	return n, err == nil
}

// EntryPosition returns the position of the first entry whose ID is at least
// id.
func (s *Stream) EntryPosition(id ID) int {
	return s.Entries.Search(func(e *Entry) bool { return e.ID.Compare(id) < 0 })
}

// TrimFront removes the first n entries.
func (s *Stream) TrimFront(o *container.Owner, n int) {
	if n == s.Entries.Len() {
		s.Entries = container.Seq[Entry]{}
		return
	}
	for range n {
		s.Entries.Delete(o, 0)
	}
}

// Entry returns the entry with an ID, or nil if there is none.
func (s *Stream) Entry(id ID) *Entry {
	if i := s.EntryPosition(id); i < s.Entries.Len() {
		if e := s.Entries.At(i); e.ID == id {
			return &e
		}
	}
	return nil
}
