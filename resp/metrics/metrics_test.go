package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestBucketOf(t *testing.T) {
	for i := range bucketCount {
		b := bucketBound(i)
		if got := bucketOf(b); got != i {
			t.Errorf("%v is in bucket %d, want %d", b, got, i)
		}
		if got := bucketOf(b + 1); got != i+1 {
			t.Errorf("a little more than %v is in bucket %d, want %d", b, got, i+1)
		}
	}
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 1: 0, time.Hour: bucketCount, 1<<63 - 1: bucketCount} {
		if got := bucketOf(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
}

func TestSum_Quantile(t *testing.T) {
	var s Series
	for range 99 {
		s.add(bucketOf(time.Millisecond), 1, time.Millisecond)
	}
	s.add(bucketOf(time.Second), 1, time.Second)
	u := s.sum()
	for q, want := range map[float64]time.Duration{0.5: bucketBound(5), 0.99: bucketBound(5), 0.999: bucketBound(15)} {
		if got := u.Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

// TestErrorCounts_Bounded checks that the number of error codes is bounded,
// because scripts can return any code.
func TestErrorCounts_Bounded(t *testing.T) {
	var e errorCounts
	for i := range 1000 {
		e.add(fmt.Sprintf("CODE%d text", i))
		e.add(strings.Repeat("X", 1000))
	}
	all := e.all()
	if len(all) > maxErrorCodes+1 || all["other"] == 0 {
		t.Errorf("%d codes are counted, and %d errors count as other, want a bounded number of codes and some others", len(all), all["other"])
	}
	n := uint64(0)
	for _, c := range all {
		n += c
	}
	if n != 2000 {
		t.Errorf("%d errors counted, want 2000", n)
	}
}

// TestMetrics_NoAllocation checks that recording a group allocates nothing.
func TestMetrics_NoAllocation(t *testing.T) {
	m, at, out := groupOf(64)
	if n := testing.AllocsPerRun(100, func() { m.Group(64, at, time.Millisecond, out) }); n != 0 {
		t.Errorf("recording a group makes %v allocations, want none", n)
	}
}

// groupOf returns the series and the replies of n equal commands.
func groupOf(n int) (*Port, func(int) *Series, []byte) {
	m := New(State{})
	s := m.Series("set")
	return m, func(int) *Series { return s }, []byte(strings.Repeat("$-1\r\n", n))
}

func BenchmarkMetrics_Group(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, at, out := groupOf(n)
			for b.Loop() {
				m.Group(n, at, time.Millisecond, out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/command")
		})
	}
}
