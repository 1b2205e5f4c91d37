package cluster

import "errors"

// Outcome is what is known of a group that has no replies.
type Outcome uint8

const (
	// OutcomeUnknown: the group may have been executed, or may be executed later.
	OutcomeUnknown Outcome = iota
	// OutcomeNotExecuted: the group was not executed and never will be.
	OutcomeNotExecuted
	// OutcomeExecuted: the group was executed, but its replies are lost.
	OutcomeExecuted
)

// OutcomeError is the error of a group that has no replies. Its outcome is fixed
// where the error arises and cannot be changed into "not executed" afterwards:
// the package's own variables (errors.go) and failed reads are the only errors
// with OutcomeNotExecuted, Unknown hides the error that caused it from errors.Is
// and errors.As, and OutcomeOf takes errors that were joined for unknown.
type OutcomeError struct {
	outcome   Outcome
	retryable bool // with OutcomeNotExecuted: the same group may succeed later
	text      string
}

const msgUnknown = "outcome unknown"

// Unknown returns an error that says that a group may have been executed. why is
// for people only: whatever it knew of the outcome is not part of the result.
func Unknown(why error) error {
	return &OutcomeError{outcome: OutcomeUnknown, text: msgUnknown + ": " + why.Error()}
}

// Executed returns an error that says that a command was executed, and what did
// not succeed after that.
func Executed(but string) error { return &OutcomeError{outcome: OutcomeExecuted, text: but} }

// readFailed returns the error of a read. A read has no effect, so its failure
// leaves nothing open.
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

// Retryable reports whether the group was not executed and may succeed later as
// it is.
func (e *OutcomeError) Retryable() bool { return e.outcome == OutcomeNotExecuted && e.retryable }

// Reason says why there are no replies.
func (e *OutcomeError) Reason() string { return e.text }

// OutcomeOf returns the outcome that an error stands for. Without an error the
// group was executed. An error that is no OutcomeError, and does not wrap one, is
// an unknown outcome; so is every error that joins several, whatever they are.
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
