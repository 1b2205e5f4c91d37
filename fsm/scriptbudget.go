package fsm

import (
	"encoding/binary"
	"slices"
)

// ScriptBudget says how long the scripts of a group may run. No entry can be
// proposed while the leader executes a group speculatively, so scripts get
// little time at first. A script that needs more is executed in a dry run: on a
// clone that is then dropped, beside the writes of other clients. Only a script
// whose dry run has ended by itself gets more time in the speculative
// execution.
type ScriptBudget byte

const (
	// Briefly is for a group without a dry run. If one of its scripts is cut,
	// no part of the group is proposed, and the reply is TooLong. A group of
	// several operations is then executed in pieces: see SplitGroup.
	Briefly ScriptBudget = iota
	// DryRun is for a script outside the log: in the leader's dry run, or in a
	// read.
	DryRun
	// DryRunPassed is for a group whose dry run has ended by itself.
	DryRunPassed
	// GivenUp is for a group whose dry run was cut. Its other operations are
	// executed, and the script that takes too long is answered with an error.
	GivenUp
)

// These flags of a group are the result of its dry run.
const (
	groupDryRunPassed = 1 << 4
	groupGivenUp      = 1 << 5
)

// SetScriptBudget sets the result of the dry run in an encoded group:
// DryRunPassed or GivenUp.
func SetScriptBudget(body []byte, p ScriptBudget) {
	body[0] &^= groupDryRunPassed | groupGivenUp
	switch p {
	case DryRunPassed:
		body[0] |= groupDryRunPassed
	case GivenUp:
		body[0] |= groupGivenUp
	}
}

func scriptBudget(flags byte) ScriptBudget {
	switch {
	case flags&groupDryRunPassed != 0:
		return DryRunPassed
	case flags&groupGivenUp != 0:
		return GivenUp
	}
	return Briefly
}

// tooLong is not valid RESP, so no script can answer it.
const tooLong = "\x00"

// TooLong reports whether the replies of a group say that no part of the group
// was executed, because a script exceeded the budget Briefly.
func TooLong(replies []byte) bool { return string(replies) == tooLong }

// tooLongGroup is proposed in place of a group with such a script. It is an
// operation without effects whose reply is tooLong.
var tooLongGroup = answerGroup([]byte(tooLong))

// answerGroup returns a group of one operation without effects and its reply.
func answerGroup(reply []byte) []byte { return answerOperation([]byte{0, 0}, reply) }

// answerOperation appends an operation without effects and its reply to a group.
func answerOperation(group, reply []byte) []byte {
	b := appendString(append(group, opEffects), reply)
	for range 3 { // last position, last draw, number of effects
		b = binary.AppendUvarint(b, 0)
	}
	return b
}

// SplitGroup splits a group into two, with half of its operations each, which
// are to be executed one after the other. ok is false if the group has only one
// operation, which may be a transaction. Other clients' commands may run
// between the two groups: a pipeline is not atomic.
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

// Try executes a group with scripts as a dry run. It returns the replies, the
// number of their operations, and whether a script was cut. A cut ends the
// group; ops is then more than 1 if operations are left. Try calls pause every
// few steps of costly reads; an error of pause ends them. m must be a clone
// that no other goroutine uses, and it must not be used again.
func (m *Machine) Try(h Header, body []byte, runner ScriptRunner, pause func() error) (replies []byte, ops int, cut bool, err error) {
	sp := m.speculation(h, runner)
	sp.c.scriptBudget = DryRun
	sp.dryRun = true
	sp.c.reads, sp.pause = &sp.reads, pause
	sp.c.expireDue()
	s := &session{}
	if _, _, err := sp.group(s, 1, body); err != nil {
		return nil, 0, false, err
	}
	return sp.replies, sp.ops, sp.c.cut, nil
}
