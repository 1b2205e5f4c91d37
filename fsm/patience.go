package fsm

import (
	"encoding/binary"
	"slices"
)

// Patience says how long the scripts of a group may run. While the leader
// rehearses a group nothing can be written, so a script gets a moment there at
// first. One that needs longer is tried out beside the log, on a fork whose state
// is thrown away: only what has ended there by itself is rehearsed with patience.
type Patience byte

const (
	// Briefly is for a group that nobody has tried: if a script is cut, no part of
	// the group is proposed, and the reply says TooLong. A group of several
	// operations is then run in pieces: see SplitGroup.
	Briefly Patience = iota
	// Trial is for a script outside the log: the leader's trial, or a read.
	Trial
	// Tried is for a group whose trial has ended by itself.
	Tried
	// GivenUp is for a group whose trial had to be cut: its other operations are
	// run, and the script that takes too long is answered with an error.
	GivenUp
)

// Flags of a group that say what its trial has shown.
const (
	groupTried   = 1 << 4
	groupGivenUp = 1 << 5
)

// SetPatience notes in an encoded group what its trial has shown: Tried or
// GivenUp.
func SetPatience(body []byte, p Patience) {
	body[0] &^= groupTried | groupGivenUp
	switch p {
	case Tried:
		body[0] |= groupTried
	case GivenUp:
		body[0] |= groupGivenUp
	}
}

func patience(flags byte) Patience {
	switch {
	case flags&groupTried != 0:
		return Tried
	case flags&groupGivenUp != 0:
		return GivenUp
	}
	return Briefly
}

// tooLong is no reply of RESP, so no script can answer it.
const tooLong = "\x00"

// TooLong reports whether the replies of a group say that no part of it was run,
// because one of its scripts took longer than a moment.
func TooLong(replies []byte) bool { return string(replies) == tooLong }

// tooLongGroup is proposed in place of a group with such a script: an operation
// that has no effects, and tooLong for its reply.
var tooLongGroup = func() []byte {
	b := appendString([]byte{0, 0, opEffects}, tooLong)
	for range 3 { // last place, last draw, effects
		b = binary.AppendUvarint(b, 0)
	}
	return b
}()

// SplitGroup makes two groups of one, with half of its operations each, to be run
// one after the other. ok is false if there is but one, which may be a transaction.
// What stands between two commands of a pipeline is nobody's promise.
func SplitGroup(body []byte) (first, second []byte, ok bool) {
	var r groupReader
	if r.open(body) != nil {
		return nil, nil, false
	}
	head := len(body) - len(r.d.b)
	var ends []int
	for len(r.d.b) > 0 {
		if r.skip() != nil {
			return nil, nil, false
		}
		ends = append(ends, len(body)-len(r.d.b))
	}
	if len(ends) < 2 {
		return nil, nil, false
	}
	cut := ends[len(ends)/2-1]
	return body[:cut:cut], slices.Concat(body[:head], body[cut:]), true
}

// Try runs a group with scripts and returns its replies, of how many operations
// they are, and whether a script was cut: then that ends it, and ops is more than
// one if something of the group is left. m must be a fork that nobody else uses; it
// is not to be used again.
func (m *Machine) Try(h Header, body []byte, runner ScriptRunner) (replies []byte, ops int, cut bool, err error) {
	r := m.rehearsal(h, runner)
	r.c.patience = Trial
	r.trial = true
	r.c.expireDue()
	s := &session{}
	if _, _, err := r.group(s, 1, body); err != nil {
		return nil, 0, false, err
	}
	return r.replies, r.ops, r.c.cut, nil
}
