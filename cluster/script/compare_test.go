package script_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/script"
)

// scripts reads testdata/*.lua: scripts separated by lines of dashes.
func scripts(tb testing.TB) map[string][]string {
	tb.Helper()
	paths, err := filepath.Glob("testdata/*.lua")
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no scripts in testdata: %v", err)
	}
	all := make(map[string][]string)
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			tb.Fatal(err)
		}
		for _, s := range strings.Split(string(b), "\n----\n") {
			if s = strings.TrimSuffix(s, "\n"); s != "" {
				all[filepath.Base(p)] = append(all[filepath.Base(p)], s)
			}
		}
	}
	return all
}

var (
	testKeys = []string{"k1", "k2", "k3"}
	testArgs = []string{"a1", "42", "3", "\x00\xff bytes", ""}
)

func byteList(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// evalOurs compiles and runs a script with the keys and arguments of the tests.
func evalOurs(tb testing.TB, src string, call script.Call) string {
	tb.Helper()
	c, err := script.Compile([]byte(src))
	if err != nil {
		return "-" + err.Error() + "\r\n"
	}
	call.Permits = func(args [][]byte) (permitted, known bool) { return true, string(args[0]) != "foo" }
	call.Keys, call.Args = byteList(testKeys), byteList(testArgs)
	r, err := script.NewRuntime(script.DefaultLimits()).Run(c, call)
	if err != nil {
		return "abort: " + err.Error()
	}
	return string(r.Append(nil, call.Proto))
}

func evalReal(c *redisConn, src string) string {
	args := append([]string{"EVAL", src, "3"}, testKeys...)
	return c.do(append(args, testArgs...)...)
}

// Every script answers, byte for byte, what a real Redis answers.
func TestRun_AnswersAsRedis(t *testing.T) {
	server := startRedis(t)
	commands := server.dial(t, 3)
	for proto := 2; proto <= 3; proto++ {
		client := server.dial(t, proto)
		for file, list := range scripts(t) {
			for _, src := range list {
				setUp(commands)
				want := evalReal(client, src)
				setUp(commands)
				got := evalOurs(t, src, script.Call{Do: commands.call, Proto: proto})
				if !bytes.Equal([]byte(got), []byte(want)) {
					t.Errorf("%s, RESP%d: %s\n got %q\nwant %q", file, proto, src, got, want)
				}
			}
		}
	}
}

// setUp puts the keys of the tests into Redis.
func setUp(c *redisConn) {
	c.do("FLUSHALL")
	c.do("SET", "s", "text")
	c.do("SET", "n", "10")
	c.do("HSET", "h", "a", "1", "b", "2")
	c.do("RPUSH", "l", "x", "y", "z")
	c.do("SADD", "set", "m")
	c.do("ZADD", "z", "1729760300000.5", "m", "2", "n")
}
