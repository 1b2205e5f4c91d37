package process_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// unlisted are the flags that docs/limits.md names and CONFIG GET holdfast-*
// does not print.
var unlisted = []string{"disk-reserve", "leader-wait", "maxmemory", "threads"}

// documentedLimits returns the flags in docs/limits.md, except the flags in the
// list unlisted.
func documentedLimits(t *testing.T) (flags []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`--([a-z-]+)`").FindAllSubmatch(text, -1) {
		flags = append(flags, string(m[1]))
	}
	slices.Sort(flags)
	return slices.DeleteFunc(slices.Compact(flags), func(f string) bool { return slices.Contains(unlisted, f) })
}

// TestLimits_Visible checks that each documented limit has its value in CONFIG
// GET, in INFO and in the metrics, and that docs/limits.md contains each flag
// that CONFIG GET holdfast-* prints.
func TestLimits_Visible(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1, Args: []string{"--max-patterns", "77", "--slow-read-wait", "1500ms"}})
	c.start()
	n := c.Nodes[0]
	got := settings(t, n, "holdfast-*")
	if got["holdfast-max-patterns"] != "77" || got["holdfast-slow-read-wait"] != "1.5s" {
		t.Errorf("CONFIG GET does not print the values of the flags: %v", got)
	}
	info := do(t, n, "INFO", "holdfast")
	_, metrics := fetch(t, n, "/metrics")
	flags := documentedLimits(t)
	for _, flag := range flags {
		value, ok := got["holdfast-"+flag]
		if !ok {
			t.Errorf("CONFIG GET does not print --%s", flag)
		}
		wantContains(t, "INFO", info, fmt.Sprintf("limit_%s:%s\r\n", strings.ReplaceAll(flag, "-", "_"), value))
		wantContains(t, "/metrics", metrics, fmt.Sprintf("holdfast_limit{flag=%q} ", flag))
	}
	for name := range got {
		if flag := strings.TrimPrefix(name, "holdfast-"); !slices.Contains(flags, flag) {
			t.Errorf("docs/limits.md does not contain --%s", flag)
		}
	}
}

// TestLimits_Errors checks the errors of limits that a single command can exceed.
func TestLimits_Errors(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 3, Args: []string{"--max-bulk-bytes", "2mb", "--max-write-time", "5ms",
		"--script-time", "100ms", "--max-slow-read-memory", "1mb",
		"--max-subscriptions", "4", "--max-patterns", "2", "--max-subscription-bytes", "20kb"}})
	c.start()
	writeSlowTexts(t, c.Nodes[0])
	for from := 0; from < 20_000; from += 1000 {
		members := []string{"SADD", "s"}
		for i := range 1000 {
			members = append(members, fmt.Sprint("member:", from+i))
		}
		want(t, c.Nodes[0], "(integer) 1000", members...)
	}
	want(t, c.Nodes[0], "(integer) 1000000", "SETRANGE", "long", "999999", "x")
	for _, tt := range []struct {
		reply string
		words []string
	}{
		{"ERR too many subscriptions: a connection may have 4 (--max-subscriptions)",
			[]string{"SUBSCRIBE", "a", "b", "c", "d", "e"}},
		{"ERR too many patterns: a connection may subscribe to 2 (--max-patterns)",
			[]string{"PSUBSCRIBE", "a", "b", "c"}},
		{"OOM the subscriptions and prefixes", []string{"SUBSCRIBE", strings.Repeat("x", 15_000)}},
		{"OOM slow reads need more than 1048576 bytes", []string{"LCS", "a", "b"}},
		{"BUSY the command or transaction would take about", []string{"ZUNIONSTORE", "copy", "2", "s", "t"}},
		{"BUSY the writes of the script would take longer",
			[]string{"EVAL", "redis.call('ZUNIONSTORE', 'c', 2, 's', 't')", "0"}},
		{"ERR script exceeded its time limit (100 ms)", []string{"EVAL", "while true do end", "0"}},
		{"ERR script is larger than 262144 bytes",
			[]string{"EVAL", "return 1 --" + strings.Repeat("x", 262144), "0"}},
		{"ERR script is larger than 262144 bytes",
			[]string{"FUNCTION", "LOAD", "#!lua name=l\n--" + strings.Repeat("x", 262144)}},
		{"ERR library is longer than 1 MiB",
			[]string{"FUNCTION", "LOAD", "#!lua name=l\n--" + strings.Repeat("x", 1<<20)}},
		{"ERR string exceeds maximum allowed size", []string{"SET", strings.Repeat("k", 512<<10+1), "v"}},
		{"ERR string exceeds maximum allowed size", []string{"HSET", "h", strings.Repeat("k", 512<<10+1), "v"}},
		{"ERR string exceeds maximum allowed size", []string{"SETRANGE", "long", fmt.Sprint(8 << 20), "v"}},
		{"ERR Insufficient memory, transient memory for LCS", []string{"LCS", "long", "long"}},
		{"ERR more than 262144 elements with repetitions", []string{"SRANDMEMBER", "s", "-262145"}},
		{"ERR reply is larger than 50331648 bytes",
			append([]string{"MGET"}, slices.Repeat([]string{"long"}, 60)...)},
	} {
		for i, n := range c.Nodes[:2] {
			if got := do(t, n, tt.words...); !strings.HasPrefix(got, tt.reply) {
				t.Errorf("%.60q through node %d: %.200q, want %q", tt.words, i+1, got, tt.reply)
			}
		}
	}
}

// TestLimits_Guesses checks that guesses of a password on many connections are
// refused, and that the log and the metrics give the reason.
func TestLimits_Guesses(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1, Args: []string{"--requirepass", "secret"}})
	n := c.Nodes[0]
	start(t, n)
	connect := func() *respwire.Conn {
		t.Helper()
		conn, err := eventually(t, n)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	const refusal = "ERR too many failed logins from this address, try again later"
	const wrong = "WRONGPASS invalid username-password pair or user is disabled."
	for range 20 { // without a delay
		if got := show(connect(), "AUTH", "carl", "guess"); got != wrong {
			t.Fatalf("AUTH: %q", got)
		}
	}
	var refused atomic.Int64
	var guesses sync.WaitGroup
	for range 12 {
		conn := connect()
		guesses.Go(func() {
			switch got := show(conn, "AUTH", "carl", "guess"); got {
			case wrong:
			case refusal:
				refused.Add(1)
				if got := show(conn, "PING"); !strings.Contains(got, "EOF") && !strings.Contains(got, "reset") {
					t.Errorf("the connection is still open: %q", got)
				}
			default:
				t.Errorf("AUTH: %q", got)
			}
		})
	}
	guesses.Wait()
	if refused.Load() == 0 {
		t.Error("no guess was refused")
	}
	wantContains(t, "the log", n.Output(), "login refused and connection closed: too many failed logins")
	_, metrics := fetch(t, n, "/metrics")
	wantContains(t, "/metrics", metrics,
		fmt.Sprintf("holdfast_client_refused_total{reason=\"failed_logins\"} %d\n", refused.Load()))
	as(t, n, "default", "secret")
}
