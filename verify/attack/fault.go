package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// group is the part of the machine that a fault works on. Faults of the network
// and of clocks may be at work beside one of another group.
type group string

const (
	processes group = "process"
	cpus      group = "cpu"
	versions  group = "version"
	links     group = "network"
	clocks    group = "clock"
	disks     group = "disk"
	members   group = "membership"
	operators group = "operator"
)

// fault is one way to break a cluster.
type fault struct {
	class string
	group group
	// needs says what this machine or the run lacks for it, "" for nothing. Nil
	// needs nothing.
	needs func(Config) string
	nodes int  // it needs a cluster of so many, 0 for any
	disk  bool // it needs disks of our own
	// heavy faults are dealt half as often: they take long.
	heavy bool
	// run injects the fault, lets it last, takes it back, and returns what proves
	// that it took effect; "" if nothing does. An error means that the harness
	// itself failed.
	run func(ctx context.Context, s *strike) (seen string, err error)
}

// strike is one fault at work.
type strike struct {
	*episode
	rng *rand.Rand
	// Of killAtPoint: where it has seen processes end, and what went wrong of what was
	// to lead there.
	points  []string
	trouble error
}

// catalogue returns all faults, in a fixed order.
func catalogue() []fault {
	return slices.Concat(processFaults, cpuFaults, versionFaults, linkFaults, clockFaults, diskFaults, memberFaults, operatorFaults)
}

// last waits for a time between low and high.
func (s *strike) last(ctx context.Context, low, high time.Duration) {
	sleep(ctx, s.between(low, high))
}

func (s *strike) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.rng.Int64N(int64(high-low)+1))
}

// soon bounds a wait of a fault for something that has to happen.
func soon(ctx context.Context, d time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%s: not within %v", what, d))
}

// lead returns the present leader.
func (s *strike) lead(ctx context.Context) (*node, error) {
	wait, stop := soon(ctx, 20*time.Second, "find a leader")
	defer stop()
	return s.c.leader(wait)
}

// follower returns one of the others.
func (s *strike) follower(ctx context.Context) (*node, error) {
	leader, err := s.lead(ctx)
	if err != nil {
		return nil, err
	}
	all := s.c.followers(leader)
	if len(all) == 0 {
		return nil, fmt.Errorf("no follower lives")
	}
	return all[s.rng.IntN(len(all))], nil
}

// someone returns the leader, or in one of three cases a follower.
func (s *strike) someone(ctx context.Context) (*node, error) {
	if s.rng.IntN(3) == 0 {
		return s.follower(ctx)
	}
	return s.lead(ctx)
}

// majority returns the leader and as many others as make a majority.
func (s *strike) majority(ctx context.Context) ([]*node, error) {
	leader, err := s.lead(ctx)
	if err != nil {
		return nil, err
	}
	all := []*node{leader}
	for _, n := range s.c.followers(leader) {
		if len(all) <= len(s.c.nodes)/2 {
			all = append(all, n)
		}
	}
	return all, nil
}
