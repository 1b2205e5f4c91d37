package process_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// locked is a running "holdfast lock".
type locked struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	out  testutil.Log  // output of the program and of its command
}

// lock starts "holdfast lock", which runs a shell script while it holds a lock.
func (c *cluster) lock(key, script string, flags ...string) *locked {
	c.t.Helper()
	l := &locked{t: c.t, done: make(chan struct{})}
	args := append([]string{"lock", key}, flags...)
	if !slices.Contains(flags, "--addr") {
		args = append(args, "--addr", c.addrs())
	}
	l.cmd = exec.Command(binary, append(args, "--", "sh", "-c", script)...)
	l.cmd.Env = process.CleanEnv()
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.out
	l.cmd.WaitDelay = time.Second // if a test fails, a child process may remain that keeps the pipe open
	if err := process.Start(l.cmd); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(l.done)
		if err := l.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			c.t.Errorf("wait for holdfast lock: %v", err)
		}
	}()
	c.t.Cleanup(func() {
		_ = l.cmd.Process.Kill() // the program has usually ended before
		<-l.done
	})
	return l
}

// says waits until the program or its command has printed a text.
func (l *locked) says(text string) {
	l.t.Helper()
	if err := process.Poll(testutil.Within(l.t, testutil.StartLimit), "holdfast lock to print "+strconv.Quote(text),
		func() bool { return strings.Contains(l.out.String(), text) }); err != nil {
		l.t.Fatalf("%v; it printed\n%s", err, l.out.String())
	}
}

func (l *locked) signal(s syscall.Signal) {
	l.t.Helper()
	if err := l.cmd.Process.Signal(s); err != nil {
		l.t.Fatal(err)
	}
}

// wantExit waits until the program has ended and checks its exit code.
func (l *locked) wantExit(code int) {
	l.t.Helper()
	select {
	case <-l.done:
	case <-time.After(testutil.StartLimit):
		l.t.Fatalf("holdfast lock does not end; it printed\n%s", l.out.String())
	}
	if got := l.cmd.ProcessState.ExitCode(); got != code {
		l.t.Errorf("exit code %d, want %d; it printed\n%s", got, code, l.out.String())
	}
}

// endless is a script that runs until a signal ends it.
const endless = "echo begun; while :; do sleep 0.05; done"

// waiters returns how many clients wait for a lock.
func (c *cluster) waiters(key string) int {
	c.t.Helper()
	var d struct {
		Waiters []any `json:"waiters"`
	}
	if err := json.Unmarshal([]byte(run(c.t, "locks", "info", key, "--json", "--addr", c.addrs())), &d); err != nil {
		c.t.Fatal(err)
	}
	return len(d.Waiters)
}

func (c *cluster) awaitWaiters(key string, n int) {
	c.t.Helper()
	if err := process.Poll(testutil.Within(c.t, testutil.StartLimit), strconv.Itoa(n)+" to wait for "+key,
		func() bool { return c.waiters(key) == n }); err != nil {
		c.t.Fatal(err)
	}
}

// TestLock_Runs checks the environment of the command, the exit codes, and the
// order in which waiters get the lock.
func TestLock_Runs(t *testing.T) {
	c := startCluster(t)
	l := c.lock("a", `echo "$HOLDFAST_LOCK_KEY $HOLDFAST_LOCK_TOKEN"; exit 7`)
	l.wantExit(7)
	token, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(l.out.String()), "a "))
	if err != nil || token <= 0 {
		t.Errorf("the command got %q", l.out.String())
	}
	want(t, c.Nodes[0], "(nil)", "LOCK", "TOKEN", "a")
	c.lock("a", "kill -9 $$").wantExit(128 + 9)
	c.lock("a", "true").wantExit(0)
	if res := invoke(t, nil, "lock", "a", "--addr", c.addrs(), "--", "no-such-program"); res.code != 127 {
		t.Errorf("a program that does not exist: exit %d, %s", res.code, res.errOut)
	}

	first := c.lock("a", endless, "--owner", "first", "--meta", "a job")
	first.says("begun")
	wantContains(t, "locks", run(t, "locks", "--addr", c.addrs()), "first")
	none := c.lock("a", "echo never", "--wait", "0")
	none.wantExit(75)
	wantContains(t, "lock --wait 0", none.out.String(), `"a" is taken, first holds it`)
	c.lock("a", "echo never", "--wait", "300ms").wantExit(75)
	second := c.lock("a", "echo second")
	c.awaitWaiters("a", 1)
	third := c.lock("a", "echo third")
	c.awaitWaiters("a", 2)
	wantContains(t, "locks info", run(t, "locks", "info", "a", "--addr", c.addrs()), "first", "a job", "waiting:   2")
	second.signal(syscall.SIGTERM)
	second.wantExit(128 + 15)
	c.awaitWaiters("a", 1)
	first.signal(syscall.SIGTERM)
	first.wantExit(128 + 15)
	third.wantExit(0)
	third.says("third")
	if printed := second.out.String(); strings.Contains(printed+none.out.String(), "never") ||
		strings.Contains(printed, "\nsecond") {
		t.Error("a command ran without the lock")
	}
}

// TestLock_Signals checks that "holdfast lock" passes signals to its
// command, and that the command ends when "holdfast lock" ends.
func TestLock_Signals(t *testing.T) {
	c := startCluster(t)
	l := c.lock("a", `trap "echo usr1" USR1; trap "echo term; exit 5" TERM; `+endless)
	l.says("begun")
	l.signal(syscall.SIGUSR1)
	l.says("usr1")
	l.signal(syscall.SIGTERM)
	l.says("term")
	l.wantExit(5)

	l = c.lock("a", "echo pid $$; "+endless)
	l.says("begun")
	line, _, _ := strings.Cut(l.out.String(), "\n")
	pid, err := strconv.Atoi(strings.TrimPrefix(line, "pid "))
	if err != nil {
		t.Fatalf("the command printed %q", l.out.String())
	}
	l.signal(syscall.SIGKILL)
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "the command to end with holdfast lock",
		func() bool { return !isAlive(pid) }); err != nil {
		t.Error(err)
	}
}

// TestLock_Lost checks that the command ends in two cases: when the lock is
// broken, and when the cluster does not confirm the renewal of the lease.
func TestLock_Lost(t *testing.T) {
	c := startCluster(t)
	ignores := `trap "echo term" TERM; ` + endless
	l := c.lock("a", ignores, "--ttl", "1500ms", "--grace", "200ms")
	l.says("begun")
	refuses(t, []string{"set --yes"}, "locks", "break", "a", "--addr", c.addrs())
	refuses(t, []string{"nothing was broken"}, "locks", "break", "a", "--token", "1", "--yes", "--addr", c.addrs())
	wantContains(t, "locks break", run(t, "locks", "break", "a", "--yes", "--addr", c.addrs()), "was broken")
	refuses(t, []string{"is free"}, "locks", "break", "a", "--yes", "--addr", c.addrs())
	l.wantExit(76)
	wantContains(t, "a broken lock", l.out.String(), "term", "lost")

	// If the cluster does not confirm a renewal, the command ends before the
	// lease ends. So it never runs together with the command of the next owner.
	const ttl = 3 * time.Second
	l = c.lock("b", ignores, "--ttl", ttl.String(), "--grace", "500ms")
	l.says("begun")
	stopped := time.Now()
	for _, n := range c.Nodes {
		send(t, n, syscall.SIGSTOP)
	}
	l.says("term")
	l.wantExit(76)
	if took := time.Since(stopped); took > ttl+2*time.Second { // 1 s for the attempt to release the lock, 1 s to spare
		t.Errorf("the command ended %v after the last possible renewal of a lease of %v", took, ttl)
	}
	wantContains(t, "an unproved lock", l.out.String(), "cannot be proved")
	for _, n := range c.Nodes {
		send(t, n, syscall.SIGCONT)
	}
}

// TestLock_LeaderKilled kills the node that an owner and a waiter of a lock
// use. The owner keeps the lock, the waiter keeps waiting, and their commands
// never run together.
func TestLock_LeaderKilled(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	nodes := append([]*process.Node{leader}, c.others(leader)...)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Clients)
	}
	flags := []string{"--ttl", "6s", "--addr", strings.Join(addrs, ",")}
	first := c.lock("a", `trap "echo ends; exit 0" TERM; `+endless, flags...)
	first.says("begun")
	second := c.lock("a", "echo second", flags...)
	c.awaitWaiters("a", 1)
	kill(t, leader)
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "the lock to be renewed at another node",
		func() bool {
			var d struct {
				Renewals int `json:"renewals"`
			}
			out := run(t, "locks", "info", "a", "--json", "--addr", addrs[1]+","+addrs[2])
			if err := json.Unmarshal([]byte(out), &d); err != nil {
				t.Fatal(err)
			}
			return d.Renewals >= 2
		}); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Split(second.out.String(), "\n"), "second") {
		t.Fatal("two owners hold the lock")
	}
	first.signal(syscall.SIGTERM)
	first.says("ends")
	first.wantExit(0)
	second.wantExit(0)
	second.says("second")
}
