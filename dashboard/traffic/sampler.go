package traffic

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Every is the time between two samples.
const Every = 5 * time.Second

const (
	fineSamples   = int(15 * time.Minute / Every)
	perCoarse     = int(5 * time.Minute / Every)
	coarseSamples = int(24 * time.Hour / (5 * time.Minute))
)

// Kind is the kind of a command in a sample.
type Kind int

// Kinds of commands.
const (
	Other Kind = iota
	Read
	Write
	Lock
)

// Sampler takes the samples of one node. It is safe for concurrent use.
type Sampler struct {
	metrics prometheus.Gatherer
	kind    func(command string) Kind
	log     hclog.Logger

	mu           sync.Mutex
	before       totals
	fine, coarse ring
	sinceCoarse  int
}

// New returns a Sampler that has no samples. metrics must contain the metrics of
// the node and of its client port. kind returns the kind of a command by its name
// in the metrics.
func New(metrics prometheus.Gatherer, kind func(command string) Kind, log hclog.Logger) *Sampler {
	return &Sampler{metrics: metrics, kind: kind, log: log, fine: newRing(fineSamples), coarse: newRing(coarseSamples)}
}

// Run takes a sample after each interval until ctx ends. After each sample, it
// calls taken.
func (s *Sampler) Run(ctx context.Context, taken func()) {
	t := time.NewTicker(Every)
	defer t.Stop()
	s.take(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.take(now)
			taken()
		}
	}
}

// Recent returns the last n samples, but no samples older than 15 minutes.
func (s *Sampler) Recent(n int) Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	return columns(s.fine.last(n), Every)
}

// Day returns the coarse samples of the last 24 hours.
func (s *Sampler) Day() Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	return columns(s.coarse.last(coarseSamples), Every*time.Duration(perCoarse))
}

// totals contains the values of the metrics at one time.
type totals struct {
	at     time.Time
	calls  [4]float64 // by Kind
	spent  histogram  // durations of all commands
	commit histogram
	fsync  histogram
	groups float64 // groups of all entries that this node proposed
	gauges values
}

// histogram contains the cumulative counts of a Prometheus histogram by upper
// bound.
type histogram struct {
	bounds []float64
	counts []float64
	all    float64
}

// add adds a histogram with the same bounds.
func (h *histogram) add(d *dto.Histogram) {
	if h.bounds == nil {
		for _, b := range d.Bucket {
			h.bounds = append(h.bounds, b.GetUpperBound())
		}
		h.counts = make([]float64, len(d.Bucket))
	}
	for i, b := range d.Bucket {
		if i < len(h.counts) {
			h.counts[i] += float64(b.GetCumulativeCount())
		}
	}
	h.all += float64(d.GetSampleCount())
}

// quantile returns the upper bound, in milliseconds, of the bucket with the
// q-quantile of the observations since the earlier histogram before was read.
func (h *histogram) quantile(q float64, before *histogram) float64 {
	n := h.all - before.all
	if n <= 0 {
		return math.NaN()
	}
	for i, c := range h.counts {
		if i < len(before.counts) {
			c -= before.counts[i]
		}
		if c >= q*n {
			return h.bounds[i] * 1000
		}
	}
	return h.bounds[len(h.bounds)-1] * 1000
}

// gaugeOf contains the metrics that a sample copies unchanged, with their positions
// in the sample.
var gaugeOf = map[string]int{
	"holdfast_clients": clients, "holdfast_blocked_clients": blocked, "holdfast_dataset_bytes": dataset,
	"holdfast_maxmemory_bytes": maxMemory, "holdfast_disk_free_bytes": diskFree,
	"holdfast_disk_reserve_bytes": diskReserve,
}

// read reads the metrics.
func (s *Sampler) read(now time.Time) (totals, error) {
	families, err := s.metrics.Gather()
	t := totals{at: now}
	for i := range t.gauges {
		t.gauges[i] = math.NaN()
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if i, ok := gaugeOf[f.GetName()]; ok {
				t.gauges[i] = m.GetGauge().GetValue()
				continue
			}
			h := m.GetHistogram()
			switch f.GetName() {
			case "holdfast_command_seconds":
				t.calls[s.kind(label(m, "command"))] += float64(h.GetSampleCount())
				t.spent.add(h)
			case "holdfast_proposer_commit_seconds":
				t.commit.add(h)
			case "holdfast_proposer_entry_groups":
				t.groups += h.GetSampleSum()
			case "holdfast_disk_write_seconds":
				if label(m, "op") == "append" {
					t.fsync.add(h)
				}
			}
		}
	}
	return t, err
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// take takes a sample.
func (s *Sampler) take(now time.Time) {
	t, err := s.read(now)
	if err != nil {
		s.log.Warn("failed to read the metrics for a sample", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.before
	s.before = t
	seconds := t.at.Sub(before.at).Seconds()
	if before.at.IsZero() || seconds <= 0 {
		return // a rate needs two readings
	}
	next := sample{at: t.at, values: t.gauges}
	for kind, i := range map[Kind]int{Read: reads, Write: writes, Lock: locks, Other: others} {
		next.values[i] = (t.calls[kind] - before.calls[kind]) / seconds
	}
	next.values[p50] = t.spent.quantile(0.5, &before.spent)
	next.values[p99] = t.spent.quantile(0.99, &before.spent)
	next.values[commit] = t.commit.quantile(0.99, &before.commit)
	next.values[fsync] = t.fsync.quantile(0.99, &before.fsync)
	next.values[batch] = math.NaN()
	if entries := t.commit.all - before.commit.all; entries > 0 {
		next.values[batch] = (t.groups - before.groups) / entries
	}
	s.fine.add(next)
	if s.sinceCoarse++; s.sinceCoarse == perCoarse {
		s.sinceCoarse = 0
		s.coarse.add(merge(s.fine.last(perCoarse)))
	}
}
