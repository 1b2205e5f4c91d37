package raftlog

import (
	"errors"

	"github.com/hashicorp/raft"
)

// A leader's append request names the entry before the entries that it carries.
// If those entries follow a snapshot, the named entry is the snapshot's last
// entry. hashicorp/raft 1.7.3 looks for the named entry in the follower's log,
// unless the log ends with it. If the snapshot was installed in place of the
// log, the log does not contain that entry, and the follower refuses the
// request. The leader then goes back step by step until it sends the snapshot
// again. The follower refuses the snapshot too, because its log is ahead of the
// snapshot. So a member that received a snapshot and some entries, and stopped
// before it could answer, would be left behind until the next snapshot.
//
// The Raft paper (section 7) keeps the last index and term of a snapshot for
// this check. So endedLog.GetLog returns that entry on nodes that do not lead.
// On a leader, GetLog must report that the entry is missing, so that the leader
// sends the snapshot instead.

// SnapshotEnd is the type of the entry that GetLog returns in place of the last
// entry of the newest snapshot, if the log does not contain that entry. Its
// index and term are valid. Its content is unknown, so the entry must not be
// sent to other nodes. Package transport checks this, because a node that has
// just lost its leadership may still read its log in order to replicate it.
const SnapshotEnd raft.LogType = 255

// GetLog implements raft.LogStore. On a node that does not lead, it also
// returns the last entry of the newest snapshot, with the type SnapshotEnd.
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
	*log = raft.Log{Index: index, Term: list[0].Term, Type: SnapshotEnd}
	return nil
}
