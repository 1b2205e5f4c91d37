package storage_test

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// lines is a state machine that keeps every command.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (m *lines) Apply(l *raft.Log) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, string(l.Data))
	return nil
}

func (m *lines) get() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.all)
}

func (m *lines) Snapshot() (raft.FSMSnapshot, error) { return linesSnapshot(m.get()), nil }

func (m *lines) Restore(r io.ReadCloser) error {
	defer r.Close()
	var all []string
	for sc := bufio.NewScanner(r); sc.Scan(); {
		all = append(all, sc.Text())
	}
	m.mu.Lock()
	m.all = all
	m.mu.Unlock()
	return nil
}

type linesSnapshot []string

func (s linesSnapshot) Persist(sink raft.SnapshotSink) error {
	for _, l := range s {
		if _, err := fmt.Fprintln(sink, l); err != nil {
			return err
		}
	}
	return sink.Close()
}

func (linesSnapshot) Release() {}

// raftNode is a raft node on a data directory.
type raftNode struct {
	cfg    storage.Config
	stores *storage.Stores
	fsm    *lines
	trans  *raft.InmemTransport
	raft   *raft.Raft
}

func (n *raftNode) start(t *testing.T, all []*raftNode) {
	t.Helper()
	s, err := storage.Open(n.cfg)
	if err != nil {
		t.Fatalf("Open %s: %v", n.cfg.NodeID, err)
	}
	n.stores, n.fsm = s, &lines{}
	_, n.trans = raft.NewInmemTransport(raft.ServerAddress(n.cfg.NodeID))
	for _, o := range all {
		if o != n && o.raft != nil {
			n.trans.Connect(o.trans.LocalAddr(), o.trans)
			o.trans.Connect(n.trans.LocalAddr(), n.trans)
		}
	}
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(n.cfg.NodeID)
	rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = 400*time.Millisecond, 400*time.Millisecond, 300*time.Millisecond
	rc.CommitTimeout = 5 * time.Millisecond
	rc.TrailingLogs, rc.SnapshotThreshold = 5, 1<<40
	rc.Logger = hclog.NewNullLogger()
	empty, err := s.Empty()
	if err != nil {
		t.Fatal(err)
	}
	if empty {
		var servers []raft.Server
		for _, o := range all {
			servers = append(servers, raft.Server{ID: raft.ServerID(o.cfg.NodeID), Address: raft.ServerAddress(o.cfg.NodeID)})
		}
		if err := raft.BootstrapCluster(rc, s.Log(), s.Stable(), s.Snapshots(), n.trans, raft.Configuration{Servers: servers}); err != nil {
			t.Fatalf("bootstrap: %v", err)
		}
	}
	if n.raft, err = raft.NewRaft(rc, n.fsm, s.Log(), s.Stable(), s.Snapshots(), n.trans); err != nil {
		t.Fatalf("start raft on %s: %v", n.cfg.NodeID, err)
	}
}

func (n *raftNode) stop(t *testing.T, all []*raftNode) {
	t.Helper()
	if n.raft == nil {
		return
	}
	for _, o := range all {
		if o.raft != nil {
			o.trans.Disconnect(n.trans.LocalAddr())
		}
	}
	n.trans.DisconnectAll()
	if err := n.raft.Shutdown().Error(); err != nil {
		t.Errorf("shut down raft: %v", err)
	}
	n.raft = nil
	if err := n.stores.Close(); err != nil {
		t.Errorf("Close %s: %v", n.cfg.NodeID, err)
	}
}

// raftCluster is three raft nodes, and the commands that they must have applied.
type raftCluster struct {
	*testing.T
	all  []*raftNode
	want []string
}

func (c *raftCluster) leader() (l *raftNode) {
	c.Helper()
	testutil.Eventually(c.T, "leader", func() bool {
		for _, n := range c.all {
			if n.raft != nil && n.raft.State() == raft.Leader && n.raft.VerifyLeader().Error() == nil {
				l = n
			}
		}
		return l != nil
	})
	return l
}

// apply sends commands to an established leader only, because a command whose
// outcome is unknown could be applied twice.
func (c *raftCluster) apply(count int) {
	c.Helper()
	for range count {
		cmd := fmt.Sprintf("command %d", len(c.want))
		if err := c.leader().raft.Apply([]byte(cmd), time.Second).Error(); err != nil {
			c.Fatalf("apply: %v", err)
		}
		c.want = append(c.want, cmd)
	}
}

// agree waits until each running node has applied exactly the commands in want.
func (c *raftCluster) agree() {
	c.Helper()
	for _, n := range c.all {
		if n.raft != nil {
			testutil.Eventually(c.T, "agreement of "+n.cfg.NodeID, func() bool { return slices.Equal(n.fsm.get(), c.want) })
		}
	}
}

// fallBehind lets a follower miss entries that the others have compacted, so
// that it gets a snapshot.
func (c *raftCluster) fallBehind() {
	c.Helper()
	lagging := c.all[(slices.Index(c.all, c.leader())+1)%3]
	lagging.stop(c.T, c.all)
	c.apply(30)
	for _, n := range c.all {
		if n.raft != nil {
			if err := n.raft.Snapshot().Error(); err != nil {
				c.Fatalf("snapshot: %v", err)
			}
		}
	}
	c.apply(10)
	lagging.start(c.T, c.all)
	c.agree()
	if metas, err := lagging.stores.Snapshots().List(); err != nil || len(metas) == 0 {
		c.Fatalf("the follower caught up without a snapshot: %v, %v", metas, err)
	}
}

// loseSuffix lets a leader without followers append entries that no other node
// will ever have.
func (c *raftCluster) loseSuffix() {
	c.Helper()
	old := c.leader()
	old.trans.DisconnectAll()
	for _, n := range c.all {
		if n != old {
			n.trans.Disconnect(old.trans.LocalAddr())
		}
	}
	for range 3 {
		old.raft.Apply([]byte("lost"), 0)
	}
	testutil.Eventually(c.T, "step down", func() bool { return old.raft.State() != raft.Leader })
	c.apply(5)
	for _, n := range c.all {
		if n != old {
			n.trans.Connect(old.trans.LocalAddr(), old.trans)
			old.trans.Connect(n.trans.LocalAddr(), n.trans)
		}
	}
	c.agree()
}

// TestRaft_Cluster runs three real raft nodes through appends, snapshots, the
// installation of a snapshot, the loss of an uncommitted suffix, and restarts.
func TestRaft_Cluster(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		c := &raftCluster{T: t}
		for i := range 3 {
			cfg := config(t, t.TempDir(), kind)
			cfg.NodeID = fmt.Sprintf("n%d", i+1)
			c.all = append(c.all, &raftNode{cfg: cfg})
		}
		t.Cleanup(func() {
			for _, n := range c.all {
				n.stop(t, c.all)
			}
		})
		for _, n := range c.all {
			n.start(t, c.all)
		}
		c.apply(30)
		c.agree()
		c.fallBehind()
		c.apply(5)
		c.agree()
		c.loseSuffix()
		for range 2 {
			for _, n := range c.all {
				n.stop(t, c.all)
			}
			for _, n := range c.all {
				n.start(t, c.all)
			}
			c.apply(3)
			c.agree()
		}
	})
}
