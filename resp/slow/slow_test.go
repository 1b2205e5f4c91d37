package slow

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLog_KeepsTheNewest(t *testing.T) {
	var l Log
	l.SetLimit(2)
	for _, name := range []string{"a", "b", "c"} {
		l.Add(Entry{Name: name})
	}
	names := func(count int64) (all []string) {
		for _, e := range l.Newest(count) {
			all = append(all, e.Name)
		}
		return all
	}
	for count, want := range map[int64][]string{-1: {"c", "b"}, 0: nil, 1: {"c"}, 9: {"c", "b"}} {
		if got := names(count); !slices.Equal(got, want) {
			t.Errorf("the newest %d entries are %q, want %q", count, got, want)
		}
	}
	if e := l.Newest(1)[0]; e.ID != 2 {
		t.Errorf("the third entry has the id %d, want 2", e.ID)
	}
	if l.SetLimit(1); l.Len() != 1 || l.Limit() != 1 {
		t.Errorf("the log has %d entries with a limit of %d, want 1 and 1", l.Len(), l.Limit())
	}
	if l.Reset(); l.Len() != 0 {
		t.Errorf("the log has %d entries after a reset, want none", l.Len())
	}
}

func TestLog_Wants(t *testing.T) {
	var l Log
	for _, c := range []struct {
		threshold int64
		took      time.Duration
		want      bool
	}{{10, 10 * time.Microsecond, true}, {10, 9 * time.Microsecond, false}, {0, 0, true}, {-1, time.Hour, false}} {
		if l.Threshold.Store(c.threshold); l.Wants(c.took) != c.want {
			t.Errorf("threshold %d µs, command that took %v: Wants does not return %v", c.threshold, c.took, c.want)
		}
	}
}

func TestLatency(t *testing.T) {
	var s Latency
	s.Record(true, time.Hour) // Threshold is 0, so nothing is recorded
	s.Threshold.Store(5)
	s.Record(true, 4*time.Millisecond)
	if all := s.Events(); len(all) != 0 {
		t.Fatalf("events %v were recorded below the threshold, want none", all)
	}
	s.Record(true, 7*time.Millisecond)
	s.Record(false, 5*time.Millisecond)
	all := s.Events()
	if len(all) != 2 || all[0].Name != "command" || all[1].Name != "fast-command" || all[1].Most != 7 {
		t.Fatalf("got the events %v, want command and fast-command with a maximum of 7 ms", all)
	}
	if text := all[1].Graph(time.Now()); !strings.HasPrefix(text, "fast-command - high 7 ms, low 7 ms (all time high 7 ms)\n") {
		t.Errorf("Graph returned %q, want it to begin with the high and the low", text)
	}
	if text := s.Report(); !strings.Contains(text, "command: 1 seconds with events, 5 ms on average, 5 ms at most.\n") {
		t.Errorf("Report returned %q, want a line about the event command", text)
	}
	if n := s.Reset([]string{"command", "other"}); n != 1 || len(s.Events()) != 1 {
		t.Errorf("Reset of one event deleted %d events, want 1, and the other event left", n)
	}
	if n := s.Reset(nil); n != 1 || len(s.Events()) != 0 {
		t.Errorf("Reset of all events deleted %d events, want 1, and no event left", n)
	}
}
