package cluster

import (
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// workLimits returns the bounds of what entries cost to apply, in steps.
func (o *Options) workLimits() fsm.WorkLimits {
	return fsm.WorkLimits{Entry: int(o.EntryWork / fsm.StepNanos), Operation: int(o.MaxWriteTime / fsm.StepNanos)}
}

// divide takes the front of a batch for the next entry, as much of it as may be
// applied in one entry, and leaves the remainder for later entries. No entry is
// on its way through the log while divide runs: see windowLocked.
func (ld *leadership) divide(b *fsm.BatchBuilder) (*fsm.BatchBuilder, error) {
	ld.mu.Lock()
	out, rest := ld.spareBuilder(), ld.spareBuilder()
	ld.mu.Unlock()
	var refused int
	var err error
	ld.machine.View(func(m *fsm.Machine) { refused, err = m.Divide(b, out, rest, ld.opts.workLimits()) })
	if err != nil {
		// Table.Check has accepted every group before speculative execution.
		return nil, fmt.Errorf("divide a batch: %w", err)
	}
	ld.stats.WritesRefused.Add(float64(refused))
	ld.later(b, rest)
	return out, nil
}

// writeTime returns approximately how long applying a group takes.
func (ld *leadership) writeTime(body []byte) (time.Duration, error) {
	var steps int
	var err error
	ld.machine.View(func(m *fsm.Machine) { steps, err = m.GroupWork(body) })
	if err != nil {
		return 0, fmt.Errorf("weigh a group: %w", err)
	}
	return time.Duration(steps) * fsm.StepNanos, nil
}

// later returns a builder to the spare builders, because its groups are now in
// other builders. Of those, rest holds the groups for the next entry.
func (ld *leadership) later(b, rest *fsm.BatchBuilder) {
	b.Reset(2 * ld.opts.MaxEntryBytes)
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.spare = append(ld.spare, b)
	if groups, _ := rest.Len(); groups > 0 {
		ld.full = append([]*fsm.BatchBuilder{rest}, ld.full...)
	} else {
		ld.spare = append(ld.spare, rest)
	}
}

// windowLocked returns how many entries may be on their way before the next one
// is proposed. A batch with scripts is executed speculatively on the state that
// it will be applied to, and a batch whose work depends on the state is weighed
// on that state. In both cases no other entry may be on its way. The caller
// holds ld.mu.
func (ld *leadership) windowLocked() int {
	next := ld.filling
	if len(ld.full) > 0 {
		next = ld.full[0]
	}
	if next.Scripts() || next.Depends() {
		return 1
	}
	return ld.opts.Window
}
