package cluster_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster"
)

// TestOutcomes checks the algebra of outcomes. An error means "not executed"
// only if it does so where it arises; nothing that is done to another error
// gives it this meaning.
func TestOutcomes(t *testing.T) {
	const unknown, not, executed = cluster.OutcomeUnknown, cluster.OutcomeNotExecuted, cluster.OutcomeExecuted
	wrap := func(err error) error { return fmt.Errorf("step: %w", err) }
	both := func(a, b error) error { return fmt.Errorf("%w (%w)", a, b) }
	base := map[error]cluster.Outcome{
		cluster.ErrNoLeader: not, cluster.ErrClosed: not, cluster.ErrRefused: not, cluster.ErrFeature: not,
		cluster.ErrUnknown: unknown, cluster.ErrReplyLost: executed, cluster.Executed("but"): executed,
		cluster.Unknown(cluster.ErrNoLeader): unknown, cluster.Unknown(cluster.ErrReplyLost): unknown,
		io.EOF: unknown, cluster.ErrStaleSession: unknown, &cluster.OutcomeError{}: unknown,
	}
	check := func(what string, err error, want cluster.Outcome) {
		t.Helper()
		if got := cluster.OutcomeOf(err); got != want {
			t.Errorf("%s, %v: outcome %d, want %d", what, err, got, want)
		}
	}
	check("nil", nil, executed)
	for err, want := range base {
		check("itself", err, want)
		check("wrapped", wrap(wrap(err)), want)
		for _, hidden := range []error{cluster.Unknown(err), cluster.Unknown(wrap(err)), wrap(cluster.Unknown(err))} {
			check("unknown", hidden, unknown)
			if !errors.Is(hidden, cluster.ErrUnknown) {
				t.Errorf("%v is not ErrUnknown", hidden)
			}
			for other := range base {
				if other != cluster.ErrUnknown && errors.Is(hidden, other) {
					t.Errorf("%v is %v", hidden, other)
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
	var o *cluster.OutcomeError
	for err, want := range map[error]bool{cluster.ErrNoLeader: true, cluster.ErrClosed: true, cluster.ErrRefused: false, cluster.ErrUnknown: false, cluster.ErrReplyLost: false, cluster.Unknown(cluster.ErrNoLeader): false} {
		if !errors.As(wrap(err), &o) || o.Retryable() != want {
			t.Errorf("%v: retryable %v, want %v", err, o.Retryable(), want)
		}
	}
}
