package fsm

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// A HyperLogLog is a string, laid out to the byte as Redis does it, so that a
// value that GET returns here may be SET there:
//
//	"HYLL" | encoding | 3 zeros | cached count, 8 bytes, little endian | registers
//
// The highest bit of the cached count says that the count is out of date. The
// registers are 16384 numbers of 6 bits. Dense, they stand one behind the other,
// the lowest bits of each byte first. Sparse, they are runs of equal registers:
//
//	00nnnnnn            n+1 registers that are 0
//	01nnnnnn nnnnnnnn   n+1 registers that are 0
//	1vvvvvnn            n+1 registers that are v+1
//
// Which runs a value has depends on the order of what was done to it, and all
// nodes and Redis do it in the same order: see setSparse.
const (
	hllMagic     = "HYLL"
	hllHeader    = 16
	hllP         = 14 // bits of a hash that choose the register
	hllRegisters = 1 << hllP
	hllQ         = 64 - hllP // bits that are left
	hllWidth     = 6         // bits of a register
	hllDenseSize = hllHeader + hllRegisters*hllWidth/8

	hllDense  = 0 // values of the byte for the encoding
	hllSparse = 1

	// hllSparseMax is hll-sparse-max-bytes: a value that would grow beyond it
	// becomes dense.
	hllSparseMax = 3000
	// No value whose runs make 16384 registers is longer than this. Longer ones
	// are broken, and to change one would take long.
	hllSparseMost = hllHeader + 2*hllRegisters

	hllShortZeros = 64 // registers of a run, at most
	hllShortRun   = 4
	hllSparseTop  = 32 // the largest register that a run can hold
)

// hllRun is a run of equal registers; size is the number of its bytes.
type hllRun struct {
	value byte
	n     int
	size  int
}

// runAt reads the run at the head of b. A run that is cut off has size 0.
func runAt(b []byte) hllRun {
	switch {
	case len(b) == 0:
		return hllRun{}
	case b[0]&0x80 != 0:
		return hllRun{value: b[0]>>2&0x1f + 1, n: int(b[0]&3) + 1, size: 1}
	case b[0]&0x40 == 0:
		return hllRun{n: int(b[0]) + 1, size: 1}
	case len(b) == 1:
		return hllRun{}
	}
	return hllRun{n: int(b[0]&0x3f)<<8 + int(b[1]) + 1, size: 2}
}

// appendRun adds a run of n registers, none if n is 0. A run of a value is 4
// registers at most.
func appendRun(b []byte, value byte, n int) []byte {
	switch {
	case n == 0:
		return b
	case value > 0:
		return append(b, 0x80|(value-1)<<2|byte(n-1))
	case n <= hllShortZeros:
		return append(b, byte(n-1))
	}
	return append(b, 0x40|byte((n-1)>>8), byte(n-1))
}

// hll is a HyperLogLog that is being changed: a copy of the key's value.
type hll struct{ b []byte }

// newHLL returns one of which nothing is known yet.
func newHLL() hll {
	b := make([]byte, hllHeader, hllHeader+2)
	copy(b, hllMagic)
	b[4] = hllSparse
	return hll{appendRun(b, 0, hllRegisters)}
}

// isHLL reports whether a string says of itself that it is a HyperLogLog. Sparse
// registers may be broken all the same.
func isHLL(s string) bool {
	return len(s) >= hllHeader && s[:4] == hllMagic &&
		(s[4] == hllSparse || s[4] == hllDense && len(s) == hllDenseSize)
}

func (h *hll) sparse() bool { return h.b[4] == hllSparse }

// invalidate says that the cached count is out of date.
func (h *hll) invalidate() { h.b[15] |= 0x80 }

// cached returns the count in the header, if it is good.
func (h *hll) cached() (n uint64, ok bool) {
	n = binary.LittleEndian.Uint64(h.b[8:])
	return n, n>>63 == 0
}

// denseAt reads a register of a dense value.
func (h *hll) denseAt(i int) byte {
	at, shift := hllHeader+i*hllWidth/8, i*hllWidth%8
	v := uint(h.b[at])
	if at+1 < len(h.b) {
		v |= uint(h.b[at+1]) << 8
	}
	return byte(v >> shift & (1<<hllWidth - 1))
}

func (h *hll) setDense(i int, value byte) {
	at, shift := hllHeader+i*hllWidth/8, i*hllWidth%8
	mask, v := uint(1<<hllWidth-1)<<shift, uint(value)<<shift
	h.b[at] = h.b[at]&^byte(mask) | byte(v)
	if mask>>8 != 0 {
		h.b[at+1] = h.b[at+1]&^byte(mask>>8) | byte(v>>8)
	}
}

// each calls f for the registers, run by run, and reports whether there are as
// many as there must be.
func (h *hll) each(f func(i, n int, value byte)) (whole bool) {
	i := 0
	if !h.sparse() {
		for b := h.b[hllHeader:]; len(b) > 2; b = b[3:] { // four registers
			v := uint(b[0]) | uint(b[1])<<8 | uint(b[2])<<16
			for range 4 {
				f(i, 1, byte(v&(1<<hllWidth-1)))
				v >>= hllWidth
				i++
			}
		}
		return true
	}
	for b := h.b[hllHeader:]; len(b) > 0; {
		run := runAt(b)
		if run.size == 0 || run.n > hllRegisters-i {
			return false
		}
		f(i, run.n, run.value)
		i += run.n
		b = b[run.size:]
	}
	return i == hllRegisters
}

// toDense makes the value dense, the header with its cached count kept. It
// reports false if the registers are broken.
func (h *hll) toDense() bool {
	if !h.sparse() {
		return true
	}
	d := hll{make([]byte, hllDenseSize)}
	copy(d.b, h.b[:hllHeader])
	d.b[4] = hllDense
	whole := h.each(func(i, n int, value byte) {
		for ; value > 0 && n > 0; i, n = i+1, n-1 {
			d.setDense(i, value)
		}
	})
	if whole {
		*h = d
	}
	return whole
}

// raise gives a register a value if that is more than it has. It reports whether
// it did, and whether the registers are whole as far as it looked.
func (h *hll) raise(i int, value byte) (changed, whole bool) {
	switch {
	case h.sparse():
		return h.setSparse(i, value)
	case h.denseAt(i) >= value:
		return false, true
	}
	h.setDense(i, value)
	return true, true
}

// setSparse is raise for a sparse value. The run with the register is split, and
// of the runs around it those with equal values are made one if they fit: five
// runs are looked at, and zeros are not joined. So Redis does it, and the bytes
// depend on it.
func (h *hll) setSparse(i int, value byte) (changed, whole bool) {
	if len(h.b) > hllSparseMost {
		return false, false
	}
	at, before, first := hllHeader, hllHeader, 0 // the run with the register, the run before it
	run := runAt(h.b[at:])
	for run.size > 0 && i >= first+run.n {
		before, first = at, first+run.n
		at += run.size
		run = runAt(h.b[at:])
	}
	switch {
	case run.size == 0:
		return false, false
	case run.value >= value:
		return false, true
	case value > hllSparseTop:
		return h.promote(i, value)
	}
	split := appendRun(make([]byte, 0, 5), run.value, i-first)
	split = appendRun(split, value, 1)
	split = appendRun(split, run.value, first+run.n-1-i)
	if grown := len(split) - run.size; grown > 0 && len(h.b)+grown > hllSparseMax {
		return h.promote(i, value)
	}
	h.splice(at, run.size, split)
	h.join(before)
	h.invalidate()
	return true, true
}

func (h *hll) promote(i int, value byte) (changed, whole bool) {
	if !h.toDense() {
		return false, false
	}
	h.setDense(i, value)
	return true, true
}

// splice puts b in the place of n bytes.
func (h *hll) splice(at, n int, b []byte) {
	if len(b) != n {
		tail := bytes.Clone(h.b[at+n:])
		h.b = append(append(h.b[:at], b...), tail...)
		return
	}
	copy(h.b[at:], b)
}

// join makes one run of neighbours with the same value, from a run on.
func (h *hll) join(at int) {
	for looks := 5; looks > 0; looks-- {
		run := runAt(h.b[at:])
		if run.size == 0 {
			return
		}
		if run.value > 0 {
			next := runAt(h.b[at+1:])
			if n := run.n + next.n; next.value == run.value && n <= hllShortRun {
				h.splice(at, 2, appendRun(make([]byte, 0, 1), run.value, n))
				continue
			}
		}
		at += run.size
	}
}

// hllHash returns the register that an element counts in, and the value that it
// gives it: the place of the lowest bit that is 1 of the rest of its hash.
func hllHash(elem []byte) (i int, value byte) {
	h := murmur64(elem, 0xadc83b19)
	rest := h>>hllP | 1<<hllQ
	return int(h & (hllRegisters - 1)), byte(bits.TrailingZeros64(rest)) + 1
}

// murmur64 is MurmurHash64A, which Austin Appleby has put in the public domain,
// for machines of any byte order.
func murmur64(b []byte, seed uint64) uint64 {
	const m = 0xc6a4a7935bd1e995
	const r = 47
	h := seed ^ uint64(len(b))*m
	for ; len(b) >= 8; b = b[8:] {
		k := binary.LittleEndian.Uint64(b) * m
		k ^= k >> r
		h = (h ^ k*m) * m
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		h = (h ^ binary.LittleEndian.Uint64(tail[:])) * m
	}
	h ^= h >> r
	h *= m
	return h ^ h>>r
}
