package keyspace

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

// ExpiryIndex orders the keys of all databases that have a deadline. It
// contains exactly the objects of the databases whose Deadline is not 0, in the
// order of Object.Due. So every change of a DB must change the index too.
// Snapshots do not contain the index: the reader of a snapshot rebuilds it.
type ExpiryIndex struct {
	tree  *btree.BTreeG[due]
	count [Databases]int
}

// due is an element of the index. It contains the hash of the key, to save a cache
// miss in most comparisons of elements with the same deadline. Such comparisons
// are common, because the keys that one command or one pipeline sets often have
// the same deadline.
type due struct {
	deadline int64  // Due of the object
	where    uint64 // number of the database, and the hash of the key in the lower container.HashBits
	obj      *Object
}

func newDue(db int, o *Object) due {
	return due{o.Due(), uint64(db)<<container.HashBits | o.Hash, o}
}

// db returns the number of the database.
func (d *due) db() int { return int(d.where >> container.HashBits) }

// dueLess orders by deadline, database and key. Keys have the order of
// Object.Before.
func dueLess(a, b due) bool {
	if a.deadline != b.deadline {
		return a.deadline < b.deadline
	}
	if a.where != b.where {
		return a.where < b.where
	}
	return a.obj.Key < b.obj.Key
}

// NewExpiryIndex returns an empty index.
func NewExpiryIndex() ExpiryIndex {
	return ExpiryIndex{tree: btree.NewBTreeGOptions(dueLess, btree.Options{NoLocks: true})}
}

// Add adds an object of a database. The object must have a deadline, and the
// index must not contain its key.
func (e *ExpiryIndex) Add(db int, o *Object) {
	e.tree.Set(newDue(db, o))
	e.count[db]++
}

// Load adds the objects of a list to an empty index, and sorts the list. It takes a
// third of the time of Add, because it adds the objects in the order of the index.
func (e *ExpiryIndex) Load(l *DueList) {
	slices.SortFunc(l.all, func(a, b due) int {
		switch {
		case a.deadline != b.deadline:
			return cmp.Compare(a.deadline, b.deadline)
		case a.where != b.where:
			return cmp.Compare(a.where, b.where)
		}
		return strings.Compare(a.obj.Key, b.obj.Key)
	})
	// Adding in order leaves half of each leaf free. So Load first adds every other
	// object, and the others then fill the leaves.
	for i := 0; i < len(l.all); i += 2 {
		e.tree.Load(l.all[i])
	}
	var hint btree.PathHint
	for i := 1; i < len(l.all); i += 2 {
		e.tree.SetHint(l.all[i], &hint)
	}
	for i := range l.all {
		e.count[l.all[i].db()]++
	}
}

// DueList collects objects for ExpiryIndex.Load.
type DueList struct{ all []due }

// Add adds an object of a database, which must have a deadline. No other object of
// the list may have its key.
func (l *DueList) Add(db int, o *Object) { l.all = append(l.all, newDue(db, o)) }

// Remove removes an object, which the index must contain.
func (e *ExpiryIndex) Remove(db int, o *Object) {
	e.tree.Delete(newDue(db, o))
	e.count[db]--
}

// First returns the object that is due first and its database. It returns nil if
// no key has a deadline.
func (e *ExpiryIndex) First() (db int, o *Object) {
	if d, ok := e.tree.Min(); ok {
		return d.db(), d.obj
	}
	return 0, nil
}

// Scan calls f for the objects in the order of (Due, database, key) until f returns
// false. f must not change e.
func (e *ExpiryIndex) Scan(f func(db int, o *Object) bool) {
	e.tree.Scan(func(d due) bool { return f(d.db(), d.obj) })
}

// After returns the first object that is due later than a time on the lease clock,
// or nil if there is none.
func (e *ExpiryIndex) After(time int64) (o *Object) {
	e.tree.Ascend(due{time + 1, 0, &Object{}}, func(d due) bool {
		o = d.obj
		return false
	})
	return o
}

// Has reports whether the index contains an object of a database.
func (e *ExpiryIndex) Has(db int, o *Object) bool {
	d, found := e.tree.Get(newDue(db, o))
	return found && d.obj == o
}

// Len returns the number of keys that have a deadline, in all databases.
func (e *ExpiryIndex) Len() int { return e.tree.Len() }

// CountIn returns the number of keys of a database that have a deadline.
func (e *ExpiryIndex) CountIn(db int) int { return e.count[db] }

// Clone returns an independent copy. It takes O(1). The caller must have
// exclusive access to e during the call.
func (e *ExpiryIndex) Clone() ExpiryIndex { return ExpiryIndex{e.tree.IsoCopy(), e.count} }

// Drop removes the keys of a database from the index.
func (e *ExpiryIndex) Drop(db int) {
	switch e.count[db] {
	case 0:
		return
	case e.tree.Len():
		*e = NewExpiryIndex()
		return
	}
	for _, d := range e.of(db) {
		e.Remove(db, d.obj)
	}
}

// Swap exchanges the keys of two databases. It takes time in proportion to the
// size of the index.
func (e *ExpiryIndex) Swap(a, b int) {
	ofA, ofB := e.of(a), e.of(b)
	for _, d := range ofA {
		e.Remove(a, d.obj)
	}
	for _, d := range ofB {
		e.Remove(b, d.obj)
		e.Add(a, d.obj)
	}
	for _, d := range ofA {
		e.Add(b, d.obj)
	}
}

// of returns the elements of the index for a database.
func (e *ExpiryIndex) of(db int) []due {
	if e.count[db] == 0 {
		return nil
	}
	list := make([]due, 0, e.count[db])
	e.tree.Scan(func(d due) bool {
		if d.db() == db {
			list = append(list, d)
		}
		return true
	})
	return list
}
