package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
)

var diskFaults = []fault{
	{class: "EIO on fsync", group: disks, needs: canTrace, run: failingFsync},
	{class: "EIO on write", group: disks, needs: canTrace, run: failingWrite},
	{class: "slow fsync", group: disks, needs: canTrace, run: slowFsync},
	{class: "hanging fsync", group: disks, needs: canTrace, run: hangingFsync},
	{class: "full disk", group: disks, needs: canMount, disk: true, run: fullDisk},
	{class: "power cut of one", group: disks, needs: canMount, disk: true, run: powerCutOne},
	{class: "power cut of a majority", group: disks, needs: canMount, disk: true, run: powerCutMajority},
	{class: "power cut of all", group: disks, needs: canMount, disk: true, run: powerCutAll},
}

const syncCalls = "fsync,fdatasync,sync_file_range"

// canTrace returns why strace cannot make system calls fail on this machine, or
// "" if it can.
func canTrace(Config) string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "needs strace"
	}
	if os.Getuid() != 0 {
		return "needs root, to attach strace"
	}
	return ""
}

// trace attaches strace to the node and makes strace tamper with the node's
// system calls. detach ends the tracing and returns the output of strace.
func (s *injection) trace(ctx context.Context, n *node, calls, inject string) (detach func() string, err error) {
	path := filepath.Join(s.dir, fmt.Sprintf("%s.strace.%d", n.ID, time.Now().UnixNano()))
	out, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("strace", "-f", "-p", fmt.Sprint(n.PID()), "-e", "trace="+calls, "-e",
		"inject="+calls+":"+inject)
	cmd.Stderr = out
	err = process.Start(cmd)
	discard(out.Close())
	if err != nil {
		return nil, fmt.Errorf("strace: %w", err)
	}
	read := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return string(b)
	}
	detach = func() string {
		discard(cmd.Process.Kill())
		discard(cmd.Wait())
		return read()
	}
	wait, stop := withLimit(ctx, 10*time.Second, "strace")
	defer stop()
	if err := process.Poll(wait, "strace to attach",
		func() bool { return strings.Contains(read(), "attached") }); err != nil {
		return nil, errors.Join(err, errors.New(detach()))
	}
	return detach, nil
}

// endsItself makes the disk of a node fail, waits until the node ends for that
// reason, and then restarts the node on a working disk.
func (s *injection) endsItself(ctx context.Context, calls, inject, says string, limit time.Duration) (string, error) {
	n, err := s.leaderOrFollower(ctx)
	if err != nil {
		return "", err
	}
	n.allowEnd()
	detach, err := s.trace(ctx, n, calls, inject)
	if err != nil {
		return "", err
	}
	wait, stop := withLimit(ctx, limit, "end itself")
	defer stop()
	begun := time.Now()
	said := process.Poll(wait, n.ID+" to give up",
		func() bool { return strings.Contains(n.Output(), "holdfast: fatal: ") }) == nil
	took := time.Since(begun)
	detach()
	n.clients.close()
	n.peers.close()
	output := n.Output()
	if err := n.kill(); err != nil {
		return "", err
	}
	if err := n.start(); err != nil {
		return "", err
	}
	if !said {
		s.violation("failing disk", "%s did not end itself within %v: %s", n.ID, limit, inject)
		return "", nil
	}
	if !strings.Contains(output, says) {
		return "", nil
	}
	return fmt.Sprintf("%s ended after %v: %s", n.ID, took.Round(time.Millisecond), says), nil
}

func failingFsync(ctx context.Context, s *injection) (string, error) {
	return s.endsItself(ctx, syncCalls, "error=EIO", "input/output error", 15*time.Second)
}

func failingWrite(ctx context.Context, s *injection) (string, error) {
	inject, says := "error=EIO", "input/output error"
	if s.rng.IntN(2) == 0 {
		inject, says = "error=ENOSPC", "no space left on device"
	}
	return s.endsItself(ctx, "pwrite64", inject, says, 15*time.Second)
}

// hangingFsync makes an fsync hang for longer than --disk-stall-timeout, which
// is 3 s by default.
func hangingFsync(ctx context.Context, s *injection) (string, error) {
	return s.endsItself(ctx, syncCalls, "delay_enter=15000000", diskStalled, 15*time.Second)
}

func slowFsync(ctx context.Context, s *injection) (string, error) {
	n, err := s.leaderOrFollower(ctx)
	if err != nil {
		return "", err
	}
	delay := s.between(40*time.Millisecond, 250*time.Millisecond)
	detach, err := s.trace(ctx, n, syncCalls, fmt.Sprintf("delay_enter=%d", delay.Microseconds()))
	if err != nil {
		return "", err
	}
	s.waitRandom(ctx, time.Second, 2500*time.Millisecond)
	count := strings.Count(detach(), "(DELAYED)")
	if count == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d fsyncs of %s took %v longer each", count, n.ID, delay.Round(time.Millisecond)), nil
}

// fullDisk uses up all space on the disk of a node. The node ends if it cannot
// write its log, and may continue if it only cannot take a snapshot. A node
// that has ended must come back when there is free space again.
func fullDisk(ctx context.Context, s *injection) (string, error) {
	n, err := s.leaderOrFollower(ctx)
	if err != nil {
		return "", err
	}
	n.allowEnd()
	balloon, err := n.disk.fill()
	if err != nil {
		return "", err
	}
	wait, stop := withLimit(ctx, 4*time.Second, "end itself")
	defer stop()
	// Until the current segment of the log is full, the log needs no new space.
	// A snapshot does need new space.
	_ = process.Poll(wait, n.ID+" to give up", func() bool {
		if !n.Running() {
			return true
		}
		_, _ = n.ask(ctx, time.Second, "SNAPSHOT") // the reply does not matter: the node writes to its disk in any case
		return !n.Running()
	})
	ended := !n.Running()
	output := n.Output()
	if err := os.Remove(balloon); err != nil {
		return "", err
	}
	if ended {
		if err := errors.Join(n.kill(), n.start()); err != nil {
			return "", err
		}
	}
	if !strings.Contains(output, "no space left on device") {
		return "", nil
	}
	if ended {
		return n.ID + " ended: no space left on device", nil
	}
	return n.ID + " continued without a snapshot: no space left on device", nil
}

// powerCut cuts the power of the disks of nodes, so that everything that was
// not durable is lost. Then the nodes restart with the contents of their disks.
func (s *injection) powerCut(ctx context.Context, nodes []*node) (string, error) {
	var lost []string
	for _, n := range nodes {
		n.allowEnd()
	}
	for _, n := range nodes {
		if err := n.disk.cutPower(); err != nil {
			return "", err
		}
	}
	for _, n := range nodes {
		if err := n.kill(); err != nil {
			return "", err
		}
		if os.WriteFile(filepath.Join(n.files, "probe"), nil, 0o600) != nil {
			lost = append(lost, n.ID)
		}
	}
	s.waitRandom(ctx, 0, 600*time.Millisecond)
	wait, stop := withLimit(ctx, 10*time.Second, "disk back")
	defer stop()
	for _, n := range nodes {
		var err error
		if perr := process.Poll(wait, n.ID+"'s disk to be free",
			func() bool { err = n.disk.detach(); return err == nil }); perr != nil {
			return "", errors.Join(perr, err)
		}
		if err := n.disk.attach(); err != nil {
			return "", err
		}
		if err := n.start(); err != nil {
			return "", err
		}
	}
	if len(lost) < len(nodes) {
		return "", nil
	}
	return "disks lost power, and their journals were replayed: " + strings.Join(lost, ", "), nil
}

func powerCutOne(ctx context.Context, s *injection) (string, error) {
	n, err := s.leaderOrFollower(ctx)
	if err != nil {
		return "", err
	}
	return s.powerCut(ctx, []*node{n})
}

func powerCutMajority(ctx context.Context, s *injection) (string, error) {
	nodes, err := s.majority(ctx)
	if err != nil {
		return "", err
	}
	return s.powerCut(ctx, nodes)
}

func powerCutAll(ctx context.Context, s *injection) (string, error) {
	return s.powerCut(ctx, s.c.live())
}
