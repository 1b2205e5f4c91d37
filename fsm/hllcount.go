package fsm

import (
	"errors"
	"fmt"
	"math"
)

// How many elements a HyperLogLog has seen is estimated with Ertl's formula (New
// cardinality estimation algorithms for HyperLogLog sketches, 2017), as Redis does
// it. It needs no logarithm: sums, products, quotients and square roots, which
// IEEE 754 rounds in one way only. What is left to the machine is whether it rounds a
// product before it adds to it: Go lets it do without (the language specification,
// Floating-point operators), save where the product is converted. So every product
// in this package is (TestPurity looks), and the count is the same integer on all nodes
// and the one that Redis gives on amd64.
//
// It has to be, although counts are not stored: PFCOUNT may run in a group that
// goes through the log, and a node whose replies are not the leader's stops (see
// Machine.link).

// hllAlpha is 0.5/ln(2).
const hllAlpha = 0.721347520444481703680

// hllHistogram counts the registers of each value.
type hllHistogram [1 << hllWidth]int

// count estimates how many different elements there were.
func (g *hllHistogram) count() int64 {
	const m = hllRegisters
	z := float64(m * hllTau(float64(m-g[hllQ+1])/m))
	for j := hllQ; j > 0; j-- {
		z = (z + float64(g[j])) / 2
	}
	z += float64(m * hllSigma(float64(g[0])/m))
	// Only registers that no hashes can have given are beyond 64 bits. What Redis
	// makes of those is C's conversion on amd64.
	n := math.Round(hllAlpha * m * m / z)
	if !(n < 1<<63) {
		return math.MinInt64
	}
	return int64(n)
}

func hllTau(x float64) float64 {
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

func hllSigma(x float64) float64 {
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

// count returns the number of elements by the header, or by the registers. It
// reports false if those are broken.
func (h *hll) count() (n int64, whole bool) {
	if n, ok := h.cached(); ok {
		return int64(n), true
	}
	var g hllHistogram
	whole = h.each(func(_, n int, value byte) { g[value] += n })
	return g.count(), whole
}

// hllUnion holds the highest of the registers of several values.
type hllUnion [hllRegisters]byte

// add reports false if the registers of h are broken.
func (u *hllUnion) add(h *hll) (whole bool) {
	return h.each(func(i, n int, value byte) {
		for j := i; value > 0 && j < i+n; j++ {
			u[j] = max(u[j], value)
		}
	})
}

func (u *hllUnion) count() int64 {
	var g hllHistogram
	for _, value := range u {
		g[value]++
	}
	return g.count()
}

// Bounds of the self test: it takes some hundredths of a second.
const (
	hllTestRounds   = 16
	hllTestElements = 100_000
)

// hllSelfTest looks whether registers are read as they were written, and whether
// sparse and dense values that see the same elements agree with each other, and
// with the number of elements within six times the error to be expected.
func hllSelfTest() error {
	d := hll{make([]byte, hllDenseSize)}
	for round := range uint64(hllTestRounds) {
		value := func(i int) byte { return byte(mix(round<<32|uint64(i))) & (1<<hllWidth - 1) }
		for i := range hllRegisters {
			d.setDense(i, value(i))
		}
		for i := range hllRegisters {
			if got, want := d.denseAt(i), value(i); got != want {
				return fmt.Errorf("register %d should be %d but is %d", i, want, got)
			}
		}
	}
	s, d := newHLL(), newHLL()
	if !d.toDense() {
		return errors.New("an empty value cannot be made dense")
	}
	for n, next := int64(1), int64(1); n <= hllTestElements; n++ {
		elem := fmt.Appendf(nil, "%d", mix(uint64(n)))
		i, value := hllHash(elem)
		s.raise(i, value)
		d.raise(i, value)
		if n < next {
			continue
		}
		next *= 10
		var sparse, dense hllUnion
		if !sparse.add(&s) || !dense.add(&d) || sparse != dense {
			return fmt.Errorf("dense and sparse disagree after %d elements", n)
		}
		// The error to be expected is 1.04 in 128, the root of the registers' number.
		if off, most := dense.count()-n, n*6*104/12800+1; off > most || off < -most {
			return fmt.Errorf("%d elements are counted as %d", n, n+off)
		}
	}
	return nil
}
