package stream

import "github.com/holdfast-kv/holdfast/fsm/container"

// UnknownRead is the value of Group.Read if the number is not known.
const UnknownRead = -1

// Group is a consumer group. It delivers each new entry to one of its
// consumers. Unless the consumer reads with NOACK, the entry is then pending
// until a client acknowledges it. A copy of a Group shares the nodes of its
// sequences with the original, as a copy of a Stream does.
type Group struct {
	Name      string
	Last      ID    // the entries after this ID are new to the group
	Read      int64 // number of entries up to Last since the stream was created, or UnknownRead
	Pending   container.Seq[PendingEntry]
	Consumers container.Seq[Consumer] // ordered by name
}

// PendingEntry is an entry that was delivered and is not acknowledged. The
// stream may no longer contain the entry itself.
type PendingEntry struct {
	ID         ID
	Consumer   string
	At         Moment
	Deliveries int64
}

// Consumer is a consumer of a group.
type Consumer struct {
	Name    string
	Seen    Moment            // when the consumer was created, or last read or claimed entries
	Pending container.Seq[ID] // the IDs of the consumer's pending entries
}

// Moment is a point in time on both clocks. Commands use the lease clock to
// measure how much time has passed since then, because a change of leader does
// not make the lease clock jump. The wall clock gives the time of day.
type Moment struct {
	Lease int64 // nanoseconds
	Wall  int64 // milliseconds since 1970
}

// GroupPosition returns the position of a group and whether the stream has it.
func (s *Stream) GroupPosition(name string) (int, bool) {
	i := s.Groups.Search(func(g *Group) bool { return g.Name < name })
	return i, i < s.Groups.Len() && s.Groups.At(i).Name == name
}

// ConsumerPosition returns the position of a consumer and whether the group has
// it.
func (g *Group) ConsumerPosition(name string) (int, bool) {
	i := g.Consumers.Search(func(k *Consumer) bool { return k.Name < name })
	return i, i < g.Consumers.Len() && g.Consumers.At(i).Name == name
}

// PendingPosition returns the position of the first pending entry whose ID is
// at least id, and whether its ID is id.
func (g *Group) PendingPosition(id ID) (int, bool) {
	i := g.Pending.Search(func(p *PendingEntry) bool { return p.ID.Compare(id) < 0 })
	return i, i < g.Pending.Len() && g.Pending.At(i).ID == id
}

// Position returns the position of the consumer's first pending entry whose ID
// is at least id.
func (k *Consumer) Position(id ID) int {
	return k.Pending.Search(func(e *ID) bool { return e.Compare(id) < 0 })
}

// addPending adds a pending entry to the list of its consumer.
func (g *Group) addPending(o *container.Owner, name string, id ID) {
	at, _ := g.ConsumerPosition(name)
	k := g.Consumers.At(at)
	k.Pending.Insert(o, k.Position(id), id)
	g.Consumers.Set(o, at, k)
}

// removePending removes a pending entry from the list of its consumer.
func (g *Group) removePending(o *container.Owner, name string, id ID) {
	at, _ := g.ConsumerPosition(name)
	k := g.Consumers.At(at)
	k.Pending.Delete(o, k.Position(id))
	g.Consumers.Set(o, at, k)
}

// Assign makes an entry pending for the consumer that p names, even if the
// entry was pending for another consumer. The group must have the consumer.
func (g *Group) Assign(o *container.Owner, p PendingEntry) {
	at, found := g.PendingPosition(p.ID)
	if !found {
		g.Pending.Insert(o, at, p)
		g.addPending(o, p.Consumer, p.ID)
		return
	}
	if old := g.Pending.At(at).Consumer; old != p.Consumer {
		g.removePending(o, old, p.ID)
		g.addPending(o, p.Consumer, p.ID)
	}
	g.Pending.Set(o, at, p)
}

// Ack removes an entry from the pending entries and reports whether it was
// pending.
func (g *Group) Ack(o *container.Owner, id ID) bool {
	at, found := g.PendingPosition(id)
	if found {
		g.removePending(o, g.Pending.Delete(o, at).Consumer, id)
	}
	return found
}

// FirstID returns the ID of the first entry, or 0-0 if the stream is empty.
func (s *Stream) FirstID() ID {
	if s.Entries.Len() == 0 {
		return ID{}
	}
	return s.Entries.At(0).ID
}

// holed reports whether an entry with an ID of at least id may have been
// deleted from the middle of the stream.
func (s *Stream) holed(id ID) bool {
	deleted := s.MaxDeleted
	if s.Entries.Len() == 0 || deleted == (ID{}) || s.FirstID().Compare(deleted) > 0 {
		return false
	}
	return id.Compare(deleted) <= 0
}

// ReadUpTo estimates how many of the entries that were ever added have an ID of
// at most id. It returns UnknownRead if it cannot determine the number.
func (s *Stream) ReadUpTo(id ID) int64 {
	added, last := int64(s.Added), s.Last
	switch {
	case added == 0:
		return 0
	case s.Entries.Len() == 0 && id.Compare(last) < 1:
		return added
	case id == last:
		return added
	case id.Compare(last) > 0:
		return UnknownRead
	}
	first, deleted := s.FirstID(), s.MaxDeleted
	if deleted == (ID{}) || deleted.Compare(first) < 0 {
		switch length := int64(s.Entries.Len()); id.Compare(first) {
		case -1:
			return added - length
		case 0:
			return added - length + 1
		}
	}
	return UnknownRead
}

// Lag returns the number of entries that a group has not read yet. known is
// false if the number is not known.
func (s *Stream) Lag(g *Group) (n int64, known bool) {
	added, read := int64(s.Added), g.Read
	switch {
	case added == 0:
		return 0, true
	case read == UnknownRead || s.holed(g.Last):
		if read = s.ReadUpTo(g.Last); read == UnknownRead {
			return 0, false
		}
	}
	return added - read, true
}

// Advance records that an entry was delivered to a group as new.
func (s *Stream) Advance(g *Group, id ID) {
	if id.Compare(g.Last) <= 0 {
		return
	}
	if g.Read != UnknownRead && !s.holed(id) {
		g.Read++
	} else if s.Added > 0 {
		g.Read = s.ReadUpTo(id)
	}
	g.Last = id
}
