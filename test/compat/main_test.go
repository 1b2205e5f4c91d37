package compat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/test/harness"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// All tests use the same two servers. A test that depends on the data begins
// with FLUSHALL (see the function both).
var (
	redisSocket  string // "" if there is no redis-server
	holdfastAddr string
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-compat")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	server, err := process.StartRedis()
	switch {
	case errors.Is(err, process.ErrNoRedis) && !testutil.Required(testutil.RequireRedis):
	case err != nil:
		fmt.Fprintln(os.Stderr, "redis-server:", err)
		return 1
	default:
		redisSocket = server.Socket
		defer func() { _ = server.Close() }() // the server has no data to save
	}
	limits := guard.DefaultLimits()
	limits.MaxBulk = 512 << 20 // higher than the limits of values and keys, so that the tests can exceed those
	limits.MaxCommand = 512 << 20
	node, stop, err := harness.Open(filepath.Join(dir, "holdfast"), limits)
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return 1
	}
	holdfastAddr = node.Addr()
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop holdfast:", err)
		return 1
	}
	return code
}
