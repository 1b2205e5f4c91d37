package testutil

import (
	"bytes"
	"errors"
	"os/exec"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// redisVersion is the version of Redis whose replies the product imitates, in
// the form in which redis-server --version prints it.
const redisVersion = " v=7.0."

// StartRedis starts a redis-server that ends with the test. It returns the path
// of the server's socket. If redis-server is not installed, it skips the test,
// or fails it if HOLDFAST_REQUIRE_REDIS is 1. It also skips the test if the
// server is not a Redis 7.0. args are further arguments of the server.
func StartRedis(t testing.TB, args ...string) (socket string) {
	t.Helper()
	socket = TryRedis(t, args...)
	if socket == "" {
		t.Skip(process.ErrNoRedis)
	}
	return socket
}

// TryRedis is like StartRedis, for tests that also run without a Redis. If
// redis-server is not installed and HOLDFAST_REQUIRE_REDIS is not 1, TryRedis
// returns "".
func TryRedis(t testing.TB, args ...string) (socket string) {
	t.Helper()
	server, err := process.StartRedis(args...)
	if errors.Is(err, process.ErrNoRedis) && !Required(RequireRedis) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	version, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(version, []byte(redisVersion)) {
		t.Skipf("the product replies as Redis 7.0 does, but this is %s", version)
	}
	return server.Socket
}
