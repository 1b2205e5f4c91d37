package cluster

import "errors"

// Outcome is what is known about a group that has no replies.
type Outcome uint8

const (
	// OutcomeUnknown means that the group may have been executed, or may be
	// executed later.
	OutcomeUnknown Outcome = iota
	// OutcomeNotExecuted means that the group was not executed and never will
	// be.
	OutcomeNotExecuted
	// OutcomeExecuted means that the group was executed, but its replies are
	// lost.
	OutcomeExecuted
)

// OutcomeError is the error of a group that has no replies. Its outcome is
// fixed where the error arises, and nothing can change it into "not executed"
// afterwards:
//
//   - Only the variables of this package (errors.go) and failed reads have
//     OutcomeNotExecuted.
//   - Unknown hides its cause from errors.Is and errors.As.
//   - OutcomeOf returns OutcomeUnknown for errors that were joined.
type OutcomeError struct {
	outcome   Outcome
	retryable bool // with OutcomeNotExecuted: the same group may succeed later
	text      string
	// advice says how to learn an unknown outcome. It is empty if reading the
	// key shows the outcome.
	advice string
}

const msgUnknown = "outcome unknown"

// Unknown returns an error that says that a group may have been executed. Only
// the text of why becomes part of the result. The outcome of why, if it has
// one, is ignored.
func Unknown(why error) error {
	return &OutcomeError{outcome: OutcomeUnknown, text: msgUnknown + ": " + why.Error()}
}

// ChangeUnknown is like Unknown, for a change of the members or of the leader.
func ChangeUnknown(why error) error {
	return &OutcomeError{
		outcome: OutcomeUnknown, text: "the outcome of the change is unknown: " + why.Error(),
		advice: "run \"holdfast status\" to see the members before you try again",
	}
}

// unreached returns the error of a change that was not made because the leader
// could not be asked for it.
func unreached(leader string, why error) error {
	return &OutcomeError{outcome: OutcomeNotExecuted, retryable: true, text: "the leader " + leader + " cannot be reached: " + why.Error()}
}

// Executed returns an error that says that a command was executed and that a
// later step failed. but describes the later step.
func Executed(but string) error { return &OutcomeError{outcome: OutcomeExecuted, text: but} }

// readFailed returns the error of a failed read. A read has no effect, so its
// outcome is "not executed".
func readFailed(err error) error {
	var o *OutcomeError
	if err == nil || errors.As(err, &o) {
		return err
	}
	return &OutcomeError{outcome: OutcomeNotExecuted, text: err.Error()}
}

func (e *OutcomeError) Error() string {
	if e.outcome == OutcomeExecuted {
		return "executed, but " + e.text
	}
	return e.text
}

// Is reports whether target is ErrUnknown and the outcome is unknown.
func (e *OutcomeError) Is(target error) bool {
	return target == ErrUnknown && e.outcome == OutcomeUnknown
}

// Retryable reports whether the group was not executed and the same group may
// succeed later.
func (e *OutcomeError) Retryable() bool { return e.outcome == OutcomeNotExecuted && e.retryable }

// Advice returns text that says how to learn an unknown outcome. It is empty if
// reading the key shows the outcome.
func (e *OutcomeError) Advice() string { return e.advice }

// Reason returns text that says why there are no replies.
func (e *OutcomeError) Reason() string { return e.text }

// OutcomeOf returns the outcome of a group that failed with err. A nil error
// means that the group was executed. The outcome is unknown for an error that
// is not an OutcomeError and does not wrap one, and for every error that joins
// several.
func OutcomeOf(err error) Outcome {
	for err != nil {
		if e, ok := err.(*OutcomeError); ok {
			return e.outcome
		}
		w, ok := err.(interface{ Unwrap() error })
		if !ok {
			return OutcomeUnknown
		}
		if err = w.Unwrap(); err == nil {
			return OutcomeUnknown
		}
	}
	return OutcomeExecuted
}
