package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/metrics"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/pulse"
	"github.com/holdfast-kv/holdfast/fsm"
)

// If a second TermStart of the same term is applied, a new leadership replaces
// the earlier one. The new leadership must not count entries that the earlier
// leadership proposed.
func TestLeadership_IgnoresEntriesBeforeItsStart(t *testing.T) {
	stats := metrics.New()
	called := 0
	ld := &leadership{
		start: 10, leaderParts: leaderParts{clock: systemClock{}, stats: stats},
		slot: make(chan struct{}, 1), batches: batches{filling: &fsm.BatchBuilder{}},
	}
	ld.pipeline.inflight = []proposal{{clockWaits: []func(){func() { called++ }}, stamped: time.Second}}
	ld.applied(&fsm.Result{Index: 9}, 0, 0)
	if len(ld.pipeline.inflight) != 1 || called != 0 {
		t.Fatal("an entry of the earlier leadership was counted for this one")
	}
	ld.applied(&fsm.Result{Index: 11}, 0, 0)
	if len(ld.pipeline.inflight) != 0 || called != 1 {
		t.Fatal("an entry of this leadership was not counted")
	}
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
	stats := metrics.New()
	fw := &forwarder{clock: systemClock{}, pulse: pulse.New(time.Hour, time.Hour), opts: DefaultOptions(), stats: stats, first: 1}
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
		t.Errorf("sent again: %v, floor %d, want no group and floor 1", third, fw.floor())
	}
	if fw.foreign(1) || !fw.foreign(2) {
		t.Error("foreign must be false for number 1, which this process has sent, and true for number 2")
	}
}

// TestForwarder_LargeGroups checks that at most largeRoom bytes of large groups, or
// one larger group, are on their way, and that small groups pass them. A large group
// that waits must be sent later, or end with an error.
func TestForwarder_LargeGroups(t *testing.T) {
	clock := &stepClock{}
	fw := &forwarder{
		clock: clock, pulse: pulse.New(time.Hour, time.Hour), opts: DefaultOptions(), stats: metrics.New(), first: 1,
	}
	fw.large.Room = largeRoom
	write := func(size, logged int) *call {
		c := &call{forwarder: fw, body: make([]byte, size), logged: logged, done: make(chan struct{}, 1)}
		fw.write(c)
		return c
	}
	sent := func(l numbers, want ...uint64) {
		t.Helper()
		if !slices.Equal(l, want) {
			t.Fatalf("sent %v, want %v", l, want)
		}
	}
	done := func(seqs ...uint64) {
		for _, seq := range seqs {
			fw.deliver([]fsm.GroupResult{{Seq: seq, Status: fsm.StatusDone, Reply: []byte("+OK\r\n")}})
		}
	}
	var l numbers
	fw.linked(&l, 0)
	done(1)
	write(largeRoom, 0) // 2
	write(largeGroup+1, 0)
	write(100, 2*largeRoom) // the connection of this group had a large reply
	write(largeGroup, 0)    // 3
	write(10, 0)            // 4
	sent(l, 1, 2, 3, 4)
	if fw.drained() {
		t.Error("the node counts as drained while large groups wait")
	}
	done(3, 4)
	sent(l, 1, 2, 3, 4)
	done(2) // the first large group; the next one gets number 5
	sent(l, 1, 2, 3, 4, 5)

	// A new leader gets the sent group that it lacks, and then the waiting
	// group.
	fw.unlinked(&l)
	var second numbers
	fw.linked(&second, 4)
	sent(second, 5)
	done(5)
	sent(second, 5, 6)
	early := write(2*largeRoom, 0)
	clock.mono += fw.opts.ResolveWait
	fw.sweep()
	last := write(2*largeRoom, 0)
	// After ResolveWait, the outcome of number 6 is unknown, which makes room
	// too. The group that has waited as long fails without being sent.
	clock.mono++
	fw.sweep()
	if <-early.done; !errors.Is(early.err, outcome.ErrCrowded) {
		t.Errorf("a large group that waited for ResolveWait ended with %v, want %v", early.err, outcome.ErrCrowded)
	}
	sent(second, 5, 6, 7)
	done(7)
	if <-last.done; last.err != nil {
		t.Errorf("a large group that waited for less than ResolveWait failed: %v", last.err)
	}

	// Without a leader, a large group that waits fails like any other group that
	// was not sent.
	write(largeRoom, 0)
	waits := write(largeRoom, 0)
	fw.unlinked(&second)
	clock.mono += fw.opts.LeaderWait + 1
	fw.sweep()
	if <-waits.done; !errors.Is(waits.err, outcome.ErrNoLeader) {
		t.Errorf("a large group that was not sent ended with %v, want %v", waits.err, outcome.ErrNoLeader)
	}
	// The room of group 8, which was sent, is still taken.
	var third numbers
	fw.linked(&third, 8)
	removed := write(largeRoom, 0)
	sent(third)
	fw.expel()
	if <-removed.done; !errors.Is(removed.err, outcome.ErrRemoved) {
		t.Errorf("a large group on a removed node ended with %v, want %v", removed.err, outcome.ErrRemoved)
	}
	fw.readmit()
	closed := write(largeRoom, 0)
	fw.close()
	if <-closed.done; !errors.Is(closed.err, outcome.ErrClosed) {
		t.Errorf("a large group on a node that stops ended with %v, want %v", closed.err, outcome.ErrClosed)
	}
}

// stepClock is a monotonic clock that a test moves.
type stepClock struct {
	systemClock
	mono time.Duration
}

func (c *stepClock) Mono() time.Duration { return c.mono }

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

// TestChangeError checks the outcome of a change of the members that raft has
// ended with an error.
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
			t.Errorf("changeError(%v) returned %v, outcome %d, want outcome %d", err, got, outcome.Of(got), want)
		}
	}
	if err := changeError(nil); err != nil {
		t.Error(err)
	}
	// raft has no error value for a change that relies on an older
	// configuration, so changeError compares the text.
	transport := outcome.NewChangeUnknown(raft.ErrLeadershipLost)
	stale := singleRaft(t).AddNonvoter("x", "x:1", 1<<40, 0).Error()
	if got := changeError(stale); outcome.Of(got) != outcome.NotExecuted {
		t.Errorf("change of an older configuration: %v, outcome %d, want the outcome not executed", stale, outcome.Of(got))
	}

	// These are the texts for a leader that has transferred its leadership and
	// whose own removal has then failed.
	for err, want := range map[error]string{
		errMoved:  "n2 leads now, but n1 is still a member: ",
		transport: "n2 leads now, but it is unknown whether n1 was removed: ",
	} {
		if got := halfRemoved("n2 leads now", "n1", err); !strings.HasPrefix(got, want) {
			t.Errorf("after %v: %q, want %q…", err, got, want)
		}
	}

	// An outcome is preserved when the leader sends it to the node that the
	// client has asked.
	for _, err := range []error{errMoved, transport, outcome.NewExecuted("n1 is still a member")} {
		var reply, got adminReply
		reply.fail(fmt.Errorf("remove n3: %w", err))
		if b, e := json.Marshal(reply); e != nil {
			t.Fatal(e)
		} else if e := json.Unmarshal(b, &got); e != nil {
			t.Fatal(e)
		}
		if f := got.failure(); outcome.Of(f) != outcome.Of(err) || !strings.HasSuffix(f.Error(), err.Error()) {
			t.Errorf("the error %v arrived as %v, outcome %d", err, f, outcome.Of(f))
		}
	}
}

// TestBlocked checks that the function blocked counts only the groups whose command
// waits. The proposer does not wait for the next command of their clients.
func TestBlocked(t *testing.T) {
	groups := []fsm.GroupResult{{Reply: []byte("+OK\r\n")}, {Reply: []byte("@4194305 0\r\n")}, {}}
	if got := blocked(groups); got != 1 {
		t.Errorf("%d groups block, want 1", got)
	}
}

// While a clock entry is due, the next group wakes the proposer, no matter how
// many groups the proposer expects.
func TestLeadership_ClockEntryEndsTheWait(t *testing.T) {
	ld := &leadership{
		leaderParts: leaderParts{opts: Options{Window: 1}},
		batches:     batches{filling: &fsm.BatchBuilder{}}, clockWaits: []func(){func() {}},
	}
	ld.commitWait.Proposed(4)
	ld.commitWait.Applied(4, 0, time.Millisecond)
	ld.batches.filling.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, noop)
	if b, _, ok := ld.next(); !ok || b == nil || !ld.commitWait.Suffices(1) {
		t.Error("while a clock entry is due, the proposer waits for more groups")
	}
}
