package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// ScriptRunner interprets scripts for a leader.
type ScriptRunner interface {
	// CompileScript returns "" or Redis' error text.
	CompileScript(body []byte) string
	// RunScript runs a script whose commands go through call.Do. It ends within
	// its budget, whatever the script does.
	RunScript(call ScriptCall) Reply
}

// ScriptCall is one call of a script.
type ScriptCall struct {
	SHA        string
	Body       []byte
	Keys, Args [][]byte
	ReadOnly   bool
	Proto      int
	Seed       uint64
	Do         func(args [][]byte) Reply
}

// Rehearsal runs the groups of a batch on a fork before the batch is proposed,
// so that scripts are run once, by the leader, and every node gets what they
// did: an operation with a script is replaced by its effects, the reply and the
// write commands that led to it. A script that loops, exhausts memory or panics
// costs its client an error, and no other node ever sees it.
//
// The fork must be of the state that the entry will meet: nothing may be on its
// way through the log.
type Rehearsal struct {
	m    *Machine
	c    Ctx
	rec  recorder
	seqs map[string]session // by node, of the fork's origin
}

// recorder collects the effects of an operation.
type recorder struct {
	runner      ScriptRunner
	effects     []effect
	size        int
	interpreted bool
}

type effect struct {
	db   int
	args [][]byte
}

func (r *recorder) record(db int, args [][]byte) {
	r.effects = append(r.effects, effect{db, cloneArgs(args)})
	for _, a := range args {
		r.size += len(a) + 8
	}
}

// Rehearse prepares a rehearsal of the batch with header h. It forks m: the
// caller has exclusive access to m for the duration of this call only.
func (m *Machine) Rehearse(h Header, runner ScriptRunner) *Rehearsal {
	f := m.Fork()
	r := &Rehearsal{m: f, rec: recorder{runner: runner}, seqs: make(map[string]session)}
	for _, s := range m.Sessions().list {
		r.seqs[s.node] = session{boot: s.boot, lastSeq: s.lastSeq}
	}
	f.clock.advance(h)
	r.c = Ctx{m: f, now: f.clock.Lease, wall: f.clock.Wall, seed: h.Seed, index: m.applied + 1}
	r.c.setPlace(0)
	r.c.expireDue()
	return r
}

// Group runs a group and returns what is to be proposed in its place. A group
// that the machine will not run (a repeated number, say) is not run here either.
func (r *Rehearsal) Group(id SessionID, seq uint64, body []byte) ([]byte, error) {
	s, known := r.seqs[id.NodeID]
	if !known || s.boot < id.Boot {
		s = session{boot: id.Boot}
	}
	if s.boot != id.Boot || seq != s.lastSeq+1 {
		return body, nil
	}
	s.lastSeq = seq
	r.seqs[id.NodeID] = s
	if len(body) == 0 || body[0]&groupScript == 0 {
		_, err := r.c.run(nil, body)
		return body, err
	}
	return r.script(body)
}

// script runs the operations of a group that has a script among them.
func (r *Rehearsal) script(body []byte) ([]byte, error) {
	c := &r.c
	c.rec = &r.rec
	defer func() { c.rec = nil }()
	if err := c.r.open(body); err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	c.proto = c.r.proto
	out := append([]byte(nil), body[:len(body)-len(c.r.d.b)]...)
	out[0] &^= groupScript
	for len(c.r.d.b) > 0 {
		start := c.r.d.b
		r.rec.effects, r.rec.size, r.rec.interpreted = nil, 0, false
		reply, err := c.operation()
		if err != nil {
			return nil, err
		}
		if !r.rec.interpreted {
			out = append(out, start[:len(start)-len(c.r.d.b)]...)
			continue
		}
		out = append(out, opEffects)
		out = appendString(out, reply.Append(nil, c.proto))
		out = binary.AppendUvarint(out, uint64(len(r.rec.effects)))
		for _, e := range r.rec.effects {
			out = binary.AppendUvarint(out, uint64(e.db))
			out = binary.AppendUvarint(out, uint64(len(e.args)))
			out = appendString(out, bytes.ToLower(e.args[0]))
			for _, a := range e.args[1:] {
				out = appendString(out, a)
			}
		}
	}
	return out, c.r.d.err
}

// effects replays what a script did on the leader.
func (c *Ctx) effects() (Reply, error) {
	reply := c.r.d.bytes()
	n := c.r.d.uvarint()
	if c.r.d.err != nil || n > uint64(len(c.r.d.b)) {
		return Reply{}, fmt.Errorf("effects: %w", ErrFormat)
	}
	for ; n > 0; n-- {
		if _, err := c.next(); err != nil {
			return Reply{}, err
		}
	}
	return Raw(reply), nil
}

// restoreFork takes back what has happened since before was forked.
func (m *Machine) restoreFork(before *Machine) { *m = *before }
