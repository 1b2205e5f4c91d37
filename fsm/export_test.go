package fsm

import (
	"io"
)

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

// Rehearsed returns the machine that a rehearsal ran on.
func Rehearsed(r *Rehearsal) *Machine { return r.c.m }

// StateOf writes what commands can see of a machine, for comparison with another
// one that came to it by another way.
func StateOf(m *Machine, w io.Writer) error {
	f := m.Fork()
	f.applied, f.term, f.clusterID, f.chain, f.stats = 0, 0, "", 0, Stats{}
	return f.WriteSnapshot(w, Sessions{})
}

// Spellings returns the ways to write a script that are recognised.
func Spellings() (texts []string) {
	for _, s := range append(spellings("del", "DEL", ""), spellings("pexpire", "PEXPIRE", "ARGV[2]")...) {
		texts = append(texts, s.text)
	}
	return texts
}

// What the script cache and a rehearsal allow.
const (
	MaxEvalScripts  = maxEvalScripts
	MaxScriptBytes  = maxScriptBytes
	MaxGroupEffects = maxGroupEffects
)

// What DUMP and RESTORE allow, and the trailer of what they exchange.
var SealPayload = sealPayload

const (
	MaxUnfolded = maxUnfolded
	MaxRestored = maxRestored
)
