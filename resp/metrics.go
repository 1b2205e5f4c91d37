package resp

import (
	"math"
	"math/bits"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

// Metrics are the metrics of the client port. INFO prints them too. They are
// safe for concurrent use.
type Metrics struct {
	Connections  prometheus.Counter
	AuthFailures prometheus.Counter
	Panics       prometheus.Counter
	Refused      *prometheus.CounterVec

	Published, Delivered, Invalidations, CutOff prometheus.Counter

	bytesIn, bytesOut      atomic.Uint64
	connections, authFails atomic.Uint64     // like the counters above, for INFO
	refused                atomic.Uint64     // connections refused because of MaxClients or MaxUnauth
	evicted                atomic.Uint64     // connections closed because of the memory for clients
	clientMem              *clientmem.Budget // nil until the port is open
	limits                 map[string]LimitFlag
	errors                 errorCounts

	all     []*series // sorted by name
	open    func() int
	blocked func() int64
	hub     *pubsub.Hub // nil until the port is open

	mu   sync.Mutex
	zero totals // values at the last CONFIG RESETSTAT; guarded by mu
	rate rate
}

// Latency buckets: the first bound is 50 µs, each further one is twice as
// large, up to 6.5 s. The last bucket contains all longer latencies.
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

// series contains the metrics of one command. It is safe for concurrent use. It
// is not a prometheus.Histogram, because that takes a search and three atomic
// additions per call; a pipeline of a thousand commands would pay them a
// thousand times.
type series struct {
	name     string
	buckets  [bucketCount + 1]atomic.Uint64
	nanos    atomic.Uint64
	failed   atomic.Uint64 // executed with an error reply
	rejected atomic.Uint64 // not executed: wrong arguments, not authenticated
}

func (s *series) add(bucket int, n uint64, d time.Duration) {
	s.buckets[bucket].Add(n)
	s.nanos.Add(n * uint64(max(d, 0)))
}

// sum is a snapshot of a series.
type sum struct {
	buckets                 [bucketCount + 1]uint64
	calls                   uint64
	nanos, failed, rejected uint64
}

func (s *series) sum() sum {
	t := sum{nanos: s.nanos.Load(), failed: s.failed.Load(), rejected: s.rejected.Load()}
	for i := range s.buckets {
		t.buckets[i] = s.buckets[i].Load()
		t.calls += t.buckets[i]
	}
	return t
}

func (t sum) minus(u sum) sum {
	for i := range t.buckets {
		t.buckets[i] -= u.buckets[i]
	}
	t.calls -= u.calls
	t.nanos -= u.nanos
	t.failed -= u.failed
	t.rejected -= u.rejected
	return t
}

// quantile returns the upper bound of the bucket that contains the q-quantile
// of the calls.
func (t sum) quantile(q float64) time.Duration {
	want := uint64(math.Ceil(q * float64(t.calls)))
	for i, n := range t.buckets {
		if n >= want {
			return bucketBound(i)
		}
		want -= n
	}
	return bucketBound(bucketCount)
}

// totals is a snapshot of everything that CONFIG RESETSTAT resets. The counters
// themselves continue, because a scraper of /metrics must not see them
// decrease.
type totals struct {
	series                                  map[string]sum
	errors                                  map[string]uint64
	connections, refused, bytesIn, bytesOut uint64
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

// newMetrics returns the metrics of a port, and gives each row of its command
// table a series. The subcommands of a command on data count for the container.
func newMetrics(rows map[string]*row) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "holdfast", Name: name, Help: help})
	}
	m := &Metrics{
		Connections: counter("client_connections_total", "Client connections accepted."),
		AuthFailures: counter("client_auth_failures_total",
			"Logins with a wrong user or password, and logins refused because too many had failed."),
		Panics: counter("client_panics_total", "Connections closed because serving them failed."),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "holdfast", Name: "client_refused_total",
			Help: "Connections refused or closed by the guard, by reason."}, []string{"reason"}),
		Published: counter("pubsub_published_total",
			"Messages of PUBLISH and SPUBLISH, through whichever node, "+
				"that were looked up among this node's subscribers."),
		Delivered: counter("pubsub_delivered_total",
			"Messages and keyspace notifications handed to connections of this node."),
		Invalidations: counter("tracking_invalidations_total", "Invalidations handed to connections that track keys."),
		CutOff: counter("pubsub_cut_off_total",
			"Connections closed because they read messages too slowly, would have missed some, "+
				"or had patterns that took too many steps."),
		open:    func() int { return 0 },
		blocked: func() int64 { return 0 },
	}
	for _, r := range rows {
		r.stats = m.series(r.cmd.Name)
		for i := range r.sub {
			r.sub[i].stats = m.series(r.sub[i].fullName())
		}
	}
	sort.Slice(m.all, func(i, j int) bool { return m.all[i].name < m.all[j].name })
	return m
}

func (m *Metrics) series(name string) *series {
	s := &series{name: name}
	m.all = append(m.all, s)
	return s
}

// group records a group that took d. Each of its commands counts as having
// taken d. out contains the replies, one for each command.
func (m *Metrics) group(rows []*row, d time.Duration, out []byte) {
	bucket := bucketOf(d)
	for i := 0; i < len(rows); {
		n := 1
		for i+n < len(rows) && rows[i+n] == rows[i] {
			n++
		}
		rows[i].stats.add(bucket, uint64(n), d)
		i += n
	}
	if !wire.MayHoldError(out) {
		return
	}
	for i := 0; len(out) > 0; i++ {
		n := wire.Len(out)
		if n == 0 {
			return
		}
		if out[0] == '-' && i < len(rows) {
			rows[i].stats.failed.Add(1)
		}
		m.countErrors(out[:n])
		out = out[n:]
	}
}

// failed records a group for which each command got the error text.
func (m *Metrics) failed(rows []*row, d time.Duration, text string) {
	m.group(rows, d, nil)
	for _, r := range rows {
		r.stats.failed.Add(1)
		m.errors.add(text)
	}
}

// countErrors counts the errors in one reply.
func (m *Metrics) countErrors(reply []byte) {
	if !wire.MayHoldError(reply) {
		return
	}
	wire.EachError(reply, func(line []byte) { m.errors.add(string(line)) })
}

// connectionCommand records a connection command.
func (m *Metrics) connectionCommand(r *row, d time.Duration, reply fsm.Reply) {
	r.stats.add(bucketOf(d), 1, d)
	if reply.IsError() {
		r.stats.failed.Add(1)
		m.errors.add(reply.Text())
	}
}

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
func (m *Metrics) now() totals {
	t := totals{
		series: make(map[string]sum, len(m.all)), errors: m.errors.all(),
		connections: m.connections.Load(), refused: m.refused.Load(),
		bytesIn: m.bytesIn.Load(), bytesOut: m.bytesOut.Load(),
	}
	for _, s := range m.all {
		if u := s.sum(); u.calls+u.rejected > 0 {
			t.series[s.name] = u
		}
	}
	return t
}

// sinceReset returns the values since the last reset, and the number of
// commands per second.
func (m *Metrics) sinceReset() (totals, float64) {
	t := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var calls uint64
	for _, s := range t.series {
		calls += s.calls
	}
	perSecond := m.rate.read(time.Now(), calls)
	for name, s := range t.series {
		if s = s.minus(m.zero.series[name]); s.calls+s.rejected > 0 {
			t.series[name] = s
		} else {
			delete(t.series, name)
		}
	}
	for code, n := range t.errors {
		if n -= m.zero.errors[code]; n > 0 {
			t.errors[code] = n
		} else {
			delete(t.errors, code)
		}
	}
	t.connections -= m.zero.connections
	t.refused -= m.zero.refused
	t.bytesIn -= m.zero.bytesIn
	t.bytesOut -= m.zero.bytesOut
	return t, perSecond
}

// reset makes sinceReset count from now on.
func (m *Metrics) reset() {
	t := m.now()
	m.mu.Lock()
	m.zero = t
	m.mu.Unlock()
}

// Collectors returns the collectors to register with Prometheus.
func (m *Metrics) Collectors() []prometheus.Collector {
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
		"Seconds from reading a command's pipeline until its replies, by command.", "command")
	descFailed = newDesc("commands_failed_total",
		"Commands that ran and answered an error, by command.", "command")
	descRejected = newDesc("commands_rejected_total",
		"Commands that were refused before they ran, by command.", "command")
	descErrors = newDesc("errors_total",
		"Error replies, by their code.", "code")
	descClientMemory = newDesc("client_memory_bytes",
		"Bytes that clients make this node hold and that count for --max-client-memory.")
	descEvicted = newDesc("client_evicted_total",
		"Client connections closed because they held the most of the memory for clients.")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_"+name, help, labels, nil)
}

// portCollector is a prometheus.Collector of Metrics.
type portCollector struct{ m *Metrics }

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
	collectLimits(p.m.limits, ch)
	ch <- prometheus.MustNewConstMetric(descClients, prometheus.GaugeValue, float64(p.m.open()))
	ch <- prometheus.MustNewConstMetric(descBlocked, prometheus.GaugeValue, float64(p.m.blocked()))
	if m := p.m.clientMem; m != nil {
		ch <- prometheus.MustNewConstMetric(descClientMemory, prometheus.GaugeValue, float64(m.Total()))
	}
	ch <- prometheus.MustNewConstMetric(descEvicted, prometheus.CounterValue, float64(p.m.evicted.Load()))
	if h := p.m.hub; h != nil {
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
	count(descBytesIn, t.bytesIn)
	count(descBytesOut, t.bytesOut)
	for code, n := range t.errors {
		count(descErrors, n, code)
	}
	for name, s := range t.series {
		below := make(map[float64]uint64, bucketCount)
		n := uint64(0)
		for i := range bucketCount {
			n += s.buckets[i]
			below[bucketBound(i).Seconds()] = n
		}
		ch <- prometheus.MustNewConstHistogram(descLatency, s.calls, float64(s.nanos)/1e9, below, name)
		count(descFailed, s.failed, name)
		count(descRejected, s.rejected, name)
	}
}
