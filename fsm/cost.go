package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// A costly read is a read whose work depends on the size of the values of its
// keys: KEYS, LCS, SMEMBERS, ZRANGE. If it is part of a group that writes, it
// must not go into the log, because every node would execute it, and again
// after each restart. The leader executes such a group speculatively, within a
// budget (see Speculation), and the entry contains the reply of the costly read
// in its place.

// Costly reports whether the command is a costly read.
func (cmd *Command) Costly() bool { return cmd.Flags&(ReadOnly|Fast|Scripted) == ReadOnly }

// Mixed reports whether the group both writes and has costly reads.
func (g *Group) Mixed() bool { return g.Write && g.Costly }

// These are the budgets of the costly reads of one group. The budgets in steps
// are explained at charge. Writes wait while the leader executes the costly
// reads.
const (
	// pipelineSteps is the budget of a pipeline: about 1 ms. A pipeline that
	// exceeds it is executed in pieces, with the reads in pieces of their own:
	// see Table.Pieces.
	pipelineSteps = 100_000
	// transactionSteps is the budget of a transaction: about 2 ms. If a
	// transaction exceeds it, the leader first executes the transaction in a
	// dry run, outside of the log, to find out what it costs.
	transactionSteps = 200_000
	// dryRunSteps is the budget of a transaction in a dry run, and after a dry
	// run: about 20 ms.
	dryRunSteps = 2_000_000
	// pipelineReply bounds the replies of the costly reads of a pipeline, in
	// bytes, because these replies are logged. For a transaction the bound is
	// maxGroupEffects.
	pipelineReply = 256 << 10
	// pieceReads is the maximum number of costly reads in a piece of a
	// pipeline. Each piece has the budget of a read.
	pieceReads = 16
)

const msgCostlyReads = "BUSY the reads of a transaction that writes exceed their budget and it was rolled back: " +
	"read less in it, or read before it and WATCH the keys"

// readBudget is the rest of the budget for the costly reads of a group.
type readBudget struct {
	steps, bytes int
	scriptBudget ScriptBudget
	pause        func() error // see Try
	over         bool         // the reads have exceeded the budget

	before          *Machine // state before the group, nil if it is not known
	position, ready int
	seed, draws     uint64
}

// refusal returns the error for a group whose reads have exceeded their last
// budget, and "" if they have not.
func (b *readBudget) refusal() string {
	if b.over && b.scriptBudget != Briefly {
		return msgCostlyReads
	}
	return ""
}

// mayUndo sets the budget of the costly reads of a group and saves what undo
// needs. It does nothing if the group has no costly reads.
func (sp *Speculation) mayUndo(body []byte) {
	c := &sp.c
	sp.reads = readBudget{
		scriptBudget: c.scriptBudget, pause: sp.pause,
		position: c.position, ready: len(c.readyList), seed: c.seed, draws: c.draws,
	}
	ops, transaction := c.r.d.b, len(c.r.d.b) > 0 && c.r.d.b[0] == opTransaction
	costly := false
	for walk := (groupReader{d: decoder{b: ops}}); !costly && len(walk.d.b) > 0; {
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
		b.steps, b.bytes = transactionSteps, maxGroupEffects
	default:
		b.steps, b.bytes = pipelineSteps, pipelineReply
	}
	if !sp.dryRun {
		b.before = c.m.Clone()
	}
}

// undo restores the state before a group that was cut. It reports whether that
// was possible.
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
	c.standIn(draws, row, args)
	return reply
}

// standIn records what must be logged in place of a costly read, besides its
// reply. For a connection with tracking that is an EXISTS of the keys: it is
// cheap, and it makes the connection's node register the read.
func (c *Ctx) standIn(draws uint64, row *Command, args [][]byte) {
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

// Piece is a part of a group: a sequence of its operations.
type Piece struct {
	Body []byte
	Read bool // the piece does not write
}

// Pieces splits a group into pieces that only read and pieces that write, so
// that the costly reads need not go through the log. It returns one piece if
// the group does not have both kinds, or is one transaction. It also returns
// one piece if the connection tracks its reads, because only the log orders a
// tracked read correctly.
func (t *Table) Pieces(body []byte) []Piece {
	var r groupReader
	whole := []Piece{{Body: body}}
	if r.open(body) != nil || r.track {
		return whole
	}
	head := body[:len(body)-len(r.d.b)]
	var pieces []Piece
	start, at := len(head), len(head)
	var writes bool // of the piece that begins at start
	var costly int
	end := func() {
		piece := slices.Concat(head, body[start:at])
		pieces = append(pieces, Piece{piece, !writes})
		start, writes, costly = at, false, 0
	}
	for len(r.d.b) > 0 {
		var w, c bool
		err := r.commands(func(args [][]byte) {
			if cmd := t.Find(args[0]); cmd != nil {
				row := cmd.Routed(args)
				w = w || row.IsWrite() || row.Flags&Scripted != 0 // a script may have to be logged
				c = c || row.Costly()
			}
		})
		if err != nil {
			return whole
		}
		if w && costly > 0 || c && (writes || costly == pieceReads) {
			end()
		}
		if writes = writes || w; c {
			costly++
		}
		at = len(body) - len(r.d.b)
	}
	end()
	if len(pieces) == 1 || !slices.ContainsFunc(pieces, func(p Piece) bool { return !p.Read }) {
		return whole
	}
	return pieces
}

// Mark marks an encoded group that writes and has costly reads, so that the
// leader executes it speculatively. It returns the group. Programs from
// FeatureBudget on mark a group where they build it; older programs do not.
func (t *Table) Mark(body []byte) []byte {
	if len(body) == 0 || body[0]&groupScript != 0 {
		return body
	}
	var r groupReader
	if r.open(body) != nil {
		return body
	}
	writes, costly := false, false
	for len(r.d.b) > 0 {
		err := r.commands(func(args [][]byte) {
			if cmd := t.Find(args[0]); cmd != nil {
				row := cmd.Routed(args)
				writes = writes || row.IsWrite()
				costly = costly || row.Costly()
			}
		})
		if err != nil {
			return body
		}
	}
	if writes && costly {
		body = slices.Clone(body)
		body[0] |= groupScript
	}
	return body
}

// Front makes Machine.Read execute only the front of a group whose replies are
// large. A client that does not read its replies then makes the node hold only
// few of them. The rest of the operations remains a group of its own: see
// Group.Skip. The caller sets Most, and Read sets the other fields.
type Front struct {
	// Most limits the encoded replies that Read returns, in bytes,
	// approximately. Read stops after the operation that exceeds it, or before
	// the reply of an operation that exceeds it alone.
	Most int
	// Ops is the number of operations that were executed; it is 0 if all were
	// executed and Read returned all replies. Left reports whether operations
	// are left.
	Ops  int
	Left bool
	// Large is the reply of the last executed operation, if that reply alone
	// exceeds Most. Read then returns only the replies before it. The strings
	// of Large are those of the state, which never change, so nothing is
	// copied.
	Large *Reply
}

// Cut reports whether Read returned only a part of the group's replies.
func (p *Front) Cut() bool { return p != nil && p.Ops > 0 }

// Reset clears what Read has set.
func (p *Front) Reset() {
	if p != nil {
		p.Ops, p.Left, p.Large = 0, false, nil
	}
}

// take keeps the reply of operation op in Large if it exceeds Most, and reports
// whether it did.
func (p *Front) take(op int, reply Reply, proto int) (large bool) {
	if reply.within(p.Most) >= 0 {
		return false
	}
	kept := reply
	if reply.encodedSize(proto) > MaxReplyBytes {
		kept = Error(ReplyTooLarge)
	}
	p.Ops, p.Large = op+1, &kept
	return true
}

// Exceeds reports whether the encoding of the reply takes more than about n
// bytes.
func (r *Reply) Exceeds(n int) bool { return r.within(n) < 0 }

// headBytes is about the number of bytes that frame a value on the wire.
const headBytes = 8

// within returns how many of n bytes are left after the reply was encoded, and
// less than 0 if the reply needs more. It is an estimate; it stops counting
// below 0.
func (r *Reply) within(n int) int {
	n -= len(r.s) + headBytes
	for i := range r.elems {
		if n < 0 {
			break
		}
		n = r.elems[i].within(n)
	}
	return n
}

// encodedSize returns the exact number of bytes that Append adds. If that is
// more than MaxReplyBytes, it returns some number above MaxReplyBytes.
func (r *Reply) encodedSize(proto int) int {
	var scratch [128]byte
	switch {
	case r.kind == kindArray || r.kind == kindMap || r.kind == kindSet:
		size := len(AppendHead(scratch[:0], '*', int64(len(r.elems))))
		if proto >= 3 && r.kind == kindMap {
			size = len(AppendHead(scratch[:0], '%', int64(len(r.elems)/2)))
		}
		for i := 0; i < len(r.elems) && size <= MaxReplyBytes; i++ {
			size += r.elems[i].encodedSize(proto)
		}
		return size
	case len(r.s) > 0:
		switch head := len(AppendHead(scratch[:0], '$', int64(len(r.s)))); r.kind {
		case kindBulk:
			return head + len(r.s) + 2
		case kindVerbatim:
			if proto < 3 {
				return head + len(r.s) + 2
			}
			return len(AppendHead(scratch[:0], '=', int64(len(r.s)+4))) + 4 + len(r.s) + 2
		case kindDouble, kindBigNumber:
			if proto < 3 {
				return head + len(r.s) + 2
			}
		case kindRaw:
			return len(r.s)
		}
		return 1 + len(r.s) + 2 // a line
	}
	return len(r.Append(scratch[:0], proto))
}

// replyMemory is about the memory that a Reply takes, in bytes, without its
// string.
const replyMemory = int64(unsafe.Sizeof(Reply{}))

// Held returns about how many bytes of memory the reply keeps alive if the
// state does not refer to its strings any more.
func (r *Reply) Held() int64 {
	n := replyMemory + int64(len(r.s))
	for i := range r.elems {
		n += r.elems[i].Held()
	}
	return n
}

const (
	encodeSlice = 64 << 10 // bytes that Encode collects before it calls write
	encodeAlone = 16 << 10 // Encode passes longer strings to write without a copy
)

// Encode passes the encoding of the reply to write in pieces, and returns the
// first error of write. A piece may be part of the state, so write must neither
// change it nor keep it.
func (r *Reply) Encode(proto int, write func(b []byte) error) error {
	e := encoder{proto: proto, write: write}
	if err := e.reply(r); err != nil {
		return err
	}
	return e.flush()
}

type encoder struct {
	proto int
	write func(b []byte) error
	buf   []byte
}

func (e *encoder) flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	err := e.write(e.buf)
	e.buf = e.buf[:0]
	return err
}

func (e *encoder) reply(r *Reply) error {
	switch {
	case len(r.elems) > 0 && r.kind != kindVerbatim:
		head := Reply{kind: r.kind, elems: r.elems}
		e.buf = head.appendHead(e.buf, e.proto)
		for i := range r.elems {
			if err := e.reply(&r.elems[i]); err != nil {
				return err
			}
		}
		return nil
	case r.kind == kindBulk && len(r.s) > encodeAlone:
		e.buf = AppendHead(e.buf, '$', int64(len(r.s)))
		if err := e.flush(); err != nil {
			return err
		}
		// Strings are immutable, and write does not change its argument.
		if err := e.write(unsafe.Slice(unsafe.StringData(r.s), len(r.s))); err != nil {
			return err
		}
		e.buf = append(e.buf, '\r', '\n')
	default:
		e.buf = r.Append(e.buf, e.proto)
	}
	if len(e.buf) > encodeSlice {
		return e.flush()
	}
	return nil
}

// Skip removes the first n operations from the group.
func (g *Group) Skip(n int) error {
	var r groupReader
	if err := r.open(g.buf); err != nil {
		return err
	}
	head := len(g.buf) - len(r.d.b)
	for range n {
		if err := r.skip(); err != nil {
			return fmt.Errorf("skip operations of a group: %w", err)
		}
	}
	g.buf = append(g.buf[:head], r.d.b...)
	g.ops -= n
	return nil
}

// AppendPosition encodes the position at which a node may run a read itself:
// the node must have applied the log index, and must use now as the lease
// clock. The leader sends it to the node.
func AppendPosition(dst []byte, index uint64, now int64) []byte {
	return binary.AppendVarint(binary.AppendUvarint(dst, index), now)
}

// CutPosition reads the encoding of AppendPosition.
func CutPosition(b []byte) (index uint64, now int64, err error) {
	d := decoder{b: b}
	index, now = d.uvarint(), d.varint()
	return index, now, d.done("read position")
}

// meter counts what the commands of a group or of an entry cost. Commands
// charge steps while they work. One step is about ten nanoseconds of work, such
// as visiting one element or comparing a few bytes. A meter with a budget ends
// the group when the budget is used up. A meter without a budget only counts,
// because the effect of an entry must not depend on its cost.
type meter struct {
	steps uint64 // charged so far
	check uint64 // number of steps at which ask is called next; 0 at first
	bytes int    // of intermediate results and replies: see Ctx.hold
	asked int    // number of bytes up to which the budget has agreed

	budget *Budget // nil: count only
	// over is the reason for which the budget has ended the group, nil if it
	// has not. Once it is set, each further charge fails at once.
	over error
}

// Budget bounds the cost of a group that runs outside of the log: a read, or a
// group that the leader executes speculatively.
type Budget struct {
	// Steps is the number of steps after which the group ends with ErrSteps. 0
	// means no bound.
	Steps uint64
	// Stop, unless nil, is called every StepsPerStop steps. Its error ends the
	// group. It is the place to check a clock. It runs on the goroutine of the
	// group, between two steps, and may yield the processor.
	Stop func() error
	// Hold, unless nil, is called before intermediate results and replies are
	// allocated, with a size of at least HoldLot bytes. Its error ends the
	// group.
	Hold func(bytes int) error
}

const (
	// StepsPerStop is the number of steps between two calls of Budget.Stop.
	// That many steps take some tens of microseconds.
	StepsPerStop = 4096
	// HoldLot is the minimum number of bytes of a call of Budget.Hold.
	HoldLot = 64 << 10
)

// ErrSteps means that a group has used up the steps of its budget. No part of
// its result may be sent to the client. The machine is unchanged if the group
// only reads.
var ErrSteps = errors.New("group exceeds its budget of steps")

// These are the charges for frequent operations: in steps if the name begins
// with steps or ends in Steps, and otherwise in bytes.
const (
	stepsPerKey = 16 // for an argument, which may be the name of a key
	stepsProbe  = 32 // for looking up a name in a large collection
	stepsPut    = 64 // for inserting a name into one
	stepsDraw   = 8  // for going to a random position
	scanBytes   = 8  // bytes that are scanned one by one in a step
	copyBytes   = 64 // bytes that are copied or compared in a step
	// stepsDistance is the cost of deciding whether a point is in an area.
	stepsDistance = 16
	// hllSteps is the cost of reading all registers of a HyperLogLog.
	hllSteps = 4096
	// stepsCompare is the cost of comparing two elements of a SORT.
	stepsCompare = 2
	// sortedBytes is the memory of an element of a SORT.
	sortedBytes = 64
	// scoreBytes is the memory of a member and its score while scores are
	// added.
	scoreBytes = 128
	// geoPointBytes is the memory of a point that a search has found.
	geoPointBytes = 96
	// replyBytes is the memory of one reply without its text.
	replyBytes = 80
)

// exceeded is the panic value of charge and hold. metered recovers it.
type exceeded struct{}

// charge adds steps to the meter. It panics with exceeded if the budget is used
// up. A panic leaves the machine as it is at the call, so only two kinds of
// callers are allowed: commands that only read, and commands that have not
// changed anything yet. A group that writes runs under a budget only on a
// copy-on-write clone.
func (c *Ctx) charge(steps int) {
	if c.meter.steps += uint64(steps); c.meter.steps >= c.meter.check {
		c.meter.ask()
	}
}

// ask checks the budget.
func (m *meter) ask() {
	b := m.budget
	switch {
	case b == nil:
		m.check = math.MaxUint64
		return
	case m.over != nil:
	case b.Steps > 0 && m.steps > b.Steps:
		m.over = ErrSteps
	case b.Stop != nil && m.check > 0: // not at the first step
		m.over = b.Stop()
	}
	if m.over != nil {
		m.check = 0
		panic(exceeded{})
	}
	if m.check = m.steps + StepsPerStop; b.Steps > 0 {
		m.check = min(m.check, b.Steps+1)
	}
}

// hold charges bytes of intermediate results or replies. It panics with
// exceeded if the budget refuses them.
func (c *Ctx) hold(bytes int) {
	if c.meter.bytes += bytes; c.meter.bytes > c.meter.asked && c.meter.budget != nil {
		c.meter.askBytes()
	}
}

func (m *meter) askBytes() {
	lot := max(m.bytes-m.asked, HoldLot)
	m.asked += lot
	if m.over == nil && m.budget.Hold != nil {
		m.over = m.budget.Hold(lot)
	}
	if m.over != nil {
		m.check = 0
		panic(exceeded{})
	}
}

// metered calls f, which executes commands. It returns the reason if the budget
// of c has ended f, and otherwise the error of f.
func (c *Ctx) metered(f func() error) (err error) {
	if c.meter.budget == nil {
		return f()
	}
	defer func() {
		switch p := recover(); p.(type) {
		case nil:
		case exceeded:
			err = c.meter.over
		default:
			panic(p)
		}
		if c.meter.over != nil { // the panic may have ended only a command of a script
			err = c.meter.over
		}
	}()
	return f()
}

// meteredCall runs one command of a script. The interpreter is on the stack
// between the group and the command, and must not see the panic. So the script
// gets an error, and each further command fails too, until the group ends.
func (c *Ctx) meteredCall(cmd *Command, args [][]byte) (reply Reply) {
	if c.meter.budget != nil {
		defer func() {
			switch p := recover(); p.(type) {
			case nil:
			case exceeded:
				reply = Error(msgScriptBudget)
			default:
				panic(p)
			}
		}()
	}
	c.charge(stepsPerKey * len(args))
	return cmd.Run(c, args)
}

const msgScriptBudget = "ERR script exceeds the budget of its group"

// chargeCompared charges for comparing an element with an argument. Only texts
// of the same length are compared byte by byte.
func (c *Ctx) chargeCompared(element *string, arg []byte) {
	if len(*element) == len(arg) {
		c.charge(1 + len(arg)/copyBytes)
		return
	}
	c.charge(1)
}

// chargeSort charges for sorting n items.
func (c *Ctx) chargeSort(n int) { c.charge(2 * n * bits.Len(uint(n))) }

// chargeReply charges for encoding a reply and for its bytes. The part of a
// list beyond MaxReplyBytes is not encoded and not charged.
func (c *Ctx) chargeReply(r *Reply) {
	steps, bytes := r.cost()
	c.charge(steps)
	c.hold(bytes)
}

// cost returns about what encoding a reply costs, in steps and in bytes.
func (r *Reply) cost() (steps, bytes int) {
	if r.elems == nil {
		return 1 + len(r.s)/copyBytes, len(r.s)
	}
	for i := range r.elems {
		s, b := r.elems[i].cost()
		steps += s
		if bytes += b; bytes > MaxReplyBytes {
			break
		}
	}
	return steps + 1, bytes
}
