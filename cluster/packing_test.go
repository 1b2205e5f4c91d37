package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
)

// TestPacking_HeavyWrites checks that a pipeline of heavy writes gets several
// entries, that a transaction that is too heavy for a shared entry is executed, and
// that a transaction that would take too long is refused. The client is connected to
// a follower.
func TestPacking_HeavyWrites(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.MaxWriteTime = 50 * time.Millisecond })
	leader := c.leader()
	on := c.client(c.others(leader)[0])
	var members []string
	for i := range 1000 { // a union of two such sorted sets takes about 2 ms
		members = append(members, fmt.Sprint(i), fmt.Sprint("m", i))
	}
	on.must(t, slices.Concat([]string{"ZADD", "set"}, members)...)
	on.must(t, slices.Concat([]string{"ZADD", "same"}, members)...)
	union := []string{"ZUNIONSTORE", "sum", "2", "set", "same"}
	const entries = "holdfast_proposer_entries_total"
	before := metric(t, c.node(leader), entries)
	var pipeline, many [][]string
	for range 8 {
		pipeline = append(pipeline, union)
	}
	pipeline = append(pipeline, []string{"INCR", "n"})
	if got, err := on.pipeline(pipeline...); err != nil || got != strings.Repeat(":1000\r\n", 8)+":1\r\n" {
		t.Errorf("pipeline: %q, %v, want the replies of all commands", clip(got), err)
	}
	if n := metric(t, c.node(leader), entries) - before; n < 4 {
		t.Errorf("8 unions took %v entries, want at least 4", n)
	}
	// This transaction takes 6 ms, so it waits for its slot.
	if got, err := on.transaction(union, union, union, []string{"INCR", "n"}); err != nil || got != "*4\r\n:1000\r\n:1000\r\n:1000\r\n:2\r\n" {
		t.Errorf("transaction: %q, %v, want the replies of all commands", clip(got), err)
	}
	for range 40 {
		many = append(many, union)
	}
	if got, err := on.transaction(append(many, []string{"INCR", "n"})...); err != nil || !strings.HasPrefix(got, "-BUSY the command or transaction would take about ") {
		t.Errorf("a transaction of 80 ms: %q, %v, want a refusal", clip(got), err)
	}
	on.want(t, bulk("2"), "GET", "n")
}
