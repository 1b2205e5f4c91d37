package resp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

func TestTransaction(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	c.expect(
		"MULTI", "+OK", "SET a 1", "+QUEUED", "INCR a", "+QUEUED", "GET zz", "+QUEUED", "EXEC", "*3\n+OK\n:2\n$-1",
		"MULTI", "+OK", "EXEC", "*0",
		"EXEC", "-ERR EXEC without MULTI",
		"DISCARD", "-ERR DISCARD without MULTI",
		"MULTI", "+OK", "MULTI", "-ERR MULTI calls can not be nested", "WATCH a", "-ERR WATCH inside MULTI is not allowed",
		"SET a 5", "+QUEUED", "DISCARD", "+OK", "GET a", "$1\n2",
		// A runtime error is the reply of its own command and undoes nothing.
		"MULTI", "+OK", "SET a x", "+QUEUED", "INCR a", "+QUEUED", "SET b 2", "+QUEUED",
		"EXEC", "*3\n+OK\n-ERR value is not an integer or out of range\n+OK",
	)
}

func TestTransaction_Poisoned(t *testing.T) {
	for _, bad := range []struct{ line, reply string }{
		{"SET a", "-ERR wrong number of arguments for 'set' command"},
		{"NOPE", "-ERR unknown command 'NOPE', with args beginning with: "},
		{"PING 1 2 3", "+QUEUED"},
		{"CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP."},
		{"CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command"},
		{"OBJECT FOO x", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP."},
		{"OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"},
		{"SAVE", "-ERR Command not allowed inside a transaction"},
		{"CLIENT REPLY OFF", "-ERR Command not allowed inside a transaction"},
	} {
		c := dial(t, serve(t, newFake(t)))
		c.expect("MULTI", "+OK", bad.line, bad.reply, "SET b 2", "+QUEUED")
		want := "-EXECABORT Transaction discarded because of previous errors."
		if bad.reply == "+QUEUED" {
			want = "*2\n-ERR wrong number of arguments for 'ping' command\n+OK"
		}
		c.expect("EXEC", want, "PING", "+PONG", "MULTI", "+OK", "PING", "+QUEUED", "EXEC", "*1\n+PONG")
	}
}

func TestTransaction_TooLarge(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	c.expect("MULTI", "+OK")
	big := strings.Repeat("x", 1<<20)
	for range 7 {
		c.expect("SET k "+big, "+QUEUED")
	}
	c.expect("SET k "+big, "-ERR transaction is larger than 8 MiB", "EXEC", "-EXECABORT Transaction discarded because of previous errors.", "EXISTS k", ":0")
}

func TestTransaction_SessionCommandsInPlace(t *testing.T) {
	f := newFake(t)
	c := dial(t, serve(t, f))
	c.expect("SET a zero", "+OK")
	c.send("MULTI", "PING", "SET a 1", "SELECT 1", "SET a 2", "ECHO x", "GET a", "SELECT 99", "SELECT 0", "GET a", "CLIENT GETNAME", "EXEC", "GET a")
	c.want("+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED",
		"*10\n+PONG\n+OK\n+OK\n+OK\n$1\nx\n$1\n2\n-ERR DB index is out of range\n+OK\n$1\n1\n$-1", "$1\n1")
	// Commands that concern only the connection need no cluster.
	n := len(f.groups())
	c.expect("MULTI", "+OK", "PING", "+QUEUED", "SELECT 3", "+QUEUED", "EXEC", "*2\n+PONG\n+OK")
	if got := len(f.groups()); got != n {
		t.Errorf("a transaction without commands on data made %d groups, want none", got-n)
	}
	if info := c.do("CLIENT INFO"); !strings.Contains(info, " db=3 ") {
		t.Errorf("SELECT in the transaction had no effect after it, want database 3: %s", info)
	}
}

// TestTransaction_UsesExecutorInPlace runs a connection command inside a
// transaction. The command runs a group of its own. After that group, the
// replies of the transaction must still be available.
func TestTransaction_UsesExecutorInPlace(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	c.send("SET key 12345", "MULTI", "GET key", "MEMORY USAGE key", "GET key", "EXEC")
	c.want("+OK", "+OK", "+QUEUED", "+QUEUED", "+QUEUED", "*3\n$5\n12345\n:168\n$5\n12345")
}

func TestWatch(t *testing.T) {
	s := serve(t, newFake(t))
	c, other := dial(t, s), dial(t, s)
	for _, proto := range []struct{ hello, broken string }{{"HELLO 2", "*-1"}, {"HELLO 3", "_"}} {
		c.do(proto.hello)
		c.expect("SET a 1", "+OK", "WATCH a", "+OK")
		other.expect("SET a 1", "+OK") // SET with the same value counts as a change too
		c.expect("MULTI", "+OK", "PING", "+QUEUED", "SET a 2", "+QUEUED", "EXEC", proto.broken)
		// EXEC has removed the watch.
		c.expect("MULTI", "+OK", "PING", "+QUEUED", "SET a 3", "+QUEUED", "EXEC", "*2\n+PONG\n+OK")
		// The transaction contains only connection commands.
		c.expect("WATCH a", "+OK")
		other.expect("SET a 9", "+OK")
		c.expect("MULTI", "+OK", "PING", "+QUEUED", "EXEC", proto.broken)
		c.expect("WATCH a", "+OK", "MULTI", "+OK", "PING", "+QUEUED", "EXEC", "*1\n+PONG")
		for _, forget := range []string{"UNWATCH", "RESET"} {
			c.expect("WATCH a", "+OK")
			other.expect("SET a 4", "+OK")
			if r := c.do(forget); r != "+OK\n" && r != "+RESET\n" {
				t.Fatalf("%s returned %q, want OK or RESET", forget, r)
			}
			c.do(proto.hello)
			c.expect("MULTI", "+OK", "SET a 5", "+QUEUED", "EXEC", "*1\n+OK")
		}
		c.expect("WATCH a", "+OK", "MULTI", "+OK", "DISCARD", "+OK")
		other.expect("SET a 6", "+OK")
		c.expect("MULTI", "+OK", "SET a 7", "+QUEUED", "EXEC", "*1\n+OK")
		// The key is in another database.
		c.expect("SELECT 1", "+OK", "WATCH a", "+OK", "SELECT 0", "+OK")
		other.expect("SET a 8", "+OK")
		c.expect("MULTI", "+OK", "SET a 7", "+QUEUED", "EXEC", "*1\n+OK")
		// The connection changes a key itself, and watches many keys.
		c.expect("WATCH b c a d", "+OK", "SET a own", "+OK", "MULTI", "+OK", "SET a 7", "+QUEUED", "EXEC", proto.broken)
	}
}

func TestWatch_TooMany(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	keys := strings.Repeat(" k", 40000)
	c.expect("WATCH"+keys, "+OK", "WATCH"+keys, "-ERR too many watched keys", "UNWATCH", "+OK", "WATCH"+keys, "+OK")
}

// TestPipeline_Order mixes commands on data and connection commands. The
// replies must be in the order of the commands.
func TestPipeline_Order(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	var lines, replies []string
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("SET k%d v%d", i, i), fmt.Sprintf("ECHO %d", i), fmt.Sprintf("GET k%d", i), "NOPE", "SET x")
		v, e := fmt.Sprintf("v%d", i), fmt.Sprint(i)
		replies = append(replies, "+OK", fmt.Sprintf("$%d\n%s", len(e), e), fmt.Sprintf("$%d\n%s", len(v), v),
			"-ERR unknown command 'NOPE', with args beginning with: ", "-ERR wrong number of arguments for 'set' command")
	}
	c.send(lines...)
	c.want(replies...)
}

func TestPipeline_ProtocolSwitch(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	hello := func(proto int) string {
		if proto == 3 {
			return "%7\n$6\nserver\n$5\nredis\n$7\nversion\n$6\n7.0.15\n$5\nproto\n:3\n$2\nid\n:1\n$4\nmode\n$10\nstandalone\n$4\nrole\n$6\nmaster\n$7\nmodules\n*0"
		}
		return "*14\n$6\nserver\n$5\nredis\n$7\nversion\n$6\n7.0.15\n$5\nproto\n:2\n$2\nid\n:1\n$4\nmode\n$10\nstandalone\n$4\nrole\n$6\nmaster\n$7\nmodules\n*0"
	}
	c.send("GET a", "HELLO 3", "GET a", "MGET a b", "HELLO", "HELLO 2", "GET a", "HELLO 3", "RESET", "GET a",
		"MULTI", "GET a", "HELLO 3", "GET b", "EXEC", "GET a")
	c.want("$-1", hello(3), "_", "*2\n_\n_", hello(3), hello(2), "$-1", hello(3), "+RESET", "$-1",
		"+OK", "+QUEUED", "+QUEUED", "+QUEUED", "*3\n$-1\n"+hello(3)[:0]+"*14\n"+hello(3)[3:]+"\n$-1", "_")
}

func TestPipeline_QuitDropsTheRest(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	c := dial(t, s)
	c.send("SET a 1", "QUIT", "SET a 2", "PING")
	c.want("+OK", "+OK")
	c.wantEOF()
	dial(t, s).expect("GET a", "$1\n1")
	c = dial(t, s)
	c.send("MULTI", "SET a 3", "QUIT", "EXEC")
	c.want("+OK", "+QUEUED", "+OK")
	c.wantEOF()
	dial(t, s).expect("GET a", "$1\n1")
}

// TestPipeline_Groups checks that a group ends at a connection command, and that it
// has at most 1024 commands and about 64 KiB.
func TestPipeline_Groups(t *testing.T) {
	repeat := func(n int, line string) (lines []string) {
		for range n {
			lines = append(lines, line)
		}
		return lines
	}
	f := newFake(t)
	s := serve(t, f)
	for name, tc := range map[string]struct {
		lines []string
		most  int // maximum number of operations of one group
		least int // minimum number of groups
	}{
		"one":                   {repeat(100, "SET k v"), 100, 1},
		"by count":              {repeat(3000, "SET k v"), 1024, 3},
		"by bytes":              {repeat(100, "SET k "+strings.Repeat("x", 10000)), 7, 15},
		"by connection command": {append(repeat(10, "SET k v"), append([]string{"PING"}, repeat(10, "SET k v")...)...), 10, 2},
	} {
		before := len(f.groups())
		c := dial(t, s)
		c.send(tc.lines...)
		for range tc.lines {
			if _, err := c.reply(); err != nil {
				t.Fatal(err)
			}
		}
		groups := f.groups()[before:]
		for _, n := range groups {
			if n > tc.most {
				t.Errorf("%s: a group has %d operations, want at most %d", name, n, tc.most)
			}
		}
		if len(groups) < tc.least {
			t.Errorf("%s: %d groups, want at least %d", name, len(groups), tc.least)
		}
	}
}

// TestPipeline_Splitting checks that small reads and writes share a group.
// After a group that writes and has large replies, reads and writes must be in
// separate groups for a while: see splitting.
func TestPipeline_Splitting(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	mixed := []string{"SET k v", "RPUSH l 1", "LRANGE l 0 0", "GET k", "HGETALL h", "SET k v", "GET k"}
	c := dial(t, s)
	sizes := func(lines []string) string {
		before := len(f.groups())
		c.send(lines...)
		for range lines {
			if _, err := c.reply(); err != nil {
				t.Fatal(err)
			}
		}
		return fmt.Sprint(f.groups()[before:])
	}
	for _, step := range []struct {
		what  string
		lines []string
		want  string
	}{
		{"small", mixed, "[7]"},
		{"a large reply", []string{"SET big " + strings.Repeat("x", 200_000), "GET big", "GET big"}, "[1 2]"}, // limited by bytes
		{"large replies and a write", []string{"SET k v", "GET big", "GET big"}, "[3]"},
		{"after them", mixed, "[2 3 1 1]"},
		{"later", slices.Repeat([]string{"SET k v", "GET k"}, 70), "[" + strings.Repeat("1 ", 123) + "17]"},
		{"later still", mixed, "[7]"},
	} {
		if got := sizes(step.lines); got != step.want {
			t.Errorf("%s: groups of %s operations, want %s", step.what, got, step.want)
		}
	}
	c = dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK")
	// With tracking, the group of the reads also contains the operation that
	// returns the log index.
	if got := sizes([]string{"SET other v", "LRANGE l 0 0", "GET k", "SET other v"}); got != "[1 3 1]" {
		t.Errorf("costly reads that are tracked: groups of %s operations, want [1 3 1]", got)
	}
	if got := sizes([]string{"SET other v", "STRLEN k", "SET other v"}); got != "[3]" {
		t.Errorf("cheap reads that are tracked: groups of %s operations, want [3]", got)
	}
}

func TestClientReply(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  []string
	}{
		"off":            {[]string{"CLIENT REPLY OFF", "SET a 1", "PING", "NOPE", "GET a", "CLIENT REPLY ON", "GET a"}, []string{"+OK", "$1\n1"}},
		"skip":           {[]string{"CLIENT REPLY SKIP", "SET a 2", "GET a", "PING"}, []string{"$1\n2", "+PONG"}},
		"skip a PING":    {[]string{"CLIENT REPLY SKIP", "PING", "PING", "GET a"}, []string{"+PONG", "$1\n2"}},
		"skip an error":  {[]string{"CLIENT REPLY SKIP", "NOPE", "PING"}, []string{"+PONG"}},
		"skip twice":     {[]string{"CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "GET a", "PING"}, []string{"+PONG"}},
		"skip then on":   {[]string{"CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING"}, []string{"+OK", "+PONG"}},
		"skip then off":  {[]string{"CLIENT REPLY SKIP", "CLIENT REPLY OFF", "PING", "CLIENT REPLY ON"}, []string{"+OK"}},
		"skip while off": {[]string{"CLIENT REPLY OFF", "CLIENT REPLY SKIP", "PING", "PING", "CLIENT REPLY ON"}, []string{"+OK"}},
		"skip in a row":  {[]string{"SET a 3", "CLIENT REPLY SKIP", "SET a 4", "SET a 5", "GET a"}, []string{"+OK", "+OK", "$1\n5"}},
		"skip a MULTI":   {[]string{"CLIENT REPLY SKIP", "MULTI", "GET a", "EXEC"}, []string{"+QUEUED", "*1\n$1\n5"}},
		"reset":          {[]string{"CLIENT REPLY OFF", "RESET", "PING"}, []string{"+RESET", "+PONG"}},
		"bad":            {[]string{"CLIENT REPLY FOO"}, []string{"-ERR syntax error"}},
		"quit while off": {[]string{"CLIENT REPLY OFF", "QUIT"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			s := serve(t, f)
			dial(t, s).expect("SET a "+map[bool]string{true: "5", false: "2"}[name == "skip a MULTI"], "+OK")
			c := dial(t, s)
			c.send(tc.lines...)
			c.want(tc.want...)
			if name == "quit while off" {
				c.wantEOF()
				return
			}
			// The same commands, each in a packet of its own.
			d := dial(t, s)
			for _, line := range tc.lines {
				d.send(line)
			}
			d.want(tc.want...)
			if name != "bad" {
				d.expect("CLIENT REPLY ON", "+OK")
			}
		})
	}
}

func TestReset(t *testing.T) {
	f := newFake(t)
	c := dial(t, serve(t, f))
	c.do("HELLO 3 SETNAME bob")
	c.expect("SELECT 4", "+OK", "READONLY", "+OK", "CLIENT SETINFO LIB-NAME lib", "+OK", "CLIENT NO-EVICT ON", "+OK", "WATCH a", "+OK", "MULTI", "+OK", "SET a 1", "+QUEUED",
		"RESET", "+RESET", "EXEC", "-ERR EXEC without MULTI", "CLIENT GETNAME", "$-1", "GET a", "$-1")
	info := c.do("CLIENT INFO")
	for _, want := range []string{" name= ", " db=0 ", " resp=2 ", " multi=-1 ", " flags=N ", " lib-name=lib "} {
		if !strings.Contains(info, want) {
			t.Errorf("after RESET, CLIENT INFO lacks %q: %s", want, info)
		}
	}
}

func TestReadonly(t *testing.T) {
	f := newFake(t)
	c := dial(t, serve(t, f))
	c.expect("GET a", "$-1", "READONLY", "+OK", "GET a", "$-1", "WATCH a", "+OK",
		"GET a", "$-1", "MULTI", "+OK", "GET a", "+QUEUED", "EXEC", "*1\n$-1", "GET a", "$-1", "READWRITE", "+OK", "GET a", "$-1")
	f.mu.Lock()
	defer f.mu.Unlock()
	if got, want := fmt.Sprint(f.locals), "[false true false false false true false]"; got != want {
		t.Errorf("the groups were local: %v, want %v (no group is local between WATCH and EXEC)", got, want)
	}
}

func TestErrors(t *testing.T) {
	f := newFake(t)
	var failure atomic.Pointer[error]
	f.before = func(*fsm.Group) error {
		if p := failure.Load(); p != nil {
			return *p
		}
		return nil
	}
	c := dial(t, serve(t, f))
	for _, tc := range []struct {
		err  error
		text string
	}{
		{outcome.ErrNoLeader, "-CLUSTERDOWN no leader, the command was not executed"},
		{fmt.Errorf("call: %w", outcome.ErrUnknown), "-UNKNOWN outcome of the command is unknown, read the key before you try again"},
	} {
		failure.Store(&tc.err)
		c.send("SET a 1", "GET a", "PING", "MULTI", "GET a", "EXEC", "WATCH a", "MULTI", "PING", "EXEC", "GET a")
		c.want(tc.text, tc.text, "+PONG", "+OK", "+QUEUED", tc.text, tc.text, "+OK", "+QUEUED", "*1\n+PONG", tc.text)
	}
}

// TestErrors_Unclassified checks the replies for an error that does not state
// an outcome. For a group with writes, the reply says that the outcome is
// unknown. For a read, the reply contains that error.
func TestErrors_Unclassified(t *testing.T) {
	f := newFake(t)
	f.before = func(*fsm.Group) error { return errors.New("line\r\nbreak") }
	c := dial(t, serve(t, f))
	c.send("SET a 1", "PING", "GET a", "WATCH a")
	c.want("-UNKNOWN outcome of the command is unknown, read the key before you try again", "+PONG", "-ERR line  break", "-ERR line  break")
}

// TestPanic checks that a panic in one connection does not affect the other
// connections.
func TestPanic(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	f.before = func(g *fsm.Group) error {
		if strings.Contains(string(g.Bytes()), "boom") {
			panic("a mistake")
		}
		return nil
	}
	c, other := dial(t, s), dial(t, s)
	c.send("SET a 1", "PING", "GET boom", "SET a 2")
	c.want("+OK", "+PONG")
	c.wantEOF()
	other.expect("GET a", "$1\n1")
	dial(t, s).expect("PING", "+PONG")
}

// TestStop stops the server while a pipeline is under way. The pipeline is
// answered completely, and no other pipeline begins.
func TestStop(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	arrived, leave := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	f.before = func(*fsm.Group) error {
		if !once.Swap(true) {
			close(arrived)
			<-leave
		}
		return nil
	}
	c, idle := dial(t, s), dial(t, s)
	idle.expect("PING", "+PONG")
	c.send("SET a 1", "PING", "GET a")
	<-arrived
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := s.Stop(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop while a pipeline runs returned %v, want deadline exceeded", err)
	}
	idle.send("SET a 2")
	idle.wantEOF()
	close(leave)
	if err := s.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if err := s.Close(); err != nil { // Close loses no reply, because all replies have been sent
		t.Errorf("Close: %v", err)
	}
	c.want("+OK", "+PONG", "$1\n1")
	c.wantEOF()
}

func TestStop_EndsSleepAndPause(t *testing.T) {
	s := serve(t, newFake(t))
	sleeper, pauser, paused := dial(t, s), dial(t, s), dial(t, s)
	sleeper.send("DEBUG SLEEP 60")
	testutil.Eventually(t, "the sleeper to sleep", func() bool { return strings.Contains(pauser.do("CLIENT LIST"), "cmd=debug ") })
	pauser.expect("CLIENT PAUSE 60000 WRITE", "+OK")
	paused.send("SET a 1")
	testutil.Eventually(t, "the SET to wait for the end of the pause", func() bool { return strings.Contains(pauser.do("CLIENT LIST"), "cmd=set ") })
	if err := s.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	sleeper.want("+OK")
	paused.wantMaybe("+OK")
}

// wantMaybe expects either the given reply or the end of the connection.
func (c *client) wantMaybe(want string) {
	c.t.Helper()
	if got, err := c.reply(); err == nil && got != want+"\n" || err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatalf("got %q, %v, want either the given reply or the end of the connection", got, err)
	}
}

func TestAuth(t *testing.T) {
	s := serve(t, newFake(t), withPassword("secret"))
	const noauth = "-NOAUTH Authentication required."
	c := dial(t, s)
	for _, cmd := range append(resp.ConnectionCommands(), rowsOf(command.NewTable())...) {
		switch cmd.Name {
		case "auth", "hello", "quit", "reset":
			continue
		}
		want := noauth
		if cmd.Name == "exec" {
			want = "-EXECABORT Transaction discarded because of: " + noauth[1:]
		}
		for n := 1; n < 6; n++ {
			line := strings.TrimSpace(cmd.Name + " " + strings.Repeat("x ", n-1))
			switch got := c.do(line); {
			case got == want+"\n":
			case strings.Contains(got, "ERR unknown subcommand 'x'"):
			case strings.HasPrefix(got, "-ERR unknown command") && cmd.Flags&fsm.Internal != 0:
			case strings.Contains(got, "ERR wrong number of arguments for") && !cmd.ArityOK(n):
			case strings.Contains(got, "EXECABORT Transaction discarded because of: wrong number") && !cmd.ArityOK(n):
			default:
				t.Errorf("%s before AUTH: got %q, want NOAUTH", line, got)
			}
		}
	}
	c.expect("NOPE", "-ERR unknown command 'NOPE', with args beginning with: ", "RESET", "+RESET", "GET a", noauth,
		"HELLO 3", "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
		"AUTH a b c", "-ERR syntax error",
		"AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.",
		"AUTH secret", "+OK", "GET a", "$-1",
		"AUTH default secret", "+OK", "AUTH nobody secret", "-WRONGPASS invalid username-password pair or user is disabled.", "GET a", "$-1",
		"RESET", "+RESET", "GET a", noauth)
	d := dial(t, s)
	if r := d.do("HELLO 3 AUTH default secret SETNAME bob"); !strings.HasPrefix(r, "%7\n") {
		t.Errorf("HELLO with AUTH: got %q, want a map of 7 entries", r)
	}
	d.expect("CLIENT GETNAME", "$3\nbob", "GET a", "_")
	e := dial(t, s)
	e.expect("HELLO 3 AUTH default wrong", "-WRONGPASS invalid username-password pair or user is disabled.", "PING", noauth, "QUIT", "+OK")
	e.wantEOF()
	// The result of AUTH applies to the commands after it in the same pipeline.
	g := dial(t, s)
	g.send("GET a", "AUTH secret", "GET a")
	g.want(noauth, "+OK", "$-1")
}

func rowsOf(table *fsm.Table) (rows []fsm.Command) {
	for _, cmd := range table.Rows() {
		rows = append(rows, *cmd)
	}
	return rows
}

func TestAuth_NoPassword(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	c.expect("AUTH x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
		"AUTH default x", "+OK", "AUTH nobody x", "-WRONGPASS invalid username-password pair or user is disabled.",
		"CONFIG SET requirepass new", "+OK", "GET a", "$-1", "AUTH new", "+OK", "ACL LIST",
		"*1\n$93\nuser default on #11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437 ~* &* +@all")
}

// TestPipeline_AfterLargeCommand runs commands after a large group. The
// connection has then released the buffer of that group, so the next group
// begins in a new buffer.
func TestPipeline_AfterLargeCommand(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	c.expect("SET a "+strings.Repeat("x", 300<<10), "+OK", "SET a 1", "+OK", "GET a", "$1\n1")
}

// TestCompareRights checks commands that compare a value with an argument. They
// need the right to read the key, alone and in a transaction, and COMMAND
// reports this access.
func TestCompareRights(t *testing.T) {
	const denied = "-NOPERM this user has no permissions to access one of the keys used as arguments"
	s := serve(t, newFake(t))
	admin, c := dial(t, s), dial(t, s)
	admin.expect("ACL SETUSER w on nopass +@all %W~*", "+OK", "SET k secret", "+OK")
	c.expect("AUTH w any", "+OK", "SET k 1 IFEQ guess", denied, "SET k 1 IFNE guess", denied, "DELIFEQ k guess", denied,
		"DELEX k IFEQ guess", denied, "DELEX k IFNE guess", denied, "MULTI", "+OK", "DELIFEQ k guess", denied,
		"EXEC", "-EXECABORT Transaction discarded because of previous errors.", "DELEX k", ":1")
	flags := func(words ...string) string {
		return fmt.Sprintf("*1\n*2\n$1\nk\n*%d\n+%s", len(words), strings.Join(words, "\n+"))
	}
	admin.expect("COMMAND GETKEYSANDFLAGS SET k v IFEQ x", flags("RW", "access", "update"), "COMMAND GETKEYSANDFLAGS SET k v", flags("OW", "update"),
		"COMMAND GETKEYSANDFLAGS DELIFEQ k x", flags("RW", "access", "delete"), "COMMAND GETKEYSANDFLAGS DELEX k", flags("RM", "delete"),
		"COMMAND GETKEYSANDFLAGS DELEX k IFNE x", flags("RW", "access", "delete"))
}

// TestPipeline_Long checks that a long pipeline of writes is divided into large
// groups, although redcon reads only 4 KiB at a time. The commands must stay in
// order. A pipeline with long replies is divided into small groups: see
// conn.more.
func TestPipeline_Long(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	c := dial(t, s)
	var lines []string
	for i := range 20000 {
		lines = append(lines, fmt.Sprintf("SET k %d", i))
	}
	last := func(lines []string) (last string, groups []int) {
		before := len(f.groups())
		go c.send(lines...)
		for range lines {
			reply, err := c.reply()
			if err != nil {
				t.Fatal(err)
			}
			last = reply
		}
		return last, f.groups()[before:]
	}
	reply, groups := last(append(lines, "GET k"))
	if want := "$5\n19999\n"; reply != want {
		t.Errorf("got %q, want %q", reply, want)
	}
	// Without conn.more, the pipeline would be divided into more than 150 groups.
	if len(groups) > 75 {
		t.Errorf("the pipeline made %d groups, want at most 75", len(groups))
	}
	c.expect("SET v "+strings.Repeat("x", 100), "+OK")
	lines = nil
	for range 2000 {
		lines = append(lines, "SET k v", "GET v")
	}
	_, groups = last(lines)
	if most := slices.Max(groups); most > 300 {
		t.Errorf("a group has %d operations although their replies are long, want smaller groups", most)
	}
}

// TestPipeline_LargeCommands mixes small commands with commands that are about
// as large as a group may be. All of them must succeed.
func TestPipeline_LargeCommands(t *testing.T) {
	f := newFake(t)
	c := dial(t, serve(t, f))
	c.expect("SET k v", "+OK")
	for round := range 20 {
		var lines []string
		for range 6 {
			lines = append(lines, "SET k "+strings.Repeat("x", 60000+round*1000))
			for i := range 5 {
				lines = append(lines, fmt.Sprintf("SET k %d", i))
			}
		}
		go c.send(lines...)
		for i := range lines {
			if reply, err := c.reply(); err != nil || reply != "+OK\n" {
				t.Fatalf("round %d, reply %d: got %q, %v, want OK", round, i, reply, err)
			}
		}
	}
}
