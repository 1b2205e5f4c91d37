package cluster

import (
	"time"
)

// Contact is where a member of the cluster is reached, as it said itself when it
// was asked last: the log knows peer addresses only. Fields are empty until the
// member has answered once.
type Contact struct {
	ID           string
	PeerAddr     string
	ClientAddr   string
	SentinelAddr string    // "" if it serves none
	RunID        string    // of its process
	Applied      uint64    // index of the last entry that it had applied
	Heard        time.Time // when it answered last, by this node's wall clock
	Voter        bool
	Alive        bool // it answered when asked last
}

// contactEvery is how often the members are asked. It bounds how long a node
// that died is still listed as alive.
const contactEvery = time.Second

// keepContacts asks the members where they are reached.
func (n *Node) keepContacts() {
	defer n.wg.Done()
	t := time.NewTicker(contactEvery)
	defer t.Stop()
	for {
		n.learnContacts()
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		case <-n.relearn:
		}
	}
}

func (n *Node) learnContacts() {
	status := n.ClusterStatus(n.ctx)
	n.mu.Lock()
	changed := false
	for _, st := range status {
		known := n.contacts[st.ID]
		now := known
		now.ID, now.Alive = st.ID, st.Reachable
		if st.Reachable {
			now.ClientAddr, now.SentinelAddr, now.RunID, now.Applied = st.ClientAddr, st.Sentinel, st.RunID, st.Applied
			now.Heard = n.clock.Wall()
		}
		n.contacts[st.ID] = now
		known.Applied, known.Heard = now.Applied, now.Heard // these always change
		changed = changed || now != known
	}
	n.mu.Unlock()
	if changed {
		n.watchers.poke()
	}
}

// silent notes at once that a member does not answer: its process is gone.
func (n *Node) silent(id string) {
	n.mu.Lock()
	c := n.contacts[id]
	c.ID, c.Alive = id, false
	n.contacts[id] = c
	n.mu.Unlock()
	n.watchers.poke()
}

// Contacts returns the members of the latest configuration in the order of their
// ids. Of this node all is known, of others what they said last.
func (n *Node) Contacts() []Contact {
	r := n.running()
	if r == nil {
		return nil
	}
	members := membersOf(r)
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]Contact, 0, len(members))
	for _, m := range members {
		c := n.contacts[m.ID]
		if m.ID == n.cfg.NodeID {
			c = Contact{ClientAddr: n.cfg.ClientAddr, SentinelAddr: n.cfg.SentinelAddr, RunID: n.cfg.RunID, Applied: n.machine.applied.Load(), Heard: n.clock.Wall(), Alive: true}
		}
		c.ID, c.PeerAddr, c.Voter = m.ID, m.Addr, m.Voter
		out = append(out, c)
	}
	return out
}

// Acknowledging returns as many other voters as must have a write on disk before
// it is acknowledged: those that answer first, and the leader last. Which ones
// they are differs from write to write; their number depends on the membership
// alone, so that it is the same on every node, with or without a leader.
func (n *Node) Acknowledging() []Contact {
	leader, _ := n.Leader()
	var alive, silent, leads []Contact
	for _, c := range n.Contacts() {
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
