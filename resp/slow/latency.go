package slow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Latency records commands that took as long as a threshold or longer. There
// are two events: fast-command for commands that are O(1) or O(log n), and
// command for all others. It is safe for concurrent use.
type Latency struct {
	// Threshold is in milliseconds. If it is 0, nothing is recorded.
	Threshold atomic.Int64

	mu     sync.Mutex
	events map[string]*series
}

// maxSamples is the maximum number of samples that are stored for each event,
// as in Redis.
const maxSamples = 160

// series contains the samples of one event, at most one per second, newest last.
type series struct {
	list []Sample
	most int64 // longest time ever, in milliseconds
}

// Sample is the longest time of a command in one second.
type Sample struct{ Second, Millis int64 }

// Event is a copy of an event. It has at least one sample; the newest is the
// last.
type Event struct {
	Name    string
	Samples []Sample
	Most    int64 // longest time ever, in milliseconds
}

// Record records that a command took d.
func (s *Latency) Record(fast bool, d time.Duration) {
	threshold, ms := s.Threshold.Load(), d.Milliseconds()
	if threshold == 0 || ms < threshold {
		return
	}
	event := "command"
	if fast {
		event = "fast-command"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil {
		s.events = make(map[string]*series)
	}
	e := s.events[event]
	if e == nil {
		e = &series{}
		s.events[event] = e
	}
	e.most = max(e.most, ms)
	now := time.Now().Unix()
	if n := len(e.list); n > 0 && e.list[n-1].Second == now {
		e.list[n-1].Millis = max(e.list[n-1].Millis, ms)
		return
	}
	if len(e.list) == maxSamples {
		e.list = append(e.list[:0], e.list[1:]...)
	}
	e.list = append(e.list, Sample{now, ms})
}

// Event returns the event with a name, if it has samples.
func (s *Latency) Event(name string) (e Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eventLocked(name)
}

func (s *Latency) eventLocked(name string) (e Event, ok bool) {
	l := s.events[name]
	if l == nil {
		return Event{}, false
	}
	return Event{Name: name, Samples: slices.Clone(l.list), Most: l.most}, true
}

// Events returns the events that have samples, sorted by name.
func (s *Latency) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Event
	for name := range s.events {
		e, _ := s.eventLocked(name)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Event) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Reset deletes the samples of the named events, or of all events if names is
// empty. It returns the number of events whose samples were deleted.
func (s *Latency) Reset(names []string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.events)
	if len(names) == 0 {
		s.events = nil
	}
	for _, name := range names {
		delete(s.events, name)
	}
	return before - len(s.events)
}

// Graph draws a bar for each sample. The longest bar fills the width of the
// column.
func (e Event) Graph(now time.Time) string {
	const width = 60
	low, high := e.Samples[0].Millis, e.Samples[0].Millis
	for _, p := range e.Samples {
		low, high = min(low, p.Millis), max(high, p.Millis)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s - high %d ms, low %d ms (all time high %d ms)\n%s\n",
		e.Name, high, low, e.Most, strings.Repeat("-", 80))
	for _, p := range e.Samples {
		bar := strings.Repeat("#", int(max(1, p.Millis*width/max(high, 1))))
		fmt.Fprintf(&b, "%8s %s %d\n", ago(now.Unix()-p.Second), bar, p.Millis)
	}
	return b.String()
}

// ago formats a number of seconds for people.
func ago(seconds int64) string {
	switch {
	case seconds < 60:
		return strconv.FormatInt(seconds, 10) + "s"
	case seconds < 3600:
		return strconv.FormatInt(seconds/60, 10) + "m"
	case seconds < 86400:
		return strconv.FormatInt(seconds/3600, 10) + "h"
	}
	return strconv.FormatInt(seconds/86400, 10) + "d"
}

// Report describes the events for an operator.
func (s *Latency) Report() string {
	events := s.Events()
	var b strings.Builder
	switch {
	case s.Threshold.Load() == 0:
		b.WriteString("Latency events are not recorded on this node. " +
			"Use CONFIG SET latency-monitor-threshold <milliseconds> to record them.\n")
	case len(events) == 0:
		b.WriteString("No latency events are recorded: since the last reset, no command has reached " +
			"latency-monitor-threshold.\n")
	}
	for _, e := range events {
		sum := int64(0)
		for _, p := range e.Samples {
			sum += p.Millis
		}
		fmt.Fprintf(&b, "%s: %d seconds with events, %d ms on average, %d ms at most.\n",
			e.Name, len(e.Samples), sum/int64(len(e.Samples)), e.Most)
	}
	return b.String()
}
