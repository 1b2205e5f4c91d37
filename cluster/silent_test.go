package cluster_test

import (
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
)

// silentOptions makes raft's own timers too slow for a test, so that only
// cluster/failover can start an election.
func silentOptions(o *cluster.Options) {
	o.HeartbeatTimeout = slowdown * 4 * time.Second
	o.LeaseTimeout = o.HeartbeatTimeout
	o.LeaderWait = slowdown * 3 * time.Second // a command that waits for raft's timers fails
}

// TestSilent_LeaderReplaced lets a leader hang: its connections stay open, and
// it sends nothing. The other voters replace the leader long before raft's
// timers would.
func TestSilent_LeaderReplaced(t *testing.T) {
	t.Parallel()
	c := start(t, 3, silentOptions)
	old := c.leader()
	rest := c.others(old)
	c.client(rest[0]).want(t, ok, "SET", "k", "before")
	c.net.hold(old, rest...)
	c.client(rest[1]).want(t, ok, "SET", "k", "after")
	if leader := c.leader(rest...); leader == old {
		t.Errorf("the silent node %s still leads", old)
	}
	c.net.heal()
	c.ready(old)
	c.client(old).want(t, bulk("after"), "GET", "k")
	c.caughtUp()
}

// TestSilent_OneFollower cuts the network from the leader to one follower, only in
// this direction. The other follower hears the leader, so there must be no election.
func TestSilent_OneFollower(t *testing.T) {
	t.Parallel()
	c := start(t, 3, silentOptions)
	leader := c.leader()
	rest := c.others(leader)
	deaf, hearing := rest[0], rest[1]
	term := c.node(leader).Status().Term
	c.net.hold(leader, deaf)
	eventually(t, "the follower to find the leader silent", func() bool {
		return c.node(deaf).Status().LeaderSilent
	})
	// The follower asks the other voter again and again, for at least a second
	// here.
	for range 100 {
		c.client(hearing).want(t, ok, "SET", "k", "v")
		during(10 * time.Millisecond)
	}
	for _, id := range c.ids() {
		if st := c.node(id).Status(); st.Term != term {
			t.Errorf("%s: term %d, want %d: a follower that alone finds the leader silent started an election",
				id, st.Term, term)
		}
	}
	if c.node(hearing).Status().LeaderSilent {
		t.Error("the follower that hears the leader reports that the leader is silent")
	}
	c.net.heal()
	c.ready(deaf)
	c.caughtUp()
}
