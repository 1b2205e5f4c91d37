package keyspace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/container"
)

// model is the simple implementation with which a DB must agree.
type model map[string]*Object

func (m model) sorted() []*Object {
	var out []*Object
	for _, o := range m {
		out = append(out, o)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Hash != out[j].Hash {
			return out[i].Hash < out[j].Hash
		}
		return out[i].Key < out[j].Key
	})
	return out
}

func (t *DB) all() []*Object {
	var out []*Object
	t.Scan(func(o *Object) bool { out = append(out, o); return true })
	return out
}

func checkDB(t *testing.T, tr *DB, m model) {
	t.Helper()
	if tr.Len() != len(m) {
		t.Fatalf("Len %d, want %d", tr.Len(), len(m))
	}
	if got, want := tr.all(), m.sorted(); !slices.Equal(got, want) {
		t.Fatalf("Ascend visits %d objects, want %d; if the numbers are equal, the order differs", len(got), len(want))
	}
	for k, o := range m {
		if got := tr.hashed(o.Hash, k); got != o {
			t.Fatalf("Get(%q) = %v, want %v", k, got, o)
		}
	}
}

func TestDB_AgreesWithAMap(t *testing.T) {
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
				tr *DB
				m  model
			}
			pairs := []pair{{NewDB(), model{}}}
			for step := range 20000 {
				p := &pairs[rng.IntN(len(pairs))]
				k := fmt.Sprint("k", rng.IntN(tc.keys))
				o := &Object{Key: k, Hash: tc.hash(k)}
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
				if step%4000 == 1999 { // from here on, the original and the clone change independently
					m := model{}
					for k, o := range p.m {
						m[k] = o
					}
					pairs = append(pairs, pair{p.tr.Clone(), m})
				}
			}
			for _, p := range pairs {
				checkDB(t, p.tr, p.m)
			}
		})
	}
}

func TestDB_AscendStartsAtHash(t *testing.T) {
	tr, m := NewDB(), model{}
	for i := range 4000 {
		k := fmt.Sprint(i)
		o := &Object{Key: k, Hash: container.Hash([]byte(k))}
		tr.Set(o)
		m[k] = o
	}
	want := m.sorted()
	for i := 0; i < len(want); i += 37 {
		for _, from := range []uint64{want[i].Hash, want[i].Hash - 1, want[i].Hash + 1} {
			at := sort.Search(len(want), func(j int) bool { return want[j].Hash >= from })
			var got []*Object
			tr.Ascend(from, func(o *Object) bool { got = append(got, o); return len(got) < 5 })
			if !slices.Equal(got, want[at:min(at+5, len(want))]) {
				t.Fatalf("Ascend(%#x) visits other objects than the first five that are wanted", from)
			}
		}
	}
}

func BenchmarkDBGet(b *testing.B) {
	const n = 1 << 20
	tr := NewDB()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key:", i)
		tr.Set(&Object{Key: keys[i], Hash: container.Hash([]byte(keys[i]))})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	b.ResetTimer()
	for range b.N {
		k := keys[rng.IntN(n)]
		tr.hashed(container.Hash([]byte(k)), k)
	}
}
