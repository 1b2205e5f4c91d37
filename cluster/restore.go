package cluster

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
)

// A snapshot from the leader may come late: it waited in a socket for longer
// than its sender did, and is read after newer entries that came by another
// connection. hashicorp/raft 1.7.3 installs it all the same, which takes the
// machine back and deletes the log behind the snapshot, entries among it that
// this node has acknowledged. The Raft paper (figure 13, step 6) keeps the log if
// it holds the snapshot's last entry; so does keeps.

// errOldSnapshot is what raft is told instead of installing one. Its sender has
// given up long ago; one that has not goes on from the entries that are here, for the
// log answers for the entry before them: see snapend.go.
var errOldSnapshot = errors.New("the log is ahead of the snapshot already")

// placedSnapshots tells whoever reads a snapshot where in the log it belongs.
type placedSnapshots struct{ raft.SnapshotStore }

// placedReader is the reader of a snapshot with that place.
type placedReader struct {
	io.ReadCloser
	meta *raft.SnapshotMeta
}

// Open implements raft.SnapshotStore.
func (s placedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.SnapshotStore.Open(id)
	if err != nil {
		return meta, r, err
	}
	return meta, placedReader{r, meta}, nil
}

// placeOf looks through the wrappers that raft puts around a reader.
func placeOf(r io.ReadCloser) *raft.SnapshotMeta {
	for {
		switch x := r.(type) {
		case placedReader:
			return x.meta
		case raft.ReadCloserWrapper:
			r = x.WrappedReadCloser()
		default:
			return nil
		}
	}
}

// keeps reports whether the log, or a later snapshot, holds everything that a
// snapshot would bring, and more. raft's main loop stands still meanwhile. If not,
// the log notes whether it contradicts the snapshot.
func keeps(log *endedLog, snaps raft.SnapshotStore, meta *raft.SnapshotMeta) (bool, error) {
	if seeded.On(seeded.OldSnapshot) {
		return false, nil
	}
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
	case first > meta.Index: // what is before the log went into a snapshot
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
