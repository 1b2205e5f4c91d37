// Package subsequence computes the longest common subsequence of two strings,
// for LCS.
package subsequence

import (
	"slices"
)

// Meter receives the cost of a computation before the cost arises. Charge
// receives steps of package fsm, which take about 10 ns each. Hold receives
// bytes of memory. Either function may panic to end the computation.
type Meter struct{ Charge, Hold func(n int) }

// cellsPerStep is the number of cells of the table that a step computes.
const cellsPerStep = 8

// Length returns the length of the longest common subsequence. It keeps only
// one row of the table.
func Length(a, b string, m Meter) int {
	if len(b) > len(a) {
		a, b = b, a
	}
	m.Hold(4 * len(b))
	row := make([]uint32, len(b)+1)
	for i := range len(a) {
		m.Charge(1 + len(b)/cellsPerStep)
		diagonal := uint32(0) // the cell above and to the left
		for j := range len(b) {
			above := row[j+1]
			if a[i] == b[j] {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return int(row[len(b)])
}

// Table is the table of the lengths of the longest common subsequences of all
// pairs of prefixes of two strings, reduced to the data that Trace needs to
// walk back through the table. Where the two bytes of a cell differ, the path
// back leads up if the cell above is greater than the cell to the left, and
// left otherwise. The table stores this decision as one bit for each cell. It
// does not store the lengths, of which NewTable needs only one row at a time.
type Table struct {
	a, b   string
	up     []uint64
	length int // length of the longest common subsequence of the whole strings
}

// NewTable computes the table of two strings.
func NewTable(a, b string, m Meter) *Table {
	words := (len(a)*len(b) + 63) / 64
	m.Hold(8*words + 4*len(b))
	t := &Table{a: a, b: b, up: make([]uint64, words)}
	row := make([]uint32, len(b)+1)
	for i := range len(a) {
		m.Charge(1 + len(b)/cellsPerStep)
		diagonal := uint32(0)
		for j := range len(b) {
			above, left := row[j+1], row[j]
			switch {
			case a[i] == b[j]:
				row[j+1] = diagonal + 1
			case above > left:
				row[j+1] = above
				at := i*len(b) + j
				t.up[at/64] |= 1 << (at % 64)
			default:
				row[j+1] = left
			}
			diagonal = above
		}
	}
	t.length = int(row[len(b)])
	return t
}

// upward reports whether the path back leads up from the cell of byte i of the
// first string and byte j of the second. The two bytes must differ.
func (t *Table) upward(i, j int) bool {
	at := i*len(t.b) + j
	return t.up[at/64]>>(at%64)&1 != 0
}

// Length returns the length of the longest common subsequence.
func (t *Table) Length() int { return t.length }

// Match is a run of N bytes that both strings contain, at offset A of the first
// string and at offset B of the second.
type Match struct{ A, B, N int }

// Trace walks back from the end of both strings. It returns the subsequence and
// the runs that it consists of, beginning with the last run.
func (t *Table) Trace() (text string, matches []Match) {
	var found []byte
	run := Match{}
	end := func() {
		if run.N > 0 {
			matches = append(matches, run)
		}
		run = Match{}
	}
	for i, j := len(t.a), len(t.b); i > 0 && j > 0; {
		if t.a[i-1] != t.b[j-1] {
			end()
			if t.upward(i-1, j-1) {
				i--
			} else {
				j--
			}
			continue
		}
		i--
		j--
		found = append(found, t.a[i])
		run = Match{i, j, run.N + 1}
	}
	end()
	slices.Reverse(found)
	return string(found), matches
}
