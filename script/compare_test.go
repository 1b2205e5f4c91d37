package script_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/script"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// scripts reads testdata/*.lua. Lines of dashes separate the scripts.
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
	return respwire.Args(list...)
}

var shared = script.NewRunner(unhurried())

// unhurried returns a configuration without a time limit, for tests whose
// result must not depend on how busy the machine is.
func unhurried() script.Config {
	c := script.DefaultConfig()
	c.Limits.Time = 0
	return c
}

// evalOurs runs a script with the keys and arguments of the tests.
func evalOurs(src string, call fsm.ScriptCall) string {
	call.Permits = func(args [][]byte) (permitted, known bool) { return true, string(args[0]) != "foo" }
	call.Keys, call.Args, call.Body = byteList(testKeys), byteList(testArgs), []byte(src)
	r, _, err := shared.RunMetered(call)
	if err != nil {
		return "abort: " + err.Error()
	}
	return string(r.Append(nil, call.Proto))
}

func evalReal(c *redisConn, src string) string {
	args := append([]string{"EVAL", src, "3"}, testKeys...)
	return c.do(append(args, testArgs...)...)
}

// permitted lists the scripts whose answer may differ from that of a real Redis.
// The scripts in testdata/order.lua may differ too: their answer depends on the
// order in which pairs iterates. Lua leaves this order open; gopher-lua uses
// the order of insertion.
var permitted = map[string]struct{ ours, reason string }{
	"return #{1,2,nil,4,nil}":                   {":4\r\n", border},
	"local t={} t[1]=1 t[2]=2 t[4]=4 return #t": {":2\r\n", border},
	"local t={} for i=1,10 do t[i]=i end for i=1,10 do if i%2==0 then t[i]=nil end end return #t": {":9\r\n", border},
	"return next({},1)":          {"$-1\r\n", "gopher-lua's tables do not say whether they ever had a key"},
	`return "\256"`:              {"$1\r\n\x00\r\n", "gopher-lua's scanner accepts it"},
	"goto = 1":                   {"-ERR Error compiling script (new function): user_script:1: '<name>' expected near '='\r\n", keyword},
	"local goto = 1 return goto": {"-ERR Error compiling script (new function): user_script:1: '<name>' expected near 'goto'\r\n", keyword},
}

const (
	border  = "the length of a list with holes may be any of its borders"
	keyword = "goto is a keyword of gopher-lua"
)

// sorted returns the bytes of an answer in sorted order. Two answers with the same
// parts in different orders become equal.
func sorted(s string) string {
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}

// TestRun_AnswersAsRedis checks that every script's answer equals that of a
// real Redis, byte for byte. Exceptions are the scripts in permitted, and the
// order of the bytes for order.lua.
func TestRun_AnswersAsRedis(t *testing.T) {
	socket := testutil.StartRedis(t)
	commands := dialRedis(t, socket, 3)
	for proto := 2; proto <= 3; proto++ {
		client := dialRedis(t, socket, proto)
		for file, list := range scripts(t) {
			for _, src := range list {
				setUp(commands)
				want := evalReal(client, src)
				setUp(commands)
				got := evalOurs(src, fsm.ScriptCall{Do: commands.call, Proto: proto})
				if p, ok := permitted[src]; ok {
					if proto == 3 {
						p.ours = strings.ReplaceAll(p.ours, "$-1", "_")
					}
					if got != p.ours {
						t.Errorf("%s: got %q, want %q, which differs from Redis because %s", src, got, p.ours, p.reason)
					}
					continue
				}
				if file == "order.lua" {
					got, want = sorted(got), sorted(want)
				}
				if got != want {
					t.Errorf("%s, RESP%d: %s\n got %q\nwant %q", file, proto, src, got, want)
				}
			}
		}
	}
}

// setUp stores the keys of the tests in Redis.
func setUp(c *redisConn) {
	c.do("FLUSHALL")
	c.do("SET", "s", "text")
	c.do("SET", "n", "10")
	c.do("HSET", "h", "a", "1", "b", "2")
	c.do("RPUSH", "l", "x", "y", "z")
	c.do("SADD", "set", "m")
	c.do("ZADD", "z", "1729760300000.5", "m", "2", "n")
}
