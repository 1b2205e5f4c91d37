package hll

import (
	"errors"
	"fmt"
	"math"
)

// The number of elements is estimated with Ertl's formula (New cardinality
// estimation algorithms for HyperLogLog sketches, 2017), as in Redis. The
// formula needs no logarithm: only sums, products, quotients and square roots,
// which IEEE 754 rounds in exactly one way.
//
// One thing depends on the processor: Go may skip the rounding of a product
// that is then added to something, unless the product is explicitly converted
// (the language specification, Floating-point operators). Every product of
// floats here is therefore converted; TestPurity of package fsm checks this.
// All nodes compute the same integer as Redis on amd64.
//
// Commands never store a count, but all nodes must agree on it: PFCOUNT may run
// in a group that goes through the log, and a node stops if its replies differ
// from those of the leader (see Machine.link in package fsm).

// alpha is 0.5/ln(2).
const alpha = 0.721347520444481703680

// histogram counts the registers of each value.
type histogram [1 << width]int

// count estimates the number of different elements.
func (g *histogram) count() int64 {
	const m = Registers
	z := float64(m * tau(float64(m-g[hashBits+1])/m))
	for j := hashBits; j > 0; j-- {
		z = (z + float64(g[j])) / 2
	}
	z += float64(m * sigma(float64(g[0])/m))
	// Only registers that do not occur in practice give a count of more than 63
	// bits. For those, Redis returns the result of C's conversion on amd64.
	n := math.Round(alpha * m * m / z)
	if !(n < 1<<63) {
		return math.MinInt64
	}
	return int64(n)
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for last := -1.0; last != z; {
		x = math.Sqrt(x)
		last = z
		y /= 2
		z -= float64(float64((1-x)*(1-x)) * y)
	}
	return z / 3
}

func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for last := -1.0; last != z; {
		x = float64(x * x)
		last = z
		z += float64(x * y)
		y += y
	}
	return z
}

// Count returns the cached count if it is up to date. Otherwise, it estimates
// the number of elements from the registers; whole is false if the registers
// are broken.
func (h *Value) Count() (n int64, whole bool) {
	if n, ok := h.cached(); ok {
		return int64(n), true
	}
	var g histogram
	whole = h.each(func(_, n int, value byte) { g[value] += n })
	return g.count(), whole
}

// Union has the registers of the union of several values. Each register is the
// highest of the corresponding registers of the values.
type Union [Registers]byte

// Add adds the elements of h. It reports false if the registers of h are
// broken.
func (u *Union) Add(h *Value) (whole bool) {
	return h.each(func(i, n int, value byte) {
		for j := i; value > 0 && j < i+n; j++ {
			u[j] = max(u[j], value)
		}
	})
}

// Count estimates the number of elements of the union.
func (u *Union) Count() int64 {
	var g histogram
	for _, value := range u {
		g[value]++
	}
	return g.count()
}

// The self-test takes a few hundredths of a second.
const (
	testRounds   = 16      // rounds of reading and writing registers
	testElements = 100_000 // elements that are counted

	testRegistersSteps = 4096 // steps charged for writing or reading all registers once
	testElementSteps   = 32   // steps charged per element
)

// SelfTest checks that registers are read as they were written, that a sparse
// and a dense value with the same elements agree, and that the count differs
// from the number of elements by at most six times the expected error, plus
// one. SelfTest calls charge with the steps that it takes.
func SelfTest(charge func(steps int)) error {
	d := Value{make([]byte, denseSize)}
	for round := range uint64(testRounds) {
		charge(2 * testRegistersSteps)
		value := func(i int) byte { return byte(testHash(round<<32|uint64(i))) & (1<<width - 1) }
		for i := range Registers {
			d.setDense(i, value(i))
		}
		for i := range Registers {
			if got, want := d.Register(i), value(i); got != want {
				return fmt.Errorf("register %d should be %d but is %d", i, want, got)
			}
		}
	}
	s, d := New(), New()
	if !d.ToDense() {
		return errors.New("an empty value cannot be made dense")
	}
	for n, next := int64(1), int64(1); n <= testElements; n++ {
		elem := fmt.Appendf(nil, "%d", testHash(uint64(n)))
		charge(testElementSteps)
		i, value := Hash(elem)
		s.Raise(i, value)
		d.Raise(i, value)
		if n < next {
			continue
		}
		next *= 10
		var sparse, dense Union
		if !sparse.Add(&s) || !dense.Add(&d) || sparse != dense {
			return fmt.Errorf("dense and sparse disagree after %d elements", n)
		}
		// The expected error is 1.04/128, where 128 is the square root of the
		// number of registers.
		if off, most := dense.Count()-n, n*6*104/12800+1; off > most || off < -most {
			return fmt.Errorf("%d elements are counted as %d", n, n+off)
		}
	}
	return nil
}

// testHash is the finalizer of splitmix64 (Steele, Lea, Flood 2014).
func testHash(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
