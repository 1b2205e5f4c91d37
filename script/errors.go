package script

import (
	"errors"
	"strconv"
)

// These are the reasons why a run can end before the script finishes. errors.Is
// finds them in an Abort.
var (
	// ErrSteps means that the script did more work than Limits.Steps allows.
	ErrSteps = errors.New("it ran too long (instructions)")
	// ErrMemory means that the script created more bytes than Limits.Memory
	// allows.
	ErrMemory = errors.New("it used too much memory")
	// ErrTime means that the script ran longer than Limits.Time allows.
	ErrTime = errors.New("it ran too long (time)")
	// ErrPanic means that the interpreter or a command panicked.
	ErrPanic = errors.New("internal failure")
)

// interrupted is the reason of an Abort that ScriptCall.Interrupt has
// requested. The reply to the client contains its text.
type interrupted struct{ text string }

func (e *interrupted) Error() string { return e.text }

// Abort ends a run for a reason that the script cannot handle.
type Abort struct {
	Reason error  // one of the errors above, or an *interrupted
	Detail string // value of the panic; only for ErrPanic
	Line   int    // line of the script, or 0 when it is unknown
	Stack  []byte // stack trace of the panic, or nil; only for ErrPanic
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
	source string // source of the innermost function; "=[C]" for a builtin that another builtin called
	line   int    // line of the innermost function; -1 for a builtin
}
