package cluster

import "github.com/prometheus/client_golang/prometheus"

// Counters are the metrics of a node. Collectors returns them for registration.
type Counters struct {
	Entries         prometheus.Counter
	EntryGroups     prometheus.Histogram
	EntryBytes      prometheus.Histogram
	CommitSeconds   prometheus.Histogram
	ApplySeconds    prometheus.Histogram
	ApplySteps      prometheus.Counter
	SlowEntries     prometheus.Counter
	ReadIndexRounds prometheus.Counter
	ReadGroups      prometheus.Counter
	Resent          prometheus.Counter
	Unknown         prometheus.Counter
	Leaderships     prometheus.Counter
	EventsMissed    prometheus.Counter
	Scripts         prometheus.Counter
	ScriptSeconds   prometheus.Histogram
	// ScriptsRefused counts the slow scripts that got no slot.
	ScriptsRefused prometheus.Counter
	// WritesRefused counts writes that would take too long on every node, and heavy
	// writes that got no place.
	WritesRefused prometheus.Counter
	DiskSeconds   *prometheus.HistogramVec

	SlowReads        prometheus.Counter
	SlowReadsRefused *prometheus.CounterVec
	SlowReadSeconds  prometheus.Histogram

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
	c := Counters{
		Entries:          counter("proposer_entries_total", "Log entries proposed by this node."),
		EntryGroups:      histogram("proposer_entry_groups", "Groups (pipelines of clients) per proposed entry.", prometheus.ExponentialBuckets(1, 2, 13)),
		EntryBytes:       histogram("proposer_entry_bytes", "Bytes per proposed entry.", prometheus.ExponentialBuckets(64, 4, 10)),
		CommitSeconds:    histogram("proposer_commit_seconds", "Seconds from building an entry until it was applied here.", seconds),
		ApplySeconds:     histogram("apply_entry_seconds", "Seconds that this node took to apply a log entry.", seconds),
		ApplySteps:       counter("apply_steps_total", "Steps that the entries which this node applied cost: about ten nanoseconds each."),
		SlowEntries:      counter("apply_slow_entries_total", "Log entries that this node took longer than 10 ms to apply."),
		ReadIndexRounds:  counter("read_rounds_total", "Confirmation rounds for linearizable reads led by this node."),
		ReadGroups:       counter("read_groups_total", "Groups of reads answered after a confirmation round led by this node."),
		Resent:           counter("forwarder_resent_total", "Groups of this node's clients sent again to a new leader."),
		Unknown:          counter("forwarder_unknown_total", "Groups of this node's clients whose outcome stayed unknown."),
		Leaderships:      counter("leaderships_total", "Times that this node began to lead."),
		EventsMissed:     counter("events_missed_total", "Times that events of the log could not be delivered to this node's clients one by one."),
		Scripts:          counter("scripts_total", "Scripts, functions and libraries run by this node's interpreter."),
		WritesRefused:    counter("writes_refused_total", "Writes that this node, as leader, did not execute because they would take too long on every node (--max-write-time), or because other heavy writes took all places."),
		ScriptsRefused:   counter("scripts_refused_total", "Slow scripts that this node did not run because others took all places."),
		ScriptSeconds:    histogram("script_seconds", "Seconds that a script ran in this node's interpreter.", seconds),
		SlowReads:        counter("slow_reads_total", "Groups of reads that took longer than a quick read may, and ran on a copy-on-write clone."),
		SlowReadSeconds:  histogram("slow_read_seconds", "Seconds that a slow read ran, without the time that others had its place.", seconds),
		SlowReadsRefused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "holdfast", Name: "slow_reads_refused_total", Help: "Slow reads that ended with an error, by reason (no_place, time, memory)."}, []string{"reason"}),
		Snapshots:        counter("snapshots_total", "Snapshots that this node took of its state."),
		SnapshotFailures: counter("snapshot_failures_total", "Snapshots, taken here or sent by the leader, that could not be written or read back."),
		DiskSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Name: "disk_write_seconds", Help: "Seconds of a durable write, by operation (append, stable).", Buckets: seconds,
		}, []string{"op"}),
	}
	for _, reason := range []string{"no_place", "time", "memory"} { // shown from the start, as 0
		c.SlowReadsRefused.WithLabelValues(reason)
	}
	return c
}

func (c *Counters) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.Entries, c.EntryGroups, c.EntryBytes, c.CommitSeconds, c.ApplySeconds, c.ApplySteps, c.SlowEntries, c.ReadIndexRounds, c.ReadGroups, c.Resent, c.Unknown, c.Leaderships, c.EventsMissed, c.Scripts, c.ScriptsRefused, c.WritesRefused, c.ScriptSeconds, c.SlowReads, c.SlowReadsRefused, c.SlowReadSeconds, c.DiskSeconds, c.Snapshots, c.SnapshotFailures}
}
