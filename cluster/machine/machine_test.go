package machine

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/events"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// durable is a log whose entries are always on disk, and which refuses no
// snapshot.
type durable struct{}

func (durable) Await(uint64) bool                 { return true }
func (durable) Outdated(*raft.SnapshotMeta) error { return nil }

func testMetrics() Metrics {
	opts := prometheus.CounterOpts{Name: "test"}
	return Metrics{Seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "test"}), Steps: prometheus.NewCounter(opts), Slow: prometheus.NewCounter(opts)}
}

// newMachine returns an empty machine. change may change its configuration.
func newMachine(t *testing.T, change func(cfg *Config)) *Machine {
	cfg := Config{
		Table: command.NewTable(), Features: fsm.MaxFeatures, Log: durable{}, Events: events.NewQueue(fsm.SessionID{}),
		Mono: func() time.Duration { return 0 }, Metrics: testMetrics(), Logger: hclog.NewNullLogger(),
		Applied:     func(uint64, uint64, *fsm.Result, time.Duration, time.Duration) {},
		TermStarted: func(uint64, uint64, fsm.TermStart, int64) {},
		Rebased:     func(int64) {},
		Restored:    func() {},
		Unreadable:  func(error) {},
		Fatal:       func(err error) { t.Error(err) },
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

// A waiter for an entry that is never applied is woken when the node stops.
func TestMachine_Stop(t *testing.T) {
	m := newMachine(t, nil)
	var got []bool
	note := func(ok bool) { got = append(got, ok) }
	m.WhenApplied(0, note)
	m.WhenApplied(5, note)
	m.Stop()
	m.WhenApplied(6, note)
	if len(got) != 3 || !got[0] || got[1] || got[2] {
		t.Errorf("waiters received %v, want true, false, false", got)
	}
}

// TestMachine_StopEndsApply checks that no entry is applied and no snapshot is taken
// after Stop.
func TestMachine_StopEndsApply(t *testing.T) {
	m := newMachine(t, nil)
	entry := fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1"})
	log := func(index uint64) *raft.Log {
		return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry}
	}
	if m.Apply(log(1)) == nil {
		t.Fatal("the first entry was not applied")
	}
	m.Stop()
	if _, err := m.Snapshot(); err == nil {
		t.Error("a snapshot was taken after Stop")
	}
	if m.Apply(log(3)) != nil || m.m.Applied() != 1 {
		t.Errorf("applied up to %d, want 1, because raft may have skipped entry 2", m.m.Applied())
	}
	if _, err := m.Snapshot(); err == nil {
		t.Error("a snapshot was taken after an entry was not applied")
	}
}

// The time that entries take is added up, to decide when a snapshot is due, and
// is reported for each entry.
func TestMachine_Spent(t *testing.T) {
	var now time.Duration
	step := time.Millisecond
	m := newMachine(t, func(cfg *Config) { cfg.Mono = func() time.Duration { now += step; return now } })
	var reports []time.Duration
	m.watch = func(e *appliedEntry) { reports = append(reports, e.took) }
	entry := fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{NodeID: "n1"})
	for i := range uint64(3) {
		m.Apply(&raft.Log{Index: i + 1, Term: 1, Type: raft.LogCommand, Data: entry})
		step *= 2
	}
	if got, want := m.Spent(), 21*time.Millisecond; got != want { // each of the three entries takes three steps
		t.Errorf("spent %v, want %v", got, want)
	}
	if want := []time.Duration{time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond}; !slices.Equal(reports, want) {
		t.Errorf("reported %v, want %v", reports, want)
	}
}

// TestMachine_Lease: the lease clock continues after the last entry.
func TestMachine_Lease(t *testing.T) {
	var now time.Duration
	m := newMachine(t, func(cfg *Config) { cfg.Mono = func() time.Duration { return now } })
	now = time.Hour
	entry := fsm.AppendTermStart(nil, fsm.Header{Term: 1, Stamp: 5e9}, fsm.TermStart{NodeID: "n1"})
	m.Apply(&raft.Log{Index: 1, Term: 1, Type: raft.LogCommand, Data: entry})
	var applied int64
	m.View(func(m *fsm.Machine) { applied = m.Clock().Lease })
	now += 3 * time.Second
	if got, want := m.Lease(), applied+3e9; got != want {
		t.Errorf("lease clock %d after 3 s, want %d", got, want)
	}
}

// TestEntryWatch checks that the log describes the content of a slow entry, and
// that only some of many slow entries are logged.
func TestEntryWatch(t *testing.T) {
	var out bytes.Buffer
	w := &entryWatch{log: hclog.New(&hclog.LoggerOptions{Output: &out}), metrics: testMetrics()}
	table := command.NewTable()
	var b fsm.BatchBuilder
	var g fsm.Group
	g.Reset(2, 1)
	for _, line := range []string{"SET a b", "SADD s a", "SET a b"} {
		args := bytes.Fields([]byte(line))
		g.Command(table.Find(args[0]), 0, args)
	}
	b.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, g.Bytes())
	entry := &appliedEntry{index: 7, data: b.Encode(fsm.Header{}), steps: 3, took: slowEntry}
	w.applied(entry, 0) // an entry that takes exactly slowEntry is not slow
	if entry.took++; out.Len() > 0 {
		t.Errorf("logged %s, want nothing", out.String())
	}
	for i := range 12 {
		w.applied(entry, time.Duration(i)*time.Second)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `commands="1 groups, 2 set, 1 sadd"`) || !strings.Contains(lines[1], "others_since_last_line=10") {
		t.Errorf("logged %q, want two lines, with the commands and with 10 omitted entries", lines)
	}
}

// At a start, raft tries its snapshots, beginning with the newest one. If this
// program cannot read the newest one, an older one must not replace it, because
// the log after the older one may have been removed.
func TestMachine_NewerSnapshotAtStart(t *testing.T) {
	var image bytes.Buffer
	if err := fsm.New(command.NewTable()).WriteSnapshot(&image, fsm.Sessions{}); err != nil {
		t.Fatal(err)
	}
	good := image.Bytes()
	newer := bytes.Replace(good, []byte{fsm.SnapshotVersion}, []byte{fsm.SnapshotVersion + 1}, 1)
	restore := func(m *Machine, snapshot []byte) error { return m.Restore(io.NopCloser(bytes.NewReader(snapshot))) }

	m := newMachine(t, nil)
	m.Starting()
	for _, snapshot := range [][]byte{newer, good} {
		if err := restore(m, snapshot); !errors.Is(err, fsm.ErrVersion) {
			t.Errorf("at the start: %v, want %v", err, fsm.ErrVersion)
		}
	}

	// Later, such a snapshot comes from the leader, which may send another one.
	m = newMachine(t, nil)
	if err := restore(m, newer); !errors.Is(err, fsm.ErrVersion) {
		t.Errorf("from the leader: %v, want %v", err, fsm.ErrVersion)
	}
	if err := restore(m, good); err != nil {
		t.Errorf("a readable snapshot after an unreadable one: %v, want success", err)
	}
}

// A snapshot from the leader that cannot be read is reported. The error is
// fsm.ErrDowngrade if the program does not know the feature version of the
// cluster, and only then.
func TestMachine_UnreadableSnapshot(t *testing.T) {
	newer := newMachine(t, nil)
	entry := fsm.AppendTermStart(nil, fsm.Header{Term: 1, Wall: 1}, fsm.TermStart{NodeID: "n1", Boot: 1, ClusterID: "c", Features: fsm.MaxFeatures})
	if _, err := newer.m.Apply(1, 1, entry); err != nil {
		t.Fatal(err)
	}
	var snapshot bytes.Buffer
	if err := newer.m.WriteSnapshot(&snapshot, newer.m.Sessions()); err != nil {
		t.Fatal(err)
	}
	var report error
	m := newMachine(t, func(cfg *Config) {
		cfg.Features = fsm.MaxFeatures - 1
		cfg.Unreadable = func(err error) { report = err }
	})
	for _, tt := range []struct {
		bytes []byte
		newer bool
	}{{snapshot.Bytes(), true}, {snapshot.Bytes()[:10], false}} {
		report = nil
		err := m.Restore(io.NopCloser(bytes.NewReader(tt.bytes)))
		if err == nil || !errors.Is(report, err) || errors.Is(report, fsm.ErrDowngrade) != tt.newer {
			t.Errorf("restore of %d bytes: error %v, reported %v; want the same error, and ErrDowngrade only for a "+
				"newer feature version", len(tt.bytes), err, report)
		}
	}
}
