package script_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/script"
	"github.com/holdfast-kv/holdfast/fsm"
)

// lockScript is a script that a lock library sends, byte for byte.
type lockScript struct{ Library, SHA1, Script string }

func lockScripts(tb testing.TB) []lockScript {
	tb.Helper()
	b, err := os.ReadFile("testdata/locks.json")
	if err != nil {
		tb.Fatal(err)
	}
	var list []lockScript
	if err := json.Unmarshal(b, &list); err != nil {
		tb.Fatal(err)
	}
	return list
}

func TestSHA1_NamesLockScripts(t *testing.T) {
	for _, l := range lockScripts(t) {
		if text := shared.CompileScript([]byte(l.Script)); text != "" {
			t.Errorf("%s: %s", l.Library, text)
		}
		if got, want := script.SHA1([]byte(l.Script)), l.SHA1; got != want {
			t.Errorf("%s: got %s, want %s", l.Library, got, want)
		}
	}
}

// lockStates are what a lock script may find.
var lockStates = map[string][][]string{
	"free":       nil,
	"ours":       {{"SET", "k1", "token"}, {"SET", "k2", "token"}},
	"ours, ttl":  {{"SET", "k1", "token", "PX", "60000"}},
	"theirs":     {{"SET", "k1", "stranger", "PX", "60000"}},
	"a hash":     {{"HSET", "k1", "token", "2"}},
	"once":       {{"HSET", "k1", "token", "1"}},
	"their hash": {{"HSET", "k1", "stranger", "1"}, {"PEXPIRE", "k1", "60000"}},
	"latch":      {{"HSET", "k1", "token", "1"}, {"SET", "k3", "1"}},
	"python":     {{"SET", "lock:a", "x"}, {"SET", "lock:b", "y"}},
}

var lockArgs = [][]string{
	{"token", "10000", "token", "publish", "5000"},
	{"token", "3000", "10000", "publish", "5000"},
	{"token", "10000", "yes", "publish", "5000"},
	{"10000", "token", "token", "publish", "5000"},
	{"token", "10000", "0", "publish", "5000"},
}

// Lock scripts answer and do what they answer and do on a real Redis.
func TestRun_LockScriptsAsOnRedis(t *testing.T) {
	server := startRedis(t)
	commands, client := server.dial(t, 3), server.dial(t, 2)
	for _, l := range lockScripts(t) {
		for state, setup := range lockStates {
			for _, args := range lockArgs {
				prepare := func() {
					commands.do("FLUSHALL")
					for _, cmd := range setup {
						commands.do(cmd...)
					}
				}
				prepare()
				want := client.do(append([]string{"EVAL", l.Script, "3", "k1", "k2", "k3"}, args...)...)
				wantState := keyspace(commands)
				prepare()
				r := shared.RunScript(fsm.ScriptCall{Body: []byte(l.Script), Keys: byteList([]string{"k1", "k2", "k3"}),
					Args: byteList(args), Do: commands.call, Proto: 2})
				if got := string(r.Append(nil, 2)); !sameButTime(got, want) {
					t.Errorf("%s, %s, %q: got %q, want %q", l.Library, state, args, got, want)
				}
				if got := keyspace(commands); got != wantState {
					t.Errorf("%s, %s, %q: left %q, want %q", l.Library, state, args, got, wantState)
				}
			}
		}
	}
}

// keyspace describes what the scripts may have changed, without times.
func keyspace(c *redisConn) string {
	var b strings.Builder
	for _, k := range []string{"k1", "k2", "k3", "lock:a", "lock-signal:a"} {
		b.WriteString(c.do("TYPE", k))
		b.WriteString(c.do("GET", k))
		b.WriteString(c.do("HGETALL", k))
		ttl, _ := strconv.Atoi(strings.Trim(c.do("PTTL", k), ":\r\n"))
		b.WriteString(strconv.FormatBool(ttl > 0))
	}
	return b.String()
}

// sameButTime compares two replies; remaining times may differ by what passed.
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
