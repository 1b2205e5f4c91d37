// Package failover starts an election when the process of the leader has ended,
// or when the leader is silent.
package failover

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/transport"
	"github.com/holdfast-kv/holdfast/rpc"
)

// failoverStep is how long a voter waits for each voter that precedes it in the
// candidate order, so that the voters do not split the vote.
const failoverStep = 100 * time.Millisecond

// maxCandidateWaits is the maximum number of further steps that a voter waits
// for the vote request of another voter that is already a candidate.
const maxCandidateWaits = 10

// Campaigner starts an election when the leader's process has ended, or when the
// leader is silent. Only one goroutine may use it.
type Campaigner struct{ cfg Config }

// Config contains the data and functions that a Campaigner needs from its node.
type Config struct {
	ID   raft.ServerID
	Addr raft.ServerAddress // peer address of this node
	// Enabled says that elections do not wait for raft's timers.
	Enabled     bool
	DialTimeout time.Duration
	Raft        func() *raft.Raft
	Messages    func() *transport.Transport
	Members     func() []member.Member
	// LastVoteTerm returns the term of this node's last vote.
	LastVoteTerm func() (uint64, error)
	// Dial connects to the peer port of a node and closes the connection.
	Dial func(ctx context.Context, id raft.ServerID, addr raft.ServerAddress) error
	// Ask asks a member for its status.
	Ask func(ctx context.Context, m member.Member) (st health.NodeStatus, ok bool)
	// Silent records that the process of a node has ended.
	Silent func(id string)
	// Changed receives a token when the leader that raft names may have
	// changed. Its capacity is 1. If the Campaigner receives a token and its
	// caller must see the change too, the Campaigner puts the token back.
	Changed  chan struct{}
	Stopping func() bool // reports whether this node is stopping and must not become leader
	Logger   hclog.Logger
}

// New returns a Campaigner.
func New(cfg Config) *Campaigner { return &Campaigner{cfg: cfg} }

// Leader is the last leader that raft named. raft forgets its leader when
// it receives a message of a higher term, for instance from a candidate that
// cannot win.
type Leader struct {
	ID   raft.ServerID
	Addr raft.ServerAddress
}

// SeekLast dials the last leader while raft knows no leader. If that leader's
// port refuses the connection, the leader's process has died, and another node
// has campaigned before this node noticed. Then this node campaigns one step
// later than its rank requires. If the last leader accepts the connection, it
// is alive, and the election is left to raft's timers. In both cases, SeekLast
// clears last. SeekLast returns the error of the dial if the last leader says
// that this node is not a member. If the dial fails in another way, or if raft
// knows a leader again, SeekLast returns nil and keeps last. The caller may
// then call it again.
func (c *Campaigner) SeekLast(ctx context.Context, last *Leader) error {
	if last.ID == "" || last.ID == c.cfg.ID || !c.cfg.Enabled {
		return nil
	}
	dialCtx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	dialled := make(chan error, 1)
	go func() { dialled <- c.cfg.Dial(dialCtx, last.ID, last.Addr) }()
	for {
		select {
		case err := <-dialled:
			switch {
			case err == nil:
				*last = Leader{}
			case errors.Is(err, syscall.ECONNREFUSED):
				c.cfg.Silent(string(last.ID))
				c.Campaign(ctx, last, 1)
			case errors.Is(err, rpc.ErrNotMember):
				return err
			}
			return nil
		case <-c.cfg.Changed:
			if _, leader := c.cfg.Raft().LeaderWithID(); leader != "" {
				signal(c.cfg.Changed)
				cancel()
				<-dialled
				return nil
			}
		}
	}
}

// Campaign starts an election after the leader's port has refused a connection,
// because the leader's process has then ended. Because the node does not wait
// until heartbeats are missing, a killed leader is replaced in a fraction of
// HeartbeatTimeout. A host or network that fails silently refuses nothing: see
// CampaignSilent. The argument after is how many steps this node waits in
// addition to those of its rank. A node calls Campaign once for each leader that
// it loses.
//
// A wrong suspicion is safe, because an election still needs a majority and an
// up-to-date log. To start the election, the node sends itself TimeoutNow, the
// message that raft uses for a transfer of leadership.
func (c *Campaigner) Campaign(ctx context.Context, last *Leader, after int) {
	lost := *last
	*last = Leader{}
	c.campaign(ctx, lost, after, func() bool { return true })
}

// campaign waits rank + after steps, where rank is this node's position in the
// candidate order. Then it starts an election. It starts none if gone returns
// false, that is, if the leader is back, or if another candidate has won or may
// still win.
func (c *Campaigner) campaign(ctx context.Context, lost Leader, after int, gone func() bool) {
	id, addr := lost.ID, lost.Addr
	rank, ok := c.candidateOrder(id)
	if !c.cfg.Enabled || !ok || c.cfg.Stopping() {
		return
	}
	if !c.awaitCampaign(ctx, id, time.Duration(rank+after)*failoverStep) || !gone() {
		return
	}
	// A candidate with a slow disk sends its vote requests late. If two nodes
	// are candidates in one term, they may split the vote, and then both wait
	// for raft's timers.
	for range maxCandidateWaits {
		if _, leader := c.cfg.Raft().LeaderWithID(); leader != id || !c.othersCampaign(ctx, id) {
			break
		}
		c.cfg.Logger.Info("another voter is already campaigning: this node waits for its vote request", "leader", id)
		if !c.awaitCampaign(ctx, id, failoverStep) {
			return
		}
	}
	now, err := settle(c.cfg.Messages().AwaitRaft, c.standing)
	if err != nil {
		c.cfg.Logger.Warn("cannot campaign: raft does not respond", "error", err)
		return
	}
	if c.cfg.Raft().State() != raft.Follower || !gone() {
		return
	}
	switch now.leader {
	case id:
	case "":
		// Another node campaigned first. If this node voted for that candidate,
		// the candidate may still win, so this node does not campaign. If this
		// node refused its vote, the candidate's log is behind this node's log
		// and the candidate may be unable to win. Then the cluster would have
		// no leader until raft's timers expire, so this node campaigns. A
		// follower forgets its leader only when its term rises, so a vote of
		// this term is not the vote that elected the lost leader.
		if now.vote >= now.term {
			return
		}
	default:
		return // another node has won already
	}
	c.cfg.Logger.Info("leader is gone, campaigning", "leader", id, "address", addr)
	if err := c.cfg.Messages().StartElection(c.cfg.ID, c.cfg.Addr); err != nil {
		c.cfg.Logger.Warn("failed to start an election", "error", err)
	}
}

// awaitCampaign waits for d. It returns false if the node stops, or if a leader
// other than the lost one becomes known.
func (c *Campaigner) awaitCampaign(ctx context.Context, lost raft.ServerID, d time.Duration) bool {
	due := time.After(d)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.cfg.Changed:
			// Wake the caller, so that it links to the new leader.
			if _, leader := c.cfg.Raft().LeaderWithID(); leader != "" && leader != lost {
				signal(c.cfg.Changed)
				return false
			}
		case <-due:
			return true
		}
	}
}

// candidateAsk bounds how long othersCampaign waits for answers. The wait ends
// earlier when enough voters have answered.
const candidateAsk = 250 * time.Millisecond

// othersCampaign asks the other voters, except the lost leader, whether one of
// them is a candidate in a newer term. A candidate of this term or an older one
// is in its pre-vote phase. This node refuses pre-votes while it knows a
// leader, so waiting for such a candidate would be useless.
//
// othersCampaign stops waiting when as many voters have answered as this node
// needs votes in addition to its own. So a voter that does not answer delays no
// election that this node can win.
func (c *Campaigner) othersCampaign(ctx context.Context, lost raft.ServerID) bool {
	ctx, cancel := context.WithTimeout(ctx, candidateAsk)
	term := c.cfg.Raft().CurrentTerm()
	all := slices.DeleteFunc(c.cfg.Members(), func(m member.Member) bool { return !m.Voter })
	needed := len(all) / 2 // votes in addition to this node's own
	voters := slices.DeleteFunc(all, func(m member.Member) bool {
		return m.ID == string(lost) || m.ID == string(c.cfg.ID)
	})
	type answer struct{ heard, campaigns bool }
	answers := make(chan answer, len(voters))
	for _, m := range voters {
		go func() {
			st, heard := c.cfg.Ask(ctx, m)
			answers <- answer{heard, heard && st.Role == "candidate" && st.Term > term}
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

// standing is a node's view of the election that replaces a leader.
type standing struct {
	leader     raft.ServerID // "" if raft names none
	term, vote uint64        // current term, and term of this node's last vote
}

// standing returns the current standing. The vote is 0 if it cannot be read.
func (c *Campaigner) standing() standing {
	_, leader := c.cfg.Raft().LeaderWithID()
	vote, err := c.cfg.LastVoteTerm()
	if err != nil {
		vote = 0
	}
	return standing{leader, c.cfg.Raft().CurrentTerm(), vote}
}

// maxSettles bounds how often settle reads the standing.
const maxSettles = 10

// settle returns a standing that belongs to one term. raft handles a vote
// request in several steps: it forgets the leader, then stores the term, then
// stores the vote. Each write may take long on a slow disk. A standing that was
// read between the steps may name no leader and contain the earlier term with
// its vote, as if this node had voted for the candidate. So settle reads the
// standing until two consecutive readings agree, but at most maxSettles times.
// await waits until raft has handled all requests that it received before.
func settle(await func() error, read func() standing) (now standing, err error) {
	for i := range maxSettles {
		if err := await(); err != nil {
			return standing{}, err
		}
		before := now
		if now = read(); i > 0 && now == before {
			break
		}
	}
	return now, nil
}

// candidateOrder returns this node's position, from 0, among the voters except
// the lost leader, in the order of their ids. voter is false if this node is
// not a voter.
func (c *Campaigner) candidateOrder(lost raft.ServerID) (rank int, voter bool) {
	for _, m := range c.cfg.Members() {
		if !m.Voter || m.ID == string(lost) {
			continue
		}
		if m.ID == string(c.cfg.ID) {
			return rank, true
		}
		rank++
	}
	return 0, false
}

// signal puts a token into a channel of capacity 1, unless it contains one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
