package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// watched are commands whose lines in MONITOR are compared. Passwords and
// administrative commands must not appear.
var watched = []string{
	`SET k "v·\`, "get K", "GET", "FOO", "AUTH secret", "AUTH default secret", "HELLO 3", "HELLO 2 AUTH default secret SETNAME me", "CONFIG GET x", "CONFIG SET requirepass ”", "ACL SETUSER u >secret", "SELECT 3", "SET k 1", "MULTI", "INCR k", "PING", "GET k", "EXEC",
	"MULTI", "BAD", "EXEC", "MULTI", "EXEC", "MULTI", "GET k", "DISCARD", "PING", "CLIENT ID", "CLIENT KILL ID 99999", "SUBSCRIBE c", "UNSUBSCRIBE", "PUBLISH c x", "WATCH k", "BLPOP nolist 0.01", "GET k extra", "OBJECT NOSUB", "OBJECT ENCODING k", "SHUTDOWN x", "LPUSH l 2 1", "SORT l", "SORT l STORE m", "INFO nope",
	"SLOWLOG LEN", "MEMORY USAGE k", "RESET", "COMMAND COUNT", "ROLE", "ECHO ”", "SET k \x00\x01\a\b\t\n\v\f\r\x1b\x7f\xff'", "QUIT",
}

// TestMonitor_Lines requires the same lines from Redis and from Holdfast.
func TestMonitor_Lines(t *testing.T) {
	t.Parallel()
	lines := func(m, c, last *client) (out []string) {
		m.expect("MONITOR", "+OK")
		for _, line := range watched {
			c.do(line)
		}
		last.do("ECHO end")
		for {
			line, err := m.reply()
			if err != nil {
				t.Fatal(err)
			}
			line = shown.ReplaceAllString(line, "now [$1]")
			if out = append(out, line); strings.Contains(line, `"end"`) {
				return out
			}
		}
	}
	socket := redis(t)
	theirs := func() *client { return connect(t, "unix", socket) }
	s := serve(t, newFake(t))
	want := lines(theirs(), theirs(), theirs())
	got := lines(dial(t, s), dial(t, s), dial(t, s))
	for i := range max(len(want), len(got)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Fatalf("line %d:\n got %q\nwant %q", i, g, w)
		}
	}
	if all := strings.Join(got, ""); strings.Contains(all, "secret") {
		t.Errorf("the MONITOR stream contains a password: %s", all)
	}
}

// TestMonitor_Slow checks that a MONITOR client that does not read is
// disconnected, and delays no other client.
func TestMonitor_Slow(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(t), func(c *resp.Config) { c.Limits.PushHard = 1 << 20 })
	m, c := dial(t, s), dial(t, s)
	m.expect("MONITOR", "+OK")
	line := "SET k " + strings.Repeat("x", 64<<10)
	testutil.Eventually(t, "the reader to be cut off", func() bool {
		c.expect(line, "+OK")
		return metric(t, s, "holdfast_pubsub_cut_off_total") == 1
	})
	c.expect("SET k v", "+OK")
}

// TestMonitor_Long checks that the lines of long commands are truncated.
func TestMonitor_Long(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(t))
	m, c := dial(t, s), dial(t, s)
	m.expect("MONITOR", "+OK")
	words := []string{"DEL"}
	for range 64 {
		words = append(words, strings.Repeat("\xff", 100<<10))
	}
	c.expect(strings.Join(words[:20], " "), ":0", "SET k "+strings.Repeat("\xff", 1<<20), "+OK")
	for _, end := range []string{`more arguments)"`, `more bytes)"`} {
		got, err := m.reply()
		if err != nil || len(got) > 4<<20 || !strings.HasSuffix(got, end+"\n") {
			t.Errorf("got a line of %d bytes, %v, that ends with %.60q, want at most 4 MiB and a note of the omitted part", len(got), err, got[max(0, len(got)-60):])
		}
	}
}

// TestSlowlog compares the arguments and the names of clients in the entries of
// the slow log with those of Redis.
func TestSlowlog(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	script := []string{
		"CONFIG SET slowlog-log-slower-than 0", "SLOWLOG RESET", "SET k " + long, "MGET " + strings.Join(keys, " "), "MGET " + strings.Join(keys[:31], " "), "MGET " + strings.Join(keys[:32], " "), "AUTH default secret", "HELLO 2 AUTH default secret", "ACL SETUSER u >secret", "CONFIG SET requirepass ”",
		"NOCMD", "GET", "MULTI", "GET k", "EXEC", "CLIENT SETNAME me", "PING",
	}
	entries := func(c *client) []string {
		for _, line := range script {
			c.do(line)
		}
		c.expect("CONFIG SET slowlog-log-slower-than -1", "+OK", "SET k v", "+OK")
		text := c.do("SLOWLOG GET -1")
		var out []string
		for _, e := range strings.Split(text, "*6\n")[1:] {
			lines := strings.Split(e, "\n") // id, second, duration, arguments, address, name
			n := 0
			fmt.Sscanf(lines[3], "*%d", &n)
			out = append(out, strings.Join(lines[3:4+2*n], "\n")+lines[len(lines)-2])
		}
		c.expect("SLOWLOG GET 0", "*0", "CONFIG SET slowlog-max-len 3", "+OK", "SLOWLOG RESET", "+OK", "SLOWLOG LEN", ":0", "CONFIG SET slowlog-log-slower-than 0", "+OK")
		for range 5 {
			c.do("PING")
		}
		c.expect("SLOWLOG LEN", ":3", "CONFIG SET slowlog-max-len 1", "+OK", "CONFIG SET slowlog-log-slower-than -1", "+OK", "SLOWLOG LEN", ":1")
		return out
	}
	want := entries(connect(t, "unix", redis(t)))
	got := entries(dial(t, serve(t, newFake(t))))
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\n\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSlowlog_Pipeline checks that a pipeline that is executed as one group makes
// one entry in the slow log.
func TestSlowlog_Pipeline(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, newFake(t)))
	c.expect("CONFIG SET slowlog-log-slower-than 0", "+OK", "SLOWLOG RESET", "+OK")
	c.send("SET a 1", "SET b 2", "SET c 3")
	c.want("+OK", "+OK", "+OK")
	if got := c.do("SLOWLOG GET 1"); !strings.Contains(got, "*4\n$3\nSET\n$1\na\n$1\n1\n$37\n... (2 more commands of the pipeline)\n") {
		t.Errorf("SLOWLOG GET returned %q, want one entry with a note about 2 more commands", got)
	}
}

func TestLatency_Events(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, newFake(t)))
	c.expect("DEBUG SLEEP 0.02", "+OK", "LATENCY LATEST", "*0", "CONFIG SET latency-monitor-threshold 10", "+OK", "DEBUG SLEEP 0.02", "+OK")
	var second, ms, most int
	if _, err := fmt.Sscanf(c.do("LATENCY LATEST"), "*1\n*4\n$7\ncommand\n:%d\n:%d\n:%d\n", &second, &ms, &most); err != nil || ms < 20 || most < ms {
		t.Errorf("LATENCY LATEST: second %d, latest %d ms, maximum %d ms, error %v, want at least 20 ms", second, ms, most, err)
	}
	c.expect("LATENCY HISTORY command", fmt.Sprintf("*1\n*2\n:%d\n:%d", second, ms), "LATENCY HISTORY fast-command", "*0")
	if got := c.do("LATENCY GRAPH command"); !strings.Contains(got, fmt.Sprintf("command - high %d ms, low %d ms (all time high %d ms)\n", ms, ms, most)) {
		t.Errorf("LATENCY GRAPH returned %q, want the high and the low of the sample", got)
	}
	if got := c.do("LATENCY DOCTOR"); !strings.Contains(got, "command: 1 seconds with events") {
		t.Errorf("LATENCY DOCTOR returned %q, want one second with events", got)
	}
	c.expect("LATENCY RESET other", ":0", "LATENCY RESET other command", ":1", "LATENCY LATEST", "*0")
}

// TestMemory_Stats requires Redis' names in Redis' order.
func TestMemory_Stats(t *testing.T) {
	t.Parallel()
	names := func(c *client) string {
		c.do("HELLO 3")
		c.expect("FLUSHALL", "+OK")
		p := &parser{t: t, lines: strings.Split(c.do("MEMORY STATS"), "\n")}
		var out []string
		for range p.count() {
			out = append(out, p.text())
			p.skip()
		}
		return strings.Join(out, " ")
	}
	want := names(connect(t, "unix", redis(t)))
	c := dial(t, serve(t, newFake(t)))
	if got := names(c); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, line := range []string{"MEMORY DOCTOR", "MEMORY MALLOC-STATS"} {
		if got := c.do(line); !strings.HasPrefix(got, "=") {
			t.Errorf("%s returned %q, want a verbatim string", line, got)
		}
	}
}

// TestShutdown checks that SHUTDOWN asks the program to stop. The connection gets
// no reply, ends with the server, and does not delay Stop.
func TestShutdown(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 2)
	s := serve(t, newFake(t), func(c *resp.Config) { c.Shutdown = func() { asked <- struct{}{} } })
	a, b := dial(t, s), dial(t, s)
	a.expect("SHUTDOWN FOO", "-ERR syntax error", "SHUTDOWN ABORT", "-ERR No shutdown in progress.")
	a.send("SHUTDOWN NOSAVE NOW FORCE", "PING")
	<-asked
	b.expect("PING", "+PONG")
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	a.wantEOF()
}
