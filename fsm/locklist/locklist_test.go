package locklist

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// TestOldest checks that Oldest keeps the locks with the lowest tokens, in
// whatever order the locks are added.
func TestOldest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 7, 100, 1000} {
		for _, most := range []int{1, 2, 7, 100} {
			o := NewOldest(most)
			for _, i := range r.Perm(n) {
				if token := keyspace.Pos(i + 10); !o.Ignores(token) {
					o.Add(Lock{Token: token, Hash: uint64(i)})
				}
			}
			steps := 0
			locks, next := o.Sorted(func() { steps++ })
			if len(locks) != min(n, most) || steps != max(len(locks)-1, 0) {
				t.Fatalf("at most %d of %d locks: got %d locks, sorted in %d steps", most, n, len(locks), steps)
			}
			for i, l := range locks {
				if l != (Lock{Token: keyspace.Pos(i + 10), Hash: uint64(i)}) {
					t.Fatalf("at most %d of %d locks: lock %d is %+v", most, n, i, l)
				}
			}
			want := keyspace.Pos(0)
			if n > most {
				want = keyspace.Pos(most + 10)
			}
			if next != want {
				t.Errorf("at most %d of %d locks: next is %d, want %d", most, n, next, want)
			}
		}
	}
}

// TestPages checks that Find returns only locks that a walk has found at most
// maxAge ago, for the same query, and for a range of tokens that contains the
// parameter from. It also checks that Put drops the page whose last use is the
// oldest.
func TestPages(t *testing.T) {
	var p Pages
	a, b := Query{Match: "a*"}, Query{Match: "b*"}
	locks := []Lock{{Token: 5}, {Token: 8}}
	p.Put(a, 5, 9, locks, 1)
	p.Put(b, 5, 1000, nil, 1)
	for _, c := range []struct {
		q    Query
		from keyspace.Pos
		now  int64
		want bool
	}{
		{a, 5, 1, true}, {a, 8, 2, true}, {a, 4, 1, false}, {a, 9, 1, false}, {Query{}, 5, 1, false},
		{b, 5, 1, true}, {b, 900, maxAge + 1, true}, {b, 900, maxAge + 2, false}, {b, 900, 0, false}, {b, 1000, 1, false},
		{Query{Match: "b*", Exchanged: 7}, 5, 1, false},
		{Query{DB: 1, Match: "b*"}, 5, 1, false}, {Query{Match: "b*", ByOwner: true}, 5, 1, false},
		{Query{Match: "b*", ByMatch: true}, 5, 1, false},
	} {
		got, next, found := p.Find(c.q, c.from, c.now)
		if found != c.want || found && c.q == a && (next != 9 || !slices.Equal(got, locks)) {
			t.Errorf("Find(%+v, %d, %d) = %v, %d, %v", c.q, c.from, c.now, got, next, found)
		}
	}
	// The page that was used last stays.
	p.Find(a, 5, 1)
	for i := range maxPages - 1 {
		p.Put(Query{DB: i + 1}, 1, 2, nil, 1)
	}
	if _, _, found := p.Find(a, 5, 1); !found || len(p.pages) != maxPages {
		t.Errorf("the page that was used last: found %v, want true; %d pages are kept", found, len(p.pages))
	}
	if _, _, found := p.Find(b, 5, 1); found {
		t.Error("the page whose last use is the oldest is still there")
	}
}
