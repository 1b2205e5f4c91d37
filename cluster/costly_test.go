package cluster_test

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// applySteps returns the cost, in steps, of the entries that a node has
// applied.
func (c *testCluster) applySteps(id string) float64 {
	c.t.Helper()
	return metric(c.t, c.node(id), "holdfast_apply_steps_total")
}

// The nodes do not execute the reads of groups that write, neither when they apply
// the log nor when they restart.
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
		t.Errorf("pipeline: %q, %v, want the replies of all commands", clip(got), err)
	}
	if got, err := on.transaction([]string{"INCR", "z"}, lcs, lcs, []string{"INCR", "z"}); err != nil || got != "*4\r\n:3\r\n:0\r\n:0\r\n:4\r\n" {
		t.Errorf("transaction: %q, %v, want the replies of all commands", clip(got), err)
	}
	refused, err := on.transaction([]string{"INCR", "z"}, lcs, lcs, lcs, lcs, lcs, lcs, lcs, lcs, []string{"INCR", "z"})
	if err != nil || !strings.HasPrefix(refused, "-BUSY the reads of a transaction") {
		t.Errorf("transaction beyond the budget: %q, %v, want a refusal", clip(refused), err)
	}
	c.caughtUp()
	for _, id := range c.ids() {
		if cost := c.applySteps(id) - before[id]; cost > length*length/8 {
			t.Errorf("%s: applying the entries cost %v steps, want at most %d, the cost of a single LCS", id, cost, length*length/8)
		}
	}
	follower := c.others(leader)[1]
	c.stop(follower)
	c.open(follower)
	c.ready(follower)
	c.caughtUp()
	if cost := c.applySteps(follower); cost > length*length/8 {
		t.Errorf("%s: applying the entries at a restart cost %v steps, want at most the cost of a single LCS", follower, cost)
	}
	c.client(leader).want(t, bulk("4"), "GET", "z")
}

// The large reply of a script does not go through the log if the script only reads.
// A script that writes is executed exactly once, or is rolled back if its reply is
// too large for the log.
func TestCostly_LargeRepliesOfScripts(t *testing.T) {
	t.Parallel()
	c := scripted(t, newLines())
	leader := c.leader()
	const size = 300_000
	for i, id := range []string{leader, c.others(leader)[0]} {
		on := c.client(id)
		value := strings.Repeat("x", size)
		on.must(t, "SET", "big", value)
		on.must(t, "SET", "n", "0")
		logged := func() float64 { return metric(t, c.node(leader), "holdfast_proposer_entry_bytes_sum") }

		read := "ECHO " + strconv.Itoa(i) + "\nGET big" // differs for each node, so that the script is not in the cache yet
		before := logged()
		for range 3 { // the first command puts the script into the cache; the later commands begin as reads
			on.want(t, bulk(value), "EVAL", read, "1", "big")
		}
		on.want(t, "*1\r\n:1\r\n", "SCRIPT", "EXISTS", sha1Of(read))
		on.want(t, bulk(value), "EVALSHA", sha1Of(read), "1", "big")
		if grown := logged() - before; grown > size {
			t.Errorf("%s: four scripts that only read %d bytes each took %.0f bytes of the log", id, size, grown)
		}

		// The last script of the connection was executed as a read.
		on.want(t, ":1\r\n", "EVAL", "INCR n", "1", "n")
		writes := 1
		for _, script := range []string{
			"INCR n\nGET big",
			"try INCR n\nGET big", // the script ignores the error that INCR gets in a read
			"GET big\nINCR n\nGET big",
		} {
			for range 2 {
				on.want(t, bulk(value), "EVAL", script, "2", "big", "n")
				writes++
				on.want(t, bulk(strconv.Itoa(writes)), "GET", "n")
			}
		}

		huge := strings.Repeat("y", 600_000)
		on.must(t, "RPUSH", "huge"+id, huge, huge)
		got, err := on.do("EVAL", "INCR n\nLRANGE huge"+id+" 0 -1", "2", "huge", "n")
		if err != nil || !strings.HasPrefix(got, "-ERR script returns more than 1 MiB and was rolled back") {
			t.Errorf("%s: a script with a reply of 1.2 MB: %q, %v", id, clip(got), err)
		}
		on.want(t, bulk(strconv.Itoa(writes)), "GET", "n")
		// The reply of a script that only reads may be larger than 1 MiB,
		// whatever the form of the command, even if the script takes long or is
		// not in the cache.
		list := "LRANGE huge" + id + " 0 -1"
		both := "*2\r\n" + bulk(huge) + bulk(huge)
		fresh := c.client(id) // no script of this connection was executed as a read
		fresh.want(t, both, "EVAL", "nap\n"+list, "1", "huge")
		for _, cl := range []*client{on, fresh, c.client(id)} {
			cl.want(t, both, "EVAL", list, "1", "huge")
			cl.want(t, both, "EVAL", "nap\n"+list, "1", "huge")
			cl.want(t, both, "EVALSHA", sha1Of(list), "1", "huge")
		}
		fresh.want(t, both, "EVAL_RO", "ECHO ro\n"+list, "1", "huge")
		got, err = c.client(id).transaction([]string{"EVAL", list, "1", "huge"})
		if err != nil || !strings.HasPrefix(got, "*1\r\n-ERR script returns more than 1 MiB") {
			t.Errorf("%s: a script with a reply of 1.2 MB in a transaction: %q, %v", id, clip(got), err)
		}
		one := []string{"EVAL", "LINDEX huge" + id + " 0", "1", "huge"}
		got, err = c.client(id).transaction(one, []string{"INCR", "n"}, one)
		if err != nil || !strings.HasPrefix(got, "-EXECABORT Transaction discarded because of: ERR script returns more than 1 MiB") {
			t.Errorf("%s: two scripts with replies of 600 kB in a transaction: %q, %v", id, clip(got), err)
		}
		on.want(t, bulk(strconv.Itoa(writes)), "GET", "n")
		got, err = c.client(id).transaction([]string{"EVAL", "GET big", "1", "big"})
		if want := "*1\r\n" + bulk(value); err != nil || got != want {
			t.Errorf("%s: a script with a reply of 300 kB in a transaction: %q, %v", id, clip(got), err)
		}
	}
}

// A pipeline of scripts whose replies together are large is divided, so that no
// entry contains many of them.
func TestCostly_PipelineOfReplies(t *testing.T) {
	t.Parallel()
	c := scripted(t, newLines(), patient) // no script takes too long
	leader := c.leader()
	value := strings.Repeat("x", 50_000)
	c.client(leader).must(t, "SET", "value", value)
	bytes := func() float64 { return metric(t, c.node(leader), "holdfast_proposer_entry_bytes_sum") }
	last := func() uint64 { return c.node(leader).Status().LastIndex }
	const scripts = 40
	for i, id := range []string{leader, c.others(leader)[0]} {
		call := []string{"EVAL", "INCR n\nGET value", "2", "n", "value"}
		bytesBefore, lastBefore := bytes(), last()
		replies, err := c.client(id).pipeline(slices.Repeat([][]string{call}, scripts)...)
		if err != nil || replies != strings.Repeat(bulk(value), scripts) {
			t.Fatalf("%s: %d scripts: %q, %v", id, scripts, clip(replies), err)
		}
		c.client(id).want(t, bulk(strconv.Itoa((i+1)*scripts)), "GET", "n")
		// One entry contains the refusal of the whole pipeline, two contain the
		// refusals of its halves, and four contain its quarters.
		grown, n := bytes()-bytesBefore, last()-lastBefore
		if grown < scripts*float64(len(value)) || n < 7 {
			t.Errorf("%s: %.0f bytes in %d entries, want at least 7 entries", id, grown, n)
		}
	}
}

func sha1Of(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Below fsm.FeatureParts, a read does not fail with fsm.ErrUnlogged when its
// script tries to write. So no script is executed as a read, and each script is
// executed exactly once.
func TestCostly_ScriptsBelowFeatureParts(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	c.change = func(cfg *cluster.Config) { cfg.Scripts, cfg.Features = newLines(), fsm.FeatureDelay }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	leader := c.leader()
	huge, middle := strings.Repeat("y", 600_000), strings.Repeat("m", 40_000)
	c.client(leader).must(t, "RPUSH", "huge", huge, huge)
	c.client(leader).must(t, "SET", "middle", middle)
	both := "*2\r\n" + bulk(huge) + bulk(huge)
	n := 0
	for _, id := range []string{leader, c.others(leader)[0]} {
		for _, load := range []bool{false, true} { // whether SCRIPT LOAD precedes each EVAL
			on := c.client(id)
			for _, step := range []struct{ script, want string }{
				{"nap\ntry INCR n\nLRANGE huge 0 -1", both}, // the dry run shows how large the reply is
				{"INCR n", ""},
				{"INCR n\nGET middle", bulk(middle)}, // a large reply goes through the log
				{"nap\nINCR n", ""},
				{"INCR n", ""},
			} {
				if load {
					on.must(t, "SCRIPT", "LOAD", step.script)
				}
				n++
				want := step.want
				if want == "" {
					want = ":" + strconv.Itoa(n) + "\r\n"
				}
				on.want(t, want, "EVAL", step.script, "1", "n")
				on.want(t, bulk(strconv.Itoa(n)), "GET", "n")
			}
		}
	}
}

// The limit on the replies in the log applies to the replies of all scripts of a
// transaction together, even if the dry run of the transaction exceeded its budget
// and ended early. The replies of other commands do not count. On a busy machine,
// the cluster may change its leader meanwhile. So the transactions are such that a
// second execution has the same replies, and the test repeats one that has no reply.
func TestCostly_RepliesOfTransactions(t *testing.T) {
	t.Parallel()
	c := scripted(t, newLines(), func(o *cluster.Options) { o.ScriptTime = 300 * time.Millisecond })
	leader := c.leader()
	large := strings.Repeat("y", 1_200_000)
	c.client(leader).must(t, "SET", "large", large)
	c.client(leader).must(t, "SET", "part", large[:500_000])
	c.client(leader).must(t, "SET", "text", large[:3000])
	logged := func() (bytes float64) {
		for _, id := range c.ids() {
			bytes += metric(t, c.node(id), "holdfast_proposer_entry_bytes_sum")
		}
		return bytes
	}
	for _, id := range []string{leader, c.others(leader)[0]} {
		on := c.client(id)
		execute := func(cmds ...[]string) (got string, grown float64, err error) {
			for until := time.Now().Add(waitLimit); ; {
				before := logged()
				got, err = on.transaction(cmds...)
				if !errors.Is(err, outcome.ErrReplyLost) && !errors.Is(err, outcome.ErrNoLeader) || time.Now().After(until) {
					return got, logged() - before, err
				}
			}
		}
		want := "*2\r\n" + ok + bulk(large)
		if got, _, err := execute([]string{"EVAL", "nap\nSET n 1", "1", "n"}, []string{"GET", "large"}); err != nil || got != want {
			t.Errorf("%s: a slow script and a large GET: %q, %v", id, clip(got), err)
		}
		want = "*3\r\n:3000\r\n" + bulk(large) + ok
		if got, _, err := execute([]string{"LCS", "text", "text", "LEN"}, []string{"GET", "large"}, []string{"SET", "n", "1"}); err != nil || got != want {
			t.Errorf("%s: a costly read and a large GET: %q, %v", id, clip(got), err)
		}
		commands := append([][]string{{"EVAL", "spin", "0"}}, slices.Repeat([][]string{{"EVAL", "GET part", "1", "part"}}, 12)...)
		got, grown, err := execute(commands...)
		if err != nil || strings.Count(got, "returns more than 1 MiB") != 10 || strings.Count(got, large[:500_000]) != 2 {
			t.Errorf("%s: twelve scripts with replies of 500 kB: %q, %v, want ten refusals", id, clip(got), err)
		}
		if grown > 1_100_000 {
			t.Errorf("%s: the replies took %.0f bytes of the log, want at most 1 MiB", id, grown)
		}
	}
}
