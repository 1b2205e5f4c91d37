package attack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// monitor watches the nodes from outside during an episode. It records the
// leader of each term and the states of the nodes, and it detects a process
// that has ended although it should be running. Its goroutine ends with stop.
type monitor struct {
	e      *episode
	cancel context.CancelFunc
	done   chan struct{}
	disk   *stallProbe

	looking sync.Mutex // held while the monitor asks the nodes

	mu          sync.Mutex
	leaders     map[uint64]string // by term
	failovers   int
	led         time.Duration // last time at which a node said that it led
	leaderships []Leadership
	points      []checker.Chain
	lost        [][]checker.Chain // points of the hash chains of earlier clusters: see newCluster
	latest      map[string]uint64 // by node: log index of the last recorded state
}

// monitorEvery is the interval at which the monitor asks the nodes.
const monitorEvery = 120 * time.Millisecond

func watch(ctx context.Context, e *episode) *monitor {
	m := &monitor{e: e, done: make(chan struct{}), leaders: make(map[uint64]string), latest: make(map[string]uint64)}
	ctx, m.cancel = context.WithCancel(ctx)
	m.disk = probeDisk(ctx, e.dir)
	go func() {
		defer close(m.done)
		for {
			m.look(ctx)
			if !load.Sleep(ctx, monitorEvery) {
				return
			}
		}
	}()
	return m
}

func (m *monitor) stop() {
	m.cancel()
	<-m.done
}

// newCluster forgets the terms and log indices of the cluster. The caller has
// killed all nodes, and makes a new cluster from the data of one of them. The new
// cluster may use terms and log indices that the lost cluster has used.
func (m *monitor) newCluster() {
	m.looking.Lock()
	defer m.looking.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaders, m.latest = make(map[uint64]string), make(map[string]uint64)
	m.lost, m.points = append(m.lost, m.points), nil
}

func (m *monitor) look(ctx context.Context) {
	m.looking.Lock()
	defer m.looking.Unlock()
	m.ends()
	for n, s := range states(ctx, m.e.c.live()) {
		m.note(n, s)
	}
}

// ends looks for processes that have ended by themselves.
func (m *monitor) ends() {
	for _, n := range m.e.c.all() {
		if !n.crashed() {
			continue
		}
		if strings.Contains(n.last(), diskStalled) && m.disk.stalled() {
			m.e.machineStalled(n)
			continue
		}
		m.e.violation("unplanned end", "%s has ended by itself: %s", n.ID, n.last())
	}
}

// diskStalled is the message of a node that ended because a disk write hung.
const diskStalled = "disk stalled"

// machineStall is the class of an event that no fault causes: this machine's
// own disk stalled.
const machineStall = "machine's own disk stalled"

// machineStalled records that a node has ended, as it should, because the disk
// of this machine stalled. It then restarts the node.
func (e *episode) machineStalled(n *node) {
	now := e.load.Now()
	ev := Event{Class: machineStall, From: now, To: now, Seen: n.ID + " ended: " + n.last()}
	e.mu.Lock()
	e.events = append(e.events, ev)
	e.health.Add(now-lostTime, now+recoverWithin)
	e.steady.Add(now-lostTime, now+recoverWithin)
	e.mu.Unlock()
	if err := errors.Join(n.kill(), n.start()); err != nil {
		e.violation("unplanned end", "%s does not start after the disk stalled: %v", n.ID, err)
	}
}

func (m *monitor) note(n *node, s state) {
	now := m.e.load.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Role == "leader" {
		switch other, known := m.leaders[s.Term]; {
		case !known:
			m.leaders[s.Term] = n.ID
			if len(m.leaders) > 1 {
				m.failovers++
				// Without a leader, the lease clock does not advance.
				m.e.ill(m.led-lostTime-2*monitorEvery, now+settle)
				m.e.unsteady(m.led-2*monitorEvery, now+leaderSettles)
			}
		case other != n.ID:
			m.e.violation("one leader a term", "%s and %s both lead term %d", other, n.ID, s.Term)
		}
		m.led = now
		m.leaderships = addLeadership(m.leaderships, n.ID, s.Term, now)
	}
	if s.StateIndex > m.latest[n.ID] && s.StateHash != "" {
		m.latest[n.ID] = s.StateIndex
		m.points = append(m.points, checker.Chain{Node: n.ID, At: now, Index: s.StateIndex, Hash: s.StateHash})
	}
}

// lostTime is how much elapsed time the lease clock may lose at a change of
// leader. settle is how long after the change the lease clock may remain
// stopped.
const (
	lostTime = 2500 * time.Millisecond
	settle   = time.Second
)

// convergeWithin is how long the nodes may take to reach the same log index. It
// exceeds the 10 s that an older build may wait before it sends entries again to a
// member that was away. make upgrade-test runs such builds.
const convergeWithin = 30 * time.Second

// converge waits until all members report the same log index, and records their
// states. It returns the commit index.
func (m *monitor) converge(ctx context.Context) (commit uint64, err error) {
	wait, stop := withLimit(ctx, convergeWithin, "nodes at rest")
	defer stop()
	for {
		all := states(ctx, m.e.c.nodes)
		commit, same := converged(all)
		if same && len(all) == len(m.e.c.nodes) {
			for n, s := range all {
				// Record the state again, whatever was recorded before.
				delete(m.latest, n.ID)
				m.note(n, s)
			}
			return commit, nil
		}
		if !load.Sleep(wait, 20*time.Millisecond) {
			return 0, fmt.Errorf("nodes do not converge to one log index: %w", context.Cause(wait))
		}
	}
}

// converged returns the commit index of the leader, and whether all nodes are at
// the same log index. Without a leader, it returns 0 and false. A node that has
// just started reports index 0 until the leader has sent it the commit index, so
// the nodes have not converged before that.
func converged(all map[*node]state) (commit uint64, same bool) {
	low, high := uint64(math.MaxUint64), uint64(0)
	for _, s := range all {
		low, high = min(low, s.StateIndex), max(high, s.StateIndex)
		if s.Role == "leader" {
			commit = s.Commit
		}
	}
	return commit, commit > 0 && low == high
}
