package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// TestScan_Steps checks that SCAN refuses a pattern that would take too many
// steps. KEYS has the same loop with a limit that takes seconds to reach.
func TestScan_Steps(t *testing.T) {
	m := New(NewTable())
	c := Ctx{m: m}
	c.assign(keyspace.NewObject([]byte(strings.Repeat("a", 30000)), nil))
	pattern := "*" + strings.Repeat("a", 14000) + "b*" + strings.Repeat("[a-z]", 3000)
	if got := scan(&c, [][]byte{[]byte("scan"), []byte("0"), []byte("match"), []byte(pattern)}).Text(); got != msgSteps {
		t.Errorf("SCAN: %q", got)
	}
}

// TestScan_EqualHashes checks that one call returns all keys with the same
// hash, because the cursor cannot distinguish them.
func TestScan_EqualHashes(t *testing.T) {
	m := New(NewTable())
	c := Ctx{m: m}
	for i := range 30 {
		o := keyspace.NewObject(fmt.Appendf(nil, "k%d", i), nil)
		o.Hash = uint64(1 + i/10)
		c.assign(o)
	}
	cursor, total := "0", 0
	for range 3 {
		r := scan(&c, [][]byte{[]byte("scan"), []byte(cursor), []byte("count"), []byte("1")})
		if got, want := len(r.elems[1].elems), 10; got != want {
			t.Errorf("from %s: %d keys, want %d", cursor, got, want)
		}
		total += len(r.elems[1].elems)
		cursor = r.elems[0].s
	}
	if cursor != "0" || total != 30 {
		t.Errorf("ended at %s with %d keys", cursor, total)
	}
}
