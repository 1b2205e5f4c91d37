package resp_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// TestTrace checks that a connection records a group for each pipeline with
// commands on data, after it has sent the replies. The record contains the name
// of the first command, or exec for a transaction.
func TestTrace(t *testing.T) {
	f := newFake(t)
	var mu sync.Mutex
	var got []string
	f.traces = func(group string) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, group)
	}
	c := dial(t, serve(t, f))
	c.send("SET a 1", "GET a")
	c.want("+OK", "$1\n1")
	c.expect("PING", "+PONG", "GET a", "$1\n1")
	c.send("MULTI", "INCR a", "EXEC")
	c.want("+OK", "+QUEUED", "*1\n:2")
	want := []string{"1 set true", "0 get true", "2 exec true"}
	testutil.Eventually(t, "three recorded groups", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("the recorded groups are %q, want %q", got, want)
	}
}
