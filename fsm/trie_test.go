package fsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

// model is the simple implementation with which a trie must agree.
type model map[string]*object

func (m model) sorted() []*object {
	var out []*object
	for _, o := range m {
		out = append(out, o)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].hash != out[j].hash {
			return out[i].hash < out[j].hash
		}
		return out[i].key < out[j].key
	})
	return out
}

func (t *trie) all() []*object {
	var out []*object
	t.Scan(func(s slot) bool { out = append(out, s.obj); return true })
	return out
}

func checkTrie(t *testing.T, tr *trie, m model) {
	t.Helper()
	if tr.Len() != len(m) {
		t.Fatalf("Len %d, want %d", tr.Len(), len(m))
	}
	if got, want := tr.all(), m.sorted(); !slices.Equal(got, want) {
		t.Fatalf("walk gives %d objects, or in another order than the %d wanted", len(got), len(want))
	}
	for k, o := range m {
		if got := tr.Get(o.hash, k); got != o {
			t.Fatalf("Get(%q) = %v, want %v", k, got, o)
		}
	}
}

func TestTrie_AgreesWithAMap(t *testing.T) {
	for _, tc := range []struct {
		name string
		hash func(k string) uint64
		keys int
	}{
		{"real hashes", func(k string) uint64 { return container.Hash([]byte(k)) }, 5000},
		{"few hashes", func(k string) uint64 { return container.Hash([]byte(k))%7 + 1 }, 300},
		{"one prefix", func(k string) uint64 { return 1<<51 | container.Hash([]byte(k))&0xfff }, 3000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			type pair struct {
				tr *trie
				m  model
			}
			pairs := []pair{{newTrie(), model{}}}
			for step := range 20000 {
				p := &pairs[rng.IntN(len(pairs))]
				k := fmt.Sprint("k", rng.IntN(tc.keys))
				o := &object{key: k, hash: tc.hash(k)}
				if rng.IntN(3) > 0 {
					if got, want := p.tr.Set(o), p.m[k]; got != want {
						t.Fatalf("Set(%q) = %v, want %v", k, got, want)
					}
					p.m[k] = o
				} else {
					_, want := p.m[k]
					if got := p.tr.Delete(o); got != want {
						t.Fatalf("Delete(%q) = %v, want %v", k, got, want)
					}
					delete(p.m, k)
				}
				if step%4000 == 1999 { // original and clone change independently from here
					m := model{}
					for k, o := range p.m {
						m[k] = o
					}
					pairs = append(pairs, pair{p.tr.clone(), m})
				}
			}
			for _, p := range pairs {
				checkTrie(t, p.tr, p.m)
			}
		})
	}
}

func TestTrie_AscendStartsAtHash(t *testing.T) {
	tr, m := newTrie(), model{}
	for i := range 4000 {
		k := fmt.Sprint(i)
		o := &object{key: k, hash: container.Hash([]byte(k))}
		tr.Set(o)
		m[k] = o
	}
	want := m.sorted()
	for i := 0; i < len(want); i += 37 {
		for _, from := range []uint64{want[i].hash, want[i].hash - 1, want[i].hash + 1} {
			at := sort.Search(len(want), func(j int) bool { return want[j].hash >= from })
			var got []*object
			tr.Ascend(from, func(s slot) bool { got = append(got, s.obj); return len(got) < 5 })
			if !slices.Equal(got, want[at:min(at+5, len(want))]) {
				t.Fatalf("Ascend(%#x) gives other objects than wanted", from)
			}
		}
	}
}

func BenchmarkTrieGet(b *testing.B) {
	const n = 1 << 20
	tr := newTrie()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key:", i)
		tr.Set(&object{key: keys[i], hash: container.Hash([]byte(keys[i]))})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	b.ResetTimer()
	for range b.N {
		k := keys[rng.IntN(n)]
		tr.Get(container.Hash([]byte(k)), k)
	}
}
