package metrics

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestLocks checks the counts and times of events. For a grant of LOCK ACQUIRE,
// the event of its end contains the time of its beginning. For other grants,
// Locks must remember this time.
func TestLocks(t *testing.T) {
	l := NewLocks()
	at := func(d time.Duration) int64 { return int64(time.Hour + d) }
	l.Applied(1, &fsm.Result{Locks: []fsm.LockEvent{
		{Kind: fsm.LockGranted, Token: 1, Since: at(0), Now: at(0)},
		{Kind: fsm.LockGranted, Token: 2, Now: at(0)},
		{Kind: fsm.LockGranted, Token: 3, Since: at(0), Now: at(0), Waited: int64(2 * time.Second)},
	}, LocksRefused: fsm.LockRefusals{Held: 4, TimedOut: 1}})
	l.Applied(1, &fsm.Result{Locks: []fsm.LockEvent{
		{Kind: fsm.LockEnded, How: fsm.LockReleased, Token: 1, Since: at(0), Now: at(5 * time.Millisecond)},
		{Kind: fsm.LockEnded, How: fsm.LockExpired, Token: 2, Now: at(30 * time.Second)},
		{Kind: fsm.LockEnded, How: fsm.LockExpired, Token: 9, Now: at(0)}, // began before this node led
	}})
	l.Applied(1, &fsm.Result{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(l)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); n > 0 {
				name := f.GetName()
				for _, label := range m.GetLabel() {
					name += " " + label.GetValue()
				}
				counted[name] = n
			}
		}
	}
	want := map[string]float64{
		"holdfast_locks_granted_total": 3, "holdfast_locks_refused_total held": 4,
		"holdfast_locks_refused_total timeout": 1, "holdfast_locks_ended_total released": 1,
		"holdfast_locks_ended_total expired": 2,
	}
	if !maps.Equal(counted, want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
	if n, sum := l.waits.counts[7], l.waits.sum; n != 1 || sum != 2*time.Second {
		t.Errorf("%d waits of up to 3 s, %v in sum; want 1 and 2s", n, sum)
	}
	// After a change of the term, Locks does not know which grants other leaders
	// have made in between.
	l.Applied(3, &fsm.Result{Locks: []fsm.LockEvent{
		{Kind: fsm.LockEnded, How: fsm.LockExpired, Token: 2, Now: at(time.Hour)},
	}})
	if h := l.holdings; h.counts[2] != 1 || h.counts[9] != 1 || h.sum != 30*time.Second+5*time.Millisecond {
		t.Errorf("holdings %+v, want the same as before the change of the term: 5 ms and 30 s", h)
	}
}

// TestLockStarts checks that the beginning of a new grant is exact, and that
// the beginning of an old one is nearly exact. It also checks that tokens that
// were not recorded are reported as not known.
func TestLockStarts(t *testing.T) {
	var s lockStarts
	if _, known := s.of(5); known {
		t.Error("lockStarts.of finds the beginning of a grant before any grant was recorded")
	}
	const first, last = 1000, 1000 + 5<<20
	for token := fsm.Pos(first); token <= last; token++ {
		s.note(token, int64(token)*1e6)
	}
	for _, tt := range []struct{ token, off fsm.Pos }{
		{last, 0}, {last - lockStartSlots + 1, 0}, {last - lockStartSlots*2, 63}, {last - lockStartSlots*70, 4095},
		{first, 0},
	} {
		lease, known := s.of(tt.token)
		if off := int64(tt.token)*1e6 - lease; !known || off < 0 || off > int64(tt.off)*1e6 {
			t.Errorf("token %d: lease %d, known %v: want at most %d tokens earlier", tt.token, lease, known, tt.off)
		}
	}
	if _, known := s.of(first - 1); known {
		t.Error("lockStarts.of finds a token that is older than the first one that was recorded")
	}
	s.forget()
	s.note(last+10, 7)
	if lease, known := s.of(last + 10); !known || lease != 7 {
		t.Errorf("after forget: lease %d, known %v, want 7, true", lease, known)
	}
	if _, known := s.of(last); known {
		t.Error("lockStarts.of finds a token that forget has removed")
	}
}

// BenchmarkLocks measures the cost of an entry with 100 grants and their ends.
func BenchmarkLocks(b *testing.B) {
	b.ReportAllocs()
	l, res := NewLocks(), &fsm.Result{}
	for i := range 100 {
		res.Locks = append(res.Locks, fsm.LockEvent{Kind: fsm.LockGranted, Token: fsm.Pos(i + 1), Now: 5})
	}
	for i := range 100 {
		e := fsm.LockEvent{Kind: fsm.LockEnded, Token: fsm.Pos(i + 1), Now: 9, How: fsm.LockReleased}
		res.Locks = append(res.Locks, e)
	}
	for b.Loop() {
		for i := range res.Locks {
			res.Locks[i].Token += 100
		}
		l.Applied(1, res)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/lock")
}
