package cluster

import (
	"errors"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// errStaleEnd ends the process. hashicorp/raft 1.7.3 remembers the end of its log
// apart from the log. When it installs a snapshot in the place of entries that
// only this node has, an old leader's, and that reach as far as the snapshot or
// further, it empties the log and keeps that memory. From then on it refuses
// everything that fits behind the snapshot, and gets the snapshot again, and again,
// until a newer one passes the end that it remembers, which in a quiet cluster is
// never. A raft that starts anew reads the end from the disk.
//
// It takes a leader that has nothing before a snapshot of its own, because it got
// that from another one: else a leader sends the entries, which replace such an
// end in the right way.
var errStaleEnd = errors.New("a snapshot took the place of entries that no other node has: the node must start again to go on behind it")

// endedLog is the log, which tells when it has been emptied in that way, and knows
// the entry before it: see snapend.go.
type endedLog struct {
	raft.LogStore
	snaps    raft.SnapshotStore
	conflict atomic.Bool // a snapshot is being installed that contradicts the log
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

// DeleteRange implements raft.LogStore. The process must not end before the log is
// empty: at its next start it would be given the same snapshot.
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
