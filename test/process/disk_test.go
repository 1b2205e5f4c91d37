package process_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// In these tests the disk of the leader fails or hangs under load. The process
// of the leader must end within the stall timeout plus one second. Another node
// must become leader. Clients of the other nodes may see a pause but no error.
// No acknowledged write may be missing.
//
// Except in TestDisk_Full, strace injects the fault: it attaches to the running
// leader, and makes its system calls fail or delays them.

// stallTimeout is the nodes' --disk-stall-timeout.
const stallTimeout = 3 * time.Second

func TestDisk_FailsOrStalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, inject string
		limit        time.Duration
		wantLog      string
	}{
		{"EIO", "fsync,fdatasync,sync_file_range:error=EIO", time.Second, "input/output error"},
		{"stall", "fsync,fdatasync,sync_file_range:delay_enter=10000000", stallTimeout + time.Second, "disk stalled"},
		{"EIO on write", "pwrite64:error=EIO", time.Second, "input/output error"},
		{"ENOSPC on write", "pwrite64:error=ENOSPC", time.Second, "no space left on device"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testutil.NeedProgram(t, testutil.RequireStrace, "strace")
			c := startCluster(t, "--disk-stall-timeout", stallTimeout.String())
			l := newLoad(t, "disk", each(6, c.Nodes)...)
			l.progress(50)
			leader := c.settled()
			l.excuseNode(leader, true)
			names, _, _ := strings.Cut(tt.inject, ":")
			begun := time.Now()
			detach := attach(t, leader, "-e", "trace="+names, "-e", "inject="+tt.inject)
			if detach == nil {
				t.Skip("strace may not attach to a process here (needs root or kernel.yama.ptrace_scope 0)")
			}
			c.waitDiskFailure(l, leader, begun, tt.limit, tt.wantLog, detach)

			// On a healthy disk the node starts again with all its
			// data.
			start(t, leader)
			c.settled()
			l.progress(20)
			l.excuse(false)
			l.progress(20)
			l.check(leader)
		})
	}
}

// failoverLimit is how long the other nodes may take to elect a leader on a
// busy machine, after the old leader has printed its fatal error. A process
// with a thread that hangs in the kernel keeps its connections open. In that
// case the other nodes notice its end only by the missing heartbeats.
const failoverLimit = 2 * time.Second

// waitDiskFailure waits until the node ends because of its disk, and checks
// that the load continues without it. release, if not nil, removes the fault.
// It is needed because a process cannot disappear while one of its threads
// hangs in the kernel.
func (c *cluster) waitDiskFailure(l *load, n *process.Node, since time.Time, limit time.Duration, wantLog string,
	release func()) {
	c.t.Helper()
	if err := process.Poll(testutil.Within(c.t, limit+20*time.Second), n.ID+" to end", func() bool {
		return strings.Contains(n.Output(), "holdfast: fatal: ")
	}); err != nil {
		c.t.Fatal(err)
	}
	ended := time.Since(since)
	if ended > limit {
		c.t.Errorf("%s gave up after %v, want %v at most", n.ID, ended, limit)
	}
	next := c.leader(n)
	led := time.Since(since)
	if led > ended+failoverLimit {
		c.t.Errorf("%s leads %v after %s gave up, want %v at most", next.ID, led-ended, n.ID, failoverLimit)
	}
	c.t.Logf("%s gave up after %v, %s leads after %v", n.ID, ended.Round(time.Millisecond), next.ID,
		led.Round(time.Millisecond))
	l.progress(50)
	if release != nil {
		release()
	}
	code, err := n.Wait(10 * time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	if code != 2 {
		c.t.Errorf("%s ended with code %d, want 2", n.ID, code)
	}
	wantLine(c.t, n.Output(), "holdfast: fatal: ", wantLog)
}

// attach lets strace intercept the node's system calls until the test ends, the
// node ends, or detach is called. It returns nil if strace may not attach.
func attach(t *testing.T, n *process.Node, args ...string) (detach func()) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "strace"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("strace", append([]string{"-f", "-p", fmt.Sprint(n.PID())}, args...)...)
	cmd.Stderr = out
	starter, err := process.CommonStarter()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(cmd); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // strace ends with the node, or is killed
		close(exited)
	}()
	detach = func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("kill strace: %v", err)
		}
		<-exited
	}
	t.Cleanup(detach)
	attached := false
	if err := process.Poll(testutil.Within(t, 10*time.Second), "strace to attach", func() bool {
		text, err := os.ReadFile(out.Name())
		attached = err == nil && strings.Contains(string(text), "attached")
		select {
		case <-exited:
			return true
		default:
			return attached
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !attached {
		return nil
	}
	return detach
}

// TestDisk_Full fills the disk of the leader. As after a failure of the disk,
// the node must end and another node must lead. The node must start again when
// the disk has space.
func TestDisk_Full(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := func(flags uintptr, size string) error {
		return syscall.Mount("tmpfs", disk, "tmpfs", flags, "size="+size)
	}
	// The mount is in a mount namespace that ends with its thread, so no
	// mount can be left behind.
	starter, err := process.NewStarter(func() error {
		if err := syscall.Unshare(syscall.CLONE_NEWNS | syscall.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		return mount(0, "100m")
	})
	if err != nil {
		t.Skipf("cannot mount a small file system here: %v", err)
	}
	// Without a reserve, a node fills its disk.
	args := []string{"--disk-stall-timeout", stallTimeout.String(), "--disk-reserve", "0"}
	c := newCluster(t, process.Config{Starter: starter, Args: args})
	t.Cleanup(starter.Close) // runs before the cluster's cleanup, and kills the nodes, which use the mount
	small := c.Nodes[0]
	for i, a := range small.Args {
		if a == small.Dir {
			small.Args[i] = filepath.Join(disk, "n1")
		}
	}
	c.start()
	if c.leader() != small {
		if o := invoke(t, nil, "member", "transfer", small.ID, "--addr", small.Clients); o.code != 0 {
			t.Fatalf("member transfer: %+v", o)
		}
		if err := process.Poll(testutil.Within(t, 10*time.Second), small.ID+" to lead",
			func() bool { return c.leader() == small }); err != nil {
			t.Fatal(err)
		}
	}
	l := newLoad(t, "full", each(6, c.Nodes)...)
	l.progress(20)
	l.excuseNode(small, true)
	// The disk has room for the first segment of 64 MiB, which exists from the
	// start, but not for the next one.
	conn := dial(t, c.others(small)[0])
	value := strings.Repeat("v", 1<<20)
	var begun time.Time
	for i := 0; small.Running() && i < 200; i++ {
		begun = time.Now()
		if got := show(conn, "SET", fmt.Sprintf("large:%d", i), value); got != "OK" {
			t.Fatalf("SET large:%d: %s", i, got)
		}
	}
	c.waitDiskFailure(l, small, begun, stallTimeout+time.Second, "no space left on device", nil)
	// The node waits for free space, logs that, and continues when there is
	// space.
	if err := small.Start(); err != nil {
		t.Fatal(err)
	}
	if err := process.Poll(testutil.Within(t, 20*time.Second), small.ID+" to wait for free space",
		func() bool { return strings.Contains(small.Output(), "cannot start yet: the disk of") }); err != nil {
		t.Fatal(err)
	}
	if err := starter.Do(func() error { return mount(syscall.MS_REMOUNT, "300m") }); err != nil {
		t.Fatal(err)
	}
	c.settled()
	l.progress(20)
	l.excuse(false)
	l.progress(20)
	for i := range 3 {
		want(t, small, value, "GET", fmt.Sprintf("large:%d", i))
	}
	l.check(small)
}
