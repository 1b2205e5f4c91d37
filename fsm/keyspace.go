package fsm

import (
	"encoding/binary"
	"fmt"
	"sort"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
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
	return d.tree.Get(container.Hash(key), codec.View(key))
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

// trie holds the objects of a database in the order of (hash, key). It is a
// radix tree over the 52 bits of the hash, with four bits a level, whose leaves
// are sorted arrays of slots. Hashes are distributed evenly, so the position of
// a hash in an array can be computed almost exactly.
//
// A lookup among four million keys touches two or three cold cache lines. A
// B-tree searches one node per level and touches four times as many: a lookup
// took 4 µs on the machine where it was measured, which was 40 % of all that
// followers did.
//
// Like the B-tree of the expiry index, a trie can be cloned in O(1): clone and
// original share nodes, and each copies a node before it first changes the
// node. A trie does not remove empty nodes; FLUSHALL creates a new trie.
type trie struct {
	owner *trieOwner
	root  *trieNode
	n     int
}

// trieOwner identifies an owner of nodes. A trie may change only the nodes that
// carry its own owner; all others are shared.
type trieOwner struct{ _ byte }

const (
	trieFan  = 16
	trieLeaf = 64 // the most slots of a leaf
	trieTop  = container.HashBits - 4
)

// trieNode has sixteen children. Each of them is a node, a leaf or empty.
type trieNode struct {
	owner *trieOwner
	// mine has a bit for each leaf whose array belongs to owner alone and may
	// be changed in place.
	mine uint16
	kids [trieFan]trieKid
}

type trieKid struct {
	node  *trieNode
	slots []slot // the leaf, sorted; nil if node is not nil
}

func newTrie() *trie {
	o := &trieOwner{}
	return &trie{owner: o, root: &trieNode{owner: o}}
}

// Len returns the number of slots.
func (t *trie) Len() int { return t.n }

// clone returns a trie with the same content. Both tries may be changed
// afterward, and neither sees the changes of the other. The caller must have
// exclusive access to t during the call, because clone also gives t a new
// owner.
func (t *trie) clone() *trie {
	f := *t
	t.owner, f.owner = &trieOwner{}, &trieOwner{}
	return &f
}

// guess returns the first position in a leaf whose hash is not less than hash.
// shift is the number of low bits in which the hashes of the leaf may differ.
func guess(slots []slot, hash uint64, shift int) int {
	i := int(hash & (1<<shift - 1) * uint64(len(slots)) >> shift)
	for i > 0 && slots[i-1].hash >= hash {
		i--
	}
	for i < len(slots) && slots[i].hash < hash {
		i++
	}
	return i
}

// find returns the position of s in a leaf and whether the leaf contains its
// key.
func find(slots []slot, s slot, shift int) (int, bool) {
	i := guess(slots, s.hash, shift)
	// There is almost always only one slot with an equal hash; only an attacker
	// can create many of them. The search by key keeps that case fast.
	i += sort.Search(sameHash(slots[i:], s.hash), func(j int) bool { return slots[i+j].obj.key >= s.obj.key })
	return i, i < len(slots) && slots[i].hash == s.hash && slots[i].obj.key == s.obj.key
}

func sameHash(slots []slot, hash uint64) int {
	n := 0
	for n < len(slots) && slots[n].hash == hash {
		n++
	}
	return n
}

// Get returns the object with a hash and a key, or nil if there is none.
func (t *trie) Get(hash uint64, key string) *object {
	n := t.root
	for shift := trieTop; ; shift -= 4 {
		k := &n.kids[hash>>shift&(trieFan-1)]
		if k.node != nil {
			n = k.node
			continue
		}
		for i := guess(k.slots, hash, shift); i < len(k.slots) && k.slots[i].hash == hash; i++ {
			if o := k.slots[i].obj; o.key == key {
				return o
			}
		}
		return nil
	}
}

// own returns the node in *p. If the node is shared, own first replaces it with
// a copy.
func (t *trie) own(p **trieNode) *trieNode {
	n := *p
	if n.owner != t.owner {
		c := *n
		c.owner, c.mine = t.owner, 0
		n = &c
		*p = n
	}
	return n
}

// ownSlots ensures that the array of leaf i belongs to the node alone and has
// room for one more slot.
func (n *trieNode) ownSlots(i uint64) []slot {
	k := &n.kids[i]
	if n.mine&(1<<i) == 0 {
		k.slots = append(make([]slot, 0, len(k.slots)+2), k.slots...)
		n.mine |= 1 << i
	}
	return k.slots
}

// Set stores o and returns the object that had its key before, or nil if there
// was none.
func (t *trie) Set(o *object) *object {
	s := slot{o.hash, o}
	n := t.own(&t.root)
	for shift := trieTop; ; shift -= 4 {
		i := o.hash >> shift & (trieFan - 1)
		k := &n.kids[i]
		if k.node == nil && len(k.slots) >= trieLeaf && shift > 0 {
			if at, ok := find(k.slots, s, shift); ok {
				slots := n.ownSlots(i)
				old := slots[at].obj
				slots[at] = s
				return old
			}
			k.node = t.split(k.slots, shift-4)
			k.slots = nil
		}
		if k.node != nil {
			n = t.own(&k.node)
			continue
		}
		at, ok := find(k.slots, s, shift)
		slots := n.ownSlots(i)
		if ok {
			old := slots[at].obj
			slots[at] = s
			return old
		}
		slots = append(slots, slot{})
		copy(slots[at+1:], slots[at:])
		slots[at] = s
		k.slots = slots
		t.n++
		return nil
	}
}

// split distributes the slots of a full leaf over a new node.
func (t *trie) split(slots []slot, shift int) *trieNode {
	n := &trieNode{owner: t.owner, mine: 1<<trieFan - 1}
	for _, s := range slots { // in order, so the new leaves are sorted too
		k := &n.kids[s.hash>>shift&(trieFan-1)]
		k.slots = append(k.slots, s)
	}
	return n
}

// Delete removes o's key and reports whether the trie contained it.
func (t *trie) Delete(o *object) bool {
	n := t.own(&t.root)
	for shift := trieTop; ; shift -= 4 {
		i := o.hash >> shift & (trieFan - 1)
		k := &n.kids[i]
		if k.node != nil {
			n = t.own(&k.node)
			continue
		}
		at, ok := find(k.slots, slot{o.hash, o}, shift)
		if !ok {
			return false
		}
		slots := n.ownSlots(i)
		copy(slots[at:], slots[at+1:])
		slots[len(slots)-1] = slot{}
		k.slots = slots[:len(slots)-1]
		t.n--
		return true
	}
}

// Scan calls f for all slots in order until f returns false.
func (t *trie) Scan(f func(s slot) bool) { t.Ascend(0, f) }

// Ascend calls f in order for the slots whose hash is at least from, until f
// returns false.
func (t *trie) Ascend(from uint64, f func(s slot) bool) {
	if from>>container.HashBits == 0 { // otherwise from is greater than the largest hash
		t.root.ascend(from, trieTop, f)
	}
}

// ascend walks a node. from is 0 for a node whose slots all come after the
// start.
func (n *trieNode) ascend(from uint64, shift int, f func(s slot) bool) bool {
	first := from >> shift & (trieFan - 1)
	for i := first; i < trieFan; i++ {
		if i > first {
			from = 0
		}
		k := &n.kids[i]
		if k.node != nil {
			if !k.node.ascend(from, shift-4, f) {
				return false
			}
			continue
		}
		for _, s := range k.slots {
			if s.hash >= from && !f(s) {
				return false
			}
		}
	}
	return true
}
