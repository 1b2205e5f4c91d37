package rdb

import (
	"encoding/binary"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/number"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

// This file writes and reads streams. The entries are in listpacks. Each
// listpack begins with the number of its entries, the number of its deleted
// entries and the field names of the first entry.

// These are the flags of an entry in a listpack.
const (
	entryDeleted    = 1
	entrySameFields = 2 // the field names are those of the first entry, so only values follow
)

// These are the limits of a listpack of a stream, which Redis calls a node of
// the stream. An entry begins a new listpack if the last listpack has
// streamNodeEntries entries, or if the size of the last listpack and the bytes
// of the entry's fields and values add up to at least streamNodeBytes.
const (
	streamNodeEntries = 100
	streamNodeBytes   = 4 << 10
)

// Stream writes a stream. It divides the entries among the nodes of the stream
// as if they had been added one after the other and none had been deleted.
func (w *Writer) Stream(v *stream.Stream) {
	w.Byte(typeStreamListpacks)
	var l listpack
	var first stream.Entry
	start, n, count := len(w.b), uint64(0), 0
	flush := func() {
		w.blob(appendStreamKey(nil, first.ID))
		w.blob(l.counted(count))
		n++
	}
	v.Entries.Ascend(0, func(e *stream.Entry) bool {
		w.charge(stepsPart * (1 + len(e.Fields)))
		size := 0
		for _, f := range e.Fields {
			size += len(f)
		}
		if count > 0 && (count >= streamNodeEntries || l.counting(count)+size >= streamNodeBytes) {
			flush()
			count = 0
		}
		if count == 0 {
			first = *e
			l = newListpack()
			l.integer(int64(len(e.Fields) / 2))
			for i := 0; i < len(e.Fields); i += 2 {
				l.text(e.Fields[i])
			}
			l.integer(0)
		}
		l.entry(e, &first)
		count++
		return !w.Over()
	})
	if count > 0 {
		flush()
	}
	w.lengthAt(start, n)
	w.length(uint64(v.Entries.Len()))
	for _, id := range []stream.ID{v.Last, v.FirstID(), v.MaxDeleted} {
		w.streamID(id)
	}
	w.length(v.Added)
	w.length(uint64(v.Groups.Len()))
	v.Groups.Ascend(0, func(g *stream.Group) bool {
		w.group(g)
		return !w.Over()
	})
}

// entry adds an entry to a listpack. first is the first entry of the listpack.
func (l *listpack) entry(e, first *stream.Entry) {
	fields := len(e.Fields) / 2
	same := len(e.Fields) == len(first.Fields)
	for i := 0; same && i < len(e.Fields); i += 2 {
		same = e.Fields[i] == first.Fields[i]
	}
	flags, parts := 0, 3+fields
	if same {
		flags = entrySameFields
	} else {
		parts += 1 + fields
	}
	l.integer(int64(flags))
	l.integer(int64(e.ID.Ms - first.ID.Ms))
	l.integer(int64(e.ID.Seq - first.ID.Seq))
	if !same {
		l.integer(int64(fields))
	}
	for i, f := range e.Fields {
		if i%2 == 1 || !same {
			l.text(f)
		}
	}
	l.integer(int64(parts))
}

// countElements returns a listpack with the two numbers at the start of a node:
// the number of entries, and the number of deleted entries, which is 0.
func countElements(count int) listpack {
	head := newListpack()
	head.integer(int64(count))
	head.integer(0)
	return head
}

// counting returns the size that l will have with the numbers of countElements
// in front.
func (l *listpack) counting(count int) int {
	head := countElements(count)
	return head.size() + len(l.b) - listpackHead
}

// counted returns the complete listpack with the numbers of countElements in
// front.
func (l *listpack) counted(count int) []byte {
	head := countElements(count)
	head.b = append(head.b, l.b[listpackHead:]...)
	head.n += l.n
	return head.bytes()
}

func appendStreamKey(b []byte, id stream.ID) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, id.Ms), id.Seq)
}

func (w *Writer) streamID(id stream.ID) {
	w.length(id.Ms)
	w.length(id.Seq)
}

// streamKey writes an ID as a key of a radix tree.
func (w *Writer) streamKey(id stream.ID) {
	w.b = appendStreamKey(w.b, id)
	w.size += 16
}

// moment writes the wall clock time of m. It does not write the lease clock
// time, so that equal values give equal bytes in every cluster.
func (w *Writer) moment(m stream.Moment) {
	w.b = binary.LittleEndian.AppendUint64(w.b, uint64(m.Wall))
	w.size += 8
}

func (w *Writer) group(g *stream.Group) {
	w.Text(g.Name)
	w.streamID(g.Last)
	w.length(uint64(g.Read))
	w.length(uint64(g.Pending.Len()))
	g.Pending.Ascend(0, func(p *stream.PendingEntry) bool {
		w.charge(1)
		w.streamKey(p.ID)
		w.moment(p.At)
		w.length(uint64(p.Deliveries))
		return !w.Over()
	})
	w.length(uint64(g.Consumers.Len()))
	g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
		w.Text(k.Name)
		w.moment(k.Seen)
		w.length(uint64(k.Pending.Len()))
		k.Pending.Ascend(0, func(id *stream.ID) bool {
			w.charge(1)
			w.streamKey(*id)
			return !w.Over()
		})
		return !w.Over()
	})
}

// streamReader reads a stream.
type streamReader struct {
	*Reader
	v     *stream.Stream
	owner *container.Owner
	now   stream.Moment
}

// Stream reads a stream into v, which must be empty. owner becomes the owner of
// the tree nodes of v. Stream replaces times before 1970 and times later than now
// with now, because clocks may be wrong; XCLAIM does the same.
func (r *Reader) Stream(v *stream.Stream, owner *container.Owner, now stream.Moment) {
	s := streamReader{r, v, owner, now}
	s.stream(r.kind == typeStreamOld)
}

// stream reads a stream in the form that Writer.Stream writes. If old is set,
// it reads the form of Redis 5 and 6.
func (s *streamReader) stream(old bool) {
	for n := s.count(2); n > 0 && !s.failed(); n-- {
		key := s.Text()
		if len(key) != 16 {
			s.bad()
			return
		}
		s.node(stream.ID{Ms: binary.BigEndian.Uint64(key), Seq: binary.BigEndian.Uint64(key[8:])})
	}
	v := s.v
	length := s.length()
	v.Last = s.streamID()
	v.Added = length
	if !old {
		s.streamID() // the ID of the first entry, which is not needed
		v.MaxDeleted = s.streamID()
		v.Added = s.length()
	}
	n := v.Entries.Len()
	switch {
	case length != uint64(n), v.Added < length,
		n > 0 && v.Entries.At(n-1).ID.Compare(v.Last) > 0:
		s.bad()
		return
	}
	for n := s.count(5); n > 0 && !s.failed(); n-- {
		s.group(old)
	}
}

func (s *streamReader) streamID() stream.ID {
	ms := s.length()
	return stream.ID{Ms: ms, Seq: s.length()}
}

// streamKey reads an ID that is a key of a radix tree.
func (s *streamReader) streamKey() (id stream.ID) {
	if b := s.take(16); b != nil {
		id = stream.ID{Ms: binary.BigEndian.Uint64(b), Seq: binary.BigEndian.Uint64(b[8:])}
	}
	return id
}

// node reads the entries of a listpack and appends them to the stream.
func (s *streamReader) node(master stream.ID) {
	p, ok := openListpack(s.blob())
	if !ok {
		s.bad()
		return
	}
	l := packReader{packed: p, r: s.Reader}
	live, dead, width := l.integer(), l.integer(), l.integer()
	if live < 0 || dead < 0 || width < 0 || width > int64(l.n) {
		s.bad()
		return
	}
	names := make([]string, width)
	for i := range names {
		names[i] = l.string()
	}
	if l.integer() != 0 {
		s.bad()
	}
	for l.n > 0 && !s.failed() {
		switch deleted := s.entry(&l, master, names); {
		case deleted:
			dead--
		default:
			live--
		}
	}
	if live != 0 || dead != 0 {
		s.bad()
	}
}

// entry reads an entry and reports whether the entry was deleted. If it was not
// deleted, the method appends it to the stream.
func (s *streamReader) entry(l *packReader, master stream.ID, names []string) (deleted bool) {
	flags := l.integer()
	e := stream.Entry{ID: stream.ID{Ms: master.Ms + uint64(l.integer()), Seq: master.Seq + uint64(l.integer())}}
	same := flags&entrySameFields != 0
	fields, parts := int64(len(names)), int64(3)
	if !same {
		fields = l.integer()
		parts += fields + 1
	}
	parts += fields
	if flags&^(entryDeleted|entrySameFields) != 0 || fields < 0 || fields > int64(l.n) || !s.more(int(2*fields+1)) {
		s.bad()
		return false
	}
	e.Fields = make([]string, 0, 2*fields)
	for i := range int(fields) {
		var name string
		if same {
			name = names[i]
			s.unfold(len(name))
		} else {
			name = l.string()
		}
		value := l.string()
		e.Fields = append(e.Fields, name, value)
	}
	if l.integer() != parts {
		s.bad()
	}
	if flags&entryDeleted != 0 || s.failed() {
		return true
	}
	n := s.v.Entries.Len()
	switch {
	case e.Size() > s.limits.String: // as in XADD
		s.stop(ErrTooLong)
	case fields == 0, e.ID == stream.ID{}, n > 0 && s.v.Entries.At(n-1).ID.Compare(e.ID) >= 0:
		s.bad()
	default:
		s.v.Entries.Insert(s.owner, n, e)
	}
	return false
}

// packReader reads the elements of a listpack. It stops the Reader if the
// listpack has fewer elements than expected.
type packReader struct {
	packed
	r *Reader
}

func (l *packReader) text() []byte {
	if l.n == 0 || l.r.failed() {
		l.r.bad()
		return nil
	}
	return l.next()
}

func (l *packReader) string() string { return string(l.text()) }

func (l *packReader) integer() int64 {
	n, ok := number.ParseInt(l.text())
	if !ok {
		l.r.bad()
	}
	return n
}

// moment reads a wall clock time. It replaces a time in the future or before 1970
// with the current time.
func (s *streamReader) moment() stream.Moment {
	at := int64(s.uint64())
	if at < 0 || at > s.now.Wall {
		return s.now
	}
	return stream.Moment{Lease: s.now.Lease - (s.now.Wall-at)*1e6, Wall: at}
}

// group reads a group and appends it to the groups of the stream.
func (s *streamReader) group(old bool) {
	owner := s.owner
	g := stream.Group{Name: string(s.Text()), Last: s.streamID()}
	if old {
		g.Read = s.v.ReadUpTo(g.Last)
	} else {
		g.Read = int64(s.length())
	}
	if n := s.v.Groups.Len(); !s.more(1) || n > 0 && s.v.Groups.At(n-1).Name >= g.Name {
		s.bad()
		return
	}
	pending := make([]stream.PendingEntry, s.count(16+8+1))
	if !s.more(len(pending)) {
		return
	}
	for i := range pending {
		p := &pending[i]
		p.ID, p.At, p.Deliveries = s.streamKey(), s.moment(), int64(s.length())
		if s.failed() || i > 0 && pending[i-1].ID.Compare(p.ID) >= 0 {
			s.bad()
			return
		}
		g.Pending.Insert(owner, i, *p)
	}
	left := len(pending) // pending entries for which no consumer was found yet
	taken := make([]bool, left)
	for n := s.count(1 + 8 + 1); n > 0; n-- {
		k := stream.Consumer{Name: string(s.Text()), Seen: s.moment()}
		at := g.Consumers.Len()
		if !s.more(1) || at > 0 && g.Consumers.At(at-1).Name >= k.Name {
			s.bad()
			return
		}
		last := -1
		for n := s.count(16); n > 0; n-- {
			id := s.streamKey()
			i, found := g.PendingPosition(id)
			if !found || taken[i] || i <= last {
				s.bad()
				return
			}
			last, taken[i] = i, true
			left--
			p := &pending[i]
			p.Consumer = k.Name
			g.Pending.Set(owner, i, *p)
			k.Pending.Insert(owner, k.Pending.Len(), id)
		}
		g.Consumers.Insert(owner, at, k)
	}
	if left > 0 {
		s.bad()
		return
	}
	s.v.Groups.Insert(owner, s.v.Groups.Len(), g)
}
