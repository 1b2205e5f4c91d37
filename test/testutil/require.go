package testutil

import (
	"os"
	"os/exec"
	"testing"
)

// These are the names of environment variables. If a variable is "1", a test
// that needs a missing program fails. Otherwise such a test is skipped.
const (
	// RequireClients is for client libraries and their interpreters.
	RequireClients = "HOLDFAST_REQUIRE_CLIENTS"
	// RequireRedis is for redis-server.
	RequireRedis = "HOLDFAST_REQUIRE_REDIS"
	// RequireBrowser is for Chromium.
	RequireBrowser = "HOLDFAST_REQUIRE_BROWSER"
	// RequireStrace is for strace.
	RequireStrace = "HOLDFAST_REQUIRE_STRACE"
)

// Required reports whether the given environment variable is "1".
func Required(variable string) bool { return os.Getenv(variable) == "1" }

// Need does nothing if err is nil. Otherwise it skips the test, and the message
// says that the program named by what is not installed. If the environment
// variable is "1", it fails the test instead.
func Need(t testing.TB, variable, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if Required(variable) {
		t.Fatalf("%s is not installed, but %s is set: %v", what, variable, err)
	}
	t.Skipf("%s is not installed: %v", what, err)
}

// NeedProgram returns the path of a program. If the program is not installed,
// NeedProgram skips or fails the test, as Need does.
func NeedProgram(t testing.TB, variable, name string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	Need(t, variable, name, err)
	return path
}
