package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// clockFaults are the faults of clocks. The uptime that a node reports proves
// that they took effect, because a node measures its uptime with its wall clock.
var clockFaults = []fault{
	{class: "wall clock jumps", group: clocks, run: wallJump},
	{class: "wall clock strobes", group: clocks, run: wallStrobe},
	{class: "clock runs slow", group: clocks, run: clockSlow},
	{class: "clock stands still", group: clocks, run: clockFrozen},
}

// wrongClocks changes the test clocks of the nodes for a while. The fault
// counts only if the wall clock of the first node was wrong by at least half of
// the intended offset, wall.
func (s *injection) wrongClocks(ctx context.Context, what string, nodes []*node, wall time.Duration, rate float64,
	low, high time.Duration) (string, error) {
	before, err := s.uptime(ctx, nodes[0])
	if err != nil {
		return "", nil // the node is down: nothing was injected
	}
	begun := time.Now()
	for _, n := range nodes {
		if err := n.setClocks(wall, rate); err != nil {
			return "", err
		}
	}
	s.waitRandom(ctx, low, high)
	after, uerr := s.uptime(ctx, nodes[0])
	passed := time.Since(begun)
	for _, n := range nodes {
		if err := n.setClocks(0, 1); err != nil {
			return "", err
		}
	}
	off := after - before - passed
	if uerr != nil || off.Abs() < wall.Abs()/2 {
		return "", nil
	}
	return fmt.Sprintf("%s: wall clock of %s off by %v", what, nodes[0].ID, off.Round(time.Millisecond)), nil
}

func (s *injection) uptime(ctx context.Context, n *node) (time.Duration, error) {
	text, err := n.ask(ctx, time.Second, "STATUS", "LOCAL")
	if err != nil {
		return 0, err
	}
	var st []struct {
		Uptime float64 `json:"uptime_seconds"`
	}
	if err := json.Unmarshal([]byte(text), &st); err != nil || len(st) != 1 {
		return 0, fmt.Errorf("%s: status %q: want one node, error %v", n.ID, text, err)
	}
	return time.Duration(st[0].Uptime * float64(time.Second)), nil
}

// clockNodes returns the leader, a follower, or all nodes.
func (s *injection) clockNodes(ctx context.Context) ([]*node, error) {
	if s.rng.IntN(3) == 0 {
		return s.c.nodes, nil
	}
	n, err := s.leaderOrFollower(ctx)
	return []*node{n}, err
}

func wallJump(ctx context.Context, s *injection) (string, error) {
	nodes, err := s.clockNodes(ctx)
	if err != nil {
		return "", err
	}
	jump := []time.Duration{500 * time.Millisecond, 10 * time.Second, 5 * time.Minute, time.Hour}[s.rng.IntN(4)]
	if s.rng.IntN(2) == 0 {
		jump = -jump
	}
	return s.wrongClocks(ctx, "jump of "+jump.String(), nodes, jump, 1, 500*time.Millisecond, 2*time.Second)
}

func wallStrobe(ctx context.Context, s *injection) (string, error) {
	n, err := s.leaderOrFollower(ctx)
	if err != nil {
		return "", err
	}
	seen := ""
	for i := range 8 {
		wall := s.between(time.Second, time.Minute)
		if i%2 == 0 {
			wall = -wall
		}
		got, err := s.wrongClocks(ctx, "strobe", []*node{n}, wall, 1, 60*time.Millisecond, 200*time.Millisecond)
		if err != nil {
			return "", err
		}
		if got != "" {
			seen = got
		}
	}
	return seen, nil
}

// clockSlow lets clocks run at half their speed. Such a clock makes locks last
// longer, never shorter. clockSlow moves the wall clock as well, so that the
// uptime of the node proves the fault.
func clockSlow(ctx context.Context, s *injection) (string, error) {
	nodes, err := s.clockNodes(ctx)
	if err != nil {
		return "", err
	}
	return s.wrongClocks(ctx, "half the speed", nodes, 3*time.Second, 0.5, time.Second, 2500*time.Millisecond)
}

func clockFrozen(ctx context.Context, s *injection) (string, error) {
	nodes, err := s.clockNodes(ctx)
	if err != nil {
		return "", err
	}
	return s.wrongClocks(ctx, "no speed", nodes, -3*time.Second, 0, time.Second, 2*time.Second)
}
