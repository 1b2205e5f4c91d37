package script_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// lockScripts returns scripts that do the same as the scripts of well-known
// libraries for locks, queues and rate limits. They do not copy the texts of those
// scripts.
func lockScripts(tb testing.TB) []string {
	tb.Helper()
	b, err := os.ReadFile("testdata/locks/patterns.lua")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n----\n")
}

// lockStates are states that a lock script may find.
var lockStates = map[string][][]string{
	"free":       nil,
	"ours":       {{"SET", "k1", "token"}, {"SET", "k2", "token"}},
	"ours, ttl":  {{"SET", "k1", "token", "PX", "60000"}},
	"theirs":     {{"SET", "k1", "stranger", "PX", "60000"}, {"RPUSH", "k2", "stranger"}},
	"a hash":     {{"HSET", "k1", "token", "2"}},
	"once":       {{"HSET", "k1", "token", "1"}},
	"their hash": {{"HSET", "k1", "stranger", "1"}, {"PEXPIRE", "k1", "60000"}},
	"written":    {{"HSET", "k1", "mode", "write", "token:write", "1"}},
	"readers":    {{"HSET", "k1", "mode", "read", "token", "1"}},
	"full":       {{"ZADD", "k3", "1700000000000", "a", "1699999999999", "b", "5", "c"}},
	"bucket":     {{"SET", "k3", `{"tokens":0.25,"at":100}`}},
	"one taken":  {{"SET", "k2", "stranger"}},
}

var lockArgs = [][]string{{"token", "10000"}, {"token", "30000"}, {"other", "5000"}, {"10000", "token"}, {"token", "0"}}

// TestRun_LockScriptsAsOnRedis checks that lock scripts give the same replies
// and make the same changes as on a real Redis.
func TestRun_LockScriptsAsOnRedis(t *testing.T) {
	socket := testutil.StartRedis(t)
	commands, client := dialRedis(t, socket, 2), dialRedis(t, socket, 2)
	for _, src := range lockScripts(t) {
		title, _, _ := strings.Cut(src, "\n")
		for state, setup := range lockStates {
			for _, args := range lockArgs {
				prepare := func() {
					commands.do("FLUSHALL")
					for _, cmd := range setup {
						commands.do(cmd...)
					}
				}
				prepare()
				want := client.do(append([]string{"EVAL", src, "3", "k1", "k2", "k3"}, args...)...)
				wantState := keyspace(commands)
				prepare()
				r := shared.RunScript(fsm.ScriptCall{Body: []byte(src), Keys: byteList([]string{"k1", "k2", "k3"}),
					Args: byteList(args), Do: commands.call, Proto: 2})
				if got := string(r.Append(nil, 2)); !sameButTime(got, want) {
					t.Errorf("%s, %s, %q: got %q, want %q", title, state, args, got, want)
				}
				if got := keyspace(commands); got != wantState {
					t.Errorf("%s, %s, %q: the script left the data %q, want %q", title, state, args, got, wantState)
				}
			}
		}
	}
}

// keyspace describes the data that the scripts may have changed, without times.
func keyspace(c *redisConn) string {
	var b strings.Builder
	for _, k := range []string{"k1", "k2", "k3", "k3:token", "lock-signal:a"} {
		for _, cmd := range []string{"TYPE", "GET", "HGETALL", "LLEN", "ZCARD"} {
			b.WriteString(c.do(cmd, k))
		}
		ttl, _ := strconv.Atoi(strings.Trim(c.do("PTTL", k), ":\r\n"))
		b.WriteString(strconv.FormatBool(ttl > 0))
	}
	return b.String()
}

// sameButTime reports whether two replies are equal, apart from remaining
// times: integers of at least 1000 may differ by up to 5000.
func sameButTime(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i] == y[i] {
			continue
		}
		m, err1 := strconv.Atoi(strings.TrimPrefix(x[i], ":"))
		n, err2 := strconv.Atoi(strings.TrimPrefix(y[i], ":"))
		if err1 != nil || err2 != nil || m < 1000 || m-n > 5000 || n-m > 5000 {
			return false
		}
	}
	return true
}
