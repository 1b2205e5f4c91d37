package fsm

import "github.com/tidwall/btree"

// These constants bound what one entry expires, so that a million keys with the
// same deadline do not delay the log. The keys beyond the bound are invisible
// anyway, because every access compares the deadline. Following entries remove
// them. The constants are part of the meaning of an entry: all nodes must stop
// at the same key.
const (
	// expiryWork bounds the work of expiring keys in one entry, in steps, from
	// FeatureBudget on.
	expiryWork = 400_000
	// expiryKeyWork is the work of expiring a key apart from its name, in steps.
	// It is what the removal takes after a clone of the machine was made: both
	// the tree and the index then copy the nodes that change. Without a clone
	// the removal takes a third of it. The size of the value does not matter,
	// because the garbage collector frees the value, outside of Apply.
	expiryKeyWork = 128
	// expiryNameBytes is the number of bytes of a key's name that take a step:
	// the events of the removal contain the name.
	expiryNameBytes = 64

	// expiryPerEntry bounds the keys that one entry expires below FeatureBudget.
	expiryPerEntry = 20000
)

// expiry orders the keys that have a deadline. It is an index: ReadSnapshot
// rebuilds it from the databases.
type expiry struct {
	tree  *btree.BTreeG[due]
	count [Databases]int
}

type due struct {
	deadline int64
	db       int
	obj      *object
}

func dueLess(a, b due) bool {
	if a.deadline != b.deadline {
		return a.deadline < b.deadline
	}
	if a.db != b.db {
		return a.db < b.db
	}
	return slotLess(slot{a.obj.hash, a.obj}, slot{b.obj.hash, b.obj})
}

func newExpiry() expiry {
	return expiry{tree: btree.NewBTreeGOptions(dueLess, btree.Options{NoLocks: true})}
}

func (e *expiry) add(db int, o *object) {
	e.tree.Set(due{o.deadline, db, o})
	e.count[db]++
}

func (e *expiry) remove(db int, o *object) {
	e.tree.Delete(due{o.deadline, db, o})
	e.count[db]--
}

// next returns the earliest deadline, or 0 if no key has one.
func (e *expiry) next() int64 {
	if d, ok := e.tree.Min(); ok {
		return d.deadline
	}
	return 0
}

// drop removes the keys of a database from the index.
func (e *expiry) drop(db int) {
	switch e.count[db] {
	case 0:
		return
	case e.tree.Len():
		*e = newExpiry()
		return
	}
	for _, d := range e.of(db) {
		e.remove(db, d.obj)
	}
}

// swap exchanges the keys of two databases.
func (e *expiry) swap(a, b int) {
	ofA, ofB := e.of(a), e.of(b)
	for _, d := range ofA {
		e.remove(a, d.obj)
	}
	for _, d := range ofB {
		e.remove(b, d.obj)
		e.add(a, d.obj)
	}
	for _, d := range ofA {
		e.add(b, d.obj)
	}
}

// of returns the elements of the index for a database.
func (e *expiry) of(db int) []due {
	if e.count[db] == 0 {
		return nil
	}
	list := make([]due, 0, e.count[db])
	e.tree.Scan(func(d due) bool {
		if d.db == db {
			list = append(list, d)
		}
		return true
	})
	return list
}

// expireDue removes keys whose deadline has passed, in the order of (deadline,
// database, key), until their work reaches the bound for one entry.
func (c *Ctx) expireDue() {
	for work, n := 0, 0; c.mayExpire(work, n); n++ {
		d, ok := c.m.expiry.tree.Min()
		if !ok || d.deadline > c.now {
			return
		}
		work += expiryKeyWork + len(d.obj.key)/expiryNameBytes
		c.charge(2 * stepsPut)
		c.db = d.db
		c.tracedExpiry(d.db, d.obj.key)
		c.remove(d.obj)
		c.notify("x", "expired", d.obj.key)
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
