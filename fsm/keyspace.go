package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// Databases is the number of databases that SELECT can choose.
const Databases = keyspace.Databases

// Pos is the position of an operation in the log: see keyspace.Pos.
type Pos = keyspace.Pos

// Lookup returns the object of a key, or nil if the key is absent or its
// deadline has passed. In a read, the deadline may lie between the log's clock
// and now. Lookup then sets Ctx.expiryPending, because the reply cannot be used:
// see Machine.Read.
func (c *Ctx) Lookup(key []byte) *keyspace.Object {
	o := c.m.dbs[c.db].Get(key)
	if o == nil || !c.Expired(o) {
		return o
	}
	return nil
}

// Expired reports whether the deadline of o has passed: see Lookup.
func (c *Ctx) Expired(o *keyspace.Object) bool {
	if o.Deadline == 0 || o.Deadline > c.now {
		return false
	}
	if o.Deadline > c.m.clock.Lease {
		c.expiryPending = true
	}
	return true
}

// LookupString is like Lookup, for string commands.
func (c *Ctx) LookupString(key []byte) (o *keyspace.Object, wrongType bool) {
	o = c.Lookup(key)
	return o, o != nil && o.Type != keyspace.TypeString
}

// LookupType looks up a key as Lookup does and also reports whether the value
// has a type other than t.
func (c *Ctx) LookupType(key []byte, t keyspace.Type) (o *keyspace.Object, wrongType bool) {
	o = c.Lookup(key)
	return o, o != nil && o.Type != t
}

// Store puts o into the current database. It replaces the object with the same
// key, if there is one.
func (c *Ctx) Store(o *keyspace.Object) { c.store(o, false) }

// store is like Store. If written is set, o has a new token. If the grant of
// the replaced object continues, store gives o the token of that object
// instead.
func (c *Ctx) store(o *keyspace.Object, written bool) {
	c.Change()
	o.Version = c.pos
	o.Touched = c.now
	old := c.m.dbs[c.db].Set(o)
	end := LockOverwritten
	if old == nil {
		c.Notify("n", "new", o.Key)
	} else if old.Deadline != 0 {
		c.m.expiry.Remove(c.db, old)
		if c.Expired(old) { // expireDue reached its limit in this entry
			c.tracedExpiry(c.db, old.Key)
			c.Notify("x", "expired", old.Key)
			c.Notify("n", "new", o.Key)
			c.m.stats.Expired++
			end, written = LockExpired, false
		}
	}
	if old != nil {
		if old.Type == keyspace.TypeLock && (o.Type != keyspace.TypeLock || end == LockExpired) {
			c.holdersGone(old, end)
		}
		if written && c.m.features >= FeatureLocks && keepsGrant(old, o) {
			o.Token, o.Granted = old.Token, old.Granted // no other goroutine sees o yet
		}
		if old.Granted && old.Token != o.Token {
			c.grantEnded(old, end)
		}
	}
	if o.Mark != keyspace.NoLock || old != nil && old.Mark != keyspace.NoLock {
		c.mark(old, o, end)
		if unindexed(old) {
			c.m.locks.unindexed[c.db]--
		}
		if unindexed(o) {
			c.m.locks.unindexed[c.db]++
		}
	}
	if o.Deadline != 0 {
		c.m.expiry.Add(c.db, o)
	}
	c.changed(o.Key)
	k, had := waitKey{db: c.db, key: o.Key}, old != nil && old.Type == keyspace.TypeStream
	if had && o.Type != keyspace.TypeStream {
		c.streamGone(k)
	}
	if o.Coll != nil && (!had || o.Type != keyspace.TypeStream) { // XADD itself reports new entries of a stream
		c.ready(k)
	}
	if o.Type == keyspace.TypeLock && c.m.waits.locks > 0 {
		c.ready(lockQueue(c.db, o.Key))
	}
}

// Assign stores an object whose value was written, and sets its fencing token.
func (c *Ctx) Assign(o *keyspace.Object) {
	if o.Granted = false; o.Type == keyspace.TypeLock {
		c.newTokens(o)
	} else {
		o.Token = c.nextToken()
		if c.acquires && o.Type == keyspace.TypeString {
			o.Mark = max(o.Mark, keyspace.MadeIfAbsent)
		}
	}
	c.store(o, true)
	if o.Type == keyspace.TypeLock {
		c.m.locks.unindexed[c.db] += o.Coll.Lock.Len()
		c.holdersGranted(o)
	}
}

// keepsGrant reports whether o, which is written over old, continues the grant
// of old: see "Locks" in docs/architecture.md.
func keepsGrant(old, o *keyspace.Object) bool {
	switch {
	case old.Type != o.Type:
		return false
	case o.Type == keyspace.TypeString:
		return old.Str == o.Str
	}
	return o.Type == keyspace.TypeHash
}

// Remove deletes o from the current database.
func (c *Ctx) Remove(o *keyspace.Object) {
	c.Change()
	c.m.dbs[c.db].Delete(o)
	c.m.removed.add(c.m.owner, o)
	if o.Deadline != 0 {
		c.m.expiry.Remove(c.db, o)
	}
	c.changed(o.Key)
	if o.Type == keyspace.TypeStream {
		c.streamGone(waitKey{db: c.db, key: o.Key})
	}
	switch {
	case o.Granted:
		c.grantEnded(o, c.lockEnd)
	case o.Mark == keyspace.IsLock:
		c.m.locks.unindexed[c.db]--
		c.noteEnd(o.Key, o.Str, o.Token, c.lockEnd, nil)
		c.lost(o.Key, c.lockEnd)
	case o.Type == keyspace.TypeLock:
		c.holdersGone(o, c.lockEnd)
	}
	if c.m.waits.locks > 0 {
		c.ready(lockQueue(c.db, o.Key))
	}
}

// RemoveAs is like Remove. how is the way in which the grant of a lock ends, for
// the history of locks.
func (c *Ctx) RemoveAs(o *keyspace.Object, how string) {
	c.removedBy = how
	c.Remove(o)
	c.removedBy = ""
}

// StoreMetadata stores a stream if only its groups or its metadata have changed. Redis
// does not treat this as a change of the key: a transaction that watches the key does
// not fail, connections with tracking get no invalidation, and waiters are not served.
func (c *Ctx) StoreMetadata(o *keyspace.Object) {
	o.Touched = c.now
	old := c.m.dbs[c.db].Set(o)
	if o.Deadline != 0 {
		c.m.expiry.Remove(c.db, old)
		c.m.expiry.Add(c.db, o)
	}
}

// Delete removes a key and emits the keyspace notification "del".
func (c *Ctx) Delete(o *keyspace.Object) {
	c.Remove(o)
	c.Notify("g", "del", o.Key)
}

// PrepareWalk prepares a command that visits whole databases. In a read, a key may be
// due between the log's clock and now (see keyspace.Object.Due). PrepareWalk then sets
// Ctx.expiryPending, because the reply cannot be used.
func (c *Ctx) PrepareWalk() {
	if o := c.m.expiry.After(c.m.clock.Lease); o != nil && o.Due() <= c.now {
		c.expiryPending = true
	}
}

// Keyspace returns the current database. Commands may only read it.
func (c *Ctx) Keyspace() *keyspace.DB { return c.m.dbs[c.db] }

// LiveKeys returns the number of keys of the current database that have not
// expired.
func (c *Ctx) LiveKeys() int {
	n := c.m.dbs[c.db].Len()
	c.m.expiry.Scan(c.db, func(o *keyspace.Object) bool {
		c.Charge(1)
		if o.Due() > c.now {
			return false
		}
		if o.Deadline <= c.now {
			n--
		}
		return true
	})
	return n
}

// FlushDB empties the current database.
func (c *Ctx) FlushDB() {
	c.Change()
	c.losesKeys(c.db)
	c.removeAll(c.db, c.m.dbs[c.db].Len() <= fewFlushed)
	c.m.expiry.Drop(c.db)
	c.flushed(c.db)
	c.noteLocks(LockEvent{Kind: LocksFlushed, DB: c.db})
}

// FlushAll empties all databases.
func (c *Ctx) FlushAll() {
	c.Change()
	few := c.m.Len() <= fewFlushed
	for i := range c.m.dbs {
		c.losesKeys(i)
		c.removeAll(i, few)
		c.flushed(i)
		c.noteLocks(LockEvent{Kind: LocksFlushed, DB: i})
	}
	c.m.expiry = keyspace.NewExpiryIndex()
}

// fewFlushed is the number of keys up to which a flush visits all keys that it
// removes, from FeatureDeferred on. It is part of the meaning of an entry.
const fewFlushed = 20_000

// removeAll removes all keys of a database. The caller must update the index of
// deadlines. If few is set, or below FeatureDeferred, removeAll visits the removed
// keys and gives them new versions. Otherwise, it gives new versions to all keys of
// the database, present or absent, as SWAPDB does, because visiting a million keys
// takes too long for an entry. A transaction that watches an absent key may then
// fail needlessly.
func (c *Ctx) removeAll(db int, few bool) {
	if few || c.m.features < FeatureDeferred {
		c.m.dbs[db].Scan(func(o *keyspace.Object) bool {
			c.Charge(StepsProbe)
			c.m.removed.add(c.m.owner, o)
			return true
		})
	} else if c.m.dbs[db].Len() > 0 {
		c.m.exchanged[db] = c.pos
	}
	c.m.dbs[db] = keyspace.NewDB()
	c.m.locks.grants[db], c.m.locks.unindexed[db] = nil, 0
	c.m.locks.delays.Drop(db)
}

// SwapDB exchanges two databases, which must not be the same.
func (c *Ctx) SwapDB(a, b int) {
	c.Change()
	c.losesKeys(a)
	c.losesKeys(b)
	c.m.dbs[a], c.m.dbs[b] = c.m.dbs[b], c.m.dbs[a]
	c.m.locks.grants[a], c.m.locks.grants[b] = c.m.locks.grants[b], c.m.locks.grants[a]
	n := &c.m.locks.unindexed
	n[a], n[b] = n[b], n[a]
	c.m.locks.delays.Swap(a, b)
	c.m.expiry.Swap(a, b)
	if c.m.features >= FeatureMend {
		c.m.exchanged[a], c.m.exchanged[b] = c.pos, c.pos
	}
	c.flushed(a)
	c.flushed(b)
	c.noteLocks(LockEvent{Kind: LocksSwapped, DB: a, With: b})
	c.readyDB(a)
	c.readyDB(b)
}

// Change counts a change of the state. It panics in a read, because a read does
// not go through the log, so only one node would change its state.
func (c *Ctx) Change() {
	if c.readOnly {
		panic("fsm: a command without the Write flag changed the state")
	}
	c.changes++
}

// Disown gives the machine a new owner, so that the machine copies the tree
// nodes of its collections before it changes them. A command must call Disown
// when it makes two values share tree nodes. Otherwise, a change of one value
// would also change the other.
func (c *Ctx) Disown() { c.m.disown() }

func (m *Machine) disown() { m.owner = &container.Owner{} }

// removed lets WATCH notice that an absent key existed in the meantime. A
// client that watches an absent key and then reads it may have seen a value.
// Its transaction must then fail, even if the key is absent again. Each key
// belongs to a bucket, which its hash determines. A bucket contains the sum of
// the versions of the objects that were removed. A sum does not depend on the
// order of the removals. So a read can compute the sum that a bucket will have
// after an expired key is removed. If another key of the bucket is removed, a
// transaction fails needlessly, and its client tries again as after any failed
// transaction.
//
// removed is part of the state from FeatureAbsent on.
type removed struct {
	counts bool
	sums   container.Seq[uint64] // all zeros if empty
}

// exchanges has, for each database, the position at which all its keys were
// last exchanged at once: by SWAPDB, by a restore, or by a flush that does not
// visit the keys (see removeAll). A watched key, present or absent, may have
// had another value between two exchanges, although no object has changed. So
// an exchange changes the versions of all keys of the database. As with
// removed, a transaction may fail needlessly.
//
// exchanges is part of the state from FeatureMend on.
type exchanges [Databases]Pos

// append writes the exchanges into a snapshot. It writes nothing if there were
// none.
func (e *exchanges) append(b []byte) []byte {
	if *e == (exchanges{}) {
		return b
	}
	b = append(b, recordExchanged)
	for _, pos := range e {
		b = binary.AppendUvarint(b, uint64(pos))
	}
	return b
}

// exchanges reads the record that exchanges.append wrote.
func (l *snapshotLoader) exchanges(d *codec.Decoder) error {
	if l.m.exchanged != (exchanges{}) || l.m.features < FeatureMend {
		return fmt.Errorf("exchanged databases: %w", ErrFormat)
	}
	for i := range l.m.exchanged {
		l.m.exchanged[i] = Pos(d.Uvarint())
	}
	if d.Err == nil && l.m.exchanged == (exchanges{}) {
		return fmt.Errorf("exchanged databases: %w", ErrFormat)
	}
	return d.Err
}

const (
	removedBuckets = 4096
	// absentVersion is a bit that marks the version of an absent key. All
	// positions are smaller.
	absentVersion = Pos(1) << 62
)

func removedBucket(hash uint64) int { return int(hash >> (container.HashBits - 12)) }

// add records that an object was removed.
func (r *removed) add(owner *container.Owner, o *keyspace.Object) {
	if !r.counts {
		return
	}
	if r.sums.Len() == 0 {
		for range removedBuckets {
			r.sums.Insert(owner, r.sums.Len(), 0)
		}
	}
	i := removedBucket(o.Hash)
	r.sums.Set(owner, i, r.sums.At(i)+uint64(o.Version))
}

// version returns the version of an absent key for WATCH. The parameter due is
// the object of the key if the key has expired and is not removed yet, else nil.
// The parameter exchanged is the position at which the keys of the database were
// last exchanged at once. The version is the sum of this position and of the sum
// of the bucket, as it will be when the expired key is removed. Both only grow,
// so the version changes whenever one of them does. The version is 0 if both are
// 0, and always 0 below FeatureAbsent.
func (r *removed) version(hash uint64, due *keyspace.Object, exchanged Pos) Pos {
	if !r.counts {
		return 0
	}
	sum := uint64(exchanged)
	if r.sums.Len() > 0 {
		sum += r.sums.At(removedBucket(hash))
	}
	if due != nil {
		sum += uint64(due.Version)
	}
	if sum == 0 {
		return 0
	}
	return absentVersion | Pos(sum)&(absentVersion-1)
}

// append writes the buckets that are not 0 into a snapshot. It writes nothing
// if removals are not counted.
func (r *removed) append(b []byte) []byte {
	if !r.counts {
		return b
	}
	n := 0
	var list []byte
	i := 0
	r.sums.Ascend(0, func(sum *uint64) bool {
		if *sum != 0 {
			n++
			list = binary.AppendUvarint(binary.AppendUvarint(list, uint64(i)), *sum)
		}
		i++
		return true
	})
	return append(binary.AppendUvarint(append(b, recordRemoved), uint64(n)), list...)
}

// removed reads the record that removed.append wrote.
func (l *snapshotLoader) removed(d *codec.Decoder) error {
	r := &l.m.removed
	if r.sums.Len() > 0 || r.counts && l.m.features < FeatureMend {
		return fmt.Errorf("duplicate record of removed keys: %w", ErrFormat)
	}
	r.counts = true
	l.m.features = max(l.m.features, FeatureAbsent)
	sums := make([]uint64, removedBuckets)
	next := uint64(0)
	n := d.Uvarint()
	if n == 0 {
		return d.Err
	}
	for ; n > 0 && d.Err == nil; n-- {
		i, sum := d.Uvarint(), d.Uvarint()
		if d.Err == nil && (i < next || i >= removedBuckets || sum == 0) {
			return fmt.Errorf("removed keys of bucket %d: %w", i, ErrFormat)
		}
		if d.Err == nil {
			sums[i], next = sum, i+1
		}
	}
	for i, sum := range sums {
		r.sums.Insert(l.m.owner, i, sum)
	}
	return d.Err
}

// These constants bound the expiry of keys in one entry, so that a million keys
// with the same deadline do not delay the log. The keys beyond the bound are
// invisible anyway, because every access compares the deadline with the clock.
// Later entries remove them. The constants are part of the meaning of an entry:
// all nodes must stop at the same key.
const (
	// expiryWork bounds the work of expiring keys in one entry, in steps, from
	// FeatureBudget on.
	expiryWork = 400_000
	// expiryKeyWork is the work of expiring a key apart from its name, in steps.
	// It is the cost of a removal after a clone of the machine was made. The
	// database and the index of deadlines then copy the tree nodes that change.
	// Without a clone, a removal costs a third of expiryKeyWork. The size of the
	// value does not matter, because the garbage collector frees the value
	// outside of Apply.
	expiryKeyWork = 128
	// expiryNameBytes is the number of bytes of a key's name that count as one
	// step. The name has a cost because the events of the removal contain it.
	expiryNameBytes = 64

	// expiryPerEntry bounds the keys that one entry expires below FeatureBudget.
	expiryPerEntry = 20000
)

// expireDue first ends the lock delays whose time has passed: see endDelays. It
// then removes the keys whose deadline has passed, and the holders of locks whose
// lease has ended. Their order is that of Object.Due, then of the databases, and
// then of Object.Before. expireDue stops when it reaches the bound for one entry:
// see mayExpire.
func (c *Ctx) expireDue() {
	c.endDelays()
	for work, n := 0, 0; c.mayExpire(work, n); n++ {
		work += c.delaySteps // steps of comparing the previous key with the patterns of lock-delay
		c.delaySteps = 0
		db, o := c.m.expiry.First()
		if o == nil || o.Due() > c.now {
			return
		}
		work += expiryKeyWork + len(o.Key)/expiryNameBytes
		c.Charge(2 * StepsPut)
		c.db = db
		if o.Type == keyspace.TypeLock {
			work += c.expireHolders(o) * expiryKeyWork
			if o.Deadline > c.now {
				continue
			}
		}
		c.tracedExpiry(db, o.Key)
		c.lockEnd = LockExpired
		c.Remove(o)
		c.lockEnd = ""
		c.Notify("x", "expired", o.Key)
		c.m.stats.Expired++
	}
	c.tracedPendingExpiry()
}

// mayExpire reports whether the entry may expire another key after n keys that
// took the given work.
func (c *Ctx) mayExpire(work, n int) bool {
	if c.m.features < FeatureBudget {
		return n < expiryPerEntry
	}
	return work < expiryWork
}
