package cluster

import "time"

// commitWait delays the next entry until the clients that were just answered
// have had time to send their next command. Without it, clients that send one
// command after another split into two halves: the commands of one half are in
// the log while the other half waits. Entries are then half as full, although
// each entry costs three nodes an fsync and about a dozen messages.
//
// commitWait is not a fixed delay. An entry is delayed only if more groups are
// expected, the wait ends when they have arrived, and after a wait in which
// they did not arrive, several entries are not delayed. The leadership's lock
// must be held for all methods.
type commitWait struct {
	// expected is the number of groups in the entry that was applied last, plus
	// the number that were waiting at that time.
	expected int
	last     int           // groups in the last entry
	took     time.Duration // time from the last entry's stamp until it was applied

	enough int // number of groups that end the current wait; 0 if the proposer does not wait
	missed int // consecutive waits in which the groups did not arrive, up to maxMissed
	skip   int // number of entries that must not be delayed
}

const (
	// maxCommitWait bounds a wait. Twice the time of the last entry is also a
	// bound: clients that were answered need about as long to send their next
	// command as that entry took.
	maxCommitWait = 2 * time.Millisecond
	// maxMissed limits the back-off: a wait is tried at least every 2^maxMissed
	// entries.
	maxMissed = 8
)

// applied notes that the last entry was applied while waiting groups were there
// for the next one, and that it took that long.
func (t *commitWait) applied(waiting int, took time.Duration) {
	t.expected, t.took = t.last+waiting, took
}

// begin returns how long to wait for more groups than there are, or 0 to
// propose at once. After a result above 0, the caller must wait and then call
// waited: until then, submit does not wake the proposer for every group.
func (t *commitWait) begin(groups int) time.Duration {
	enough := t.expected - t.expected/16 // do not wait for the last few
	wait := min(2*t.took, maxCommitWait)
	if groups == 0 || groups >= enough || t.skip > 0 || wait <= 0 {
		return 0
	}
	t.enough = enough
	return wait
}

// waited notes with how many groups a wait ended. An entry is delayed at most
// once.
func (t *commitWait) waited(groups int) {
	if groups >= t.enough {
		t.missed = 0
	} else {
		t.missed = min(t.missed+1, maxMissed)
		t.skip = 1 << t.missed
	}
	t.enough, t.expected = 0, 0
}

// proposed notes that an entry with this number of groups is being proposed.
func (t *commitWait) proposed(groups int) {
	t.last, t.expected = groups, 0
	t.skip = max(t.skip-1, 0)
}
