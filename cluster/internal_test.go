package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// After a transfer that failed, a new leadership of the same term replaces the
// earlier one. The new one must not count entries that the earlier one
// proposed.
func TestLeadership_IgnoresEntriesBeforeItsStart(t *testing.T) {
	stats := newCounters()
	called := 0
	ld := &leadership{
		start: 10, leaderParts: leaderParts{clock: systemClock{}, stats: stats},
		slot: make(chan struct{}, 1), batches: batches{filling: &fsm.BatchBuilder{}},
	}
	ld.pipeline.inflight = []proposal{{clockWaits: []func(){func() { called++ }}, stamped: time.Second}}
	ld.applied(&fsm.Result{Index: 9})
	if len(ld.pipeline.inflight) != 1 || called != 0 {
		t.Fatal("an entry of the earlier leadership was counted for this one")
	}
	ld.applied(&fsm.Result{Index: 11})
	if len(ld.pipeline.inflight) != 0 || called != 1 {
		t.Fatal("an entry of this leadership was not counted")
	}
}

// The scripts of a group share one time limit, in addition to the limit of each
// script: before a dry run, what one script may take there.
func TestScriptHost_Allowance(t *testing.T) {
	h := &scriptHost{limit: 500 * time.Millisecond, brief: 2 * time.Millisecond}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		scriptBudget fsm.ScriptBudget
		since        time.Duration // since the group began
		limit        time.Duration
		shared       bool
	}{
		{fsm.Briefly, 0, ms(2), false},
		{fsm.Briefly, ms(1), ms(1), true},
		{fsm.Briefly, ms(2), 0, true},
		{fsm.Briefly, ms(10), ms(-8), true},
		{fsm.DryRun, ms(4000), ms(500), false},
		{fsm.DryRunPassed, ms(4600), ms(400), true},
		{fsm.GivenUp, ms(4000), ms(2), false},
		{fsm.GivenUp, ms(5000), 0, true},
	} {
		begun := int64(time.Second)
		limit, shared := h.allowance(&fsm.ScriptCall{ScriptBudget: c.scriptBudget, Group: &begun}, time.Second+c.since)
		if limit != c.limit || shared != c.shared {
			t.Errorf("script budget %d, %v into the group: %v, shared %v, want %v, %v", c.scriptBudget, c.since, limit, shared, c.limit, c.shared)
		}
	}
	var begun int64
	if h.allowance(&fsm.ScriptCall{Group: &begun}, time.Second); begun != int64(time.Second) {
		t.Errorf("the group began at %d", begun)
	}
	if limit, shared := h.allowance(&fsm.ScriptCall{ScriptBudget: fsm.DryRun}, time.Hour); limit != h.limit || shared {
		t.Errorf("a read has %v, shared %v", limit, shared)
	}
}

// still is a runner whose scripts do nothing.
type still struct{}

func (still) CompileScript([]byte) string        { return "" }
func (still) RunScript(fsm.ScriptCall) fsm.Reply { return fsm.OK }

// The number of read-only scripts that run at a time is limited, and slow ones
// cannot take all slots. Scripts that go through the log need no slot.
func TestScriptHost_Slots(t *testing.T) {
	done := make(chan struct{})
	stats := newCounters()
	h := &scriptHost{interpreter: still{}, clock: systemClock{}, stats: stats, limit: time.Millisecond, brief: time.Hour,
		reads: fairshare.New(2, math.MaxInt64, systemClock{}.Mono), slowSlots: fairshare.New(1, math.MaxInt64, systemClock{}.Mono), slow: map[string]time.Duration{"slow": time.Hour}}
	enter := func(name, want string) (leave func()) {
		t.Helper()
		leave, refusal := h.enter(name, fairshare.Worker{}, done)
		if refusal != want {
			t.Errorf("%s: refused with %q, want %q", name, refusal, want)
		}
		return leave
	}
	slow := enter("slow", "")
	enter("slow", msgScriptRoom)
	quick := enter("quick", "")
	enter("quick", msgScriptRoom)
	run := func(runner fsm.ScriptRunner, p fsm.ScriptBudget) string {
		reply := runner.RunScript(fsm.ScriptCall{SHA: "quick", ScriptBudget: p})
		return reply.Text()
	}
	if got := run(h.runner(done), fsm.DryRun); got != msgScriptRoom {
		t.Errorf("a read without a slot: %q", got)
	}
	for _, p := range []fsm.ScriptBudget{fsm.Briefly, fsm.DryRunPassed, fsm.GivenUp} {
		if got := run(h.runner(done), p); got != "OK" {
			t.Errorf("speculative execution with script budget %d: %q", p, got)
		}
	}
	if got := run(h.dryRunner(done, &dryRun{begun: h.clock.Mono(), limit: time.Hour}), fsm.DryRun); got != "OK" {
		t.Errorf("a dry run: %q", got)
	}
	quick()
	if got := run(h.runner(done), fsm.DryRun); got != "OK" {
		t.Errorf("a read with a slot: %q", got)
	}
	enter("slow", msgScriptRoom) // the slots that it waited for have not been freed
	slow()
	enter("slow", "")()
	if h.reads.Free() != 2 || h.slowSlots.Free() != 1 {
		t.Errorf("%d and %d slots are free", h.reads.Free(), h.slowSlots.Free())
	}
	h.limit = time.Hour
	enter("slow", "")
	close(done)
	enter("slow", msgScriptLost)
}

// numbers is a link that records the numbers of groups.
type numbers []uint64

func (l *numbers) send(_, seq uint64, _ []byte) error {
	*l = append(*l, seq)
	return nil
}

// The group that records a node's start is sent until its result has arrived.
// If a leader is lost before it commits that group, the group must not leave a
// gap in the numbers, because no later group of the node would ever be
// executed.
func TestForwarder_StartIsOwed(t *testing.T) {
	stats := newCounters()
	fw := &forwarder{clock: systemClock{}, opts: DefaultOptions(), stats: stats, first: 1}
	var first, second, third numbers
	fw.linked(&first, 0)
	fw.deliver(nil) // from the next leader, which does not know the group
	fw.linked(&second, 0)
	if len(first) != 1 || len(second) != 1 || second[0] != 1 {
		t.Fatalf("the first leader was sent %v, the second %v; want the number 1 both times", first, second)
	}
	fw.deliver([]fsm.GroupResult{{Seq: 1, Status: fsm.StatusDone}})
	fw.linked(&third, 1)
	if len(third) != 0 || fw.floor() != 1 {
		t.Errorf("sent again: %v, floor %d", third, fw.floor())
	}
	if fw.foreign(1) || !fw.foreign(2) {
		t.Error("a leader that has accepted number 2 was not found to know another process")
	}
}

// singleRaft returns a raft in memory that leads a cluster of one node.
func singleRaft(t *testing.T) *raft.Raft {
	t.Helper()
	store, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	addr, trans := raft.NewInmemTransport("")
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger = "n1", hclog.NewNullLogger()
	const soon = 50 * time.Millisecond
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = soon, soon, soon
	only := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: addr}}}
	if err := raft.BootstrapCluster(cfg, store, store, snaps, trans, only); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(cfg, &raft.MockFSM{}, store, store, snaps, trans)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
	if !<-r.LeaderCh() {
		t.Fatal("the only node does not lead")
	}
	return r
}

// The outcome of a change that raft has ended with an error.
func TestChangeError(t *testing.T) {
	for err, want := range map[error]outcome.Outcome{
		raft.ErrNotLeader:       outcome.NotExecuted,
		raft.ErrEnqueueTimeout:  outcome.NotExecuted,
		raft.ErrLeadershipLost:  outcome.Unknown,
		raft.ErrRaftShutdown:    outcome.Unknown,
		context.Canceled:        outcome.Unknown,
		errors.New("disk full"): outcome.Unknown,
		errors.New("configuration changed since 3 (latest is 4)"): outcome.NotExecuted,
	} {
		var typed *outcome.Error
		if got := changeError(err); outcome.Of(got) != want || !errors.As(got, &typed) {
			t.Errorf("%v: %v, outcome %d, want %d", err, got, outcome.Of(got), want)
		}
	}
	if err := changeError(nil); err != nil {
		t.Error(err)
	}
	// raft has no error value for this text.
	transport := outcome.NewChangeUnknown(raft.ErrLeadershipLost)
	stale := singleRaft(t).AddNonvoter("x", "x:1", 1<<40, 0).Error()
	if got := changeError(stale); outcome.Of(got) != outcome.NotExecuted {
		t.Errorf("change of an older configuration: %v, outcome %d", stale, outcome.Of(got))
	}

	// A leader that handed over and did not see its own removal.
	for err, want := range map[error]string{
		errMoved:  "n2 leads now, but n1 is still a member: ",
		transport: "n2 leads now, but it is unknown whether n1 was removed: ",
	} {
		if got := halfRemoved("n2 leads now", "n1", err); !strings.HasPrefix(got, want) {
			t.Errorf("after %v: %q, want %q…", err, got, want)
		}
	}

	// An outcome survives the way from the leader to the node that was asked.
	for _, err := range []error{errMoved, transport, outcome.NewExecuted("n1 is still a member")} {
		var reply, got adminReply
		reply.fail(fmt.Errorf("remove n3: %w", err))
		if b, e := json.Marshal(reply); e != nil {
			t.Fatal(e)
		} else if e := json.Unmarshal(b, &got); e != nil {
			t.Fatal(e)
		}
		if f := got.failure(); outcome.Of(f) != outcome.Of(err) || !strings.HasSuffix(f.Error(), err.Error()) {
			t.Errorf("%v became %v, outcome %d", err, f, outcome.Of(f))
		}
	}
}
