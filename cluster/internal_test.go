package cluster

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
)

// After a transfer that failed an office is replaced by another one of the same
// term. What the first one proposed is not the second one's to count.
func TestOffice_IgnoresWhatIsBeforeItsStart(t *testing.T) {
	stats := newCounters()
	ticked := 0
	o := &office{start: 10, clock: systemClock{}, stats: &stats, slot: make(chan struct{}, 1), filling: &fsm.BatchBuilder{}}
	o.inflight = []proposal{{ticks: []func(){func() { ticked++ }}, stamped: time.Second}}
	o.applied(&fsm.Result{Index: 9})
	if len(o.inflight) != 1 || ticked != 0 {
		t.Fatal("an entry of the office before was taken for this one's")
	}
	o.applied(&fsm.Result{Index: 11})
	if len(o.inflight) != 0 || ticked != 1 {
		t.Fatal("an entry of this office was not counted")
	}
}

// The scripts of a group have a bound together, beside that of each: untried, what one
// script may take.
func TestScriptHost_Allowance(t *testing.T) {
	h := &scriptHost{limit: 500 * time.Millisecond, moment: 10 * time.Millisecond}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		patience fsm.Patience
		since    time.Duration // in the group
		limit    time.Duration
		shared   bool
	}{
		{fsm.Briefly, 0, ms(10), false},
		{fsm.Briefly, ms(490), ms(10), false},
		{fsm.Briefly, ms(495), ms(5), true},
		{fsm.Briefly, ms(600), ms(-100), true},
		{fsm.Trial, ms(4000), ms(500), false},
		{fsm.Tried, ms(4600), ms(400), true},
		{fsm.GivenUp, ms(4000), ms(10), false},
		{fsm.GivenUp, ms(5000), 0, true},
	} {
		begun := int64(time.Second)
		limit, shared := h.allowance(&fsm.ScriptCall{Patience: c.patience, Group: &begun}, time.Second+c.since)
		if limit != c.limit || shared != c.shared {
			t.Errorf("patience %d, %v into the group: %v, shared %v, want %v, %v", c.patience, c.since, limit, shared, c.limit, c.shared)
		}
	}
	var begun int64
	if h.allowance(&fsm.ScriptCall{Group: &begun}, time.Second); begun != int64(time.Second) {
		t.Errorf("the group began at %d", begun)
	}
	if limit, shared := h.allowance(&fsm.ScriptCall{Patience: fsm.Trial}, time.Hour); limit != h.limit || shared {
		t.Errorf("a read has %v, shared %v", limit, shared)
	}
}

// still is a runner whose scripts do nothing.
type still struct{}

func (still) CompileScript([]byte) string        { return "" }
func (still) RunScript(fsm.ScriptCall) fsm.Reply { return fsm.OK }

// Few read-only scripts run at a time, and those that are known to be slow do not
// take all the places. What goes through the log needs none.
func TestScriptHost_Places(t *testing.T) {
	done := make(chan struct{})
	stats := newCounters()
	h := &scriptHost{runner: still{}, clock: systemClock{}, stats: &stats, limit: time.Millisecond, moment: time.Hour,
		reads: make(chan struct{}, 2), slowly: make(chan struct{}, 1), slow: map[string]struct{}{"slow": {}}}
	enter := func(name, want string) place {
		t.Helper()
		p, refusal := h.enter(name, done)
		if refusal != want {
			t.Errorf("%s: refused with %q, want %q", name, refusal, want)
		}
		return p
	}
	slow := enter("slow", "")
	enter("slow", msgScriptRoom)
	quick := enter("quick", "")
	enter("quick", msgScriptRoom)
	run := func(runner fsm.ScriptRunner, p fsm.Patience) string {
		reply := runner.RunScript(fsm.ScriptCall{SHA: "quick", Patience: p})
		return reply.Text()
	}
	if got := run(h.until(done), fsm.Trial); got != msgScriptRoom {
		t.Errorf("a read without a place: %q", got)
	}
	for _, p := range []fsm.Patience{fsm.Briefly, fsm.Tried, fsm.GivenUp} {
		if got := run(h.until(done), p); got != "OK" {
			t.Errorf("rehearsed with patience %d: %q", p, got)
		}
	}
	if got := run(h.trying(done), fsm.Trial); got != "OK" {
		t.Errorf("a trial: %q", got)
	}
	quick.leave()
	if got := run(h.until(done), fsm.Trial); got != "OK" {
		t.Errorf("a read with a place: %q", got)
	}
	enter("slow", msgScriptRoom) // it has not given back what it waited for
	slow.leave()
	enter("slow", "").leave()
	if len(h.reads)+len(h.slowly) != 0 {
		t.Errorf("%d and %d places are still taken", len(h.reads), len(h.slowly))
	}
	h.limit = time.Hour
	enter("slow", "")
	close(done)
	enter("slow", msgScriptLost)
}

// Who waits for an entry that is never applied is told when the node stops.
func TestMachine_Stop(t *testing.T) {
	m := newMachine(fsm.NewTable())
	var got []bool
	note := func(ok bool) { got = append(got, ok) }
	m.whenApplied(0, note)
	m.whenApplied(5, note)
	m.stop()
	m.whenApplied(6, note)
	if len(got) != 3 || !got[0] || got[1] || got[2] {
		t.Errorf("waiters were told %v, want true, false, false", got)
	}
}

// The time that entries take is added up, for a snapshot to be taken, and a long one
// is told.
func TestMachine_Spent(t *testing.T) {
	m := newMachine(fsm.NewTable())
	var now time.Duration
	step := slowEntries / 2
	m.mono = func() time.Duration { now += step; return now }
	m.onApply = func(uint64, uint64, *fsm.Result) {}
	m.onTermStart = func(uint64, uint64, fsm.TermStart, int64) {}
	var told []time.Duration
	m.onSlow = func(_, _ uint64, took time.Duration) { told = append(told, took) }
	entry := fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1"})
	for i := range uint64(3) {
		m.Apply(&raft.Log{Index: i + 1, Term: 1, Type: raft.LogCommand, Data: entry})
		step *= 2
	}
	if got, want := time.Duration(m.spent.Load()), slowEntries*7/2; got != want {
		t.Errorf("spent %v, want %v", got, want)
	}
	if len(told) != 1 || told[0] != 2*slowEntries {
		t.Errorf("told of %v, want of the one above %v", told, slowEntries)
	}
}

// At a start raft tries its snapshots from the newest on. If this program cannot
// read that one, an older one must not stand in for it: the log behind that is
// gone.
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

	// Later it is one of the leader's, which may send another.
	m = newMachine(fsm.NewTable())
	if err := restore(m, newer); !errors.Is(err, fsm.ErrVersion) {
		t.Errorf("from the leader: %v, want %v", err, fsm.ErrVersion)
	}
	if err := restore(m, good); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// A listener that is too slow is told that it has missed events, and of all that
// comes after them.
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

// numbers is a link that notes the numbers of groups.
type numbers []uint64

func (l *numbers) send(_, seq uint64, _ []byte) error {
	*l = append(*l, seq)
	return nil
}

// The group that tells of a node's start is owed until its result is here: a
// leader that went before it was committed must not leave a gap, behind which
// nothing of that node would ever run.
func TestGateway_StartIsOwed(t *testing.T) {
	stats := newCounters()
	g := &gateway{clock: systemClock{}, opts: DefaultOptions(), stats: &stats, first: 1}
	var first, second, third numbers
	g.linked(&first, 0)
	g.deliver(nil) // of the next leader, which knows nothing of it
	g.linked(&second, 0)
	if len(first) != 1 || len(second) != 1 || second[0] != 1 {
		t.Fatalf("the first leader was sent %v, the second %v; want the number 1 both times", first, second)
	}
	g.deliver([]fsm.GroupResult{{Seq: 1, Status: fsm.StatusDone}})
	g.linked(&third, 1)
	if len(third) != 0 || g.floor() != 1 {
		t.Errorf("sent again: %v, floor %d", third, g.floor())
	}
	if g.foreign(1) || !g.foreign(2) {
		t.Error("a leader that has accepted number 2 was not found to know another process")
	}
}
