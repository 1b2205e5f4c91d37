package process_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestLockMetrics_AddUp takes and releases locks through all nodes while the
// leadership moves. Each node counts only the events of the terms in which it
// leads, so the sums over the nodes equal the numbers that the clients have
// counted.
func TestLockMetrics_AddUp(t *testing.T) {
	c := startCluster(t, "--lock-history-size", "0") // the metrics do not need the history
	names := []string{
		"holdfast_locks_granted_total", `holdfast_locks_refused_total{reason="held"}`,
		`holdfast_locks_refused_total{reason="timeout"}`, `holdfast_locks_ended_total{how="released"}`,
		`holdfast_locks_ended_total{how="expired"}`, `holdfast_locks_ended_total{how="broken"}`,
		"holdfast_lock_hold_seconds_count",
	}
	seen := make(map[string]int)
	for round, to := range c.Nodes {
		for i := range 20 {
			n, key := c.Nodes[i%3], fmt.Sprintf("lock:%d:%d", round, i)
			if i%2 == 0 {
				do(t, n, "LOCK", "ACQUIRE", key, "a", "PX", "600000")
			} else {
				want(t, n, "OK", "SET", key, "a", "NX", "PX", "600000")
			}
			seen[names[0]]++
			do(t, n, "LOCK", "ACQUIRE", key, "b", "PX", "600000")
			seen[names[1]]++
			if i == 3 {
				do(t, n, "LOCK", "ACQUIRE", key, "b", "PX", "600000", "WAIT", "5")
				seen[names[2]]++
				do(t, n, "LOCK", "BREAK", key)
				seen[names[5]]++
			} else {
				want(t, n, "(integer) 1", "LOCK", "RELEASE", key, "a")
				seen[names[3]]++
			}
			seen[names[6]]++
		}
		want(t, to, "OK", "SET", "short", "a", "NX", "PX", "1")
		seen[names[0]]++
		seen[names[4]]++
		seen[names[6]]++
		if err := process.Poll(testutil.Within(t, testutil.StartLimit), "the lock to expire", func() bool {
			return sumOf(t, c, names[4]) == seen[names[4]]
		}); err != nil {
			t.Fatal(err)
		}
		if c.leader() != to {
			if o := invoke(t, nil, "member", "transfer", to.ID, "--addr", to.Clients); o.code != 0 {
				t.Fatalf("transfer to %s: %+v", to.ID, o)
			}
		}
	}
	c.settled()
	for _, name := range names {
		if got := sumOf(t, c, name); got != seen[name] {
			t.Errorf("sum of %s is %d, want %d", name, got, seen[name])
		}
	}
}

// sumOf returns the sum of a metric over the nodes.
func sumOf(t *testing.T, c *cluster, name string) (sum int) {
	t.Helper()
	for _, n := range c.Nodes {
		_, text := fetch(t, n, "/metrics")
		_, rest, found := strings.Cut(text, "\n"+name+" ")
		value, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.Atoi(value)
		if !found || err != nil {
			t.Errorf("%s of %s is %q", name, n.ID, value)
		}
		sum += v
	}
	return sum
}
