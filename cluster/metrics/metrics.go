// Package metrics contains the metrics of a node of the cluster.
package metrics

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/execution"
	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Counters are the metrics that a node counts.
type Counters struct {
	Entries       prometheus.Counter
	EntryGroups   prometheus.Histogram
	EntryBytes    prometheus.Histogram
	CommitSeconds prometheus.Histogram
	ApplySeconds  prometheus.Histogram
	ApplySteps    prometheus.Counter
	SlowEntries   prometheus.Counter
	ReadCounters
	Resent        prometheus.Counter
	Unknown       prometheus.Counter
	Leaderships   prometheus.Counter
	EventsMissed  prometheus.Counter
	Scripts       prometheus.Counter
	ScriptSeconds prometheus.Histogram
	// ScriptsRefused counts the slow scripts that got no slot.
	ScriptsRefused prometheus.Counter
	// WritesRefused counts the writes that would take too long on every node,
	// and the heavy writes that got no slot.
	WritesRefused prometheus.Counter
	// MemoryRefused counts the commands that were refused because the data set
	// is larger than maxmemory.
	MemoryRefused prometheus.Counter
	DiskSeconds   *prometheus.HistogramVec

	SlowReads        prometheus.Counter
	SlowReadsRefused *prometheus.CounterVec
	SlowReadSeconds  prometheus.Histogram

	SnapshotCounters
	// LockHistoryGaps counts the gaps in the history of locks.
	LockHistoryGaps prometheus.Counter
	Locks           *Locks
}

// ReadCounters are the metrics about the reads that a node confirms as leader.
type ReadCounters struct {
	ReadIndexRounds prometheus.Counter
	ReadGroups      prometheus.Counter
	ReadsLeased     prometheus.Counter
}

// SnapshotCounters are the metrics about the snapshots of a node.
type SnapshotCounters struct {
	Snapshots        prometheus.Counter
	SnapshotFailures prometheus.Counter
}

// New returns new metrics.
func New() *Counters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "holdfast", Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		opts := prometheus.HistogramOpts{Namespace: "holdfast", Name: name, Help: help, Buckets: buckets}
		return prometheus.NewHistogram(opts)
	}
	seconds := prometheus.ExponentialBuckets(0.0001, 2, 16) // 0.1 ms … 3.3 s
	c := &Counters{
		Locks:   NewLocks(),
		Entries: counter("proposer_entries_total", "Log entries proposed by this node."),
		EntryGroups: histogram("proposer_entry_groups",
			"Groups (pipelines of clients) per proposed entry: how well commands are batched.",
			prometheus.ExponentialBuckets(1, 2, 13)),
		EntryBytes: histogram("proposer_entry_bytes",
			"Bytes per proposed entry.", prometheus.ExponentialBuckets(64, 4, 10)),
		CommitSeconds: histogram("proposer_commit_seconds",
			"Seconds from building an entry until it was applied here.", seconds),
		ApplySeconds: histogram("apply_entry_seconds",
			"Seconds that this node took to apply a log entry. The writes of all clients wait for it.", seconds),
		ApplySteps: counter("apply_steps_total",
			"Steps of computation of the entries that this node has applied. A step takes about ten nanoseconds."),
		SlowEntries: counter("apply_slow_entries_total",
			"Log entries that this node took longer than 10 ms to apply."),
		ReadCounters: ReadCounters{
			ReadIndexRounds: counter("read_rounds_total",
				"ReadIndex rounds that this node, as leader, ran for linearizable reads."),
			ReadGroups: counter("read_groups_total",
				"Groups of reads that this node confirmed as leader, after a round or under its lease."),
			ReadsLeased: counter("read_leased_groups_total",
				"Groups of reads that this node confirmed under its leader lease (--leader-lease), without a round."),
		},
		Resent: counter("forwarder_resent_total",
			"Groups of this node's clients sent again to a new leader."),
		Unknown: counter("forwarder_unknown_total",
			"Groups of this node's clients whose outcome stayed unknown (UNKNOWN)."),
		Leaderships: counter("leaderships_total", "Times that this node began to lead."),
		EventsMissed: counter("events_missed_total",
			"Times that events of the log could not be delivered to this node's clients one by one, because a "+
				"snapshot came in their place, delivery took too long, or this node was removed."),
		Scripts: counter("scripts_total", "Scripts, functions and libraries run by this node's "+
			"interpreter. The leader runs those of all clients; any node runs read-only ones."),
		WritesRefused: counter("writes_refused_total",
			"Writes that this node, as leader, did not execute (BUSY) because they would take too long on every "+
				"node (--max-write-time), or because other heavy writes occupied all slots."),
		MemoryRefused: counter("maxmemory_refused_total",
			"Commands, transactions and writes of scripts that this node, as leader, refused because the data "+
				"set is larger than maxmemory. A command that was refused when it was queued for EXEC counts, and "+
				"the failed EXEC does not."),
		ScriptsRefused: counter("scripts_refused_total",
			"Slow scripts that this node did not run (BUSY) because other slow scripts occupied all slots."),
		ScriptSeconds: histogram("script_seconds", "Seconds that a script ran in this node's interpreter.", seconds),
		SlowReads: counter("slow_reads_total",
			"Groups of reads that ran on a copy-on-write clone, because they took longer than 0.5 ms or "+
				"contain scripts. The leader runs most of them; any node runs those of its READONLY connections "+
				"and, for its other clients, those with large replies."),
		SlowReadSeconds: histogram("slow_read_seconds",
			"Seconds that a slow read ran, without the time in which other reads had its slot.", seconds),
		SlowReadsRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "holdfast", Name: "slow_reads_refused_total",
			Help: "Slow reads that ended with BUSY or OOM, by reason (no_slot, time, memory).",
		}, []string{"reason"}),
		SnapshotCounters: SnapshotCounters{
			Snapshots: counter("snapshots_total", "Snapshots that this node took of its state."),
			SnapshotFailures: counter("snapshot_failures_total",
				"Snapshots, taken here or sent by the leader, that could not be written or read back."),
		},
		LockHistoryGaps: counter("lock_history_gaps_total",
			"Gaps in this node's history of locks since it started: it got a snapshot in place of entries, events "+
				"could not be written or came faster than the disk wrote them, or a file was damaged."),
		DiskSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Name: "disk_write_seconds",
			Help: "Seconds of a durable write, by operation: append is the log, stable is the file with term and " +
				"vote.",
			Buckets: seconds,
		}, []string{"op"}),
	}
	for _, reason := range execution.ReadRefusals() { // shown from the start, as 0
		c.SlowReadsRefused.WithLabelValues(reason)
	}
	return c
}

// Collectors returns the metrics and the state of the node, for registration.
func (c *Counters) Collectors(node Source) []prometheus.Collector {
	return []prometheus.Collector{
		c.Entries, c.EntryGroups, c.EntryBytes, c.CommitSeconds, c.ApplySeconds, c.ApplySteps, c.SlowEntries,
		c.ReadIndexRounds, c.ReadGroups, c.ReadsLeased, c.Resent, c.Unknown, c.Leaderships, c.EventsMissed, c.Scripts,
		c.ScriptsRefused, c.WritesRefused, c.MemoryRefused, c.ScriptSeconds, c.SlowReads, c.SlowReadsRefused,
		c.SlowReadSeconds, c.DiskSeconds, c.Snapshots, c.SnapshotFailures, c.LockHistoryGaps, c.Locks,
		nodeCollector{node},
	}
}

// Source provides the state of a node at the time of a scrape.
type Source struct {
	Status func() health.NodeStatus
	// Blocked returns, by member, whether the member keeps the feature version
	// from being raised. It is called on a leader only.
	Blocked func() map[string]bool
	Reads   *execution.Reads
	Machine *machine.Machine
	// LockHistory returns the size of the history of locks, in bytes.
	LockHistory func() int64
	// Members returns the members of the cluster, with the health that this node
	// last received from them.
	Members func() []health.PeerHealth
	// Snapshot returns the size in bytes of the newest snapshot of the node,
	// and the time at which it was begun. ok is false if there is none.
	Snapshot func() (size int64, taken time.Time, ok bool)
	// Wall returns the time of the node's wall clock.
	Wall func() time.Time
}

// nodeCollector reports the state of the node at the time of the scrape.
type nodeCollector struct{ node Source }

var (
	descTerm    = prometheus.NewDesc("holdfast_raft_term", "Current raft term.", nil, nil)
	descCommit  = prometheus.NewDesc("holdfast_raft_commit_index", "Raft commit index.", nil, nil)
	descApplied = prometheus.NewDesc("holdfast_raft_applied_index",
		"Index of the last entry that this node's state machine has applied.", nil, nil)
	descLast = prometheus.NewDesc("holdfast_raft_last_index",
		"Index of the last entry in this node's log.", nil, nil)
	descLeader = prometheus.NewDesc("holdfast_is_leader",
		"1 on the node that leads, 0 elsewhere. The sum should be 1.", nil, nil)
	descReady    = prometheus.NewDesc("holdfast_ready", "1 while the node is connected to a leader.", nil, nil)
	descKeys     = prometheus.NewDesc("holdfast_keys", "Keys in all databases.", nil, nil)
	descVolatile = prometheus.NewDesc("holdfast_keys_with_ttl", "Keys with a time to live.", nil, nil)
	descExpired  = prometheus.NewDesc("holdfast_expired_keys_total",
		"Keys that log entries have removed because their time to live was over.", nil, nil)
	descOps = prometheus.NewDesc("holdfast_logged_operations_total",
		"Operations that the log entries have executed. The same on every node.", nil, nil)
	descLease = prometheus.NewDesc("holdfast_lease_clock_seconds",
		"Lease clock of the last entry, seconds since the cluster was formed.", nil, nil)
	descDup = prometheus.NewDesc("holdfast_duplicate_groups_total",
		"Groups that arrived twice and ran once.", nil, nil)
	descLog = prometheus.NewDesc("holdfast_log_bytes",
		"Payload bytes in the raft log. Falls with every snapshot.", nil, nil)
	descDiskFree = prometheus.NewDesc("holdfast_disk_free_bytes",
		"Bytes that the node may still write to the disk of its data directory.", nil, nil)
	descDiskTotal = prometheus.NewDesc("holdfast_disk_total_bytes",
		"Size of the disk of the data directory.", nil, nil)
	descDiskReserve = prometheus.NewDesc("holdfast_disk_reserve_bytes",
		"Free bytes below which a leader refuses commands that add data (--disk-reserve).", nil, nil)
	descRefused = prometheus.NewDesc("holdfast_disk_writes_refused",
		"1 while this node leads and refuses commands that add data because the disk is almost full.", nil, nil)
	descDataset = prometheus.NewDesc("holdfast_dataset_bytes",
		"Approximate memory of all keys and their values, counted the same way on every node.", nil, nil)
	descMaxMemory = prometheus.NewDesc("holdfast_maxmemory_bytes",
		"Size of the data set above which this node, as leader, refuses commands that add data; 0 for no limit.",
		nil, nil)
	descFeatures = prometheus.NewDesc("holdfast_feature_version",
		"Feature version of the cluster, as far as this node has applied the log.", nil, nil)
	descBlocked = prometheus.NewDesc("holdfast_feature_version_blocked",
		"On the leader, by node: 1 for a member that keeps the feature version from being raised, because "+
			"it does not answer or its program is older.", []string{"node"}, nil)
	descQuarantine = prometheus.NewDesc("holdfast_quarantine_seconds",
		"Time for which no lock is granted after a restore or a recovery, 0 outside a quarantine.", nil, nil)
	descLockHistory = prometheus.NewDesc("holdfast_lock_history_bytes",
		"Bytes of the files with this node's history of locks (--lock-history-size).", nil, nil)
	descMember = prometheus.NewDesc("holdfast_member_reachable",
		"By member of the cluster: 1 if the member answered the last request of this node, which asks every second.",
		[]string{"node"}, nil)
	descVoters = prometheus.NewDesc("holdfast_voters",
		"Members of the cluster that vote. A majority of them must be reachable.", nil, nil)
	descSnapshotBytes = prometheus.NewDesc("holdfast_snapshot_bytes",
		"Size of this node's newest snapshot. Not present until there is one.", nil, nil)
	descSnapshotTaken = prometheus.NewDesc("holdfast_snapshot_timestamp_seconds",
		"Time at which this node's newest snapshot was begun, in seconds since 1970. Not present until there is one.",
		nil, nil)
	descWall = prometheus.NewDesc("holdfast_wall_clock_seconds",
		"Wall clock of this node, in seconds since 1970. Subtract the time of the scrape to compare nodes.",
		nil, nil)
	descBuild = prometheus.NewDesc("holdfast_build_info",
		"1, with the version of the program, its revision in the source repository, and the version of Go.",
		[]string{"version", "revision", "goversion"}, nil)
	descSessions = prometheus.NewDesc("holdfast_sessions", "Sessions of nodes that the state machine stores.", nil, nil)
	descSlowRun  = prometheus.NewDesc("holdfast_slow_reads_running",
		"Slow reads that have begun and have not ended.", nil, nil)
	descSlowWait = prometheus.NewDesc("holdfast_slow_reads_waiting",
		"Slow reads that wait for their first slot.", nil, nil)
	descSlowBytes = prometheus.NewDesc("holdfast_slow_read_bytes",
		"Bytes of intermediate results and replies that count toward --max-slow-read-memory.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, ch)
}

// Collect implements prometheus.Collector.
func (c nodeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	st := c.node.Status()
	gauge(descTerm, float64(st.Term))
	gauge(descCommit, float64(st.Commit))
	gauge(descApplied, float64(st.Applied))
	gauge(descLast, float64(st.LastIndex))
	gauge(descLeader, number(st.Role == "leader"))
	gauge(descReady, number(st.Ready))
	gauge(descLog, float64(st.LogBytes))
	gauge(descRefused, number(st.WritesRefused != ""))
	if st.DiskTotal > 0 {
		gauge(descDiskFree, float64(st.DiskFree))
		gauge(descDiskTotal, float64(st.DiskTotal))
		gauge(descDiskReserve, float64(st.DiskReserve))
	}
	gauge(descDataset, float64(st.DatasetBytes))
	gauge(descMaxMemory, float64(st.MaxMemory))
	gauge(descFeatures, float64(st.FeatureVersion))
	gauge(descQuarantine, st.Quarantine)
	gauge(descLockHistory, float64(c.node.LockHistory()))
	if st.Role == "leader" {
		for id, blocks := range c.node.Blocked() {
			ch <- prometheus.MustNewConstMetric(descBlocked, prometheus.GaugeValue, number(blocks), id)
		}
	}
	gauge(descSlowRun, float64(c.node.Reads.Running()))
	gauge(descSlowWait, float64(c.node.Reads.Waiting()))
	gauge(descSlowBytes, float64(c.node.Reads.Charged()))
	c.collectCluster(ch)
	ch <- prometheus.MustNewConstMetric(descBuild, prometheus.GaugeValue, 1, st.Version, revision(), runtime.Version())
	c.node.Machine.View(func(m *fsm.Machine) {
		stats := m.Stats()
		held, waiting := m.LockCounts()
		gauge(descHeld, float64(held))
		gauge(descWaiting, float64(waiting))
		gauge(descKeys, float64(m.Len()))
		gauge(descVolatile, float64(m.Volatile()))
		gauge(descLease, float64(m.Clock().Lease)/1e9)
		gauge(descSessions, float64(m.SessionCount()))
		count(descExpired, stats.Expired)
		count(descOps, stats.Ops)
		count(descDup, stats.Duplicates)
	})
}

// collectCluster reports the members, the newest snapshot and the wall clock.
func (c nodeCollector) collectCluster(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	voters := 0
	for _, m := range c.node.Members() {
		gauge(descMember, number(m.Alive), m.ID)
		if m.Voter {
			voters++
		}
	}
	gauge(descVoters, float64(voters))
	if size, taken, ok := c.node.Snapshot(); ok {
		gauge(descSnapshotBytes, float64(size))
		gauge(descSnapshotTaken, float64(taken.UnixMilli())/1e3)
	}
	gauge(descWall, float64(c.node.Wall().UnixMicro())/1e6)
}

// linkedRevision is the revision of the source, which the Makefile passes to
// the linker (-X), or "". The revision that Go itself records depends on the
// kind of working tree.
var linkedRevision string

// revision returns the revision of the source that the program was built from, or
// "unknown".
func revision() string {
	if linkedRevision != "" {
		return linkedRevision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
