package fsm

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// This file has two measures of the cost of commands. The work is estimated before
// the commands are executed. The meter counts the cost while they are executed.

// The work of commands is the cost of executing them, in steps, as estimated
// before they are executed. The leader uses it to bound the cost of applying one
// entry: see Machine.Divide. The estimate uses the sizes of the keys and does
// not walk their values. The estimate may therefore be higher than the steps that
// the commands are charged when they run. If it is lower, the difference is small.

// StepNanos is approximately how many nanoseconds one step of work takes.
const StepNanos = 10

// WorkLimits bounds the work of the groups that the leader proposes, in steps.
type WorkLimits struct {
	// Entry is the limit for the groups of one entry. Machine.Divide says which
	// groups may exceed it.
	Entry int
	// Operation is the limit for a single command or transaction. A command or
	// transaction that needs more is answered with BUSY, unless it is one of the
	// exceptions in dividing.divide.
	Operation int
	// Full, unless "", is the error reply to each command or transaction that
	// can make the data set grow: see Command.Grows.
	Full string
}

// These are the costs of a command with two arguments, its name and one more,
// unless WorkHooks.Call names another cost. A write finds its key and stores the
// key. The costs of writes are those in a state of 300,000 keys, and collections
// of 300,000 elements, at random positions: the memory of such a state is not in
// the processor's cache, so a write takes two to three times as long as in a small
// state. TestWork_LargeState measures all commands in such a state.
const (
	stepsRead  = 80
	stepsWrite = 224
)

// mostWork is the upper bound of an estimate. It keeps the sum of many
// estimates from overflowing.
const mostWork = 1 << 40

// WorkFunc returns the part of a command's work that depends on the values of its
// keys, and records in w by how much the command may make the keys grow.
type WorkFunc func(w *Weigher, args [][]byte) int

// Weigh returns the part of the approximate cost of applying a group that its
// arguments determine, and whether the cost also depends on the values of its
// keys. Weigh is called for every group that is proposed, so it allocates
// nothing for most groups.
func (t *Table) Weigh(body []byte) (steps int, depends bool) {
	var r groupReader
	if r.open(body) != nil {
		return 0, false
	}
	d := &r.d
	for len(d.Rest) > 0 {
		commands := uint64(1)
		if d.Byte() == opTransaction {
			for n := d.Uvarint(); n > 0 && d.Err == nil; n-- { // watches
				d.Uvarint()
				d.Bytes()
				d.Uvarint()
			}
			commands = d.Uvarint()
		}
		for ; commands > 0 && d.Err == nil; commands-- {
			start := *d
			d.Uvarint() // database
			n := d.Uvarint()
			cmd := t.Find(d.Bytes())
			steps += cmd.argumentSteps(int(min(n, MaxArguments))) + cmd.waitWork(int(min(n, MaxArguments)))
			each := cmd.argumentBytes()
			for i := uint64(1); i < n && d.Err == nil; i++ {
				steps += len(d.Bytes()) / each
			}
			if depends || cmd == nil || cmd.Work.Steps == nil || cmd.Work.Depends != nil && int(n) == -cmd.Arity {
				continue
			}
			c := groupReader{d: start}
			if _, args, err := c.command(); err == nil {
				depends = cmd.workDepends(args)
			}
		}
	}
	return steps, depends
}

// workDepends reports whether the work of a command depends on the values of its
// keys.
func (cmd *Command) workDepends(args [][]byte) bool {
	if cmd == nil || cmd.Work.Steps == nil || !cmd.ArityOK(len(args)) {
		return false
	}
	return cmd.Work.Depends == nil || cmd.Work.Depends(args)
}

// waitWork returns the work of waiting for keys, for a call of a blocking command
// with n arguments. At most n-2 of them are keys, because the name of the command
// and its timeout are not keys. The work includes the work of ending the wait,
// because the change of a user, or the loss of a node, is not charged for the
// waits that it ends.
func (cmd *Command) waitWork(n int) int {
	if cmd == nil || cmd.Wait.Block == nil {
		return 0
	}
	return StepsPerWait * max(n-2, 0)
}

// argumentWork returns the part of a command's work that its arguments
// determine.
func (cmd *Command) argumentWork(args [][]byte) int {
	steps, each := cmd.argumentSteps(len(args)), cmd.argumentBytes()
	for _, arg := range args[1:] {
		steps += len(arg) / each
	}
	return steps
}

// argumentBytes returns the number of bytes of an argument that cost one step. A
// write stores them.
func (cmd *Command) argumentBytes() int {
	if cmd != nil && cmd.Flags&Write != 0 && !cmd.Work.Stores {
		return WriteBytes
	}
	return CopyBytes
}

// fewArguments is the number of arguments up to which a command pays StepsPerKey
// for each. A command with more arguments probably adds names to a value or to
// the database, or removes them. It pays StepsPut for each further argument.
// Commands that do less or more for an argument have WorkHooks.PerArgument.
const fewArguments = 64

// argumentSteps returns the cost of a command with n arguments, apart from the
// lengths of the arguments.
func (cmd *Command) argumentSteps(n int) int {
	steps := cmd.callSteps()
	if cmd != nil && cmd.Work.PerArgument != 0 {
		return steps + cmd.Work.PerArgument*max(n-2, 0)
	}
	return steps + StepsPerKey*max(n-2, 0) + (StepsPut-StepsPerKey)*max(n-fewArguments, 0)
}

// callSteps returns the cost of a command with two arguments.
func (cmd *Command) callSteps() int {
	switch {
	case cmd == nil:
		return stepsRead
	case cmd.Work.Call != 0:
		return cmd.Work.Call
	case cmd.Flags&Write != 0:
		return stepsWrite
	}
	return stepsRead
}

// Weigher estimates the cost of commands that are executed one after the other.
type Weigher struct {
	m      *Machine
	db     int
	sender SessionID // the session of the commands, zero if it is not known
	// grown records how the commands so far may have changed keys. Its index is
	// the name of the key, in any database. Keys never shrink here, because a
	// command that would make a key smaller may fail.
	grown map[string]Growth
	undo  []undoneGrowth
	// swapped reports that databases were exchanged, so a key may be in any of
	// them.
	swapped bool
	full    bool // WorkLimits.Full is set
}

// Object returns the object of a key before the commands, or nil if the key
// does not exist.
func (w *Weigher) Object(key []byte) *keyspace.Object { return w.m.dbs[w.db].Get(key) }

// FlushWork returns the work of emptying the current database, or all databases.
func (w *Weigher) FlushWork(all bool) int {
	n := w.m.dbs[w.db].Len()
	if all {
		n = w.m.Len()
	}
	if n > fewFlushed && w.m.features >= FeatureDeferred {
		n = 0
	}
	return n*StepsProbe + w.queuesWork()
}

// queuesWork returns the work of marking all keys that have waiters.
func (w *Weigher) queuesWork() int { return w.m.waits.count * StepsProbe }

// SwapWork records that a database is exchanged with another one, and returns
// the work of the exchange.
func (w *Weigher) SwapWork() int {
	w.swapped = true
	return w.queuesWork()
}

// Extent is the size of a value.
type Extent struct{ Elems, Bytes int }

// Growth is the amount by which a key may have grown.
type Growth struct {
	// Added counts the elements that commands added from their arguments. The
	// work of adding an element also covers the work of removing it once.
	Added int
	Other int // elements that were copied, or that are results of commands
	Bytes int // size, in bytes, that a string may have
}

// smallString is the size below which the length of a string adds nothing to
// the cost of a command.
const smallString = 512

// undoneGrowth is the previous value of Weigher.grown for a key. had is false if
// there was none.
type undoneGrowth struct {
	key string
	was Growth
	had bool
}

// forget removes the growth that was recorded after the undo log had n records.
// The caller uses it if the commands that caused this growth are not executed.
func (w *Weigher) forget(n int) {
	for i := len(w.undo) - 1; i >= n; i-- {
		if u := &w.undo[i]; u.had {
			w.grown[u.key] = u.was
		} else {
			delete(w.grown, u.key)
		}
	}
	w.undo = w.undo[:n]
}

// operation returns the work of the next operation, and the union of the flags
// of its commands and subcommands. The union contains Internal only if all commands
// have it. If WorkLimits.Full is set, the arguments and the state of the keys also
// decide about DenyOOM: for example, a native script that would create a key has it.
func (w *Weigher) operation(r *groupReader) (steps int, flags Flags, err error) {
	internal := true // whether all commands are internal
	err = r.commandsIn(func(db int, args [][]byte) {
		w.db = db
		steps = min(steps+w.command(args), mostWork)
		var own Flags
		if cmd := w.m.table.Find(args[0]); cmd != nil {
			own = cmd.Flags | cmd.Routed(args).Flags
		}
		if w.full && own&(Internal|DenyOOM) == Internal|DenyOOM && len(args) > 2 && w.m.dbs[db].Get(args[2]) != nil {
			own &^= DenyOOM // LOCK ACQUIRE of a lock that is not free
		}
		if w.full && keepsValue(args) {
			own &^= DenyOOM
		}
		if w.full && w.createsKey(args) {
			own |= DenyOOM
		}
		internal = internal && own&Internal != 0
		flags |= own
	})
	if !internal {
		flags &^= Internal
	}
	return steps, flags, err
}

// command returns the work of a command.
func (w *Weigher) command(args [][]byte) int {
	cmd := w.m.table.Find(args[0])
	steps := cmd.argumentWork(args) + cmd.waitWork(len(args))
	switch {
	case cmd == nil || !cmd.ArityOK(len(args)):
	case cmd.Work.Steps != nil:
		steps += min(max(cmd.Work.Steps(w, args), 0), mostWork)
	case cmd.Flags&Write != 0:
		w.growKeys(args, cmd.KeyPositions(args))
	}
	return steps
}

// growKeys records that a write without a WorkFunc may have made its keys grow.
// A write with many keys (DEL, MSET) adds no elements to any of them. It may
// write a string to each key, and this string is the argument after the key.
// For such a write, growKeys records only the lengths of the strings. Recording
// an element for each key would cost as much as the write, because DEL may name
// half a million keys.
func (w *Weigher) growKeys(args [][]byte, keys []int) {
	if len(keys) > 2 {
		for _, i := range keys {
			if i+1 < len(args) {
				w.Grow(args[i], Growth{Bytes: len(args[i+1])})
			}
		}
		return
	}
	by := Growth{Added: len(args) - 1}
	for _, arg := range args[1:] {
		by.Bytes = max(by.Bytes, len(arg))
	}
	for _, i := range keys {
		w.Grow(args[i], by)
	}
}

// Find returns the object of a key whose value has the type t. It returns nil if
// there is none, or if the value is not known because an earlier command exchanges
// databases.
func (w *Weigher) Find(key []byte, t keyspace.Type) *keyspace.Object {
	if o := w.m.dbs[w.db].Get(key); o != nil && o.Type == t && !w.swapped {
		return o
	}
	return nil
}

// Size estimates the maximum size that the value of a key will have.
func (w *Weigher) Size(key []byte) Extent {
	e := extentOf(w.m.dbs[w.db].Get(key))
	if w.swapped {
		for db := range w.m.dbs {
			other := extentOf(w.m.dbs[db].Get(key))
			e = Extent{max(e.Elems, other.Elems), max(e.Bytes, other.Bytes)}
		}
	}
	if len(w.grown) > 0 {
		g := w.grown[string(key)]
		e = Extent{e.Elems + g.Added + g.Other, max(e.Bytes, g.Bytes)}
	}
	return e
}

// Removable returns how many elements a key may lose, in addition to the
// elements that were added to it: see Growth.Added.
func (w *Weigher) Removable(key []byte) int {
	n := w.Size(key).Elems
	if len(w.grown) > 0 {
		n -= w.grown[string(key)].Added
	}
	return n
}

// extentOf returns the size of a value.
func extentOf(o *keyspace.Object) Extent {
	switch {
	case o == nil:
		return Extent{}
	case o.Coll == nil:
		return Extent{Bytes: len(o.Str)}
	}
	return Extent{Elems: o.Coll.Len(o.Type)}
}

// Grow records that a key may have gained elements, and that a string may have grown
// to the given number of bytes.
func (w *Weigher) Grow(key []byte, by Growth) {
	if by.Added == 0 && by.Other == 0 && by.Bytes < smallString {
		return
	}
	if w.grown == nil {
		w.grown = make(map[string]Growth)
	}
	k := codec.View(key) // the groups outlive w
	g, had := w.grown[k]
	w.undo = append(w.undo, undoneGrowth{k, g, had})
	w.grown[k] = Growth{
		Added: min(g.Added+by.Added, keyspace.MaxElements),
		Other: min(g.Other+by.Other, keyspace.MaxElements),
		Bytes: max(g.Bytes, min(by.Bytes, MaxStringBytes)),
	}
}

// Weighed records the work of a group that was added, as Table.Weigh returned
// it.
func (b *BatchBuilder) Weighed(steps int, depends bool) {
	b.work += steps
	b.depends = b.depends || depends
}

// Work returns the sum of the steps that were passed to Weighed.
func (b *BatchBuilder) Work() int { return b.work }

// Depends reports whether the work of the batch also depends on the values of its
// keys. If it does, the caller must call Machine.Divide before it proposes the
// batch.
func (b *BatchBuilder) Depends() bool { return b.depends }

// Divide adds as many of the first groups of a batch to out as one entry may
// execute within its limit. It adds the other groups to rest. The state of the
// machine should be the state that the entry will be applied to. refused is the
// number of operations that exceed their limit, or that limits.Full refuses.
// Their reply is an error.
//
// A pipeline that needs more than one entry is not executed. Neither is a
// single operation that is too large for one entry, unless it has the slot of a
// lane of the leader (see Lane in docs/glossary.md). TooLong reports both
// cases. The node of the client then sends the pipeline in pieces, or sends the
// operation again when it gets the slot. So an entry exceeds its limit only if
// it contains a single operation, or a single group with internal commands.
func (m *Machine) Divide(b, out, rest *BatchBuilder, limits WorkLimits) (refused int, err error) {
	d := codec.Decoder{Rest: b.groups}
	sum, full := 0, false
	w := Weigher{m: m, full: limits.Full != ""}
	for range b.n {
		i, seq, body := d.Uvarint(), d.Uvarint(), d.Bytes()
		if d.Err != nil {
			break
		}
		id, floor := b.sessions[i].id, b.sessions[i].ackFloor
		if !full {
			w.sender = id
			g := dividing{w: &w, limits: limits}
			if err := g.divide(body); err != nil {
				return 0, fmt.Errorf("group %d of %s: %w", seq, id, err)
			}
			if full = sum > 0 && sum+g.steps > limits.Entry; !full {
				sum, refused = sum+g.steps, refused+g.refused
				out.Add(id, floor, seq, g.out)
				out.Weighed(g.steps, false)
				continue
			}
		}
		rest.Add(id, floor, seq, body)
		rest.Weighed(0, true)
	}
	return refused, d.Done("batch")
}

// GroupWork returns the approximate cost of applying a group, in steps.
func (m *Machine) GroupWork(body []byte) (int, error) {
	g := dividing{w: &Weigher{m: m}, limits: WorkLimits{Entry: mostWork, Operation: mostWork}}
	err := g.divide(body)
	return g.steps, err
}

// dividing is a group whose work is being estimated.
type dividing struct {
	w       *Weigher
	limits  WorkLimits
	out     []byte // group to propose in place of the original
	steps   int    // work of out
	refused int    // number of refused operations
}

func (g *dividing) divide(body []byte) error {
	var r groupReader
	if err := r.open(body); err != nil {
		return err
	}
	g.out = slices.Clip(body)
	ops, all, begin := 0, Flags(0), len(g.w.undo)
	for len(r.d.Rest) > 0 {
		start, noted := r.d.Rest, len(g.w.undo)
		n, flags, err := g.w.operation(&r)
		if err != nil {
			return err
		}
		ops++
		all |= flags
		refusal := ""
		switch {
		case flags&DenyOOM != 0 && g.limits.Full != "":
			refusal = refusalOf(start[0], g.limits.Full)
		case flags&Internal != 0:
		// An operation that needs too much work is refused, with two
		// exceptions. A client may always empty or exchange databases. If a
		// read is one of several commands in a pipeline, the reply to the
		// pipeline is tooLong, and the node then executes the read outside of
		// the log.
		case n > g.limits.Operation && flags&Global == 0 &&
			(flags&(Write|MayWrite) != 0 || ops == 1 && len(r.d.Rest) == 0):
			refusal = tooMuchWork(n, g.limits)
		}
		switch {
		case refusal != "":
			if g.refused++; g.refused == 1 {
				g.out = slices.Clip(body[:len(body)-len(start)])
			}
			g.out = answerOperation(g.out, Error(refusal).Append(nil, r.proto))
			n = stepsRead
			g.w.forget(noted)
		case g.refused > 0:
			g.out = append(g.out, start[:len(start)-len(r.d.Rest)]...)
		}
		g.steps = min(g.steps+n, mostWork)
	}
	switch {
	case g.steps > g.limits.Entry && (ops > 1 || scriptBudget(body[0]) == Briefly) && all&Internal == 0:
		g.out, g.steps, g.refused = tooLongGroup, stepsRead, 0
		g.w.forget(begin)
	case body[0]&groupScript == 0 && scriptBudget(body[0]) != Briefly:
		g.out = slices.Clone(g.out)
		g.out[0] &^= groupDryRunPassed | groupGivenUp
	}
	return nil
}

// tooMuchWork returns the error for an operation that needs n steps.
func tooMuchWork(n int, limits WorkLimits) string {
	const perMilli = 1_000_000 / StepNanos
	return fmt.Sprintf("BUSY the command or transaction would take about %d ms on every node, more than %d ms "+
		"(--max-write-time): nothing of it was done, divide it",
		n/perMilli, limits.Operation/perMilli)
}

// WorkBound is implemented by runners that bound the work of the writes of a
// group's scripts.
type WorkBound interface {
	// MostWork returns how many steps the writes of a group's scripts may take
	// together on every node.
	MostWork() int
}

// overworked charges a write to a group with scripts, and reports whether the
// writes of the group exceed their limit. The effects of the group's earlier writes
// are already part of the state.
func (c *Ctx) overworked(cmd *Command, args [][]byte) bool {
	b, ok := c.runner.(WorkBound)
	if !ok {
		return false
	}
	w := Weigher{m: c.m, db: c.db}
	c.work = min(c.work+w.command(args), mostWork)
	return c.work > b.MostWork() && cmd.Flags&Global == 0
}

// postpones reports whether a group without scripts has to wait for the next
// entry. The cost of the group is known only after the scripts of this entry
// have run, because they may have made its keys larger. Divide has estimated it
// on the state before the scripts.
func (sp *Speculation) postpones(body []byte) (bool, error) {
	b, ok := sp.c.runner.(WorkBound)
	if !ok || !sp.scripted || HasScripts(body) {
		return false, nil
	}
	if _, depends := sp.c.m.table.Weigh(body); !depends {
		return false, nil
	}
	steps, err := sp.c.m.GroupWork(body)
	sp.behind = min(sp.behind+steps, mostWork)
	return sp.behind > b.MostWork(), err
}

// meter counts the cost of the commands of a group or of an entry. Commands
// charge steps while they work. One step is about ten nanoseconds of work, such
// as visiting one element or comparing a few bytes. A meter with a budget ends
// the group when the budget is used up. A meter without a budget only counts,
// because the effect of an entry must not depend on its cost.
type meter struct {
	steps uint64 // charged so far
	check uint64 // number of steps at which ask is called next; 0 at first
	bytes int    // bytes of intermediate results and replies: see ChargeMemory
	asked int    // bytes that the budget has approved so far

	budget *Budget // nil: count only
	// over is the reason why the budget has ended the group, or nil if the
	// group continues. Once it is set, each further charge fails at once.
	over error
}

// Budget bounds the cost of a group that runs outside of the log. Such a group
// is a read, or a group that the leader executes speculatively.
type Budget struct {
	// Steps is the number of steps after which the group ends with ErrSteps. If
	// Steps is 0, there is no bound.
	Steps uint64
	// Stop, unless nil, is called every StepsPerStop steps. If it returns an
	// error, the group ends. For example, Stop may compare a clock with a
	// deadline. It runs on the goroutine of the group, between two steps, and may
	// yield the processor.
	Stop func() error
	// Hold, unless nil, is called before intermediate results and replies are
	// allocated, with a size of at least HoldLot bytes. If it returns an error,
	// the group ends.
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

// These are the charges for frequent operations. A constant whose name begins
// with Steps is the number of steps for one operation. A constant whose name
// ends in Bytes is the number of bytes for one step.
const (
	StepsPerKey = 16 // for an argument, which may be the name of a key
	StepsProbe  = 32 // for looking up a name in a large collection
	StepsPut    = 64 // for inserting a name into a large collection
	ScanBytes   = 8  // bytes per step, if they are scanned one by one
	CopyBytes   = 64 // bytes per step, if they are copied or compared
	WriteBytes  = 16 // bytes per step, if they are copied into a new value of a key
	// StepsPerWait is for a key that a blocking command waits for. It covers
	// inserting the waiter into the queue of the key, removing the waiter, and
	// looking for other waiters of the key.
	StepsPerWait = 192
)

// exceeded is the panic value of Charge and ChargeMemory. metered recovers it, and
// meteredCall does so for a command of a script.
type exceeded struct{}

// Charge adds steps to the meter. It panics with exceeded if the budget is used
// up. A panic leaves the machine as it is at the call, so only two kinds of
// callers are allowed: commands that only read, and commands that have not
// changed anything yet. A group that writes runs under a budget only on a
// copy-on-write clone.
func (c *Ctx) Charge(steps int) {
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

// ChargeMemory charges bytes of intermediate results or replies. It panics with
// exceeded if the budget refuses them.
func (c *Ctx) ChargeMemory(bytes int) {
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
	c.Charge(StepsPerKey * len(args))
	return cmd.Run(c, args)
}

const msgScriptBudget = "ERR script exceeds the budget of its group"

// chargeReply charges for encoding a reply and for its bytes. The part of a
// list beyond MaxReplyBytes is not encoded and not charged.
func (c *Ctx) chargeReply(r *Reply) {
	steps, bytes := r.cost()
	c.Charge(steps)
	c.ChargeMemory(bytes)
}
