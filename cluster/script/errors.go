package script

import (
	"errors"
	"strconv"
)

// Why a run was cut off; errors.Is finds these in an Abort.
var (
	// ErrSteps: the script did more work than Limits.Steps.
	ErrSteps = errors.New("it ran too long (instructions)")
	// ErrMemory: the script created more bytes than Limits.Memory.
	ErrMemory = errors.New("it used too much memory")
	// ErrTime: the script ran longer than Limits.Time.
	ErrTime = errors.New("it ran too long (time)")
	// ErrPanic: the interpreter or a command failed; Abort.Stack says where.
	ErrPanic = errors.New("internal failure")
)

// interrupted is the end that ScriptCall.Interrupt asked for; its text is the
// reply.
type interrupted struct{ text string }

func (e *interrupted) Error() string { return e.text }

// Abort ends a run for a reason that the script cannot handle.
type Abort struct {
	Reason error  // one of the above, or what Interrupt said
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

// scriptError is an error that a script raised.
type scriptError struct {
	value  Value
	source string // of the innermost function, "=[C]" for a builtin that was called by another
	line   int    // of the innermost function, -1 for a builtin
}
