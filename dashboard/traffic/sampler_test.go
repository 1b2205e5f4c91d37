package traffic

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// TestSampler checks rates, latencies, gauges and the two resolutions.
func TestSampler(t *testing.T) {
	registry := prometheus.NewRegistry()
	spent := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "holdfast_command_seconds",
		Buckets: []float64{0.001, 0.01, 0.1}}, []string{"command"})
	open := prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_clients"})
	registry.MustRegister(spent, open)
	kinds := map[string]Kind{"get": Read, "set": Write, "lock": Lock}
	s := New(registry, func(command string) Kind { return kinds[command] }, hclog.NewNullLogger())
	now := time.Unix(1000, 0)
	step := func() {
		now = now.Add(Every)
		s.take(now)
	}
	step()
	if got := s.Recent(10); len(got.Times) != 0 {
		t.Errorf("a sample from one reading: %v", got)
	}
	for range 50 {
		spent.WithLabelValues("get").Observe(0.0005)
	}
	for range 10 {
		spent.WithLabelValues("set").Observe(0.05)
	}
	open.Set(3)
	step()
	got := s.Recent(10)
	for name, want := range map[string]float64{
		"reads_per_second": 10, "writes_per_second": 2, "locks_per_second": 0, "p50_ms": 1, "p99_ms": 100, "clients": 3,
	} {
		if v := got.Values[name]; len(v) != 1 || v[0] != want {
			t.Errorf("%s: %v, want %v", name, v, want)
		}
	}
	step()
	if v := s.Recent(1).Values["p99_ms"]; len(v) != 1 || !math.IsNaN(v[0]) {
		t.Errorf("latency of no commands: %v", v)
	}
	for range fineSamples + perCoarse {
		step()
	}
	if n := len(s.Recent(10 * fineSamples).Times); n != fineSamples {
		t.Errorf("%d fine samples, want %d", n, fineSamples)
	}
	day := s.Day()
	if len(day.Times) != (fineSamples+perCoarse+2)/perCoarse || day.Interval != 300 {
		t.Errorf("%d coarse samples at an interval of %v s", len(day.Times), day.Interval)
	}
	if first := day.Values["reads_per_second"][0]; math.Abs(first-10.0/float64(perCoarse)) > 1e-9 {
		t.Errorf("coarse rate %v is not the mean", first)
	}
	if first := day.Values["p99_ms"][0]; first != 100 {
		t.Errorf("coarse latency %v is not the maximum", first)
	}
}

// TestColumn_JSON checks that JSON contains null for values that are not
// finite, and that null is decoded as NaN.
func TestColumn_JSON(t *testing.T) {
	text, err := json.Marshal(Column{1, math.NaN(), 0.123456, 1 << 40, math.Inf(1)})
	if err != nil || string(text) != "[1,null,0.1235,1099511627776,null]" {
		t.Fatalf("%s %v", text, err)
	}
	var c Column
	if err := json.Unmarshal(text, &c); err != nil || len(c) != 5 || !math.IsNaN(c[1]) || c[3] != 1<<40 {
		t.Errorf("%v %v", c, err)
	}
}
