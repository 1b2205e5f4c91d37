package discovery

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/test/process"
)

func lookRedis() (path string, err error) { return exec.LookPath("redis-server") }

// needRedis skips the test without a redis-server, or fails it if that is required.
func needRedis(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("HOLDFAST_REQUIRE_REDIS") == "1" {
		t.Fatal(err)
	}
	t.Skipf("redis-server is not installed: %v", err)
}

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
		_ = cmd.Process.Kill() // it has nothing to save
		_ = cmd.Wait()
		starter.Close()
	})
}

// realSentinel starts a Sentinel that monitors as directive says, which is a
// sentinel line of its configuration.
func realSentinel(t *testing.T, directive []string) (addr string) {
	t.Helper()
	path, err := lookRedis()
	needRedis(t, err)
	port, err := process.FreePorts(1, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	text := "bind 127.0.0.1\nport " + strconv.Itoa(port) + "\ndir " + dir + "\nsentinel " + strings.Join(directive, " ") + "\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startRedis(t, path, []string{conf, "--sentinel"})
	addr = "127.0.0.1:" + strconv.Itoa(port)
	if err := process.Poll(within(t), "redis-sentinel to answer", func() bool { return answers(addr) }); err != nil {
		t.Fatal(err)
	}
	return addr
}
