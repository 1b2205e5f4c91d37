package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// group is a kind of fault. A fault of the network or of the clocks may be active
// at the same time as a fault of another group.
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

	neighborGroup group = "neighbor"
)

// fault is one way to break a cluster.
type fault struct {
	class string
	group group
	// needs returns what this machine or the run lacks for the fault, or "" if
	// nothing is missing. If needs is nil, the fault has no requirements.
	needs func(Config) string
	nodes int  // required size of the cluster, 0 for any
	disk  bool // needs disks from diskSet
	// long marks faults that take up to twelve seconds. They are not chosen as
	// the second fault of a step.
	long bool
	// alone marks faults that need an otherwise undisturbed cluster. They are not
	// combined with another fault.
	alone bool
	// run injects the fault, waits, removes the fault, and returns the proof
	// that the fault took effect, or "" if there is no proof. An error is the
	// reason why the fault does not count.
	run func(ctx context.Context, s *injection) (seen string, err error)
}

// cutsPower reports whether the fault counts as a power cut.
func (f fault) cutsPower() bool { return f.disk && f.class != "full disk" }

// injection is one fault while it is active.
type injection struct {
	*episode
	rng *rand.Rand
	// points and pointErr are used by killAtPoint only. points are the
	// failpoints at which processes have ended. pointErr is the error of a step
	// that should have led a node to its failpoint.
	points   []string
	pointErr error
}

// allFaults returns all faults, in a fixed order.
func allFaults() []fault {
	return slices.Concat(processFaults, cpuFaults, versionFaults, linkFaults, clockFaults, diskFaults, memberFaults,
		operatorFaults, backupFaults, neighborFaults)
}

// waitRandom waits for a random time between low and high.
func (s *injection) waitRandom(ctx context.Context, low, high time.Duration) {
	load.Sleep(ctx, s.between(low, high))
}

func (s *injection) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.rng.Int64N(int64(high-low)+1))
}

// withLimit returns a context that ends after d. The cause of its end
// (context.Cause) contains the text what, which names the step that must be
// complete by then.
func withLimit(ctx context.Context, d time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%s: not within %v", what, d))
}

// leader returns the current leader.
func (s *injection) leader(ctx context.Context) (*node, error) {
	wait, stop := withLimit(ctx, 20*time.Second, "find a leader")
	defer stop()
	return s.c.leader(wait)
}

// follower returns a random live follower.
func (s *injection) follower(ctx context.Context) (*node, error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	all := s.c.followers(leader)
	if len(all) == 0 {
		return nil, fmt.Errorf("no follower is alive")
	}
	return all[s.rng.IntN(len(all))], nil
}

// leaderOrFollower returns the leader in two of three cases and a follower otherwise.
func (s *injection) leaderOrFollower(ctx context.Context) (*node, error) {
	if s.rng.IntN(3) == 0 {
		return s.follower(ctx)
	}
	return s.leader(ctx)
}

// majority returns the leader and enough followers to form a majority.
func (s *injection) majority(ctx context.Context) ([]*node, error) {
	leader, err := s.leader(ctx)
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
