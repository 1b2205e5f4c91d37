package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
)

// After a transfer that failed, a new leadership of the same term replaces the
// earlier one. The new one must not count entries that the earlier one
// proposed.
func TestLeadership_IgnoresEntriesBeforeItsStart(t *testing.T) {
	stats := newCounters()
	called := 0
	ld := &leadership{start: 10, clock: systemClock{}, stats: &stats, slot: make(chan struct{}, 1), filling: &fsm.BatchBuilder{}}
	ld.inflight = []proposal{{clockWaits: []func(){func() { called++ }}, stamped: time.Second}}
	ld.applied(&fsm.Result{Index: 9})
	if len(ld.inflight) != 1 || called != 0 {
		t.Fatal("an entry of the earlier leadership was counted for this one")
	}
	ld.applied(&fsm.Result{Index: 11})
	if len(ld.inflight) != 0 || called != 1 {
		t.Fatal("an entry of this leadership was not counted")
	}
}

// The scripts of a group share one time limit, in addition to the limit of each
// script: before a dry run, as long as one script may take.
func TestScriptHost_Allowance(t *testing.T) {
	h := &scriptHost{limit: 500 * time.Millisecond, brief: 10 * time.Millisecond}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		scriptBudget fsm.ScriptBudget
		since        time.Duration // since the group began
		limit        time.Duration
		shared       bool
	}{
		{fsm.Briefly, 0, ms(10), false},
		{fsm.Briefly, ms(490), ms(10), false},
		{fsm.Briefly, ms(495), ms(5), true},
		{fsm.Briefly, ms(600), ms(-100), true},
		{fsm.DryRun, ms(4000), ms(500), false},
		{fsm.DryRunPassed, ms(4600), ms(400), true},
		{fsm.GivenUp, ms(4000), ms(10), false},
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
	h := &scriptHost{runner: still{}, clock: systemClock{}, stats: &stats, limit: time.Millisecond, brief: time.Hour,
		reads: newSlots(2, math.MaxInt64, systemClock{}), slowly: newSlots(1, math.MaxInt64, systemClock{}), slow: map[string]time.Duration{"slow": time.Hour}}
	enter := func(name, want string) (leave func()) {
		t.Helper()
		leave, refusal := h.enter(name, worker{}, done)
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
	if got := run(h.until(done), fsm.DryRun); got != msgScriptRoom {
		t.Errorf("a read without a slot: %q", got)
	}
	for _, p := range []fsm.ScriptBudget{fsm.Briefly, fsm.DryRunPassed, fsm.GivenUp} {
		if got := run(h.until(done), p); got != "OK" {
			t.Errorf("speculative execution with script budget %d: %q", p, got)
		}
	}
	if got := run(h.trying(done, &dryRun{begun: h.clock.Mono(), limit: time.Hour}), fsm.DryRun); got != "OK" {
		t.Errorf("a dry run: %q", got)
	}
	quick()
	if got := run(h.until(done), fsm.DryRun); got != "OK" {
		t.Errorf("a read with a slot: %q", got)
	}
	enter("slow", msgScriptRoom) // the slots that it waited for have not been freed
	slow()
	enter("slow", "")()
	if h.reads.free != 2 || h.slowly.free != 1 {
		t.Errorf("%d and %d slots are free", h.reads.free, h.slowly.free)
	}
	h.limit = time.Hour
	enter("slow", "")
	close(done)
	enter("slow", msgScriptLost)
}

// A waiter for an entry that is never applied is woken when the node stops.
func TestMachine_Stop(t *testing.T) {
	m := newMachine(fsm.NewTable())
	var got []bool
	note := func(ok bool) { got = append(got, ok) }
	m.whenApplied(0, note)
	m.whenApplied(5, note)
	m.stop()
	m.whenApplied(6, note)
	if len(got) != 3 || !got[0] || got[1] || got[2] {
		t.Errorf("waiters received %v, want true, false, false", got)
	}
}

// The time that entries take is added up, to decide when a snapshot is due, and
// is reported for each entry.
func TestMachine_Spent(t *testing.T) {
	m := newMachine(fsm.NewTable())
	var now time.Duration
	step := time.Millisecond
	m.mono = func() time.Duration { now += step; return now }
	m.onApply = func(uint64, uint64, *fsm.Result) {}
	m.onTermStart = func(uint64, uint64, fsm.TermStart, int64) {}
	var reports []time.Duration
	m.onEntry = func(e *appliedEntry) { reports = append(reports, e.took) }
	entry := fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1"})
	for i := range uint64(3) {
		m.Apply(&raft.Log{Index: i + 1, Term: 1, Type: raft.LogCommand, Data: entry})
		step *= 2
	}
	if got, want := time.Duration(m.spent.Load()), 21*time.Millisecond; got != want { // three steps each
		t.Errorf("spent %v, want %v", got, want)
	}
	if want := []time.Duration{time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond}; !slices.Equal(reports, want) {
		t.Errorf("reported %v, want %v", reports, want)
	}
}

// The log describes the content of a slow entry, but does not report each of
// many.
func TestEntryWatch(t *testing.T) {
	var out bytes.Buffer
	stats := newCounters()
	w := &entryWatch{log: hclog.New(&hclog.LoggerOptions{Output: &out}), stats: &stats}
	table := fsm.NewTable()
	var b fsm.BatchBuilder
	var g fsm.Group
	g.Reset(2, 1)
	for _, line := range []string{"SET a b", "SADD s a", "SET a b"} {
		args := bytes.Fields([]byte(line))
		g.Command(table.Find(args[0]), 0, args)
	}
	b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, g.Bytes())
	entry := &appliedEntry{index: 7, data: b.Encode(fsm.Header{}), steps: 3, took: slowEntry}
	w.applied(entry, 0) // just quick enough
	if entry.took++; out.Len() > 0 {
		t.Errorf("logged %s", out.String())
	}
	for i := range 12 {
		w.applied(entry, time.Duration(i)*time.Second)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `commands="1 groups, 2 set, 1 sadd"`) || !strings.Contains(lines[1], "others_since_last_line=10") {
		t.Errorf("logged %q", lines)
	}
}

// At a start, raft tries its snapshots from the newest on. If this program
// cannot read the newest one, an older one must not replace it, because the log
// after the older one has been removed.
func TestMachine_NewerSnapshotAtStart(t *testing.T) {
	var image bytes.Buffer
	if err := fsm.New(fsm.NewTable()).WriteSnapshot(&image, fsm.Sessions{}); err != nil {
		t.Fatal(err)
	}
	good := image.Bytes()
	newer := bytes.Replace(good, []byte{fsm.SnapshotVersion}, []byte{fsm.SnapshotVersion + 1}, 1)
	restore := func(m *machine, snapshot []byte) error { return m.Restore(io.NopCloser(bytes.NewReader(snapshot))) }

	m := newMachine(fsm.NewTable())
	m.starting = true
	for _, snapshot := range [][]byte{newer, good} {
		if err := restore(m, snapshot); !errors.Is(err, fsm.ErrVersion) {
			t.Errorf("at the start: %v, want %v", err, fsm.ErrVersion)
		}
	}

	// Later, such a snapshot comes from the leader, which may send another one.
	m = newMachine(fsm.NewTable())
	if err := restore(m, newer); !errors.Is(err, fsm.ErrVersion) {
		t.Errorf("from the leader: %v, want %v", err, fsm.ErrVersion)
	}
	if err := restore(m, good); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// A listener that is too slow is notified that it has missed events, and
// receives all later ones.
func TestEventQueue_Overflow(t *testing.T) {
	q := newEventQueue()
	publish := func(index uint64, size int) {
		q.applied(&fsm.Result{Index: index, Events: []fsm.Event{{Kind: fsm.EventPublish, Session: -1, Payload: make([]byte, size)}}})
	}
	publish(1, 10)
	publish(2, maxQueuedEvents)
	publish(3, 10)
	got := q.take()
	if len(got) != 2 || got[0].index != 2 || got[0].missed == "" || got[1].index != 3 || got[1].missed != "" {
		t.Errorf("queue holds %+v", got)
	}
	if q.bytes != 0 || len(q.take()) != 0 {
		t.Error("queue is not empty after take")
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
	stats := newCounters()
	fw := &forwarder{clock: systemClock{}, opts: DefaultOptions(), stats: &stats, first: 1}
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

// The outcome of a change that raft has ended with an error.
func TestChangeError(t *testing.T) {
	for err, want := range map[error]Outcome{
		raft.ErrNotLeader:       OutcomeNotExecuted,
		raft.ErrEnqueueTimeout:  OutcomeNotExecuted,
		raft.ErrLeadershipLost:  OutcomeUnknown,
		raft.ErrRaftShutdown:    OutcomeUnknown,
		context.Canceled:        OutcomeUnknown,
		errors.New("disk full"): OutcomeUnknown,
		errors.New("configuration changed since 3 (latest is 4)"): OutcomeNotExecuted,
	} {
		var typed *OutcomeError
		if got := changeError(err); OutcomeOf(got) != want || !errors.As(got, &typed) {
			t.Errorf("%v: %v, outcome %d, want %d", err, got, OutcomeOf(got), want)
		}
	}
	if err := changeError(nil); err != nil {
		t.Error(err)
	}
	// raft has no error value for this text.
	r, transport := raft.MakeCluster(1, t, nil), ChangeUnknown(raft.ErrLeadershipLost)
	defer r.Close()
	stale := r.Leader().AddNonvoter("x", "x:1", 1<<40, 0).Error()
	if got := changeError(stale); OutcomeOf(got) != OutcomeNotExecuted {
		t.Errorf("change of an older configuration: %v, outcome %d", stale, OutcomeOf(got))
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
	for _, err := range []error{errMoved, transport, Executed("n1 is still a member")} {
		var reply, got adminReply
		reply.fail(fmt.Errorf("remove n3: %w", err))
		if b, e := json.Marshal(reply); e != nil {
			t.Fatal(e)
		} else if e := json.Unmarshal(b, &got); e != nil {
			t.Fatal(e)
		}
		if f := got.failure(); OutcomeOf(f) != OutcomeOf(err) || !strings.HasSuffix(f.Error(), err.Error()) {
			t.Errorf("%v became %v, outcome %d", err, f, OutcomeOf(f))
		}
	}
}

// A node that cannot read the snapshots of a newer program reports that once,
// not for each snapshot that it receives.
func TestMachine_NewerSnapshot(t *testing.T) {
	var now time.Duration
	var reports []error
	newer := newMachine(fsm.NewTable())
	entry := fsm.AppendTermStart(nil, fsm.Header{Term: 1, Wall: 1}, fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c", Features: fsm.MaxFeatures})
	if _, err := newer.m.Apply(1, 1, entry); err != nil {
		t.Fatal(err)
	}
	var snapshot bytes.Buffer
	if err := newer.m.WriteSnapshot(&snapshot, newer.m.Sessions()); err != nil {
		t.Fatal(err)
	}
	m := newMachine(fsm.NewTable())
	m.mono, m.known, m.onNewer = func() time.Duration { return now }, fsm.MaxFeatures-1, func(err error) { reports = append(reports, err) }
	for i, want := range []int{1, 1, 2} {
		if err := m.Restore(io.NopCloser(bytes.NewReader(snapshot.Bytes()))); !errors.Is(err, fsm.ErrVersion) {
			t.Fatalf("restore of a newer snapshot: %v", err)
		}
		if len(reports) != want {
			t.Errorf("after %d snapshots, %d reports, want %d", i+1, len(reports), want)
		}
		now += repeatEvery * 2 / 3
	}
	if err := m.Restore(io.NopCloser(bytes.NewReader(snapshot.Bytes()[:10]))); err == nil || len(reports) != 2 {
		t.Errorf("damaged snapshot: %v, %d reports", err, len(reports))
	}
}

// The note that events are missing comes before the marks: a mark means that
// the events before it were delivered or reported as missing.
func TestEvents_MissedBeforeMarks(t *testing.T) {
	q := newEventQueue()
	q.self = fsm.SessionID{NodeID: "n1", Boot: 1}
	marked := 0
	q.mark(func() { marked++ })
	q.markOwn(7, func(uint64, int) { marked++ })
	q.restored(5, 7)
	got := q.take()
	if len(got) != 3 || got[0].missed == "" || got[1].mark == nil || got[2].mark == nil {
		t.Errorf("after a snapshot there wait %+v, want the missed events and two marks behind them", got)
	}
}
