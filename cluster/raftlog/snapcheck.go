package raftlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
)

// When the sink of a snapshot is closed without an error, older snapshots are
// deleted, and then entries that the snapshot covers. If no node could read
// that snapshot, the data would be lost. So each sink is read back before it is
// closed, by the code that reads a snapshot at start. If this fails, the sink
// is canceled. The log and the older snapshots remain, and the node continues.
//
// Both kinds of snapshots are checked. A snapshot of the node's own state is
// also compared with that state. A snapshot from the leader is checked here
// because raft completes it on disk before the machine reads it.

// errUnreadable means that a snapshot was deleted because it could not be read
// back.
var errUnreadable = errors.New("the snapshot cannot be read back and was deleted")

// readBack is a sink whose content can be read before the sink is closed.
type readBack interface {
	raft.SnapshotSink
	// Written returns a reader of everything that was written.
	Written() (io.ReadCloser, error)
}

// checkedSnapshots is a snapshot store that reads every snapshot back before it
// completes the snapshot.
type checkedSnapshots struct {
	raft.SnapshotStore
	table *fsm.Table
	// full returns an error while there is no room for a snapshot from the
	// leader. A nil function means that there is always room.
	full func() error
	// refused is called with the reason why a snapshot that the leader sent was
	// not accepted.
	refused func(error)
}

// Expect declares that sink receives a snapshot of this node's own state, and
// describes its expected content. It must be called before the first write to
// sink.
func Expect(sink raft.SnapshotSink, info fsm.SnapshotInfo) {
	if checked, ok := sink.(*checkedSink); ok {
		checked.own = &info
	}
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

// checkedSink is the sink of one snapshot. It is not safe for concurrent use.
type checkedSink struct {
	readBack
	store checkedSnapshots
	index uint64
	// own describes the content that the snapshot must have. It is nil if the
	// leader sent the snapshot.
	own *fsm.SnapshotInfo

	closed bool
	err    error // result of Close
}

// Write implements raft.SnapshotSink. If there is too little room, writing a
// snapshot from the leader ends with an error. Otherwise the snapshot could
// fill the disk, and the node could store no vote. A snapshot of the node's own
// state may use the remaining room, because the node can shorten its log after
// the snapshot.
func (s *checkedSink) Write(b []byte) (int, error) {
	if s.own == nil && s.store.full != nil {
		if err := s.store.full(); err != nil {
			return 0, s.report(err)
		}
	}
	n, err := s.readBack.Write(b)
	return n, s.report(err)
}

// Close implements raft.SnapshotSink. raft calls it a second time after the
// machine has called it; the second call returns the result of the first.
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

// report passes an error about a snapshot from the leader to Config.Refused,
// and returns err. raft itself reports errors about the node's own snapshots.
func (s *checkedSink) report(err error) error {
	if err != nil && s.own == nil {
		s.store.refused(err)
	}
	return err
}

// check reads the snapshot back, and compares its content with the fields index
// and own of s.
func (s *checkedSink) check() (err error) {
	r, err := s.Written()
	if err != nil {
		return err
	}
	defer func() {
		// A panic must also count as a failed check: at the next start, the
		// same panic would end the process.
		if p := recover(); p != nil {
			err = fmt.Errorf("reading the snapshot panicked: %v", p)
		}
		err = errors.Join(err, r.Close())
	}()
	info, err := fsm.CheckSnapshot(r, s.store.table)
	switch {
	case err != nil:
		return err
	case info.Applied > s.index:
		return fmt.Errorf("the snapshot contains the state at log index %d, but its name says %d",
			info.Applied, s.index)
	case s.own != nil && info != *s.own:
		return fmt.Errorf("the snapshot contains %+v, but the state is %+v", info, *s.own)
	}
	return nil
}
