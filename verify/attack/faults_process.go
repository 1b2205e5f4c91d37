package attack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
)

var processFaults = []fault{
	{class: "kill -9 leader", group: processes, run: killLeader},
	{class: "kill -9 follower", group: processes, run: killFollower},
	{class: "kill -9 majority", group: processes, run: killMajority},
	{class: "kill -9 all", group: processes, run: killAll},
	{class: "pause leader", group: processes, run: pauseLeader},
	{class: "pause majority", group: processes, run: pauseMajority},
	{class: "pause with acks in flight", group: processes, run: pauseWithAcks},
	{class: "rolling restart", group: processes, run: rollingRestart},
	{class: "transfer storm", group: processes, run: transferStorm},
	{class: "snapshot race", group: processes, run: snapshotRace},
	{class: killAtPoint, group: processes, run: killAtPoints},
}

// killed kills nodes, leaves them dead for a while, and restarts them.
func (s *injection) killed(ctx context.Context, nodes []*node, low, high time.Duration) (string, error) {
	var ids []string
	for _, n := range nodes {
		pid := n.PID()
		if err := n.kill(); err != nil {
			return "", err
		}
		ids = append(ids, fmt.Sprintf("%s (pid %d)", n.ID, pid))
	}
	s.waitRandom(ctx, low, high)
	for _, n := range nodes {
		if err := n.start(); err != nil {
			return "", err
		}
	}
	return "gone: " + strings.Join(ids, ", "), nil
}

func killLeader(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	return s.killed(ctx, []*node{n}, 50*time.Millisecond, 1500*time.Millisecond)
}

func killFollower(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	return s.killed(ctx, []*node{n}, 50*time.Millisecond, 1500*time.Millisecond)
}

func killMajority(ctx context.Context, s *injection) (string, error) {
	nodes, err := s.majority(ctx)
	if err != nil {
		return "", err
	}
	return s.killed(ctx, nodes, 50*time.Millisecond, time.Second)
}

func killAll(ctx context.Context, s *injection) (string, error) {
	return s.killed(ctx, s.c.live(), 0, 500*time.Millisecond)
}

// paused stops nodes by SIGSTOP for a while.
func (s *injection) paused(ctx context.Context, nodes []*node, low, high time.Duration,
	meanwhile func()) (string, error) {
	var ids []string
	for _, n := range nodes {
		n.mu.Lock()
		n.paused = true
		n.mu.Unlock()
		if err := n.Signal(syscall.SIGSTOP); err != nil {
			return "", err
		}
	}
	wait, stop := withLimit(ctx, 2*time.Second, "state T")
	defer stop()
	for _, n := range nodes {
		if err := process.Poll(wait, n.ID+" to stop", n.sigstopped); err == nil {
			ids = append(ids, n.ID)
		}
	}
	if meanwhile != nil {
		meanwhile()
	}
	s.waitRandom(ctx, low, high)
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Signal(syscall.SIGCONT))
		n.mu.Lock()
		n.paused = false
		n.mu.Unlock()
	}
	if len(ids) < len(nodes) {
		return "", errors.Join(errs...)
	}
	return "in state T: " + strings.Join(ids, ", "), errors.Join(errs...)
}

func pauseLeader(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	return s.paused(ctx, []*node{n}, 250*time.Millisecond, 3*time.Second, nil)
}

func pauseMajority(ctx context.Context, s *injection) (string, error) {
	nodes, err := s.majority(ctx)
	if err != nil {
		return "", err
	}
	return s.paused(ctx, nodes, 250*time.Millisecond, 2*time.Second, nil)
}

// pauseWithAcks stops the leader while messages from its followers are on their
// way. When the leader resumes, it reads these old acknowledgements first. They
// must not make the leader believe that it still leads.
func pauseWithAcks(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	lift := s.c.net.apply(func(h hop) bool { return h.to == n.ID && h.from != clientSide },
		effect{delay: s.between(100*time.Millisecond, 350*time.Millisecond)})
	s.waitRandom(ctx, 150*time.Millisecond, 300*time.Millisecond)
	held := int64(0)
	seen, err := s.paused(ctx, []*node{n}, 1200*time.Millisecond, 3*time.Second, func() { held = lift() })
	if held == 0 || seen == "" {
		return "", err
	}
	return fmt.Sprintf("%s, %d chunks from its followers delayed", seen, held), err
}

// roll does the following for one node after the other: it stops the node by
// SIGTERM, calls the function change, restarts the node, and waits until the
// node serves again.
func (s *injection) roll(ctx context.Context, nodes []*node, change func(*node)) error {
	for _, n := range nodes {
		if err := n.stop(); err != nil {
			return err
		}
		change(n)
		if err := n.start(); err != nil {
			return err
		}
		wait, stop := withLimit(ctx, 20*time.Second, "come back")
		err := process.Poll(wait, n.ID+" to be ready", func() bool {
			st, err := n.state(ctx)
			return err == nil && st.Ready
		})
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func rollingRestart(ctx context.Context, s *injection) (string, error) {
	if err := s.roll(ctx, s.c.live(), func(*node) {}); err != nil {
		return "", err
	}
	return "every node ended with code 0 and came back", nil
}

func transferStorm(ctx context.Context, s *injection) (string, error) {
	done := 0
	for range 8 {
		leader, err := s.leader(ctx)
		if err != nil {
			return "", err
		}
		if _, err := leader.ask(ctx, 2*time.Second, "TRANSFER"); err == nil {
			done++
		}
		s.waitRandom(ctx, 50*time.Millisecond, 250*time.Millisecond)
	}
	if done == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d transfers", done), nil
}

// snapshotRace makes all nodes take snapshots repeatedly. Meanwhile, a node
// that was dead for a while may need entries that the others have deleted, and
// it dies again while it catches up.
func snapshotRace(ctx context.Context, s *injection) (string, error) {
	n, err := s.follower(ctx)
	if err != nil {
		return "", err
	}
	if err := n.kill(); err != nil {
		return "", err
	}
	taken, before := 0, n.installs()
	if s.trailing {
		if leader, err := s.leader(ctx); err == nil {
			// Another fault may prevent the leader from taking these snapshots.
			// The race then continues without them.
			_, _ = s.compactBeyond(ctx, leader)
		}
	}
	for range 3 {
		for _, other := range s.c.live() {
			if _, err := other.ask(ctx, 3*time.Second, "SNAPSHOT"); err == nil {
				taken++
			}
		}
		s.waitRandom(ctx, 50*time.Millisecond, 200*time.Millisecond)
	}
	if err := n.start(); err != nil {
		return "", err
	}
	s.waitRandom(ctx, 20*time.Millisecond, 300*time.Millisecond)
	if err := n.kill(); err != nil {
		return "", err
	}
	if err := n.start(); err != nil {
		return "", err
	}
	for _, other := range s.c.live() {
		if _, err := other.ask(ctx, 3*time.Second, "SNAPSHOT"); err == nil {
			taken++
		}
	}
	if taken == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d snapshots were taken while %s was killed twice; it installed %d from other nodes", taken,
		n.ID, n.installs()-before), nil
}
