package cluster

import (
	"time"

	"github.com/hashicorp/raft"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-kv/holdfast/fsm"
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

// Swept returns the time that the gateway goes by.
func (n *Node) Swept() time.Duration { return time.Duration(n.gateway.coarse.Load()) }

// ReadsConfirmed returns how many reads this node has confirmed as leader.
func (n *Node) ReadsConfirmed() float64 {
	var m dto.Metric
	if err := n.stats.ReadGroups.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// SessionID returns the name of the node's session.
func (n *Node) SessionID() fsm.SessionID { return n.session }

// Accepted returns the highest number of a session's groups that the node's office
// has accepted, 0 if it has none.
func (n *Node) Accepted(id fsm.SessionID) uint64 {
	o := n.currentOffice()
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.accepted[id]
}

// ApplyLate appends an entry to the log that was built in an older term: one
// INCR of key by a session that does not exist otherwise.
func (n *Node) ApplyLate(term uint64, key string) error {
	row := n.Table().Find([]byte("incr"))
	var g fsm.Group
	g.Reset(2, 0)
	g.Command(row, 0, [][]byte{[]byte(row.Name), []byte(key)})
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "ghost", Boot: 1}, 0, 1, g.Bytes())
	entry := b.Encode(fsm.Header{Term: term, Stamp: int64(time.Hour), Wall: 1, Seed: 1})
	return n.raft.Apply(entry, 0).Error()
}

// Configured returns the log index of the last configuration that this node has
// applied.
func (n *Node) Configured() uint64 { return n.machine.configured.Load() }

// Vote makes a node a voter, as keepMembers does, for which it read the
// configuration at index.
func (n *Node) Vote(m Member, index uint64) error { return n.vote(m, index) }
