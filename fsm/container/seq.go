// Package container implements the containers that hold the elements of
// collections: Seq, a sequence with ranks, and Dict, a map with an order.
//
// Both are persistent in the sense of Driscoll, Sarnak, Sleator and Tarjan:
// copying one takes O(1), and the copy and the original share their nodes. Each
// node has an Owner, and a change by another Owner copies the node first.
package container

import "slices"

// Seq is a sequence of items, stored in a counted B-tree: finding, reading,
// inserting and deleting an item by its position cost O(log n). An ordered Seq
// is a map or a sorted set with ranks; an unordered Seq is a list. The zero
// value is empty and ready to use.
//
// A Seq is a value of three words, and copying it makes a copy-on-write clone.
// Each node belongs to an owner, and a change by another owner copies the node
// first. After a Seq has been copied, the original and the copy may both be
// changed only by owners that are newer than the copy. Otherwise a change of
// one would also change the other.
//
// The B-tree of package btree cannot replace Seq: it cannot return the position
// of an item or insert at a position. Also, copying that B-tree writes to it, so
// clones that run concurrently could not copy the tree that they share.
type Seq[T any] struct {
	root  *node[T]
	n     int
	bytes int64 // sum of the sizes of the items: see Bytes
}

// Owner identifies an owner of nodes: two owners are the same if their pointers
// are equal. Only the owner of a node may change the node in place.
type Owner struct{ _ byte }

const (
	maxItems = 63 // maximum number of items in a node
	minItems = maxItems / 2
)

// node is a node of the tree. It has items and, unless it is a leaf, a child
// before, between and after the items.
type node[T any] struct {
	owner *Owner
	items []T
	kids  []kid[T]
}

// kid is a child of a node, with the number of items in the child and below it.
type kid[T any] struct {
	node *node[T]
	n    int
}

// Len returns the number of items.
func (s *Seq[T]) Len() int { return s.n }

// Bytes returns the approximate memory of the items, in bytes. It depends on the
// items alone, and not on the order in which they were inserted. Bytes takes
// O(1).
func (s *Seq[T]) Bytes() int64 { return s.bytes }

// At returns the item at a position, which must exist.
func (s *Seq[T]) At(i int) T {
	n := s.root
	for n.kids != nil {
		j := 0
		for ; i > n.kids[j].n; j++ {
			i -= n.kids[j].n + 1
		}
		if i == n.kids[j].n {
			return n.items[j]
		}
		n = n.kids[j].node
	}
	return n.items[i]
}

// Search returns the position of the first item for which before returns false, or
// the length if there is none. before must return true for all items of some prefix
// of the sequence and false for the rest.
func (s *Seq[T]) Search(before func(*T) bool) int {
	rank := 0
	for n := s.root; n != nil; {
		lo, hi := 0, len(n.items)
		for lo < hi {
			if mid := (lo + hi) / 2; before(&n.items[mid]) {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		rank += lo
		if n.kids == nil {
			break
		}
		for _, k := range n.kids[:lo] {
			rank += k.n
		}
		n = n.kids[lo].node
	}
	return rank
}

// own returns the node in *p. If the node belongs to an owner other than o, own
// first replaces it with a copy.
func (s *Seq[T]) own(o *Owner, p **node[T]) *node[T] {
	n := *p
	if n.owner != o {
		c := &node[T]{owner: o, items: append(make([]T, 0, len(n.items)+1), n.items...)}
		if n.kids != nil {
			c.kids = append(make([]kid[T], 0, len(n.kids)+1), n.kids...)
		}
		n = c
		*p = n
	}
	return n
}

// Set replaces the item at a position.
func (s *Seq[T]) Set(o *Owner, i int, item T) {
	n := s.own(o, &s.root)
	for n.kids != nil {
		j := 0
		for ; i > n.kids[j].n; j++ {
			i -= n.kids[j].n + 1
		}
		if i == n.kids[j].n {
			s.put(&n.items[j], item)
			return
		}
		n = s.own(o, &n.kids[j].node)
	}
	s.put(&n.items[i], item)
}

// put replaces *place, which must be an item in a node.
func (s *Seq[T]) put(place *T, item T) {
	s.bytes -= sizeOf(place)
	*place = item
	s.bytes += sizeOf(place)
}

// Insert inserts an item before the one at position i. i may be the length.
func (s *Seq[T]) Insert(o *Owner, i int, item T) {
	if s.root == nil {
		s.root = &node[T]{owner: o}
	}
	if len(s.root.items) == maxItems {
		s.root = &node[T]{owner: o, kids: []kid[T]{{s.root, s.n}}}
		s.split(o, s.root, 0)
	}
	s.n++
	n := s.own(o, &s.root)
	for n.kids != nil {
		j := 0
		for ; i > n.kids[j].n; j++ {
			i -= n.kids[j].n + 1
		}
		if len(n.kids[j].node.items) == maxItems {
			s.split(o, n, j)
			if i > n.kids[j].n {
				i -= n.kids[j].n + 1
				j++
			}
		}
		n.kids[j].n++
		n = s.own(o, &n.kids[j].node)
	}
	n.items = slices.Insert(n.items, i, item)
	s.bytes += sizeOf(&n.items[i])
}

// split divides the full child j of n into two nodes.
func (s *Seq[T]) split(o *Owner, n *node[T], j int) {
	left := s.own(o, &n.kids[j].node)
	mid := len(left.items) / 2
	item := left.items[mid]
	right := &node[T]{owner: o, items: append(make([]T, 0, maxItems), left.items[mid+1:]...)}
	clear(left.items[mid:])
	left.items = left.items[:mid]
	moved := len(right.items)
	if left.kids != nil {
		right.kids = append(make([]kid[T], 0, maxItems+1), left.kids[mid+1:]...)
		clear(left.kids[mid+1:])
		left.kids = left.kids[:mid+1]
		for _, k := range right.kids {
			moved += k.n
		}
	}
	n.items = slices.Insert(n.items, j, item)
	n.kids = slices.Insert(n.kids, j+1, kid[T]{right, moved})
	n.kids[j].n -= moved + 1
}

// Delete removes the item at a position and returns it.
func (s *Seq[T]) Delete(o *Owner, i int) T {
	item := s.delete(o, &s.root, i)
	s.n--
	if len(s.root.items) == 0 {
		if s.root.kids == nil {
			s.root = nil
		} else {
			s.root = s.root.kids[0].node
		}
	}
	return item
}

// delete removes the item at position i below *p. The depth of the recursion is
// the height of the tree.
func (s *Seq[T]) delete(o *Owner, p **node[T], i int) T {
	n := s.own(o, p)
	if n.kids == nil {
		item := n.items[i]
		s.bytes -= sizeOf(&n.items[i])
		n.items = slices.Delete(n.items, i, i+1)
		return item
	}
	j := 0
	for ; i > n.kids[j].n; j++ {
		i -= n.kids[j].n + 1
	}
	k := &n.kids[j]
	var item T
	if i == k.n { // the item is between two children; the last item of the left child replaces it
		item = n.items[j]
		s.bytes -= sizeOf(&n.items[j])
		n.items[j] = s.delete(o, &k.node, k.n-1)
		s.bytes += sizeOf(&n.items[j]) // the item stays in the tree, but delete has subtracted its size
	} else {
		item = s.delete(o, &k.node, i)
	}
	k.n--
	if len(k.node.items) < minItems {
		s.refill(o, n, j)
	}
	return item
}

// refill repairs child j of n, which has too few items. It moves an item from a
// neighbor or merges the two nodes.
func (s *Seq[T]) refill(o *Owner, n *node[T], j int) {
	if j == len(n.kids)-1 {
		j-- // the two nodes are j and j+1
	}
	left, right := s.own(o, &n.kids[j].node), s.own(o, &n.kids[j+1].node)
	switch {
	case len(left.items)+len(right.items) < maxItems:
		left.items = append(append(left.items, n.items[j]), right.items...)
		left.kids = append(left.kids, right.kids...)
		n.kids[j].n += 1 + n.kids[j+1].n
		n.items = slices.Delete(n.items, j, j+1)
		n.kids = slices.Delete(n.kids, j+1, j+2)
	case len(left.items) < len(right.items):
		left.items = append(left.items, n.items[j])
		n.items[j] = right.items[0]
		right.items = slices.Delete(right.items, 0, 1)
		moved := 1
		if right.kids != nil {
			moved += right.kids[0].n
			left.kids = append(left.kids, right.kids[0])
			right.kids = slices.Delete(right.kids, 0, 1)
		}
		n.kids[j].n += moved
		n.kids[j+1].n -= moved
	default:
		last := len(left.items) - 1
		right.items = slices.Insert(right.items, 0, n.items[j])
		n.items[j] = left.items[last]
		left.items = slices.Delete(left.items, last, last+1)
		moved := 1
		if left.kids != nil {
			k := left.kids[last+1]
			moved += k.n
			right.kids = slices.Insert(right.kids, 0, k)
			left.kids = slices.Delete(left.kids, last+1, last+2)
		}
		n.kids[j].n -= moved
		n.kids[j+1].n += moved
	}
}

// Ascend calls f for the items from position i to the end until f returns
// false.
func (s *Seq[T]) Ascend(i int, f func(*T) bool) {
	if i < s.n {
		s.root.ascend(i, f)
	}
}

func (n *node[T]) ascend(i int, f func(*T) bool) bool {
	if n.kids == nil {
		for ; i < len(n.items); i++ {
			if !f(&n.items[i]) {
				return false
			}
		}
		return true
	}
	for j, k := range n.kids {
		if i > k.n {
			i -= k.n + 1
			continue
		}
		if i < k.n && !k.node.ascend(i, f) {
			return false
		}
		i = 0
		if j < len(n.items) && !f(&n.items[j]) {
			return false
		}
	}
	return true
}

// Descend calls f for the items from position i down to the first until f
// returns false.
func (s *Seq[T]) Descend(i int, f func(*T) bool) {
	if i >= 0 && s.n > 0 {
		s.root.descend(i, f)
	}
}

// descend walks a node backward from position i. If i is beyond the node's last
// item, it walks the whole node.
func (n *node[T]) descend(i int, f func(*T) bool) bool {
	if n.kids == nil {
		for i = min(i, len(n.items)-1); i >= 0; i-- {
			if !f(&n.items[i]) {
				return false
			}
		}
		return true
	}
	start := make([]int, len(n.kids)) // the positions at which the children begin
	at := 0
	for j, k := range n.kids {
		start[j] = at
		at += k.n + 1
	}
	for j := len(n.kids) - 1; j >= 0; j-- {
		if j < len(n.items) && start[j]+n.kids[j].n <= i && !f(&n.items[j]) {
			return false
		}
		if start[j] <= i && !n.kids[j].node.descend(i-start[j], f) {
			return false
		}
	}
	return true
}
