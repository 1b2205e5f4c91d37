package keyspace

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// ExpiryIndex contains the keys with a deadline, for all databases: exactly the
// objects whose Deadline is not 0, in the order of Object.Due. So code that adds,
// replaces or removes such an object in a DB must change the index too.
// Snapshots do not contain the index: the reader of a snapshot rebuilds it.
//
// Each database has a tree of its own, so that Drop and Swap take O(1).
type ExpiryIndex struct {
	trees [Databases]*btree.BTreeG[due] // nil or empty if the database has no key with a deadline
	n     int
}

// due is an element of the index. It contains the hash of the key, to save a cache
// miss in most comparisons of elements with the same deadline. Such comparisons
// are common, because the keys that one command or one pipeline sets often have
// the same deadline.
type due struct {
	deadline int64 // Due of the object
	hash     uint64
	obj      *Object
}

func newDue(o *Object) due { return due{o.Due(), o.Hash, o} }

// compareDue orders elements by deadline. Elements with equal deadlines are in
// the order of Object.Before.
func compareDue(a, b due) int {
	switch {
	case a.deadline != b.deadline:
		return cmp.Compare(a.deadline, b.deadline)
	case a.hash != b.hash:
		return cmp.Compare(a.hash, b.hash)
	}
	return strings.Compare(a.obj.Key, b.obj.Key)
}

// NewExpiryIndex returns an empty index.
func NewExpiryIndex() ExpiryIndex { return ExpiryIndex{} }

// tree returns the tree of a database. It creates the tree if there is none.
func (e *ExpiryIndex) tree(db int) *btree.BTreeG[due] {
	if e.trees[db] == nil {
		e.trees[db] = btree.NewBTreeGOptions(func(a, b due) bool { return compareDue(a, b) < 0 },
			btree.Options{NoLocks: true})
	}
	return e.trees[db]
}

// Add adds an object of a database. The object must have a deadline, and the
// index must not contain its key.
func (e *ExpiryIndex) Add(db int, o *Object) {
	e.tree(db).Set(newDue(o))
	e.n++
}

// Load adds the objects of a list to an empty index, and sorts the list. It takes a
// third of the time of Add, because it adds the objects in the order of the index.
func (e *ExpiryIndex) Load(l *DueList) {
	for db, all := range l.all {
		if len(all) == 0 {
			continue
		}
		slices.SortFunc(all, compareDue)
		// Adding in order leaves half of each leaf free. So Load first adds every
		// other object, and the others then fill the leaves.
		tree := e.tree(db)
		for i := 0; i < len(all); i += 2 {
			tree.Load(all[i])
		}
		var hint btree.PathHint
		for i := 1; i < len(all); i += 2 {
			tree.SetHint(all[i], &hint)
		}
		e.n += len(all)
	}
}

// DueList collects objects for ExpiryIndex.Load.
type DueList struct{ all [Databases][]due }

// Add adds an object of a database, which must have a deadline. No other object of
// the list may have its key.
func (l *DueList) Add(db int, o *Object) { l.all[db] = append(l.all[db], newDue(o)) }

// Remove removes an object, which the index must contain.
func (e *ExpiryIndex) Remove(db int, o *Object) {
	e.tree(db).Delete(newDue(o))
	e.n--
}

// First returns the object that is due first and its database. It returns nil if
// no key has a deadline.
func (e *ExpiryIndex) First() (db int, o *Object) {
	if e.n == 0 {
		return 0, nil
	}
	first := int64(0)
	for i, t := range e.trees {
		if t == nil {
			continue
		}
		if d, ok := t.Min(); ok && (o == nil || d.deadline < first) {
			db, o, first = i, d.obj, d.deadline
		}
	}
	return db, o
}

// Scan calls f for the objects of a database in the order of compareDue until f
// returns false. f must not change e.
func (e *ExpiryIndex) Scan(db int, f func(o *Object) bool) {
	if t := e.trees[db]; t != nil {
		t.Scan(func(d due) bool { return f(d.obj) })
	}
}

// After returns the first object that is due later than a time on the lease clock,
// or nil if there is none.
func (e *ExpiryIndex) After(time int64) (o *Object) {
	first := due{time + 1, 0, &Object{}}
	for _, t := range e.trees {
		if t == nil {
			continue
		}
		t.Ascend(first, func(d due) bool {
			if o == nil || d.deadline < o.Due() {
				o = d.obj
			}
			return false
		})
	}
	return o
}

// Has reports whether the index contains an object of a database.
func (e *ExpiryIndex) Has(db int, o *Object) bool {
	if e.trees[db] == nil {
		return false
	}
	d, found := e.trees[db].Get(newDue(o))
	return found && d.obj == o
}

// Len returns the number of keys that have a deadline, in all databases.
func (e *ExpiryIndex) Len() int { return e.n }

// CountIn returns the number of keys of a database that have a deadline.
func (e *ExpiryIndex) CountIn(db int) int {
	if e.trees[db] == nil {
		return 0
	}
	return e.trees[db].Len()
}

// Clone returns an independent copy. It takes O(1). The caller must have
// exclusive access to e during the call.
func (e *ExpiryIndex) Clone() ExpiryIndex {
	n := *e
	for db, t := range e.trees {
		if t != nil {
			n.trees[db] = t.IsoCopy()
		}
	}
	return n
}

// Drop removes the keys of a database from the index.
func (e *ExpiryIndex) Drop(db int) {
	e.n -= e.CountIn(db)
	e.trees[db] = nil
}

// Swap exchanges the keys of two databases.
func (e *ExpiryIndex) Swap(a, b int) { e.trees[a], e.trees[b] = e.trees[b], e.trees[a] }
