package script

import (
	"fmt"
	"runtime/debug"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Limits bound one run of a script. They apply to all work of the script,
// including library functions, patterns, coroutines and pcall.
type Limits struct {
	// Steps bounds the work: instructions of the interpreter, characters that
	// patterns compare, and elements that the library moves. A step takes 5 to
	// 50 ns.
	Steps int
	// Memory bounds the total size in bytes of the strings, tables and
	// functions that the script creates. The sum includes garbage, so it also
	// bounds the memory that the script holds at any time. The sum is an
	// estimate, correct within a small factor.
	Memory int
	// Time bounds the run by the clock; 0 means no bound. The run checks the
	// clock every few thousand steps, and more often after the run has made or
	// received a large string. It does not check the clock during a redis.call.
	Time time.Duration
}

// DefaultLimits returns limits that are sufficient for well-behaved scripts.
func DefaultLimits() Limits { return LimitsFor(500 * time.Millisecond) }

// LimitsFor returns limits for scripts that may run for the duration d. The
// clock ends a script before the steps run out, because no machine executes a
// step in a nanosecond. The limit on steps exists in case the clock stands
// still.
func LimitsFor(d time.Duration) Limits {
	return Limits{Steps: int(d / time.Nanosecond), Memory: 64 << 20, Time: d}
}

const (
	slice       = 4096 // steps between two checks of the clock
	stringBytes = 32
	valueBytes  = 16
	tableBytes  = 128
	slotBytes   = 40  // bytes per element of a table's list: Go's append reserves room
	pairBytes   = 200 // bytes per entry of a table's map: the pair, and its position in the order of next
)

// budget holds the remainder of a run's limits. State embeds it, and is the
// context of the run's LState. The interpreter calls Done before every
// instruction, so Done counts the instructions.
//
// The field longest is the length of the longest string seen, because one
// instruction may compare that many bytes. The field deleted counts the values
// removed from tables, because a single next or # may have to pass over all of
// these values. A value far from the start of a list counts as several values.
type budget struct {
	limits    Limits
	fuel      int // steps until the next check of the clock
	steps     int // steps that remain when fuel is used up
	bytes     int // bytes that remain
	longest   int // length of the longest string seen
	deleted   int // values removed from tables
	deadline  time.Time
	last      time.Time     // time of the last refuel, once a long string has been seen
	interrupt func() string // see ScriptCall.Interrupt
	aborted   *Abort
	position  func() int // returns the current line of the script, for Abort
}

func (b *budget) reset(l Limits) {
	*b = budget{limits: l, steps: l.Steps, bytes: l.Memory, position: b.position}
	if l.Time > 0 {
		b.deadline = time.Now().Add(l.Time)
	}
}

// Deadline, Err and Value make budget implement context.Context.
func (b *budget) Deadline() (time.Time, bool) { return time.Time{}, false }

// Err is never called, because Done returns a nil channel, which is never ready.
func (b *budget) Err() error { return nil }

// Value returns nil: a budget carries no values.
func (b *budget) Value(any) any { return nil }

// Done counts one instruction.
func (b *budget) Done() <-chan struct{} {
	if b.fuel--; b.fuel < 0 {
		b.refuel()
	}
	return nil
}

// used returns the steps and bytes that the run has spent so far.
func (b *budget) used() Usage {
	return Usage{Steps: b.limits.Steps - b.steps - b.fuel, Bytes: b.limits.Memory - b.bytes}
}

// Step charges n steps of work.
func (b *budget) Step(n int) {
	if b.fuel -= n; b.fuel < 0 {
		b.refuel()
	}
}

// refuel takes the next slice of steps from the budget.
func (b *budget) refuel() {
	total := b.steps + b.fuel
	// One instruction may compare as many bytes as the longest string has, so
	// refuel charges the elapsed time in addition.
	if b.longest >= slice {
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

// look ends the run if the caller has interrupted it, or if its deadline has
// passed.
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

// Alloc charges n bytes. It must be called before the bytes are allocated.
func (b *budget) Alloc(n int) {
	if n > b.bytes || n < 0 {
		b.abort(ErrMemory)
	}
	b.bytes -= n
}

// manyDeleted is the number of values removed from tables above which a single
// call of next, or a single use of #, may take a long time.
const manyDeleted = 1000

// walk runs f, which walks over a table that may hold many removed values. The
// cost of the walk is not known in advance, so walk charges the elapsed time.
func (b *budget) walk(f func()) {
	if b.deleted <= manyDeleted {
		f()
		return
	}
	start := time.Now()
	f()
	b.Step(int(time.Since(start) / walkStep))
}

// walkStep is the duration for which one step is charged.
const walkStep = 20 * time.Nanosecond

// abort ends the run. The script cannot catch an abort.
func (b *budget) abort(reason error) {
	if b.aborted == nil {
		b.aborted = &Abort{Reason: reason, Line: b.position()}
	}
	panic(abortPanic())
}

// failed ends the run after the interpreter or Do has panicked with the value
// r.
func (b *budget) failed(r any) {
	if b.aborted == nil {
		b.aborted = &Abort{Reason: ErrPanic, Detail: fmt.Sprint(r), Stack: debug.Stack()}
	}
	panic(abortPanic())
}

// abortPanic returns the panic value that ends a run. The value passes through
// gopher-lua's PCall like an error, and the caller of PCall checks
// budget.aborted. The value has a StackTrace so that PCall does not compute
// one, which would take a long time on a deep stack.
func abortPanic() *lua.ApiError {
	return &lua.ApiError{Type: lua.ApiErrorPanic, Object: lua.LString("aborted"), StackTrace: "none"}
}
