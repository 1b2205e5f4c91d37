package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
)

// TestClusterStatus_Busy checks that all nodes answer requests for their status
// while an entry occupies their state machines, as a restore does for seconds.
// A busy node must report its last status.
func TestClusterStatus_Busy(t *testing.T) {
	c := start(t, 3)
	c.client("n2").must(t, "SET", "a", "1")
	c.caughtUp()
	for _, id := range c.ids() {
		if st := c.node(id).Status(); st.Keys != 1 {
			t.Fatalf("%s has %d keys, want 1", id, st.Keys)
		}
	}
	// The entry waits for the readers below, and later readers wait for the entry.
	release, set := make(chan struct{}), make(chan error, 1)
	views := make(chan struct{}, 3)
	for _, id := range c.ids() {
		entered := make(chan struct{})
		n := c.node(id)
		go func() {
			n.View(func(*fsm.Machine) { close(entered); <-release })
			views <- struct{}{}
		}()
		<-entered
	}
	writer := c.client("n2")
	go func() {
		_, err := writer.do("SET", "b", "1")
		set <- err
	}()
	for _, id := range c.ids() {
		eventually(t, id+" applies an entry", func() bool { return c.node(id).StateBusy() })
	}
	answer := make(chan []cluster.NodeStatus, 1)
	go func() { answer <- c.node("n1").ClusterStatus(context.Background()) }()
	var all []cluster.NodeStatus
	select {
	case all = <-answer:
	case <-time.After(waitLimit):
		t.Error("no status while the state machines are busy")
	}
	for _, st := range all {
		if !st.Reachable || st.Keys != 1 || st.StateHash == "" {
			t.Errorf("status of a busy node: %+v, want the status before the entry", st)
		}
		for _, l := range st.Links {
			if !l.Alive {
				t.Errorf("the status says that %s gets no answers from %s, want answers", st.ID, l.To)
			}
		}
	}
	close(release)
	for range c.ids() {
		<-views
	}
	if err := <-set; err != nil {
		t.Error(err)
	}
	for _, id := range c.ids() {
		eventually(t, id+" reports the new key", func() bool { return c.node(id).Status().Keys == 2 })
	}
}
