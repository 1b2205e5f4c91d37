package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
)

// Speculation executes the groups of a batch on a clone before the leader
// proposes the batch. So only the leader executes the scripts of the batch, and all
// nodes apply their effects. An operation with a script is replaced by its effects:
// the reply, and the write commands that the script called. If a script does not
// end, exhausts memory or panics, its client gets an error, and no other node
// executes the script.
//
// The clone must have the state to which the entry will be applied, so no other
// entry may be on its way through the log.
type Speculation struct {
	c        Ctx
	rec      recorder
	batch    *BatchBuilder
	sessions []*session // copies of the sessions of the batch, without their replies; nil for a stale session

	// These fields are for Try. replies are the replies of the group. ops is
	// the number of operations that were executed.
	dryRun  bool
	replies []byte
	ops     int
	pause   func() error

	reads readBudget // budget for the costly reads of the group that is being executed
	// unloggable is set if the group was cut because the reply of a transaction is
	// too large for the log.
	unloggable bool

	scripted bool // a group with scripts was executed
	behind   int  // work of the batch's later groups without scripts: see postpones
}

// These limits bound the effects of the groups. Only the leader's speculative
// execution checks them. A node that applies an entry does not.
const (
	// maxGroupEffects bounds the size, in bytes, of the replies and the writes
	// of a group's scripts.
	maxGroupEffects = 16 << 20
	// enoughEffects is the size, in bytes, above which an entry is closed after a
	// group with scripts.
	enoughEffects = 4 << 20

	msgGroupWork = "BUSY the writes of the pipeline or transaction would take longer than --max-write-time on " +
		"every node: this command was not executed, divide it"
	msgScriptTooBig = "ERR script answers or writes more than 16 MiB and was rolled back"
)

// Speculate prepares a speculative execution of the groups of b for an entry
// with the header h. It needs exclusive access to m during this call only.
func (m *Machine) Speculate(h Header, b *BatchBuilder, runner ScriptRunner) *Speculation {
	sp := m.Clone().speculation(h, runner)
	sp.batch, sp.sessions = b, make([]*session, len(b.sessions))
	opened := make(map[string]*session)
	for i := range b.sessions { // applyBatch will do the same: see sessionFor
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
			sp.sessions[i] = s
		}
	}
	return sp
}

// speculation prepares a speculative execution on m, a clone, for an entry with
// the header h.
func (m *Machine) speculation(h Header, runner ScriptRunner) *Speculation {
	m.clock.advance(h)
	sp := &Speculation{c: Ctx{
		m: m, now: m.clock.Lease, wall: m.clock.Wall, index: m.applied + 1,
		draw: draw{seed: h.Seed}, scripting: scripting{runner: runner},
	}}
	sp.c.setPosition(0)
	return sp
}

// Run executes the batch speculatively, and adds the groups that are to be
// proposed to out. In these cases, it adds the remaining groups unchanged to
// rest, for the next entry:
//
//   - after a group with scripts, if enough then returns true,
//   - after a group with scripts, if out is then large,
//   - after a group that exceeded a budget and cannot be undone, because the
//     clone then contains some of its effects,
//   - before a group without scripts that needs too much work for this entry:
//     see postpones.
//
// out names all sessions of the batch, including those whose groups are all in
// rest. If the batch names a later start of a node, the clone ends the waits of
// the earlier start, and does not execute the groups of the earlier start. The
// entry must have the same effect, so it must name the same sessions.
func (sp *Speculation) Run(out, rest *BatchBuilder, enough func() bool) error {
	for i := range sp.batch.sessions {
		out.session(sp.batch.sessions[i].id, sp.batch.sessions[i].ackFloor)
	}
	sp.c.expireDue()
	for i := range sp.sessions {
		if sp.sessions[i] != nil {
			sp.c.endEarlierStart(sp.batch.sessions[i].id)
		}
	}
	sp.c.serveDeferred()
	sp.c.serveWaiters()
	full := false
	sp.c.reads = &sp.reads
	d := codec.Decoder{Rest: sp.batch.groups}
	for range sp.batch.n {
		i, seq, body := d.Uvarint(), d.Uvarint(), d.Bytes()
		if d.Err != nil {
			break
		}
		id, floor := sp.batch.sessions[i].id, sp.batch.sessions[i].ackFloor
		if !full {
			var err error
			if full, err = sp.postpones(body); err != nil {
				return fmt.Errorf("estimate group %d of %s: %w", seq, id, err)
			}
		}
		if full {
			rest.Add(id, floor, seq, body)
			continue
		}
		sp.c.sender = id
		ops := body
		body, scripted, err := sp.group(sp.sessions[i], seq, body)
		if err != nil {
			return fmt.Errorf("group %d of %s: %w", seq, id, err)
		}
		if sp.c.cut {
			body = tooLongGroup
			if sp.c.large {
				body = tooLargeGroup
			}
			if refusal := sp.refusal(ops); refusal != "" {
				body = answerGroup(Error(refusal).Append(nil, sp.c.proto))
			}
			// If the group was undone, the groups after it can be executed.
			full = !sp.undo()
		}
		out.Add(id, floor, seq, body)
		sp.scripted = sp.scripted || scripted
		full = full || scripted && (len(out.groups) > enoughEffects || enough())
	}
	return d.Done("batch")
}

// refusal returns the error for a group that was cut, and "" if the client's node
// must divide the group or request a dry run.
func (sp *Speculation) refusal(body []byte) string {
	if sp.unloggable && GroupOps(body) == 1 {
		return ReplyTooLarge
	}
	return sp.reads.refusal()
}

// group executes a group and returns the group to propose in its place. It does
// not execute a group that the machine will not execute, such as one with a
// repeated number.
//
// A transaction whose reply is logged is cut if the reply exceeds maxGroupReply. If
// only the reply were replaced by an error, the data that the commands of the
// transaction have removed would be lost.
func (sp *Speculation) group(s *session, seq uint64, body []byte) (out []byte, scripted bool, err error) {
	c := &sp.c
	c.cut, c.large, sp.unloggable = false, false, false // forget the previous group
	if !s.runs(sp.c.m.features) || seq != s.lastSeq+1 {
		return body, false, nil
	}
	s.lastSeq = seq
	if err := c.r.open(body); err != nil {
		return nil, false, fmt.Errorf("group: %w", err)
	}
	c.proto = c.r.proto
	c.rec, c.begun, c.work, c.uncompiled, c.replied, c.sent = nil, 0, 0, 0, 0, 0
	scripted = body[0]&groupScript != 0
	if scripted {
		c.rec = &sp.rec
		out = append(out, body[:len(body)-len(c.r.d.Rest)]...)
		out[0] &^= groupScript | groupDryRunPassed | groupGivenUp
	}
	if !sp.dryRun {
		c.scriptBudget = scriptBudget(body[0])
	}
	sp.rec.room = maxGroupEffects
	if scripted {
		sp.prepareUndo(body)
	}
	for len(c.r.d.Rest) > 0 {
		start, before := c.r.d.Rest, c.sent
		sp.rec.begin(c)
		reply, err := c.operation()
		c.sent = before
		c.count(reply.encodedSize(c.proto))
		switch {
		case err != nil:
			return nil, false, err
		case sp.dryRun && sp.reads.over:
			sp.replies, sp.ops = Error(msgCostlyReads).Append(nil, c.proto), 1
			return nil, true, nil
		case sp.dryRun:
			sp.replies = reply.Append(sp.replies, c.proto)
			if sp.ops++; c.cut { // the group has ended, so the remaining operations do not run
				if len(c.r.d.Rest) > 0 {
					sp.ops++
				}
				return nil, true, nil
			}
		case c.cut:
			return nil, true, nil
		case !scripted:
		case sp.rec.interpreted && reply.encodedSize(c.proto) > maxGroupReply:
			c.cut, sp.unloggable = true, true
			return nil, true, nil
		case sp.rec.interpreted:
			out = sp.rec.appendTo(out, c, reply)
		default:
			out = append(out, start[:len(start)-len(c.r.d.Rest)]...)
		}
		c.serveWaiters()
	}
	if !scripted {
		out = body
	}
	return out, scripted, c.r.d.Err
}

// recorder collects the effects of an operation.
type recorder struct {
	effects []byte
	n       int
	room    int // bytes that the effects of the group may still take
	// position and draws have the values of the Ctx at the start of the
	// operation. Effects are recorded with offsets from them, so that every
	// write gets the same position and the same random numbers when a node
	// applies the entry.
	position int
	draws    uint64
	// interpreted is set if the effects of the operation do not follow from its
	// arguments alone. scripted has the same meaning for the current command of
	// the operation.
	interpreted, scripted bool
}

func (r *recorder) begin(c *Ctx) {
	*r = recorder{effects: r.effects[:0], room: r.room, position: c.position, draws: c.draws}
}

// replaced records that the reply and the recorded effects replace the command
// that is running.
func (r *recorder) replaced() { r.interpreted, r.scripted = true, true }

// record records a command that all nodes have to execute. draws is the number of
// draws before the command.
func (r *recorder) record(c *Ctx, draws uint64, name string, args [][]byte) {
	b := binary.AppendUvarint(r.effects, uint64(c.position-r.position))
	b = binary.AppendUvarint(b, draws-r.draws)
	b = binary.AppendUvarint(b, uint64(c.db))
	b = binary.AppendUvarint(b, uint64(len(args)))
	b = codec.AppendString(b, name)
	for _, a := range args[1:] {
		b = codec.AppendString(b, a)
	}
	r.effects = b
	r.n++
}

// appendTo appends the effects of the operation to out.
func (r *recorder) appendTo(out []byte, c *Ctx, reply Reply) []byte {
	text := reply.Append(nil, c.proto)
	size := len(out)
	out = append(out, opEffects)
	out = codec.AppendString(out, text)
	out = binary.AppendUvarint(out, uint64(c.position-r.position))
	out = binary.AppendUvarint(out, c.draws-r.draws)
	out = binary.AppendUvarint(out, uint64(r.n))
	out = append(out, r.effects...)
	r.room -= len(out) - size
	return out
}

// maxGroupReply bounds the reply of a transaction with a script or a costly read, in
// bytes, because the entry that contains it must fit into the log.
const maxGroupReply = 32 << 20

// groupBegun returns ScriptCall.Group. It is nil for reads, because reads do
// not delay writes.
func (c *Ctx) groupBegun() *int64 {
	if c.rec == nil {
		return nil
	}
	return &c.begun
}

// speculated executes a command of a group, and records it if other nodes have
// to execute it too.
func (c *Ctx) speculated(cmd *Command, args [][]byte) Reply {
	c.rec.scripted = false
	changes, draws := c.changes, c.draws
	row := cmd.Routed(args)
	if row.Costly() {
		return c.speculateRead(cmd, row, args)
	}
	if row.IsWrite() && cmd.Work.Steps != nil && c.overworked(row, args) {
		c.rec.replaced()
		return Error(msgGroupWork)
	}
	reply := cmd.Run(c, args)
	if !c.rec.scripted && (c.recordsRead(row) || c.tookEffect(cmd, args, changes, reply)) {
		c.rec.record(c, draws, cmd.Name, args)
	}
	return reply
}

// recordsRead reports whether other nodes have to execute a read because the
// connection tracks its reads. Only the node of the connection can register
// such a read, and it does so when it applies the entry (see EventTracked). The
// reads of a script are recorded call by call.
func (c *Ctx) recordsRead(row *Command) bool {
	return c.r.track && row.Flags&(ReadOnly|Scripted) == ReadOnly
}

// tookEffect reports whether other nodes have to execute the command too. A
// command that changed nothing, such as a SET NX of an existing key, need not
// be logged. A command with the flag MayWrite, such as PUBLISH, counts as
// effective unless it fails, because its effect may not be counted in changes.
func (c *Ctx) tookEffect(cmd *Command, args [][]byte, changes int, reply Reply) bool {
	return c.changes != changes || cmd.Routed(args).Flags&MayWrite != 0 && !reply.IsError()
}

// effects executes the effects of an operation that the leader has executed, and
// returns the reply that the leader has logged.
func (c *Ctx) effects() (Reply, error) {
	d := &c.r.d
	c.atomic = true
	defer func() { c.atomic = false }()
	position, seed := c.position, c.seed
	reply := d.Bytes()
	lastPosition, lastDraws, n := d.Uvarint(), d.Uvarint(), d.Uvarint()
	if d.Err != nil || n > uint64(len(d.Rest)) {
		return Reply{}, fmt.Errorf("effects: %w", ErrFormat)
	}
	for ; n > 0; n-- {
		at, draws := d.Uvarint(), d.Uvarint()
		c.seed = seed + draws*drawStep
		c.setPosition(position + int(min(at, MaxOps)) - 1)
		if _, err := c.next(); err != nil {
			return Reply{}, fmt.Errorf("effects: %w", err)
		}
	}
	c.seed = seed + lastDraws*drawStep
	c.setPosition(position + int(min(lastPosition, MaxOps)))
	return Raw(reply), nil
}

// ScriptBudget says how long the scripts of a group may run. No entry can be
// proposed while the leader executes a group speculatively, so scripts get little
// time at first. A script that needs more time is first executed in a dry run. A
// dry run uses a clone that is then dropped, and other clients continue to write
// meanwhile. Only a script whose dry run has ended by itself gets more time in the
// speculative execution.
type ScriptBudget byte

const (
	// Briefly is for a group that has not had a dry run. If one of its scripts
	// exceeds a budget, the leader cuts the group: it proposes no part of the
	// group, but tooLongGroup in place of it. The function TooLong recognizes the
	// reply. A group of several operations is then executed in pieces: see
	// SplitGroup.
	Briefly ScriptBudget = iota
	// DryRun is for a script outside the log: in the leader's dry run, or in a
	// read.
	DryRun
	// DryRunPassed is for a group whose dry run has ended by itself.
	DryRunPassed
	// GivenUp is for a group whose dry run was cut. The script that takes too
	// long is answered with an error, and the other operations of the group are
	// executed.
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

// tooLong and tooLarge are not valid RESP, so no script can return them.
const (
	tooLong  = "\x00"
	tooLarge = "\x01"
)

// maxUncompiled bounds the size, in bytes, of the scripts of a group that the leader
// compiles while other groups wait. Compiling them may take two milliseconds for
// each KiB, and a script may run for about as long: see Briefly. A group with more
// uncompiled bytes is cut, and its dry run compiles its scripts.
const maxUncompiled = 1 << 10

const (
	// maxDryRunCompiled bounds the size, in bytes, of the scripts of a group that
	// one dry run compiles. The compiled scripts must stay in the interpreter's
	// cache until the proposer executes them.
	maxDryRunCompiled = 1 << 20
	// minCompiled is the size that a smaller script counts as in a dry run, because
	// the number of scripts in the cache is limited too.
	minCompiled = 512
)

// These are the replies to a command whose script may not be compiled now. No client
// gets the first one, because the group is cut.
const (
	msgScriptCompile  = "ERR script is compiled in a dry run first"
	msgScriptUncached = "BUSY the script was not executed: too many bytes of scripts were not compiled yet, load " +
		"them one by one first"
)

// refuseCompile is called before a script, or the code of a library, is compiled
// or executed. It returns "" if the script may be compiled now. Otherwise it
// returns the error reply of the command, and usually cuts the group.
//
// Other groups wait while the proposer compiles, whatever the budget of the group.
// The scripts of a group that has passed its dry run are usually in the
// interpreter's cache. If they are not, because other scripts have replaced them
// or because the leader has changed, the group needs another dry run. A group that
// was given up gets no other dry run, so the command fails.
func (c *Ctx) refuseCompile(sha string, body []byte, isLibrary bool) string {
	if c.rec == nil {
		return ""
	}
	runner, ok := c.runner.(ScriptCompiler)
	if !ok || runner.Compiled(sha, isLibrary) {
		return ""
	}
	before := c.uncompiled
	c.uncompiled += len(body)
	switch {
	case c.scriptBudget == DryRun && before >= maxDryRunCompiled:
		c.cut = true
		return msgScriptUncached
	case c.scriptBudget == DryRun:
		c.uncompiled = before + max(len(body), minCompiled)
		if bound, bounded := c.runner.(CompileBound); !bounded || bound.MayCompile(len(body)) {
			return ""
		}
	case c.uncompiled <= maxUncompiled:
		return ""
	case c.scriptBudget == GivenUp:
		c.uncompiled = before // a smaller script may still be compiled
		c.rec.replaced()      // the error is logged, because other nodes do not compile the script
		return msgScriptUncached
	}
	c.cut = true
	return msgScriptCompile
}

// TooLong reports whether replies is the special reply to a group of which no
// part was executed, because the group exceeded a budget.
func TooLong(replies []byte) bool { return string(replies) == tooLong }

// TooLarge reports whether replies is the special reply to a group of which no
// part was executed, because its scripts have large replies. largeScriptReply limits
// each reply, and largeGroupReply all of them together. Below FeatureParts, no group
// gets this reply.
func TooLarge(replies []byte) bool { return string(replies) == tooLarge }

// tooLongGroup is proposed in place of a group that exceeded a budget: see
// Briefly and Machine.Divide. It is an operation without effects whose reply is
// tooLong.
var tooLongGroup = answerGroup([]byte(tooLong))

// tooLargeGroup is proposed in place of a group whose scripts have large replies:
// see TooLarge.
var tooLargeGroup = answerGroup([]byte(tooLarge))

// answerGroup returns a group of one operation without effects and its reply.
func answerGroup(reply []byte) []byte { return answerOperation([]byte{0, 0}, reply) }

// answerOperation appends an operation without effects and its reply to a
// group.
func answerOperation(group, reply []byte) []byte {
	b := codec.AppendString(append(group, opEffects), reply)
	for range 3 { // last position, last draw, number of effects
		b = binary.AppendUvarint(b, 0)
	}
	return b
}

// SplitGroup splits a group into two groups, with half of its operations each.
// They are to be executed one after the other. ok is false if the group has
// only one operation, which may be a transaction. Other clients' commands may
// run between the two groups, because a pipeline is not atomic.
func SplitGroup(body []byte) (first, second []byte, ok bool) {
	var r groupReader
	if r.open(body) != nil {
		return nil, nil, false
	}
	head := len(body) - len(r.d.Rest)
	var ends []int
	for len(r.d.Rest) > 0 {
		if r.skip() != nil {
			return nil, nil, false
		}
		ends = append(ends, len(body)-len(r.d.Rest))
	}
	if len(ends) < 2 {
		return nil, nil, false
	}
	cut := ends[len(ends)/2-1]
	return body[:cut:cut], slices.Concat(body[:head], body[cut:]), true
}

// Try executes a group with scripts as a dry run. It returns the replies and
// ops, the number of operations that it has executed. cut reports whether a
// script, or the costly reads, have exceeded their budget. After a script that
// was cut, the group ends. If the group has more operations, ops also counts
// the next one, so that ops is more than 1. If the costly reads were cut,
// replies is a single error and ops is 1. If the replies of the scripts are too
// large for the log, replies are errors, ops is 1 and cut is true. Try calls pause
// every StepsPerStop steps of costly reads. If pause returns an error, the costly
// reads end. m must be a clone that no other goroutine uses, and it must not be
// used again.
func (m *Machine) Try(
	h Header, body []byte, runner ScriptRunner, pause func() error,
) (replies []byte, ops int, cut bool, err error) {
	sp := m.speculation(h, runner)
	sp.c.scriptBudget = DryRun
	sp.dryRun = true
	sp.c.reads, sp.pause = &sp.reads, pause
	sp.c.expireDue()
	s := &session{}
	if _, _, err := sp.group(s, 1, body); err != nil {
		return nil, 0, false, err
	}
	if refusal := sp.refuseReply(body); refusal != nil {
		return refusal, 1, true, nil
	}
	return sp.replies, sp.ops, sp.c.cut, nil
}

// A costly read is a read whose work depends on the size of a database or of
// the values of its keys, for example KEYS, LCS, SMEMBERS or ZRANGE. If a costly
// read in a group that writes went into the log, every node would execute the
// read, and would do so again after each restart. So the leader executes such a
// group speculatively, within a budget (see Speculation), and the entry contains
// the reply of the costly read in its place.

// Costly reports whether the command is a costly read.
func (cmd *Command) Costly() bool { return cmd.Flags&(ReadOnly|Fast|Scripted) == ReadOnly }

// These are the budgets of the costly reads of one group. For steps, see the type
// meter. Writes wait while the leader executes the costly reads.
const (
	// pipelineSteps is the budget of a pipeline: about 1 ms. A pipeline that
	// exceeds it is executed in pieces, with the reads in pieces of their own:
	// see Table.Pieces.
	pipelineSteps = 100_000
	// transactionSteps is the budget of a transaction: about 2 ms. If a
	// transaction exceeds it, the leader first executes the transaction in a
	// dry run, outside of the log, to find out its cost.
	transactionSteps = 200_000
	// dryRunSteps is the budget of a pipeline or a transaction in a dry run, and
	// after a dry run: about 20 ms.
	dryRunSteps = 2_000_000
	// pipelineReply and transactionReply bound the replies of the costly reads of
	// a pipeline and of a transaction, in bytes, because these replies are logged:
	// each node writes them to its disk while other clients wait. The reads of a
	// pipeline that exceeds the bound are executed outside of the log.
	pipelineReply    = 256 << 10
	transactionReply = 512 << 10
	// pieceReads is the maximum number of costly reads in a piece of a
	// pipeline. Each piece has the budget of a read.
	pieceReads = 16
)

const msgCostlyReads = "BUSY the reads of a transaction that writes exceed their budget and it was rolled back: " +
	"read less in it, or read before it and WATCH the keys"

// readBudget is the remaining budget for the costly reads of a group, and the state
// that undo restores.
type readBudget struct {
	steps, bytes int
	scriptBudget ScriptBudget
	pause        func() error // see Try
	over         bool         // the reads have exceeded the budget

	before                     *Machine // machine before the group, nil if prepareUndo has not saved it
	position, ready, serveWork int
	seed, draws                uint64
}

// refusal returns the error for a group whose costly reads have exceeded a
// budget other than Briefly, and "" if they have not.
func (b *readBudget) refusal() string {
	if b.over && b.scriptBudget != Briefly {
		return msgCostlyReads
	}
	return ""
}

// prepareUndo sets the budget of the costly reads of a group and saves the state
// for undo. If the group has no costly reads, the budget is 0, and prepareUndo
// saves no machine. In a dry run, it saves no machine either, because the clone is
// dropped.
func (sp *Speculation) prepareUndo(body []byte) {
	c := &sp.c
	sp.reads = readBudget{
		scriptBudget: c.scriptBudget, pause: sp.pause,
		position: c.position, ready: len(c.readyList), serveWork: c.serveWork,
		seed: c.seed, draws: c.draws,
	}
	ops, transaction := c.r.d.Rest, len(c.r.d.Rest) > 0 && c.r.d.Rest[0] == opTransaction
	costly := false
	for walk := (groupReader{d: codec.Decoder{Rest: ops}}); !costly && len(walk.d.Rest) > 0; {
		err := walk.commands(func(args [][]byte) {
			cmd := c.m.table.Find(args[0])
			costly = costly || cmd != nil && cmd.Routed(args).Costly()
		})
		if err != nil {
			break
		}
	}
	if !costly {
		return
	}
	b := &sp.reads
	switch {
	case c.scriptBudget != Briefly:
		b.steps, b.bytes = dryRunSteps, maxGroupEffects
	case transaction:
		b.steps = transactionSteps
	default:
		b.steps, b.bytes = pipelineSteps, pipelineReply
	}
	if transaction {
		b.bytes = transactionReply
	}
	if !sp.dryRun {
		b.before = c.m.Clone()
	}
}

// undo drops the effects of a group that has exceeded its budget: it restores
// the machine that prepareUndo saved before the group. It returns false if
// prepareUndo saved no machine.
func (sp *Speculation) undo() bool {
	b, c := &sp.reads, &sp.c
	if b.before == nil {
		return false
	}
	*c.m = *b.before
	b.before = nil
	for _, k := range c.readyList[b.ready:] {
		delete(c.readyKeys, k)
	}
	c.readyList = c.readyList[:b.ready]
	c.setPosition(b.position)
	c.serveWork = b.serveWork
	c.seed, c.draws = b.seed, b.draws
	c.atomic = false
	return true
}

// speculateRead executes a costly read within the budget of its group. The
// entry contains the reply of the read.
func (c *Ctx) speculateRead(cmd, row *Command, args [][]byte) Reply {
	b, draws := c.reads, c.draws
	c.rec.interpreted = true
	if b.over {
		return Error(msgCostlyReads)
	}
	c.meter = meter{budget: &Budget{Steps: uint64(b.steps), Stop: b.pause}}
	var reply Reply
	err := c.metered(func() error {
		reply = cmd.Run(c, args)
		c.chargeReply(&reply)
		return nil
	})
	b.steps = max(b.steps-int(c.meter.steps), 1)
	_, size := reply.cost()
	c.meter = meter{}
	if b.bytes -= size; err != nil || b.bytes < 0 {
		c.cut, b.over = true, true
		return Error(msgCostlyReads)
	}
	c.recordSubstitute(draws, row, args)
	return reply
}

// recordSubstitute records the command that must be logged in addition to the reply
// of a costly read. For a connection with tracking, this command is an EXISTS of the
// keys. It is cheap, and it makes the connection's node register the read. Other
// connections need no command.
func (c *Ctx) recordSubstitute(draws uint64, row *Command, args [][]byte) {
	if !c.recordsRead(row) {
		return
	}
	exists := [][]byte{nil}
	for _, i := range row.KeyPositions(args) {
		exists = append(exists, args[i])
	}
	if len(exists) > 1 {
		c.rec.record(c, draws, "exists", exists)
	}
}
