package fsm

import (
	"cmp"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// LockEventKind is the kind of a LockEvent.
type LockEventKind byte

// These are the kinds. Their numbers are part of the format of histories on disk.
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
// the replies or the hash chain. A machine creates them after RecordLocks, for
// the locks that LOCK ACQUIRE has taken and, from FeatureHistory on, for strings
// with the mark keyspace.IsLock.
type LockEvent struct {
	Kind LockEventKind
	DB   int
	With int // LocksSwapped: the other database

	// The following fields are set in LockGranted and LockEnded.

	Token Pos
	Key   string
	Owner string
	// LockClient is the client that got the lock, or whose command ended the
	// grant. It is zero if no client did.
	LockClient

	// The following fields are set in LockGranted.

	Meta   string
	Shared bool  // SHARED or LIMIT
	Limit  int   // LIMIT, else 0
	Waited int64 // nanoseconds that the client waited for the lock
	// Before is for how many nanoseconds the owner has had the key already: SETNX
	// made it, and a later command made it a lock.
	Before int64

	// The following fields are set in LockEnded.

	How      string // LockReleased, …
	Renewals uint64 // by LOCK RENEW and LOCK ACQUIRE
}

// MaxLockEvents is the largest number of events of locks in the result of an
// entry. It bounds the memory that an entry with many holders takes.
const MaxLockEvents = 1 << 16

// lockRecord collects the events of locks of the entry that is being applied.
type lockRecord struct {
	recordsLocks bool // see RecordLocks
	locksCut     bool
	lockEvents   []LockEvent
	last         int // number of events of the last entry that had some
}

// RecordLocks sets whether Apply adds the events of locks to its results from now
// on. It does not affect the state or the replies.
func (m *Machine) RecordLocks(on bool) { m.recordsLocks = on }

// takeLocks returns the events of the entry, and whether there were too many.
func (r *lockRecord) takeLocks() (events []LockEvent, cut bool) {
	events, cut = r.lockEvents, r.locksCut
	if len(events) > 0 {
		r.last = len(events)
	}
	r.lockEvents, r.locksCut = nil, false
	return events, cut
}

// noteLocks adds an event to the result of the entry that is being applied.
func (c *Ctx) noteLocks(e LockEvent) {
	r := &c.m.lockRecord
	switch {
	case !r.recordsLocks || c.readOnly:
	case len(r.lockEvents) >= MaxLockEvents:
		r.locksCut = true
	default:
		if r.lockEvents == nil { // entries that follow each other tend to have as many events
			r.lockEvents = make([]LockEvent, 0, min(r.last+r.last/8+1, 4096))
		}
		r.lockEvents = append(r.lockEvents, e)
	}
}

// author returns the client whose command is running, or whose wait is being
// served. It is zero if there is none.
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
		LockClient: g.LockClient, Meta: g.Meta, Waited: g.Waited,
	}
	if o.Type == keyspace.TypeLock {
		h, _ := o.Coll.Lock.WithToken(o.Token)
		e.Owner, e.Shared, e.Limit = h.Owner, true, o.Coll.Lock.Limit
	}
	c.noteLocks(e)
}

// noteString notes the grant of a lock that is a string and that LOCK ACQUIRE has
// not taken. before is for how long the owner has had the key, in nanoseconds.
func (c *Ctx) noteString(o *keyspace.Object, before int64) {
	c.noteLocks(LockEvent{
		Kind: LockGranted, DB: c.db, Token: o.Token, Key: o.Key, Owner: o.Str, LockClient: c.author(), Before: before,
	})
}

// holdersGranted notes the grants of holders that have got new tokens, because
// their lock has got another key.
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

// noteEnd notes the end of a grant. If how is "", Ctx.removedBy decides. g
// describes the grant, and is nil if LOCK ACQUIRE did not make it.
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
		e.Renewals = g.Renewals
	}
	c.noteLocks(e)
}

// mark sets the mark of o, which has just replaced old, and notes the grants that
// ended and began with it. At least one of them has a mark. old is nil if the key
// was absent. how is the way in which the grant of old ends, unless o continues
// it.
//
// A string is a lock from the moment at which it has a time to live, if a command
// made it that requires an absent key. A string that replaces a lock is a lock.
func (c *Ctx) mark(old, o *keyspace.Object, how string) {
	if c.m.features < FeatureHistory {
		o.Mark = keyspace.NoLock
		return
	}
	if old != nil && how == LockExpired { // o is the value of a new key
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
	case old.Mark == keyspace.IsLock:
		o.Mark = keyspace.IsLock
	case old.Mark == keyspace.NoLock || o.Mark != keyspace.IsLock:
		o.Mark = keyspace.NoLock // the command does not require an absent key
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
		if old.Mark == keyspace.MadeIfAbsent && o.Mark == keyspace.IsLock { // GETSET shows that old was a lock, too
			c.noteString(old, c.now-old.Touched)
			c.noteEnd(old.Key, old.Str, old.Token, how, nil)
		}
		c.unmarked(old, how)
	}
	if begins {
		c.noteString(o, 0)
	}
}

// unmarked notes the end of the grant of an object that was replaced, unless
// grantEnded does.
func (c *Ctx) unmarked(old *keyspace.Object, how string) {
	if old.Mark == keyspace.IsLock && !old.Granted {
		c.noteEnd(old.Key, old.Str, old.Token, how, nil)
	}
}
