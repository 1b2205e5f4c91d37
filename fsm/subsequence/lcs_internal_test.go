package subsequence

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// free is a Meter that counts nothing.
var free = Meter{Charge: func(int) {}, Hold: func(int) {}}

// TestLength checks that the computation with one row gives the same length as
// the computation with the whole table.
func TestLength(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		b := make([]byte, r.IntN(60))
		for i := range b {
			b[i] = byte('a' + r.IntN(3))
		}
		return string(b)
	}
	for range 2000 {
		a, b := text(), text()
		want := NewTable(a, b, free).length
		if got := Length(a, b, free); got != want {
			t.Fatalf("%q and %q: length %d, want %d", a, b, got, want)
		}
	}
}

// TestLength_Memory checks that Length does not allocate the whole table.
func TestLength_Memory(t *testing.T) {
	a, b := string(make([]byte, 4000)), string(make([]byte, 4000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Length(a, b, free)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 { // a table of lengths takes 64 MB, a Table 2 MB
		t.Errorf("Length allocates %d bytes for two strings of 4000 bytes, want at most 1 MiB", got)
	}
}

// TestTable checks that the path back through the table of bits gives the same
// subsequence as the path that Redis takes through the table of lengths.
func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var s [2]string
		for i := range s {
			b := make([]byte, r.IntN(40))
			for j := range b {
				b[j] = byte('a' + r.IntN(3))
			}
			s[i] = string(b)
		}
		a, b := s[0], s[1]
		lengths := make([][]int, len(a)+1)
		lengths[0] = make([]int, len(b)+1)
		for i := 1; i <= len(a); i++ {
			lengths[i] = make([]int, len(b)+1)
			for j := 1; j <= len(b); j++ {
				if lengths[i][j] = max(lengths[i-1][j], lengths[i][j-1]); a[i-1] == b[j-1] {
					lengths[i][j] = lengths[i-1][j-1] + 1
				}
			}
		}
		want := ""
		for i, j := len(a), len(b); i > 0 && j > 0; {
			switch {
			case a[i-1] == b[j-1]:
				want = a[i-1:i] + want
				i--
				j--
			case lengths[i-1][j] > lengths[i][j-1]:
				i--
			default:
				j--
			}
		}
		if got, _ := NewTable(a, b, free).Trace(); got != want {
			t.Fatalf("%q and %q: %q, want %q", a, b, got, want)
		}
	}
}

// TestTable_Memory checks that a cell of the table takes about one bit.
func TestTable_Memory(t *testing.T) {
	a := string(make([]byte, 4000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	NewTable(a, a, free)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 3<<20 {
		t.Errorf("NewTable allocates %d bytes for two strings of 4000 bytes, want at most 3 MiB", got)
	}
}
