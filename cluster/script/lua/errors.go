package lua

import (
	"errors"
	"fmt"
	"strconv"
)

// Why a run was aborted; errors.Is finds these in what State.Run returns.
var (
	// ErrSteps: the script did more work than its budget.
	ErrSteps = errors.New("step limit exceeded")
	// ErrMemory: the script created more bytes than its budget.
	ErrMemory = errors.New("memory limit exceeded")
	// ErrTime: the script ran longer than the backstop.
	ErrTime = errors.New("time limit exceeded")
	// ErrKilled: the caller closed its Stop channel.
	ErrKilled = errors.New("killed")
	// ErrPanic: the interpreter itself failed; Abort.Stack says where.
	ErrPanic = errors.New("internal failure")
)

// Abort ends a run for a reason that the script cannot handle.
type Abort struct {
	Reason error  // one of the above
	Detail string // for ErrPanic
	Line   int    // of the script, 0 when unknown
	Stack  []byte // for ErrPanic
}

func (a *Abort) Error() string {
	s := a.Reason.Error()
	if a.Detail != "" {
		s += ": " + a.Detail
	}
	if a.Line > 0 {
		s += " at line " + strconv.Itoa(a.Line)
	}
	return s
}

func (a *Abort) Unwrap() error { return a.Reason }

// Error is an error that a script raised and did not handle.
type Error struct {
	Value  Value
	Source string // of the innermost function, "=[C]" for a builtin that was called by another
	Line   int    // of the innermost function, -1 for a builtin
}

func (e *Error) Error() string {
	if s, ok := e.Value.ToString(); ok {
		return s
	}
	return "(error object is a " + e.Value.TypeName() + " value)"
}

// Raise ends the running function with an error value.
func (st *State) Raise(v Value) {
	source, line := st.position()
	st.Alloc(64)
	panic(&Error{v, source, line})
}

// Errorf raises a text, with the position of the function that called the
// running builtin in front.
func (st *State) Errorf(format string, args ...any) {
	st.Raise(st.NewString(st.where(1) + fmt.Sprintf(format, args...)))
}

// opErrorf raises an error of an operation: with its position when the
// operation stands in a script, without when a builtin performs it.
func (st *State) opErrorf(at *site, format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	if at != nil && st.frame.fn != nil {
		st.frame.site = at
		msg = st.where(1) + msg
	}
	st.Raise(st.NewString(msg))
}

// typeError complains that an operation does not go with a value.
func (st *State) typeError(at *site, name operand, v Value, op string) {
	if at != nil && name.kind != "" {
		st.opErrorf(at, "attempt to %s %s '%s' (a %s value)", op, name.kind, name.name, v.TypeName())
	}
	st.opErrorf(at, "attempt to %s a %s value", op, v.TypeName())
}

// position is where the innermost function stands.
func (st *State) position() (source string, line int) {
	if fr := st.frame; fr.fn != nil {
		return fr.fn.proto.source, fr.site.line
	}
	return "=[C]", -1
}

// where is the prefix of an error text: the position of the function so many
// levels above the running builtin.
func (st *State) where(level int) string {
	for fr := st.frame; fr != nil; fr = fr.parent {
		if level--; level == 0 {
			if fr.fn == nil {
				return ""
			}
			return fr.fn.proto.chunk + ":" + strconv.Itoa(fr.site.line) + ": "
		}
		if fr.tails > 0 { // the function that called this one is gone
			if level--; level == 0 {
				return ""
			}
		}
	}
	return ""
}

// ArgError complains about argument n (from 1) of the running builtin.
func (st *State) ArgError(n int, msg string) {
	name := "?"
	if fr := st.frame; fr.fn != nil && fr.site.a.name != "" {
		name = fr.site.a.name
		if fr.site.a.kind == "method" {
			if n--; n == 0 {
				st.Errorf("calling '%s' on bad self (%s)", name, msg)
			}
		}
	}
	st.Errorf("bad argument #%d to '%s' (%s)", n, name, msg)
}

func (st *State) argTypeError(args []Value, n int, want string) {
	got := "no value"
	if n <= len(args) {
		got = args[n-1].TypeName()
	}
	st.ArgError(n, want+" expected, got "+got)
}
