// Package outcome defines the errors of groups that have no replies. The
// outcome of such an error says whether the group was executed, was not
// executed, or may have been executed. The outcome is a field of the error, so
// that wrapping or joining errors cannot turn another outcome into "not
// executed".
package outcome

// Outcome says whether a group that has no replies was executed.
type Outcome uint8

const (
	// Unknown means that the group may have been executed, or may be executed
	// later.
	Unknown Outcome = iota
	// NotExecuted means that the group was not executed and never will be.
	NotExecuted
	// Executed means that the group was executed, but its replies are lost.
	Executed
)

// Error is the error of a group that has no replies. Its outcome is fixed where
// the error arises, and nothing can change it into "not executed" afterwards:
//
//   - Only NewNotExecuted and Decode make errors with the outcome NotExecuted.
//     test/tidy lists the functions that may use NewNotExecuted, or an error
//     that NewNotExecuted has made.
//   - NewUnknown hides its cause from errors.Is and errors.As.
//   - Of returns Unknown for errors that were joined.
type Error struct {
	outcome   Outcome
	retryable bool // with NotExecuted: the same group may succeed later
	text      string
	// advice says how to learn an unknown outcome. It is empty if reading the
	// key shows the outcome.
	advice string
}

const msgUnknown = "outcome unknown"

// NewUnknown returns the error of a group that may have been executed. The
// argument why is the cause. Only its text becomes part of the result. If the
// cause has an outcome of its own, NewUnknown ignores that outcome.
func NewUnknown(why error) error {
	return &Error{outcome: Unknown, text: msgUnknown + ": " + why.Error()}
}

// NewNotExecuted returns the error of a group that was certainly not executed.
// retryable says that the same group may succeed later.
func NewNotExecuted(retryable bool, text string) error {
	return &Error{outcome: NotExecuted, retryable: retryable, text: text}
}

// Decode returns an error that another node has sent. The arguments are the
// results of Of, Retryable, Reason and Advice on that node.
func Decode(o Outcome, retryable bool, text, advice string) error {
	return &Error{outcome: o, retryable: retryable, text: text, advice: advice}
}

// NewChangeUnknown is like NewUnknown, for a change of the members or of the
// leader.
func NewChangeUnknown(why error) error {
	return &Error{
		outcome: Unknown, text: "the outcome of the change is unknown: " + why.Error(),
		advice: "run \"holdfast status\" to see the members before you try again",
	}
}

// NewExecuted returns the error of a command that was executed, although a
// later step failed. The argument but describes the failure of that step.
func NewExecuted(but string) error { return &Error{outcome: Executed, text: but} }

func (e *Error) Error() string {
	if e.outcome == Executed {
		return "executed, but " + e.text
	}
	return e.text
}

// Is reports whether target is ErrUnknown and the outcome is unknown.
func (e *Error) Is(target error) bool {
	return target == ErrUnknown && e.outcome == Unknown
}

// Retryable reports whether the group was not executed and the same group may
// succeed later.
func (e *Error) Retryable() bool { return e.outcome == NotExecuted && e.retryable }

// Advice returns text that says how to learn an unknown outcome. It is empty if
// reading the key shows the outcome.
func (e *Error) Advice() string { return e.advice }

// Reason returns text that says why there are no replies.
func (e *Error) Reason() string { return e.text }

// Of returns the outcome of a group that failed with err. A nil error means
// that the group was executed. The outcome is unknown for an error that is not
// an Error and does not wrap one, and for every error that joins several.
func Of(err error) Outcome {
	for err != nil {
		if e, ok := err.(*Error); ok {
			return e.outcome
		}
		w, ok := err.(interface{ Unwrap() error })
		if !ok {
			return Unknown
		}
		if err = w.Unwrap(); err == nil {
			return Unknown
		}
	}
	return Executed
}
