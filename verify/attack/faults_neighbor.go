package attack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/neighbor"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// neighborFaults contains one class for each load of package neighbor. The
// clients of such a load send commands that can harm the other clients of their
// node. No other fault is active at the same time, so an election during such a
// fault is caused by the load.
var neighborFaults = neighbors()

func neighbors() []fault {
	var all []fault
	for _, l := range neighbor.All() {
		all = append(all, fault{class: "neighbor: " + l.Name, group: neighborGroup,
			run: func(ctx context.Context, s *injection) (string, error) { return s.neighbor(ctx, l) }})
	}
	return all
}

// neighborScale divides the sizes of the loads. (The target bench of the
// Makefile runs the loads at their full size.) An episode takes snapshots all
// the time and compares every key with a real Redis at its end, so it needs
// smaller loads.
const neighborScale = 2

// neighborWait is how long another client may wait for a lock, a login, the
// result of a new script, or a message. It is far longer than the wait that
// make bench accepts, because the machine may have no free processor for the
// node for a while. It is far shorter than the stalls that such a load causes
// on a node that sets its clients no limits.
const neighborWait = 2 * time.Second

// neighbor runs a load against a node, and runs a victim and a bystander at the
// same node.
func (s *injection) neighbor(ctx context.Context, l neighbor.Load) (string, error) {
	leader, term, err := s.steadyLeader(ctx)
	if err != nil {
		return "", err
	}
	n, err := s.leaderOrFollower(ctx)
	if err != nil {
		return "", err
	}
	began, err := s.c.usage()
	if err != nil {
		return "", err
	}
	logs := s.c.logSizes()
	pauses := probePauses(ctx, load.Sleep)
	defer pauses.stop()
	to := neighbor.Target{Addr: n.Clients, Login: Login, Scale: neighborScale, Prefix: "neighbor:"}
	running, err := neighbor.Start(ctx, l, to)
	if err != nil {
		return "", err
	}
	times, others, failed := s.victims(ctx, to)
	effect := running.Stop()
	if ctx.Err() != nil {
		return "", nil
	}
	ended, err := s.c.usage()
	if err != nil {
		return "", err
	}
	if others := ended.others(began); others > maxOthers {
		return "", errors.Join(neighbor.Clean(ctx, to), fmt.Errorf("other processes of this machine used %.0f %% of "+
			"its processors", 100*others))
	}
	if failed != nil {
		s.violation("neighbor", "%s at %s: %v", l.Name, n.ID, failed)
	}
	if longest := times.At(1); longest > neighborWait {
		s.violation("neighbor", "%s at %s: a lock of another client took %v, at most %v is accepted", l.Name, n.ID,
			longest.Round(time.Millisecond), neighborWait)
	}
	if action, longest := others.Max(); longest > neighborWait {
		s.violation("neighbor", "%s at %s: a %s of another client took %v, at most %v is accepted", l.Name, n.ID,
			action, longest.Round(time.Millisecond), neighborWait)
	}
	after, err := leader.state(ctx)
	if err != nil {
		return "", err
	}
	if after.Term != term {
		if longest := pauses.stop(); longest > pausedFor {
			return "", errors.Join(neighbor.Clean(ctx, to), fmt.Errorf("the machine did not run this process for "+
				"%v, and the term changed from %d to %d", longest.Round(time.Millisecond), term, after.Term))
		}
		s.violation("neighbor", "%s at %s: %s led in term %d, and the term is %d afterward:\n%s", l.Name, n.ID,
			leader.ID, term, after.Term, s.c.electionLog(logs))
	}
	if err := neighbor.Clean(ctx, to); err != nil {
		return "", err
	}
	if effect.Rounds+effect.Closed == 0 {
		return "", nil
	}
	action, longest := others.Max()
	return fmt.Sprintf("%s: %v; %d locks of another client, the slowest after %v; the slowest of its other actions, a "+
		"%s, took %v", n.ID, effect, len(times), times.At(1).Round(time.Millisecond), action,
		longest.Round(time.Millisecond)), nil
}

// steadyFor is how long the nodes must have followed the same leader before a load
// begins. Several nodes can campaign when a partition heals, and the votes of such
// an election can end the first leadership after it. HeartbeatTimeout is 0.5 s in
// an episode, and a node campaigns after at most twice that time.
const steadyFor = 1500 * time.Millisecond

// steadyLeader waits until all running nodes have followed the same leader in the
// same term for steadyFor. It returns that leader and the term.
func (s *injection) steadyLeader(ctx context.Context) (leader *node, term uint64, err error) {
	wait, stop := withLimit(ctx, 20*time.Second, "find a leader that all nodes follow")
	defer stop()
	var since time.Time
	err = process.Poll(wait, "a leader that all nodes follow", func() bool {
		nodes := s.c.live()
		n, t := followed(states(wait, nodes), len(nodes))
		if n != leader || t != term {
			leader, term, since = n, t, time.Now()
		}
		return leader != nil && time.Since(since) >= steadyFor
	})
	return leader, term, err
}

// followed returns the leader and its term if all of the given number of nodes
// have reported their state and follow that leader in that term. Otherwise, the
// leader is nil.
func followed(all map[*node]state, nodes int) (leader *node, term uint64) {
	for n, s := range all {
		if s.Role == "leader" && s.Ready {
			leader, term = n, s.Term
		}
	}
	if leader == nil || len(all) != nodes {
		return nil, 0
	}
	for _, s := range all {
		if s.Term != term || s.Leader != leader.ID {
			return nil, 0
		}
	}
	return leader, term
}

// victims runs a client that takes locks, and a client that logs in, runs new
// scripts and publishes messages.
func (s *injection) victims(ctx context.Context, to neighbor.Target) (times neighbor.Times, others neighbor.Longest,
	err error) {
	v, err := neighbor.NewVictim(ctx, to)
	if err != nil {
		return nil, others, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	b, err := neighbor.NewBystander(ctx, to)
	if err != nil {
		return nil, others, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	lasting, stop := context.WithTimeout(ctx, s.between(1500*time.Millisecond, 3500*time.Millisecond))
	defer stop()
	var refused error
	var running sync.WaitGroup
	running.Go(func() { others, refused = b.Run(lasting) })
	times, err = v.Run(lasting)
	running.Wait()
	return times, others, errors.Join(err, refused)
}
