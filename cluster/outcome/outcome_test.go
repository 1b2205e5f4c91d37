package outcome_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// TestOutcomes checks the outcomes of errors, also after they were wrapped,
// joined, or passed to NewUnknown. None of these steps gives an error the
// outcome "not executed" if it had another outcome before.
func TestOutcomes(t *testing.T) {
	const unknown, not, executed = outcome.Unknown, outcome.NotExecuted, outcome.Executed
	wrap := func(err error) error { return fmt.Errorf("step: %w", err) }
	both := func(a, b error) error { return fmt.Errorf("%w (%w)", a, b) }
	base := map[error]outcome.Outcome{
		outcome.ErrNoLeader: not, outcome.ErrClosed: not, outcome.ErrRefused: not, outcome.ErrFeature: not,
		outcome.ErrUnknown: unknown, outcome.ErrReplyLost: executed, outcome.NewExecuted("but"): executed,
		outcome.NewUnknown(outcome.ErrNoLeader): unknown, outcome.NewUnknown(outcome.ErrReplyLost): unknown,
		io.EOF: unknown, &outcome.Error{}: unknown,
	}
	check := func(what string, err error, want outcome.Outcome) {
		t.Helper()
		if got := outcome.Of(err); got != want {
			t.Errorf("%s, %v: outcome %d, want %d", what, err, got, want)
		}
	}
	check("nil", nil, executed)
	for err, want := range base {
		check("itself", err, want)
		check("wrapped", wrap(wrap(err)), want)
		for _, hidden := range []error{outcome.NewUnknown(err), outcome.NewUnknown(wrap(err)), wrap(outcome.NewUnknown(err))} {
			check("unknown", hidden, unknown)
			if !errors.Is(hidden, outcome.ErrUnknown) {
				t.Errorf("errors.Is(%v, ErrUnknown) = false, want true", hidden)
			}
			for other := range base {
				if other != outcome.ErrUnknown && errors.Is(hidden, other) {
					t.Errorf("errors.Is(%v, %v) = true, want false", hidden, other)
				}
			}
		}
		check("joined with nothing", errors.Join(err), unknown)
		for other := range base {
			check("joined", errors.Join(err, other), unknown)
			check("wrapped together", both(err, other), unknown)
			check("joined, and wrapped", wrap(errors.Join(wrap(err), other)), unknown)
		}
	}
	var o *outcome.Error
	for err, want := range map[error]bool{
		outcome.ErrNoLeader: true, outcome.ErrClosed: true, outcome.ErrRefused: false, outcome.ErrUnknown: false,
		outcome.ErrReplyLost: false, outcome.NewUnknown(outcome.ErrNoLeader): false,
	} {
		if !errors.As(wrap(err), &o) || o.Retryable() != want {
			t.Errorf("%v: retryable %v, want %v", err, o.Retryable(), want)
		}
	}
}
