package cluster_test

import (
	"strings"
	"testing"
)

// applySteps returns the cost, in steps, of the entries that a node has
// applied.
func (c *testCluster) applySteps(id string) float64 {
	c.t.Helper()
	return metric(c.t, c.node(id), "holdfast_apply_steps_total")
}

// Reads in groups that write cost the nodes nothing when they apply the log,
// nor when they restart.
func TestCostly_NodesApplyWritesOnly(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	on := c.client(c.others(leader)[0])
	const length = 1600 // 320,000 steps for an LCS
	on.must(t, "MSET", "a", strings.Repeat("x", length), "b", strings.Repeat("y", length))
	before := make(map[string]float64)
	for _, id := range c.ids() {
		before[id] = c.applySteps(id)
	}
	lcs := []string{"LCS", "a", "b", "LEN"}
	pipeline := [][]string{{"SET", "z", "1"}}
	for range 20 {
		pipeline = append(pipeline, lcs)
	}
	pipeline = append(pipeline, []string{"INCR", "z"}, lcs, []string{"GET", "z"})
	if got, err := on.pipeline(pipeline...); err != nil || got != "+OK\r\n"+strings.Repeat(":0\r\n", 20)+":2\r\n:0\r\n"+bulk("2") {
		t.Errorf("pipeline: %q, %v", clip(got), err)
	}
	if got, err := on.transaction([]string{"INCR", "z"}, lcs, lcs, []string{"INCR", "z"}); err != nil || got != "*4\r\n:3\r\n:0\r\n:0\r\n:4\r\n" {
		t.Errorf("transaction: %q, %v", clip(got), err)
	}
	refused, err := on.transaction([]string{"INCR", "z"}, lcs, lcs, lcs, lcs, lcs, lcs, lcs, lcs, []string{"INCR", "z"})
	if err != nil || !strings.HasPrefix(refused, "-BUSY the reads of a transaction") {
		t.Errorf("transaction beyond the budget: %q, %v", clip(refused), err)
	}
	c.caughtUp()
	for _, id := range c.ids() {
		if cost := c.applySteps(id) - before[id]; cost > length*length/8 {
			t.Errorf("%s: the entries cost %v steps, a single LCS %d", id, cost, length*length/8)
		}
	}
	follower := c.others(leader)[1]
	c.stop(follower)
	c.open(follower)
	c.ready(follower)
	c.caughtUp()
	if cost := c.applySteps(follower); cost > length*length/8 {
		t.Errorf("%s: the entries cost %v steps at a restart", follower, cost)
	}
	c.client(leader).want(t, bulk("4"), "GET", "z")
}
