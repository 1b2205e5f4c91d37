package storage

import (
	"sort"

	"github.com/hashicorp/raft"
)

// span describes the entries first..last of a log: the size of each entry, and
// where the term changes. It takes about four bytes per entry. The zero value
// is an empty log. It is not safe for concurrent use.
type span struct {
	first uint64
	sizes []uint32
	terms []termRun // in ascending order; the first run begins at first
	bytes int64     // sum of sizes
}

// termRun says that the entries from index on have this term, up to the next
// run.
type termRun struct {
	index, term uint64
}

// payload returns the bytes for which an entry counts in LogBytes. Entries are
// far smaller than raft-wal's limit of 64 MiB, so the size fits.
func payload(l *raft.Log) uint32 { return uint32(len(l.Data) + len(l.Extensions)) }

func (s *span) empty() bool { return len(s.sizes) == 0 }

// last returns the last index, 0 if the log is empty.
func (s *span) last() uint64 {
	if s.empty() {
		return 0
	}
	return s.first + uint64(len(s.sizes)) - 1
}

func (s *span) holds(index uint64) bool {
	return !s.empty() && index >= s.first && index <= s.last()
}

// lastTerm returns the term of the last entry, 0 if the log is empty.
func (s *span) lastTerm() uint64 {
	if len(s.terms) == 0 {
		return 0
	}
	return s.terms[len(s.terms)-1].term
}

// term returns the term of an entry. The span must contain index.
func (s *span) term(index uint64) uint64 {
	i := sort.Search(len(s.terms), func(i int) bool { return s.terms[i].index > index })
	return s.terms[i-1].term
}

// push adds an entry after the last one. Its index must be the next one,
// unless the span is empty.
func (s *span) push(index, term uint64, size uint32) {
	if s.empty() {
		*s = span{first: index}
	}
	if len(s.terms) == 0 || s.lastTerm() != term {
		s.terms = append(s.terms, termRun{index, term})
	}
	s.sizes = append(s.sizes, size)
	s.bytes += int64(size)
}

// dropTo removes the entries up to and including index.
func (s *span) dropTo(index uint64) {
	if s.empty() || index < s.first {
		return
	}
	if index >= s.last() {
		*s = span{}
		return
	}
	n := index - s.first + 1
	for _, b := range s.sizes[:n] {
		s.bytes -= int64(b)
	}
	i := sort.Search(len(s.terms), func(i int) bool { return s.terms[i].index > index+1 }) - 1
	s.terms = append([]termRun(nil), s.terms[i:]...)
	s.terms[0].index = index + 1
	s.first = index + 1
	s.sizes = s.sizes[n:]
	if cap(s.sizes) > 4*len(s.sizes)+1024 {
		s.sizes = append([]uint32(nil), s.sizes...)
	}
}

// dropFrom removes the entries from index to the end.
func (s *span) dropFrom(index uint64) {
	if s.empty() || index > s.last() {
		return
	}
	if index <= s.first {
		*s = span{}
		return
	}
	n := index - s.first
	for _, b := range s.sizes[n:] {
		s.bytes -= int64(b)
	}
	s.sizes = s.sizes[:n]
	i := sort.Search(len(s.terms), func(i int) bool { return s.terms[i].index >= index })
	s.terms = s.terms[:i]
}
