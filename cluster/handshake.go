package cluster

import (
	"errors"
	"fmt"

	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/rpc"
)

// handshake decides which nodes may open a connection to this one.
type handshake struct {
	*environment
	raft *raftInstance
}

// hello returns what this node reports about itself on every connection to a
// peer.
func (hs handshake) hello() rpc.Hello { return helloOf(hs.stores.Identity()) }

func helloOf(id storage.Identity) rpc.Hello {
	return rpc.Hello{ClusterID: id.ClusterID, NodeID: id.NodeID, Instance: id.Instance, Boot: id.Boot}
}

// sameCluster returns an error if a node belongs to another cluster.
func (hs handshake) sameCluster(h rpc.Hello) error {
	mine := hs.stores.Identity().ClusterID
	if h.ClusterID != "" && mine != "" && h.ClusterID != mine {
		return fmt.Errorf("%w: %s belongs to %s, %s to %s", ErrOtherCluster, h.NodeID, h.ClusterID, hs.cfg.NodeID, mine)
	}
	return nil
}

// authorize returns an error if another node may not open a connection to this
// one.
func (hs handshake) authorize(h rpc.Hello) error {
	if err := hs.sameCluster(h); err != nil {
		return err
	}
	mine := hs.stores.Identity().ClusterID
	if h.Service == rpc.ServiceAdmin {
		return nil
	}
	if h.ClusterID == "" || mine == "" {
		return errors.New("cluster is not formed yet")
	}
	r := hs.raft.running()
	if r == nil {
		return errors.New("node is still starting")
	}
	if h.Service == rpc.ServiceRaft {
		// Accept nodes that are not members as far as this node knows. This
		// node may have been down while the current leader was added, and would
		// never receive the change otherwise. raft makes sure that this node
		// does not vote for a node that it does not know.
		return nil
	}
	servers := r.GetConfiguration().Configuration().Servers
	if len(servers) == 0 {
		return nil // the first configuration has not arrived yet
	}
	for _, s := range servers {
		if string(s.ID) == h.NodeID {
			return nil
		}
	}
	return fmt.Errorf("%s is not a member of this cluster", h.NodeID)
}
