package cluster_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/rpc"
)

// A removal that would leave too few live voters is refused with the numbers,
// wherever it is asked for; one of the node that is down is not.
func TestRemove_EndsTheQuorum(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.crash("n3")
	for _, id := range []string{"n1", "n2"} {
		wantRefused(t, "removal of a live node, one being down", c.node(id).RemoveMember("n2"),
			"removing n2 would leave 2 voters, 1 of them reachable", "n3 does not answer", "--force")
		wantRefused(t, "removal of the leader, one being down", c.node(id).RemoveMember("n1"),
			"removing n1 would leave 2 voters, 1 of them reachable", "n3 does not answer")
	}
	if leader := c.leader("n1", "n2"); leader != "n1" {
		t.Errorf("%s leads after removals that were refused", leader)
	}
	c.client("n2").want(t, ok, "SET", "k", "v")
	if done, err := c.node("n2").Remove(t.Context(), "n3", false); err != nil || done != "n3 is removed" {
		t.Fatalf("remove n3, which is down: %q, %v", done, err)
	}
	if done, err := c.node("n1").Remove(t.Context(), "n2", false); err != nil || done != "n2 is removed" {
		t.Fatalf("remove n2, which leaves n1 alone: %q, %v", done, err)
	}
	c.client("n1").want(t, bulk("v"), "GET", "k")
	for _, force := range []bool{false, true} {
		_, err := c.node("n1").Remove(t.Context(), "n1", force)
		wantRefused(t, "removal of the last voter", err, "n1 is the only voter")
	}
	wantRefused(t, "removal of a stranger", c.node("n1").RemoveMember("n9"), "n9 is not a member")
}

// A voter counts only if it can acknowledge entries soon.
func TestRemove_VoterIsBehind(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.net.refuse(rpc.ServiceRaft, "n3") // it answers questions, and gets no entries
	c.fill("n1", 300)
	leader := c.leader("n1", "n2")
	other := c.others(leader, "n3")[0]
	wantRefused(t, "removal of a live node, one being behind", c.node(leader).RemoveMember(other),
		"would leave 2 voters, 1 of them reachable", "entries behind")
	c.client("n1").want(t, ok, "SET", "k", "v")
}

// Force removes a node whatever the others answer.
func TestRemove_Force(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.net.refuse(rpc.ServiceAdmin, "n3") // it lives, and does not say so
	wantRefused(t, "removal", c.node("n2").RemoveMember("n2"), "removing n2 would leave 2 voters, 1 of them reachable")
	if done, err := c.node("n2").Remove(t.Context(), "n2", true); err != nil || done != "n2 is removed" {
		t.Fatalf("forced removal of n2: %q, %v", done, err)
	}
	c.client("n1").want(t, ok, "SET", "k", "v")
}

// A leader that is to be removed hands over first, whoever is asked.
func TestRemove_Leader(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	l := c.load("n", 2, "n4", "n5")
	for i, leader := range []string{"n1", "n2"} {
		c.transfer(leader)
		asked := []string{leader, "n5"}[i]
		l.progress(20)
		var done string
		eventually(t, leader+" to be removed", func() bool {
			var err error
			if done, err = c.node(asked).Remove(t.Context(), leader, false); err != nil {
				t.Logf("remove %s: %v", leader, err)
			}
			return err == nil
		})
		t.Logf("asked at %s: %s", asked, done)
		l.progress(20)
		c.crash(leader)
		for _, m := range c.node(c.leader()).Contacts() {
			if m.ID == leader {
				t.Errorf("%s is still a member", leader)
			}
		}
	}
	l.check("n5")
	c.caughtUp("n3", "n4", "n5")
}
