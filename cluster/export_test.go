package cluster

import (
	"time"

	"github.com/hashicorp/raft"
)

// StandForElection makes a node stand for election now, as suspect does.
func (n *Node) StandForElection() error {
	self := n.addressOf(n.self, raft.ServerAddress(n.cfg.AdvertisePeerAddr))
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.self), Addr: n.transport.EncodePeer(n.self, self),
	}}
	return n.transport.TimeoutNow(n.self, self, req, &raft.TimeoutNowResponse{})
}

// OfficeNow returns the clock of the node's office, 0 if it has none.
func (n *Node) OfficeNow() time.Duration {
	if o := n.currentOffice(); o != nil {
		return time.Duration(o.now())
	}
	return 0
}

// ReadsWaiting returns how many reads wait for a round behind the one under way.
func (n *Node) ReadsWaiting() int {
	o := n.currentOffice()
	if o == nil {
		return 0
	}
	o.reads.mu.Lock()
	defer o.reads.mu.Unlock()
	return len(o.reads.waiting)
}
