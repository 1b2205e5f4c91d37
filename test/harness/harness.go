// Package harness runs Holdfast nodes inside a test's process. It connects the
// parts of a node as cmd/serve does. The nodes listen on free loopback ports.
package harness

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/script"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// Node is a running node and its client port.
type Node struct {
	*cluster.Node
	Clients *resp.Server
}

// Addr returns the address of the client port.
func (n *Node) Addr() string { return n.Clients.Addr().String() }

// Single starts a cluster of one node and waits until it answers. The node is
// stopped when the test ends. limits are the limits of the client port. The
// node has the options of cluster.DefaultOptions, except for some timeouts.
func Single(t testing.TB, limits guard.Limits) *Node {
	t.Helper()
	n, stop, err := Open(t.TempDir(), limits)
	if err != nil {
		t.Fatalf("start node: %v", err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop node: %v", err)
		}
	})
	return n
}

// Open is like Single, for callers without a test, such as TestMain. The caller
// must call stop once.
func Open(dir string, limits guard.Limits) (n *Node, stop func() error, err error) {
	port, err := process.FreePorts(1, 1, 0)
	if err != nil {
		return nil, nil, err
	}
	peer := process.Loopback(port)
	options := cluster.DefaultOptions()
	options.HeartbeatTimeout, options.LeaseTimeout = 100*time.Millisecond, 100*time.Millisecond
	options.ScriptTime = 5 * time.Second // a slow script may need that long on a busy machine
	log := hclog.NewNullLogger()
	node, err := cluster.Open(cluster.Config{
		NodeID: "n1", DataDir: dir, LogStore: "wal", PeerAddr: peer, AdvertisePeerAddr: peer,
		Peers: []cluster.Peer{{ID: "n1", Addr: peer}}, Options: options, Version: "test", Logger: log,
		Scripts: script.NewRunner(script.DefaultConfig()), Fatal: func(err error) { panic(err) },
		Catalog: resp.NewCatalog(command.NewTable()),
	})
	if err != nil {
		return nil, nil, err
	}
	clients, err := resp.Listen(resp.Config{Addr: "127.0.0.1:0", Limits: limits, Logger: log},
		adapter{node}, node.Table())
	if err != nil {
		return nil, nil, errors.Join(err, node.Close())
	}
	stop = func() error { return errors.Join(clients.Close(), node.Close()) }
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := node.Ready(ctx); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return &Node{node, clients}, stop, nil
}

// adapter presents a node to the client port, as cmd/serve does.
type adapter struct{ *cluster.Node }

func (a adapter) NewExecutor() resp.Executor { return a.NewSession() }

// Listen implements resp.Cluster.
func (a adapter) Listen(l resp.Listener) { a.Node.Listen(l) }

func (a adapter) State() resp.State {
	st := a.Status()
	s := resp.State{
		NodeID: st.ID, ClusterID: st.ClusterID, Role: st.Role, Leader: st.Leader, Version: st.Version,
		Term: st.Term, Commit: st.Commit, Applied: st.Applied, Ready: st.Ready, LogBytes: st.LogBytes,
	}
	a.View(func(m *fsm.Machine) {
		for db := range s.Keys {
			s.Keys[db] = resp.DBState{Keys: m.DBSize(db), Volatile: m.VolatileIn(db)}
		}
		s.Expired, s.Operations = m.Stats().Expired, m.Stats().Ops
		s.Scripts, s.ScriptBytes = m.Scripts()
	})
	return s
}

func (a adapter) Admin(context.Context, []string) (string, error) {
	return "", errors.New("not implemented in tests")
}
