package cluster

import "github.com/prometheus/client_golang/prometheus"

// Counters are the node's own measurements. Metrics registers them.
type Counters struct {
	Entries       prometheus.Counter
	EntryGroups   prometheus.Histogram
	EntryBytes    prometheus.Histogram
	CommitSeconds prometheus.Histogram
	ReadRounds    prometheus.Counter
	ReadGroups    prometheus.Counter
	Resent        prometheus.Counter
	Unknown       prometheus.Counter
	Offices       prometheus.Counter
	EventsMissed  prometheus.Counter
	Scripts       prometheus.Counter
	ScriptSeconds prometheus.Histogram
	DiskSeconds   *prometheus.HistogramVec

	Snapshots        prometheus.Counter
	SnapshotFailures prometheus.Counter
}

func newCounters() Counters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "holdfast", Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "holdfast", Name: name, Help: help, Buckets: buckets})
	}
	seconds := prometheus.ExponentialBuckets(0.0001, 2, 16) // 0.1 ms … 3.3 s
	return Counters{
		Entries:          counter("proposer_entries_total", "Log entries proposed by this node."),
		EntryGroups:      histogram("proposer_entry_groups", "Groups (pipelines of clients) per proposed entry.", prometheus.ExponentialBuckets(1, 2, 13)),
		EntryBytes:       histogram("proposer_entry_bytes", "Bytes per proposed entry.", prometheus.ExponentialBuckets(64, 4, 10)),
		CommitSeconds:    histogram("proposer_commit_seconds", "Seconds from building an entry until it was applied here.", seconds),
		ReadRounds:       counter("read_rounds_total", "Confirmation rounds for linearizable reads led by this node."),
		ReadGroups:       counter("read_groups_total", "Groups of reads answered after a confirmation round led by this node."),
		Resent:           counter("gateway_resent_total", "Groups of this node's clients sent again to a new leader."),
		Unknown:          counter("gateway_unknown_total", "Groups of this node's clients whose outcome stayed unknown."),
		Offices:          counter("offices_total", "Times that this node began to lead."),
		EventsMissed:     counter("events_missed_total", "Times that events of the log could not be delivered to this node's clients one by one."),
		Scripts:          counter("scripts_total", "Scripts, functions and libraries run by this node's interpreter."),
		ScriptSeconds:    histogram("script_seconds", "Seconds that a script ran in this node's interpreter.", seconds),
		Snapshots:        counter("snapshots_total", "Snapshots that this node took of its state."),
		SnapshotFailures: counter("snapshot_failures_total", "Snapshots, taken here or sent by the leader, that could not be written or read back."),
		DiskSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Name: "disk_write_seconds", Help: "Seconds of a durable write, by operation (append, stable).", Buckets: seconds,
		}, []string{"op"}),
	}
}

func (c *Counters) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.Entries, c.EntryGroups, c.EntryBytes, c.CommitSeconds, c.ReadRounds, c.ReadGroups, c.Resent, c.Unknown, c.Offices, c.EventsMissed, c.Scripts, c.ScriptSeconds, c.DiskSeconds, c.Snapshots, c.SnapshotFailures}
}
