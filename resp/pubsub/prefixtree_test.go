package pubsub

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestPrefixTree_Model checks that the tree finds the same strings as a search
// of all strings, after random additions and removals. It also checks that the
// tree has no nodes left after the removal of all strings.
func TestPrefixTree_Model(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	word := func() string {
		b := make([]byte, r.IntN(7))
		for i := range b {
			b[i] = "abc"[r.IntN(3)]
		}
		return string(b)
	}
	var tree prefixTree[string]
	model := make(map[string]bool)
	for step := range 50_000 {
		switch w := word(); r.IntN(5) {
		case 0, 1:
			*tree.at(w), model[w] = w, true
		case 2, 3:
			tree.delete(w)
			delete(model, w)
		default:
			var want, got []string
			for n := range len(w) + 1 {
				if model[w[:n]] {
					want = append(want, w[:n])
				}
			}
			tree.walk(w, func(left string, v *string) {
				if *v != strings.TrimSuffix(w, left) {
					t.Fatalf("after the prefix %q, walk returned the rest %q of %q", *v, left, w)
				}
				got = append(got, *v)
			})
			if !slices.Equal(got, want) {
				t.Fatalf("step %d: prefixes of %q are %q, want %q", step, w, got, want)
			}
			if v := tree.get(w); (v != nil) != model[w] {
				t.Fatalf("step %d: %q has a value: %v, want %v", step, w, v != nil, model[w])
			}
		}
		if tree.len() != len(model) {
			t.Fatalf("step %d: the tree has %d strings, want %d", step, tree.len(), len(model))
		}
	}
	for w := range model {
		tree.delete(w)
	}
	if len(tree.root.children) != 0 || tree.root.value != nil {
		t.Errorf("the empty tree has %d children, want none", len(tree.root.children))
	}
}
