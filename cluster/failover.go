package cluster

import (
	"time"

	"github.com/hashicorp/raft"
)

// failoverStep is how long a voter lets those before it in the order of ids
// try first, so that they do not split the vote.
const failoverStep = 100 * time.Millisecond

// suspect is called when the leader's port was refused: its process is gone.
// This node then stands for election at once instead of waiting for heartbeats
// to stay away: a killed leader is replaced in a fraction of HeartbeatTimeout. A
// host or network that went silent refuses nothing and is left to raft's timers.
//
// It is safe whatever the truth is: an election needs a majority and an
// up-to-date log as always. It is done by the message that raft has for a
// leader's handing over (TimeoutNow), sent to ourselves.
func (n *Node) suspect(id raft.ServerID, addr raft.ServerAddress) {
	rank, ok := n.failoverRank(id)
	if !n.cfg.Options.FastFailover || !ok {
		return
	}
	begun := time.Now()
	turn := time.After(time.Duration(rank) * failoverStep)
	for waiting := true; waiting; {
		select {
		case <-n.ctx.Done():
			return
		case <-n.leaderChanged:
			if _, leader := n.raft.LeaderWithID(); leader != "" && leader != id { // somebody was quicker: link to it
				poke(n.leaderChanged)
				return
			}
		case <-turn:
			waiting = false
		}
	}
	if n.raft.State() != raft.Follower {
		return
	}
	switch _, leader := n.raft.LeaderWithID(); leader {
	case id:
	case "":
		// Somebody stood before us. With our vote he has time to win; without it our
		// log is ahead of his, and he cannot: to wait for raft's timers would leave
		// the cluster without a leader meanwhile. A contact alone may have been the
		// last words of the leader that is gone.
		if n.raft.LastContact().After(begun) && n.voted() {
			return
		}
	default:
		return // somebody was quicker
	}
	n.log.Info("leader is gone, standing for election", "leader", id, "address", addr)
	self := n.addressOf(n.self, raft.ServerAddress(n.cfg.AdvertisePeerAddr))
	if err := n.timeoutNow(n.self, self); err != nil {
		n.log.Warn("cannot stand for election at once", "error", err)
	}
}

// voted reports whether this node has given away its vote of the current term.
func (n *Node) voted() bool {
	term, err := n.stores.Stable().GetUint64([]byte(keyLastVoteTerm))
	return err == nil && term >= n.raft.CurrentTerm()
}

// failoverRank is this node's place among the voters without the lost leader.
func (n *Node) failoverRank(lost raft.ServerID) (rank int, voter bool) {
	for _, m := range membersOf(n.raft) {
		if !m.Voter || m.ID == string(lost) {
			continue
		}
		if m.ID == n.cfg.NodeID {
			return rank, true
		}
		rank++
	}
	return 0, false
}
