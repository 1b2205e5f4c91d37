package fsm

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

// This file has the consumer groups of streams. A group delivers each entry to
// one of its consumers and keeps the entry as pending until a consumer
// acknowledges it.

// unknownRead is the value of streamGroup.read if the number of entries that
// the group has read is not known.
const unknownRead = -1

// streamGroup is a consumer group. A copy of a streamGroup shares the nodes of
// its sequences with the original, as a copy of a collection does.
type streamGroup struct {
	name      string
	last      streamID // the ID of the last entry that was delivered as new
	read      int64    // how many entries up to last, of all that were ever added
	pending   container.Seq[pendingEntry]
	consumers container.Seq[consumer] // ordered by name
}

// pendingEntry is an entry that was delivered and is not acknowledged. The
// stream may no longer contain the entry itself.
type pendingEntry struct {
	id         streamID
	consumer   string
	at         moment
	deliveries int64
}

// consumer is a consumer of a group.
type consumer struct {
	name    string
	seen    moment                  // when the consumer last read or claimed an entry
	pending container.Seq[streamID] // the IDs of the consumer's pending entries
}

// moment is a point in time on both clocks. The lease clock measures how long
// ago it was, because a change of leader does not make the lease clock jump.
// The wall clock gives the time of day.
type moment struct {
	lease int64 // nanoseconds
	wall  int64 // milliseconds since 1970
}

func (c *Ctx) moment() moment { return moment{c.now, c.wallMs()} }

// since returns the milliseconds from m to now by the lease clock.
func (c *Ctx) since(m moment) int64 { return max(c.now-m.lease, 0) / 1e6 }

// groupPosition returns the position of a group and whether the stream has it.
func (v *collection) groupPosition(name string) (int, bool) {
	i := v.groups.Search(func(g *streamGroup) bool { return g.name < name })
	return i, i < v.groups.Len() && v.groups.At(i).name == name
}

func (g *streamGroup) consumerPosition(name string) (int, bool) {
	i := g.consumers.Search(func(k *consumer) bool { return k.name < name })
	return i, i < g.consumers.Len() && g.consumers.At(i).name == name
}

// pendingPosition returns the position of the first pending entry whose ID is
// at least id, and whether its ID is id.
func (g *streamGroup) pendingPosition(id streamID) (int, bool) {
	i := g.pending.Search(func(p *pendingEntry) bool { return p.id.compare(id) < 0 })
	return i, i < g.pending.Len() && g.pending.At(i).id == id
}

// position returns the position of the consumer's first pending entry whose ID
// is at least id.
func (k *consumer) position(id streamID) int {
	return k.pending.Search(func(e *streamID) bool { return e.compare(id) < 0 })
}

// list adds a pending entry to the list of its consumer.
func (g *streamGroup) list(o *container.Owner, name string, id streamID) {
	at, _ := g.consumerPosition(name)
	k := g.consumers.At(at)
	k.pending.Insert(o, k.position(id), id)
	g.consumers.Set(o, at, k)
}

// unlist removes a pending entry from the list of its consumer.
func (g *streamGroup) unlist(o *container.Owner, name string, id streamID) {
	at, _ := g.consumerPosition(name)
	k := g.consumers.At(at)
	k.pending.Delete(o, k.position(id))
	g.consumers.Set(o, at, k)
}

// give makes an entry pending for the consumer that p names, even if the entry
// was pending for another consumer.
func (g *streamGroup) give(o *container.Owner, p pendingEntry) {
	at, found := g.pendingPosition(p.id)
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

// settle removes an entry from the pending entries and reports whether it was
// pending.
func (g *streamGroup) settle(o *container.Owner, id streamID) bool {
	at, found := g.pendingPosition(id)
	if found {
		g.unlist(o, g.pending.Delete(o, at).consumer, id)
	}
	return found
}

// consumer returns the name of a consumer of a group of the stream n and
// updates the time at which the consumer was seen. If the group has no such
// consumer, this method creates it.
func (c *Ctx) consumer(n *object, g *streamGroup, name string) string {
	at, found := g.consumerPosition(name)
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

// fits reports whether a group may get n more pending entries and one more
// consumer.
func (g *streamGroup) fits(n int) bool {
	return g.pending.Len() <= MaxElements-n && g.consumers.Len() < MaxElements
}

// withGroup calls f with a copy of the stream o and a copy of its group at a
// position. f may change both; withGroup then stores them.
func (c *Ctx) withGroup(o *object, at int, f func(n *object, g *streamGroup)) {
	n := c.open(o, nil, typeStream)
	g := n.coll.groups.At(at)
	f(n, &g)
	n.coll.groups.Set(c.m.owner, at, g)
	c.keep(n)
}

// keep stores a stream if only its groups or its streamInfo have changed. Redis
// does not treat this as a change of the key: WATCH does not fail, trackers get
// no invalidation, and waiters are not served.
func (c *Ctx) keep(o *object) {
	o.touched = c.now
	old := c.m.dbs[c.db].tree.Set(o)
	if o.deadline != 0 {
		c.m.expiry.remove(c.db, old)
		c.m.expiry.add(c.db, o)
	}
}

// firstID returns the ID of the first entry, or 0-0 if the stream is empty.
func (v *collection) firstID() streamID {
	if v.stream.Len() == 0 {
		return streamID{}
	}
	return v.stream.At(0).id
}

// holed reports whether an entry with an ID of at least id may have been
// deleted from the middle of the stream.
func (v *collection) holed(id streamID) bool {
	deleted := v.info.maxDeleted
	if v.stream.Len() == 0 || deleted == (streamID{}) || v.firstID().compare(deleted) > 0 {
		return false
	}
	return id.compare(deleted) <= 0
}

// readUpTo estimates how many of the entries that were ever added have an ID of
// at most id. It returns unknownRead if it cannot know.
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

// lag returns the number of entries that a group has not read yet, or null if
// the number is not known.
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

// advance records that an entry was delivered to a group as new.
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

// readReply returns the number of entries that a group has read, as XINFO
// reports it.
func (g *streamGroup) readReply() Reply {
	if g.read == unknownRead {
		return Null
	}
	return Int(g.read)
}

// noGroup returns the error for a key or a group that does not exist.
func noGroup(key, group []byte, where string) Reply {
	return Error("NOGROUP No such key '" + cString(key) + "' or consumer group '" + cString(group) + "'" + where)
}

// cString returns the part of b before the first zero byte, which is what C
// code prints of a string.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// groupOf finds a group of a stream. at is -1 if the key or the group does not
// exist.
func (c *Ctx) groupOf(key, name []byte) (o *object, at int, wrongType bool) {
	o, wrong := c.lookupType(key, typeStream)
	if wrong || o == nil {
		return o, -1, wrong
	}
	at, found := o.coll.groupPosition(string(name))
	if !found {
		at = -1
	}
	return o, at, false
}
