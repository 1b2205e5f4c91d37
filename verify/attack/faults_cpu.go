package attack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/platform"
	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// cpuFaults are faults that keep nodes from the processor. The nodes are up and
// connected, but everything that they do is late.
var cpuFaults = []fault{
	{class: "leader starved of CPU", group: cpus, needs: canStarve, run: starveLeader},
	{class: "all nodes on one core with hogs", group: cpus, needs: canStarve, run: starveAll},
	{class: "leader runs in slices", group: cpus, run: timeSliced},
	{class: "garbage collector under pressure", group: cpus, run: gcPressure},
}

// starved restricts nodes to one processor, on which hogs run, for a while. The
// fault counts if the threads of each node together waited for at least the
// given fraction of the time.
func (s *injection) starved(ctx context.Context, nodes []*node, count int, part float64) (seen string, err error) {
	var one platform.Processors
	all, err := platform.Affinity()
	if err != nil {
		return "", err
	}
	var cores []int
	for i := range len(all) * 64 {
		if all.IsSet(i) {
			cores = append(cores, i)
		}
	}
	core := cores[s.rng.IntN(len(cores))]
	one.Set(core)
	before := make([]schedTimes, len(nodes))
	for i, n := range nodes {
		if before[i], err = turnsOf(n.PID()); err != nil {
			return "", err
		}
	}
	defer func() {
		for _, n := range nodes {
			if n.Running() {
				err = errors.Join(err, pin(n.PID(), all))
			}
		}
	}()
	for _, n := range nodes {
		if err := pin(n.PID(), one); err != nil {
			return "", err
		}
	}
	h, err := startHogs(count, one)
	defer h.stop()
	if err != nil {
		return "", err
	}
	begun := time.Now()
	s.waitRandom(ctx, 1500*time.Millisecond, 3500*time.Millisecond)
	took := time.Since(begun)
	var said []string
	for i, n := range nodes {
		now, err := turnsOf(n.PID())
		if err != nil {
			return "", err
		}
		t := now.since(before[i])
		if float64(t.waited) < part*float64(took) {
			return "", nil
		}
		said = append(said, fmt.Sprintf("%s ran %v and waited %v", n.ID, t.ran.Round(time.Millisecond),
			t.waited.Round(time.Millisecond)))
	}
	return fmt.Sprintf("core %d with %d hogs for %v: %s", core, count, took.Round(time.Millisecond),
		strings.Join(said, ", ")), nil
}

func starveLeader(ctx context.Context, s *injection) (string, error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	return s.starved(ctx, []*node{n}, 3+s.rng.IntN(6), 0.5)
}

func starveAll(ctx context.Context, s *injection) (string, error) {
	return s.starved(ctx, s.c.live(), 1+s.rng.IntN(3), 0.25)
}

// timeSliced lets the leader run only for a part of each period of 20 to 300 ms,
// like a container that has used up its CPU quota. All threads of the leader
// stop, at arbitrary points of the program.
func timeSliced(ctx context.Context, s *injection) (seen string, err error) {
	n, err := s.leader(ctx)
	if err != nil {
		return "", err
	}
	period := s.between(20*time.Millisecond, 300*time.Millisecond)
	slice := period * s.between(5, 40) / 100
	defer func() {
		if n.Running() {
			err = errors.Join(err, n.Signal(syscall.SIGCONT))
		}
	}()
	stops, stopped, begun := 0, time.Duration(0), time.Now()
	for length := s.between(1500*time.Millisecond, 3500*time.Millisecond); time.Since(begun) < length; {
		if err := n.Signal(syscall.SIGSTOP); err != nil {
			return "", err
		}
		at := time.Now()
		if !load.Sleep(ctx, period-slice) {
			return "", nil
		}
		if n.sigstopped() {
			stops++
		}
		if err := n.Signal(syscall.SIGCONT); err != nil {
			return "", err
		}
		stopped += time.Since(at)
		if !load.Sleep(ctx, slice) {
			return "", nil
		}
	}
	if stops == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s in state T %d times, %v of %v", n.ID, stops, stopped.Round(time.Millisecond),
		time.Since(begun).Round(time.Millisecond)), nil
}

// minCollections is how often the garbage collector must run in a node for the
// fault to count. A node with its usual memory runs the collector less often in
// a whole episode.
const minCollections = 20

// gcPressure makes the garbage collector of the nodes run far more often than
// usual: by a low GOGC and, in half of the cases, also by a low memory limit.
func gcPressure(ctx context.Context, s *injection) (string, error) {
	env := []string{"GODEBUG=gctrace=1", "GOGC=10"}
	if s.rng.IntN(2) == 0 {
		env = append(env, "GOMEMLIMIT=12MiB")
	}
	nodes := s.c.live()
	if err := s.roll(ctx, nodes, func(n *node) { n.Use(n.Program(), env...) }); err != nil {
		return "", err
	}
	s.waitRandom(ctx, 1500*time.Millisecond, 3500*time.Millisecond)
	wait, stop := withLimit(ctx, 5*time.Second, "collections")
	defer stop()
	var said []string
	enough := process.Poll(wait, "the collector to run", func() bool {
		said = nil
		all := true
		for _, n := range nodes {
			count := strings.Count(n.Output(), "\ngc ")
			all = all && count >= minCollections
			said = append(said, fmt.Sprintf("%d in %s", count, n.ID))
		}
		return all
	}) == nil
	if err := s.roll(ctx, nodes, func(n *node) { n.Use(n.Program()) }); err != nil {
		return "", err
	}
	if !enough {
		return "", nil
	}
	return fmt.Sprintf("collections with %s: %s", strings.Join(env[1:], " "), strings.Join(said, ", ")), nil
}
