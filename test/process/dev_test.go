package process_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// devRun is a running "holdfast dev".
type devRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	base   int
	dir    string
	exited chan struct{}
	out    testutil.Log // output of dev
}

// devRow matches a line of the table that dev prints.
var devRow = regexp.MustCompile(`(?m)^(n\d+) +(\d+) +(\S+) +(\S+) +(\S+) +(leader|follower)$`)

func startDev(t *testing.T, base int, dir string, args ...string) *devRun {
	t.Helper()
	return startDevAs(t, exec.Command(binary), base, dir, args...)
}

// startDevAs is like startDev. cmd is the command that runs the program, to
// which startDevAs adds the arguments.
func startDevAs(t *testing.T, cmd *exec.Cmd, base int, dir string, args ...string) *devRun {
	t.Helper()
	d := &devRun{t: t, base: base, dir: dir, exited: make(chan struct{}), cmd: cmd}
	cmd.Args = append(cmd.Args, "dev", "--base-port", strconv.Itoa(base), "--data-dir", dir)
	cmd.Args = append(cmd.Args, args...)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	d.cmd.Env = process.CleanEnv()
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	starter, err := process.CommonStarter()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(d.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // tests that need the exit code check it
		close(d.exited)
	}()
	t.Cleanup(func() {
		if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("kill dev: %v", err)
		}
		<-d.exited
		if t.Failed() {
			t.Logf("dev printed:\n%s", d.out.String())
		}
	})
	return d
}

// table waits for the table and returns the pids by node, and the id of the
// leader.
func (d *devRun) table(nodes int) (pids map[string]int, leader string) {
	d.t.Helper()
	if err := process.Poll(testutil.Within(d.t, testutil.StartLimit), "the table of dev", func() bool {
		return strings.Contains(d.out.String(), "Ready.") || d.ended()
	}); err != nil {
		d.t.Fatal(err)
	}
	pids = make(map[string]int)
	for i, m := range devRow.FindAllStringSubmatch(d.out.String(), -1) {
		if want := []string{process.Loopback(d.base + i), process.Loopback(d.base + 1000 + i),
			process.Loopback(d.base + 2000 + i)}; m[3] != want[0] || m[4] != want[1] || m[5] != want[2] {
			d.t.Errorf("addresses of %s: %v, want %v", m[1], m[3:6], want)
		}
		pid, err := strconv.Atoi(m[2])
		if err != nil {
			d.t.Fatal(err)
		}
		if pids[m[1]] = pid; !isAlive(pid) {
			d.t.Errorf("%s has pid %d, which does not run", m[1], pid)
		}
		if m[6] == "leader" {
			if leader != "" {
				d.t.Errorf("%s and %s lead", leader, m[1])
			}
			leader = m[1]
		}
	}
	if len(pids) != nodes || leader == "" {
		d.t.Fatalf("table of dev: %d nodes, leader %q in\n%s", len(pids), leader, d.out.String())
	}
	return pids, leader
}

func (d *devRun) ended() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// waitEnd waits until dev has ended and returns its exit code.
func (d *devRun) waitEnd() int {
	d.t.Helper()
	select {
	case <-d.exited:
	case <-time.After(20 * time.Second):
		d.t.Fatal("dev does not end")
	}
	return d.cmd.ProcessState.ExitCode()
}

func (d *devRun) waitFor(text string) {
	d.t.Helper()
	if err := process.Poll(testutil.Within(d.t, testutil.StartLimit), fmt.Sprintf("dev to say %q", text),
		func() bool { return strings.Contains(d.out.String(), text) }); err != nil {
		d.t.Fatal(err)
	}
}

// isAlive reports whether a process exists. A zombie, whose parent has not read
// its exit status, does not count.
func isAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

func waitEnded(t *testing.T, pids map[string]int) {
	t.Helper()
	for id, pid := range pids {
		if err := process.Poll(testutil.Within(t, 10*time.Second), fmt.Sprintf("%s (pid %d) to be gone", id, pid),
			func() bool { return !isAlive(pid) }); err != nil {
			t.Error(err)
		}
	}
}

// portsFree waits until no process listens on the ports of the nodes.
func (d *devRun) portsFree(nodes int) {
	d.t.Helper()
	for i := range nodes {
		for step := range 3 {
			addr := process.Loopback(d.base + 1000*step + i)
			if err := process.Poll(testutil.Within(d.t, 10*time.Second), addr+" to be free", func() bool {
				ln, err := net.Listen("tcp", addr)
				return err == nil && ln.Close() == nil
			}); err != nil {
				d.t.Error(err)
			}
		}
	}
}

func TestDev(t *testing.T) {
	takeSlot(t)
	base, err := process.FreePorts(3, 3, 1000)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	d := startDev(t, base, dir)
	pids, leader := d.table(3)
	wantContains(t, "dev", d.out.String(), "NODE", "PID", "CLIENTS", "PEERS", "HTTP", "ROLE", "redis-cli -p", dir,
		"Ctrl-C")
	any := &process.Node{ID: "n1", Clients: process.Loopback(base)}
	want(t, any, "OK", "SET", "lock:a", "me", "NX", "EX", "600")
	// dev has created a secret, which the nodes use to authenticate each
	// other.
	if info, err := os.Stat(filepath.Join(dir, "cluster-secret")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("secret of dev: %v, %v", info, err)
	}
	// dev still finds the leader after a client sets a password.
	want(t, any, "OK", "CONFIG", "SET", "requirepass", "secret")

	// The leader is killed. dev reports its end and the new leader, and
	// restarts no node.
	if err := syscall.Kill(pids[leader], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.waitFor(fmt.Sprintf("%s (pid %d) is gone: signal: killed", leader, pids[leader]))
	d.waitFor(" leads\n")
	if leader == "n1" {
		any = &process.Node{ID: "n2", Clients: process.Loopback(base + 1)}
	}
	conn, err := respwire.Connect(any.Clients, replyLimit)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, step := range []struct{ want, cmd string }{{"OK", "AUTH secret"}, {"me", "GET lock:a"},
		{"OK", "ACL SETUSER default nopass"}} {
		words := strings.Fields(step.cmd)
		if got := show(conn, words...); got != step.want {
			t.Errorf("%s: %s, want %s", step.cmd, got, step.want)
		}
	}
	if strings.Contains(d.out.String(), "no leader") && !strings.Contains(d.out.String(), " leads\n") {
		t.Errorf("dev no longer finds the leader:\n%s", d.out.String())
	}
	delete(pids, leader)

	// A second dev on the same ports does not start, and does not disturb
	// the first.
	second := startDev(t, base, filepath.Join(t.TempDir(), "other"))
	if code := second.waitEnd(); code != 1 {
		t.Errorf("second dev: exit code %d, want 1", code)
	}
	wantLine(t, second.out.String(), "holdfast: ", "address already in use", "another cluster running? try --base-port")

	// SIGINT is the signal that Ctrl-C sends.
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := d.waitEnd(); code != 0 {
		t.Errorf("dev: exit code %d after Ctrl-C, want 0", code)
	}
	waitEnded(t, pids)
	d.portsFree(3)

	// After the next start, dev has the data, although a node was killed. This
	// time the test kills dev itself. Its nodes must not keep running.
	d = startDev(t, base, dir)
	pids, _ = d.table(3)
	want(t, any, "me", "GET", "lock:a")
	killDev(t, d, pids)

	// dev reports why a node cannot start again, and shows the other nodes.
	if err := os.RemoveAll(filepath.Join(dir, "n3")); err != nil {
		t.Fatal(err)
	}
	d = startDev(t, base, dir, "--", "--requirepass", "secret")
	pids, _ = d.table(2)
	wantLine(t, d.out.String(), "n3 (pid ", " is gone: exit status 2", "n3.log")
	wantLine(t, d.out.String(), "holdfast member remove n3")
	wantLine(t, d.out.String(), "n3", process.Loopback(base+2), "gone")
	killDev(t, d, pids)
}

// killDev kills dev but not its nodes, and checks that the nodes end too.
func killDev(t *testing.T, d *devRun, pids map[string]int) {
	t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.exited
	waitEnded(t, pids)
	d.portsFree(3)
}

func TestDev_OtherNumbersOfNodes(t *testing.T) {
	takeSlot(t)
	for _, nodes := range []int{1, 5} {
		base, err := process.FreePorts(3, nodes, 1000)
		if err != nil {
			t.Fatal(err)
		}
		// The flags after -- are passed to the nodes.
		d := startDev(t, base, filepath.Join(t.TempDir(), "data"), "--nodes", strconv.Itoa(nodes), "--",
			"--max-bulk-bytes", "1000")
		pids, _ := d.table(nodes)
		last := &process.Node{ID: "last", Clients: process.Loopback(base + nodes - 1)}
		want(t, last, "OK", "SET", "k", "v")
		want(t, last, "ERR Protocol error: invalid bulk length", "SET", "k", strings.Repeat("v", 1001))
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := d.waitEnd(); code != 0 {
			t.Errorf("dev of %d nodes: exit code %d after SIGTERM, want 0", nodes, code)
		}
		waitEnded(t, pids)
	}
}

// TestDev_Hangup checks that dev and its nodes stop when their terminal is
// closed, but not under nohup.
func TestDev_Hangup(t *testing.T) {
	takeSlot(t)
	for _, nohup := range []bool{false, true} {
		base, err := process.FreePorts(3, 1, 1000)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary)
		if nohup {
			cmd = exec.Command("nohup", binary)
		}
		d := startDevAs(t, cmd, base, filepath.Join(t.TempDir(), "data"), "--nodes", "1")
		pids, _ := d.table(1)
		if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGHUP); err != nil { // the signal of a terminal that closes
			t.Fatal(err)
		}
		if !nohup {
			if code := d.waitEnd(); code != 0 {
				t.Errorf("exit code %d after SIGHUP, want 0", code)
			}
			waitEnded(t, pids)
			continue
		}
		// dev has ignored the signal: it reports the end of a node, which it
		// would not do if it were stopping.
		if err := syscall.Kill(pids["n1"], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		d.waitFor(fmt.Sprintf("n1 (pid %d) is gone: signal: killed", pids["n1"]))
	}
}

// TestDev_NodesThatDoNotStart checks that dev reports nodes that end by
// themselves, with the reason.
func TestDev_NodesThatDoNotStart(t *testing.T) {
	takeSlot(t)
	base, err := process.FreePorts(3, 3, 1000)
	if err != nil {
		t.Fatal(err)
	}
	d := startDev(t, base, filepath.Join(t.TempDir(), "data"), "--", "--log-store", "leveldb")
	if code := d.waitEnd(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantLine(t, d.out.String(), "n2 (pid ", " is gone: exit status 1; its log: ", "n2.log")
	wantLine(t, d.out.String(), `--log-store is "leveldb"`)
	wantLine(t, d.out.String(), "holdfast: no node is left")
}
