package failover

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/member"
)

// silenceAsk bounds how long CampaignSilent waits for the answers of the other
// voters.
const silenceAsk = 100 * time.Millisecond

// CampaignSilent starts an election if a majority of the voters, including this
// node, agrees that the leader is silent: see transport.Silence. Otherwise it
// does nothing, and the caller calls it again while the leader is silent. If a
// majority never agrees, raft's timers start the election.
//
// The agreement keeps a single node from deposing the leader when the network
// or the processor of that node is the cause of the silence. The agreement is
// not needed for safety, because an election needs a majority and an up-to-date
// log anyway.
func (c *Campaigner) CampaignSilent(ctx context.Context, leader Leader) {
	if _, voter := c.candidateOrder(leader.ID); !c.cfg.Enabled || !voter || c.cfg.Stopping() {
		return
	}
	if !c.majoritySilent(ctx, leader.ID) {
		return
	}
	c.cfg.Logger.Warn("leader is silent, and a majority of the voters agrees", "leader", leader.ID,
		"address", leader.Addr)
	c.campaign(ctx, leader, 0, func() bool {
		left, known := c.cfg.Messages().Silence().Left(string(leader.ID))
		return known && left <= 0
	})
}

// majoritySilent reports whether a majority of the voters agrees that the
// leader is silent. It counts this node as one that agrees.
func (c *Campaigner) majoritySilent(ctx context.Context, leader raft.ServerID) bool {
	ctx, cancel := context.WithTimeout(ctx, silenceAsk)
	all := slices.DeleteFunc(c.cfg.Members(), func(m member.Member) bool { return !m.Voter })
	needed := len(all) / 2 // number of voters that must agree in addition to this node
	voters := slices.DeleteFunc(all, func(m member.Member) bool {
		return m.ID == string(leader) || m.ID == string(c.cfg.ID)
	})
	answers := make(chan bool, len(voters))
	for _, m := range voters {
		go func() {
			st, heard := c.cfg.Ask(ctx, m)
			answers <- heard && st.Leader == string(leader) && st.LeaderSilent
		}()
	}
	for range voters { // receive all answers: after cancel, the remaining requests end at once
		if <-answers {
			needed--
		}
		if needed <= 0 {
			cancel()
		}
	}
	cancel()
	return needed <= 0
}
