// Package failpoint names places in the program between two effects that a test
// wants to see apart: a write and its fsync, a reply that is there and one that is
// sent. A process that was armed for one of them ends there, by SIGKILL. The points
// are in the program that is shipped, so that this is what is tested; they are armed
// by a hidden flag of serve only (--test-kill-at), and do nothing else.
package failpoint

// The points, in cluster/storage.
const (
	// AppendTorn: half of an append is in the file of the log (wal).
	AppendTorn = "append-torn"
	// AppendWritten: an append is in the file of the log, and not synced (wal).
	AppendWritten = "append-written"
	// AppendSynced: an append is durable, and nobody has been told.
	AppendSynced = "append-synced"
	// TermWritten: a new term is durable, and nothing has been done in it: no vote, no
	// entry.
	TermWritten = "term-written"
	// VoteUnwritten: a vote is decided on and not written. A candidate may have asked
	// others for theirs by now.
	VoteUnwritten = "vote-unwritten"
	// VoteWritten: a vote is durable, and nobody has been told.
	VoteWritten = "vote-written"
	// FileUnnamed: the next identity, or the first acked file, is durable under its
	// temporary name.
	FileUnnamed = "file-unnamed"
	// SnapshotTorn: a part of a snapshot is in its file.
	SnapshotTorn = "snapshot-torn"
	// SnapshotNamed: a snapshot is durable under its name, and the log not cut.
	SnapshotNamed = "snapshot-named"
	// InstallUncut: a snapshot from the leader has taken the machine's place, and the
	// log that it replaces is still there.
	InstallUncut = "install-uncut"
	// SuffixUncut: the end of the log, which the leader does not have, is no longer
	// counted as acknowledged, and not deleted.
	SuffixUncut = "suffix-uncut"
	// SegmentUnlisted: the file of a new segment is made, and the list does not name it
	// (wal).
	SegmentUnlisted = "segment-unlisted"
	// SegmentUndeleted: the list does not name old segments any more, and the file of
	// one is about to be deleted (wal). The second time is in the middle of a deletion.
	SegmentUndeleted = "segment-undeleted"
)

// The points, in cluster.
const (
	// EntryProposed: a leader has given an entry with groups to raft; it can hardly be
	// durable anywhere yet.
	EntryProposed = "entry-proposed"
	// EntryOpen: a leader has given an entry to the disk's goroutine and to those that
	// send it; it is not written here, and may be sent.
	EntryOpen = "entry-open"
	// EntryDurable: an entry is durable on the leader, and perhaps nowhere else.
	EntryDurable = "entry-durable"
	// EntryApplied: a leader has applied an entry with groups, and sent no reply.
	EntryApplied = "entry-applied"
	// OfficeUnopened: a node has won an election and given raft its TermStart, which is
	// not committed.
	OfficeUnopened = "office-unopened"
	// MemberProposed: a leader has given raft a change of the members, which is not
	// committed.
	MemberProposed = "member-proposed"
	// MemberChanged: a change of the members is committed, and nobody has been told.
	MemberChanged = "member-changed"
	// TransferBegun: a leader is about to tell the target of a transfer to stand for
	// election, or has told it.
	TransferBegun = "transfer-begun"
	// GroupSent: a node has sent a group to the leader, and has no reply.
	GroupSent = "group-sent"
	// ReplyReceived: a node has replies from the leader, and its clients do not.
	ReplyReceived = "reply-received"
	// JoinNoted: a node has noted that it joins, and has not asked to be added.
	JoinNoted = "join-noted"
	// JoinAnswered: a node has been added, and has not noted from where on.
	JoinAnswered = "join-answered"
	// JoinedNoted: a node has noted from where on it is a member, and not started raft.
	JoinedNoted = "joined-noted"
	// FormTold: the node that forms the cluster has told some of the others its id.
	FormTold = "form-told"
)

// All lists the names of the points.
func All() []string {
	return []string{
		AppendTorn, AppendWritten, AppendSynced, TermWritten, VoteUnwritten, VoteWritten, FileUnnamed, SnapshotTorn, SnapshotNamed,
		InstallUncut, SuffixUncut, SegmentUnlisted, SegmentUndeleted,
		EntryProposed, EntryOpen, EntryDurable, EntryApplied, OfficeUnopened, MemberProposed, MemberChanged, TransferBegun, GroupSent, ReplyReceived,
		JoinNoted, JoinAnswered, JoinedNoted, FormTold,
	}
}
