// Package hll implements HyperLogLog values. The values equal those of Redis,
// byte for byte. If a client reads a value with GET and stores it in a Redis
// server with SET, PFCOUNT returns the same number there.
package hll

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// A HyperLogLog is a string with this layout:
//
//	"HYLL" | encoding | 3 zeros | cached count, 8 bytes, little endian | registers
//
// The highest bit of the cached count says that the count is out of date. The
// registers are 16384 numbers of 6 bits. In a dense value they are packed, with
// the lowest bits of each byte first. In a sparse value they are runs of equal
// registers:
//
//	00nnnnnn            n+1 registers that are 0
//	01nnnnnn nnnnnnnn   n+1 registers that are 0
//	1vvvvvnn            n+1 registers that are v+1
//
// The runs of a value depend on the order of the changes that made it. All
// nodes and Redis apply the changes in the same way: see setSparse.
const (
	magic     = "HYLL"
	header    = 16
	indexBits = 14 // bits of a hash that select the register
	// Registers is the number of registers of a value.
	Registers = 1 << indexBits
	hashBits  = 64 - indexBits // the remaining bits
	width     = 6              // bits of a register
	// denseSize is the length of a dense value.
	denseSize = header + Registers*width/8

	dense  = 0 // values of the byte for the encoding
	sparse = 1

	// SparseMax is hll-sparse-max-bytes: a value that would become longer is
	// converted to the dense encoding.
	SparseMax = 3000
	// sparseMost is the length that a sparse value with 16384 registers cannot
	// exceed. A longer value is broken, and changing it would take a long time.
	sparseMost = header + 2*Registers

	shortZeros = 64 // maximum number of registers in a run of zeros of one byte
	shortRun   = 4  // maximum number of registers in a run of another value
	sparseTop  = 32 // the largest value of a register that a run can hold
)

// registerRun is a run of equal registers. size is its length in bytes.
type registerRun struct {
	value byte
	n     int
	size  int
}

// runAt reads the run at the start of b. An incomplete run has size 0.
func runAt(b []byte) registerRun {
	switch {
	case len(b) == 0:
		return registerRun{}
	case b[0]&0x80 != 0:
		return registerRun{value: b[0]>>2&0x1f + 1, n: int(b[0]&3) + 1, size: 1}
	case b[0]&0x40 == 0:
		return registerRun{n: int(b[0]) + 1, size: 1}
	case len(b) == 1:
		return registerRun{}
	}
	return registerRun{n: int(b[0]&0x3f)<<8 + int(b[1]) + 1, size: 2}
}

// appendRun appends a run of n registers, or nothing if n is 0. A run of a
// value other than 0 has at most 4 registers.
func appendRun(b []byte, value byte, n int) []byte {
	switch {
	case n == 0:
		return b
	case value > 0:
		return append(b, 0x80|(value-1)<<2|byte(n-1))
	case n <= shortZeros:
		return append(b, byte(n-1))
	}
	return append(b, 0x40|byte((n-1)>>8), byte(n-1))
}

// Value is a HyperLogLog that may be changed.
type Value struct{ b []byte }

// Of returns a string as a HyperLogLog. The function Is must report true for
// this string. Of copies the string.
func Of(s string) Value { return Value{[]byte(s)} }

// Bytes returns the bytes of h, without copying them.
func (h *Value) Bytes() []byte { return h.b }

// New returns an empty, sparse HyperLogLog.
func New() Value {
	b := make([]byte, header, header+2)
	copy(b, magic)
	b[4] = sparse
	return Value{appendRun(b, 0, Registers)}
}

// Is reports whether a string has the header of a HyperLogLog and, if it is
// dense, the right length. Sparse registers may still be broken.
func Is(s string) bool {
	return len(s) >= header && s[:4] == magic &&
		(s[4] == sparse || s[4] == dense && len(s) == denseSize)
}

// Sparse reports whether h is in the sparse encoding.
func (h *Value) Sparse() bool { return h.b[4] == sparse }

// Invalidate marks the cached count as out of date.
func (h *Value) Invalidate() { h.b[15] |= 0x80 }

// cached returns the count in the header if it is up to date.
func (h *Value) cached() (n uint64, ok bool) {
	n = binary.LittleEndian.Uint64(h.b[8:])
	return n, n>>63 == 0
}

// Register returns a register of a dense value.
func (h *Value) Register(i int) byte {
	at, shift := header+i*width/8, i*width%8
	v := uint(h.b[at])
	if at+1 < len(h.b) {
		v |= uint(h.b[at+1]) << 8
	}
	return byte(v >> shift & (1<<width - 1))
}

func (h *Value) setDense(i int, value byte) {
	at, shift := header+i*width/8, i*width%8
	mask, v := uint(1<<width-1)<<shift, uint(value)<<shift
	h.b[at] = h.b[at]&^byte(mask) | byte(v)
	if mask>>8 != 0 {
		h.b[at+1] = h.b[at+1]&^byte(mask>>8) | byte(v>>8)
	}
}

// each calls f for the registers, run by run, and reports whether the number of
// registers is exactly right.
func (h *Value) each(f func(i, n int, value byte)) (whole bool) {
	i := 0
	if !h.Sparse() {
		for b := h.b[header:]; len(b) > 2; b = b[3:] { // four registers
			v := uint(b[0]) | uint(b[1])<<8 | uint(b[2])<<16
			for range 4 {
				f(i, 1, byte(v&(1<<width-1)))
				v >>= width
				i++
			}
		}
		return true
	}
	for b := h.b[header:]; len(b) > 0; {
		run := runAt(b)
		if run.size == 0 || run.n > Registers-i {
			return false
		}
		f(i, run.n, run.value)
		i += run.n
		b = b[run.size:]
	}
	return i == Registers
}

// ToDense converts the value to the dense encoding and keeps the cached count.
// It reports false if the registers are broken.
func (h *Value) ToDense() bool {
	if !h.Sparse() {
		return true
	}
	d := Value{make([]byte, denseSize)}
	copy(d.b, h.b[:header])
	d.b[4] = dense
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

// Raise sets a register to a value if the value is higher. It reports whether
// it changed the register, and whether the encoding of the registers that it
// read is valid.
func (h *Value) Raise(i int, value byte) (changed, whole bool) {
	switch {
	case h.Sparse():
		return h.setSparse(&cursor{at: header}, i, value)
	case h.Register(i) >= value:
		return false, true
	}
	h.setDense(i, value)
	return true, true
}

// cursor is the position of a run in a sparse value: its offset, and the index of
// its first register.
type cursor struct{ at, first int }

// setSparse implements Raise for a sparse value. It splits the run with the
// register and joins neighboring runs that have equal values and fit into one
// run. It looks at five runs and does not join runs of zeros. Redis does the
// same. The bytes of the value depend on these rules.
//
// The search for the register begins at the cursor. The run at the cursor must be
// the first one, or have only registers before i. Otherwise the run before the
// register's run, which may be joined with it, would not be known. The cursor
// moves on to a run that this call does not change, and that a call for a register
// with a larger index does not change either.
func (h *Value) setSparse(from *cursor, i int, value byte) (changed, whole bool) {
	if len(h.b) > sparseMost {
		return false, false
	}
	// at and before are the offsets of the current run and of the previous one.
	// first is the first register of the current run.
	at, before, first := from.at, from.at, from.first
	last := *from // the previous run
	run := runAt(h.b[at:])
	for run.size > 0 && i >= first+run.n {
		*from, last = last, cursor{at, first}
		before, first = at, first+run.n
		at += run.size
		run = runAt(h.b[at:])
	}
	switch {
	case run.size == 0:
		return false, false
	case run.value >= value:
		return false, true
	case value > sparseTop:
		return h.promote(i, value)
	}
	split := appendRun(make([]byte, 0, 5), run.value, i-first)
	split = appendRun(split, value, 1)
	split = appendRun(split, run.value, first+run.n-1-i)
	if grown := len(split) - run.size; grown > 0 && len(h.b)+grown > SparseMax {
		return h.promote(i, value)
	}
	h.splice(at, run.size, split)
	h.join(before)
	h.Invalidate()
	return true, true
}

func (h *Value) promote(i int, value byte) (changed, whole bool) {
	if !h.ToDense() {
		return false, false
	}
	h.setDense(i, value)
	return true, true
}

// splice replaces the n bytes at a position with b.
func (h *Value) splice(at, n int, b []byte) { h.b = slices.Replace(h.b, at, at+n, b...) }

// join joins adjacent runs with the same value, beginning with the run at a
// position.
func (h *Value) join(at int) {
	for looks := 5; looks > 0; looks-- {
		run := runAt(h.b[at:])
		if run.size == 0 {
			return
		}
		if run.value > 0 {
			next := runAt(h.b[at+1:])
			if n := run.n + next.n; next.value == run.value && n <= shortRun {
				h.splice(at, 2, appendRun(make([]byte, 0, 1), run.value, n))
				continue
			}
		}
		at += run.size
	}
}

// Describe returns a description of the runs of a sparse value. It stops at an
// incomplete run.
func (h *Value) Describe() string {
	var runs []string
	for b := h.b[header:]; ; {
		run := runAt(b)
		text := strconv.Itoa(run.n)
		switch {
		case run.size == 0:
			return strings.Join(runs, " ")
		case run.size == 2:
			text = "Z:" + text
		case run.value == 0:
			text = "z:" + text
		default:
			text = "v:" + strconv.Itoa(int(run.value)) + "," + text
		}
		runs = append(runs, text)
		b = b[run.size:]
	}
}

// Hash returns the register of an element and the value that the element gives
// to the register. This value is the position, counted from 1, of the lowest
// bit that is 1 in the rest of the element's hash.
func Hash(elem []byte) (i int, value byte) {
	h := murmur64(elem, 0xadc83b19)
	rest := h>>indexBits | 1<<hashBits
	return int(h & (Registers - 1)), byte(bits.TrailingZeros64(rest)) + 1
}

// murmur64 is MurmurHash64A, which Austin Appleby put in the public domain. The
// result does not depend on the byte order of the machine.
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
