package fsm

import (
	"encoding/binary"
	"fmt"
)

// Rehearsal runs the groups of a batch on a fork before the batch is proposed,
// so that scripts are run once, by the leader, and every node gets what they
// did: an operation with a script is replaced by its effects, the reply and the
// write commands that led to it. A script that loops, exhausts memory or panics
// costs its client an error, and no other node ever sees it.
//
// The fork must be of the state that the entry will meet: nothing may be on its
// way through the log.
type Rehearsal struct {
	c        Ctx
	rec      recorder
	batch    *BatchBuilder
	sessions []*session // of the batch, as they were, nil if stale

	// For Try: what the group answered, and of how many operations it was.
	trial   bool
	replies []byte
	ops     int
}

// Limits of what rehearsing may make of the groups. They are the leader's: other
// nodes take what comes.
const (
	// maxGroupEffects bounds the replies of a group's scripts and what they write.
	maxGroupEffects = 16 << 20
	// enoughEffects is where a batch is closed.
	enoughEffects = 4 << 20

	msgScriptTooBig = "ERR script answers or writes more than 16 MiB, nothing of it was done"
)

// Rehearse prepares a rehearsal of the groups of b under the header h. It needs
// exclusive access to m for the duration of this call only.
func (m *Machine) Rehearse(h Header, b *BatchBuilder, runner ScriptRunner) *Rehearsal {
	r := m.Fork().rehearsal(h, runner)
	r.batch, r.sessions = b, make([]*session, len(b.sessions))
	opened := make(map[string]*session)
	for i := range b.sessions { // what applyBatch will do: see sessionFor
		id := b.sessions[i].id
		s := opened[id.NodeID]
		if s == nil {
			if s = m.sessions[id.NodeID]; s != nil {
				s = &session{boot: s.boot, lastSeq: s.lastSeq}
			}
		}
		if s == nil || s.boot < id.Boot {
			if s != nil {
				s.superseded = true
			}
			s = &session{boot: id.Boot}
		}
		opened[id.NodeID] = s
		if s.boot == id.Boot {
			r.sessions[i] = s
		}
	}
	return r
}

// rehearsal prepares m, a fork, for the entry that is to have the header h.
func (m *Machine) rehearsal(h Header, runner ScriptRunner) *Rehearsal {
	m.clock.advance(h)
	r := &Rehearsal{c: Ctx{m: m, now: m.clock.Lease, wall: m.clock.Wall, seed: h.Seed, index: m.applied + 1, runner: runner}}
	r.c.setPlace(0)
	return r
}

// Run rehearses the batch and adds to out what is to be proposed in its place.
// After each group with scripts it asks enough: if it says so, or if out has
// grown large, the groups that are left go into rest as they are, for the next
// entry; and so they do behind a group of which TooLong is to be said, because
// the fork holds parts of it.
//
// out names all sessions of the batch, those included whose groups all go into
// rest: a later start of a node ends the waits and refuses the groups of an
// earlier one, and must do so in the entry as it did here.
func (r *Rehearsal) Run(out, rest *BatchBuilder, enough func() bool) error {
	for i := range r.batch.sessions {
		out.session(r.batch.sessions[i].id, r.batch.sessions[i].ackFloor)
	}
	r.c.expireDue()
	for i := range r.sessions {
		if r.sessions[i] != nil {
			r.c.speaks(r.batch.sessions[i].id)
		}
	}
	r.c.serveWaiters()
	full := false
	d := decoder{b: r.batch.groups}
	for range r.batch.n {
		i, seq, body := d.uvarint(), d.uvarint(), d.bytes()
		if d.err != nil {
			break
		}
		id, floor := r.batch.sessions[i].id, r.batch.sessions[i].ackFloor
		if full {
			rest.Add(id, floor, seq, body)
			continue
		}
		r.c.sender = id
		body, scripted, err := r.group(r.sessions[i], seq, body)
		if err != nil {
			return fmt.Errorf("group %d of %s: %w", seq, id, err)
		}
		if r.c.cut {
			out.Add(id, floor, seq, tooLongGroup)
			full = true
			continue
		}
		out.Add(id, floor, seq, body)
		full = scripted && (len(out.groups) > enoughEffects || enough())
	}
	return d.done("batch")
}

// group runs a group and returns what is to be proposed in its place. A group
// that the machine will not run (a repeated number, say) is not run here either.
func (r *Rehearsal) group(s *session, seq uint64, body []byte) (out []byte, scripted bool, err error) {
	if !s.runs(r.c.m.features) || seq != s.lastSeq+1 {
		return body, false, nil
	}
	s.lastSeq = seq
	c := &r.c
	if err := c.r.open(body); err != nil {
		return nil, false, fmt.Errorf("group: %w", err)
	}
	c.proto = c.r.proto
	c.rec, c.begun = nil, 0
	scripted = body[0]&groupScript != 0
	if scripted {
		c.rec = &r.rec
		out = append(out, body[:len(body)-len(c.r.d.b)]...)
		out[0] &^= groupScript | groupTried | groupGivenUp
	}
	if !r.trial {
		c.patience = patience(body[0])
	}
	r.rec.room = maxGroupEffects
	for len(c.r.d.b) > 0 {
		start := c.r.d.b
		r.rec.begin(c)
		reply, err := c.operation()
		switch {
		case err != nil:
			return nil, false, err
		case r.trial:
			r.replies = reply.Append(r.replies, c.proto)
			if r.ops++; c.cut { // that is the verdict, whatever follows
				if len(c.r.d.b) > 0 {
					r.ops++
				}
				return nil, true, nil
			}
		case c.cut:
			return nil, true, nil
		case !scripted:
		case r.rec.interpreted:
			out = r.rec.appendTo(out, c, reply)
		default:
			out = append(out, start[:len(start)-len(c.r.d.b)]...)
		}
		c.serveWaiters()
	}
	if !scripted {
		out = body
	}
	return out, scripted, c.r.d.err
}

// recorder collects the effects of an operation.
type recorder struct {
	effects []byte
	n       int
	room    int // bytes that the group's effects may still take
	// What the operation began with: places and draws are counted from there, so
	// that replaying gives every write the position and the chance that it had.
	place int
	draws uint64
	// interpreted: what the operation did cannot be told from its arguments.
	// scripted is the same for one command of a transaction.
	interpreted, scripted bool
}

func (r *recorder) begin(c *Ctx) {
	*r = recorder{effects: r.effects[:0], room: r.room, place: c.place, draws: c.draws}
}

// replaced notes that the reply, and effects that were recorded, stand for the
// command that is being run.
func (r *recorder) replaced() { r.interpreted, r.scripted = true, true }

// record notes a command that changed something. draws are those before it ran.
func (r *recorder) record(c *Ctx, draws uint64, name string, args [][]byte) {
	b := binary.AppendUvarint(r.effects, uint64(c.place-r.place))
	b = binary.AppendUvarint(b, draws-r.draws)
	b = binary.AppendUvarint(b, uint64(c.db))
	b = binary.AppendUvarint(b, uint64(len(args)))
	b = appendString(b, name)
	for _, a := range args[1:] {
		b = appendString(b, a)
	}
	r.effects = b
	r.n++
}

// appendTo writes the operation as what it did.
func (r *recorder) appendTo(out []byte, c *Ctx, reply Reply) []byte {
	text := reply.Append(nil, c.proto)
	if len(text) > maxGroupReply { // of a transaction: a script's own has been looked at
		text = Error(replyTooLarge).Append(nil, c.proto)
	}
	size := len(out)
	out = append(out, opEffects)
	out = appendString(out, text)
	out = binary.AppendUvarint(out, uint64(c.place-r.place))
	out = binary.AppendUvarint(out, c.draws-r.draws)
	out = binary.AppendUvarint(out, uint64(r.n))
	out = append(out, r.effects...)
	r.room -= len(out) - size
	return out
}

// maxGroupReply bounds the reply of a transaction with a script: the entry that
// holds it must fit into the log.
const maxGroupReply = 32 << 20

// groupBegun is ScriptCall.Group: nil for reads, which hold up nobody.
func (c *Ctx) groupBegun() *int64 {
	if c.rec == nil {
		return nil
	}
	return &c.begun
}

// rehearsed runs a command of a group and records what it changed, and what is to
// be told of as read.
func (c *Ctx) rehearsed(cmd *Command, args [][]byte) Reply {
	c.rec.scripted = false
	changes, draws := c.changes, c.draws
	reply := cmd.Run(c, args)
	if !c.rec.scripted && (c.tellsRead(cmd.Routed(args)) || c.tookEffect(cmd, args, changes, reply)) {
		c.rec.record(c, draws, cmd.Name, args)
	}
	return reply
}

// tellsRead reports whether other nodes have to run a command because it reads keys
// for a connection with tracking, which only its own node knows: see EventTracked. What
// a script read is noted call by call.
func (c *Ctx) tellsRead(row *Command) bool {
	return c.r.track && row.Flags&(ReadOnly|Scripted) == ReadOnly
}

// tookEffect reports whether a command did what other nodes have to do too: what
// changed nothing, such as a SET NX of a key that is there, need not be logged.
// Commands that publish count as effective, for nothing tells.
func (c *Ctx) tookEffect(cmd *Command, args [][]byte, changes int, reply Reply) bool {
	return c.changes != changes || cmd.Routed(args).Flags&MayWrite != 0 && !reply.IsError()
}

// effects replays what a script did on the leader.
func (c *Ctx) effects() (Reply, error) {
	d := &c.r.d
	c.atomic = true
	defer func() { c.atomic = false }()
	place, seed := c.place, c.seed
	reply := d.bytes()
	lastPlace, lastDraws, n := d.uvarint(), d.uvarint(), d.uvarint()
	if d.err != nil || n > uint64(len(d.b)) {
		return Reply{}, fmt.Errorf("effects: %w", ErrFormat)
	}
	for ; n > 0; n-- {
		at, draws := d.uvarint(), d.uvarint()
		c.seed = seed + draws*drawStep
		c.setPlace(place + int(min(at, MaxOps)) - 1)
		if _, err := c.next(); err != nil {
			return Reply{}, fmt.Errorf("effects: %w", err)
		}
	}
	c.seed = seed + lastDraws*drawStep
	c.setPlace(place + int(min(lastPlace, MaxOps)))
	return Raw(reply), nil
}
