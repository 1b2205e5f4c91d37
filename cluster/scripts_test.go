package cluster_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/library"
)

// lines interprets a language with one command per line, which suffices for tests
// of package cluster. "spin" runs until it is interrupted. "spin once" spins only
// in the first run of a script on any node, and "spin twice" only in the first two
// runs. "nap" runs for longer than the first script
// budget. "panic" panics. "try" before a command ignores the command's error.
// In a library, "register f" begins a function.
type lines struct {
	runs     atomic.Int64
	spinning chan struct{} // gets a token when a script begins to spin
	spins    atomic.Int64
}

func newLines() *lines { return &lines{spinning: make(chan struct{}, 64)} }

// CompileScript implements fsm.ScriptRunner.
func (l *lines) CompileScript(body []byte) string {
	if bytes.HasPrefix(body, []byte("(")) {
		return "ERR Error compiling script"
	}
	return ""
}

// RunScript implements fsm.ScriptRunner.
func (l *lines) RunScript(call fsm.ScriptCall) fsm.Reply {
	l.runs.Add(1)
	reply, function := fsm.Null, ""
	for _, line := range strings.Split(string(call.Body), "\n") {
		text := ""
		if name, ok := strings.CutPrefix(line, "register "); ok {
			if function = name; call.Register != nil {
				call.Register(library.Function{Name: name})
			}
		}
		if strings.HasPrefix(line, "register ") || strings.HasPrefix(line, "#!") || call.Function != function {
			continue
		}
		switch line {
		case "spin":
			text = l.spin(call)
		case "spin once", "spin twice":
			if n := l.spins.Add(1); n == 1 || n == 2 && line == "spin twice" {
				text = l.spin(call)
			}
		case "nap":
			until := time.Now().Add(3 * cluster.DefaultOptions().BriefScriptTime)
			for over := false; text == "" && !over; {
				over = !time.Now().Before(until)
				// Call Interrupt once more when the nap is over. Otherwise the
				// goroutine could get no processor for the whole nap, and would
				// not notice that the budget is exceeded.
				text = call.Interrupt()
			}
		case "panic":
			panic("a mistake in the interpreter")
		default:
			if tried, ok := strings.CutPrefix(line, "try "); ok {
				call.Do(bytes.Fields([]byte(tried)))
				continue
			}
			if reply = call.Do(bytes.Fields([]byte(line))); reply.IsError() {
				return reply
			}
		}
		if text != "" {
			return fsm.Error(text)
		}
	}
	return reply
}

func (l *lines) spin(call fsm.ScriptCall) string {
	l.spinning <- struct{}{}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		if text := call.Interrupt(); text != "" {
			return text
		}
	}
}

// scripted is like start, with an interpreter.
func scripted(t *testing.T, l *lines, options ...func(*cluster.Options)) *testCluster {
	t.Helper()
	c := prepare(t, 3, options...)
	c.change = func(cfg *cluster.Config) { cfg.Scripts = l }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	return c
}

// patient gives scripts a large budget, so that the proposer executes them
// without a dry run.
func patient(o *cluster.Options) { o.ScriptTime, o.BriefScriptTime = 10*waitLimit, 10*waitLimit }

// changeLeaders makes other nodes lead while a load runs. Every third change is
// a crash.
func (c *testCluster) changeLeaders(load *load, times int) {
	c.t.Helper()
	for i := range times {
		load.progress(20)
		leader := c.leader()
		if i%3 == 0 {
			c.crash(leader)
			load.progress(20) // on the two nodes that are left
			c.open(leader)
			c.ready(leader)
			continue
		}
		if err := c.node(leader).TransferLeadership(c.others(leader)[i%2]); err != nil {
			c.t.Logf("transfer: %v", err)
		}
	}
}

func TestScripts_ExactlyOnce(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l)
	load := c.loadBy([]string{"EVAL", "GET other\nINCR n", "0"}, "n", 3, c.ids()...)
	plain := c.load("plain", 1, c.ids()...)
	c.changeLeaders(load, 12)
	load.check("n1")
	plain.check("n2")
	if runs, done := l.runs.Load(), load.acked.Load(); runs < done {
		t.Errorf("%d runs for %d scripts, want at least one run for each", runs, done)
	}
	c.caughtUp()
}

// TestScripts_Kill checks that a write waits while a script runs, that reads and
// the leadership continue, and that SCRIPT KILL works on a node that did not
// send the script.
func TestScripts_Kill(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, patient)
	leader := c.leader()
	follower := c.others(leader)[0]
	c.client(leader).want(t, ok, "SET", "k", "v")
	c.client(follower).want(t, "-NOTBUSY No scripts in execution right now.\r\n", "SCRIPT", "KILL")
	reply, wrote := make(chan string, 1), make(chan string, 1)
	send := func(to chan string, args ...string) {
		text, err := c.client(follower).do(args...)
		if err != nil {
			text = err.Error()
		}
		to <- text
	}
	go send(reply, "EVAL", "SET k w\nspin", "0")
	<-l.spinning
	go send(wrote, "SET", "other", "1")
	term := c.node(leader).Status().Term
	for _, id := range c.ids() {
		c.client(id).want(t, bulk("v"), "GET", "k")
	}
	during(3 * c.options.HeartbeatTimeout)
	if now := c.node(leader).Status(); now.Term != term || now.Role != "leader" {
		t.Errorf("%s is %s of term %d now, want leader of term %d", leader, now.Role, now.Term, term)
	}
	select {
	case text := <-reply:
		t.Fatalf("the script ended by itself: %q", text)
	case text := <-wrote:
		t.Fatalf("a write overtook the script: %q", text)
	default:
	}
	c.client(c.others(leader)[1]).want(t, ok, "SCRIPT", "KILL")
	if got, want := <-reply, "-ERR Script killed by user with SCRIPT KILL...\r\n"; got != want {
		t.Errorf("the script answered %q, want %q", got, want)
	}
	if got := <-wrote; got != ok {
		t.Errorf("the write after the script answered %q, want OK", got)
	}
	c.client(leader).want(t, bulk("v"), "GET", "k")
	c.client(leader).want(t, "-NOTBUSY No scripts in execution right now.\r\n", "SCRIPT", "KILL")
	c.caughtUp()
}

// TestFunctions_Kill checks that only FUNCTION KILL ends a function, that only
// SCRIPT KILL ends a script, and that FUNCTION STATS shows the function on
// another node.
func TestFunctions_Kill(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, patient)
	leader := c.leader()
	a, b := c.client(c.others(leader)[0]), c.client(c.others(leader)[1])
	a.want(t, bulk("lib"), "FUNCTION", "LOAD", "#!lua name=lib\nregister loop\nSET k w\nspin")
	for _, of := range []struct{ call, kill, other []string }{
		{[]string{"FCALL", "LOOP", "0", "x"}, []string{"FUNCTION", "KILL"}, []string{"SCRIPT", "KILL"}},
		{[]string{"EVAL", "spin", "0"}, []string{"SCRIPT", "KILL"}, []string{"FUNCTION", "KILL"}},
	} {
		reply := make(chan string, 1)
		go func() {
			text, err := a.do(of.call...)
			if err != nil {
				text = err.Error()
			}
			reply <- text
		}()
		<-l.spinning
		b.want(t, "-BUSY Redis is busy running a script. You can only call "+strings.Join(of.kill, " ")+" or SHUTDOWN NOSAVE.\r\n", of.other...)
		stats, err := b.do("FUNCTION", "STATS")
		if want := "$7\r\ncommand\r\n*4\r\n$5\r\nFCALL\r\n$4\r\nLOOP\r\n$1\r\n0\r\n$1\r\nx\r\n"; err != nil || strings.Contains(stats, want) != (of.call[0] == "FCALL") {
			t.Errorf("FUNCTION STATS while %s runs: %q, %v, want the command only if it is FCALL", of.call[0], stats, err)
		}
		b.want(t, ok, of.kill...)
		if got, want := <-reply, "-ERR Script killed by user with SCRIPT KILL...\r\n"; got != want {
			t.Errorf("%s answered %q, want %q", of.call[0], got, want)
		}
	}
	b.want(t, "-NOTBUSY No scripts in execution right now.\r\n", "FUNCTION", "KILL")
	b.want(t, "$-1\r\n", "GET", "k")
	c.caughtUp()
}

// TestFunctions_ExactlyOnce checks that libraries outlive leaders and restarts, and
// that each call of a function takes effect exactly once.
func TestFunctions_ExactlyOnce(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l)
	c.client(c.leader()).want(t, bulk("lib"), "FUNCTION", "LOAD", "#!lua name=lib\nregister up\nGET other\nINCR n")
	load := c.loadBy([]string{"FCALL", "up", "0"}, "n", 3, c.ids()...)
	c.changeLeaders(load, 6)
	load.check("n1")
	c.client("n2").want(t, "-ERR Library 'lib' already exists\r\n", "FUNCTION", "LOAD", "#!lua name=lib\nregister up")
	c.caughtUp()
}

// TestFunctions_LoadTime checks that a library whose code takes long is loaded, and
// that a library whose code does not end, or makes the interpreter panic, is
// refused.
func TestFunctions_LoadTime(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l)
	client := c.client("n2")
	client.want(t, bulk("slow"), "FUNCTION", "LOAD", "#!lua name=slow\nnap\nregister f")
	client.want(t, "-ERR FUNCTION LOAD timeout\r\n", "FUNCTION", "LOAD", "#!lua name=endless\nspin\nregister g")
	client.want(t, "-ERR script made the interpreter fail and was rolled back\r\n", "FUNCTION", "LOAD", "#!lua name=broken\npanic\nregister g")
	client.want(t, ok, "FUNCTION", "DELETE", "slow")
	c.caughtUp()
}

// TestScripts_Time checks that each script that loops ends within its own
// budget, and that other commands run between such scripts.
func TestScripts_Time(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, func(o *cluster.Options) { o.ScriptTime = 30 * time.Millisecond })
	var wg sync.WaitGroup
	for _, id := range c.ids() {
		for range 4 {
			wg.Go(func() {
				cl := c.client(id)
				for range 5 {
					if got, err := cl.retry("EVAL", "INCR wrong\nspin", "0"); err != nil || !strings.HasPrefix(got, "-ERR script exceeded its time limit (30 ms)") {
						t.Errorf("a script that loops: %q, %v, want the error about the time limit", got, err)
						return
					}
				}
			})
		}
	}
	load := c.load("n", 1, c.ids()...)
	load.progress(30)
	wg.Wait()
	load.check("n1")
	c.client("n1").want(t, absent, "GET", "wrong")
	c.caughtUp()
}

// TestScripts_OthersGoOn checks that other commands are executed while a script that
// has exceeded the first script budget runs, and that SCRIPT KILL on another node
// ends the script.
func TestScripts_OthersGoOn(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, func(o *cluster.Options) { o.ScriptTime = 10 * waitLimit })
	leader := c.leader()
	rest := c.others(leader)
	for i, from := range []string{rest[0], leader} {
		c.client(leader).want(t, ok, "SET", "k", "v")
		looping := c.client(from).start("EVAL", "SET k w\nspin", "0")
		<-l.spinning
		if i == 0 {
			<-l.spinning // the run with the brief budget is over, and a short dry run has begun
			<-l.spinning // the short dry run is over too, and a longer dry run has begun
		}
		for _, id := range c.ids() {
			c.client(id).want(t, ":1\r\n", "INCR", from+id)
			c.client(id).want(t, bulk("v"), "GET", "k")
		}
		c.client(rest[1]).want(t, ok, "SCRIPT", "KILL")
		if got := awaitResult(t, "a script that loops", looping); got.reply != "-ERR Script killed by user with SCRIPT KILL...\r\n" {
			t.Errorf("the script answered %q, %v, want the error of SCRIPT KILL", got.reply, got.err)
		}
		c.client(rest[1]).want(t, bulk("v"), "GET", "k")
	}
	c.caughtUp()
}

// compiler is a runner that compiles the large script once. The compilation
// waits until the test closes finish.
type compiler struct {
	*lines
	began, finish chan struct{}
	compiled      atomic.Bool
}

func (c *compiler) Compiled(sha string, _ bool) bool {
	return c.compiled.Load() || sha != fsm.SHA1([]byte(largeScript))
}

// largeScript has more bytes than may be compiled while other groups wait.
var largeScript = "SET k v\nECHO " + strings.Repeat("x", 128<<10) + "\nGET k"

// CompileScript implements fsm.ScriptRunner.
func (c *compiler) CompileScript(body []byte) string {
	if string(body) == largeScript && c.compiled.CompareAndSwap(false, true) {
		close(c.began)
		<-c.finish
	}
	return c.lines.CompileScript(body)
}

// whileCompiling checks that a node executes a command, with 1 as its reply, while
// it compiles the large script of another client.
func whileCompiling(t *testing.T, options func(o *cluster.Options), command ...string) {
	t.Helper()
	r := &compiler{lines: newLines(), began: make(chan struct{}), finish: make(chan struct{})}
	c := prepare(t, 1, options)
	c.change = func(cfg *cluster.Config) { cfg.Scripts = r }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	large := c.client("n1").start("EVAL", largeScript, "0")
	<-r.began
	done := c.client("n1").start(command...)
	select {
	case got := <-done:
		if got.err != nil || got.reply != ":1\r\n" {
			t.Errorf("%q answered %q, %v, want 1", command, got.reply, got.err)
		}
	case <-time.After(waitLimit):
		t.Errorf("%q waited for the compilation of a script", command)
	}
	close(r.finish)
	if got := awaitResult(t, "a large script", large); got.reply != bulk("v") {
		t.Errorf("the large script answered %q, %v, want v", got.reply, got.err)
	}
}

// TestScripts_Compile checks that writes continue while a large script is
// compiled, and that the script is executed afterward.
func TestScripts_Compile(t *testing.T) {
	t.Parallel()
	whileCompiling(t, patient, "INCR", "n")
}

// TestScripts_CompileLane checks that a script that needs a short dry run does not
// wait while a large script is compiled.
func TestScripts_CompileLane(t *testing.T) {
	t.Parallel()
	whileCompiling(t, func(o *cluster.Options) {
		// A short dry run may take 125 ms: longer than a nap takes, and less than
		// the large script may need.
		o.ScriptTime, o.BriefScriptTime = 10*waitLimit, 5*time.Millisecond
	}, "EVAL", "nap\nINCR n", "0")
}

// forgetful is a runner that keeps no compiled script.
type forgetful struct {
	*lines
	compiled atomic.Int64
}

func (f *forgetful) Compiled(string, bool) bool { return false }

// CompileScript implements fsm.ScriptRunner.
func (f *forgetful) CompileScript(body []byte) string {
	f.compiled.Add(1)
	return f.lines.CompileScript(body)
}

// TestScripts_NotCompiled checks that a large script whose compiled form is lost
// after each dry run fails in the end, and that the proposer does not compile it.
func TestScripts_NotCompiled(t *testing.T) {
	t.Parallel()
	r := &forgetful{lines: newLines()}
	c := prepare(t, 1)
	c.change = func(cfg *cluster.Config) { cfg.Scripts = r }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	got, err := c.client("n1").do("EVAL", largeScript, "0")
	if err != nil || !strings.HasPrefix(got, "-BUSY the script or transaction was not executed: its compiled scripts") {
		t.Errorf("the script answered %q, %v, want BUSY", clip(got), err)
	}
	if n := r.compiled.Load(); n != 3 {
		t.Errorf("the script was compiled %d times, want once in each of three dry runs", n)
	}
	c.client("n1").want(t, ":1\r\n", "EVAL", "INCR n", "0") // a small script is compiled at once
}

// TestScripts_TakesItsTime checks that a slow script that ends is executed
// once.
func TestScripts_TakesItsTime(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, func(o *cluster.Options) { o.ScriptTime = 10 * waitLimit })
	for i, id := range c.ids() {
		c.client(id).want(t, fmt.Sprintf(":%d\r\n", i+1), "EVAL", "nap\nINCR n", "0")
		// The first call runs the script once with the brief budget, once in
		// the dry run (twice on a busy machine), and once for the execution.
		// Later calls do not run it with the brief budget, because the leader
		// knows that the script is slow.
		if runs, want := l.runs.Load(), int64(3+2*i); runs < want || runs > want+int64(i)+1 {
			t.Errorf("%d runs after %d calls, want %d", runs, i+1, want)
		}
	}
	load := c.loadBy([]string{"EVAL", "nap\nINCR m", "0"}, "m", 2, c.ids()...)
	for range 3 {
		load.progress(5)
		if err := c.node(c.leader()).TransferLeadership(c.others(c.leader())[0]); err != nil {
			t.Logf("transfer: %v", err)
		}
	}
	load.progress(5)
	load.check("n1")
	c.caughtUp()
}

// TestScripts_CutBesideOthers checks that commands in the same entry as a
// script that is interrupted are executed once, and that a script among them
// has its own budget.
func TestScripts_CutBesideOthers(t *testing.T) {
	t.Parallel()
	c := scripted(t, newLines(), func(o *cluster.Options) { o.ScriptTime = waitLimit / 60 })
	for i, id := range c.ids() {
		got, err := c.client(id).pipeline([]string{"INCR", "a"}, []string{"EVAL", "INCR wrong\nspin", "0"}, []string{"EVAL", "nap\nINCR c", "0"}, []string{"INCR", "b"})
		want := fmt.Sprintf(":%d\r\n-ERR script exceeded its time limit (%d ms) and was rolled back\r\n:%d\r\n:%d\r\n", i+1, (waitLimit / 60).Milliseconds(), i+1, i+1)
		if err != nil || got != want {
			t.Errorf("pipeline through %s: %q, %v, want %q", id, got, err, want)
		}
	}
	c.client("n1").want(t, absent, "GET", "wrong")
	c.caughtUp()
}

// TestScripts_Pipeline checks that the slow scripts of a pipeline run one by
// one, each in its position, while other clients write between them. The
// scripts of a transaction stay together.
func TestScripts_Pipeline(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, func(o *cluster.Options) { o.ScriptTime = 10 * waitLimit })
	load := c.load("other", 1, c.leader())
	load.progress(5)
	look := []string{"EVAL", "nap\nGET other", "0"}
	for i, id := range c.ids() {
		got, err := c.client(id).pipeline([]string{"INCR", "a"}, look, []string{"INCR", "a"}, look, []string{"INCR", "a"})
		if err != nil {
			t.Fatal(err)
		}
		pipeline := strings.Split(got, "\r\n")
		// The lines of the reply are an integer, the length and the text of a
		// string, and so on.
		if len(pipeline) != 8 || pipeline[2] == pipeline[5] {
			t.Errorf("no other client wrote between the scripts of %q", got)
		}
		for j, at := range []int{0, 3, 6} {
			if next := fmt.Sprintf(":%d", 3*i+j+1); pipeline[at] != next {
				t.Errorf("pipeline answered %q, want %s in line %d", got, next, at)
			}
		}
		got, err = c.client(id).transaction(look, look)
		if err != nil {
			t.Fatal(err)
		}
		if both := strings.Split(got, "\r\n"); len(both) != 6 || both[2] != both[4] {
			t.Errorf("another client wrote between the scripts of a transaction: %q", got)
		}
	}
	load.check("n1")
	c.caughtUp()
}

// TestScripts_Transaction checks that the dry run of a transaction ends at the
// first script that loops, however many such scripts the transaction contains.
func TestScripts_Transaction(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, func(o *cluster.Options) { o.ScriptTime = 60 * time.Millisecond })
	spin := []string{"EVAL", "INCR wrong\nspin", "0"}
	got, err := c.client("n2").transaction([]string{"INCR", "a"}, spin, spin, spin, spin, []string{"INCR", "a"})
	if err != nil || !strings.HasPrefix(got, "*6\r\n:1\r\n-ERR script exceeded its time limit (60 ms)") || !strings.HasSuffix(got, "\r\n:2\r\n") || strings.Count(got, "-ERR") != 4 {
		t.Errorf("transaction answered %q, %v, want two integers and four errors about the time limit", got, err)
	}
	// The expected runs are one brief run, two dry runs, and four scripts in the
	// execution. On a slow machine, the time of a run may be over before its first
	// script begins. If a dry run did not end at the first script that loops, there
	// would be 13 runs.
	if runs, most := l.runs.Load(), int64(1+2+4); runs < 1 || runs > most {
		t.Errorf("%d runs, want 1 to %d", runs, most)
	}
	c.client("n1").want(t, absent, "GET", "wrong")
	c.caughtUp()
}

// TestScripts_LostDryRun checks that the next leader runs a script if a leader
// loses its leadership in the middle of the script's dry run.
func TestScripts_LostDryRun(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, func(o *cluster.Options) { o.ScriptTime = 10 * waitLimit })
	leader := c.leader()
	twice := c.client(c.others(leader)[0]).start("EVAL", "INCR n\nspin twice\nINCR n", "0")
	<-l.spinning
	<-l.spinning
	c.isolate(leader)
	if got := awaitResult(t, "a script whose dry run lost its leader", twice); got.reply != ":2\r\n" {
		t.Errorf("the script answered %q, %v, want :2", got.reply, got.err)
	}
	c.net.heal()
	c.client(leader).want(t, bulk("2"), "GET", "n")
	c.caughtUp()
}

func TestScripts_Panic(t *testing.T) {
	t.Parallel()
	c := scripted(t, newLines())
	for _, id := range c.ids() {
		c.client(id).want(t, "-ERR script made the interpreter fail and was rolled back\r\n", "EVAL", "SET k v\npanic", "0")
		c.client(id).want(t, absent, "GET", "k")
	}
	c.client("n1").want(t, "-ERR Error compiling script\r\n", "SCRIPT", "LOAD", "(")
	c.client("n1").want(t, ":1\r\n", "EVAL", "INCR n", "0")
	c.caughtUp()
}

// TestScripts_LostLeadership: a leader loses its leadership in the middle of a
// script. None of the script's writes takes effect, and the next leader runs
// the script.
func TestScripts_LostLeadership(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, patient)
	leader := c.leader()
	client := c.client(c.others(leader)[0])
	reply := make(chan string, 1)
	go func() {
		text, err := client.do("EVAL", "INCR n\nspin once\nINCR n", "0")
		if err != nil {
			text = err.Error()
		}
		reply <- text
	}()
	<-l.spinning
	c.isolate(leader)
	if got := <-reply; got != ":2\r\n" {
		t.Errorf("the script answered %q, want :2", got)
	}
	c.net.heal()
	c.client(leader).want(t, bulk("2"), "GET", "n")
	if runs := l.runs.Load(); runs != 2 {
		t.Errorf("%d runs, want 2: one on each leader", runs)
	}
	c.caughtUp()
}

// TestScripts_ReadOnly checks that read-only scripts are reads. Clients of all nodes
// get their replies, even while another script runs, and no entry is needed once the
// script is in the cache.
func TestScripts_ReadOnly(t *testing.T) {
	t.Parallel()
	l := newLines()
	c := scripted(t, l, patient)
	c.quiet()
	leader := c.leader()
	c.client(leader).want(t, ok, "SET", "k", "v")
	for _, id := range c.ids() {
		c.client(id).want(t, bulk("v"), "EVAL_RO", "GET k", "0")
	}
	sha := fsm.SHA1([]byte("GET k"))
	before := c.node(leader).Status().Commit
	for _, id := range c.ids() {
		c.client(id).want(t, bulk("v"), "EVAL_RO", "GET k", "0")
		c.client(id).want(t, bulk("v"), "EVALSHA_RO", sha, "0")
		c.client(id).want(t, "*1\r\n:1\r\n", "SCRIPT", "EXISTS", sha)
		local := c.client(id)
		local.local = true
		eventually(t, "the script in the cache of "+id, func() bool {
			got, err := local.do("EVALSHA_RO", sha, "0")
			return err == nil && got == bulk("v")
		})
	}
	if after := c.node(leader).Status().Commit; after != before {
		t.Errorf("read-only scripts made %d entries, want 0", after-before)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = newClient(c.node(leader)).do("EVAL", "spin", "0") // TestScripts_Kill checks the reply
	}()
	<-l.spinning
	for _, id := range c.ids() {
		c.client(id).want(t, bulk("v"), "EVALSHA_RO", sha, "0")
	}
	c.client(leader).want(t, ok, "SCRIPT", "KILL")
	<-done
}

// TestScripts_Cache checks that the log and snapshots contain the cache.
func TestScripts_Cache(t *testing.T) {
	t.Parallel()
	c := scripted(t, newLines())
	sha := fsm.SHA1([]byte("INCR n"))
	c.client("n1").want(t, "-NOSCRIPT No matching script. Please use EVAL.\r\n", "EVALSHA", sha, "0")
	c.client("n1").want(t, bulk(sha), "SCRIPT", "LOAD", "INCR n")
	c.client("n2").want(t, ":1\r\n", "EVALSHA", sha, "0")
	if err := c.node("n3").Snapshot(); err != nil {
		t.Fatal(err)
	}
	for _, id := range c.ids() {
		c.stop(id)
	}
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.client("n3").want(t, ":2\r\n", "EVALSHA", sha, "0")
	c.node("n3").View(func(m *fsm.Machine) {
		if n, bytes := m.Scripts(); n != 1 || bytes < len("INCR n") {
			t.Errorf("%d scripts of %d bytes in the cache, want 1", n, bytes)
		}
	})
	c.client("n1").want(t, ok, "SCRIPT", "FLUSH")
	c.client("n2").want(t, "-NOSCRIPT No matching script. Please use EVAL.\r\n", "EVALSHA", sha, "0")
	c.caughtUp()
}
