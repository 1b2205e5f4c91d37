package raftlog

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"
)

// A snapshot from the leader may arrive late. It can wait in a socket after its
// sender has given up, and be read after newer entries that arrived on another
// connection. hashicorp/raft 1.7.3 installs it nevertheless. That would set the
// state machine back and delete the log that follows the snapshot, including
// entries that this node has acknowledged. The Raft paper (figure 13, step 6)
// keeps the log if it contains the snapshot's last entry. Outdated does the
// same.

// errOldSnapshot makes raft reject a snapshot instead of installing it. Usually
// the sender has given up long before. This node needs no snapshot, because a
// leader can send the entries that follow this node's log. raft's check of the
// preceding entry then succeeds because of endedLog.GetLog (snapend.go).
var errOldSnapshot = errors.New("the log is already ahead of the snapshot")

// metaSnapshots is a snapshot store whose readers carry the metadata of the
// snapshot, including its log index and term.
type metaSnapshots struct{ raft.SnapshotStore }

// metaReader is the reader of a snapshot, with the snapshot's metadata.
type metaReader struct {
	io.ReadCloser
	meta *raft.SnapshotMeta
}

// Open implements raft.SnapshotStore.
func (s metaSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.SnapshotStore.Open(id)
	if err != nil {
		return meta, r, err
	}
	return meta, metaReader{r, meta}, nil
}

// MetaOf returns the metadata of the snapshot that r reads, or nil if r carries
// none. It unwraps the readers in which raft has wrapped the reader of the
// snapshot.
func MetaOf(r io.ReadCloser) *raft.SnapshotMeta {
	for {
		switch x := r.(type) {
		case metaReader:
			return x.meta
		case raft.ReadCloserWrapper:
			r = x.WrappedReadCloser()
		default:
			return nil
		}
	}
}

// Outdated returns an error if the log, or a later snapshot, contains
// everything that the snapshot of meta contains, and more. raft's main loop is
// blocked while Outdated runs. Outdated also returns an error if it cannot read
// the log or the list of snapshots. An error makes raft reject the snapshot.
func (l *Log) Outdated(meta *raft.SnapshotMeta) error {
	if keeps, err := keeps(l.ended, l.snapshots, meta); err != nil || keeps {
		return errors.Join(errOldSnapshot, err)
	}
	return nil
}

// keeps reports whether the log, or a later snapshot, contains everything that
// the snapshot of meta contains, and more. raft's main loop is blocked while
// keeps runs. If the log's entry at the snapshot's index has another term,
// keeps sets log.conflict.
func keeps(log *endedLog, snaps raft.SnapshotStore, meta *raft.SnapshotMeta) (bool, error) {
	list, err := snaps.List()
	if err != nil {
		return false, err
	}
	if len(list) > 0 && list[0].Index > meta.Index {
		return true, nil
	}
	first, err := log.FirstIndex()
	if err != nil {
		return false, err
	}
	last, err := log.LastIndex()
	switch {
	case err != nil || last < meta.Index:
		return false, err
	// a snapshot contains the entries before the first one in the log
	case first > meta.Index:
		return true, nil
	}
	var own raft.Log
	if err := log.GetLog(meta.Index, &own); err != nil {
		return false, err
	}
	if own.Term != meta.Term {
		log.conflict.Store(true)
		return false, nil
	}
	return last > meta.Index, nil
}
