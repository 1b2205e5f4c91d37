package process_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// binary is the program under test.
var binary string

// slots limits how many clusters run at the same time. A cluster is usually
// three processes that fsync. A missed timeout must be the result of a fault,
// not of the load on the machine.
var slots = make(chan struct{}, 2)

func TestMain(m *testing.M) { testutil.MainWithProgram(m, &binary) }

// takeSlot marks the test as parallel and waits for a slot for a cluster.
func takeSlot(t *testing.T) {
	t.Helper()
	t.Parallel()
	slots <- struct{}{}
	t.Cleanup(func() { <-slots })
}

// cluster is a process.Cluster with its test. An unexpected error fails the
// test.
type cluster struct {
	*process.Cluster
	t *testing.T
}

// newCluster makes a cluster without running nodes, in a directory that is
// removed when the test ends. If the test has failed, the logs are kept.
func newCluster(t *testing.T, cfg process.Config) *cluster {
	t.Helper()
	takeSlot(t)
	cfg.Program = binary
	return &cluster{testutil.NewCluster(t, cfg), t}
}

// startCluster starts a cluster of three nodes and waits until it is ready.
func startCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := newCluster(t, process.Config{Args: args})
	c.start()
	return c
}

func (c *cluster) start() {
	c.t.Helper()
	if err := c.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.settled()
}

func (c *cluster) leader(without ...*process.Node) *process.Node {
	c.t.Helper()
	n, err := c.Leader(testutil.Within(c.t, testutil.StartLimit), without...)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// settled waits until all running nodes follow one leader and have caught up.
func (c *cluster) settled(without ...*process.Node) (leader *process.Node) {
	c.t.Helper()
	n, err := c.Settled(testutil.Within(c.t, testutil.StartLimit), without...)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// others returns the running nodes except n.
func (c *cluster) others(n *process.Node) []*process.Node { return c.Running(n) }

func kill(t *testing.T, n *process.Node) {
	t.Helper()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, n *process.Node) {
	t.Helper()
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, n *process.Node, sig syscall.Signal) {
	t.Helper()
	if err := n.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// replyLimit is longer than the longest wait of a client for a reply of a node.
const replyLimit = 40 * time.Second

func dial(t *testing.T, n *process.Node) *respwire.Conn {
	t.Helper()
	c, err := respwire.Connect(n.Clients, replyLimit)
	if err != nil {
		t.Fatalf("connect to %s: %v", n.ID, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// do sends one command to a node, on a new connection. It returns the reply as
// show does.
func do(t *testing.T, n *process.Node, args ...string) string {
	t.Helper()
	c, err := respwire.Connect(n.Clients, replyLimit)
	if err != nil {
		t.Fatalf("connect to %s: %v", n.ID, err)
	}
	defer c.Close()
	return show(c, args...)
}

// show sends one command. It returns the reply, much as redis-cli shows it, or
// the error of the connection.
func show(c *respwire.Conn, args ...string) string {
	reply, err := c.Do(args...)
	if err != nil {
		return err.Error()
	}
	return reply.String()
}

// settings returns the parameters of a node that CONFIG GET finds.
func settings(t *testing.T, n *process.Node, patterns ...string) map[string]string {
	t.Helper()
	reply, err := respwire.NoError(dial(t, n).Do(append([]string{"CONFIG", "GET"}, patterns...)...))
	if err != nil {
		t.Fatalf("CONFIG GET through %s: %v", n.ID, err)
	}
	return reply.Pairs()
}

func want(t *testing.T, n *process.Node, reply string, args ...string) {
	t.Helper()
	if got := do(t, n, args...); got != reply {
		t.Fatalf("%s through %s: %q, want %q", strings.Join(args, " "), n.ID, got, reply)
	}
}

// outcome is the result of a program that has ended.
type outcome struct {
	code        int
	out, errOut string
}

// invoke runs the program and waits until it ends. The program must end within
// 30 seconds.
func invoke(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return invokeWithin(t, 30*time.Second, env, args...)
}

func invokeWithin(t *testing.T, limit time.Duration, env []string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(process.CleanEnv(), env...)
	cmd.Dir = t.TempDir()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("holdfast %s does not end; it printed\n%s%s", strings.Join(args, " "), &out, &errOut)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// wantContains checks that a text contains each of the parts.
func wantContains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s does not say %q:\n%s", what, p, text)
		}
	}
}

// refusesToStart starts a node that must end by itself. It returns the output
// of the node.
func refusesToStart(t *testing.T, n *process.Node, extra ...string) string {
	t.Helper()
	if err := n.Start(extra...); err != nil {
		t.Fatal(err)
	}
	code, err := n.Wait(20 * time.Second)
	if err != nil {
		t.Fatalf("%v; it printed\n%s", err, n.Output())
	}
	if code <= 0 {
		t.Errorf("%s ended with code %d, want an error; it printed\n%s", n.ID, code, n.Output())
	}
	return n.Output()
}
