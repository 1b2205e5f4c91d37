package cluster

import (
	"errors"
	"math/rand/v2"

	"github.com/holdfast-kv/holdfast/fsm"
)

// The leader rehearses scripts on the path of all writes, so a script gets
// Options.ScriptMoment there. A group with one that needs longer comes back as it
// was, by a reply that says so (fsm.TooLong), and its session asks the leader to
// try it out: as a read, on a fork, at its own pace. What ends there by itself
// is sent once more, and may then take its time; what does not has never held up
// anybody for more than a moment.
//
// The trial shows only that the script ends, not what it does: the state may be
// another one when it counts. A script that was quick in its trial and is slow
// then is cut as any other, after Options.ScriptTime.

// Kinds of reads.
const (
	readQuick = iota
	readSlow  // not on the goroutine that serves the others
	readTrial
)

// Verdicts of a trial, the first byte of what it answers.
const (
	trialEnded = iota // by itself
	trialCut          // behind it, if the group is but the script: the error
	trialAgain        // the leader ended first
)

var errVerdict = errors.New("leader answers a trial of a script with nothing that is known here")

// try runs a group for its end, and undoes it.
func (o *office) try(body []byte) ([]byte, error) {
	select {
	case o.host.trials <- struct{}{}:
	case <-o.done:
		return []byte{trialAgain}, nil
	}
	defer func() { <-o.host.trials }()
	o.machine.mu.Lock()
	fork := o.machine.m.Fork()
	o.machine.mu.Unlock()
	h := fsm.Header{Term: o.term, Stamp: o.now(), Wall: o.wall(), Seed: rand.Uint64()}
	replies, ops, cut, err := fork.Try(h, body, o.host.trying(o.done))
	switch {
	case err != nil:
		return nil, err
	case cut && closed(o.done):
		return []byte{trialAgain}, nil
	case cut && ops == 1 && replies[0] == '-': // a transaction's other commands count
		return append([]byte{trialCut}, replies...), nil
	case cut:
		return []byte{trialCut}, nil
	}
	return []byte{trialEnded}, nil
}

// inPieces runs the group of the call, of which nothing has been run: half of its
// operations at a time, and half of those, as long as a piece takes too long. What
// takes too long by itself is tried out. Others come in between, as they may in any
// pipeline, so that no number of slow scripts in one holds them up for longer than
// one of them does.
func (s *Session) inPieces() ([]byte, error) {
	c := &s.call
	c.early = nil
	todo := [][]byte{c.body} // the next one last
	var replies []byte
	for begun := false; len(todo) > 0; begun = true {
		c.body = todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if begun {
			c.reply, c.err = nil, nil
			s.node.gateway.write(c)
			<-c.done
		}
		reply, err := c.reply, c.err
		if err == nil && fsm.TooLong(reply) {
			if first, second, ok := fsm.SplitGroup(c.body); ok {
				todo = append(todo, second, first)
				continue
			}
			reply, err = s.tried()
		}
		switch {
		case err == nil && len(replies)+len(reply) <= fsm.MaxReplyBytes:
			replies = append(replies, reply...)
		case err == nil, len(replies) > 0, len(todo) > 0 && OutcomeOf(err) == OutcomeExecuted:
			return nil, ErrUnknown // some of it was executed, and some perhaps not
		default:
			return nil, err
		}
	}
	return replies, nil
}

// tried has the group of the call tried out and sends it again.
func (s *Session) tried() ([]byte, error) {
	c := &s.call
	for {
		c.trial, c.slow, c.reply, c.err, c.ready = true, true, nil, nil, nil
		verdict, err := s.read(false)
		c.trial = false
		switch {
		case err != nil:
			return nil, readFailed(err) // nothing has been done
		case len(verdict) == 0 || verdict[0] > trialAgain:
			return nil, readFailed(errVerdict)
		case verdict[0] == trialAgain:
			continue
		case verdict[0] == trialCut && len(verdict) > 1:
			return verdict[1:], nil
		case verdict[0] == trialCut:
			fsm.SetPatience(c.body, fsm.GivenUp)
		default:
			fsm.SetPatience(c.body, fsm.Tried)
		}
		c.reply, c.err = nil, nil
		s.node.gateway.write(c)
		<-c.done
		return c.reply, c.err
	}
}
