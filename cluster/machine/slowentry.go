package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
)

// slowEntry is the time above which an entry counts as slow to apply. While the
// leader applies an entry, the writes of all clients wait. Every node applies
// the entry, and may apply it again after a restart.
const slowEntry = 10 * time.Millisecond

// slowEntryEvery is the minimum time between two log lines about slow entries.
const slowEntryEvery = 10 * time.Second

// Metrics are the metrics of the entries that a Machine applies.
type Metrics struct {
	Seconds prometheus.Observer // time that an entry took
	Steps   prometheus.Counter  // steps that the entries took
	Slow    prometheus.Counter  // entries that took longer than 10 ms
}

// appliedEntry is an entry that the machine has applied, with its cost.
type appliedEntry struct {
	index uint64
	data  []byte
	steps uint64
	took  time.Duration
}

// entryWatch measures the entries that are applied. Only raft's FSM goroutine
// may use it.
type entryWatch struct {
	log     hclog.Logger
	metrics Metrics

	logged time.Duration // monotonic time of the last log line, 0 before the first
	silent int           // number of slow entries since the last log line; none of them was logged
}

// applied records an entry. now is the monotonic time.
func (w *entryWatch) applied(e *appliedEntry, now time.Duration) {
	w.metrics.Seconds.Observe(e.took.Seconds())
	w.metrics.Steps.Add(float64(e.steps))
	if e.took <= slowEntry {
		return
	}
	w.metrics.Slow.Add(1)
	if w.logged != 0 && now-w.logged < slowEntryEvery {
		w.silent++
		return
	}
	w.log.Warn("entry was slow to apply: clients waited", "index", e.index, "took", e.took, "steps", e.steps,
		"bytes", len(e.data), "commands", contents(e.data), "others_since_last_line", w.silent)
	w.logged, w.silent = max(now, 1), 0
}

// contents returns a text that names the commands in an entry, the most
// frequent ones first.
func contents(data []byte) string {
	rec, err := fsm.ReadRecord(data)
	if err != nil {
		return err.Error()
	}
	count := make(map[string]int)
	for _, g := range rec.Groups {
		for _, op := range g.Ops {
			for _, c := range op.Commands {
				count[c.Args[0]]++
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	parts := []string{fmt.Sprintf("%d groups", len(rec.Groups))}
	for i, name := range names {
		if i == 5 {
			parts = append(parts, "others")
			break
		}
		parts = append(parts, fmt.Sprintf("%d %s", count[name], name))
	}
	return strings.Join(parts, ", ")
}
