package cluster

import (
	"errors"

	"github.com/hashicorp/raft"
)

// A leader that sends what comes behind a snapshot says which entry is before it:
// the snapshot's last one. hashicorp/raft 1.7.3 looks for that one in the log, if the
// log does not end there, and where the snapshot was installed in the place of the
// log it is not found. The entries are refused, and the leader goes back, step by
// step, until it sends the snapshot again, which is refused too, for the log is ahead
// of it: a member that has got a snapshot and some entries, and ended before it could
// answer, was left behind until the next snapshot. The Raft paper (section 7) has
// the snapshot's last index and term kept for this very check. So endedLog answers
// for the snapshot, on nodes that do not lead: a leader has to be told that it does
// not have the entry.

// snapshotEnd is the type of what GetLog returns in the place of an entry that is in
// the newest snapshot: its place and term are good, its content is unknown.
const snapshotEnd raft.LogType = 255

// errNoEntry keeps such a thing from other nodes. A leader that has just lost its
// office may still read its log for them: see serialTransport.AppendEntries.
var errNoEntry = errors.New("the entry is in a snapshot only")

// GetLog implements raft.LogStore.
func (l *endedLog) GetLog(index uint64, log *raft.Log) error {
	err := l.LogStore.GetLog(index, log)
	if !errors.Is(err, raft.ErrLogNotFound) || l.leads() {
		return err
	}
	list, listErr := l.snaps.List()
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	if len(list) == 0 || list[0].Index != index {
		return err
	}
	*log = raft.Log{Index: index, Term: list[0].Term, Type: snapshotEnd}
	return nil
}
