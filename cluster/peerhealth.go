package cluster

import (
	"time"
)

// PeerHealth is what a member of the cluster answered when this node last asked
// it: that it is up, and where clients reach it. The log contains only the
// addresses for peers. ClientAddr, SentinelAddr and RunID are empty until the
// member has answered once.
type PeerHealth struct {
	ID           string
	PeerAddr     string
	ClientAddr   string
	SentinelAddr string    // "" if the member serves none
	RunID        string    // RunID identifies the member's process.
	Applied      uint64    // applied index
	Heard        time.Time // when the member last answered, by this node's wall clock
	Voter        bool
	Alive        bool // the member answered the latest request
}

// peerHealthEvery is how often this node asks the members. It bounds how long a
// node that has died is still listed as alive.
const peerHealthEvery = time.Second

// keepPeerHealth asks the members for their health until the node stops.
func (n *Node) keepPeerHealth() {
	defer n.wg.Done()
	t := time.NewTicker(peerHealthEvery)
	defer t.Stop()
	for {
		n.learnPeerHealth()
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		case <-n.relearn:
		}
	}
}

func (n *Node) learnPeerHealth() {
	status := n.ClusterStatus(n.ctx)
	n.mu.Lock()
	changed := false
	for _, st := range status {
		known := n.peerHealth[st.ID]
		now := known
		now.ID, now.Alive = st.ID, st.Reachable
		if st.Reachable {
			now.ClientAddr, now.SentinelAddr, now.RunID, now.Applied = st.ClientAddr, st.Sentinel, st.RunID, st.Applied
			now.Heard = n.clock.Wall()
		}
		n.peerHealth[st.ID] = now
		// ignore the fields that always change
		known.Applied, known.Heard = now.Applied, now.Heard
		changed = changed || now != known
	}
	n.mu.Unlock()
	if changed {
		n.watchers.signal()
	}
}

// silent records that a member is down because its process has been found dead.
// It does not wait for the next request.
func (n *Node) silent(id string) {
	n.mu.Lock()
	c := n.peerHealth[id]
	c.ID, c.Alive = id, false
	n.peerHealth[id] = c
	n.mu.Unlock()
	n.watchers.signal()
}

// PeerHealth returns the members of the latest configuration, ordered by id.
// Information about this node is current; information about peers is as last
// reported.
func (n *Node) PeerHealth() []PeerHealth {
	r := n.running()
	if r == nil {
		return nil
	}
	members := membersOf(r)
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]PeerHealth, 0, len(members))
	for _, m := range members {
		c := n.peerHealth[m.ID]
		if m.ID == n.cfg.NodeID {
			c = PeerHealth{ClientAddr: n.cfg.ClientAddr, SentinelAddr: n.cfg.SentinelAddr, RunID: n.cfg.RunID, Applied: n.machine.Applied(), Heard: n.clock.Wall(), Alive: true}
		}
		c.ID, c.PeerAddr, c.Voter = m.ID, m.Addr, m.Voter
		out = append(out, c)
	}
	return out
}

// Acknowledging returns a list of other voters, as many as must have a write on
// disk before the write is acknowledged. Voters that answer come first and the
// leader comes last. Different writes are acknowledged by different voters. The
// length of the list depends only on the membership, so it is the same on every
// node, with or without a leader.
func (n *Node) Acknowledging() []PeerHealth {
	leader, _ := n.Leader()
	var alive, silent, leads []PeerHealth
	for _, c := range n.PeerHealth() {
		switch {
		case !c.Voter || c.ID == n.cfg.NodeID:
		case c.ID == leader:
			leads = append(leads, c)
		case c.Alive:
			alive = append(alive, c)
		default:
			silent = append(silent, c)
		}
	}
	others := append(append(alive, silent...), leads...)
	return others[:(len(others)+1)/2]
}
