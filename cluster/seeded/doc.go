// Package seeded names mistakes that can be put into the product on purpose, to
// see that the tests find them: see make controls and docs/testing.md. A normal
// build has none of them: On is false there and the compiler drops what depends
// on it. Built with the tag seededbug, the program has the one that the variable
// HOLDFAST_SEEDED_BUG names when it starts.
package seeded

// The mistakes, each with the place in the product that makes it.
const (
	StaleRead      = "stale-read"         // cluster/call.go: reads are local
	NoTermStart    = "no-term-start"      // cluster/node.go: an office opens without its own entry in the log
	WallExpiry     = "wall-expiry"        // cluster/office.go: the lease clock follows the wall clock
	EarlyExpiry    = "early-expiry"       // cluster/office.go: an office's clock starts ahead of the log's
	LateExpiry     = "late-expiry"        // cluster/office.go: an office's clock runs at half the speed
	UnknownRefused = "unknown-as-refused" // cluster/gateway.go: an open outcome is reported as "not executed"
	CrossedReplies = "crossed-replies"    // cluster/gateway.go: two calls get each other's reply
	VerifyLeader   = "verify-leader"      // cluster/read.go: raft.VerifyLeader in place of a round of questions
	OldSnapshot    = "old-snapshot"       // cluster/restore.go: a late snapshot is installed
	OwnDisk        = "own-disk"           // cluster/backlog.go: a leader does not wait for its own disk
	SkippedFsync   = "skipped-fsync"      // cluster/storage/walmeta.go: the log is not synced
	DoubleApply    = "double-apply"       // fsm/machine.go, cluster/office.go: a group is sent again although it is under way, and runs again
	NoWatch        = "no-watch"           // fsm/machine.go: EXEC does not look at its watches
	SnapshotClock  = "snapshot-clock"     // fsm/snapshot.go: the lease clock is left out
	LostSessions   = "lost-sessions"      // fsm/snapshot.go: the sessions are not restored
	UnblockRefused = "unblock-as-refused" // cluster/waits.go, resp/steps.go: a blocking command that may have been served is reported as "not executed"
	HoldForgets    = "hold-forgets"       // fsm/waitview.go: what was served to a node that was cut off is forgotten
	OwnLate        = "own-late"           // resp/own.go: a connection gets the reply of its write before its node knows what that changed
	SupersededRuns = "superseded-runs"    // fsm/session.go, fsm/wait.go: the groups of a start run behind a later start in the same entry
	LeaderRaises   = "leader-raises"      // cluster/features.go: a leader sets the feature version that it knows, whatever the others know
	TokenReset     = "token-reset"        // fsm/snapshot.go: versions and fencing tokens are not restored
)

// All lists them.
func All() []string {
	return []string{
		StaleRead, SkippedFsync, NoTermStart, DoubleApply, WallExpiry, SnapshotClock, UnknownRefused, CrossedReplies, LostSessions, VerifyLeader,
		EarlyExpiry, LateExpiry, OldSnapshot, NoWatch, TokenReset, OwnDisk,
		SupersededRuns, LeaderRaises, UnblockRefused, HoldForgets, OwnLate,
	}
}
