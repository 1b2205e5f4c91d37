package container

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// check checks the invariants of n and of the nodes below it, and returns the
// number of items and the height.
func (n *node[T]) check(t *testing.T, root bool) (items, height int) {
	t.Helper()
	if len(n.items) > maxItems || len(n.items) < minItems && !root || len(n.items) == 0 {
		t.Fatalf("a node has %d items, which is too few or too many", len(n.items))
	}
	items = len(n.items)
	if n.kids == nil {
		return items, 1
	}
	if len(n.kids) != len(n.items)+1 {
		t.Fatalf("a node with %d items has %d children", len(n.items), len(n.kids))
	}
	for i, k := range n.kids {
		below, h := k.node.check(t, false)
		if below != k.n || i > 0 && h != height {
			t.Fatalf("child %d has %d items, want %d, and height %d, want %d", i, below, k.n, h, height)
		}
		items, height = items+below, h
	}
	return items, height + 1
}

// TestSeqOf checks the nodes and the items of sequences of many lengths. Then
// another owner changes a copy of each sequence, and the original must keep its
// items.
func TestSeqOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	lengths := []int{0, 1, 2, maxItems - 1, maxItems, maxItems + 1, 2 * maxItems, 64*64 - 1, 64 * 64, 64*64 + 1, 64*64*64 + 5}
	for range 50 {
		lengths = append(lengths, rng.IntN(9000))
	}
	for _, n := range lengths {
		items := make([]int, n)
		for i := range items {
			items[i] = i
		}
		owner := &Owner{}
		s := SeqOf(owner, items)
		if n > 0 {
			if got, _ := s.root.check(t, true); got != n {
				t.Fatalf("%d items, want %d", got, n)
			}
		}
		checkSeq(t, &s, items, rng)
		if from, to := rng.IntN(n+1), rng.IntN(n+1); from <= to {
			if got := s.Slice(from, to); !slices.Equal(got, items[from:to]) {
				t.Fatalf("Slice(%d, %d) of a Seq of %d items returns %d items, or other items than wanted",
					from, to, n, len(got))
			}
		}
		changed, want := s, slices.Clone(items)
		another := &Owner{}
		for range 100 {
			i := rng.IntN(len(want) + 1)
			if rng.IntN(2) == 0 || i == len(want) {
				changed.Insert(another, i, -1)
				want = slices.Insert(want, i, -1)
			} else {
				changed.Delete(another, i)
				want = slices.Delete(want, i, i+1)
			}
		}
		if len(want) > 0 {
			changed.root.check(t, true)
		}
		checkSeq(t, &changed, want, rng)
		checkSeq(t, &s, items, rng)
	}
}

// TestDictOf compares a Dict with one that was filled with Put.
func TestDictOf(t *testing.T) {
	owner := &Owner{}
	for _, n := range []int{0, 1, 100, 5000} {
		var want Dict[int]
		var items []Item[int]
		for i := range n {
			name := strconv.Itoa(i * 7919 % 10_007)
			want.Put(owner, name, i)
			items = append(items, Item[int]{Hash([]byte(name)), name, i})
		}
		got, distinct := DictOf(owner, items)
		if !distinct || !slices.Equal(got.Slice(0, got.Len()), want.Slice(0, want.Len())) {
			t.Errorf("%d names: distinct is %v, want true; the Dict has %d items, or other items than wanted",
				n, distinct, got.Len())
		}
		if n == 0 {
			continue
		}
		if _, distinct := DictOf(owner, append(items, items[n/2])); distinct {
			t.Errorf("distinct is true, want false: %d names and a repetition of one of them", n)
		}
	}
}
