package clients

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// output runs a program, which must succeed, and returns its output.
func output(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestScripts runs one script per language. The script prints ok, or the error.
func TestScripts(t *testing.T) {
	for _, s := range []struct {
		library, program string
		probe            []string // succeeds if the library is installed
		script           string
	}{
		{"python3-redis", "/usr/bin/python3", []string{"-c", "import redis"}, "client.py"},
		{"ruby-redis", "ruby", []string{"-e", "require 'redis'"}, "client.rb"},
		{"php-redis", "php", []string{"-r", "exit(class_exists('Redis') ? 0 : 1);"}, "client.php"},
		{"node-redis", "node", []string{"-e", "require('redis')"}, "client.js"},
	} {
		t.Run(s.library, func(t *testing.T) {
			t.Setenv("NODE_PATH", "/usr/share/nodejs") // lets a Node.js that is not from Debian find Debian's libraries
			path, err := exec.LookPath(s.program)
			testutil.Need(t, testutil.RequireClients, s.library, err)
			testutil.Need(t, testutil.RequireClients, s.library, exec.Command(path, s.probe...).Run())
			host, port := split(t, start(t))
			if out := output(t, "", path, filepath.Join("testdata", s.script), host, port); out != "ok\n" {
				t.Errorf("%s", out)
			}
		})
	}
}

func split(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

func TestHiredis(t *testing.T) {
	compiler, err := exec.LookPath("gcc")
	testutil.Need(t, testutil.RequireClients, "gcc", err)
	program := filepath.Join(t.TempDir(), "client")
	compile := exec.Command(compiler, "-o", program, "testdata/client.c", "-lhiredis")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Logf("%s", out)
		testutil.Need(t, testutil.RequireClients, "libhiredis-dev", err)
	}
	host, port := split(t, start(t))
	if out := output(t, "", program, host, port); out != "ok\n" {
		t.Errorf("%s", out)
	}
}

func TestRedisCLI(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	testutil.Need(t, testutil.RequireClients, "redis-tools", err)
	host, port := split(t, start(t))
	for _, tc := range []struct{ args, input, want string }{
		{"SET lock token NX EX 60", "", "OK\n"},
		{"SET lock token NX EX 60", "", "\n"},
		{"-3 GET lock", "", "token\n"},
		{"--no-raw GET absent", "", "(nil)\n"},
		{"-n 2 GET lock", "", "\n"},
		{"", "MULTI\nSET n 1\nINCR n\nEXEC\nGET n\n", "OK\nQUEUED\nQUEUED\nOK\n2\n2\n"},
		{"--pipe", "SET p 1\r\nINCR p\r\n",
			"All data transferred. Waiting for the last reply...\n" +
				"Last reply received from server.\nerrors: 0, replies: 2\n"},
		{"-3 --json CONFIG GET maxmemory-policy", "", `{"maxmemory-policy":"noeviction"}` + "\n"},
	} {
		args := append([]string{"-h", host, "-p", port}, strings.Fields(tc.args)...)
		if got := output(t, tc.input, cli, args...); got != tc.want {
			t.Errorf("redis-cli %s: %q, want %q", tc.args, got, tc.want)
		}
	}
	for _, args := range []string{"COMMAND", "-3 COMMAND DOCS", "INFO", "--scan"} {
		args := append([]string{"-h", host, "-p", port}, strings.Fields(args)...)
		if out := output(t, "", cli, args...); out == "" || strings.HasPrefix(out, "ERR") {
			t.Errorf("redis-cli %v: %.200q", args, out)
		}
	}
}

func TestRedisBenchmark(t *testing.T) {
	bench, err := exec.LookPath("redis-benchmark")
	testutil.Need(t, testutil.RequireClients, "redis-tools", err)
	host, port := split(t, start(t))
	for _, args := range []string{"-t ping,set,get,incr,mset -n 2000 -c 20 -q", "-t set,get -n 4000 -c 20 -P 32 -q",
		"-3 -t set,get -n 1000 -q", "-n 500 -q SET lock:__rand_int__ token NX PX 30000"} {
		out := output(t, "", bench, append([]string{"-h", host, "-p", port}, strings.Fields(args)...)...)
		if !strings.Contains(out, "requests per second") || strings.Contains(out, "rror") ||
			strings.Contains(out, "WARN") {
			t.Errorf("redis-benchmark %s:\n%s", args, out)
		}
	}
}
