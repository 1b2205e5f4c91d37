// Package metrics contains the metrics of a client port.
package metrics

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

// Port contains the metrics of a client port. INFO prints some of them too. It is
// safe for concurrent use.
type Port struct {
	Connections  prometheus.Counter
	AuthFailures prometheus.Counter
	Panics       prometheus.Counter
	Refused      *prometheus.CounterVec

	Published, Delivered, Invalidations, CutOff prometheus.Counter

	BytesIn, BytesOut atomic.Uint64
	Accepted          atomic.Uint64 // the same number as Connections, for INFO
	Unserved          atomic.Uint64 // calls of guard.Hooks.Refused
	Evicted           atomic.Uint64 // connections closed because of the memory for clients

	errors errorCounts
	state  State
	all    []*Series

	mu   sync.Mutex
	zero Totals // values at the last CONFIG RESETSTAT; guarded by mu
	rate rate
}

// State gives access to the state of a port. The port calls the functions only
// when the metrics are collected.
type State struct {
	Open    func() int   // open connections
	Blocked func() int64 // connections in a blocking command that waits
	Hub     func() *pubsub.Hub
	Memory  *clientmem.Budget
	Limits  map[string]LimitFlag
}

// LimitFlag is the value of a command-line flag that limits clients. The metrics
// contain it as holdfast_limit.
type LimitFlag struct {
	Value  string
	Number float64 // the value as a number; seconds for a duration
}

// The upper bound of the first latency bucket is 50 µs. Each further bound is
// twice the bound before it, up to 6.5 s. The last bucket contains all longer
// latencies. For this bucket, bucketBound returns 13.1 s, although the bucket also
// contains longer latencies.
const (
	firstBucket = 50 * time.Microsecond
	bucketCount = 18
)

func bucketBound(i int) time.Duration { return firstBucket << i }

// bucketOf returns the index of the bucket that contains d.
func bucketOf(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return min(bits.Len64(uint64(d-1)/uint64(firstBucket)), bucketCount)
}

// Series contains the metrics of one command. It is safe for concurrent use. It is
// not a prometheus.Histogram, because a Histogram needs a search and three atomic
// additions for each call. A pipeline of a thousand commands would pay this cost a
// thousand times.
type Series struct {
	Name     string
	buckets  [bucketCount + 1]atomic.Uint64
	nanos    atomic.Uint64
	failed   atomic.Uint64 // executed with an error reply
	rejected atomic.Uint64 // not executed, for example because of wrong arguments
}

func (s *Series) add(bucket int, n uint64, d time.Duration) {
	s.buckets[bucket].Add(n)
	s.nanos.Add(n * uint64(max(d, 0)))
}

// Sum is a snapshot of a series.
type Sum struct {
	Calls, Nanos, Failed, Rejected uint64

	buckets [bucketCount + 1]uint64
}

func (s *Series) sum() Sum {
	t := Sum{Nanos: s.nanos.Load(), Failed: s.failed.Load(), Rejected: s.rejected.Load()}
	for i := range s.buckets {
		t.buckets[i] = s.buckets[i].Load()
		t.Calls += t.buckets[i]
	}
	return t
}

func (t Sum) minus(u Sum) Sum {
	for i := range t.buckets {
		t.buckets[i] -= u.buckets[i]
	}
	t.Calls -= u.Calls
	t.Nanos -= u.Nanos
	t.Failed -= u.Failed
	t.Rejected -= u.Rejected
	return t
}

// Bucket is a bucket of a histogram of latencies: how many calls took up to Bound.
type Bucket struct {
	Bound time.Duration
	Calls uint64
}

// Buckets returns the buckets that contain calls. The count of each bucket also
// includes the calls in all lower buckets.
func (t Sum) Buckets() []Bucket {
	var all []Bucket
	n := uint64(0)
	for i, in := range t.buckets {
		if n += in; in > 0 {
			all = append(all, Bucket{bucketBound(i), n})
		}
	}
	return all
}

// Quantile returns the upper bound of the bucket that contains the q-quantile
// of the calls.
func (t Sum) Quantile(q float64) time.Duration {
	want := uint64(math.Ceil(q * float64(t.Calls)))
	for i, n := range t.buckets {
		if n >= want {
			return bucketBound(i)
		}
		want -= n
	}
	return bucketBound(bucketCount)
}

// Totals is a snapshot of the values that CONFIG RESETSTAT resets in INFO. The
// counters themselves continue, because a scraper of /metrics must not see them
// decrease.
type Totals struct {
	Series                                map[string]Sum // by full name of the command
	Errors                                map[string]uint64
	Accepted, Unserved, BytesIn, BytesOut uint64
}

// rate computes the number of events per second from two values of a counter.
type rate struct {
	at    time.Time
	count uint64
	last  float64
}

func (r *rate) read(now time.Time, count uint64) float64 {
	if d := now.Sub(r.at); d >= 100*time.Millisecond {
		if !r.at.IsZero() {
			r.last = float64(count-r.count) / d.Seconds()
		}
		r.at, r.count = now, count
	}
	return r.last
}

// New returns the metrics of a port.
func New(state State) *Port {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "holdfast", Name: name, Help: help})
	}
	m := &Port{
		Connections: counter("client_connections_total", "Client connections accepted."),
		AuthFailures: counter("client_auth_failures_total",
			"Logins with a wrong user or password, and logins refused because too many had failed."),
		Panics: counter("client_panics_total", "Connections closed because of a bug: please report it."),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "holdfast", Name: "client_refused_total",
			Help: "Connections that the node refused or closed, and blocking commands that it refused because of " +
				"--max-blocked-clients, by reason."}, []string{"reason"}),
		Published: counter("pubsub_published_total",
			"Messages of PUBLISH and SPUBLISH, sent through any node, "+
				"for which this node looked up its subscribers."),
		Delivered: counter("pubsub_delivered_total",
			"Messages and keyspace notifications handed to connections of this node."),
		Invalidations: counter("tracking_invalidations_total", "Invalidations handed to connections that track keys."),
		CutOff: counter("pubsub_cut_off_total",
			"Connections closed because they read messages too slowly, would have missed some, "+
				"or had patterns that took too many steps."),
		state: state,
	}
	return m
}

// Series returns a new series for the command with the given full name.
func (m *Port) Series(name string) *Series {
	s := &Series{Name: name}
	m.all = append(m.all, s)
	return s
}

// Group records a group of n commands that took d. Each command counts with the
// whole time d. The function at returns the series of the command with a given
// index. out contains the replies, one for each command.
func (m *Port) Group(n int, at func(i int) *Series, d time.Duration, out []byte) {
	bucket := bucketOf(d)
	for i := 0; i < n; {
		s, same := at(i), 1
		for i+same < n && at(i+same) == s {
			same++
		}
		s.add(bucket, uint64(same), d)
		i += same
	}
	if !wire.MayHoldError(out) {
		return
	}
	for i := 0; len(out) > 0; i++ {
		size := wire.Len(out)
		if size == 0 {
			return
		}
		if out[0] == '-' && i < n {
			at(i).failed.Add(1)
		}
		m.countErrors(out[:size])
		out = out[size:]
	}
}

// FailedGroup records a group of n commands, each of which got the error text.
func (m *Port) FailedGroup(n int, at func(i int) *Series, d time.Duration, text string) {
	m.Group(n, at, d, nil)
	for i := range n {
		at(i).failed.Add(1)
		m.errors.add(text)
	}
}

// countErrors counts the errors in one reply.
func (m *Port) countErrors(reply []byte) {
	if !wire.MayHoldError(reply) {
		return
	}
	wire.EachError(reply, func(line []byte) { m.errors.add(string(line)) })
}

// Command records a command that took d.
func (m *Port) Command(s *Series, d time.Duration, reply fsm.Reply) {
	s.add(bucketOf(d), 1, d)
	if reply.IsError() {
		s.failed.Add(1)
		m.errors.add(reply.Text())
	}
}

// Reject records an error reply to a command that was not executed. s is nil if
// there is no such command.
func (m *Port) Reject(s *Series, text string) {
	if s != nil {
		s.rejected.Add(1)
	}
	m.errors.add(text)
}

// Error records an error reply.
func (m *Port) Error(text string) { m.errors.add(text) }

// maxErrorCodes bounds the number of error codes that are counted separately,
// because scripts can return any code.
const maxErrorCodes = 64

// errorCounts counts errors by their code, which is the first word of the text.
// It is safe for concurrent use.
type errorCounts struct {
	mu     sync.RWMutex
	counts map[string]*atomic.Uint64
	total  atomic.Uint64
}

func (e *errorCounts) add(text string) {
	code := text
	for i := range len(text) {
		if b := text[i]; b == ' ' || b == '\r' {
			code = text[:i]
			break
		}
	}
	if len(code) > 32 {
		code = code[:32]
	}
	e.total.Add(1)
	e.mu.RLock()
	n := e.counts[code]
	e.mu.RUnlock()
	if n == nil {
		n = e.newCode(code)
	}
	n.Add(1)
}

func (e *errorCounts) newCode(code string) *atomic.Uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = make(map[string]*atomic.Uint64)
	}
	if len(e.counts) >= maxErrorCodes {
		code = "other"
	}
	if e.counts[code] == nil {
		e.counts[code] = new(atomic.Uint64)
	}
	return e.counts[code]
}

func (e *errorCounts) all() map[string]uint64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	out := make(map[string]uint64, len(e.counts))
	for code, n := range e.counts {
		out[code] = n.Load()
	}
	return out
}

// now returns a snapshot of all values.
func (m *Port) now() Totals {
	t := Totals{
		Series: make(map[string]Sum, len(m.all)), Errors: m.errors.all(),
		Accepted: m.Accepted.Load(), Unserved: m.Unserved.Load(),
		BytesIn: m.BytesIn.Load(), BytesOut: m.BytesOut.Load(),
	}
	for _, s := range m.all {
		if u := s.sum(); u.Calls+u.Rejected > 0 {
			t.Series[s.Name] = u
		}
	}
	return t
}

// SinceReset returns the values since the last reset, and the number of
// commands per second.
func (m *Port) SinceReset() (Totals, float64) {
	t := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var calls uint64
	for _, s := range t.Series {
		calls += s.Calls
	}
	perSecond := m.rate.read(time.Now(), calls)
	for name, s := range t.Series {
		if s = s.minus(m.zero.Series[name]); s.Calls+s.Rejected > 0 {
			t.Series[name] = s
		} else {
			delete(t.Series, name)
		}
	}
	for code, n := range t.Errors {
		if n -= m.zero.Errors[code]; n > 0 {
			t.Errors[code] = n
		} else {
			delete(t.Errors, code)
		}
	}
	t.Accepted -= m.zero.Accepted
	t.Unserved -= m.zero.Unserved
	t.BytesIn -= m.zero.BytesIn
	t.BytesOut -= m.zero.BytesOut
	return t, perSecond
}

// Reset makes SinceReset count from now on.
func (m *Port) Reset() {
	t := m.now()
	m.mu.Lock()
	m.zero = t
	m.mu.Unlock()
}

// Collectors returns the collectors to register with Prometheus.
func (m *Port) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.Connections, m.AuthFailures, m.Panics, m.Refused, m.Published, m.Delivered, m.Invalidations, m.CutOff,
		portCollector{m},
	}
}

var (
	descClients = newDesc("clients",
		"Client connections open.")
	descBlocked = newDesc("blocked_clients",
		"Client connections that wait in a blocking command.")
	descSubscriptions = newDesc("pubsub_subscriptions",
		"Subscriptions of this node's clients to channels, patterns and shard channels.")
	descSubscriptionBytes = newDesc("pubsub_subscription_bytes",
		"Estimated memory of the subscriptions and BCAST prefixes of this node's clients.")
	descMatching = newDesc("pubsub_match_steps_total",
		"Steps taken to match channels against the patterns of this node's clients.")
	descTrackers = newDesc("tracking_clients",
		"Client connections that track keys.")
	descTracked = newDesc("tracking_keys",
		"Keys that are remembered for connections that track.")
	descBytesIn = newDesc("client_received_bytes_total",
		"Bytes of commands received from clients.")
	descBytesOut = newDesc("client_sent_bytes_total",
		"Bytes of replies to clients.")
	descLatency = newDesc("command_seconds",
		"Seconds from the beginning of a command's group until its replies, by command, at the node of the client.",
		"command")
	descFailed = newDesc("commands_failed_total",
		"Commands that ran and answered an error, by command.", "command")
	descRejected = newDesc("commands_rejected_total",
		"Commands that were not run (arity, authentication, …), by command.", "command")
	descErrors = newDesc("errors_total",
		"Error replies, by code, the first word of the error.", "code")
	descClientMemory = newDesc("client_memory_bytes",
		"Bytes that count toward --max-client-memory.")
	descLimit = newDesc("limit",
		"Value of a flag that limits what clients may do; seconds for a duration.", "flag")
	descEvicted = newDesc("client_evicted_total",
		"Client connections closed because of --max-client-memory.")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_"+name, help, labels, nil)
}

// portCollector is a prometheus.Collector of Port.
type portCollector struct{ m *Port }

// Describe implements prometheus.Collector.
func (p portCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descClients, descClientMemory, descEvicted, descBlocked, descSubscriptions, descSubscriptionBytes,
		descMatching, descTrackers, descTracked, descBytesIn, descBytesOut, descLatency, descFailed, descRejected,
		descErrors, descLimit,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p portCollector) Collect(ch chan<- prometheus.Metric) {
	t := p.m.now()
	for name, f := range p.m.state.Limits {
		ch <- prometheus.MustNewConstMetric(descLimit, prometheus.GaugeValue, f.Number, name)
	}
	ch <- prometheus.MustNewConstMetric(descClients, prometheus.GaugeValue, float64(p.m.state.Open()))
	ch <- prometheus.MustNewConstMetric(descBlocked, prometheus.GaugeValue, float64(p.m.state.Blocked()))
	if m := p.m.state.Memory; m != nil {
		ch <- prometheus.MustNewConstMetric(descClientMemory, prometheus.GaugeValue, float64(m.Total()))
	}
	ch <- prometheus.MustNewConstMetric(descEvicted, prometheus.CounterValue, float64(p.m.Evicted.Load()))
	if h := p.m.state.Hub(); h != nil {
		sizes := h.Sizes()
		tracked, _, _ := h.TrackedSizes()
		ch <- prometheus.MustNewConstMetric(descSubscriptions, prometheus.GaugeValue, float64(sizes.Subscriptions))
		ch <- prometheus.MustNewConstMetric(descSubscriptionBytes, prometheus.GaugeValue, float64(sizes.Bytes))
		ch <- prometheus.MustNewConstMetric(descMatching, prometheus.CounterValue, float64(h.MatchSteps()))
		ch <- prometheus.MustNewConstMetric(descTrackers, prometheus.GaugeValue, float64(h.Trackers()))
		ch <- prometheus.MustNewConstMetric(descTracked, prometheus.GaugeValue, float64(tracked))
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(descBytesIn, t.BytesIn)
	count(descBytesOut, t.BytesOut)
	for code, n := range t.Errors {
		count(descErrors, n, code)
	}
	for name, s := range t.Series {
		below := make(map[float64]uint64, bucketCount)
		n := uint64(0)
		for i := range bucketCount {
			n += s.buckets[i]
			below[bucketBound(i).Seconds()] = n
		}
		ch <- prometheus.MustNewConstHistogram(descLatency, s.Calls, float64(s.Nanos)/1e9, below, name)
		count(descFailed, s.Failed, name)
		count(descRejected, s.Rejected, name)
	}
}
