package fsm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/btree"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/glob"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/lockdelay"
	"github.com/holdfast-kv/holdfast/fsm/locklist"
)

// A lock of one owner is a string whose value is the owner. A lock that several
// owners hold is a keyspace.Lock. docs/architecture.md, "Locks", describes
// grants, tokens and the queue of waiters.

// locks are the grants that LOCK ACQUIRE made, by database and token, and the
// delays of locks. A tree may be nil if it is empty.
type locks struct {
	grants [Databases]*btree.BTreeG[granted]
	delays lockdelay.Set
	// unindexed counts the locks of each database that are not among grants: the
	// strings for which the function unindexed returns true, and the holders without
	// a grant. Snapshots do not contain the numbers.
	unindexed [Databases]int
}

// granted is an element of the trees of grants. It contains the token, to save a
// cache miss in every comparison.
type granted struct {
	token Pos
	grant *Grant
}

// Grant describes a grant of a lock that LOCK ACQUIRE made. It is replaced and
// never changed, because clones share it.
type Grant struct {
	Token Pos
	Key   string
	LockClient
	Meta     string
	Lease    int64 // lease clock when the grant began
	Wall     int64 // wall clock when the grant began, in microseconds
	Waited   int64 // nanoseconds that the client waited for the lock
	Renewals uint64
}

// LockClient is a client that got a lock, waits for one, or ended a grant.
type LockClient struct {
	Node string
	ID   uint64 // number of the connection
	// Addr and Name are the address and the name of the connection, "" if they
	// are not known.
	Addr, Name string
}

// These are the ways in which a grant ends, as messages on the channel of the
// lock name them.
const (
	LockReleased    = "released"
	LockExpired     = "expired"
	LockBroken      = "broken"
	LockOverwritten = "overwritten"
	// LockUndelivered: the grant could not be delivered to the client that had
	// waited for it.
	LockUndelivered = "undelivered"
)

// These are further ways in which a grant ends, for the history of locks only.
const (
	LockDeleted  = "deleted"  // DEL or another command removed the key
	LockRenamed  = "renamed"  // RENAME or MOVE gave the lock another key or database
	LockFlushed  = "flushed"  // FLUSHDB or FLUSHALL
	LockReplaced = "restored" // a backup has replaced the data
)

func newGrants() *btree.BTreeG[granted] {
	less := func(a, b granted) bool { return a.token < b.token }
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// clone returns an independent copy. It takes O(1).
func (l *locks) clone() locks {
	n := *l
	for i, t := range n.grants {
		if t != nil {
			n.grants[i] = t.IsoCopy()
		}
	}
	n.delays = l.delays.Clone()
	return n
}

// put adds or replaces a grant. A new grant has the highest token, and Load adds the
// last element in less time than Set.
func (l *locks) put(db int, g *Grant) {
	if l.grants[db] == nil {
		l.grants[db] = newGrants()
	}
	l.grants[db].Load(granted{g.Token, g})
}

// remove removes the grant with a token and returns it, or nil if there is none.
func (l *locks) remove(db int, token Pos) *Grant {
	if l.grants[db] == nil {
		return nil
	}
	g, _ := l.grants[db].Delete(granted{token: token})
	return g.grant
}

// find returns the grant with a token, nil if there is none.
func (l *locks) find(db int, token Pos) *Grant {
	if l.grants[db] == nil {
		return nil
	}
	g, _ := l.grants[db].Get(granted{token: token})
	return g.grant
}

// Grant returns the grant of an object of the current database, nil if LOCK
// ACQUIRE did not make it.
func (c *Ctx) Grant(o *keyspace.Object) *Grant {
	if !o.Granted {
		return nil
	}
	return c.m.locks.find(c.db, o.Token)
}

// Grants calls f for the grants of the current database that LOCK ACQUIRE made,
// until f returns false. It begins with the first grant whose token is not
// below the parameter from, and continues in the order of the tokens.
func (c *Ctx) Grants(from Pos, f func(g *Grant) bool) {
	if t := c.m.locks.grants[c.db]; t != nil {
		t.Ascend(granted{token: from}, func(g granted) bool { return f(g.grant) })
	}
}

// GrantLock stores o as a lock. g has the text of META, and the address and the
// name of the client. GrantLock keeps g.
func (c *Ctx) GrantLock(o *keyspace.Object, g *Grant) {
	o.Token, o.Granted, o.Mark = c.nextToken(), true, keyspace.IsLock
	c.Store(o)
	c.granted(o, g)
}

// granted records g as the grant with the token of o. The caller has just stored o.
func (c *Ctx) granted(o *keyspace.Object, g *Grant) {
	g.Token, g.Key, g.Lease, g.Wall = o.Token, o.Key, c.now, c.wall
	if n := c.served; n != nil {
		g.Node, g.ID, g.Waited = n.session.NodeID, n.origin, c.now-n.since
	} else {
		g.Node, g.ID = c.sender.NodeID, c.r.origin
	}
	c.m.locks.put(c.db, g)
	c.lockEvent("granted", o.Key, o.Token)
	c.noteGranted(o, g)
}

// RenewGrant counts a renewal of a lock by LOCK RENEW or LOCK ACQUIRE, or, from
// FeatureParts on, by SET NX or SETNX (see SettingIdempotent). meta, unless nil,
// replaces the text of META.
func (c *Ctx) RenewGrant(o *keyspace.Object, meta *string) { c.renewed(c.Grant(o), meta) }

// renewed counts a renewal of a grant, which may be nil.
func (c *Ctx) renewed(g *Grant, meta *string) {
	if g == nil {
		return
	}
	n := *g
	n.Renewals++
	if meta != nil {
		n.Meta = *meta
	}
	c.m.locks.put(c.db, &n)
}

// EndLock deletes a lock. how is the way in which its grant ends.
func (c *Ctx) EndLock(o *keyspace.Object, how string) {
	c.lockEnd = how
	c.Delete(o)
	c.lockEnd = ""
}

// grantEnded forgets the grant of an object that was removed or replaced.
func (c *Ctx) grantEnded(o *keyspace.Object, how string) {
	g := c.m.locks.remove(c.db, o.Token)
	c.lockEvent(cmp.Or(how, LockReleased), o.Key, o.Token)
	c.noteEnd(o.Key, o.Str, o.Token, how, g)
	c.lost(o.Key, how)
}

// HolderGrant returns the grant of a holder of a lock in the current database. It
// returns nil if a command other than LOCK ACQUIRE, such as RENAME, gave the holder
// its token.
func (c *Ctx) HolderGrant(h *keyspace.Holder) *Grant { return c.m.locks.find(c.db, h.Token) }

// live returns the number of holders of o whose lease has not ended. The time
// of a read may be ahead of the log's clock. If a lease ends between the two
// times, the reply cannot be used: see Lookup.
func (c *Ctx) live(o *keyspace.Object) int {
	l := o.Coll.Lock
	n := l.LiveAt(c.now)
	if c.now > c.m.clock.Lease && n != l.LiveAt(c.m.clock.Lease) {
		c.expiryPending = true
	}
	return n
}

// Holders returns the number of holders of a lock whose lease has not ended.
func (c *Ctx) Holders(o *keyspace.Object) int { return c.live(o) }

// EachHolder calls f for the holders of a lock in the order of their tokens, until
// f returns false. It skips a holder whose lease has ended and that no entry has
// removed yet.
func (c *Ctx) EachHolder(o *keyspace.Object, f func(h *keyspace.Holder) bool) {
	c.live(o)
	o.Coll.Lock.Ascend(func(h *keyspace.Holder) bool {
		c.Charge(1)
		return h.Deadline <= c.now || f(h)
	})
}

// HolderOf returns the holder of a lock that has the given owner. found is false
// if there is none, or if its lease has ended.
func (c *Ctx) HolderOf(o *keyspace.Object, owner []byte) (h keyspace.Holder, found bool) {
	c.live(o)
	h, found = o.Coll.Lock.Of(codec.View(owner))
	return h, found && h.Deadline > c.now
}

// HolderWith returns the holder of a lock that has the given fencing token. found
// is false if there is none, or if its lease has ended.
func (c *Ctx) HolderWith(o *keyspace.Object, token Pos) (h keyspace.Holder, found bool) {
	c.live(o)
	h, found = o.Coll.Lock.WithToken(token)
	return h, found && h.Deadline > c.now
}

// editLock returns a copy of o without the holders whose lease has ended. The
// caller may change the lock of the copy, and must pass the copy to storeLock.
func (c *Ctx) editLock(o *keyspace.Object) *keyspace.Object {
	n := o.EditLock()
	for l := n.Coll.Lock; l.Len() > 0 && l.Due <= c.now; {
		h := l.First()
		l.Remove(c.m.owner, h)
		c.holderEnded(n.Key, &h, LockExpired)
	}
	return n
}

// storeLock stores an object that editLock has returned. Its lock must have a
// holder.
func (c *Ctx) storeLock(o *keyspace.Object) {
	o.UpdateEnd()
	c.Charge(StepsPut)
	c.Store(o)
}

// AddHolder adds a holder to a lock, with a new fencing token. o may be an object
// that is not stored yet. g has the text of META, and the address and the name of
// the client. AddHolder keeps g. The owner must not hold the lock.
func (c *Ctx) AddHolder(o *keyspace.Object, h keyspace.Holder, g *Grant) Pos {
	n := c.editLock(o)
	h.Token = c.nextToken()
	n.Token = h.Token
	n.Coll.Lock.Add(c.m.owner, h)
	c.storeLock(n)
	c.granted(n, g)
	return h.Token
}

// RenewHolder replaces the lease of a holder. meta, unless nil, replaces the text
// of META.
func (c *Ctx) RenewHolder(o *keyspace.Object, h keyspace.Holder, meta *string) {
	n := c.editLock(o)
	n.Coll.Lock.Renew(c.m.owner, h)
	c.storeLock(n)
	c.renewed(c.HolderGrant(&h), meta)
}

// EndHolder ends the grant of a holder. how is the way in which it ends.
func (c *Ctx) EndHolder(o *keyspace.Object, h keyspace.Holder, how string) {
	if c.live(o) == 1 {
		c.EndLock(o, how)
		return
	}
	n := c.editLock(o)
	n.Coll.Lock.Remove(c.m.owner, h)
	c.holderEnded(n.Key, &h, how)
	c.storeLock(n)
	c.Notify("g", "unlock", n.Key)
}

// expireHolders removes the holders whose lease has ended, and returns their
// number. If all leases have ended, it removes no holder, because the caller
// removes the key.
func (c *Ctx) expireHolders(o *keyspace.Object) int {
	if o.Deadline <= c.now {
		return o.Coll.Lock.Len()
	}
	n := c.editLock(o)
	gone := o.Coll.Lock.Len() - n.Coll.Lock.Len()
	c.storeLock(n)
	c.Notify("g", "unlock", n.Key)
	return gone
}

// holdersGone forgets the grants of a lock that was removed or replaced.
func (c *Ctx) holdersGone(o *keyspace.Object, how string) {
	o.Coll.Lock.Ascend(func(h *keyspace.Holder) bool {
		c.Charge(StepsProbe)
		if h.Deadline <= c.now {
			c.holderEnded(o.Key, h, LockExpired)
		} else {
			c.holderEnded(o.Key, h, how)
		}
		return true
	})
}

// holderEnded forgets the grant of a holder, if LOCK ACQUIRE made it. If how is
// "", the message on the lock's channel says that the grant was released. The
// history of locks then follows the rules of noteEnd.
func (c *Ctx) holderEnded(key string, h *keyspace.Holder, how string) {
	g := c.m.locks.remove(c.db, h.Token)
	if g != nil {
		c.lockEvent(cmp.Or(how, LockReleased), key, h.Token)
	} else {
		c.m.locks.unindexed[c.db]--
	}
	c.noteEnd(key, h.Owner, h.Token, how, g)
	c.lost(key, how)
}

// newTokens gives new tokens to the holders of an object that is not stored
// yet. It drops the holders whose lease has ended.
func (c *Ctx) newTokens(o *keyspace.Object) {
	l := &keyspace.Lock{Limit: o.Coll.Lock.Limit}
	o.Coll.Lock.Ascend(func(h *keyspace.Holder) bool {
		c.Charge(StepsPut)
		if h.Deadline > c.now {
			n := *h
			n.Token = c.nextToken()
			o.Token = n.Token
			l.Add(c.m.owner, n)
		}
		return true
	})
	o.Coll = &keyspace.Collection{Lock: l}
	o.UpdateEnd()
}

// maxPatternSteps bounds the work of matching a key, so that the pattern of a
// setting cannot delay the log.
const maxPatternSteps = 1 << 14

// Idempotent reports whether SET NX succeeds if the key already has the same value.
// It does if the key matches a pattern of the setting lock-idempotent.
func (c *Ctx) Idempotent(key []byte) bool {
	if c.m.features < FeatureLocks {
		return false
	}
	for _, pattern := range fields(c.m.Setting(SettingIdempotent)) {
		g := glob.NewMatcher(pattern, maxPatternSteps, c.Charge)
		if g.Match(codec.View(key)) {
			return true
		}
	}
	return false
}

// fields returns the words of a setting.
func fields(value string) []string { return strings.Fields(value) }

// lockEvent publishes an event of a lock on the channel of the lock.
func (c *Ctx) lockEvent(event, key string, token Pos) {
	if !c.wants(EventPublish) {
		return
	}
	channel := "__lock@" + strconv.Itoa(c.db) + "__:" + key
	c.publish([]byte(channel), []byte(event+" "+strconv.FormatUint(uint64(token), 10)), false)
}

// LockCounts returns the number of grants that LOCK ACQUIRE made and that have not
// ended, and the number of clients that wait for a lock.
func (m *Machine) LockCounts() (held, waiting int) {
	for _, t := range m.locks.grants {
		if t != nil {
			held += t.Len()
		}
	}
	return held, m.waits.locks
}

// LockHolder is an owner that holds a lock.
type LockHolder struct {
	Token  Pos
	Owner  string
	Shared bool   // SHARED or LIMIT
	Limit  int    // LIMIT, else 0
	Grant  *Grant // nil if LOCK ACQUIRE did not make the grant
}

// LockHolders returns the owners that hold the lock of a key, in the order of their
// tokens. It returns owners only if the ends of their grants will have events. It
// takes time in proportion to their number, which is at most keyspace.MaxHolders.
func (m *Machine) LockHolders(db int, key string) (all []LockHolder) {
	o := m.dbs[db].Get([]byte(key))
	switch {
	case o == nil:
	case o.Granted || o.Mark == keyspace.IsLock:
		h := LockHolder{Token: o.Token, Owner: o.Str}
		if o.Granted {
			h.Grant = m.locks.find(db, o.Token)
		}
		all = append(all, h)
	case o.Type == keyspace.TypeLock:
		o.Coll.Lock.Ascend(func(h *keyspace.Holder) bool {
			all = append(all, LockHolder{
				Token: h.Token, Owner: h.Owner, Shared: true, Limit: o.Coll.Lock.Limit,
				Grant: m.locks.find(db, h.Token),
			})
			return true
		})
	}
	return all
}

// lockQueue returns the queue of the waiters for a lock of a database.
func lockQueue(db int, key string) waitKey { return waitKey{db: db, key: key, lock: true} }

// A lock goes next to the first of the waiters in its queue that are not passed
// over. Before this waiter, the queue may have tens of thousands of waiters that
// are passed over, until the leader has removed them in parts. Each command that
// looks for the next waiter would visit them all. So the machine remembers, for
// each long queue, a position up to which all waiters in the queue are passed
// over. The next search begins there.
//
// These positions are not part of the state, and no result depends on them. They
// stay valid when waiters arrive or leave, because a new waiter is queued behind
// all others. A position becomes invalid when a waiter up to it is no longer passed
// over.

// manySkipped is the number of waiters that a search must have skipped before its
// result is remembered. It bounds the number of queues in overtaken.
const manySkipped = 64

// overtaken contains queues of locks, each with a position up to which all its
// waiters are passed over. The zero value contains no queue.
type overtaken struct{ upTo map[waitKey]Pos }

// reset forgets all queues. It must be called when waiters that were passed over
// are no longer passed over.
func (o *overtaken) reset() { o.upTo = nil }

// heir returns the first waiter in the queue of k whose position is higher than the
// parameter behind. It skips waiters that are passed over. It returns nil if no other
// waiter is left. All waiters at lower positions, and the one at this position, must
// have left the queue or be passed over.
func (c *Ctx) heir(k waitKey, behind Pos) (heir *waiter) {
	w := &c.m.waits
	known := w.overtaken.upTo[k]
	fromStart := behind <= known // the search then covers all positions after the known one
	behind = max(behind, known)
	skipped := 0
	w.queues.Ascend(queued{k, behind + 1, nil}, func(q queued) bool {
		switch {
		case q.waitKey != k:
			return false
		case w.passedOver(q.w.session):
			skipped++
			behind = q.pos
			return true
		}
		heir = q.w
		return false
	})
	// Several reads may run at the same time, so they must not change the map.
	if fromStart && skipped >= manySkipped && !c.readOnly {
		if w.overtaken.upTo == nil {
			w.overtaken.upTo = make(map[waitKey]Pos)
		}
		w.overtaken.upTo[k] = behind
	}
	return heir
}

// LockReserved reports whether the current command cannot take a free lock,
// because the delay of the lock has not ended or because another client waits
// for the lock. A transaction or a script may take a lock before the clients
// that wait.
func (c *Ctx) LockReserved(key []byte) bool {
	return !c.atomic && c.LockWanted(key) || c.Delayed(key)
}

// IsLock reports whether an object is a lock.
func IsLock(o *keyspace.Object) bool {
	return o.Granted || o.Mark == keyspace.IsLock || o.Type == keyspace.TypeLock
}

// unindexed reports whether an object is a string that is a lock and whose grant is
// not among locks.grants. The object may be nil.
func unindexed(o *keyspace.Object) bool { return o != nil && o.Mark == keyspace.IsLock && !o.Granted }

// UnindexedLocks returns the number of locks of the current database that Grants
// does not visit, because a command other than LOCK ACQUIRE has stored them. If
// such a command, for example RENAME, has stored a lock with several holders,
// UnindexedLocks counts each holder without a grant.
func (c *Ctx) UnindexedLocks() int { return c.m.locks.unindexed[c.db] }

// LastToken returns the highest token that was given out.
func (c *Ctx) LastToken() keyspace.Pos { return keyspace.Pos(c.m.token) }

// Exchanged returns the position of the last SWAPDB, restore or large flush
// that gave the current database other keys: see exchanges.
func (c *Ctx) Exchanged() keyspace.Pos { return c.m.exchanged[c.db] }

// LockPages returns the Keeper that stores the locks found by LOCK LIST for the
// next pages of the list. It is nil if the node has no Keeper.
func (c *Ctx) LockPages() locklist.Keeper { return c.pages }

// LockWanted reports whether a client waits for a lock and is not passed over.
func (c *Ctx) LockWanted(key []byte) bool {
	w := &c.m.waits
	return w.locks > 0 && c.heir(lockQueue(c.db, string(key)), 0) != nil
}

// serveLock gives a lock to the first waiter, if the lock is free or if the
// waiter may join its holders. It continues with the next waiter until one
// cannot be served. All waiters up to the position last must have left the queue or
// be passed over. The results are those of serveQueue.
func (c *Ctx) serveLock(k waitKey, last Pos) (checked Pos, done bool) {
	w := &c.m.waits
	for {
		o := c.Lookup([]byte(k.key))
		if o != nil && o.Type != keyspace.TypeLock || c.Delayed([]byte(k.key)) {
			return 0, true
		}
		n := c.heir(k, last)
		if n == nil || w.suspended(n.session) && !w.revoked.ends(n) {
			return 0, true
		}
		if c.servedEnough() {
			return last, false
		}
		c.serveWork += checkedWork
		if c.endIfRevoked(n) {
			last = n.pos
			continue
		}
		b := n.blocking(c.m.table)
		if o != nil && !b.Joins(c, o) {
			return 0, true
		}
		last = n.pos
		c.setPosition(c.position + 1)
		c.proto = n.proto
		c.served = n
		before := c.m.token
		taken := b.Take(c, []byte(k.key))
		c.served = nil
		var grant *provisional
		switch {
		case c.m.features >= FeatureShared && taken.kind == kindInt:
			// If the owner already holds the lock, taken is the token of the
			// older grant. The reply is then valid only as long as that grant.
			grant = &provisional{k, Pos(taken.Int64())}
		case c.m.token > before: // a failed attempt creates no token
			grant = &provisional{k, Pos(c.m.token)}
		}
		c.serveGrant(n, taken, grant)
	}
}

// provisional is a grant that was given to a waiter whose node has not claimed
// it yet.
type provisional struct {
	waitKey
	token Pos
}

// holds reports whether p is still a current grant of its lock, and returns the
// object of the lock.
func (c *Ctx) holds(p *provisional) (o *keyspace.Object, held bool) {
	db := c.db
	c.db = p.db
	o = c.Lookup([]byte(p.key))
	c.db = db
	if o != nil && o.Type == keyspace.TypeLock {
		_, held = c.HolderWith(o, p.token)
		return o, held
	}
	return o, o != nil && o.Token == p.token
}

// answered reports whether a renewal of a grant was executed. If so, a client may
// have received the reply to the renewal, and may rely on the lock, even if the
// reply to another command with this owner was lost. So the lock must not pass to
// another client.
func (c *Ctx) answered(db int, token Pos) bool {
	if c.m.features < FeatureShared {
		return false
	}
	g := c.m.locks.find(db, token)
	return g != nil && g.Renewals > 0
}

// passOn ends a grant whose reply did not get to its client, for example a
// provisional grant that the waiter's node will not claim. It does nothing if the
// grant was renewed: see answered.
func (c *Ctx) passOn(p *provisional) {
	o, held := c.holds(p)
	if !held || c.answered(p.db, p.token) {
		return
	}
	db := c.db
	c.db = p.db
	if o.Type == keyspace.TypeLock {
		h, _ := c.HolderWith(o, p.token)
		c.EndHolder(o, h, LockUndelivered)
	} else {
		c.EndLock(o, LockUndelivered)
	}
	c.db = db
	c.tracedPassOn(p.db, p.key)
}

// claim replies to the claim of a served waiter, and removes the waiter. It returns
// 0 if the grant has ended. The node then executes the command again.
func (c *Ctx) claim(n *waiter) Reply {
	_, held := c.holds(n.grant)
	c.drop(n)
	if !held {
		return Zero
	}
	return Bulk(string(n.reply))
}

// LockWaiter describes a client that waits for a lock.
type LockWaiter struct {
	LockClient
	Args   [][]byte
	Waited int64 // nanoseconds
}

// LockWaiters calls f for the clients that wait for a lock, in order, until f
// returns false.
func (c *Ctx) LockWaiters(key string, f func(n LockWaiter) bool) {
	w := &c.m.waits
	if w.locks == 0 {
		return
	}
	k := lockQueue(c.db, key)
	w.queues.Ascend(queued{k, 0, nil}, func(q queued) bool {
		return q.waitKey == k && f(LockWaiter{
			LockClient: LockClient{Node: q.w.session.NodeID, ID: q.w.origin}, Args: q.w.args,
			Waited: max(c.now-q.w.since, 0),
		})
	})
}

// WaitedLocks calls f for the keys of the locks of the current database that
// clients wait for, in the order of the keys, until f returns false. n is the
// number of clients that wait for the lock.
func (c *Ctx) WaitedLocks(f func(key string, n int) bool) {
	w := &c.m.waits
	if w.locks == 0 {
		return
	}
	key, n := "", 0
	w.queues.Ascend(queued{waitKey{db: c.db}, 0, nil}, func(q queued) bool {
		c.Charge(1)
		switch {
		case q.db != c.db:
			return false
		case !q.lock:
			return true
		}
		if n > 0 && q.key != key {
			if !f(key, n) {
				n = 0
				return false
			}
			n = 0
		}
		key = q.key
		n++
		return true
	})
	if n > 0 {
		f(key, n)
	}
}

// LockWaiting returns the number of clients that wait for a lock, at most
// maxLockWaiting.
func (c *Ctx) LockWaiting(key string) (n int) {
	c.LockWaiters(key, func(LockWaiter) bool {
		n++
		return n < maxLockWaiting
	})
	return n
}

// maxLockWaiting bounds the work of LockWaiting.
const maxLockWaiting = 100

// locks writes the grants, and then the delays of locks, into a snapshot.
func (w *snapshotWriter) locks(l *locks) {
	for db, t := range l.grants {
		if t == nil {
			continue
		}
		t.Scan(func(e granted) bool {
			g := e.grant
			b := append(w.b, recordLock, byte(db))
			b = binary.AppendUvarint(b, uint64(g.Token))
			b = codec.AppendString(codec.AppendString(b, g.Key), g.Node)
			b = binary.AppendUvarint(b, g.ID)
			for _, text := range []string{g.Addr, g.Name, g.Meta} {
				b = codec.AppendString(b, text)
			}
			for _, n := range []int64{g.Lease, g.Wall, g.Waited} {
				b = binary.AppendVarint(b, n)
			}
			w.b = binary.AppendUvarint(b, g.Renewals)
			w.cut()
			return w.err == nil
		})
	}
	w.delays(l)
}

// lock reads a grant. The key of the lock must follow in the snapshot.
func (l *snapshotLoader) lock(d *codec.Decoder) error {
	db := int(d.Byte())
	g := &Grant{Token: Pos(d.Uvarint()), Key: string(d.Bytes())}
	g.Node, g.ID = string(d.Bytes()), d.Uvarint()
	g.Addr, g.Name, g.Meta = string(d.Bytes()), string(d.Bytes()), string(d.Bytes())
	g.Lease, g.Wall, g.Waited, g.Renewals = d.Varint(), d.Varint(), d.Varint(), d.Uvarint()
	if d.Err != nil {
		return fmt.Errorf("grant of a lock: %w", d.Err)
	}
	if db >= Databases || l.m.features < FeatureLocks || l.objects > 0 || l.m.locks.find(db, g.Token) != nil {
		return fmt.Errorf("grant %d of lock %q in db %d: %w", g.Token, g.Key, db, ErrFormat)
	}
	if l.rebase != nil {
		g.Lease += l.rebase.shift
	}
	l.m.locks.put(db, g)
	l.grants++
	return nil
}

// granted marks an object whose grant was read before.
func (l *snapshotLoader) granted(db int, o *keyspace.Object) {
	if l.grants == 0 || o.Type != keyspace.TypeString {
		return
	}
	if g := l.m.locks.find(db, o.Token); g != nil && g.Key == o.Key {
		o.Granted = true
		l.grants--
	}
}

// holders checks the lock that was read last, after all its holders have been
// read. In a restore, it also moves their leases to the clock of this cluster.
func (l *snapshotLoader) holders() error {
	o := l.open
	if err := o.CheckLock(l.due, l.until); err != nil {
		return err
	}
	o.Coll.Lock.Ascend(func(h *keyspace.Holder) bool {
		switch g := l.m.locks.find(l.openIn, h.Token); {
		case g == nil:
			l.m.locks.unindexed[l.openIn]++
		case g.Key == o.Key && l.grants > 0:
			l.grants--
		}
		return true
	})
	if l.rebase != nil {
		o.MoveLeases(l.m.owner, func(h keyspace.Holder) keyspace.Holder {
			h.Deadline, h.ExpireAt = l.rebase.end(h.Deadline, h.ExpireAt, l.m.clock)
			return h
		})
	}
	return nil
}
