package raftlog

import (
	"errors"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// errStaleEnd ends the process, because only a restart repairs the state of
// raft.
//
// hashicorp/raft 1.7.3 keeps a copy of the last log index in memory. The log of
// this node may end with entries of an old leader that no other node has.
// Suppose that the node then receives a snapshot, and that those entries reach
// at least as far as the snapshot. raft empties the log, but does not change
// its copy of the last log index. From then on, raft refuses all entries that
// follow the snapshot, so the leader sends the same snapshot again and again.
// This lasts until a newer snapshot goes beyond the copied log index. A cluster
// without writes takes no newer snapshot. A restart helps, because raft then
// reads the last log index from the disk.
//
// In practice, the problem occurs only if the leader itself received its
// snapshot from another leader, so that its log has no entries before the end
// of the snapshot. Any other leader keeps some of these entries and sends them,
// and they replace the end of this node's log correctly.
var errStaleEnd = errors.New("a snapshot took the place of entries that no other node has: " +
	"restart the node so that it can receive the entries after the snapshot")

// endedLog is a log that notices when a snapshot has emptied it as errStaleEnd
// describes. Its GetLog can also return the last entry of the newest snapshot:
// see snapend.go.
type endedLog struct {
	raft.LogStore
	snaps raft.SnapshotStore
	// conflict is set as soon as raft is about to install a snapshot that
	// contradicts the log: see keeps.
	conflict atomic.Bool
	fatal    func(error)
	leads    func() bool
}

var _ raft.MonotonicLogStore = (*endedLog)(nil)

// IsMonotonic implements raft.MonotonicLogStore.
func (l *endedLog) IsMonotonic() bool {
	m, ok := l.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// StoreLogs implements raft.LogStore.
func (l *endedLog) StoreLogs(logs []*raft.Log) error {
	err := l.LogStore.StoreLogs(logs)
	if err == nil {
		failpoint.HitIf(l.leads, failpoint.EntryDurable)
	}
	return err
}

// DeleteRange implements raft.LogStore. It reports errStaleEnd only after the
// log is empty: if the process ended earlier, it would receive the same
// snapshot again after its next start.
func (l *endedLog) DeleteRange(lo, hi uint64) error {
	if err := l.LogStore.DeleteRange(lo, hi); err != nil || !l.conflict.Load() {
		return err
	}
	last, err := l.LastIndex()
	if err == nil && last == 0 {
		l.fatal(errStaleEnd)
	}
	return err
}
