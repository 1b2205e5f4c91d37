package matrix

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// arena is a cluster on which the tests run a library.
type arena struct {
	t       *testing.T
	cluster *process.Cluster
	// sentinels are the addresses of the nodes' Sentinel ports, if the
	// nodes have them.
	sentinels []string

	// entry is the client address of a follower. nodes are the client addresses
	// of all nodes, with entry first.
	entry string
	nodes []string
	// killLeader kills the leader with kill -9 and returns when another node
	// leads. Calls after the first do nothing.
	killLeader func()
	killed     atomic.Bool // true if killLeader has been called since the last call of ready
}

// limit is the time limit of one entry of the matrix on a slow machine.
const limit = 2 * time.Minute

// These are the modes in which nodes run.
const (
	standalone  = ""
	sentinel    = "Sentinel"
	clusterMode = "cluster"
)

// newArena starts three nodes.
func newArena(t *testing.T, mode string) *arena {
	t.Helper()
	var args []string
	if mode == clusterMode {
		args = []string{"--cluster-mode"}
	}
	c := testutil.NewCluster(t, process.Config{Program: program, Args: args})
	a := &arena{t: t, cluster: c}
	if mode == sentinel {
		base, err := process.FreePorts(1, len(c.Nodes), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Nodes {
			a.sentinels = append(a.sentinels, "127.0.0.1:"+strconv.Itoa(base+i))
		}
	}
	a.start(t)
	return a
}

// start starts the nodes that are not running.
func (a *arena) start(t *testing.T) {
	t.Helper()
	for i, n := range a.cluster.Nodes {
		if !n.Running() {
			var extra []string
			if a.sentinels != nil {
				extra = []string{"--sentinel-addr", a.sentinels[i]}
			}
			if err := n.Start(extra...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// ready starts all nodes, removes all data, and sets the addresses to which
// clients connect.
func (a *arena) ready(ctx context.Context, t *testing.T) {
	t.Helper()
	a.start(t)
	leader, err := a.cluster.Settled(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.nodes = nil
	for _, n := range a.cluster.Running(leader) {
		a.nodes = append(a.nodes, n.Clients)
	}
	a.entry = a.nodes[0]
	a.nodes = append(a.nodes, leader.Clients)
	for _, command := range []string{"FLUSHALL", "SCRIPT FLUSH"} {
		if err := do(leader.Clients, command); err != nil {
			t.Fatal(err)
		}
	}
	a.killed.Store(false)
	var once sync.Once
	a.killLeader = func() {
		once.Do(func() {
			a.killed.Store(true)
			if err := leader.Kill(); err != nil {
				t.Error(err)
			}
			if _, err := a.cluster.Leader(ctx, leader); err != nil {
				t.Error(err)
			}
		})
	}
}

// do sends one command on a new connection.
func do(addr, command string) error {
	if _, err := respwire.NoError(respwire.Do(addr, limit, respwire.Words(command)...)); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

// contend lets workers compete for a lock. The function lock takes the lock and
// returns the function that releases it. contend kills the leader while a
// worker holds the lock. It fails if two workers hold the lock at the same
// time.
func contend(ctx context.Context, a *arena, workers, rounds int,
	lock func(ctx context.Context, worker int) (unlock func() error, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var inside, granted atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range rounds {
				unlock, err := lock(ctx, w)
				if err != nil {
					cancel(fmt.Errorf("lock: %w", err))
					return
				}
				if n := inside.Add(1); n != 1 {
					cancel(fmt.Errorf("%d owners at once", n))
				}
				if granted.Add(1) == int64(workers*rounds/2) {
					a.killLeader()
				}
				inside.Add(-1)
				if err := unlock(); err != nil {
					cancel(fmt.Errorf("unlock: %w", err))
					return
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if got, want := granted.Load(), int64(workers*rounds); got != want {
		return fmt.Errorf("%d grants, want %d", got, want)
	}
	return nil
}
