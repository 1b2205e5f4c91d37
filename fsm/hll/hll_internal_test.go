package hll

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestHLL_SelfTest(t *testing.T) {
	if err := SelfTest(func(int) {}); err != nil {
		t.Error(err)
	}
}

// TestHLL_Model raises registers of a sparse value and of an array and compares
// the two. It continues long after the value has become dense.
func TestHLL_Model(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h, dense := New(), 0
		var model Union
		for step := range 6000 {
			i, value := rng.IntN(1<<(4+rng.IntN(11))), byte(1+rng.IntN(1<<rng.IntN(6)))
			changed, whole := h.Raise(i, value)
			if want := value > model[i]; changed != want || !whole {
				t.Fatalf("seed %d, step %d: Raise returns changed %v and whole %v, unlike the model",
					seed, step, changed, whole)
			}
			model[i] = max(model[i], value)
			if !h.Sparse() {
				dense++
			} else if len(h.b) > SparseMax {
				t.Fatalf("seed %d, step %d: the sparse value has %d bytes, more than SparseMax", seed, step, len(h.b))
			}
			if step%100 != 0 && dense != 1 {
				continue
			}
			var got Union
			if !got.Add(&h) || got != model {
				t.Fatalf("seed %d, step %d: the registers differ from the model", seed, step)
			}
		}
		if dense == 0 {
			t.Errorf("seed %d: the value never became dense", seed)
		}
	}
}

// TestHLL_Broken checks that broken values are detected, and that Raise refuses
// a sparse value that is too long.
func TestHLL_Broken(t *testing.T) {
	head := string(New().b[:header])
	for runs, want := range map[string]bool{
		"\x7f\xff": true, "\x7f": false, "": false, "\x7f\xff\x00": false, "\x7f\xfe": false, "\x7f\xfe\x00": true,
		"\x7f\xfe\x80": true, "\x7f\xfe\x81": false, "\x40\x00\x7f\xfe": true,
		strings.Repeat("\x3f", 256): true, strings.Repeat("\x83", 4096): true, strings.Repeat("\x83", 4097): false,
		strings.Repeat("\x40\x00", Registers): true,
	} {
		h := Value{[]byte(head + runs)}
		if got := h.each(func(int, int, byte) {}); got != want {
			t.Errorf("%.20q: whole is %v, want %v", runs, got, want)
		}
		if got := h.ToDense(); got != want || h.Sparse() == want {
			t.Errorf("%.20q: ToDense returns %v, want %v; the value must be sparse only if it fails", runs, got, want)
		}
	}
	long := Value{[]byte(head + strings.Repeat("\x40\x00", Registers) + "\x00")}
	if _, whole := long.Raise(0, 1); whole {
		t.Error("Raise accepts a sparse value that is longer than sparseMost")
	}
}

// TestHLL_Hash checks that the hash function has not changed. It must never
// change, because values that earlier programs stored depend on it.
func TestHLL_Hash(t *testing.T) {
	type hash struct {
		i     int
		value byte
	}
	for elem, want := range map[string]hash{"": {5938, 2}, "a": {12711, 2}, "hello": {9216, 1}, "12345678": {10579, 3},
		"longer than eight": {8046, 1}} {
		if i, value := Hash([]byte(elem)); (hash{i, value}) != want {
			t.Errorf("%q: register %d, value %d, want %v", elem, i, value, want)
		}
	}
}

func TestHLL_Count(t *testing.T) {
	for _, c := range []struct {
		value byte
		n     int
		want  int64
	}{{0, 0, 0}, {1, 1, 1}, {1, 2, 2}, {1, 1000, 1031}, {2, 1000, 1032}, {40, 16384, 12994641697113596},
		{51, 16384, math.MinInt64}, {63, 1, 1}} {
		g := histogram{0: Registers - c.n}
		g[c.value] += c.n
		if got := g.count(); got != c.want {
			t.Errorf("%d registers with the value %d: count %d, want %d", c.n, c.value, got, c.want)
		}
	}
}

// FuzzHLL checks that no value makes a method panic, and that Raise leaves the
// registers of a value well-formed if they were well-formed before.
func FuzzHLL(f *testing.F) {
	f.Add(New().b, []byte("a b c"))
	f.Add(append(New().b[:header], "\x40\x00\x83\x83\x3f\x7f\x00"...), []byte("elem"))
	dense := New()
	dense.ToDense()
	f.Add(dense.b, []byte("x y"))
	f.Fuzz(func(t *testing.T, value, elems []byte) {
		if !Is(string(value)) {
			return
		}
		h := Value{bytes.Clone(value)}
		whole := h.each(func(i, n int, _ byte) {
			if i+n > Registers {
				t.Fatalf("each reports the registers %d to %d, more than a value has", i, i+n)
			}
		})
		h.Describe()
		for _, elem := range bytes.Fields(elems) {
			i, value := Hash(elem)
			changed, ok := h.Raise(i, value)
			if whole && !ok || changed && !ok {
				t.Fatalf("Raise for %q: changed %v, whole %v; before, whole was %v", elem, changed, ok, whole)
			}
			if again, _ := h.Raise(i, value); again {
				t.Fatalf("%q raises a register twice", elem)
			}
		}
		var u Union
		if got := u.Add(&h); whole && !got {
			t.Fatal("the registers were whole, and Raise broke them")
		}
	})
}

func BenchmarkHLL(b *testing.B) {
	for _, n := range []int{100, 1000, 100_000} {
		h := New()
		for i := range n {
			h.Raise(Hash(fmt.Appendf(nil, "e%d", i)))
		}
		h.Invalidate()
		b.Run(fmt.Sprintf("count %d", n), func(b *testing.B) {
			for b.Loop() {
				h.Count()
			}
		})
		b.Run(fmt.Sprintf("add to %d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				h.Raise(Hash(fmt.Appendf(nil, "e%d", i%n)))
			}
		})
	}
	b.Run("self test", func(b *testing.B) {
		for b.Loop() {
			if err := SelfTest(func(int) {}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestRaiser: a Raiser changes a value to the same bytes as Raise.
func TestRaiser(t *testing.T) {
	type raise struct {
		i     int
		value byte
	}
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		one := New()
		for range rnd.IntN(1200) {
			one.Raise(rnd.IntN(Registers), byte(1+rnd.IntN(4)))
		}
		whole := string(one.Bytes())
		if seed%5 == 0 { // some runs are broken
			b := one.Bytes()
			b[header+rnd.IntN(len(b)-header)] ^= byte(1 << rnd.IntN(8))
			whole = string(b)
		}
		near := rnd.IntN(Registers - 1500)
		var raises []raise
		for range rnd.IntN(2000) {
			i := rnd.IntN(Registers)
			if seed%2 == 0 { // neighbors, whose runs are joined
				i = near + rnd.IntN(1500)
			}
			raises = append(raises, raise{i, byte(1 + rnd.IntN(4+int(seed%40)))})
		}
		if seed%3 == 0 { // as PFMERGE does
			slices.SortFunc(raises, func(a, b raise) int { return cmp.Compare(a.i, b.i) })
		}
		one, fast := Of(whole), Of(whole)
		r := NewRaiser(&fast)
		for at, x := range raises {
			changed, ok := one.Raise(x.i, x.value)
			fastChanged, fastOK := r.Raise(x.i, x.value)
			if changed != fastChanged || ok != fastOK || !bytes.Equal(one.Bytes(), fast.Bytes()) {
				t.Fatalf("seed %d: Raise %d returns %v, %v and makes %q; a Raiser returns %v, %v and makes %q", seed, at,
					changed, ok, one.Describe(), fastChanged, fastOK, fast.Describe())
			}
		}
	}
}
