package process_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// These constants select the nodes that a round kills.
const (
	killLeader = iota
	killFollower
	killTwo
	killAll
)

// TestKill_LosesNothing kills nodes with kill -9 under load. Afterward, no
// acknowledged write is missing, and no write was executed twice. Clients of
// surviving nodes see no error as long as a majority survives.
func TestKill_LosesNothing(t *testing.T) {
	t.Parallel()
	for _, store := range []struct {
		name   string
		rounds []int
	}{
		{"wal", []int{killLeader, killFollower, killAll, killLeader, killTwo, killLeader, killAll, killFollower,
			killTwo, killLeader, killAll,
			killLeader, killLeader, killTwo, killLeader, killAll, killLeader, killAll}},
		{"boltdb", []int{killLeader, killAll, killTwo, killFollower, killLeader}},
	} {
		t.Run(store.name, func(t *testing.T) {
			c := startCluster(t, "--log-store", store.name)
			l := newLoad(t, "kill", each(6, c.Nodes)...)
			for i, whom := range store.rounds {
				l.progress(40)
				victims := c.victims(whom)
				if whom == killTwo || whom == killAll {
					l.excuse(true)
				}
				for _, n := range victims {
					l.excuseNode(n, true)
				}
				for _, n := range victims {
					kill(t, n)
				}
				if whom == killLeader || whom == killFollower {
					l.progress(40)
				}
				rand.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
				for _, n := range victims {
					start(t, n)
				}
				c.settled()
				l.progress(40)
				l.excuse(false)
				if t.Failed() {
					t.Fatalf("in round %d", i+1)
				}
			}
			l.progress(40)
			l.check(c.Nodes[0])
		})
	}
}

// TestKill_AtAPoint starts a process with an armed failpoint. The process logs
// at its start that it will kill itself, and kills itself at the failpoint.
// After a restart, the node has the data that it had written but not
// acknowledged. verify/attack covers all failpoints.
func TestKill_AtAPoint(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1})
	c.start()
	n := c.Nodes[0]
	if _, err := n.Stop(testutil.StartLimit); err != nil {
		t.Fatal(err)
	}
	n.Use(binary, "HOLDFAST_TEST_KILL_AT="+failpoint.EntryApplied+":4")
	start(t, n)
	c.leader()
	// The node also writes entries that no client has sent: one when it becomes
	// leader, and one that reserves client ids. Once the ids are reserved, new
	// connections have small ids.
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "client ids to be reserved", func() bool {
		id, err := respwire.NoError(dial(t, n).Do("CLIENT", "ID"))
		return err == nil && id.Int <= fsm.MaxClientID
	}); err != nil {
		t.Fatal(err)
	}
	written := 0
	for reply := "OK"; reply == "OK" && written < 4; {
		written++
		reply = do(t, n, "SET", "key", strconv.Itoa(written))
	}
	code, err := n.Wait(testutil.StartLimit)
	if err != nil || code != -1 {
		t.Fatalf("ended with code %d, %v, want an end by a signal", code, err)
	}
	wantContains(t, "log", n.Output(), "[ERROR] holdfast: this node will kill itself",
		failpoint.Line(failpoint.EntryApplied, 4)+"\n")
	n.Use(binary)
	start(t, n)
	c.leader()
	want(t, n, strconv.Itoa(written), "GET", "key")
	if help := invoke(t, nil, "serve", "--help").out; strings.Contains(help, "kill-at") {
		t.Errorf("serve --help shows a flag for tests:\n%s", help)
	}
}

// victims returns the nodes to kill in a round.
func (c *cluster) victims(whom int) []*process.Node {
	c.t.Helper()
	leader := c.settled()
	others := c.others(leader)
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	switch whom {
	case killLeader:
		return []*process.Node{leader}
	case killFollower:
		return others[:1]
	case killTwo:
		return []*process.Node{leader, others[0]}
	}
	return append(others, leader)
}
