package script

import (
	"fmt"
	"runtime/debug"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Limits bound one run of a script. All of them hold for everything that the
// script does: library functions, patterns, coroutines and pcall included.
type Limits struct {
	// Steps is the work: instructions of the interpreter, characters that patterns
	// compare, elements that the library moves. A step takes 5 to 50 ns.
	Steps int
	// Memory is the sum of the bytes of strings, tables and functions that the
	// script creates, garbage included: so it also bounds what it holds. It is an
	// estimate, within a small factor.
	Memory int
	// Time is by the clock, 0 for none. It is looked at every few thousand steps,
	// more often while large strings are about, and not while a redis.call runs.
	Time time.Duration
}

// DefaultLimits allow what well-behaved scripts do.
func DefaultLimits() Limits { return LimitsFor(500 * time.Millisecond) }

// LimitsFor are the limits of a node whose scripts may run for so long. The
// clock ends a script before the steps do: no machine takes a step in a
// nanosecond. The steps are there for a clock that stands still.
func LimitsFor(d time.Duration) Limits {
	return Limits{Steps: int(d / time.Nanosecond), Memory: 64 << 20, Time: d}
}

const (
	slice       = 4096 // steps between two looks at the clock
	stringBytes = 32
	valueBytes  = 16
	tableBytes  = 128
	slotBytes   = 40  // of a table's list: Go's append leaves room
	pairBytes   = 200 // of a table's map: the pair, and its place in the order of next
)

// budget is what is left of a run's limits. It is the context of the run's
// LState: the interpreter asks Done before every instruction, which is where
// instructions are counted.
type budget struct {
	limits    Limits
	fuel      int // steps until the next look at the clock
	steps     int // left after that
	bytes     int // left
	longest   int // length of the longest string seen: what one instruction may compare
	deleted   int // values removed from tables, far ones counting as several: what one next or # may have to pass over
	deadline  time.Time
	last      time.Time     // of the last refuel, while long strings are about
	interrupt func() string // see ScriptCall.Interrupt
	aborted   *Abort
	position  func() int // line of the script, for Abort
}

func (b *budget) reset(l Limits) {
	*b = budget{limits: l, steps: l.Steps, bytes: l.Memory, position: b.position}
	if l.Time > 0 {
		b.deadline = time.Now().Add(l.Time)
	}
}

// Deadline, Err and Value make a budget a context.Context.
func (b *budget) Deadline() (time.Time, bool) { return time.Time{}, false }

// Err is never asked: Done's channel does not end.
func (b *budget) Err() error { return nil }

// Value has none.
func (b *budget) Value(any) any { return nil }

// Done counts an instruction.
func (b *budget) Done() <-chan struct{} {
	if b.fuel--; b.fuel < 0 {
		b.refuel()
	}
	return nil
}

// used returns what the run has spent so far.
func (b *budget) used() Usage {
	return Usage{Steps: b.limits.Steps - b.steps - b.fuel, Bytes: b.limits.Memory - b.bytes}
}

// Step charges n steps of work.
func (b *budget) Step(n int) {
	if b.fuel -= n; b.fuel < 0 {
		b.refuel()
	}
}

// refuel takes the next slice of the budget.
func (b *budget) refuel() {
	total := b.steps + b.fuel
	if b.longest >= slice { // one instruction may compare that much: charged by the clock
		now := time.Now()
		if !b.last.IsZero() {
			total -= int(now.Sub(b.last) / walkStep)
		}
		b.last = now
	}
	if total < 0 {
		b.steps, b.fuel = 0, 0
		b.abort(ErrSteps)
	}
	b.fuel = min(total, max(slice/(1+b.longest/slice), 1))
	b.steps = total - b.fuel
	b.look()
}

// look sees whether the run has to end.
func (b *budget) look() {
	if b.interrupt != nil {
		if text := b.interrupt(); text != "" {
			b.abort(&interrupted{text})
		}
	}
	if b.limits.Time > 0 && time.Now().After(b.deadline) {
		b.abort(ErrTime)
	}
}

// Alloc charges n bytes before they are allocated.
func (b *budget) Alloc(n int) {
	if n > b.bytes || n < 0 {
		b.abort(ErrMemory)
	}
	b.bytes -= n
}

// manyDeleted is from how many deletions on a single next may take long.
const manyDeleted = 1000

// walk runs a walk over a table that may hold many removed values. How long that
// takes is not known before: it is charged by the clock.
func (b *budget) walk(f func()) {
	if b.deleted <= manyDeleted {
		f()
		return
	}
	start := time.Now()
	f()
	b.Step(int(time.Since(start) / walkStep))
}

// walkStep is what a step of a walk takes.
const walkStep = 20 * time.Nanosecond

// abort ends the run: nothing in the script can catch it.
func (b *budget) abort(reason error) {
	if b.aborted == nil {
		b.aborted = &Abort{Reason: reason, Line: b.position()}
	}
	panic(abortPanic())
}

// failed makes a Go panic of the interpreter or of Do the end of the run.
func (b *budget) failed(r any) {
	if b.aborted == nil {
		b.aborted = &Abort{Reason: ErrPanic, Detail: fmt.Sprint(r), Stack: debug.Stack()}
	}
	panic(abortPanic())
}

// abortPanic passes through gopher-lua's PCall like an error; whoever calls
// PCall looks at budget.aborted. With a StackTrace in it PCall makes none, which
// would take long on a deep stack.
func abortPanic() *lua.ApiError {
	return &lua.ApiError{Type: lua.ApiErrorPanic, Object: lua.LString("aborted"), StackTrace: "none"}
}
