package container

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSeq compares a Seq with a slice through random changes. It also checks
// that later changes do not affect the copies that were made in between.
func TestSeq(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		owner := &Owner{}
		var s Seq[int]
		var want []int
		type copied struct {
			s    Seq[int]
			want []int
		}
		var copies []copied
		grow := true
		for step := range 20000 {
			if len(want) > 6000 || len(want) == 0 {
				grow = len(want) == 0
			}
			switch op := rng.IntN(10); {
			case op < 6 == grow || len(want) == 0:
				i := rng.IntN(len(want) + 1)
				switch seed {
				case 1:
					i = len(want)
				case 2:
					i = 0
				}
				s.Insert(owner, i, step)
				want = slices.Insert(want, i, step)
			case op == 9:
				i := rng.IntN(len(want))
				s.Set(owner, i, -step)
				want[i] = -step
			default:
				i := rng.IntN(len(want))
				if got := s.Delete(owner, i); got != want[i] {
					t.Fatalf("seed %d, step %d: deleted %d, want %d", seed, step, got, want[i])
				}
				want = slices.Delete(want, i, i+1)
			}
			if rng.IntN(1000) == 0 {
				copies = append(copies, copied{s, slices.Clone(want)})
				owner = &Owner{}
			}
		}
		copies = append(copies, copied{s, want})
		for _, c := range copies {
			checkSeq(t, &c.s, c.want, rng)
		}
	}
}

func checkSeq(t *testing.T, s *Seq[int], want []int, rng *rand.Rand) {
	t.Helper()
	if s.Len() != len(want) {
		t.Fatalf("%d items, want %d", s.Len(), len(want))
	}
	for range 20 {
		from := rng.IntN(len(want) + 1)
		var got []int
		s.Ascend(from, func(v *int) bool { got = append(got, *v); return true })
		if !slices.Equal(got, want[from:]) {
			t.Fatalf("ascending from %d: got %d items, which differ from the wanted items", from, len(got))
		}
		got = nil
		s.Descend(from, func(v *int) bool { got = append(got, *v); return true })
		slices.Reverse(got)
		if !slices.Equal(got, want[:min(from+1, len(want))]) {
			t.Fatalf("descending from %d: got %d items, want %d; if the numbers are equal, the items differ",
				from, len(got), from+1)
		}
		if from < len(want) {
			if got := s.At(from); got != want[from] {
				t.Fatalf("item %d is %d, want %d", from, got, want[from])
			}
		}
	}
	n := 0
	s.Ascend(0, func(*int) bool { n++; return n < 10 })
	s.Descend(s.Len()-1, func(*int) bool { n++; return n < 20 })
	if len(want) > 10 && n != 20 {
		t.Fatalf("Ascend and Descend called their functions %d times, want 20", n)
	}
}

// TestSeq_Search checks the ranks in an ordered Seq.
func TestSeq_Search(t *testing.T) {
	var s Seq[int]
	owner := &Owner{}
	for i := range 5000 {
		s.Insert(owner, s.Search(func(v *int) bool { return *v < i*7919%5000*2 }), i*7919%5000*2)
	}
	for want := range 5000 {
		for _, v := range []int{want * 2, want*2 - 1} {
			if got := s.Search(func(x *int) bool { return *x < v }); got != want {
				t.Fatalf("rank of %d is %d, want %d", v, got, want)
			}
		}
	}
}
