package fsm

import (
	"cmp"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var pubsubCommands = []Command{
	{
		Name: "publish", Run: publish, Arity: 3, Flags: MayWrite | PubSub | Loading | Stale | Fast,
		Group: "pubsub", Since: "2.0.0",
		Complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the " +
			"total number of subscribed patterns (by any client).",
		Syntax: "channel message",
		Doc:    "Post a message to a channel",
	},
	{
		Name: "spublish", Run: spublish, Arity: 3, Flags: MayWrite | PubSub | Loading | Stale | Fast,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "not_key"},
		Group: "pubsub", Since: "7.0.0",
		Complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
		Syntax:     "shardchannel message",
		Doc:        "Post a message to a shard channel",
	},
	{
		Name: PublishCommand, Run: publish, Arity: 4, Flags: Internal | MayWrite | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "channel message receivers",
		Doc:        "PUBLISH with the number of receivers",
	},
	{
		Name: SpublishCommand, Run: spublish, Arity: 4, Flags: Internal | MayWrite | Fast,
		Group: "internal", Since: "holdfast",
		Complexity: "O(1)",
		Syntax:     "channel message receivers",
		Doc:        "SPUBLISH with the number of receivers",
	},
}

// EventKind is the kind of an Event.
type EventKind byte

const (
	// EventPublish is a message for the subscribers of a channel.
	EventPublish EventKind = iota
	// EventKeyspace is a keyspace notification that notify-keyspace-events
	// selects.
	EventKeyspace
	// EventChanged means that a key was created, changed, deleted or expired.
	EventChanged
	// EventFlushed means that a database was emptied, exchanged with another
	// database, or replaced by a restore.
	EventFlushed
	// EventTracked means that a connection with tracking has read a key at this
	// log index. The next change of the key invalidates what the connection has
	// read.
	EventTracked
)

// EventKinds is a set of kinds.
type EventKinds uint32

// Kinds returns the set of the given kinds.
func Kinds(kinds ...EventKind) EventKinds {
	var set EventKinds
	for _, k := range kinds {
		set |= 1 << k
	}
	return set
}

// Has reports whether k is in the set.
func (s EventKinds) Has(k EventKind) bool { return s&(1<<k) != 0 }

// Event is an effect of an entry that connections may be notified of. Events
// are not part of the state, the replies or the hash chain. A machine creates
// only the events that Want selects.
type Event struct {
	Kind EventKind
	DB   int
	// Key is the key, or the channel of EventPublish.
	Key string
	// Name is the event name of EventKeyspace ("set", "expired").
	Name string
	// Class is the letter of the event in notify-keyspace-events.
	Class byte
	// Keyspace and Keyevent say whether a notification of EventKeyspace is
	// published on the keyspace channel and on the keyevent channel.
	Keyspace, Keyevent bool
	// Sharded means that the channel of EventPublish is a shard channel.
	Sharded bool
	// Payload is the message of EventPublish. The event owns it.
	Payload []byte
	// Session is the index into Result.Sessions of the session whose command was
	// running. It is -1 if no command was running, for example if a key expired
	// by itself, or if the machine served a waiter. Origin is the number of the
	// connection on the node of that session.
	Session int
	Origin  uint64
	// Group is the index into Result.Groups of the group that was running. It
	// is -1 if no group was running yet. Op is the number of operations of the
	// group that were executed before the current one.
	Group, Op int
	// Waiter is the waiter whose blocking command caused the event when the
	// machine served it. It is nil if no waiter caused the event. If Waiter is
	// set, Session is -1.
	Waiter *Waiter
}

// Waiter identifies a blocking command that waited.
type Waiter struct {
	Session SessionID
	Origin  uint64
	Pos     Pos
}

// size estimates the memory that the event takes, in bytes.
func (e *Event) size() int { return 128 + len(e.Key) + len(e.Payload) }

// EventBytes estimates the memory that events take, in bytes.
func EventBytes(events []Event) int {
	n := 0
	for i := range events {
		n += events[i].size()
	}
	return n
}

// Want sets the kinds of events that Apply adds to its results from now on. It
// does not affect the state or the replies.
func (m *Machine) Want(kinds EventKinds) { m.want = kinds }

// emit adds an event to the result of the entry that is being applied.
func (c *Ctx) emit(e Event) {
	e.DB, e.Session, e.Origin, e.Group, e.Op = c.db, c.session, c.r.origin, c.group, c.op
	if c.session < 0 {
		e.Origin = 0
	}
	if n := c.served; n != nil {
		e.Waiter = &Waiter{Session: n.session, Origin: n.origin, Pos: n.pos}
	}
	c.m.events = append(c.m.events, e)
}

// wants reports whether the machine creates events of a kind. Reads create
// none.
func (c *Ctx) wants(k EventKind) bool { return c.m.want.Has(k) && !c.readOnly }

// changed emits the event that a key of the current database has changed.
func (c *Ctx) changed(key string) {
	if c.wants(EventChanged) {
		c.emit(Event{Kind: EventChanged, Key: key})
	}
}

// flushed emits the event that invalidates everything that clients have read
// from a database.
func (c *Ctx) flushed(db int) {
	if c.wants(EventFlushed) {
		c.emit(Event{Kind: EventFlushed})
		c.m.events[len(c.m.events)-1].DB = db
	}
}

// tracked emits events for the keys that a command is about to read, for a
// connection that tracks them (see Group.Track).
func (c *Ctx) tracked(cmd *Command, args [][]byte) {
	if !c.wants(EventTracked) {
		return
	}
	for _, i := range cmd.KeyPositions(args) {
		c.emit(Event{Kind: EventTracked, Key: string(args[i])})
	}
}

// publish emits a message for the subscribers of a channel.
func (c *Ctx) publish(channel, message []byte, sharded bool) {
	if c.wants(EventPublish) {
		c.emit(Event{Kind: EventPublish, Key: string(channel), Payload: slices.Clone(message), Sharded: sharded})
	}
}

// Notify emits a keyspace notification for a key. class is the letter of the
// event in notify-keyspace-events. The commands of Redis call Notify at the same
// points as in Redis.
func (c *Ctx) Notify(class, event, key string) {
	n := c.m.notices
	if n == 0 || !c.wants(EventKeyspace) || n&noticeOf(class[0]) == 0 || n&(noticeKeyspace|noticeKeyevent) == 0 {
		return
	}
	c.emit(Event{Kind: EventKeyspace, Class: class[0], Name: event, Key: key,
		Keyspace: n&noticeKeyspace != 0, Keyevent: n&noticeKeyevent != 0})
}

// notices is the set of notifications that notify-keyspace-events selects.
type notices uint32

// These are the letters of notify-keyspace-events, in the order in which Redis
// prints them. 'A' stands for all classes except misses and new keys.
const (
	noticeLetters = "g$lshzxetdnKEm"

	noticeKeyspace notices = 1 << 11
	noticeKeyevent notices = 1 << 12
	noticeAll      notices = 1<<10 - 1 // g$lshzxetd
)

// noticeOf returns the bit of a letter, 0 for an unknown letter.
func noticeOf(letter byte) notices {
	for i := range len(noticeLetters) {
		if noticeLetters[i] == letter {
			return 1 << i
		}
	}
	return 0
}

// parseNotices parses a value of notify-keyspace-events.
func parseNotices(value string) (n notices, ok bool) {
	for i := range len(value) {
		bit := noticeOf(value[i])
		if value[i] == 'A' {
			bit = noticeAll
		}
		if bit == 0 {
			return 0, false
		}
		n |= bit
	}
	return n, true
}

// String prints the set as CONFIG GET does.
func (n notices) String() string {
	s, from := "", 0
	if n&noticeAll == noticeAll {
		s, from = "A", len("g$lshzxetdn") // Redis omits 'n' after 'A' too
	}
	for i := from; i < len(noticeLetters); i++ {
		if n&(1<<i) != 0 {
			s += noticeLetters[i : i+1]
		}
	}
	return s
}

// PublishCommand and SpublishCommand are PUBLISH and SPUBLISH in the form in
// which nodes write them to the log. This form contains the number of receivers
// on the publisher's node when that node received the command. Subscribers are
// not part of the state. If each node counted its own receivers, the replies
// would differ from node to node. Because the command contains the number, all
// nodes compute the same reply.
const (
	PublishCommand  = "_publish"
	SpublishCommand = "_spublish"
)

func publish(c *Ctx, args [][]byte) Reply  { return c.send(args, false) }
func spublish(c *Ctx, args [][]byte) Reply { return c.send(args, true) }

// send publishes a message and returns the number of receivers that the command
// contains. A PUBLISH of a script contains no such number, because the script may
// run on another node than the publisher's. send then returns 0.
func (c *Ctx) send(args [][]byte, sharded bool) Reply {
	c.publish(args[1], args[2], sharded)
	if len(args) < 4 {
		return Zero
	}
	n, ok := number.ParseInt(args[3])
	if !ok {
		return Error(MsgNotInt)
	}
	return Int(n)
}

// LockEventKind is the kind of a LockEvent.
type LockEventKind byte

// These are the kinds of lock events. Their numbers are part of the format of
// histories on disk.
const (
	// LockGranted: a client got a lock.
	LockGranted LockEventKind = iota + 1
	// LockEnded: a grant ended.
	LockEnded
	// LocksFlushed: all grants of a database ended.
	LocksFlushed
	// LocksSwapped: two databases were exchanged, with their grants.
	LocksSwapped
	// LocksReplaced: all grants ended, because a backup has replaced the data.
	LocksReplaced
)

// LockEvent is a step in the history of locks. Events are not part of the state,
// the replies or the hash chain. A machine creates them if RecordLocks has
// turned them on, for the locks that LOCK ACQUIRE has taken, and for all values of
// the type lock. From FeatureHistory on, it also creates them for strings with the
// mark keyspace.IsLock.
type LockEvent struct {
	Kind LockEventKind
	DB   int
	With int // LocksSwapped: the other database

	// The following fields are set in LockGranted and LockEnded.

	Token Pos
	Key   string
	Owner string
	// LockClient is the client whose command made or ended the grant. It is zero
	// if the grant ended without a command of a client, for example by expiry.
	LockClient

	// Since is the lease clock when the grant began. It is 0 if LOCK ACQUIRE did
	// not make the grant, because the time is then not known. Now is the lease
	// clock of the event, and is set for events of all kinds.
	Since, Now int64

	// The following fields are set in LockGranted.

	Meta   string
	Shared bool  // SHARED or LIMIT
	Limit  int   // LIMIT, else 0
	Waited int64 // nanoseconds that the client waited for the lock
	// Before is the time in nanoseconds for which the owner had the key before
	// the key became a lock. It is 0 if the command that made the key also made
	// it a lock.
	Before int64

	// The following fields are set in LockEnded.

	How      string // LockReleased, …
	Renewals uint64 // number of renewals: see RenewGrant
}

// MaxLockEvents is the largest number of events of locks in the result of an
// entry. It bounds the memory of the events of an entry that ends the grants of
// many holders.
const MaxLockEvents = 1 << 16

// lockRecord collects the events of locks of the entry that is being applied.
type lockRecord struct {
	recordsLocks bool // see RecordLocks
	locksCut     bool
	lockEvents   []LockEvent // its memory is used again for the next entry
	refused      LockRefusals
}

// LockRefusals counts the commands that did not get a lock because another owner
// holds it, another client waits for it, or its delay has not ended.
type LockRefusals struct {
	Held uint64 // commands that do not wait
	// TimedOut counts the commands that waited and whose wait their node ended
	// with UnwaitCommand: at the timeout or earlier, for example because of
	// CLIENT UNBLOCK. A wait that ends because the client disconnects does not
	// count.
	TimedOut uint64
}

// maxKeptEvents is the largest capacity, in events, of a buffer that is used
// again for the next entry.
const maxKeptEvents = 4096

// RecordLocks sets whether Apply adds the events of locks to its results from now
// on. It does not affect the state or the replies.
func (m *Machine) RecordLocks(on bool) { m.recordsLocks = on }

// takeLocks returns the events of locks of the current entry. They are valid
// until the next entry is applied. cut reports that there were more than
// MaxLockEvents.
func (r *lockRecord) takeLocks() (events []LockEvent, cut bool) {
	events, cut = r.lockEvents, r.locksCut
	if len(events) == 0 {
		return nil, cut
	}
	r.lockEvents, r.locksCut = events[:0], false
	if cap(events) > maxKeptEvents {
		r.lockEvents = nil
	}
	return events, cut
}

// LockRefused counts a command that does not get a lock and does not wait for
// it: see LockRefusals.Held.
func (c *Ctx) LockRefused() {
	if !c.readOnly {
		c.m.lockRecord.refused.Held++
	}
}

// lockTimedOut counts a waiter that UnwaitCommand removes without its being
// served, if it waited for a lock: see LockRefusals.TimedOut.
func (c *Ctx) lockTimedOut(n *waiter) {
	if !n.served && n.forLock() {
		c.m.lockRecord.refused.TimedOut++
	}
}

// noteLocks adds an event to the result of the entry that is being applied.
func (c *Ctx) noteLocks(e LockEvent) {
	r := &c.m.lockRecord
	switch {
	case !r.recordsLocks || c.readOnly:
	case len(r.lockEvents) >= MaxLockEvents:
		r.locksCut = true
	default:
		e.Now = c.now
		r.lockEvents = append(r.lockEvents, e)
	}
}

// author returns the client whose command is running, or whose wait is being
// served. It is zero if no client is involved.
func (c *Ctx) author() LockClient {
	switch {
	case c.served != nil:
		return LockClient{Node: c.served.session.NodeID, ID: c.served.origin}
	case c.session >= 0:
		return LockClient{Node: c.sender.NodeID, ID: c.r.origin}
	}
	return LockClient{}
}

// noteGranted notes a grant that LOCK ACQUIRE made, with the token of o.
func (c *Ctx) noteGranted(o *keyspace.Object, g *Grant) {
	if !c.m.recordsLocks {
		return
	}
	e := LockEvent{
		Kind: LockGranted, DB: c.db, Token: o.Token, Key: o.Key, Owner: o.Str,
		LockClient: g.LockClient, Since: g.Lease, Meta: g.Meta, Waited: g.Waited,
	}
	if o.Type == keyspace.TypeLock {
		h, _ := o.Coll.Lock.WithToken(o.Token)
		e.Owner, e.Shared, e.Limit = h.Owner, true, o.Coll.Lock.Limit
	}
	c.noteLocks(e)
}

// noteString notes the grant of a lock that is a string and that LOCK ACQUIRE has
// not taken. before is the time in nanoseconds for which the owner has already
// had the key.
func (c *Ctx) noteString(o *keyspace.Object, before int64) {
	c.noteLocks(LockEvent{
		Kind: LockGranted, DB: c.db, Token: o.Token, Key: o.Key, Owner: o.Str, LockClient: c.author(), Before: before,
	})
}

// holdersGranted notes the grants of holders that have received new tokens
// because their lock was stored under another key or in another database.
func (c *Ctx) holdersGranted(o *keyspace.Object) {
	if !c.m.recordsLocks {
		return
	}
	o.Coll.Lock.Ascend(func(h *keyspace.Holder) bool {
		c.noteLocks(LockEvent{
			Kind: LockGranted, DB: c.db, Token: h.Token, Key: o.Key, Owner: h.Owner, LockClient: c.author(),
			Shared: true, Limit: o.Coll.Lock.Limit,
		})
		return true
	})
}

// noteEnd notes the end of a grant. how is the way in which it ended. If how is
// "", the event has Ctx.removedBy, or LockDeleted if Ctx.removedBy is empty too.
// g describes the grant, and is nil if LOCK ACQUIRE did not make it.
func (c *Ctx) noteEnd(key, owner string, token Pos, how string, g *Grant) {
	if !c.m.recordsLocks {
		return
	}
	e := LockEvent{
		Kind: LockEnded, DB: c.db, Token: token, Key: key, Owner: owner,
		How: cmp.Or(how, c.removedBy, LockDeleted),
	}
	if e.How != LockExpired && e.How != LockUndelivered {
		e.LockClient = c.author()
	}
	if g != nil {
		e.Since, e.Renewals = g.Lease, g.Renewals
	}
	c.noteLocks(e)
}

// mark sets the mark of o, which has just replaced old, and notes the grants that
// ended and began with this change. At least one of the two objects has a mark. old is
// nil if the key was absent. how is the way in which the grant of old ends, unless o
// continues that grant.
//
// A command that requires an absent key may make a string. This string is a lock as
// soon as it has a time to live. A string that replaces a lock is a lock too, unless
// its command keeps the deadline. Such a command, for example INCR or APPEND, usually
// computes the new value from the old one, so the key is probably not a lock.
func (c *Ctx) mark(old, o *keyspace.Object, how string) {
	if c.m.features < FeatureHistory {
		o.Mark = keyspace.NoLock
		return
	}
	if old != nil && how == LockExpired { // old has expired, so o is the value of a new key
		c.unmarked(old, how)
		old = nil
	}
	continues := old != nil && old.Token == o.Token
	switch {
	case o.Type != keyspace.TypeString:
		o.Mark = keyspace.NoLock
	case old == nil:
	case continues:
		o.Mark = max(o.Mark, old.Mark)
	case old.Mark == keyspace.IsLock && old.Deadline != 0 && o.Deadline == old.Deadline:
		o.Mark = keyspace.NoLock
	case old.Mark == keyspace.IsLock:
		o.Mark = keyspace.IsLock
	case old.Mark == keyspace.NoLock || o.Mark != keyspace.IsLock:
		o.Mark = keyspace.NoLock // the key existed, so the command does not require an absent key
	}
	if o.Mark == keyspace.MadeIfAbsent && o.Deadline != 0 {
		o.Mark = keyspace.IsLock
	}
	begins := o.Mark == keyspace.IsLock && !o.Granted
	switch {
	case old == nil:
	case continues && old.Mark == keyspace.IsLock:
		begins = false
	case continues:
		if begins {
			c.noteString(o, c.now-old.Touched)
		}
		return
	default:
		// Only GETSET, and SET with GET, make a lock of a string with the mark MadeIfAbsent.
		// Clients take over a lock in this way, so old was a lock too.
		if old.Mark == keyspace.MadeIfAbsent && o.Mark == keyspace.IsLock {
			c.noteString(old, c.now-old.Touched)
			c.noteEnd(old.Key, old.Str, old.Token, how, nil)
		}
		c.unmarked(old, how)
	}
	if begins {
		c.noteString(o, 0)
	}
}

// unmarked notes the end of the grant of a string that was replaced, and begins the
// delay of the lock if it was lost. It does nothing if the string was not a lock, or if
// grantEnded does the same for it (see keyspace.Object.Granted).
func (c *Ctx) unmarked(old *keyspace.Object, how string) {
	if old.Mark == keyspace.IsLock && !old.Granted {
		c.noteEnd(old.Key, old.Str, old.Token, how, nil)
		c.lost(old.Key, how)
	}
}

// Trace is a set of functions that Apply calls for the effects of an entry, command
// by command. Package verify/replay uses it to execute the same commands on a real
// Redis. A trace does not affect the state or the replies.
//
// The arguments and the reply are valid only during the call.
type Trace struct {
	// Ran is called for each command that was executed, whether alone, in a
	// transaction, or as an effect of a script. A script that the machine
	// executes natively is one command. proto is the RESP version of the
	// connection that sent the command.
	Ran func(db int, args [][]byte, reply Reply, proto int)
	// Served is called when a blocking command that waited gets its reply.
	Served func(db int, args [][]byte, reply Reply)
	// Expired is called for a key whose deadline has passed. This happens
	// before Ran is called for a command that finds the key absent. It may
	// happen more than once for a key.
	Expired func(db int, key string)
	// PassedOn is called after a grant has ended because its reply could not reach
	// the client that had waited for the lock.
	PassedOn func(db int, key string)
}

// Trace sets the trace for further calls of Apply, nil for none. Clones are not
// traced.
func (m *Machine) Trace(t *Trace) { m.trace = t }

// ran reports a command to the trace.
func (c *Ctx) ran(db int, args [][]byte, reply Reply) {
	if t := c.m.trace; t != nil && !c.readOnly {
		t.Ran(db, args, reply, c.proto)
	}
}

// tracedServe reports a served waiter to the trace.
func (c *Ctx) tracedServe(n *waiter, reply Reply) {
	if t := c.m.trace; t != nil {
		t.Served(n.db, n.args, reply)
	}
}

// tracedExpiry reports a key whose deadline has passed to the trace.
func (c *Ctx) tracedExpiry(db int, key string) {
	if t := c.m.trace; t != nil {
		t.Expired(db, key)
	}
}

// tracedPassOn reports to the trace that a grant has ended because its client could
// not get the reply.
func (c *Ctx) tracedPassOn(db int, key string) {
	if t := c.m.trace; t != nil && t.PassedOn != nil {
		t.PassedOn(db, key)
	}
}

// tracedPendingExpiry reports to the trace the expired keys that only a later entry
// removes: see expireDue.
func (c *Ctx) tracedPendingExpiry() {
	if c.m.trace == nil {
		return
	}
	for db := range c.m.dbs {
		c.m.expiry.Scan(db, func(o *keyspace.Object) bool {
			if o.Deadline <= c.now {
				c.tracedExpiry(db, o.Key)
			}
			return o.Due() <= c.now
		})
	}
}
