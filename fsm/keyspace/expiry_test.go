package keyspace_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// TestExpiryIndex_Load compares an index that Load has filled with an index to
// which the objects were added one by one. The list for Load is in the order of a
// snapshot, or in another order.
func TestExpiryIndex_Load(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		for _, n := range []int{0, 1, 2, 63, 64, 65, 1000, 20_001} {
			compareLoaded(t, n, inOrder)
		}
	}
}

func compareLoaded(t *testing.T, n int, inOrder bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	loaded, added := keyspace.NewExpiryIndex(), keyspace.NewExpiryIndex()
	var list keyspace.DueList
	var objects []indexed
	for i := range n {
		key := fmt.Sprint("key", i)
		o := &keyspace.Object{Key: key, Hash: container.Hash([]byte(key)), Deadline: 1 + r.Int64N(int64(n/4+1))}
		objects = append(objects, indexed{r.IntN(keyspace.Databases), o})
	}
	if inOrder {
		slices.SortFunc(objects, func(a, b indexed) int {
			if a.db != b.db {
				return a.db - b.db
			}
			if a.obj.Before(b.obj) {
				return -1
			}
			return 1
		})
	}
	for _, e := range objects {
		list.Add(e.db, e.obj)
		added.Add(e.db, e.obj)
	}
	loaded.Load(&list)
	got, want := contents(t, &loaded), contents(t, &added)
	if !slices.Equal(got, want) || loaded.Len() != n {
		t.Fatalf("%d objects: the index has %d objects, or another order than after Add", n, loaded.Len())
	}
	for db := range keyspace.Databases {
		if loaded.CountIn(db) != added.CountIn(db) {
			t.Errorf("%d objects: CountIn is %d for database %d, want %d", n, loaded.CountIn(db), db, added.CountIn(db))
		}
	}
	// The loaded index can be changed, and its clone then keeps the old
	// content.
	clone := loaded.Clone()
	for i, e := range want {
		if i%3 == 0 {
			loaded.Remove(e.db, e.obj)
		}
	}
	if !slices.Equal(contents(t, &clone), want) || loaded.Len() != n-(n+2)/3 {
		t.Errorf("%d objects: after %d removals the index has %d objects and its clone %d, want the clone to keep all",
			n, (n+2)/3, loaded.Len(), clone.Len())
	}
}

// indexed is an object of an index, and the database of the object.
type indexed struct {
	db  int
	obj *keyspace.Object
}

// contents returns the objects of an index in its order.
func contents(t *testing.T, e *keyspace.ExpiryIndex) (all []indexed) {
	t.Helper()
	for db := range keyspace.Databases {
		e.Scan(db, func(o *keyspace.Object) bool {
			if !e.Has(db, o) {
				t.Errorf("the index does not find %s", o.Key)
			}
			all = append(all, indexed{db, o})
			return true
		})
	}
	return all
}

// TestExpiryIndex_Databases: First returns the objects in the order of their
// deadlines. Objects with equal deadlines are in the order of their databases.
// Drop and Swap change only the databases that they name.
func TestExpiryIndex_Databases(t *testing.T) {
	e := keyspace.NewExpiryIndex()
	at := func(db int, key string, deadline int64) indexed {
		o := &keyspace.Object{Key: key, Hash: container.Hash([]byte(key)), Deadline: deadline}
		e.Add(db, o)
		return indexed{db, o}
	}
	a, b, c, d := at(3, "a", 20), at(1, "b", 20), at(15, "c", 10), at(1, "d", 30)
	if got := e.After(10); got != a.obj && got != b.obj {
		t.Errorf("After(10) returned %v, want an object with the deadline 20", got)
	}
	clone := e.Clone()
	e.Swap(1, 2)
	b.db, d.db = 2, 2
	e.Drop(15)
	if e.Len() != 3 || e.CountIn(1) != 0 || e.CountIn(2) != 2 || e.Has(15, c.obj) || !e.Has(2, d.obj) {
		t.Errorf("after Swap and Drop: %d objects, %d in 1, %d in 2", e.Len(), e.CountIn(1), e.CountIn(2))
	}
	for i, want := range []indexed{b, a, d} {
		db, o := e.First()
		if (indexed{db, o}) != want {
			t.Errorf("object %d is %v of %d, want %v of %d", i, o, db, want.obj, want.db)
		}
		e.Remove(db, o)
	}
	if _, o := e.First(); o != nil || e.Len() != 0 {
		t.Errorf("the empty index returned %v", o)
	}
	if db, o := clone.First(); clone.Len() != 4 || db != 15 || o != c.obj {
		t.Errorf("the clone has %d objects, the first is %v of %d", clone.Len(), o, db)
	}
}
