package fsm

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

// Databases is the number of databases that SELECT can choose.
const Databases = 16

// Pos is the position of an operation in the log: the log index of the entry
// and the number of the operation in the entry. It orders all operations of a
// cluster and never goes back.
type Pos uint64

const posBits = 20 // log2 of MaxOps

// MakePos returns the position of an operation.
func MakePos(index uint64, position int) Pos { return Pos(index<<posBits | uint64(position)) }

// Index returns the log index of a position.
func (p Pos) Index() uint64 { return uint64(p) >> posBits }

// typ is the type of a value.
type typ byte

const (
	typeString typ = iota
	typeList
	typeSet
	typeZSet
	typeHash
	typeStream
)

var typeNames = [...]string{"string", "list", "set", "zset", "hash", "stream"}

// object is a key with its value. An object in the tree is never changed, only
// replaced, because clones and snapshots share it.
type object struct {
	hash uint64
	key  string
	str  string      // the value of a string
	coll *collection // the value of any other type
	// deadline is when the key expires, on the lease clock, 0 for never.
	// expireAt is the same time on the wall clock, in milliseconds, for
	// EXPIRETIME only.
	deadline int64
	expireAt int64
	// token is the position that last gave the key its value. It only grows, so
	// it can serve as a fencing token. version is the position of the last
	// change of any kind, which WATCH compares.
	token   Pos
	version Pos
	touched int64 // lease clock at the last write, for OBJECT IDLETIME
	typ     typ
	raw     bool // for OBJECT ENCODING: APPEND or SETRANGE built the string
}

// slot is an element of the tree. It contains the hash beside the pointer to
// save a cache miss at every comparison.
type slot struct {
	hash uint64
	obj  *object
}

// db is one database: its objects in the order of (hash, key). SCAN uses this
// order, and its cursor is a hash. So a cursor stays valid when keys are
// inserted or deleted.
type db struct {
	tree *trie
}

func slotLess(a, b slot) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.obj.key < b.obj.key
}

func newDB() db {
	return db{tree: newTrie()}
}

func (d *db) get(key []byte) *object {
	return d.tree.Get(container.Hash(key), viewString(key))
}

// lookup returns the object of a key, or nil if the key is absent or its
// deadline has passed. If the deadline lies between the log's clock and now,
// which is possible only in a read, the reply cannot be used until a clock
// entry is committed: lookup then sets Ctx.expiryPending.
func (c *Ctx) lookup(key []byte) *object {
	o := c.m.dbs[c.db].get(key)
	if o == nil || !c.expired(o) {
		return o
	}
	return nil
}

func (c *Ctx) expired(o *object) bool {
	if o.deadline == 0 || o.deadline > c.now {
		return false
	}
	if o.deadline > c.m.clock.Lease {
		c.expiryPending = true
	}
	return true
}

// lookupString is lookup for string commands.
func (c *Ctx) lookupString(key []byte) (o *object, wrongType bool) {
	o = c.lookup(key)
	return o, o != nil && o.typ != typeString
}

// newObject returns an object for key with the value val, in one allocation.
func newObject(key, val []byte) *object {
	var both strings.Builder
	both.Grow(len(key) + len(val))
	both.Write(key)
	both.Write(val)
	s := both.String()
	return &object{hash: container.Hash(key), key: s[:len(key)], str: s[len(key):]}
}

// with returns a copy of o that has the string val.
func (o *object) with(val string) *object {
	n := *o
	n.str = val
	return &n
}

// store puts o into the current database, in place of the object with its key.
func (c *Ctx) store(o *object) {
	c.change()
	o.version = c.pos
	o.touched = c.now
	old := c.m.dbs[c.db].tree.Set(o)
	if old == nil {
		c.notify("n", "new", o.key)
	} else if old.deadline != 0 {
		c.m.expiry.remove(c.db, old)
		if c.expired(old) { // expireDue reached its limit in this entry
			c.tracedExpiry(c.db, old.key)
			c.notify("x", "expired", old.key)
			c.notify("n", "new", o.key)
			c.m.stats.Expired++
		}
	}
	if o.deadline != 0 {
		c.m.expiry.add(c.db, o)
	}
	c.changed(o.key)
	k, had := waitKey{c.db, o.key}, old != nil && old.typ == typeStream
	if had && o.typ != typeStream {
		c.streamGone(k)
	}
	if o.coll != nil && (!had || o.typ != typeStream) { // XADD itself reports new entries of a stream
		c.ready(k)
	}
}

// assign stores an object whose value is new, and sets its fencing token.
func (c *Ctx) assign(o *object) {
	o.token = c.pos
	c.store(o)
}

// remove deletes o from the current database.
func (c *Ctx) remove(o *object) {
	c.change()
	c.m.dbs[c.db].tree.Delete(o)
	c.m.removed.add(c.m.owner, o)
	if o.deadline != 0 {
		c.m.expiry.remove(c.db, o)
	}
	c.changed(o.key)
	if o.typ == typeStream {
		c.streamGone(waitKey{c.db, o.key})
	}
}

// change counts a change of the state. It panics if the command has no Write
// flag, because the nodes would differ: groups without a write do not go
// through the log.
func (c *Ctx) change() {
	if c.readOnly {
		panic("fsm: a command without the Write flag changed the state")
	}
	c.changes++
}

// removed lets WATCH notice that an absent key existed in the meantime. A
// client that watches an absent key and then reads it may have seen a value.
// Its transaction must then fail, even if the key is absent again. Keys share
// buckets by their hash. A bucket contains the sum of the versions of the
// objects that were removed. A sum does not depend on the order of the
// removals. So the sum that a bucket will have after an expired key was removed
// is known before the removal. If another key of the bucket is removed, a
// transaction fails without need, and its client tries again as after any
// failed transaction.
//
// removed is part of the state from FeatureAbsent on.
type removed struct {
	counts bool
	sums   container.Seq[uint64] // all zeros if empty
}

// exchanges are the positions at which SWAPDB last exchanged each database. A
// watched key, present or absent, may have had another value between two
// exchanges, although no object has changed. So an exchange changes the
// versions of all keys of both databases. As with removed, a transaction may
// fail without need.
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
func (l *snapshotLoader) exchanges(d *decoder) error {
	if l.m.exchanged != (exchanges{}) || l.m.features < FeatureMend {
		return fmt.Errorf("exchanged databases: %w", ErrFormat)
	}
	for i := range l.m.exchanged {
		l.m.exchanged[i] = Pos(d.uvarint())
	}
	if d.err == nil && l.m.exchanged == (exchanges{}) {
		return fmt.Errorf("exchanged databases: %w", ErrFormat)
	}
	return d.err
}

const (
	removedBuckets = 4096
	// absentVersion is a bit that marks the version of an absent key. All
	// positions are smaller.
	absentVersion = Pos(1) << 62
)

func removedBucket(hash uint64) int { return int(hash >> (container.HashBits - 12)) }

// add records that an object was removed.
func (r *removed) add(owner *container.Owner, o *object) {
	if !r.counts {
		return
	}
	if r.sums.Len() == 0 {
		for range removedBuckets {
			r.sums.Insert(owner, r.sums.Len(), 0)
		}
	}
	i := removedBucket(o.hash)
	r.sums.Set(owner, i, r.sums.At(i)+uint64(o.version))
}

// version returns the version of an absent key for WATCH. It is 0 if no key of
// the bucket was removed and the database was never exchanged. due is the
// object of the key if the key has expired and is not removed yet, else nil.
// Both parts of the sum only grow, so the sum changes whenever one of them
// does.
func (r *removed) version(hash uint64, due *object, exchanged Pos) Pos {
	if !r.counts {
		return 0
	}
	sum := uint64(exchanged)
	if r.sums.Len() > 0 {
		sum += r.sums.At(removedBucket(hash))
	}
	if due != nil {
		sum += uint64(due.version)
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
func (l *snapshotLoader) removed(d *decoder) error {
	r := &l.m.removed
	if r.sums.Len() > 0 || r.counts && l.m.features < FeatureMend {
		return fmt.Errorf("duplicate record of removed keys: %w", ErrFormat)
	}
	r.counts = true
	l.m.features = max(l.m.features, FeatureAbsent)
	sums := make([]uint64, removedBuckets)
	next := uint64(0)
	n := d.uvarint()
	if n == 0 {
		return d.err
	}
	for ; n > 0 && d.err == nil; n-- {
		i, sum := d.uvarint(), d.uvarint()
		if d.err == nil && (i < next || i >= removedBuckets || sum == 0) {
			return fmt.Errorf("removed keys of bucket %d: %w", i, ErrFormat)
		}
		if d.err == nil {
			sums[i], next = sum, i+1
		}
	}
	for i, sum := range sums {
		r.sums.Insert(l.m.owner, i, sum)
	}
	return d.err
}
