// Package traffic takes samples of the work of a node: command rates, latencies and
// sizes. It keeps the samples in memory: those of 15 minutes at full resolution,
// and those of a day at a coarse resolution. It computes them from the node's own
// Prometheus metrics.
package traffic

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// names contains the names of the values of a sample, in their order.
var names = [...]string{
	"reads_per_second", "writes_per_second", "locks_per_second", "other_per_second",
	"p50_ms", "p99_ms", "commit_p99_ms", "fsync_p99_ms", "groups_per_entry",
	"clients", "blocked_clients",
	"dataset_bytes", "maxmemory_bytes", "disk_free_bytes", "disk_reserve_bytes",
}

// Positions in names.
const (
	reads = iota
	writes
	locks
	others
	p50
	p99
	commit
	fsync
	batch
	clients
	blocked
	dataset
	maxMemory
	diskFree
	diskReserve
	valueCount
)

// values is one sample. A value that is not known is NaN, such as the latency if
// there were no commands.
type values [valueCount]float64

// takesMaximum reports whether a coarse sample has the maximum of a value
// instead of its mean.
func takesMaximum(i int) bool { return i >= p50 && i <= fsync }

// sample contains the values of one sample and its time.
type sample struct {
	at time.Time
	values
}

// merge combines several samples into one coarse sample, with the time of the last
// of them.
func merge(all []sample) sample {
	out := sample{at: all[len(all)-1].at}
	for i := range out.values {
		sum, n, most := 0.0, 0, math.Inf(-1)
		for _, s := range all {
			if v := s.values[i]; !math.IsNaN(v) {
				sum, n, most = sum+v, n+1, max(most, v)
			}
		}
		switch {
		case n == 0:
			out.values[i] = math.NaN()
		case takesMaximum(i):
			out.values[i] = most
		default:
			out.values[i] = sum / float64(n)
		}
	}
	return out
}

// ring keeps the last samples.
type ring struct {
	samples []sample
	next    int // position of the next sample once the ring is full
}

func newRing(size int) ring { return ring{samples: make([]sample, 0, size)} }

func (r *ring) add(s sample) {
	if len(r.samples) < cap(r.samples) {
		r.samples = append(r.samples, s)
		return
	}
	r.samples[r.next] = s
	r.next = (r.next + 1) % len(r.samples)
}

// last returns the last n samples, or all if there are fewer, oldest first.
func (r *ring) last(n int) []sample {
	all := append(append([]sample(nil), r.samples[r.next:]...), r.samples[:r.next]...)
	return all[max(0, len(all)-n):]
}

// Series contains samples as columns.
type Series struct {
	// Interval is the time between two samples, in seconds.
	Interval float64 `json:"interval_seconds"`
	// Times are the ends of the intervals, in milliseconds since 1970 by the
	// node's wall clock.
	Times []int64 `json:"times_ms"`
	// Values are the columns by name. A value that is not known is null.
	Values map[string]Column `json:"values"`
}

// Column contains the values of one name.
type Column []float64

// MarshalJSON implements json.Marshaler. It rounds values that are not integers to
// four significant digits, and writes NaN and the infinities as null.
func (c Column) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, v := range c {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			b = append(b, "null"...)
		case v == math.Trunc(v) && math.Abs(v) < 1<<53:
			b = strconv.AppendInt(b, int64(v), 10)
		default:
			b = strconv.AppendFloat(b, v, 'g', 4, 64)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Column) UnmarshalJSON(b []byte) error {
	var all []*float64
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*c = make(Column, len(all))
	for i, v := range all {
		(*c)[i] = math.NaN()
		if v != nil {
			(*c)[i] = *v
		}
	}
	return nil
}

func columns(all []sample, interval time.Duration) Series {
	s := Series{
		Interval: interval.Seconds(), Times: make([]int64, len(all)), Values: make(map[string]Column, len(names)),
	}
	for i, name := range names {
		c := make(Column, len(all))
		for j := range all {
			c[j] = all[j].values[i]
		}
		s.Values[name] = c
	}
	for j := range all {
		s.Times[j] = all[j].at.UnixMilli()
	}
	return s
}
