package deploy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// tmp is a directory shared by all tests.
var tmp string

func TestMain(m *testing.M) {
	var err error
	if tmp, err = os.MkdirTemp("", "holdfast-deploy"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(tmp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// program builds the binary once and returns its path.
var program = sync.OnceValues(func() (string, error) { return process.Build(tmp) })

func holdfast(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var helpFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)

// flags returns the flags that a command's --help lists.
func flags(t *testing.T, command ...string) []string {
	t.Helper()
	help := run(t, 20*time.Second, holdfast(t), append(command, "--help")...)
	var names []string
	for _, m := range helpFlag.FindAllStringSubmatch(help, -1) {
		names = append(names, m[1])
	}
	if len(names) < 2 {
		t.Fatalf("flags of %v: %v, found in\n%s", command, names, help)
	}
	return names
}

// checkCommandLine reports flags in the command line of serve or of another
// command that the program does not have.
func checkCommandLine(t *testing.T, where string, words []string) {
	t.Helper()
	if len(words) == 0 || strings.HasPrefix(words[0], "-") {
		t.Errorf("%s: no subcommand in %q", where, words)
		return
	}
	known := flags(t, words[0])
	for _, w := range words[1:] {
		name, isFlag := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && !slices.Contains(known, name) {
			t.Errorf("%s: holdfast %s has no flag --%s", where, words[0], name)
		}
	}
}

// checkVariable reports a HOLDFAST_… variable that belongs to no flag of serve.
func checkVariable(t *testing.T, where, name string) {
	t.Helper()
	flag, ok := strings.CutPrefix(name, "HOLDFAST_")
	flag = strings.ToLower(strings.ReplaceAll(flag, "_", "-"))
	if !ok || !slices.Contains(flags(t, "serve"), flag) {
		t.Errorf("%s: no flag of holdfast serve is set by %s", where, name)
	}
}

// metricNames starts a node, sends it a few commands, and returns the names
// that its /metrics declares: those of Holdfast and those of the Go process.
var metricNames = sync.OnceValues(func() (names []string, err error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	var addrs []string
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close()
		addrs = append(addrs, ln.Addr().String())
		if err := ln.Close(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "serve", "--node-id", "n1", "--data-dir", filepath.Join(tmp, "n1"),
		"--log-level", "warn",
		"--client-addr", addrs[0], "--peer-addr", addrs[1], "--http-addr", addrs[2], "--peers", "n1="+addrs[1])
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // the output of the program is on our standard error
	}()
	if err := useNode(ctx, addrs[0], addrs[2]); err != nil {
		return nil, err
	}
	res, err := http.Get("http://" + addrs[2] + "/metrics")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if w := strings.Fields(lines.Text()); len(w) > 3 && w[0] == "#" && w[1] == "TYPE" {
			names = append(names, w[2])
			if w[3] == "histogram" {
				names = append(names, w[2]+"_bucket", w[2]+"_sum", w[2]+"_count")
			}
		}
	}
	return names, nil
})

// useNode waits until the node is ready, writes a key, sends a command that
// fails, and makes the guard refuse a connection, so that every metric with
// labels has a value.
func useNode(ctx context.Context, clients, web string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ready := false; !ready; {
		if res, err := http.Get("http://" + web + "/readyz"); err == nil {
			ready = res.StatusCode == http.StatusOK
			res.Body.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("node is not ready: %w", ctx.Err())
		}
	}
	c, err := redis.Dial("tcp", clients)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Do("SET", "lock:a", "me", "NX", "EX", 600); err != nil {
		return err
	}
	if _, err := c.Do("INCR", "lock:a"); err == nil {
		return errors.New("INCR of a text did not fail")
	}
	bad, err := net.Dial("tcp", clients)
	if err != nil {
		return err
	}
	defer bad.Close()
	if _, err := io.WriteString(bad, "*1\r\n$9223372036854775807\r\n"); err != nil {
		return err
	}
	reply, err := io.ReadAll(bad)
	if err == nil && !strings.HasPrefix(string(reply), "-ERR Protocol error") {
		err = fmt.Errorf("the guard replied %q", reply)
	}
	return err
}

func metrics(t *testing.T) []string {
	t.Helper()
	names, err := metricNames()
	if err != nil {
		t.Fatal(err)
	}
	return names
}
