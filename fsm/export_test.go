package fsm

// RunOn runs a group on a machine outside the log, writes included: what a
// leader does with a script on a fork.
func RunOn(m *Machine, body []byte) ([]byte, error) {
	c := Ctx{m: m, now: m.clock.Lease, wall: m.clock.Wall, index: m.applied + 1}
	c.setPlace(0)
	return c.run(nil, body)
}

// ExpiryPerEntry is what a test of a mass expiry has to exceed.
const ExpiryPerEntry = expiryPerEntry

// MaxKeptReply is the size beyond which a session does not keep a reply.
const MaxKeptReply = maxKeptReply

// MaxSnapshotBlock is what a reader of snapshots accepts.
const MaxSnapshotBlock = maxSnapshotBlock

// ReplyTooLarge is the answer in place of one that does not fit.
const ReplyTooLarge = replyTooLarge

// ScanMost bounds the keys that one SCAN visits.
const ScanMost = scanMost
