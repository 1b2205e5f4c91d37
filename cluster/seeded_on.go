//go:build seededbug

package cluster

import (
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

func init() { fsm.Seed(os.Getenv(seeded.Variable)) }

// wallClock takes the wall clock for one that only goes forward.
type wallClock struct{ Clock }

func (c wallClock) Mono() time.Duration { return c.Wall().Sub(time.Unix(0, 0)) }

func seededClock(c Clock) Clock { return wallClock{c} }

// seededOffice opens an office as soon as raft says that this node leads.
func (n *Node) seededOffice(term uint64) {
	id := n.stores.Identity()
	var lease int64
	n.machine.view(func(m *fsm.Machine) { lease = m.Clock().Lease })
	n.onTermStart(n.raft.CommitIndex(), term, fsm.TermStart{NodeID: id.NodeID, Instance: id.Instance, Boot: id.Boot}, lease)
}

// seededVerify asks raft whether this node leads.
func seededVerify(r *raft.Raft, f func(leads bool)) {
	go func() { f(r.VerifyLeader().Error() == nil) }()
}
