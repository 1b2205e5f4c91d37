package clients

import (
	"testing"

	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/test/harness"
)

// start runs a cluster of one node and returns its client address.
func start(t *testing.T) (addr string) {
	t.Helper()
	return harness.Single(t, guard.DefaultLimits()).Addr()
}
