package cluster

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/rpc"
)

// failoverStep is how long a voter waits for each voter before it in the
// candidate order, so that they do not split the vote.
const failoverStep = 100 * time.Millisecond

// maxCandidateWaits is how many further steps a voter waits for the vote
// request of another voter that is already a candidate.
const maxCandidateWaits = 10

// campaigner starts an election when the leader's process has ended.
type campaigner struct {
	*environment
	raft        *raftInstance
	raftLog     *raftlog.Log
	mux         *rpc.Mux
	peers       *peers
	health      *health.Book
	leaderships *leaderships
}

// lastLeader is the last leader that raft named. raft forgets its leader when
// it receives a message of a higher term, for instance from a candidate that
// cannot win.
type lastLeader struct {
	id   raft.ServerID
	addr raft.ServerAddress
}

// seekLast dials the last leader while raft knows no leader. If its port
// refuses the connection, the leader's process has died and another node has
// campaigned before this node noticed; then this node campaigns one step later
// than its rank requires. If the last leader accepts the connection, it is
// alive, and the election is left to raft's timers. The caller dials again only
// if the dial got no answer. seekLast returns an error if the last leader says
// that this node is not a member.
func (c *campaigner) seekLast(last *lastLeader) error {
	if last.id == "" || last.id == c.self || !c.cfg.Options.FastFailover {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Options.DialTimeout)
	defer cancel()
	dialled := make(chan error, 1)
	go func() {
		s, err := c.mux.Dial(ctx, string(c.peers.addressOf(last.id, last.addr)), rpc.ServiceWrite, string(last.id))
		if err == nil {
			s.Close()
		}
		dialled <- err
	}()
	for {
		select {
		case err := <-dialled:
			switch {
			case err == nil:
				*last = lastLeader{}
			case errors.Is(err, syscall.ECONNREFUSED):
				c.health.Silent(string(last.id))
				c.campaign(last, 1)
			case errors.Is(err, rpc.ErrNotMember):
				return err
			}
			return nil
		case <-c.leaderships.changed:
			if _, leader := c.raft.running().LeaderWithID(); leader != "" {
				signal(c.leaderships.changed)
				cancel()
				<-dialled
				return nil
			}
		}
	}
}

// campaign starts an election when the leader's port refuses connections, which
// means that its process is gone. Because the node does not wait until
// heartbeats are missing, a killed leader is replaced in a fraction of
// HeartbeatTimeout. A host or network that fails silently refuses nothing, so
// it is left to raft's timers. after is how many steps this node waits in
// addition to those of its rank. A node calls campaign once for each leader
// that it loses.
//
// A wrong suspicion is safe, because an election still needs a majority and an
// up-to-date log. The election is started by the TimeoutNow message that raft
// uses for a transfer of leadership, which the node sends to itself.
func (c *campaigner) campaign(last *lastLeader, after int) {
	id, addr := last.id, last.addr
	*last = lastLeader{}
	rank, ok := c.candidateOrder(id)
	if !c.cfg.Options.FastFailover || !ok || c.stopping.Load() {
		return
	}
	if !c.awaitCampaign(id, time.Duration(rank+after)*failoverStep) {
		return
	}
	// A candidate with a slow disk sends its vote requests late. If two nodes
	// are candidates in one term, they split the vote, and then both wait for
	// raft's timers.
	for range maxCandidateWaits {
		if _, leader := c.raft.running().LeaderWithID(); leader != id || !c.othersCampaign(id) {
			break
		}
		c.log.Info("another voter is already campaigning, waiting for its vote request", "leader", id)
		if !c.awaitCampaign(id, failoverStep) {
			return
		}
	}
	// raft handles a vote request in several steps: it forgets the leader, then
	// stores the term, then the vote. Each write takes as long as the disk, and
	// between the steps the result of voted may belong to another term, or miss
	// a vote that is about to be stored.
	if err := c.raft.messages().AwaitRaft(); err != nil {
		c.log.Warn("cannot campaign, raft does not respond", "error", err)
		return
	}
	if c.raft.running().State() != raft.Follower {
		return
	}
	switch _, leader := c.raft.running().LeaderWithID(); leader {
	case id:
	case "":
		// Another node campaigned first. If this node voted for it, it may
		// still win. If this node did not, the candidate's log is behind this
		// node's log, so it cannot win here, and waiting for raft's timers
		// would leave the cluster without a leader. A follower forgets its
		// leader only after its term has risen, so a vote of this term is not
		// the vote that elected the lost leader.
		if c.voted() {
			return
		}
	default:
		return // another node has won already
	}
	c.log.Info("leader is gone, campaigning", "leader", id, "address", addr)
	self := c.peers.addressOf(c.self, raft.ServerAddress(c.cfg.AdvertisePeerAddr))
	if err := c.raft.messages().StartElection(c.self, self); err != nil {
		c.log.Warn("failed to start an election", "error", err)
	}
}

// awaitCampaign waits for d. It returns false if the node stops, or if another
// leader than the lost one becomes known.
func (c *campaigner) awaitCampaign(lost raft.ServerID, d time.Duration) bool {
	due := time.After(d)
	for {
		select {
		case <-c.ctx.Done():
			return false
		case <-c.leaderships.changed:
			// Wake linker.keep, so that it links to the new leader.
			if _, leader := c.raft.running().LeaderWithID(); leader != "" && leader != lost {
				signal(c.leaderships.changed)
				return false
			}
		case <-due:
			return true
		}
	}
}

// candidateAsk bounds how long othersCampaign waits for answers. It delays a
// campaign only while fewer voters have answered than an election needs votes.
const candidateAsk = 250 * time.Millisecond

// othersCampaign asks the other voters whether one of them is a candidate in a
// newer term. A candidate of this term or an older one is in its pre-vote
// phase. This node refuses pre-votes while it knows a leader, so waiting for such
// a candidate would be useless.
//
// othersCampaign stops waiting when as many voters have answered as an election
// needs votes, so a silent voter does not delay the election.
func (c *campaigner) othersCampaign(lost raft.ServerID) bool {
	ctx, cancel := context.WithTimeout(c.ctx, candidateAsk)
	term := c.raft.running().CurrentTerm()
	all := slices.DeleteFunc(c.raft.members(), func(m member.Member) bool { return !m.Voter })
	needed := len(all) / 2 // votes in addition to this node's own
	voters := slices.DeleteFunc(all, func(m member.Member) bool {
		return m.ID == string(lost) || m.ID == c.cfg.NodeID
	})
	type answer struct{ heard, campaigns bool }
	answers := make(chan answer, len(voters))
	for _, m := range voters {
		go func() {
			var r adminReply
			addr := c.peers.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr))
			err := c.peers.askContext(ctx, string(addr), m.ID, adminRequest{Op: opStatus}, &r)
			heard := err == nil && r.Status != nil
			answers <- answer{heard, heard && r.Status.Role == "candidate" && r.Status.Term > term}
		}()
	}
	defer func() {
		cancel()
		for range voters { // canceled requests end at once
			<-answers
		}
	}()
	for len(voters) > 0 && needed > 0 {
		select {
		case a := <-answers:
			voters = voters[1:]
			if a.campaigns {
				return true
			}
			if a.heard {
				needed--
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// voted reports whether this node has voted in the current term. It is valid
// only after transport.Transport.AwaitRaft.
func (c *campaigner) voted() bool {
	term, err := c.raftLog.LastVoteTerm()
	return err == nil && term >= c.raft.running().CurrentTerm()
}

// candidateOrder returns this node's position, from 0, among the voters without
// the lost leader, in the order of ids. voter is false if this node is not a
// voter.
func (c *campaigner) candidateOrder(lost raft.ServerID) (rank int, voter bool) {
	for _, m := range c.raft.members() {
		if !m.Voter || m.ID == string(lost) {
			continue
		}
		if m.ID == c.cfg.NodeID {
			return rank, true
		}
		rank++
	}
	return 0, false
}
