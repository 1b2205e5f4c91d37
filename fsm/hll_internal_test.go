package fsm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestHLL_SelfTest(t *testing.T) {
	if err := hllSelfTest(); err != nil {
		t.Error(err)
	}
}

// TestHLL_Model raises registers of a sparse value and of an array, until long
// after the value is dense.
func TestHLL_Model(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h, dense := newHLL(), 0
		var model hllUnion
		for step := range 6000 {
			i, value := rng.IntN(1<<(4+rng.IntN(11))), byte(1+rng.IntN(1<<rng.IntN(6)))
			changed, whole := h.raise(i, value)
			if want := value > model[i]; changed != want || !whole {
				t.Fatalf("seed %d, step %d: changed %v, whole %v", seed, step, changed, whole)
			}
			model[i] = max(model[i], value)
			if !h.sparse() {
				dense++
			} else if len(h.b) > hllSparseMax {
				t.Fatalf("seed %d, step %d: %d bytes", seed, step, len(h.b))
			}
			if step%100 != 0 && dense != 1 {
				continue
			}
			var got hllUnion
			if !got.add(&h) || got != model {
				t.Fatalf("seed %d, step %d: registers differ", seed, step)
			}
		}
		if dense == 0 {
			t.Errorf("seed %d: never dense", seed)
		}
	}
}

// TestHLL_Broken: values that are not whole are found out, and in bounded time.
func TestHLL_Broken(t *testing.T) {
	head := string(newHLL().b[:hllHeader])
	for runs, want := range map[string]bool{
		"\x7f\xff": true, "\x7f": false, "": false, "\x7f\xff\x00": false, "\x7f\xfe": false, "\x7f\xfe\x00": true, "\x7f\xfe\x80": true, "\x7f\xfe\x81": false, "\x40\x00\x7f\xfe": true,
		strings.Repeat("\x3f", 256): true, strings.Repeat("\x83", 4096): true, strings.Repeat("\x83", 4097): false, strings.Repeat("\x40\x00", hllRegisters): true,
	} {
		h := hll{[]byte(head + runs)}
		if got := h.each(func(int, int, byte) {}); got != want {
			t.Errorf("%.20q: whole is %v, want %v", runs, got, want)
		}
		if got := h.toDense(); got != want || h.sparse() == want {
			t.Errorf("%.20q: made dense: %v, want %v", runs, got, want)
		}
	}
	long := hll{[]byte(head + strings.Repeat("\x40\x00", hllRegisters) + "\x00")}
	if _, whole := long.raise(0, 1); whole {
		t.Error("a value that is too long is changed")
	}
}

// TestHLL_Hash holds on to the hash: values outlive the program.
func TestHLL_Hash(t *testing.T) {
	type hash struct {
		i     int
		value byte
	}
	for elem, want := range map[string]hash{"": {5938, 2}, "a": {12711, 2}, "hello": {9216, 1}, "12345678": {10579, 3}, "longer than eight": {8046, 1}} {
		if i, value := hllHash([]byte(elem)); (hash{i, value}) != want {
			t.Errorf("%q: register %d, value %d, want %v", elem, i, value, want)
		}
	}
}

func TestHLL_Count(t *testing.T) {
	for _, c := range []struct {
		value byte
		n     int
		want  int64
	}{{0, 0, 0}, {1, 1, 1}, {1, 2, 2}, {1, 1000, 1031}, {2, 1000, 1032}, {40, 16384, 12994641697113596}, {51, 16384, math.MinInt64}, {63, 1, 1}} {
		g := hllHistogram{0: hllRegisters - c.n}
		g[c.value] += c.n
		if got := g.count(); got != c.want {
			t.Errorf("%d registers of %d: %d, want %d", c.n, c.value, got, c.want)
		}
	}
}

// FuzzHLL: no value makes a command panic, and what was whole stays so.
func FuzzHLL(f *testing.F) {
	f.Add(newHLL().b, []byte("a b c"))
	f.Add(append(newHLL().b[:hllHeader], "\x40\x00\x83\x83\x3f\x7f\x00"...), []byte("elem"))
	dense := newHLL()
	dense.toDense()
	f.Add(dense.b, []byte("x y"))
	f.Fuzz(func(t *testing.T, value, elems []byte) {
		if !isHLL(string(value)) {
			return
		}
		h := hll{bytes.Clone(value)}
		whole := h.each(func(i, n int, _ byte) {
			if i+n > hllRegisters {
				t.Fatalf("registers %d to %d", i, i+n)
			}
		})
		h.describe()
		for _, elem := range bytes.Fields(elems) {
			i, value := hllHash(elem)
			changed, ok := h.raise(i, value)
			if whole && !ok || changed && !ok {
				t.Fatalf("%q: changed %v, whole %v, was %v", elem, changed, ok, whole)
			}
			if again, _ := h.raise(i, value); again {
				t.Fatalf("%q raises a register twice", elem)
			}
		}
		var u hllUnion
		if got := u.add(&h); whole && !got {
			t.Fatal("broken by commands")
		}
	})
}

func BenchmarkHLL(b *testing.B) {
	for _, n := range []int{100, 1000, 100_000} {
		h := newHLL()
		for i := range n {
			h.raise(hllHash(fmt.Appendf(nil, "e%d", i)))
		}
		h.invalidate()
		b.Run(fmt.Sprintf("count %d", n), func(b *testing.B) {
			for b.Loop() {
				h.count()
			}
		})
		b.Run(fmt.Sprintf("add to %d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				h.raise(hllHash(fmt.Appendf(nil, "e%d", i%n)))
			}
		})
	}
	b.Run("self test", func(b *testing.B) {
		for b.Loop() {
			if err := hllSelfTest(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
