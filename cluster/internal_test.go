package cluster

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

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
