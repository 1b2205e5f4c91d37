package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/stream"
)

func appendStreamID(b []byte, id stream.ID) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, id.Ms), id.Seq)
}

func (d *decoder) streamID() stream.ID { return stream.ID{Ms: d.uvarint(), Seq: d.uvarint()} }

func appendStreamInfo(b []byte, s *stream.Info) []byte {
	b = appendStreamID(appendStreamID(b, s.Last), s.MaxDeleted)
	return binary.AppendUvarint(b, s.Added)
}

func (d *decoder) streamInfo() stream.Info {
	return stream.Info{Last: d.streamID(), MaxDeleted: d.streamID(), Added: d.uvarint()}
}

func appendEntry(b []byte, e *stream.Entry) []byte {
	b = binary.AppendUvarint(appendStreamID(b, e.ID), uint64(len(e.Fields)))
	for _, f := range e.Fields {
		b = appendString(b, f)
	}
	return b
}

// entry reads an entry and appends it to the stream of v.
func (d *decoder) entry(v *collection, owner *container.Owner) error {
	e := stream.Entry{ID: d.streamID()}
	n := d.uvarint()
	if d.err == nil && (n == 0 || n%2 != 0 || n > uint64(len(d.b))) {
		return fmt.Errorf("%d fields and values: %w", n, ErrFormat)
	}
	for ; n > 0 && d.err == nil; n-- {
		e.Fields = append(e.Fields, string(d.bytes()))
	}
	size := v.stream.Entries.Len()
	if size > 0 && d.err == nil && v.stream.Entries.At(size-1).ID.Compare(e.ID) >= 0 || e.ID.Compare(v.stream.Last) > 0 {
		return fmt.Errorf("entry %v out of order: %w", e.ID, ErrFormat)
	}
	v.stream.Entries.Insert(owner, v.stream.Entries.Len(), e)
	return d.err
}

func appendMoment(b []byte, m stream.Moment) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, m.Lease), m.Wall)
}

func (d *decoder) moment() stream.Moment { return stream.Moment{Lease: d.varint(), Wall: d.varint()} }

// groups writes the consumer groups of a stream.
func (w *snapshotWriter) groups(v *collection) {
	v.stream.Groups.Ascend(0, func(g *stream.Group) bool {
		b := appendString(append(w.b, recordGroup), g.Name)
		b = binary.AppendVarint(appendStreamID(b, g.Last), g.Read)
		b = binary.AppendUvarint(b, uint64(g.Consumers.Len()))
		w.b = binary.AppendUvarint(b, uint64(g.Pending.Len()))
		w.cut()
		number := make(map[string]uint64, g.Consumers.Len())
		g.Consumers.Ascend(0, func(k *stream.Consumer) bool {
			number[k.Name] = uint64(len(number))
			w.b = appendMoment(appendString(append(w.b, recordReader), k.Name), k.Seen)
			w.cut()
			return w.err == nil
		})
		g.Pending.Ascend(0, func(p *stream.PendingEntry) bool {
			b := appendStreamID(append(w.b, recordPending), p.ID)
			b = binary.AppendUvarint(b, number[p.Consumer])
			w.b = binary.AppendVarint(appendMoment(b, p.At), p.Deliveries)
			w.cut()
			return w.err == nil
		})
		return w.err == nil
	})
}

// group reads a consumer group and appends it to those of the open stream.
func (l *snapshotLoader) group(d *decoder) error {
	g := stream.Group{Name: string(d.bytes()), Last: d.streamID(), Read: d.varint()}
	l.groups--
	l.readers, l.pending = d.uvarint(), d.uvarint()
	v := l.open.coll
	n := v.stream.Groups.Len()
	switch {
	case d.err != nil:
		return fmt.Errorf("group: %w", d.err)
	case l.readers > MaxElements || l.pending > MaxElements || l.pending > 0 && l.readers == 0,
		n > 0 && v.stream.Groups.At(n-1).Name >= g.Name:
		return fmt.Errorf("group %.40q of key %q: %w", g.Name, l.open.key, ErrFormat)
	}
	v.stream.Groups.Insert(l.m.owner, n, g)
	return nil
}

// reader reads a consumer of the last group.
func (l *snapshotLoader) reader(d *decoder) error {
	k := stream.Consumer{Name: string(d.bytes()), Seen: d.moment()}
	l.readers--
	at, g := l.lastGroup()
	n := g.Consumers.Len()
	if d.err == nil && n > 0 && g.Consumers.At(n-1).Name >= k.Name {
		return fmt.Errorf("consumer %.40q of key %q: %w", k.Name, l.open.key, ErrFormat)
	}
	g.Consumers.Insert(l.m.owner, n, k)
	l.open.coll.stream.Groups.Set(l.m.owner, at, g)
	return d.err
}

// pendings reads a pending entry of the last group.
func (l *snapshotLoader) pendings(d *decoder) error {
	p := stream.PendingEntry{ID: d.streamID()}
	reader := d.uvarint()
	p.At, p.Deliveries = d.moment(), d.varint()
	l.pending--
	at, g := l.lastGroup()
	n := g.Pending.Len()
	if d.err == nil && (reader >= uint64(g.Consumers.Len()) || n > 0 && g.Pending.At(n-1).ID.Compare(p.ID) >= 0) {
		return fmt.Errorf("pending entry %v of key %q: %w", p.ID, l.open.key, ErrFormat)
	}
	if d.err != nil {
		return d.err
	}
	k := g.Consumers.At(int(reader))
	p.Consumer = k.Name
	k.Pending.Insert(l.m.owner, k.Pending.Len(), p.ID)
	g.Consumers.Set(l.m.owner, int(reader), k)
	g.Pending.Insert(l.m.owner, n, p)
	l.open.coll.stream.Groups.Set(l.m.owner, at, g)
	return nil
}

func (l *snapshotLoader) lastGroup() (at int, g stream.Group) {
	at = l.open.coll.stream.Groups.Len() - 1
	return at, l.open.coll.stream.Groups.At(at)
}
