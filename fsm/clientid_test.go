package fsm_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestClientIDs: blocks of client numbers are consecutive, even if the machine
// is restored from a snapshot in between. Reserving a block fails when the free
// numbers are used up.
func TestClientIDs(t *testing.T) {
	f := newFeed(t)
	f.raise(fsm.FeatureBudget)
	if got := f.do("_clientids 10", "_clientids 1"); got != ":1\r\n:11\r\n" {
		t.Errorf("first numbers of two blocks: %q, want 1 and 11", got)
	}
	whole := snapshotOf(t, f.m)
	if f.m = restore(t, whole); !bytes.Equal(snapshotOf(t, f.m), whole) {
		t.Error("a restored machine differs from the original")
	}
	if got := f.do("_clientids 1000"); got != ":12\r\n" {
		t.Errorf("first number of the block after a snapshot: %q, want 12", got)
	}
	for _, n := range []string{"0", "-1", "x", "4294967297"} {
		if got := f.do("_clientids " + n); !strings.HasPrefix(got, "-ERR value") {
			t.Errorf("reserving %s numbers: %q, want an error", n, got)
		}
	}
	var lines []string
	for range 1 << 10 {
		lines = append(lines, "_clientids 4294967296")
	}
	blocks, refused := 0, ""
	for refused == "" {
		for _, line := range strings.Split(strings.TrimSpace(f.do(lines...)), "\r\n") {
			if strings.HasPrefix(line, "-") {
				refused = line
				break
			}
			blocks++
		}
	}
	if blocks != 1<<20-1 || refused != "-ERR the numbers of clients are used up" {
		t.Errorf("%d blocks, then %q, want 1048575 blocks and an error", blocks, refused)
	}
}
