package fsm

import "github.com/tidwall/btree"

// expiryPerEntry bounds the keys that one entry expires, so that a million keys
// with the same deadline do not delay the log. The remaining keys are invisible
// anyway, because every access compares the deadline.
const expiryPerEntry = 20000

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
// database, key), at most expiryPerEntry of them.
func (c *Ctx) expireDue() {
	for n := 0; n < expiryPerEntry; n++ {
		d, ok := c.m.expiry.tree.Min()
		if !ok || d.deadline > c.now {
			return
		}
		c.charge(2 * stepsPut)
		c.db = d.db
		c.tracedExpiry(d.db, d.obj.key)
		c.remove(d.obj)
		c.notify("x", "expired", d.obj.key)
		c.m.stats.Expired++
	}
	c.tracedPendingExpiry()
}
