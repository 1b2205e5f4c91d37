package fsm

import (
	"errors"
	"math"

	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

// meter counts what the commands of a group or of an entry cost. Commands
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
	StepsPerKey = 16 // for an argument, which may be the name of a key
	StepsProbe  = 32 // for looking up a name in a large collection
	StepsPut    = 64 // for inserting a name into a large collection
	ScanBytes   = 8  // bytes per step, if they are scanned one by one
	CopyBytes   = 64 // bytes per step, if they are copied or compared
)

// exceeded is the panic value of Charge and ChargeMemory. metered recovers it.
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

// RDBWriter returns a writer of the RDB format that charges c.
func (c *Ctx) RDBWriter() *rdb.Writer { return rdb.NewWriter(MaxReplyBytes, c.Charge, c.ChargeMemory) }

// These limit the value of a payload: see rdb.Limits. Restoring an element
// costs about as much as adding one with a write command.
const (
	maxUnfolded = MaxReplyBytes
	maxRestored = MaxArguments
)

// RestoreLimits are the limits of RESTORE and FUNCTION RESTORE.
var RestoreLimits = rdb.Limits{String: MaxStringBytes, Unfolded: maxUnfolded, Elements: maxRestored}
