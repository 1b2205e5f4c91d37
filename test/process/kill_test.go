package process

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// Whom a round kills.
const (
	killLeader = iota
	killFollower
	killTwo
	killAll
)

// kill -9 of whomever, under load: nothing that was acknowledged is missing
// afterwards, nothing has run twice, and clients of surviving nodes see no error
// as long as a majority survives.
func TestKill_LosesNothing(t *testing.T) {
	t.Parallel()
	for _, store := range []struct {
		name   string
		rounds []int
	}{
		{"wal", []int{killLeader, killFollower, killAll, killLeader, killTwo, killLeader, killAll, killFollower, killTwo, killLeader, killAll,
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

// A process that was told to kills itself at a point of the program, and says so as
// loudly as it can. What was written and not answered is there all the same. All the
// points: see verify/attack.
func TestKill_AtAPoint(t *testing.T) {
	c := newCluster(t, Config{Nodes: 1})
	c.start()
	n := c.Nodes[0]
	if _, err := n.Stop(startLimit); err != nil {
		t.Fatal(err)
	}
	n.Use(binary, "HOLDFAST_TEST_KILL_AT="+failpoint.EntryApplied+":3")
	start(t, n)
	c.leader()
	written := 0 // the node writes an entry too: that it has started
	for reply := "OK"; reply == "OK" && written < 3; {
		written++
		reply = do(t, n, "SET", "key", strconv.Itoa(written))
	}
	code, err := n.Wait(startLimit)
	if err != nil || code != -1 {
		t.Fatalf("ended with code %d, %v, want an end by a signal", code, err)
	}
	wantContains(t, "log", n.Output(), "[ERROR] holdfast: this node is going to kill itself", failpoint.Line(failpoint.EntryApplied, 3)+"\n")
	n.Use(binary)
	start(t, n)
	c.leader()
	want(t, n, strconv.Itoa(written), "GET", "key")
	if help := invoke(t, nil, "serve", "--help").out; strings.Contains(help, "kill-at") {
		t.Errorf("serve --help shows a flag that is for tests:\n%s", help)
	}
}

// victims picks nodes for a round.
func (c *cluster) victims(whom int) []*Node {
	c.t.Helper()
	leader := c.settled()
	others := c.others(leader)
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	switch whom {
	case killLeader:
		return []*Node{leader}
	case killFollower:
		return others[:1]
	case killTwo:
		return []*Node{leader, others[0]}
	}
	return append(others, leader)
}
