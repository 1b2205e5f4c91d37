package lockdelay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

func TestParse(t *testing.T) {
	rules, err := Parse("  lock:* 15000 job:?  0 ")
	if err != nil || len(rules) != 2 || rules[0] != (Rule{"lock:*", 15e9}) || rules[1] != (Rule{"job:?", 0}) {
		t.Errorf("got the rules %v and the error %v", rules, err)
	}
	for _, text := range []string{"a", "a b", "a -1", "a 3600001", "a 1 b", "a 1.5"} {
		if rules, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, rules)
		}
	}
	if rules, err := Parse(""); err != nil || len(rules) != 0 {
		t.Errorf("rules of an empty text: %v, error %v; want none", rules, err)
	}
}

type place struct {
	db  int
	key string
}

// TestSet compares a Set with a map through random changes. It also checks that
// a clone keeps its delays when the original changes.
func TestSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s Set
	want := make(map[place]int64)
	var clone Set
	var wantClone map[place]int64
	equal := func(s *Set, want map[place]int64) {
		t.Helper()
		got := make(map[place]int64)
		s.Scan(func(db int, d Delay) bool {
			got[place{db, d.Key}] = d.Until
			return true
		})
		if !maps.Equal(got, want) || s.Len() != len(want) {
			t.Fatalf("Len is %d, and Scan visits %v, want %v", s.Len(), got, want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for p := range want {
			size += int64(delayBytes + len(p.key))
		}
		if s.Bytes() != size {
			t.Fatalf("%d bytes, want %d", s.Bytes(), size)
		}
		for p, until := range want {
			if s.Until(p.db, p.key) != until {
				t.Fatalf("Until for %v is %d, want %d", p, s.Until(p.db, p.key), until)
			}
		}
		db, d, ok := s.First()
		if ok != (len(want) > 0) {
			t.Fatalf("First returns ok %v, want true only if there are delays", ok)
		}
		for _, until := range want {
			if until < d.Until || want[place{db, d.Key}] != d.Until {
				t.Fatalf("First returns %v, which does not exist or ends after %d", d, until)
			}
		}
	}
	for i := range 3000 {
		db, other := rng.IntN(3), rng.IntN(3)
		switch rng.IntN(40) {
		case 0:
			s.Drop(db)
			maps.DeleteFunc(want, func(p place, _ int64) bool { return p.db == db })
		case 1:
			s.Swap(db, other)
			next := make(map[place]int64)
			for p, until := range want {
				switch p.db {
				case db:
					p.db = other
				case other:
					p.db = db
				}
				next[p] = until
			}
			want = next
		case 2:
			clone, wantClone = s.Clone(), maps.Clone(want)
		case 3, 4, 5, 6, 7, 8, 9, 10:
			if db, d, ok := s.First(); ok {
				s.Remove(db, d)
				delete(want, place{db, d.Key})
			}
		default:
			d := Delay{fmt.Sprint("k", 1<<rng.IntN(8)), int64(rng.IntN(100) + 1)}
			s.Put(db, d)
			want[place{db, d.Key}] = d.Until
		}
		equal(&s, want)
		if i%100 == 0 && wantClone != nil {
			equal(&clone, wantClone)
		}
	}
}
