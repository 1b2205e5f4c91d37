package discovery

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// startRedis starts a server that ends with the test, or with this process.
func startRedis(t *testing.T, path string, args []string) {
	t.Helper()
	starter, err := process.NewStarter(nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	if err := starter.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the server has no data to save
		_ = cmd.Wait()
		starter.Close()
	})
}

// realSentinel starts a Sentinel. directive is the line of its configuration
// that says which master it monitors, without the first word "sentinel".
func realSentinel(t *testing.T, directive []string) (addr string) {
	t.Helper()
	path := testutil.NeedProgram(t, testutil.RequireRedis, "redis-server")
	port, err := process.FreePorts(1, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	text := "bind 127.0.0.1\nport " + strconv.Itoa(port) + "\ndir " + dir +
		"\nsentinel " + strings.Join(directive, " ") + "\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startRedis(t, path, []string{conf, "--sentinel"})
	addr = "127.0.0.1:" + strconv.Itoa(port)
	if err := process.Poll(testutil.Within(t, limit), "redis-sentinel to answer",
		func() bool { return answers(addr) }); err != nil {
		t.Fatal(err)
	}
	return addr
}
