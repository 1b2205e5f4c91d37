package fsm

import "strings"

// Consumer groups of streams. A group hands each entry to one of its consumers,
// and keeps it as pending until it is acknowledged.

// unknownRead is the number of entries that a group has read where it cannot be
// told.
const unknownRead = -1

// streamGroup is a consumer group. A copy of it shares the nodes of its sequences,
// as a copy of a collection does.
type streamGroup struct {
	name      string
	last      streamID // of those that were delivered as new
	read      int64    // entries up to last, of all that were ever added
	pending   seq[pendingEntry]
	consumers seq[consumer] // by name
}

// pendingEntry is an entry that was delivered and not acknowledged. The entry
// itself may be gone from the stream.
type pendingEntry struct {
	id         streamID
	consumer   string
	at         moment
	deliveries int64
}

// consumer is a reader of a group.
type consumer struct {
	name    string
	seen    moment        // when it last read or claimed something
	pending seq[streamID] // those of its entries
}

// moment is a time on both clocks: how long ago it was is told by the lease clock,
// which no change of leader makes jump, and when it was by the wall clock.
type moment struct {
	lease int64 // nanoseconds
	wall  int64 // milliseconds since 1970
}

func (c *Ctx) moment() moment { return moment{c.now, c.wallMs()} }

// since returns the milliseconds from m to now.
func (c *Ctx) since(m moment) int64 { return max(c.now-m.lease, 0) / 1e6 }

// groupPlace returns the place of a group, and whether it is there.
func (v *collection) groupPlace(name string) (int, bool) {
	i := v.groups.Search(func(g *streamGroup) bool { return g.name < name })
	return i, i < v.groups.Len() && v.groups.At(i).name == name
}

func (g *streamGroup) consumerPlace(name string) (int, bool) {
	i := g.consumers.Search(func(k *consumer) bool { return k.name < name })
	return i, i < g.consumers.Len() && g.consumers.At(i).name == name
}

// pendingPlace returns the place of the first pending entry with an ID of at least
// id, and whether it has that ID.
func (g *streamGroup) pendingPlace(id streamID) (int, bool) {
	i := g.pending.Search(func(p *pendingEntry) bool { return p.id.compare(id) < 0 })
	return i, i < g.pending.Len() && g.pending.At(i).id == id
}

// place returns the place of the first of the consumer's entries with an ID of at
// least id.
func (k *consumer) place(id streamID) int {
	return k.pending.Search(func(e *streamID) bool { return e.compare(id) < 0 })
}

// list puts an entry among those of a consumer.
func (g *streamGroup) list(o *seqOwner, name string, id streamID) {
	at, _ := g.consumerPlace(name)
	k := g.consumers.At(at)
	k.pending.Insert(o, k.place(id), id)
	g.consumers.Set(o, at, k)
}

// unlist takes an entry from those of a consumer.
func (g *streamGroup) unlist(o *seqOwner, name string, id streamID) {
	at, _ := g.consumerPlace(name)
	k := g.consumers.At(at)
	k.pending.Delete(o, k.place(id))
	g.consumers.Set(o, at, k)
}

// give makes an entry pending for the consumer that p names, whoever had it.
func (g *streamGroup) give(o *seqOwner, p pendingEntry) {
	at, found := g.pendingPlace(p.id)
	if !found {
		g.pending.Insert(o, at, p)
		g.list(o, p.consumer, p.id)
		return
	}
	if old := g.pending.At(at).consumer; old != p.consumer {
		g.unlist(o, old, p.id)
		g.list(o, p.consumer, p.id)
	}
	g.pending.Set(o, at, p)
}

// settle ends that an entry is pending, and reports whether it was.
func (g *streamGroup) settle(o *seqOwner, id streamID) bool {
	at, found := g.pendingPlace(id)
	if found {
		g.unlist(o, g.pending.Delete(o, at).consumer, id)
	}
	return found
}

// consumer returns the name of a consumer of a group of the stream n, which it
// makes if there is none, and notes that it was seen.
func (c *Ctx) consumer(n *object, g *streamGroup, name string) string {
	at, found := g.consumerPlace(name)
	k := consumer{name: strings.Clone(name)}
	if found {
		k = g.consumers.At(at)
	}
	k.seen = c.moment()
	if found {
		g.consumers.Set(c.m.owner, at, k)
		return k.name
	}
	g.consumers.Insert(c.m.owner, at, k)
	c.notify("t", "xgroup-createconsumer", n.key)
	return k.name
}

// fits reports whether a group may take n more pending entries and a consumer.
func (g *streamGroup) fits(n int) bool {
	return g.pending.Len() <= MaxElements-n && g.consumers.Len() < MaxElements
}

// withGroup hands f a copy of a group of o that may be changed, and keeps what f
// made of it.
func (c *Ctx) withGroup(o *object, at int, f func(n *object, g *streamGroup)) {
	n := c.open(o, nil, typeStream)
	g := n.coll.groups.At(at)
	f(n, &g)
	n.coll.groups.Set(c.m.owner, at, g)
	c.keep(n)
}

// keep stores a stream of which only groups or the state beside the entries have
// changed. Redis calls that no change of the key: WATCH, trackers and those who
// wait do not hear of it.
func (c *Ctx) keep(o *object) {
	o.touched = c.now
	old := c.m.dbs[c.db].tree.Set(o)
	if o.deadline != 0 {
		c.m.expiry.remove(c.db, old)
		c.m.expiry.add(c.db, o)
	}
}

// firstID returns the ID of the first entry, 0-0 if there is none.
func (v *collection) firstID() streamID {
	if v.stream.Len() == 0 {
		return streamID{}
	}
	return v.stream.At(0).id
}

// holed reports whether an entry that was deleted out of turn may be missing from
// id on.
func (v *collection) holed(id streamID) bool {
	deleted := v.info.maxDeleted
	if v.stream.Len() == 0 || deleted == (streamID{}) || v.firstID().compare(deleted) > 0 {
		return false
	}
	return id.compare(deleted) <= 0
}

// readUpTo estimates how many of the entries that were ever added have an ID up to
// id; unknownRead if it cannot be told.
func (v *collection) readUpTo(id streamID) int64 {
	added, last := int64(v.info.added), v.info.last
	switch {
	case added == 0:
		return 0
	case v.stream.Len() == 0 && id.compare(last) < 1:
		return added
	case id == last:
		return added
	case id.compare(last) > 0:
		return unknownRead
	}
	first, deleted := v.firstID(), v.info.maxDeleted
	if deleted == (streamID{}) || deleted.compare(first) < 0 {
		switch length := int64(v.stream.Len()); id.compare(first) {
		case -1:
			return added - length
		case 0:
			return added - length + 1
		}
	}
	return unknownRead
}

// lag is the number of entries that a group has still to read, null if it cannot
// be told.
func (v *collection) lag(g *streamGroup) Reply {
	added, read := int64(v.info.added), g.read
	switch {
	case added == 0:
		return Zero
	case read == unknownRead || v.holed(g.last):
		if read = v.readUpTo(g.last); read == unknownRead {
			return Null
		}
	}
	return Int(added - read)
}

// advance notes that a group has been given an entry as new.
func (v *collection) advance(g *streamGroup, id streamID) {
	if id.compare(g.last) <= 0 {
		return
	}
	if g.read != unknownRead && !v.holed(id) {
		g.read++
	} else if v.info.added > 0 {
		g.read = v.readUpTo(id)
	}
	g.last = id
}

// readReply is the number of entries that a group has read, as XINFO tells it.
func (g *streamGroup) readReply() Reply {
	if g.read == unknownRead {
		return Null
	}
	return Int(g.read)
}

// noGroup is the error for a group, or its key, that is not there.
func noGroup(key, group []byte, where string) Reply {
	return Error("NOGROUP No such key '" + cString(key) + "' or consumer group '" + cString(group) + "'" + where)
}

// cString is what C sees of a string: it ends at the first zero.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// groupOf finds a group of a stream. at is -1 if the key or the group is not
// there.
func (c *Ctx) groupOf(key, name []byte) (o *object, at int, wrongType bool) {
	o, wrong := c.lookupType(key, typeStream)
	if wrong || o == nil {
		return o, -1, wrong
	}
	at, found := o.coll.groupPlace(string(name))
	if !found {
		at = -1
	}
	return o, at, false
}
