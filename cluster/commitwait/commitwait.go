// Package commitwait decides how long the proposer of a leader waits for more
// groups before it proposes the next entry.
package commitwait

import "time"

// Wait delays the next entry until the clients that were just answered have had
// time to send their next command. Without the delay, clients that send one
// command after another split into two halves: the commands of one half are in
// the log while the other half waits. Entries are then half as full, although
// each entry costs an fsync on every node and about a dozen messages.
//
// Wait is not a fixed delay. An entry is delayed only if more groups are
// expected, and the wait ends when they have arrived. If they do not arrive
// during a wait, the next entries are not delayed. A Wait is not safe for
// concurrent use: the leadership's lock must be held for all methods. The zero
// value is ready for use.
type Wait struct {
	// expected is the number of groups that the next entry may get: the number
	// of clients that the last applied entry has answered, plus the number of
	// groups that were waiting when that entry was applied.
	expected int
	last     int           // groups in the last entry
	took     time.Duration // time from the encoding of the last entry until that entry was applied

	enough int // number of groups at which the current wait ends; 0 if the proposer does not wait
	missed int // consecutive waits in which the groups did not arrive, up to maxMissed
	skip   int // number of entries that must not be delayed, counted from the next one
}

const (
	// maxCommitWait bounds a wait. A second bound is twice Wait.took: a client
	// that was answered needs about Wait.took until it sends its next command.
	maxCommitWait = 2 * time.Millisecond
	// maxMissed limits the back-off: if the expected groups never arrive, the
	// proposer still waits once in 2^maxMissed entries.
	maxMissed = 8
)

// Applied notes that the last entry was applied. took is the time from the
// encoding of that entry until it was applied. waiting is the number of groups
// that were waiting for the next entry when the last entry was applied. block
// is the number of groups of the last entry that block: their clients were not
// answered, and will not send a command.
func (t *Wait) Applied(waiting, block int, took time.Duration) {
	t.expected, t.took = max(t.last-block, 0)+waiting, took
}

// Begin returns how long to wait for more groups, or 0 to propose at once.
// groups is the number of groups that wait already. If the result is above 0,
// the caller must wait for that time, or until Suffices returns true, and then
// call Waited.
func (t *Wait) Begin(groups int) time.Duration {
	enough := t.expected - t.expected/16 // do not wait for the last sixteenth
	wait := min(2*t.took, maxCommitWait)
	if groups == 0 || groups >= enough || t.skip > 0 || wait <= 0 {
		return 0
	}
	t.enough = enough
	return wait
}

// Waited notes the number of groups at the end of a wait. After that, Begin
// does not delay the same entry again.
func (t *Wait) Waited(groups int) {
	if groups >= t.enough {
		t.missed = 0
	} else {
		t.missed = min(t.missed+1, maxMissed)
		t.skip = 1 << t.missed
	}
	t.enough, t.expected = 0, 0
}

// Suffices reports whether the given number of groups ends the current wait. It
// returns true while the proposer does not wait.
func (t *Wait) Suffices(groups int) bool { return groups >= t.enough }

// Proposed notes that an entry with this number of groups is being proposed.
func (t *Wait) Proposed(groups int) {
	t.last, t.expected = groups, 0
	t.skip = max(t.skip-1, 0)
}
