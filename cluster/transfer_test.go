package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/rpc"
)

// wantRefused checks that an error is not nil and contains all texts.
func wantRefused(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error, want a refusal", what)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: refused with %q, which does not contain %q", what, err, text)
		}
	}
}

// TestTransfer_TargetIsDown checks that a leader survives transfers to a node
// that is down. It stays leader in its term, and keeps accepting writes and
// changes of the members (hashicorp/raft issue 696).
func TestTransfer_TargetIsDown(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.client("n1").want(t, ok, "SET", "k", "v")
	c.crash("n3")
	c.client("n1").want(t, ok, "SET", "k", "w") // n3 is behind from here on
	term := c.node(c.leader("n1", "n2")).Status().Term
	for i := range 3 {
		begun := time.Now()
		err := c.node("n2").TransferLeadership("n3") // any node accepts the request
		wantRefused(t, "transfer to a node that is down", err, "n3 does not answer")
		if took := time.Since(begun); took > 5*c.options.HeartbeatTimeout {
			t.Errorf("the refusal took %v, want at most five heartbeat timeouts", took)
		}
		c.client("n2").want(t, ok, "SET", "k", fmt.Sprint(i))
	}
	if leader := c.leader("n1", "n2"); leader == "n1" && c.node("n1").Status().Term != term {
		t.Errorf("n1 lost its leadership of term %d by transfers that were refused", term)
	}
	if err := c.node("n1").RemoveMember("n3"); err != nil {
		t.Errorf("remove n3 after the transfers: %v", err)
	}
}

// TestTransfer_Refused checks that a transfer to a node that cannot lead is
// refused with the reason, and has no other effect.
func TestTransfer_Refused(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.add("n4") // n4 does not run
	wantRefused(t, "transfer to a stranger", c.node("n2").TransferLeadership("n9"), "n9 is not a member")
	wantRefused(t, "transfer to a non-voter", c.node("n2").TransferLeadership("n4"), "n4 does not vote yet")

	c.net.refuse(rpc.ServiceRaft, "n3") // n3 answers requests, and gets no entries
	c.fill("n1", 300)
	leader := c.leader("n1", "n2")
	term := c.node(leader).Status().Term
	wantRefused(t, "transfer to a node that is far behind", c.node("n2").TransferLeadership("n3"), "n3 is too far behind: its log ends at index ")
	c.client("n2").want(t, ok, "SET", "k", "v")
	if st := c.node(leader).Status(); st.Role != "leader" || st.Term != term {
		t.Errorf("%s is %s of term %d after transfers that were refused in term %d", leader, st.Role, st.Term, term)
	}
	c.net.admit(rpc.ServiceRaft, "n3")
	eventually(t, "n3 to lead", func() bool {
		_, err := c.node("n2").Transfer(t.Context(), "n3")
		return err == nil && c.node("n3").Status().Role == "leader"
	})
}

// TestTransfer_TargetStopsCatchingUp checks that the leader gives up on a
// target that does not get the last entries in time. The leader continues
// leading, and executes the commands that have waited meanwhile.
func TestTransfer_TargetStopsCatchingUp(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) {
		o.HeartbeatTimeout, o.LeaderSilence = slowdown*2*time.Second, 0
		o.LeaseTimeout, o.LeaderWait = o.HeartbeatTimeout, 3*o.HeartbeatTimeout
	})
	c.transfer("n1")
	c.caughtUp()
	c.net.refuse(rpc.ServiceRaft, "n3")
	c.client("n1").want(t, ok, "SET", "k", "v") // n3 never gets this entry
	leader := c.leader("n1", "n2")
	term := c.node(leader).Status().Term
	over := make(chan error, 1)
	go func() { over <- c.node(leader).TransferLeadership("n3") }()
	c.client("n2").want(t, ok, "SET", "k", "w")
	wantRefused(t, "transfer to a node that gets no entries", <-over, "n3")
	c.client("n2").want(t, ok, "SET", "k", "x")
	if st := c.node(leader).Status(); st.Role != "leader" || st.Term != term {
		t.Errorf("%s is %s of term %d after a transfer that failed in term %d", leader, st.Role, st.Term, term)
	}
}

// TestTransfer_AskedTooLate: the request to campaign can reach a target after
// the leader has stopped waiting for the election. The target may then be
// elected. So the outcome of a transfer that has timed out is unknown, and
// neither node reports that the old leader continues.
func TestTransfer_AskedTooLate(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3, func(o *cluster.Options) {
		o.HeartbeatTimeout, o.LeaseTimeout = slowdown*time.Second, slowdown*time.Second
	})
	c.change = func(cfg *cluster.Config) {
		if cfg.NodeID == "n3" { // otherwise it would campaign while the transfers wait
			cfg.Options.HeartbeatTimeout = slowdown * time.Minute
		}
	}
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.quiet() // otherwise n3 could lack an entry
	c.transfer("n1")
	c.caughtUp()
	flows := []func(){c.net.delay(rpc.ServiceRaft, "n1", "n3")}
	// If n1 makes new connections to n3 meanwhile, only their handshakes arrive
	// before flow is called.
	for range 32 {
		_, flow := c.net.straggle(rpc.ServiceRaft, "n1", "n3", 1)
		flows = append(flows, flow)
	}
	for _, asked := range []string{"n1", "n2"} {
		_, err := c.node(asked).Transfer(t.Context(), "n3")
		wantRefused(t, "transfer that n3 has not heard of, asked at "+asked, err, "the outcome of the change is unknown: ", "n3 ")
		if got := outcome.Of(err); !errors.Is(err, outcome.ErrUnknown) || got != outcome.Unknown {
			t.Errorf("asked at %s: %v: outcome %d, want unknown", asked, err, got)
		}
		if err != nil && strings.Contains(err.Error(), "leads again") {
			t.Errorf("transfer asked at %s: %v, which says that n1 leads again; want an unknown outcome", asked, err)
		}
	}
	for _, flow := range flows {
		flow()
	}
	// n3 is usually elected now. If its heartbeat timeout has made it a candidate
	// before, raft ignores the request to campaign, and n1 continues to lead.
	c.ready("n1", "n2", "n3")
	c.client("n1").want(t, ok, "SET", "k", "v")
}

func TestTransfer_ToTheLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n2")
	term := c.node("n2").Status().Term
	for _, id := range c.ids() {
		eventually(t, id+" to know the leader", func() bool { return c.node(id).Status().Leader == "n2" })
		done, err := c.node(id).Transfer(t.Context(), "n2")
		if err != nil || done != "n2 leads already" {
			t.Errorf("transfer to the leader, asked at %s: %q, %v, want a note that it leads already", id, done, err)
		}
	}
	if st := c.node("n2").Status(); st.Role != "leader" || st.Term != term {
		t.Errorf("n2 is %s of term %d after transfers to itself in term %d", st.Role, st.Term, term)
	}
	done, err := c.node("n1").Transfer(t.Context(), "n3")
	if err != nil || done != "n3 leads now" {
		t.Errorf("transfer to n3: %q, %v, want a note that it leads now", done, err)
	}
}

// TestTransfer_TargetDies: a target may die at any moment of a transfer. The
// old leader continues to lead, or another node is elected, and no acknowledged
// write is lost.
func TestTransfer_TargetDies(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.Window = 3 })
	l := c.load("n", 2, c.ids()...)
	died := 0
	for i := range 8 {
		l.progress(20)
		leader := c.leader()
		target := c.others(leader)[i%2]
		over := make(chan error, 1)
		go func() { over <- c.node(leader).TransferLeadership(target) }()
		during(time.Duration(rand.Int64N(int64(8 * time.Millisecond))))
		c.crash(target)
		if err := <-over; err != nil {
			died++
			t.Logf("transfer to %s: %v", target, err)
		}
		begun := time.Now()
		c.leader(c.others(target)...)
		l.progress(5)
		t.Logf("writes continued %v after the death of %s", time.Since(begun), target)
		c.open(target)
		c.ready(target)
	}
	t.Logf("%d transfers failed", died)
	l.check("n1")
	c.caughtUp()
}

// TestHandOver_ChoosesTheLiving checks that a node that stops transfers
// leadership to a voter that is alive, even if a dead voter has as long a log
// and comes first.
func TestHandOver_ChoosesTheLiving(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	for _, dead := range []string{"n2", "n3"} {
		c.transfer("n1")
		c.caughtUp()
		heir := c.others("n1", dead)[0]
		c.crash(dead)
		term := c.node("n1").Status().Term
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		c.node("n1").HandOver(ctx)
		cancel()
		if st := c.node("n1").Status(); st.Role == "leader" && st.Term == term {
			t.Errorf("n1 still leads after HandOver with %s dead", dead)
		}
		eventually(t, heir+" to lead", func() bool { return c.node(heir).Status().Role == "leader" })
		if n := c.log.Count("n1: leadership not handed over"); n > 0 {
			t.Errorf("handing over needed more than one attempt with %s dead", dead)
		}
		c.crash("n1") // a node that has handed over is being stopped, and must not lead again
		for _, id := range []string{dead, "n1"} {
			c.open(id)
			c.ready(id)
		}
	}
}

// TestTransfer_TargetIsStopping checks that a node that is being stopped is not
// given leadership. If all other voters are being stopped, the leader does not
// wait for a target.
func TestTransfer_TargetIsStopping(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	c.node("n2").HandOver(ctx) // it does not lead, so this only announces that it stops
	wantRefused(t, "transfer to a node that is being stopped", c.node("n3").TransferLeadership("n2"), "n2 is being stopped")
	if done, err := c.node("n1").Transfer(ctx, ""); err != nil || done != "n3 leads now" {
		t.Fatalf("transfer to any node: %q, %v; want n3 to lead", done, err)
	}
	c.node("n1").HandOver(ctx)
	c.node("n3").HandOver(ctx)
	if ctx.Err() != nil {
		t.Error("n3 waited for a node to hand over to until its time was over")
	}
	c.client("n3").want(t, ok, "SET", "k", "v")
}
