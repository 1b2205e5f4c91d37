package fsm

import "slices"

// EventKind says what an Event tells of.
type EventKind byte

const (
	// EventPublish is a message for the subscribers of a channel.
	EventPublish EventKind = iota
	// EventKeyspace is a keyspace notification, as notify-keyspace-events asks
	// for it.
	EventKeyspace
	// EventChanged: a key was given a value, changed, deleted or expired.
	EventChanged
	// EventFlushed: a database was emptied, or exchanged for another.
	EventFlushed
	// EventTracked: a connection that wants to hear of the next change of a key
	// has read it, at this place of the log.
	EventTracked
)

// EventKinds is a set of kinds.
type EventKinds uint32

// Kinds returns the set of the kinds that are named.
func Kinds(kinds ...EventKind) EventKinds {
	var set EventKinds
	for _, k := range kinds {
		set |= 1 << k
	}
	return set
}

// Has reports whether k is in the set.
func (s EventKinds) Has(k EventKind) bool { return s&(1<<k) != 0 }

// Event is something that an entry did and that connections may wait for. Events
// are no part of the state, of the replies or of the hash chain: a machine that
// nobody listens to makes none.
type Event struct {
	Kind EventKind
	DB   int
	// Key is the key, or the channel of EventPublish.
	Key string
	// Name is the name of the event of EventKeyspace ("set", "expired").
	Name string
	// Class is the letter that notify-keyspace-events uses for the event.
	Class byte
	// Keyspace and Keyevent say on which of its two channels the notification
	// of EventKeyspace is due.
	Keyspace, Keyevent bool
	// Sharded: the channel of EventPublish is a shard channel.
	Sharded bool
	// Payload is the message of EventPublish, and belongs to the event.
	Payload []byte
	// Session is the index into Result.Sessions of the node that the command
	// came from, -1 if no command did it (a key that expired by itself); Origin
	// is the number of its connection there.
	Session int
	Origin  uint64
	// Group is the group in Result.Groups that was running, -1 if none was yet, and
	// Op counts the operations of the group that had been run before.
	Group, Op int
	// Waiter is the client whose blocking command did it when it was served, nil
	// for none. Session is -1 then.
	Waiter *Waiter
}

// Waiter names a blocking command that waited.
type Waiter struct {
	Session SessionID
	Origin  uint64
	Pos     Pos
}

// size estimates the memory that the event takes.
func (e *Event) size() int { return 128 + len(e.Key) + len(e.Payload) }

// EventBytes estimates the memory that events take.
func EventBytes(events []Event) int {
	n := 0
	for i := range events {
		n += events[i].size()
	}
	return n
}

// Want says which kinds of events Apply is to put into its results from now
// on. It has no influence on state and replies.
func (m *Machine) Want(kinds EventKinds) { m.want = kinds }

// emit adds an event to the result of the entry that is being applied.
func (c *Ctx) emit(e Event) {
	e.DB, e.Session, e.Origin, e.Group, e.Op = c.db, c.session, c.r.origin, c.group, c.op
	if c.session < 0 {
		e.Origin = 0
	}
	if n := c.serving; n != nil {
		e.Waiter = &Waiter{Session: n.session, Origin: n.origin, Pos: n.pos}
	}
	c.m.events = append(c.m.events, e)
}

// wants reports whether somebody listens to a kind of event.
func (c *Ctx) wants(k EventKind) bool { return c.m.want.Has(k) && !c.readOnly }

// changed tells of a change of a key in the current database.
func (c *Ctx) changed(key string) {
	if c.wants(EventChanged) {
		c.emit(Event{Kind: EventChanged, Key: key})
	}
}

// flushed tells that nothing that was read of a database holds any more.
func (c *Ctx) flushed(db int) {
	if c.wants(EventFlushed) {
		c.emit(Event{Kind: EventFlushed})
		c.m.events[len(c.m.events)-1].DB = db
	}
}

// tracked tells of the keys that a command is about to read for a connection
// that asked for it with Group.Track.
func (c *Ctx) tracked(cmd *Command, args [][]byte) {
	if !c.wants(EventTracked) {
		return
	}
	for _, i := range cmd.KeyPositions(args) {
		c.emit(Event{Kind: EventTracked, Key: string(args[i])})
	}
}

// publish hands a message to the subscribers of a channel.
func (c *Ctx) publish(channel, message []byte, sharded bool) {
	if c.wants(EventPublish) {
		c.emit(Event{Kind: EventPublish, Key: string(channel), Payload: slices.Clone(message), Sharded: sharded})
	}
}
