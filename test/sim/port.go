package sim

import (
	"context"
	"errors"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/resp/guard"
)

// clientHost is the host of the clients. The clients and the client ports use
// the same simulated network as the peer ports, but different hosts. Faults
// that cut nodes off from each other therefore do not affect the clients.
const clientHost = "clients"

// portHost returns the host of a node's client port.
func portHost(id string) string { return "port-" + id }

// openPort serves the client port of a process with package resp over the
// simulated network.
func (w *world) openPort(p *process) error {
	var err error
	p.port, err = resp.Listen(resp.Config{
		Addr: address(portHost(p.id)), Listener: w.net.listen(portHost(p.id)),
		Limits: guard.DefaultLimits(), RunID: p.id,
	}, portCluster{p.n}, p.n.Table())
	return err
}

// portCluster adapts a node to resp.Cluster, as cmd/serve does.
type portCluster struct{ *cluster.Node }

// NewExecutor implements resp.Cluster.
func (a portCluster) NewExecutor() resp.Executor { return a.NewSession() }

// Listen implements resp.Cluster.
func (a portCluster) Listen(l resp.Listener) { a.Node.Listen(l) }

// State implements resp.Cluster. It fills only the fields that clients of a
// history use.
func (a portCluster) State() resp.State {
	st := a.Status()
	s := resp.State{NodeID: st.ID, Role: st.Role, Leader: st.Leader, Term: st.Term, Commit: st.Commit,
		Applied: st.Applied, Ready: st.Ready}
	a.View(func(m *fsm.Machine) { s.Operations = m.Stats().Ops })
	return s
}

// Admin implements resp.Cluster.
func (a portCluster) Admin(context.Context, []string) (string, error) {
	return "", errors.New("not simulated")
}
