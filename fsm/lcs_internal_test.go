package fsm

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestLcsLength: one row gives the length that the whole table gives.
func TestLcsLength(t *testing.T) {
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
		want := newLcsTable(a, b).at(len(a), len(b))
		if got := lcsLength(a, b); got != want {
			t.Fatalf("%q and %q: length %d, want %d", a, b, got, want)
		}
	}
}

// TestLcsLength_Memory: the memory of LEN is linear in the shorter string.
func TestLcsLength_Memory(t *testing.T) {
	a, b := string(make([]byte, 4000)), string(make([]byte, 4000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	lcsLength(a, b)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 { // the table takes 64 MB
		t.Errorf("%d bytes for two strings of 4000 bytes", got)
	}
}
