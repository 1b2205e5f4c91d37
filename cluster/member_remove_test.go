package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/rpc"
)

// TestRemove_EndsTheQuorum checks that a removal that would leave too few live
// voters is refused, and that the error states the numbers, whichever node gets
// the request. The removal of the node that is down is not refused.
func TestRemove_EndsTheQuorum(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.crash("n3")
	for _, id := range []string{"n1", "n2"} {
		wantRefused(t, "removal of a live node while n3 is down", c.node(id).RemoveMember("n2"),
			"removing n2 would leave 2 voters, 1 of them reachable", "n3 does not answer", "--force")
		wantRefused(t, "removal of the leader while n3 is down", c.node(id).RemoveMember("n1"),
			"removing n1 would leave 2 voters, 1 of them reachable", "n3 does not answer")
	}
	if leader := c.leader("n1", "n2"); leader != "n1" {
		t.Errorf("%s leads after removals that were refused", leader)
	}
	c.client("n2").want(t, ok, "SET", "k", "v")
	if done, err := c.node("n2").Remove(t.Context(), "n3", false); err != nil || done != "n3 is removed" {
		t.Fatalf("remove n3, which is down: %q, %v, want the note that n3 is removed", done, err)
	}
	if done, err := c.node("n1").Remove(t.Context(), "n2", false); err != nil || done != "n2 is removed" {
		t.Fatalf("remove n2, which leaves n1 alone: %q, %v, want the note that n2 is removed", done, err)
	}
	c.client("n1").want(t, bulk("v"), "GET", "k")
	for _, force := range []bool{false, true} {
		_, err := c.node("n1").Remove(t.Context(), "n1", force)
		wantRefused(t, "removal of the last voter", err, "n1 is the only voter")
	}
	wantRefused(t, "removal of a stranger", c.node("n1").RemoveMember("n9"), "n9 is not a member")
}

// TestRemove_VoterIsBehind checks that a voter does not count as live if its log is
// too far behind.
func TestRemove_VoterIsBehind(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.net.refuse(rpc.ServiceRaft, "n3") // n3 answers requests, and gets no entries
	c.fill("n1", 300)
	leader := c.leader("n1", "n2")
	other := c.others(leader, "n3")[0]
	wantRefused(t, "removal of a live node while n3 is behind", c.node(leader).RemoveMember(other),
		"would leave 2 voters, 1 of them reachable", "entries behind")
	c.client("n1").want(t, ok, "SET", "k", "v")
}

// TestRemove_Force checks that force removes a node although a voter that would
// remain does not answer.
func TestRemove_Force(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.net.refuse(rpc.ServiceAdmin, "n3") // n3 is alive, and cannot report it
	wantRefused(t, "removal", c.node("n2").RemoveMember("n2"), "removing n2 would leave 2 voters, 1 of them reachable")
	if done, err := c.node("n2").Remove(t.Context(), "n2", true); err != nil || done != "n2 is removed" {
		t.Fatalf("forced removal of n2: %q, %v, want the note that n2 is removed", done, err)
	}
	c.client("n1").want(t, ok, "SET", "k", "v")
}

// TestRemove_Leader checks that a leader that is to be removed transfers
// leadership first, whichever node gets the request.
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
		for _, m := range c.node(c.leader()).PeerHealth() {
			if m.ID == leader {
				t.Errorf("%s is still a member", leader)
			}
		}
	}
	l.check("n5")
	c.caughtUp("n3", "n4", "n5")
}

// TestRemove_Deadline checks that a removal that is not committed ends at the
// deadline of its caller with an unknown outcome, and that it does not delay
// the next change.
func TestRemove_Deadline(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) {
		o.HeartbeatTimeout, o.LeaderSilence = slowdown*12*time.Second, 0
		o.LeaseTimeout = o.HeartbeatTimeout // n1 keeps leading without an answer
		o.LeaderWait = o.HeartbeatTimeout
	})
	c.transfer("n1")
	c.caughtUp()
	c.net.refuse(rpc.ServiceRaft, "n2")
	c.net.refuse(rpc.ServiceRaft, "n3")
	for _, id := range []string{"n3", "n2"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := c.node("n1").Remove(ctx, id, true)
		cancel()
		if id == "n3" {
			wantRefused(t, "removal that is not committed", err, "remove n3: the outcome of the change is unknown: ", "deadline exceeded")
			if !errors.Is(err, outcome.ErrUnknown) {
				t.Errorf("%v: outcome %d, want unknown", err, outcome.Of(err))
			}
		} else if outcome.Of(err) != outcome.NotExecuted { // raft does not begin the removal
			t.Errorf("next removal: %v: outcome %d, want not executed", err, outcome.Of(err))
		}
	}
	c.net.admit(rpc.ServiceRaft, "n2")
	c.net.admit(rpc.ServiceRaft, "n3")
	c.client("n1").want(t, ok, "SET", "k", "v")
}

// TestRemove_MembersHaveChanged checks that a removal is refused if the members
// have changed since it was checked.
func TestRemove_MembersHaveChanged(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	checked := c.node("n1").Configured()
	c.add("n4")
	err := c.node("n1").Expel(t.Context(), "n3", checked)
	wantRefused(t, "removal after a change", err, "the members have changed since they were checked")
	if got := outcome.Of(err); got != outcome.NotExecuted {
		t.Errorf("outcome %d, want not executed", got)
	}
	if _, ok := c.listed("n1", "n3"); !ok {
		t.Error("n3 is no longer a member")
	}
}

// TestRemove_Waited: a removal has waited for another change. So the leader has
// little time left to ask the members, or the node no longer leads. In both
// cases, the node must not consider members dead, and must not advise the
// operator to force the removal.
func TestRemove_Waited(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) {
		o.HeartbeatTimeout = slowdown * 6 * time.Second
		o.LeaseTimeout = o.HeartbeatTimeout
	})
	wait := func(what string, meanwhile func()) {
		t.Helper()
		c.transfer("n1")
		c.caughtUp()
		unlock, err := c.node("n1").LockMembers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		over := make(chan error, 1)
		go func() {
			_, err := c.node("n1").Remove(ctx, "n2", false)
			over <- err
		}()
		during(time.Second) // the removal waits until the test calls unlock
		meanwhile()
		unlock()
		err = <-over
		if got := outcome.Of(err); err == nil || got != outcome.NotExecuted || strings.Contains(err.Error(), "--force") {
			t.Errorf("removal that waited, %s: %v: outcome %d, want not executed and no advice to use --force", what, err, got)
		}
	}
	wait("n3 being slow", func() {
		during(500 * time.Millisecond)
		c.net.hold("n3", "n1") // n3 is alive, but its answers are late
	})
	c.net.heal()
	wait("n1 leading no longer", func() {
		c.transfer("n3")
		c.net.refuse(rpc.ServiceAdmin, "n3")
	})
	c.net.admit(rpc.ServiceAdmin, "n3")
	if _, ok := c.listed("n1", "n2"); !ok {
		t.Error("n2 is no longer a member")
	}
}
