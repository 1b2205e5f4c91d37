package fsm

import (
	"fmt"
	"slices"
)

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
	d := decoder{b: b.groups}
	sum, full := 0, false
	w := weigher{m: m}
	for range b.n {
		i, seq, body := d.uvarint(), d.uvarint(), d.bytes()
		if d.err != nil {
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
	return refused, d.done("batch")
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
	for len(r.d.b) > 0 {
		start, noted := r.d.b, len(g.w.undo)
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
			g.out = append(g.out, start[:len(start)-len(r.d.b)]...)
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
	return fmt.Sprintf("BUSY the command or transaction would take about %d ms on every node, more than %d ms (--max-write-time): nothing of it was done, divide it",
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
