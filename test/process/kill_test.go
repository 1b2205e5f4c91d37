package process

import (
	"math/rand/v2"
	"testing"
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
