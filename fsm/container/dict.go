package container

import "strings"

// Dict is an ordered map from names to values. The zero value is empty and
// ordered by hash. Order may be set only while the Dict is empty; Rehash
// changes it later.
type Dict[V any] struct {
	Seq[Item[V]]
	Order Order
}

// Item is a name in a Dict with its value.
type Item[V any] struct {
	Hash  uint64 // hash of the name
	Name  string
	Value V
}

// Order is the order of the items of a Dict.
type Order byte

// These are the orders of a Dict. In ByNumber, every name must be an integer in
// the form that number.ParseInt accepts.
const (
	ByHash    Order = iota // the order of the hashes, and of the names if their hashes are equal
	ByArrival              // the order of insertion, for small values of the type hash
	ByNumber               // numeric order, for small sets of integers
)

// Find returns the position of a name and whether the Dict contains it. If the
// Dict does not contain the name, the position is the one at which to insert
// it.
func (d *Dict[V]) Find(name string) (int, bool) {
	var i int
	switch d.Order {
	case ByArrival:
		d.Ascend(0, func(e *Item[V]) bool {
			if e.Name == name {
				return false
			}
			i++
			return true
		})
		return i, i < d.Len()
	case ByNumber:
		i = d.Search(func(e *Item[V]) bool { return numberLess(e.Name, name) })
	default:
		hash := Hash([]byte(name))
		i = d.Search(func(e *Item[V]) bool { return e.Hash < hash || e.Hash == hash && e.Name < name })
	}
	return i, i < d.Len() && d.At(i).Name == name
}

// Get returns the value of a name and whether the Dict contains the name.
func (d *Dict[V]) Get(name string) (value V, ok bool) {
	i, ok := d.Find(name)
	if ok {
		value = d.At(i).Value
	}
	return value, ok
}

// Put sets the value of a name and reports whether the name is new. It copies
// the name.
func (d *Dict[V]) Put(o *Owner, name string, value V) bool {
	i, ok := d.Find(name)
	if ok {
		e := d.At(i)
		e.Value = value
		d.Set(o, i, e)
		return false
	}
	d.Insert(o, i, Item[V]{Hash([]byte(name)), strings.Clone(name), value})
	return true
}

// Remove removes a name and reports whether the Dict contained it.
func (d *Dict[V]) Remove(o *Owner, name string) bool {
	i, ok := d.Find(name)
	if ok {
		d.Delete(o, i)
	}
	return ok
}

// Rehash changes the order to ByHash.
func (d *Dict[V]) Rehash(o *Owner) {
	var n Dict[V]
	d.Ascend(0, func(e *Item[V]) bool {
		n.Put(o, e.Name, e.Value)
		return true
	})
	*d = n
}

// numberLess reports whether the integer a is less than b. Both must be in the
// form that number.ParseInt accepts.
func numberLess(a, b string) bool {
	negative := a[0] == '-'
	switch {
	case negative != (b[0] == '-'):
		return negative
	case len(a) != len(b):
		return len(a) < len(b) != negative
	}
	return a < b != negative && a != b
}
