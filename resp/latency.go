package resp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

var latencyRows = []row{
	{cmd: &fsm.Command{
		Name: "latency", Arity: -2,
		Group: "server", Since: "2.8.13",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about the latency of this node's commands and its latency events",
	}, sub: []row{
		{run: latencyLatest, cmd: &fsm.Command{
			Name: "latest", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Doc: "Return the last sample of each latency event: its second, its milliseconds, and the " +
				"maximum ever",
			Tips: tipsNodes,
		}},
		{run: latencyHistory, cmd: &fsm.Command{
			Name: "history", Arity: 3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Syntax:     "event",
			Doc:        "Return the samples of a latency event: the second and the milliseconds of each",
			Tips:       tipsNodes,
		}},
		{run: latencyReset, cmd: &fsm.Command{
			Name: "reset", Arity: -2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Syntax:     "[event [event ...]]",
			Doc:        "Delete the samples of latency events",
			Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		}},
		{run: latencyGraph, cmd: &fsm.Command{
			Name: "graph", Arity: 3,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Syntax:     "event",
			Doc:        "Draw the samples of a latency event",
			Tips:       tipsNodes,
		}},
		{run: latencyDoctor, cmd: &fsm.Command{
			Name: "doctor", Arity: 2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Doc:        "Explain the latency events and where to look for their causes",
			Tips:       tipsNodes,
		}},
		{run: latencyHistogram, cmd: &fsm.Command{
			Name: "histogram", Arity: -2,
			Flags:      fsm.Admin | fsm.NoScript | fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(N) where N is the number of commands",
			Syntax:     "[command [command ...]]",
			Doc:        "Return the distribution of the latency of commands",
			Tips:       tipsNodes,
		}},
		helpRow("2.8.13"),
	}},
}

// latencyEvents records when commands took longer than a threshold. There are
// two events: fast-command for commands that are O(1) or O(log n), and command
// for all others. It is safe for concurrent use.
type latencyEvents struct {
	threshold atomic.Int64 // in milliseconds; 0 records nothing

	mu     sync.Mutex
	events map[string]*latencySeries
}

// maxLatencyEvents is the number of samples that are kept for each event, as in
// Redis.
const maxLatencyEvents = 160

// latencySeries contains the samples of one event, at most one per second,
// newest last.
type latencySeries struct {
	list []latencyEvent
	most int64 // maximum ever
}

type latencyEvent struct{ second, ms int64 }

func (s *latencyEvents) record(fast bool, d time.Duration) {
	threshold, ms := s.threshold.Load(), d.Milliseconds()
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
		s.events = make(map[string]*latencySeries)
	}
	e := s.events[event]
	if e == nil {
		e = &latencySeries{}
		s.events[event] = e
	}
	e.most = max(e.most, ms)
	now := time.Now().Unix()
	if n := len(e.list); n > 0 && e.list[n-1].second == now {
		e.list[n-1].ms = max(e.list[n-1].ms, ms)
		return
	}
	if len(e.list) == maxLatencyEvents {
		e.list = append(e.list[:0], e.list[1:]...)
	}
	e.list = append(e.list, latencyEvent{now, ms})
}

// namesLocked returns the names of the events that have samples, sorted.
func (s *latencyEvents) namesLocked() []string {
	var names []string
	for name := range s.events {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func latencyLatest(c *conn, args [][]byte) fsm.Reply {
	s := &c.srv.diag.latency
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []fsm.Reply
	for _, name := range s.namesLocked() {
		e := s.events[name]
		last := e.list[len(e.list)-1]
		out = append(out, fsm.Array([]fsm.Reply{
			fsm.Bulk(name), fsm.Int(last.second), fsm.Int(last.ms), fsm.Int(e.most),
		}))
	}
	return fsm.Array(out)
}

func latencyHistory(c *conn, args [][]byte) fsm.Reply {
	s := &c.srv.diag.latency
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []fsm.Reply
	if e := s.events[string(args[2])]; e != nil {
		for _, p := range e.list {
			out = append(out, fsm.Array([]fsm.Reply{fsm.Int(p.second), fsm.Int(p.ms)}))
		}
	}
	return fsm.Array(out)
}

func latencyReset(c *conn, args [][]byte) fsm.Reply {
	s := &c.srv.diag.latency
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.events)
	if len(args) == 2 {
		s.events = nil
	}
	for _, name := range args[2:] {
		delete(s.events, string(name))
	}
	return fsm.Int(int64(before - len(s.events)))
}

// latencyGraph draws a bar for each sample. The longest bar fills the column.
func latencyGraph(c *conn, args [][]byte) fsm.Reply {
	const width = 60
	s := &c.srv.diag.latency
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[string(args[2])]
	if e == nil {
		return fsm.Error("ERR No samples available for event '" + string(args[2]) + "'")
	}
	low, high := e.list[0].ms, e.list[0].ms
	for _, p := range e.list {
		low, high = min(low, p.ms), max(high, p.ms)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s - high %d ms, low %d ms (all time high %d ms)\n%s\n",
		args[2], high, low, e.most, strings.Repeat("-", 80))
	now := time.Now().Unix()
	for _, p := range e.list {
		bar := strings.Repeat("#", int(max(1, p.ms*width/max(high, 1))))
		fmt.Fprintf(&b, "%8s %s %d\n", ago(now-p.second), bar, p.ms)
	}
	return fsm.Verbatim(b.String())
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

func latencyDoctor(c *conn, args [][]byte) fsm.Reply {
	s := &c.srv.diag.latency
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	switch {
	case s.threshold.Load() == 0:
		b.WriteString("Latency events are not recorded on this node. " +
			"Use CONFIG SET latency-monitor-threshold <milliseconds> to record them.\n")
	case len(s.events) == 0:
		b.WriteString("No command has taken longer than latency-monitor-threshold.\n")
	}
	for _, name := range s.namesLocked() {
		e := s.events[name]
		sum := int64(0)
		for _, p := range e.list {
			sum += p.ms
		}
		fmt.Fprintf(&b, "%s: %d seconds with events, %d ms on average, %d ms at most.\n",
			name, len(e.list), sum/int64(len(e.list)), e.most)
	}
	b.WriteString("A write waits for the disks of a majority: " +
		"see SLOWLOG GET, LATENCY HISTOGRAM, and holdfast_command_seconds on the HTTP port.\n")
	return fsm.Verbatim(b.String())
}

func latencyHistogram(c *conn, args [][]byte) fsm.Reply {
	t, _ := c.srv.metrics.sinceReset()
	var wanted []string
	for name := range t.series {
		container, _, _ := strings.Cut(name, "|")
		if len(args) == 2 || slices.ContainsFunc(args[2:], func(a []byte) bool {
			return strings.EqualFold(string(a), name) || strings.EqualFold(string(a), container)
		}) {
			wanted = append(wanted, name)
		}
	}
	slices.Sort(wanted)
	var out []fsm.Reply
	for _, name := range wanted {
		s := t.series[name]
		var buckets []fsm.Reply
		n := uint64(0)
		for i, in := range s.buckets {
			if n += in; in > 0 {
				buckets = append(buckets, fsm.Int(bucketBound(i).Microseconds()), fsm.Int(int64(n)))
			}
		}
		if n == 0 {
			continue // all calls were rejected
		}
		out = append(out, fsm.Bulk(name), fsm.Map([]fsm.Reply{
			fsm.Bulk("calls"), fsm.Int(int64(s.calls)),
			fsm.Bulk("histogram_usec"), fsm.Map(buckets),
		}))
	}
	return fsm.Map(out)
}
