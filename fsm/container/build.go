package container

import (
	"cmp"
	"slices"
)

// SeqOf returns a Seq of items whose nodes belong to o. It costs far less than
// inserting the items one by one. SeqOf copies the items.
func SeqOf[T any](o *Owner, items []T) Seq[T] {
	s := Seq[T]{n: len(items)}
	if s.n == 0 {
		return s
	}
	for i := range items {
		s.bytes += sizeOf(&items[i])
	}
	var kids []kid[T] // the nodes of the level below, one more than items; nil for the level of the leaves
	for {
		// The items divide a level into len(items)+1 gaps. Each node gets about
		// the same number of gaps, the items between them and, unless it is a
		// leaf, a child for each gap. The item between the last gap of a node
		// and the first gap of the next node goes to the level above.
		gaps := len(items) + 1
		nodes := (gaps + maxItems) / (maxItems + 1)
		level, above := make([]kid[T], 0, nodes), make([]T, 0, nodes-1)
		for i := range nodes {
			from, to := gaps*i/nodes, gaps*(i+1)/nodes
			n := &node[T]{owner: o, items: append(make([]T, 0, to-from-1), items[from:to-1]...)}
			size := to - from - 1
			if kids != nil {
				n.kids = append(make([]kid[T], 0, to-from), kids[from:to]...)
				for _, k := range n.kids {
					size += k.n
				}
			}
			level = append(level, kid[T]{n, size})
			if i < nodes-1 {
				above = append(above, items[to-1])
			}
		}
		if nodes == 1 {
			s.root = level[0].node
			return s
		}
		items, kids = above, level
	}
}

// Slice returns the items at the positions in the half-open range [from, to).
func (s *Seq[T]) Slice(from, to int) []T {
	items := make([]T, 0, max(to-from, 0))
	if from < to {
		s.Ascend(from, func(e *T) bool {
			items = append(items, *e)
			return len(items) < to-from
		})
	}
	return items
}

// DictOf returns a Dict of items, in the order ByHash, whose nodes belong to o.
// It sorts the slice. Unlike Put, DictOf does not copy the names. It returns
// false if a name occurs twice.
func DictOf[V any](o *Owner, items []Item[V]) (d Dict[V], distinct bool) {
	slices.SortFunc(items, func(a, b Item[V]) int { return a.Compare(&b) })
	for i := 1; i < len(items); i++ {
		if items[i-1].Hash == items[i].Hash && items[i-1].Name == items[i].Name {
			return d, false
		}
	}
	d.Seq = SeqOf(o, items)
	return d, true
}

// Compare returns -1, 0 or 1 if a is before b, equal to b or after b in the
// order ByHash.
func (a *Item[V]) Compare(b *Item[V]) int {
	switch {
	case a.Hash < b.Hash:
		return -1
	case a.Hash > b.Hash:
		return 1
	}
	return cmp.Compare(a.Name, b.Name)
}
