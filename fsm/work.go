package fsm

import (
	"fmt"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// Work is the estimated cost of executing commands, in steps, before they are
// executed. The leader asks for it to bound what one entry costs to apply: see
// BatchBuilder.Divide. The estimate uses the sizes of the keys and does not
// walk their values. It may therefore be higher than what the commands are
// charged when they run, and it is at most slightly lower.

// StepNanos is approximately how many nanoseconds one step of work takes.
const StepNanos = 10

// WorkLimits bounds the work of what the leader proposes, in steps.
type WorkLimits struct {
	// Entry is the limit for the groups of one entry, if the entry has several.
	Entry int
	// Operation is the limit for a single command or transaction. A command or
	// transaction that needs more is answered with BUSY.
	Operation int
}

// stepsCommand is the cost of a command apart from its arguments: finding the
// command and its key, and storing the key.
const stepsCommand = 48

// mostWork is the upper bound of an estimate. It keeps the sum of many
// estimates from overflowing.
const mostWork = 1 << 40

// workFunc returns the part of a command's work that depends on what its keys
// hold, and records in w how the command will have made the keys grow.
type workFunc func(w *weigher, args [][]byte) int

// works lists the commands whose work depends on what their keys hold, and that
// nodes execute when they apply an entry. It leaves out costly reads: see
// Costly. It also leaves out commands that take a bounded number of steps or
// bytes for each argument.
var works = map[string]workFunc{
	"append": appendWork, "setrange": setrangeWork, "setbit": setbitWork, "bitfield": bitfieldWork,
	"bitop": bitopWork, "pfmerge": pfmergeWork, "pfadd": pfmergeWork,
	"get": valueWork, "mget": valueWork, "getset": valueWork, "getdel": valueWork, "getex": valueWork, "set": setWork,
	"hget": fieldWork, "hmget": fieldWork,
	"copy": copyWork, "rename": copyWork, "renamenx": copyWork,
	"sort": sortingWork,
	"lrem": walkWork, "linsert": walkWork, "ltrim": ltrimWork,
	"lpop": popWork, "rpop": popWork, "lmpop": mpopWork, "lmove": lmoveWork, "rpoplpush": lmoveWork,
	"spop": popWork, "zpopmin": popWork, "zpopmax": popWork, "zmpop": mpopWork,
	"sunionstore": setStoreWork, "sinterstore": setStoreWork, "sdiffstore": setStoreWork,
	"zunionstore": zsetStoreWork, "zinterstore": zsetStoreWork, "zdiffstore": zsetStoreWork,
	"zrangestore":      zrangestoreWork,
	"zremrangebyscore": zremWork, "zremrangebylex": zremWork, "zremrangebyrank": zremWork,
	"geosearchstore": geosearchstoreWork, "georadius": georadiusWork, "georadiusbymember": georadiusWork,
	"xadd": trimWork, "xtrim": trimWork,
	"xreadgroup": xreadgroupWork, "xautoclaim": xautoclaimWork, "xgroup": xgroupWork,
	"blpop": bpopWork, "brpop": bpopWork, "blmove": lmoveWork, "brpoplpush": lmoveWork,
	"blmpop": mpopWork, "bzmpop": mpopWork,
	"restore": restoreWork, "restore-asking": restoreWork, "move": moveWork,
	"flushdb": flushWork, "flushall": flushWork, "swapdb": swapWork,
}

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
			steps += stepsCommand + stepsPerKey*int(min(n, MaxArguments))
			for i := uint64(1); i < n && d.Err == nil; i++ {
				steps += len(d.Bytes()) / copyBytes
			}
			if depends || cmd == nil || cmd.work == nil || n == 3 && cmd.Name == "set" {
				continue
			}
			c := groupReader{d: start}
			if _, args, err := c.command(); err == nil {
				depends = cmd.depends(args)
			}
		}
	}
	return steps, depends
}

// depends reports whether the work of a command depends on what its keys hold.
func (cmd *Command) depends(args [][]byte) bool {
	switch {
	case cmd == nil || cmd.work == nil || !cmd.ArityOK(len(args)):
		return false
	case cmd.Name == "copy" || cmd.Name == "rename" || cmd.Name == "renamenx" || cmd.Name == "move":
		return false // see copyWork
	case cmd.Name == "set":
		return slices.ContainsFunc(args[3:], func(arg []byte) bool { return fold(arg, "GET") })
	case cmd.Name == "xadd":
		t, _, _, fail := streamOptions(args, true)
		return !fail.IsError() && t.by != byAny
	case cmd.Name == "xgroup":
		return deletesConsumer(args)
	}
	return true
}

// argumentWork returns the part of a command's work that its arguments
// determine.
func argumentWork(args [][]byte) int {
	steps := stepsCommand + stepsPerKey*len(args)
	for _, arg := range args[1:] {
		steps += len(arg) / copyBytes
	}
	return steps
}

// weigher estimates the cost of commands that are executed one after the other.
type weigher struct {
	m  *Machine
	db int
	// grown records how the commands so far may have changed keys. Its index is
	// the name of the key, in any database. Keys never shrink here, because a
	// command that would make a key smaller may fail.
	grown map[string]growth
	undo  []undoneGrowth
	// swapped reports that databases were exchanged, so a key may be the key of
	// any of them.
	swapped bool
}

// extent is the size of a value.
type extent struct{ elems, bytes int }

// growth is the amount by which a key may have grown.
type growth struct {
	// added counts the elements that commands had as arguments. The work of
	// adding them also covers the work of removing each of them once.
	added int
	more  int // other elements: copied ones and those of results
	bytes int // minimum size of a string
}

// smallString is the size below which a string costs no more than the command
// that reads it.
const smallString = 512

// undoneGrowth is the previous value of w.grown for a key.
type undoneGrowth struct {
	key string
	was growth
	had bool
}

// forget removes what was recorded after the undo log had n records, because
// the commands are not executed.
func (w *weigher) forget(n int) {
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
// of its commands.
func (w *weigher) operation(r *groupReader) (steps int, flags Flags, err error) {
	err = r.commandsIn(func(db int, args [][]byte) {
		w.db = db
		steps = min(steps+w.command(args), mostWork)
		if cmd := w.m.table.Find(args[0]); cmd != nil {
			flags |= cmd.Flags
		}
	})
	return steps, flags, err
}

// command returns the work of a command.
func (w *weigher) command(args [][]byte) int {
	steps := argumentWork(args)
	cmd := w.m.table.Find(args[0])
	switch {
	case cmd == nil || !cmd.ArityOK(len(args)):
	case cmd.work != nil:
		steps += min(max(cmd.work(w, args), 0), mostWork)
	case cmd.Flags&Write != 0:
		by := growth{added: len(args) - 1}
		for _, arg := range args[1:] {
			by.bytes = max(by.bytes, len(arg))
		}
		for _, i := range cmd.KeyPositions(args) {
			w.grow(args[i], by)
		}
	}
	return steps
}

// find returns the value of a key. It returns nil if the key does not exist or
// its value is not known.
func (w *weigher) find(key []byte, t keyspace.Type) *keyspace.Object {
	if o := w.m.dbs[w.db].Get(key); o != nil && o.Type == t && !w.swapped {
		return o
	}
	return nil
}

// size returns approximately how large the value of a key will be at most.
func (w *weigher) size(key []byte) extent {
	e := extentOf(w.m.dbs[w.db].Get(key))
	if w.swapped {
		for db := range w.m.dbs {
			other := extentOf(w.m.dbs[db].Get(key))
			e = extent{max(e.elems, other.elems), max(e.bytes, other.bytes)}
		}
	}
	if len(w.grown) > 0 {
		g := w.grown[string(key)]
		e = extent{e.elems + g.added + g.more, max(e.bytes, g.bytes)}
	}
	return e
}

// left returns how many elements a key may lose, in addition to the elements
// that were added to it: see growth.
func (w *weigher) left(key []byte) int {
	n := w.size(key).elems
	if len(w.grown) > 0 {
		n -= w.grown[string(key)].added
	}
	return n
}

// extentOf returns the size of a value.
func extentOf(o *keyspace.Object) extent {
	switch {
	case o == nil:
		return extent{}
	case o.Coll == nil:
		return extent{bytes: len(o.Str)}
	}
	return extent{elems: o.Coll.Len(o.Type)}
}

// grow records that a key may have more elements, and that a string may have at
// least the given number of bytes.
func (w *weigher) grow(key []byte, by growth) {
	if by.added == 0 && by.more == 0 && by.bytes < smallString {
		return
	}
	if w.grown == nil {
		w.grown = make(map[string]growth)
	}
	k := codec.View(key) // the groups outlive w
	g, had := w.grown[k]
	w.undo = append(w.undo, undoneGrowth{k, g, had})
	w.grown[k] = growth{
		added: min(g.added+by.added, keyspace.MaxElements),
		more:  min(g.more+by.more, keyspace.MaxElements),
		bytes: max(g.bytes, min(by.bytes, MaxStringBytes)),
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

// Depends reports whether the work of the batch also depends on what its keys
// hold. If it does, the caller must call Machine.Divide before it proposes the
// batch.
func (b *BatchBuilder) Depends() bool { return b.depends }

// Divide adds the front of a batch to out, as much of it as one entry may cost
// to apply, and adds the remainder to rest. It reads the machine, whose state
// should be the state that the entry will be applied to. refused is the number
// of operations that exceed their limit; they are answered with an error.
//
// A pipeline that needs more than one entry is not executed. Neither is a
// single operation that is too large for one entry, if its session does not
// know that yet. TooLong reports both cases. The session then runs the pipeline
// in pieces, and it runs the operation when the leader has a slot for it (see
// ScriptBudget). So an entry exceeds its limit only if it contains a single
// operation.
func (m *Machine) Divide(b, out, rest *BatchBuilder, limits WorkLimits) (refused int, err error) {
	d := codec.Decoder{Rest: b.groups}
	sum, full := 0, false
	w := weigher{m: m}
	for range b.n {
		i, seq, body := d.Uvarint(), d.Uvarint(), d.Bytes()
		if d.Err != nil {
			break
		}
		id, floor := b.sessions[i].id, b.sessions[i].ackFloor
		if !full {
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
	g := dividing{w: &weigher{m: m}, limits: WorkLimits{Entry: mostWork, Operation: mostWork}}
	err := g.divide(body)
	return g.steps, err
}

// dividing is a group whose work is being estimated.
type dividing struct {
	w       *weigher
	limits  WorkLimits
	out     []byte // the group to propose in place of the original
	steps   int    // its work
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
		switch {
		// An operator may always empty a database.
		case n > g.limits.Operation && flags&(Global|Internal) == 0:
			if g.refused++; g.refused == 1 {
				g.out = slices.Clip(body[:len(body)-len(start)])
			}
			g.out = answerOperation(g.out, Error(tooMuchWork(n, g.limits)).Append(nil, r.proto))
			n = stepsCommand
			g.w.forget(noted)
		case g.refused > 0:
			g.out = append(g.out, start[:len(start)-len(r.d.Rest)]...)
		}
		g.steps = min(g.steps+n, mostWork)
	}
	switch {
	case g.steps > g.limits.Entry && (ops > 1 || scriptBudget(body[0]) == Briefly) && all&Internal == 0:
		g.out, g.steps, g.refused = tooLongGroup, stepsCommand, 0
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

// WorkBound is a ScriptRunner that bounds the work of what the scripts of a
// group write.
type WorkBound interface {
	// MostWork returns how many steps the writes of a group's scripts may take
	// together on every node.
	MostWork() int
}

// overworked charges a write to a group with scripts, and reports whether the
// group exceeds what it may write. The effects of the group's earlier writes
// are already part of the state.
func (c *Ctx) overworked(cmd *Command, args [][]byte) bool {
	b, ok := c.runner.(WorkBound)
	if !ok {
		return false
	}
	w := weigher{m: c.m, db: c.db}
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
