package cluster

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
)

// raft deletes the log behind a snapshot, and the older snapshots, as soon as the
// snapshot's sink has been closed without an error. A snapshot that no node can read
// would then take the data with it. So every sink is read back, by the code that
// reads a snapshot at start, before it is closed. If that fails the sink is
// cancelled: the log and the older snapshots stay, and the node goes on.
//
// This covers both ways to a new snapshot: one of the node's own state, which is
// compared with that state too, and one that the leader sent, which raft completes
// on the disk before the machine reads it.

// errUnreadable is why a snapshot was thrown away.
var errUnreadable = errors.New("the snapshot cannot be read back and was deleted")

// readBack is a sink whose content can be read before it is complete.
type readBack interface {
	raft.SnapshotSink
	// Written returns a reader of all that was written.
	Written() (io.ReadCloser, error)
}

// checkedSnapshots reads every snapshot back before it is complete.
type checkedSnapshots struct {
	raft.SnapshotStore
	table *fsm.Table
	// refused is called with the reason why a snapshot of the leader was not taken.
	refused func(error)
}

// Create implements raft.SnapshotStore.
func (s checkedSnapshots) Create(version raft.SnapshotVersion, index, term uint64,
	members raft.Configuration, membersIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, members, membersIndex, trans)
	if err != nil {
		return nil, err
	}
	in, ok := sink.(readBack)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a snapshot in %T cannot be read back", sink), sink.Cancel())
	}
	return &checkedSink{readBack: in, store: s, index: index}, nil
}

// checkedSink is the sink of one snapshot.
type checkedSink struct {
	readBack
	store checkedSnapshots
	index uint64
	// own is what the snapshot must hold, nil if the leader sent it.
	own *fsm.SnapshotInfo

	closed bool
	err    error // of Close
}

// Write implements raft.SnapshotSink.
func (s *checkedSink) Write(b []byte) (int, error) {
	n, err := s.readBack.Write(b)
	return n, s.report(err)
}

// Close implements raft.SnapshotSink. raft calls it again after the machine did.
func (s *checkedSink) Close() error {
	if s.closed {
		return s.err
	}
	s.closed = true
	if err := s.check(); err != nil {
		s.err = s.report(errors.Join(fmt.Errorf("snapshot %s: %w: %w", s.ID(), errUnreadable, err), s.Cancel()))
	} else {
		s.err = s.report(s.readBack.Close())
	}
	return s.err
}

// report tells the node of an error with the leader's snapshot. raft tells of those
// with the node's own.
func (s *checkedSink) report(err error) error {
	if err != nil && s.own == nil {
		s.store.refused(err)
	}
	return err
}

// check reads the snapshot.
func (s *checkedSink) check() (err error) {
	r, err := s.Written()
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil { // it would end the node at its next start
			err = fmt.Errorf("reading it panics: %v", p)
		}
		err = errors.Join(err, r.Close())
	}()
	info, err := fsm.CheckSnapshot(r, s.store.table)
	switch {
	case err != nil:
		return err
	case info.Applied > s.index:
		return fmt.Errorf("it holds the state at log index %d, but is named after %d", info.Applied, s.index)
	case s.own != nil && info != *s.own:
		return fmt.Errorf("it holds %+v, the state is %+v", info, *s.own)
	}
	return nil
}
