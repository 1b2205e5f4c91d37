package fsm

import (
	"io"
)

// RunOn executes a group, including writes, on a machine outside the log, as a
// leader executes scripts on a clone.
func RunOn(m *Machine, body []byte) ([]byte, error) {
	c := Ctx{m: m, now: m.clock.Lease, wall: m.clock.Wall, index: m.applied + 1}
	c.setPosition(0)
	return c.run(nil, body)
}

// These constants determine how many keys one entry may expire: ExpiryPerEntry
// below FeatureBudget, and the others from FeatureBudget on.
const (
	ExpiryPerEntry  = expiryPerEntry
	ExpiryWork      = expiryWork
	ExpiryKeyWork   = expiryKeyWork
	ExpiryNameBytes = expiryNameBytes
)

// FewEnded is the smallest number of waits of a user, or of an earlier start, that
// the machine ends together and not one by one.
const FewEnded = fewEnded

// FewFlushed is the number of keys up to which a flush visits all keys, from
// FeatureDeferred on.
const FewFlushed = fewFlushed

// These constants bound the work for waiters in one entry: see serve.go.
const (
	FewReady    = fewReady
	ServeWork   = serveWork
	ReadyWork   = readyWork
	ServedWork  = servedWork
	EndedWork   = endedWork
	CheckedWork = checkedWork
)

// MaxWaitWeight is the largest sum of the weights of the waiters of one user or
// one node.
const MaxWaitWeight = maxWaitWeight

// MaxKeptReply is the size, in bytes, of the largest reply that a session keeps.
const MaxKeptReply = maxKeptReply

// MaxSnapshotBlock is the size, in bytes, of the largest block that a reader of
// snapshots accepts.
const MaxSnapshotBlock = maxSnapshotBlock

// Speculated returns the machine on which a speculative execution ran.
func Speculated(sp *Speculation) *Machine { return sp.c.m }

// StateOf writes the state without its log index, term, cluster id, hash chain,
// counters and sessions. It is for comparing a speculative execution with the
// execution of the entry.
func StateOf(m *Machine, w io.Writer) error {
	f := m.Clone()
	f.applied, f.term, f.clusterID, f.chain, f.stats = 0, 0, "", 0, Stats{}
	return f.WriteSnapshot(w, Sessions{})
}

// Spellings returns the recognized ways to write two lock scripts: the one that
// deletes a key, and the one that renews a key.
func Spellings() (texts []string) {
	for _, s := range append(spellings("del", "DEL", ""), spellings("pexpire", "PEXPIRE", "ARGV[2]")...) {
		texts = append(texts, s.text)
	}
	return texts
}

// These are the limits of the script cache and of a speculative execution.
const (
	MaxEvalScripts  = maxEvalScripts
	MaxScriptBytes  = maxScriptBytes
	MaxGroupEffects = maxGroupEffects
)

// These are the limits of RESTORE.
const (
	MaxUnfolded = maxUnfolded
	MaxRestored = maxRestored
)

// EncodedSize returns the number of bytes that r.Append adds.
func EncodedSize(r *Reply, proto int) int { return r.encodedSize(proto) }

// Estimated reports whether the work of a command is estimated from its keys.
func (t *Table) Estimated(name string) bool { return t.index[name].Work.Steps != nil }

// NewestGrant returns the key and the token of the newest grant in database 0
// that LOCK ACQUIRE made. If there is no such grant, it returns a key without a
// grant.
func NewestGrant(m *Machine) (key string, token Pos) {
	key = "none"
	if t := m.locks.grants[0]; t != nil {
		if g, ok := t.Max(); ok {
			key, token = g.grant.Key, g.token
		}
	}
	return key, token
}
