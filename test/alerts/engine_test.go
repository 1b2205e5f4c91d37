package alerts

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// interval is the time between two scrapes, and between two evaluations of the
// rules.
const interval = 15 * time.Second

// sample implements chunks.Sample for a float.
type sample struct {
	t int64 // milliseconds
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.v }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }

// series contains the series of a test, by their labels. It is the storage that
// the query engine reads.
type series struct {
	labels  map[uint64]labels.Labels
	samples map[uint64][]chunks.Sample
}

func newSeries() *series {
	return &series{labels: make(map[uint64]labels.Labels), samples: make(map[uint64][]chunks.Sample)}
}

// add adds a sample. The samples of a series must be added in the order of
// their times.
func (s *series) add(l labels.Labels, at time.Duration, v float64) {
	h := l.Hash()
	s.labels[h] = l
	s.samples[h] = append(s.samples[h], sample{at.Milliseconds(), v})
}

// load adds series in the notation of promtool's tests.
func (s *series) load(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		l, values, err := parser.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for i, v := range values {
			if !v.Omitted {
				s.add(l, time.Duration(i)*interval, v.Value)
			}
		}
	}
}

// Querier implements storage.Queryable.
func (s *series) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher,
	) storage.SeriesSet {
		found := &seriesSet{at: -1}
		for h, l := range s.labels {
			matches := true
			for _, m := range matchers {
				matches = matches && m.Matches(l.Get(m.Name))
			}
			if matches {
				found.all = append(found.all, storage.NewListSeries(l, s.samples[h]))
			}
		}
		return found
	}}, nil
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

func newEngine() *promql.Engine {
	opts := promql.EngineOpts{MaxSamples: 1 << 24, Timeout: time.Minute, LookbackDelta: 5 * time.Minute}
	return promql.NewEngine(opts)
}

// eval evaluates an expression at the given time.
func eval(t *testing.T, s *series, expr string, at time.Duration) promql.Vector {
	t.Helper()
	q, err := newEngine().NewInstantQuery(context.Background(), s, nil, expr, time.UnixMilli(at.Milliseconds()))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil {
		t.Fatalf("%s: %v", expr, res.Err)
	}
	v, err := res.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return v
}

// number reports whether at least one value of a vector is a number.
func number(v promql.Vector) bool {
	for _, s := range v {
		if !math.IsNaN(s.F) {
			return true
		}
	}
	return false
}

// rules returns the alert rules by name.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../../deploy/prometheus/alerts.yml", false, model.LegacyValidation)
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	all := make(map[string]rulefmt.Rule)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r
		}
	}
	return all
}

// firing returns the labels of the alerts of a rule that fire at the given time.
// As in Prometheus, an alert fires when its expression has had a value with the
// same labels at each evaluation for the duration "for" of the rule.
func firing(t *testing.T, s *series, r rulefmt.Rule, at time.Duration) (all []labels.Labels) {
	t.Helper()
	since := make(map[uint64]time.Duration)
	for now := time.Duration(0); now <= at; now += interval {
		active := make(map[uint64]time.Duration)
		all = nil
		for _, v := range eval(t, s, r.Expr, now) {
			l := v.Metric.DropReserved(func(name string) bool { return name == labels.MetricName })
			h := l.Hash()
			began, was := since[h]
			if !was {
				began = now
			}
			active[h] = began
			if now-began >= time.Duration(r.For) {
				all = append(all, l)
			}
		}
		since = active
	}
	return all
}
