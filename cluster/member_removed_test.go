package cluster_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// TestRemoved_Says checks that a removed node reports its removal in its status
// and log, also after a restart.
func TestRemoved_Says(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	if err := c.node("n1").RemoveMember("n3"); err != nil {
		t.Fatal(err)
	}
	says := func() bool {
		st := c.node("n3").Status()
		return st.Role == "removed" && !st.Voter && strings.Contains(st.Detail, "this node was removed from the cluster") &&
			strings.Contains(st.Detail, "holdfast member add n3 "+address("n3"))
	}
	eventually(t, "n3 to say that it was removed", says)
	c.stop("n3")
	c.open("n3")
	eventually(t, "n3 to say it after a restart", says)
	if c.log.Count("this node was removed from the cluster") < 2 {
		t.Error("the log does not report the removal twice, once for each start")
	}
}

// TestRemoved_AnswersAtOnce checks that the commands that are in flight end when
// their node is removed while it leads. It also checks that later commands,
// reads of the local state and commands that wait are answered at once.
func TestRemoved_AnswersAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.LeaderWait, o.ResolveWait = time.Hour, time.Hour })
	c.transfer("n1")
	w := c.waiter("n1", 7)
	w.begin(t, "blpop", "nothing", "0")
	outcomes := make(chan error, 8)
	for range cap(outcomes) {
		cl := c.client("n1")
		go func() {
			for {
				if _, err := cl.do("INCR", "n"); err != nil {
					outcomes <- err
					return
				}
			}
		}()
	}
	if err := c.node("n2").RemoveMember("n1"); err != nil {
		t.Fatal(err)
	}
	late := time.After(waitLimit)
	for range cap(outcomes) {
		select {
		case err := <-outcomes:
			// The new leader may refuse the node before it has reported the
			// outcomes of the commands in flight.
			if !errors.Is(err, outcome.ErrRemoved) && !errors.Is(err, outcome.ErrUnknown) {
				t.Errorf("a command failed with %v, want %v or %v", err, outcome.ErrRemoved, outcome.ErrUnknown)
			}
		case <-late:
			t.Fatal("the clients of the removed node still wait")
		}
	}
	select {
	case reply := <-w.s.Waited():
		if reply != nil {
			t.Errorf("the blocking command was answered with %q, want nil", reply)
		}
	case <-late:
		t.Error("the blocking command still waits")
	}
	cl := c.client("n1")
	if _, err := cl.do("GET", "n"); !errors.Is(err, outcome.ErrRemoved) {
		t.Errorf("GET on the removed node: %v, want ErrRemoved", err)
	}
	cl.group.Reset(2, 0)
	cl.group.Command(cl.node.Table().Find([]byte("GET")), 0, [][]byte{[]byte("GET"), []byte("n")})
	if _, err := cl.s.Do(&cl.group, true, nil); !errors.Is(err, outcome.ErrRemoved) {
		t.Errorf("a local read on the removed node: %v, want ErrRemoved", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	c.node("n1").HandOver(ctx)
	if ctx.Err() != nil {
		t.Error("HandOver waits for groups that were given up")
	}
}

// TestAdd_LearnersConcurrently checks that no change of the list of learners is
// lost when several nodes become learners, or stop being learners, at the same
// time.
func TestAdd_LearnersConcurrently(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.node(c.leader())
	ids := []string{"n4", "n5", "n6"}
	for _, id := range ids {
		if _, err := leader.Add(t.Context(), id, address(id), false); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		for _, learner := range []bool{true, false} {
			var adds sync.WaitGroup
			for _, id := range ids {
				adds.Go(func() {
					if _, err := leader.Add(t.Context(), id, address(id), learner); err != nil {
						t.Error(err)
					}
				})
			}
			adds.Wait()
			if got := len(leader.Learners()); learner && got != len(ids) || !learner && got != 0 {
				t.Fatalf("after all nodes were added with learner %v, the learners are %v, want all of them if true, none if false", learner, leader.Learners())
			}
		}
	}
}

// TestAdd_Learner checks that a node that was added as a learner remains a
// learner until it is promoted.
func TestAdd_Learner(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	for _, id := range []string{"n4", "n5"} {
		if _, err := c.node(leader).Add(t.Context(), id, address(id), id == "n4"); err != nil {
			t.Fatal(err)
		}
		c.place(id, append(append([]cluster.Peer(nil), c.peers...), peer(id)))
		c.open(id)
	}
	c.ready("n4", "n5")
	eventually(t, "n5 to vote", func() bool { voter, _ := c.listed(leader, "n5"); return voter })
	if voter, _ := c.listed(leader, "n4"); voter {
		t.Error("n4 was added as a learner and is a voter, want a non-voter")
	}
	eventually(t, "n4 to be promoted", func() bool {
		_, err := c.node("n4").Promote(t.Context(), "n4")
		voter, _ := c.listed(leader, "n4")
		return err == nil && voter
	})
	if _, err := c.node(leader).Promote(t.Context(), "n9"); err == nil || !strings.Contains(err.Error(), "n9 is not a member") {
		t.Errorf("promotion of a node that is not a member: %v, want an error that says so", err)
	}
}

// TestRemoveAway checks that the leader removes members that are away, and keeps
// a majority of the original number of voters.
func TestRemoveAway(t *testing.T) {
	t.Parallel()
	c := start(t, 5, func(o *cluster.Options) { o.RemoveAwayAfter = slowdown * 2_000_000_000 })
	c.transfer("n1")
	c.crash("n5")
	eventually(t, "n5 to be removed", func() bool { _, ok := c.listed("n1", "n5"); return !ok })
	c.crash("n4")
	eventually(t, "n4 to be removed", func() bool { _, ok := c.listed(c.leader("n1", "n2", "n3"), "n4"); return !ok })
	c.crash("n3")
	eventually(t, "the leader to keep n3", func() bool { return c.log.Count("a member is away and stays a member") > 0 })
	if _, ok := c.listed(c.leader("n1", "n2"), "n3"); !ok {
		t.Error("n3 was removed although two voters are not a majority of five")
	}
	c.client("n1").want(t, ok, "SET", "k", "v")
}
