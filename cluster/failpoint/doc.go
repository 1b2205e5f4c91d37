// Package failpoint names places in the program between two effects that a test
// must separate, such as a write and its fsync, or the arrival of a reply and
// its delivery. A process in which a test has armed a failpoint kills itself
// there with SIGKILL. The failpoints are part of the released program, so that
// tests run the released program. Only a hidden flag of serve (--test-kill-at)
// arms them; otherwise they do nothing.
package failpoint

// The failpoints in cluster/storage. The comments describe the state when the
// process ends. Failpoints marked with "(wal)" exist only for --log-store wal.
const (
	// AppendTorn: half of an append is in the log file (wal).
	AppendTorn = "append-torn"
	// AppendWritten: an append is in the log file and not synced (wal).
	AppendWritten = "append-written"
	// AppendSynced: an append is durable and has not been acknowledged.
	AppendSynced = "append-synced"
	// TermWritten: a new term is durable, and the node has neither voted nor
	// written an entry in it.
	TermWritten = "term-written"
	// VoteUnwritten: a vote is decided and not written. If this node is the
	// candidate, it may have asked other nodes for their votes already.
	VoteUnwritten = "vote-unwritten"
	// VoteWritten: a vote is durable and has not been answered.
	VoteWritten = "vote-written"
	// FileUnnamed: the new content of the file node.json, or the first content
	// of the file named acked, is durable in a file with a temporary name.
	FileUnnamed = "file-unnamed"
	// SnapshotTorn: a part of a snapshot is in its file.
	SnapshotTorn = "snapshot-torn"
	// SnapshotNamed: a snapshot is durable under its name, and the log is not
	// truncated.
	SnapshotNamed = "snapshot-named"
	// InstallUncut: a snapshot from the leader has replaced the state, and the
	// log that it replaces still exists.
	InstallUncut = "install-uncut"
	// SuffixUncut: the end of the log, which the leader does not have, no
	// longer counts as acknowledged, and is not deleted.
	SuffixUncut = "suffix-uncut"
	// SegmentUnlisted: the file of a new segment exists, and raft-wal's list of
	// segments does not name it (wal).
	SegmentUnlisted = "segment-unlisted"
	// SegmentUndeleted: the list no longer names old segments, and the file of
	// one of them is about to be deleted (wal). If several files are deleted,
	// the second hit of this failpoint is in the middle of the deletion.
	SegmentUndeleted = "segment-undeleted"
)

// The failpoints in cluster.
const (
	// EntryProposed: a leader has passed an entry with groups to raft. It is
	// very unlikely to be durable on any node yet.
	EntryProposed = "entry-proposed"
	// EntryOpen: a leader has passed an entry to the goroutine that writes to
	// its disk and to those that send it. The entry is not on the leader's
	// disk, and may have been sent.
	EntryOpen = "entry-open"
	// EntryDurable: an entry is durable on the leader, and perhaps on no other
	// node.
	EntryDurable = "entry-durable"
	// EntryApplied: a leader has applied an entry with groups and has sent no
	// reply.
	EntryApplied = "entry-applied"
	// LeadershipUnopened: a node has won an election and has passed its
	// TermStart to raft. The TermStart is not committed.
	LeadershipUnopened = "leadership-unopened"
	// MemberProposed: a leader has passed a change of the members to raft. The
	// change is not committed.
	MemberProposed = "member-proposed"
	// MemberChanged: a change of the members is committed and has not been
	// reported.
	MemberChanged = "member-changed"
	// TransferBegun: a leader is about to send TimeoutNow to the target of a
	// transfer, or has sent it.
	TransferBegun = "transfer-begun"
	// GroupSent: a node has sent a group to the leader and has no reply.
	GroupSent = "group-sent"
	// ReplyReceived: a node has received replies from the leader and has not
	// sent them to its clients.
	ReplyReceived = "reply-received"
	// JoinNoted: a node has recorded that it joins, and has not asked to be
	// admitted.
	JoinNoted = "join-noted"
	// JoinAnswered: a node has been admitted, and has not recorded the log index
	// of its admission.
	JoinAnswered = "join-answered"
	// JoinedNoted: a node has recorded the log index of its admission, and has
	// not started raft.
	JoinedNoted = "joined-noted"
	// FormConfirmed: the node that forms the cluster has sent the cluster's id
	// to at least one of the other nodes.
	FormConfirmed = "form-confirmed"
)

// All returns the names of all failpoints.
func All() []string {
	return []string{
		AppendTorn, AppendWritten, AppendSynced, TermWritten, VoteUnwritten, VoteWritten,
		FileUnnamed, SnapshotTorn, SnapshotNamed,
		InstallUncut, SuffixUncut, SegmentUnlisted, SegmentUndeleted,
		EntryProposed, EntryOpen, EntryDurable, EntryApplied, LeadershipUnopened,
		MemberProposed, MemberChanged, TransferBegun, GroupSent, ReplyReceived,
		JoinNoted, JoinAnswered, JoinedNoted, FormConfirmed,
	}
}
