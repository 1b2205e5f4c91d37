package cluster

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/holdfast-kv/holdfast/cluster/execution"
	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
)

// The leader executes scripts speculatively before it proposes an entry, and
// all writes wait meanwhile, so a script may take only Options.BriefScriptTime
// there. If a group contains a script that needs longer, the group is not
// executed and its reply says so (fsm.TooLong). The client's session then asks
// the leader for a dry run of the group, as a read: on a copy-on-write clone,
// outside of the log. If the scripts end in the dry run, the session sends the
// group again, and the scripts may then use Options.ScriptTime. A script that
// does not end in its dry run has delayed other clients only for
// BriefScriptTime.
//
// The dry run shows only that a script ends, not what it will do, because the
// state may be different when the script is executed. If a script was quick in
// its dry run but is slow when it is executed, it is stopped after
// Options.ScriptTime, like any other script.

// Kinds of reads, in a read frame.
const (
	readQuick = iota
	readSlow  // runs on its own goroutine, not on the goroutine that serves the stream
	readDryRun

	// readPiece is a flag that a node adds if it can run reads with large
	// replies itself: see answerHere. Nodes know it from fsm.FeatureBudget on.
	readPiece = 1 << 7
)

// remotePiece is the maximum number of bytes of replies that a leader sends to
// a node that can run the read itself.
const remotePiece = 256 << 10

// Results of a dry run, encoded as the first byte of its answer.
const (
	dryRunEnded = iota // the group ended by itself
	dryRunCut          // the group was stopped; if it is a single script, the error follows
	dryRunAgain        // the leadership ended first
)

var errVerdict = errors.New("leader answered the dry run of a script with an unknown result")

// runDry runs a group to see whether it ends, and discards its effects.
func (ld *leadership) runDry(body []byte) ([]byte, error) {
	verdict, err := ld.host.RunDry(body, ld.done, func(t *execution.DryRun) ([]byte, error) {
		return ld.runDryGroup(body, t)
	})
	var refused execution.Refusal
	switch {
	case errors.Is(err, fairshare.ErrLost):
		return []byte{dryRunAgain}, nil
	case errors.As(err, &refused):
		return fsm.Error(refused.Error()).Append([]byte{dryRunCut}, 2), nil
	}
	return verdict, err
}

// runDryGroup runs a group that has the slot of its lane. A group without a
// script is not run, because its cost follows from the sizes of its keys. Such a
// group needs the slot nevertheless, so that heavy writes leave most of the time
// to the writes of other clients.
func (ld *leadership) runDryGroup(body []byte, t *execution.DryRun) ([]byte, error) {
	if !fsm.HasScripts(body) {
		work, err := ld.writeTime(body)
		t.Weigh(min(work, ld.opts.MaxWriteTime)) // FLUSHALL may exceed the limit, but must not keep the lane for longer
		return []byte{dryRunEnded}, err
	}
	clone := ld.machine.Clone()
	h := fsm.Header{Term: ld.term, Stamp: ld.now(), Wall: ld.wall(), Seed: rand.Uint64()}
	replies, ops, cut, err := clone.Try(h, body, ld.host.DryRunner(ld.done, t), ld.yielding())
	switch {
	case err != nil:
		return nil, err
	case cut && ld.ended():
		return []byte{dryRunAgain}, nil
	case cut && ops == 1 && replies[0] == '-': // in a transaction, other commands have replies too
		return append([]byte{dryRunCut}, replies...), nil
	case cut:
		return []byte{dryRunCut}, nil
	}
	return []byte{dryRunEnded}, nil
}

// yielding returns a function that lets other goroutines run, because all of
// them have precedence over a dry run. The function returns an error if the
// leadership has ended.
func (ld *leadership) yielding() func() error {
	var pace yield.Pace
	return func() error {
		if ld.ended() {
			return errNotLeader
		}
		pace.Check()
		return nil
	}
}

// inPieces executes the group of the call in pieces, after the leader has
// refused to execute it as a whole. At that point, no part of the group has
// been executed. Pieces that only read are executed as reads: see
// fsm.Table.Pieces. A piece that exceeds a budget is split in half until no piece
// exceeds one. For a single operation that exceeds a budget, see single. Other
// clients' commands are executed between the pieces, as in any pipeline, so a
// pipeline with many slow scripts delays them no longer than one slow script
// does. inPieces calls s.piece for each piece that may write: see OnPiece.
//
// If a client sends a pipeline of writes and closes its connection, the
// pipeline is still executed. But once the client has left and the replies
// exceed maxUnread, inPieces does not execute the rest of the group.
//
// inPieces returns the whole reply of each piece that may have written, even if the
// replies then exceed fsm.MaxReplyBytes, because the reply may contain data that
// the piece has removed. It refuses the pieces that may write after that without
// executing them.
func (s *Session) inPieces() ([]byte, error) {
	c := &s.call
	c.early = nil
	var left <-chan struct{} // nil if the client is not watched
	if s.watch != nil {
		gone, stop, err := s.watch()
		if err == nil {
			defer stop()
			left = gone
		}
	}
	todo := s.node.machine.Table().Pieces(c.body)
	whole := len(todo) == 1
	slices.Reverse(todo) // the next piece is last
	var replies []byte
	op := 0 // position of the next piece's first operation in the group
	for len(todo) > 0 {
		if len(replies) > maxUnread {
			select {
			case <-left:
				return nil, outcome.ErrAbandoned
			default:
			}
		}
		piece := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !piece.Read && len(replies) > fsm.MaxReplyBytes {
			replies = fsm.RefuseGroup(replies, piece.Body, fsm.ReplyTooLarge)
			op += fsm.GroupOps(piece.Body)
			continue
		}
		c.body = piece.Body
		var reply []byte
		var err error
		if piece.Read {
			reply, err = s.pieceRead()
		} else {
			read := false
			if !whole && s.reading {
				reply, read, err = s.scriptAsRead()
			}
			if !whole && !read && err == nil {
				c.reply, c.err = nil, nil
				s.log()
			}
			if !read && err == nil {
				reply, err = c.reply, c.err
			}
		}
		whole = false
		if err == nil && (fsm.TooLong(reply) || fsm.TooLarge(reply)) {
			if first, second, ok := fsm.SplitGroup(c.body); ok {
				// A part that reads large values need not go through the log.
				reads := s.node.machine.Table().Reads
				todo = append(todo, fsm.Piece{Body: second, Read: reads(second)},
					fsm.Piece{Body: first, Read: reads(first)})
				continue
			}
			reply, err = s.single(fsm.TooLarge(reply))
		}
		if err == nil && !piece.Read && s.piece != nil {
			s.piece(c.last, op)
		}
		op += fsm.GroupOps(piece.Body)
		switch {
		case err == nil && (!piece.Read || len(replies)+len(reply) <= fsm.MaxReplyBytes):
			replies = append(replies, reply...)
		case err == nil:
			replies = fsm.RefuseGroup(replies, piece.Body, fsm.ReplyTooLarge)
		case len(replies) > 0, len(todo) > 0 && outcome.Of(err) == outcome.Executed:
			return nil, outcome.ErrUnknown // a part was executed, and another part perhaps not
		default:
			return nil, err
		}
	}
	return replies, nil
}

// single executes the group of the call, which has a single operation that
// exceeded a budget. If the reply is probably large, single executes the group as
// a read if possible. Otherwise it executes the group after a dry run. large says
// that the reply of its script is large.
func (s *Session) single(large bool) (reply []byte, err error) {
	c := &s.call
	tried := !s.logging && (large || c.logged > largeGroup)
	if tried {
		reply, read, err := s.scriptAsRead()
		if read || err != nil {
			return reply, err
		}
	}
	reply, err = s.sendAfterDryRun()
	s.logging = c.logged > largeGroup
	if err != nil || tried || !fsm.ReplyRefused(reply) {
		return reply, err
	}
	// Only now is it known that the reply is too large for the log.
	asRead, read, err := s.scriptAsRead()
	if read || err != nil {
		return asRead, err
	}
	return reply, nil
}

// scriptAsRead executes the group of the call as a read if the group is a
// single script that does not write. So the reply, which may be large, does not
// go through the log. read is false if the group must go through the log,
// because the script writes or cannot be executed as a read. The script has
// then changed nothing.
func (s *Session) scriptAsRead() (reply []byte, read bool, err error) {
	c, table := &s.call, s.node.machine.Table()
	body, load, ok := table.AsRead(c.body)
	// Below FeatureParts, a read of a script that writes does not fail.
	if !ok || s.node.Features() < fsm.FeatureParts {
		return nil, false, nil
	}
	logged := c.body
	defer func() { c.body, s.reading = logged, read }()
	c.body = body
	for {
		c.slow, c.reply, c.err, c.ready = true, nil, nil, nil
		reply, err = s.read(false)
		switch {
		case err == nil:
			return reply, !bytes.HasPrefix(reply, onlyAsRead), nil
		case !errors.Is(err, fsm.ErrUnlogged):
			return nil, false, readFailed(err)
		case load == nil || s.knowsScript(load[1]):
			return nil, false, nil
		}
		// A read cannot put the script into the cache.
		cached := s.node.forwarder.command(table, load)
		load = nil
		if <-cached.done; cached.err != nil {
			return nil, false, nil
		}
	}
}

// onlyAsRead is the beginning of the error with which EVAL_RO, EVALSHA_RO and
// FCALL_RO refuse a script or function without the flag no-writes: see package
// script. EVAL, EVALSHA and FCALL execute such a script or function.
var onlyAsRead = []byte("-ERR Can not execute a script with write flag")

// knowsScript reports whether the text of a script is in the cache, as far as
// this node knows.
func (s *Session) knowsScript(text []byte) (known bool) {
	s.node.machine.View(func(m *fsm.Machine) { _, known = m.ScriptText(fsm.SHA1(text)) })
	return known
}

// maxUnread bounds the replies, in bytes, that inPieces collects for a client
// that has left. When the replies exceed it, inPieces ends. A group of writes with
// short replies is always executed completely, because its replies never reach
// this size.
const maxUnread = 256 << 10

// pieceRead executes the group of the call as a read.
func (s *Session) pieceRead() ([]byte, error) {
	c := &s.call
	c.slow, c.reply, c.err, c.ready = true, nil, nil, nil
	reply, err := s.read(false)
	return reply, readFailed(err)
}

// sendAfterDryRun requests a dry run of the group of the call, and then sends
// the group again. It repeats both if the leader then finds that the group needs
// another dry run, because a script of the group is not compiled.
func (s *Session) sendAfterDryRun() ([]byte, error) {
	c := &s.call
	for attempt := 1; ; {
		c.dryRun, c.slow, c.reply, c.err, c.ready = true, true, nil, nil, nil
		verdict, err := s.read(false)
		c.dryRun = false
		switch {
		case err != nil:
			return nil, readFailed(err) // nothing has been executed
		case len(verdict) == 0 || verdict[0] > dryRunAgain:
			return nil, readFailed(errVerdict)
		case verdict[0] == dryRunAgain:
			continue
		case verdict[0] == dryRunCut && len(verdict) > 1:
			return slices.Clone(verdict[1:]), nil // scriptAsRead may reuse the buffer of the verdict
		case verdict[0] == dryRunCut:
			fsm.SetScriptBudget(c.body, fsm.GivenUp)
		default:
			fsm.SetScriptBudget(c.body, fsm.DryRunPassed)
		}
		c.reply, c.err = nil, nil
		s.log()
		switch {
		case c.err != nil || !fsm.TooLong(c.reply):
			return c.reply, c.err
		case attempt == maxDryRuns:
			return fsm.Error(msgNotCompiled).Append(nil, 2), nil
		}
		attempt++
	}
}

// maxDryRuns is the maximum number of dry runs of a group whose compiled scripts are
// not in the leader's cache when the leader executes the group.
const maxDryRuns = 3

// msgNotCompiled is the reply to a group after maxDryRuns.
const msgNotCompiled = "BUSY the script or transaction was not executed: its compiled scripts were replaced by " +
	"others in the cache, or the leader changed, try again later"
