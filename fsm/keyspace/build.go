package keyspace

import (
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

// The functions in this file change many elements of a collection at once. They
// have the same result as changing the elements one by one. For many elements
// they cost far less, because they then build new tree nodes in order and do
// not search for each element.

// LargeSet reports whether a set of n members has the encoding of large values,
// whatever its members are.
func LargeSet(n int) bool { return n > intsetEntries }

// FillSet adds members to an empty set, and returns false if a member occurs
// twice. The set may share the strings with the slice. FillSet may change the
// order of the slice.
func (v *Collection) FillSet(o *container.Owner, members []container.Item[struct{}]) (distinct bool) {
	if LargeSet(len(members)) {
		v.Big = true
		v.Set, distinct = container.DictOf(o, members)
		return distinct
	}
	for i := range members {
		if !v.PutMember(o, members[i].Name) {
			return false
		}
	}
	return true
}

// FillHash adds fields with their values to an empty hash, in the order of the
// slice. It returns false if a field occurs twice. The hash may share the strings
// with the slice. FillHash may change the order of the slice.
func (v *Collection) FillHash(o *container.Owner, fields []container.Item[string]) (distinct bool) {
	if len(fields) > compactFields {
		v.Big = true
		v.Hash, distinct = container.DictOf(o, fields)
		return distinct
	}
	for i := range fields {
		if !v.PutField(o, fields[i].Name, fields[i].Value) {
			return false
		}
	}
	return true
}

// FillScores adds members with their scores to an empty sorted set. The result
// is the same as that of PutScore for each member, in the order of the slice.
// FillScores returns false if a member occurs twice. The sorted set may share the
// strings with the slice. FillScores may change the order of the slice.
func (v *Collection) FillScores(o *container.Owner, members []container.Scored) (distinct bool) {
	at := 0
	for ; at < len(members) && (!v.Big || len(members) <= CompactMembers); at++ {
		m := &members[at]
		if _, twice := v.Score.Find(m.Member); twice {
			return false
		}
		v.PutScore(o, m.Member, m.Score)
	}
	if at == len(members) {
		return true
	}
	// The scores of the other members are kept unchanged, even -0, because v
	// now has the encoding of large values.
	members = append(v.Order.Slice(0, v.Order.Len()), members[at:]...)
	scores := make([]container.Item[float64], len(members))
	for i := range members {
		m := &members[i]
		scores[i] = container.Item[float64]{Hash: container.Hash([]byte(m.Member)), Name: m.Member, Value: m.Score}
	}
	slices.SortFunc(members, func(a, b container.Scored) int { return a.Compare(&b) })
	v.Score, distinct = container.DictOf(o, scores)
	v.Order = container.SeqOf(o, members)
	return distinct
}

// rebuildShare decides whether elements are deleted one by one. If more than
// 1/rebuildShare of the elements are deleted, building a new sequence of the
// remaining elements costs less.
const rebuildShare = 16

// Rebuild reports whether building a new sequence of the remaining elements
// costs less than deleting k of n elements one by one.
func Rebuild(k, n int) bool { return k > n/rebuildShare }

// DeleteRange removes the members of a sorted set at the positions in the
// half-open range [from, to).
func (v *Collection) DeleteRange(o *container.Owner, from, to int) {
	n := v.Order.Len()
	switch {
	case to-from == n:
		v.Score, v.Order = container.Dict[float64]{}, container.Seq[container.Scored]{}
	case from < to && Rebuild(to-from, n):
		first, last := v.Order.At(from), v.Order.At(to-1)
		scores := make([]container.Item[float64], 0, n-(to-from))
		v.Score.Ascend(0, func(e *container.Item[float64]) bool {
			m := container.Scored{Score: e.Value, Member: e.Name}
			if m.Compare(&first) < 0 || m.Compare(&last) > 0 {
				scores = append(scores, *e)
			}
			return true
		})
		v.Score.Seq = container.SeqOf(o, scores)
		v.Order = container.SeqOf(o, append(v.Order.Slice(0, from), v.Order.Slice(to, n)...))
	default:
		for range to - from {
			v.Score.Remove(o, v.Order.Delete(o, from).Member)
		}
	}
}

// Keep removes all elements of a list except those at the positions in the
// half-open range [from, to).
func (v *Collection) Keep(o *container.Owner, from, to int) {
	n := v.List.Len()
	switch {
	case from >= to:
		v.List = container.Seq[string]{}
	case Rebuild(n-(to-from), n):
		v.List = container.SeqOf(o, v.List.Slice(from, to))
	default:
		for range n - to {
			v.Pop(o, false)
		}
		for range from {
			v.Pop(o, true)
		}
	}
}

// DeleteElements removes the elements of a list at some positions, which must
// ascend.
func (v *Collection) DeleteElements(o *container.Owner, positions []int) {
	n := v.List.Len()
	if !Rebuild(len(positions), n) {
		for _, at := range slices.Backward(positions) {
			v.List.Delete(o, at)
		}
		return
	}
	kept, at := make([]string, 0, n-len(positions)), 0
	v.List.Ascend(0, func(s *string) bool {
		if len(positions) > 0 && positions[0] == at {
			positions = positions[1:]
		} else {
			kept = append(kept, *s)
		}
		at++
		return true
	})
	v.List = container.SeqOf(o, kept)
}
