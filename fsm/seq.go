package fsm

import "slices"

// seq is a sequence of items in a B-tree that counts: finding, reading, putting
// in and taking out by position cost O(log n). Ordered, it is a map or a sorted
// set that knows ranks; unordered, it is a list. A seq is a value of two words:
// copying it is the fork, for a node belongs to an owner, and is copied before it
// is changed for another one (see trie, which does the same). Two copies may be
// changed both only if the owner has changed since: Ctx.open sees to it.
//
// The B-tree of the expiry index would not do: it has no ranks, no positions to
// insert at, and its copies write to the original, which forks that run beside
// each other share.
type seq[T any] struct {
	root *seqNode[T]
	n    int
}

// seqOwner is an identity, as trieOwner is.
type seqOwner struct{ _ byte }

const (
	seqMax = 63 // items of a node before it is split
	seqMin = seqMax / 2
)

// seqNode holds items and, unless it is a leaf, a kid before, between and after
// each of them.
type seqNode[T any] struct {
	owner *seqOwner
	items []T
	kids  []seqKid[T]
}

// seqKid is a node and the number of items in it and below it.
type seqKid[T any] struct {
	node *seqNode[T]
	n    int
}

// Len returns the number of items.
func (s *seq[T]) Len() int { return s.n }

// At returns the item at a position, which must be one.
func (s *seq[T]) At(i int) T {
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

// Search returns the first position whose item is not before what is looked
// for; before must be true for a first part of the items and false for the rest.
func (s *seq[T]) Search(before func(*T) bool) int {
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

// own returns the node in *p, copied first if it is another owner's.
func (s *seq[T]) own(o *seqOwner, p **seqNode[T]) *seqNode[T] {
	n := *p
	if n.owner != o {
		c := &seqNode[T]{owner: o, items: append(make([]T, 0, len(n.items)+1), n.items...)}
		if n.kids != nil {
			c.kids = append(make([]seqKid[T], 0, len(n.kids)+1), n.kids...)
		}
		n = c
		*p = n
	}
	return n
}

// Set puts an item in the place of the one at a position.
func (s *seq[T]) Set(o *seqOwner, i int, item T) {
	n := s.own(o, &s.root)
	for n.kids != nil {
		j := 0
		for ; i > n.kids[j].n; j++ {
			i -= n.kids[j].n + 1
		}
		if i == n.kids[j].n {
			n.items[j] = item
			return
		}
		n = s.own(o, &n.kids[j].node)
	}
	n.items[i] = item
}

// Insert puts an item in front of the one at position i; i may be the length.
func (s *seq[T]) Insert(o *seqOwner, i int, item T) {
	if s.root == nil {
		s.root = &seqNode[T]{owner: o}
	}
	if len(s.root.items) == seqMax {
		s.root = &seqNode[T]{owner: o, kids: []seqKid[T]{{s.root, s.n}}}
		s.split(o, s.root, 0)
	}
	s.n++
	n := s.own(o, &s.root)
	for n.kids != nil {
		j := 0
		for ; i > n.kids[j].n; j++ {
			i -= n.kids[j].n + 1
		}
		if len(n.kids[j].node.items) == seqMax {
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
}

// split makes two nodes of the full kid j of n.
func (s *seq[T]) split(o *seqOwner, n *seqNode[T], j int) {
	left := s.own(o, &n.kids[j].node)
	mid := len(left.items) / 2
	item := left.items[mid]
	right := &seqNode[T]{owner: o, items: append(make([]T, 0, seqMax), left.items[mid+1:]...)}
	clear(left.items[mid:])
	left.items = left.items[:mid]
	moved := len(right.items)
	if left.kids != nil {
		right.kids = append(make([]seqKid[T], 0, seqMax+1), left.kids[mid+1:]...)
		clear(left.kids[mid+1:])
		left.kids = left.kids[:mid+1]
		for _, k := range right.kids {
			moved += k.n
		}
	}
	n.items = slices.Insert(n.items, j, item)
	n.kids = slices.Insert(n.kids, j+1, seqKid[T]{right, moved})
	n.kids[j].n -= moved + 1
}

// Delete takes out the item at a position and returns it.
func (s *seq[T]) Delete(o *seqOwner, i int) T {
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

// delete goes down the tree: it is as deep as the tree is high.
func (s *seq[T]) delete(o *seqOwner, p **seqNode[T], i int) T {
	n := s.own(o, p)
	if n.kids == nil {
		item := n.items[i]
		n.items = slices.Delete(n.items, i, i+1)
		return item
	}
	j := 0
	for ; i > n.kids[j].n; j++ {
		i -= n.kids[j].n + 1
	}
	k := &n.kids[j]
	var item T
	if i == k.n { // the item between two kids: the last one of the left takes its place
		item = n.items[j]
		n.items[j] = s.delete(o, &k.node, k.n-1)
	} else {
		item = s.delete(o, &k.node, i)
	}
	k.n--
	if len(k.node.items) < seqMin {
		s.refill(o, n, j)
	}
	return item
}

// refill mends kid j of n, which has too few items: with one of a neighbour's,
// or by making one node of both.
func (s *seq[T]) refill(o *seqOwner, n *seqNode[T], j int) {
	if j == len(n.kids)-1 {
		j-- // j and j+1 are the two
	}
	left, right := s.own(o, &n.kids[j].node), s.own(o, &n.kids[j+1].node)
	switch {
	case len(left.items)+len(right.items) < seqMax:
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

// Ascend calls f for the items from position i on until it returns false.
func (s *seq[T]) Ascend(i int, f func(*T) bool) {
	if i < s.n {
		s.root.ascend(i, f)
	}
}

func (n *seqNode[T]) ascend(i int, f func(*T) bool) bool {
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

// Descend calls f for the items from position i down until it returns false.
func (s *seq[T]) Descend(i int, f func(*T) bool) {
	if i >= 0 && s.n > 0 {
		s.root.descend(i, f)
	}
}

// descend begins at position i, which may lie behind the node's last item: a
// whole node is walked from there.
func (n *seqNode[T]) descend(i int, f func(*T) bool) bool {
	if n.kids == nil {
		for i = min(i, len(n.items)-1); i >= 0; i-- {
			if !f(&n.items[i]) {
				return false
			}
		}
		return true
	}
	start := make([]int, len(n.kids)) // positions at which the kids begin
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
