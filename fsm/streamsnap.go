package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

func appendStreamID(b []byte, id streamID) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, id.ms), id.seq)
}

func (d *decoder) streamID() streamID { return streamID{d.uvarint(), d.uvarint()} }

func appendStreamInfo(b []byte, s *streamInfo) []byte {
	b = appendStreamID(appendStreamID(b, s.last), s.maxDeleted)
	return binary.AppendUvarint(b, s.added)
}

func (d *decoder) streamInfo() streamInfo {
	return streamInfo{last: d.streamID(), maxDeleted: d.streamID(), added: d.uvarint()}
}

func appendEntry(b []byte, e *streamEntry) []byte {
	b = binary.AppendUvarint(appendStreamID(b, e.id), uint64(len(e.fields)))
	for _, f := range e.fields {
		b = appendString(b, f)
	}
	return b
}

// entry reads an entry and appends it to the stream of v.
func (d *decoder) entry(v *collection, owner *container.Owner) error {
	e := streamEntry{id: d.streamID()}
	n := d.uvarint()
	if d.err == nil && (n == 0 || n%2 != 0 || n > uint64(len(d.b))) {
		return fmt.Errorf("%d fields and values: %w", n, ErrFormat)
	}
	for ; n > 0 && d.err == nil; n-- {
		e.fields = append(e.fields, string(d.bytes()))
	}
	size := v.stream.Len()
	if size > 0 && d.err == nil && v.stream.At(size-1).id.compare(e.id) >= 0 || e.id.compare(v.info.last) > 0 {
		return fmt.Errorf("entry %v out of order: %w", e.id, ErrFormat)
	}
	v.stream.Insert(owner, v.stream.Len(), e)
	return d.err
}

func appendMoment(b []byte, m moment) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, m.lease), m.wall)
}

func (d *decoder) moment() moment { return moment{d.varint(), d.varint()} }

// groups writes the consumer groups of a stream.
func (w *snapshotWriter) groups(v *collection) {
	v.groups.Ascend(0, func(g *streamGroup) bool {
		b := appendString(append(w.b, recordGroup), g.name)
		b = binary.AppendVarint(appendStreamID(b, g.last), g.read)
		b = binary.AppendUvarint(b, uint64(g.consumers.Len()))
		w.b = binary.AppendUvarint(b, uint64(g.pending.Len()))
		w.cut()
		number := make(map[string]uint64, g.consumers.Len())
		g.consumers.Ascend(0, func(k *consumer) bool {
			number[k.name] = uint64(len(number))
			w.b = appendMoment(appendString(append(w.b, recordReader), k.name), k.seen)
			w.cut()
			return w.err == nil
		})
		g.pending.Ascend(0, func(p *pendingEntry) bool {
			b := appendStreamID(append(w.b, recordPending), p.id)
			b = binary.AppendUvarint(b, number[p.consumer])
			w.b = binary.AppendVarint(appendMoment(b, p.at), p.deliveries)
			w.cut()
			return w.err == nil
		})
		return w.err == nil
	})
}

// group reads a consumer group and appends it to those of the open stream.
func (l *snapshotLoader) group(d *decoder) error {
	g := streamGroup{name: string(d.bytes()), last: d.streamID(), read: d.varint()}
	l.groups--
	l.readers, l.pending = d.uvarint(), d.uvarint()
	v := l.open.coll
	n := v.groups.Len()
	switch {
	case d.err != nil:
		return fmt.Errorf("group: %w", d.err)
	case l.readers > MaxElements || l.pending > MaxElements || l.pending > 0 && l.readers == 0,
		n > 0 && v.groups.At(n-1).name >= g.name:
		return fmt.Errorf("group %.40q of key %q: %w", g.name, l.open.key, ErrFormat)
	}
	v.groups.Insert(l.m.owner, n, g)
	return nil
}

// reader reads a consumer of the last group.
func (l *snapshotLoader) reader(d *decoder) error {
	k := consumer{name: string(d.bytes()), seen: d.moment()}
	l.readers--
	at, g := l.lastGroup()
	n := g.consumers.Len()
	if d.err == nil && n > 0 && g.consumers.At(n-1).name >= k.name {
		return fmt.Errorf("consumer %.40q of key %q: %w", k.name, l.open.key, ErrFormat)
	}
	g.consumers.Insert(l.m.owner, n, k)
	l.open.coll.groups.Set(l.m.owner, at, g)
	return d.err
}

// pendings reads a pending entry of the last group.
func (l *snapshotLoader) pendings(d *decoder) error {
	p := pendingEntry{id: d.streamID()}
	reader := d.uvarint()
	p.at, p.deliveries = d.moment(), d.varint()
	l.pending--
	at, g := l.lastGroup()
	n := g.pending.Len()
	if d.err == nil && (reader >= uint64(g.consumers.Len()) || n > 0 && g.pending.At(n-1).id.compare(p.id) >= 0) {
		return fmt.Errorf("pending entry %v of key %q: %w", p.id, l.open.key, ErrFormat)
	}
	if d.err != nil {
		return d.err
	}
	k := g.consumers.At(int(reader))
	p.consumer = k.name
	k.pending.Insert(l.m.owner, k.pending.Len(), p.id)
	g.consumers.Set(l.m.owner, int(reader), k)
	g.pending.Insert(l.m.owner, n, p)
	l.open.coll.groups.Set(l.m.owner, at, g)
	return nil
}

func (l *snapshotLoader) lastGroup() (at int, g streamGroup) {
	at = l.open.coll.groups.Len() - 1
	return at, l.open.coll.groups.At(at)
}
