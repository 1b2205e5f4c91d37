package cluster

import "time"

// turn decides whether the next entry waits for the clients that have just been
// answered. Clients that send one command after the other fall into two halves
// otherwise: one is on its way through the log while the other waits, and entries
// are half as full, though each costs three nodes an fsync and a dozen messages.
// So the proposer gives the first half the time to come back.
//
// It is no linger timer: nothing waits unless somebody is expected, the wait ends
// when they have come, and a wait in vain is not repeated soon. Its methods are
// called with the office's lock held.
type turn struct {
	// expected is how many groups there were in the entry that was applied last
	// and waiting behind it.
	expected int
	last     int           // groups of the last entry
	took     time.Duration // from its stamp to its being applied

	enough int // while the proposer waits, for so many; 0: it does not
	vain   int // waits in a row that were in vain, up to maxVain
	skip   int // entries until the next try
}

const (
	// maxTurn bounds a wait, and so does twice the time that the last entry took:
	// it took about as long as those need to come back whom it has answered.
	maxTurn = 2 * time.Millisecond
	// maxVain bounds how seldom waiting is tried: every 2^maxVain entries.
	maxVain = 8
)

// applied notes that the last entry was applied, with waiting groups behind it.
func (t *turn) applied(waiting int, took time.Duration) {
	t.expected, t.took = t.last+waiting, took
}

// begin returns how long to wait for more than the groups that are there, 0 for
// not at all. Whoever gets more than 0 must wait, and say so by waited: until then
// a group that comes wakes nobody.
func (t *turn) begin(groups int) time.Duration {
	enough := t.expected - t.expected/16 // nobody waits for the last ones
	wait := min(2*t.took, maxTurn)
	if groups == 0 || groups >= enough || t.skip > 0 || wait <= 0 {
		return 0
	}
	t.enough = enough
	return wait
}

// waited notes how a wait ended. There is one an entry.
func (t *turn) waited(groups int) {
	if groups >= t.enough {
		t.vain = 0
	} else {
		t.vain = min(t.vain+1, maxVain)
		t.skip = 1 << t.vain
	}
	t.enough, t.expected = 0, 0
}

// proposed notes that an entry with so many groups is on its way.
func (t *turn) proposed(groups int) {
	t.last, t.expected = groups, 0
	t.skip = max(t.skip-1, 0)
}
