package compat

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/test/harness"
)

// The two servers are started once for all tests; every test begins with
// FLUSHALL.
var (
	redisSocket  string // "" if there is no redis-server
	holdfastAddr string
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	runtime.LockOSThread()
	dir, err := os.MkdirTemp("", "holdfast-compat")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stopRedis, err := startRedis(dir)
	switch {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("HOLDFAST_REQUIRE_REDIS") != "1":
	case err != nil:
		fmt.Fprintln(os.Stderr, "redis-server:", err)
		return 1
	default:
		defer stopRedis()
	}
	limits := guard.DefaultLimits()
	limits.MaxBulk = 512 << 20 // so that the machine's own limits are met
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

// startRedis runs a redis-server of our own on a socket in dir.
func startRedis(dir string) (stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	// It must not outlive this process, however that ends. The signal is tied to
	// the thread that starts it, so this one stays (see runTests).
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill() // it has nothing to save
		_ = cmd.Wait()
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := dial("unix", socket)
		if err == nil {
			c.close()
			redisSocket = socket
			return stop, nil
		}
		if time.Now().After(deadline) {
			stop()
			return nil, fmt.Errorf("does not answer: %w", err)
		}
		time.Sleep(10 * time.Millisecond) // polls the condition above
	}
}
