package testutil

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// WaitLimit is how long Eventually waits. It is far more than any condition
// needs on a slow machine, so only a condition that never holds reaches it.
const WaitLimit = 2 * time.Minute

// Eventually waits until a condition holds. If it does not hold within
// WaitLimit, Eventually fails the test with the name of the condition.
func Eventually(t testing.TB, name string, holds func() bool) {
	t.Helper()
	ctx, cancel := limited(context.Background(), WaitLimit) // not t.Context(), which has ended before a Cleanup runs
	defer cancel()
	if err := process.Poll(ctx, name, holds); err != nil {
		t.Fatal(err)
	}
}

func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
}

// Within returns a context that ends with the test, or after the limit. If the
// limit ends it, its cause names the limit.
func Within(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := limited(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}
