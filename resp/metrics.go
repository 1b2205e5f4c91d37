package resp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Metrics are the client port's measurements.
type Metrics struct {
	Connections  prometheus.Counter
	AuthFailures prometheus.Counter
	Panics       prometheus.Counter
	Refused      *prometheus.CounterVec
	latency      *prometheus.HistogramVec
	byCommand    []prometheus.Observer // by fsm.Command.ID
}

func newMetrics(table *fsm.Table) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "holdfast", Name: name, Help: help})
	}
	m := &Metrics{
		Connections:  counter("client_connections_total", "Client connections accepted."),
		AuthFailures: counter("client_auth_failures_total", "Refused AUTH and HELLO AUTH."),
		Panics:       counter("client_panics_total", "Connections closed because serving them failed."),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "holdfast", Name: "client_refused_total",
			Help: "Connections refused or closed by the guard, by reason."}, []string{"reason"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "holdfast", Name: "command_seconds",
			Help: "Seconds from reading a command's pipeline until its replies, by command.", Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18)}, []string{"command"}),
	}
	for _, cmd := range table.Rows() {
		m.byCommand = append(m.byCommand, m.latency.WithLabelValues(cmd.Name))
	}
	return m
}

// group notes a group that took d: each of its commands took as long.
func (m *Metrics) group(cmds []*fsm.Command, d time.Duration) {
	for _, cmd := range cmds {
		m.byCommand[cmd.ID()].Observe(d.Seconds())
	}
}

func (m *Metrics) session(name string, d time.Duration) {
	m.latency.WithLabelValues(name).Observe(d.Seconds())
}

// Collectors returns what is to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Connections, m.AuthFailures, m.Panics, m.Refused, m.latency}
}
