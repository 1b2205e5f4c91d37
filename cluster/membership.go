package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/fsm"
)

var pid = os.Getpid()

// errNotLeader tells the asker to ask the leader.
var errNotLeader = errors.New("this node does not lead")

// feeds reports whether this node leads a term and has a member of that id,
// committed or not.
func (n *Node) feeds(id raft.ServerID, term uint64) bool {
	r := n.running()
	return r != nil && r.State() == raft.Leader && r.CurrentTerm() == term &&
		slices.ContainsFunc(membersOf(r), func(m Member) bool { return m.ID == string(id) })
}

// changed waits until a change of the members, which raft has been given, is
// committed.
func (n *Node) changed(ctx context.Context, f raft.Future) error {
	failpoint.Hit(failpoint.MemberProposed)
	err := n.await(ctx, f)
	if err == nil {
		failpoint.Hit(failpoint.MemberChanged)
	}
	return err
}

// toLeader puts a question to the leader, wherever it is.
func (n *Node) toLeader(req adminRequest) error {
	_, err := n.askLeader(n.ctx, req)
	return err
}

// askLeader is toLeader for a caller that wants the answer.
func (n *Node) askLeader(ctx context.Context, req adminRequest) (adminReply, error) {
	var reply adminReply
	r := n.running()
	if r == nil {
		return reply, ErrNoLeader
	}
	addr, id := r.LeaderWithID()
	switch id {
	case "":
		return reply, ErrNoLeader
	case n.self:
		return reply, n.answer(req, &reply)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return reply, n.askContext(ctx, string(n.addressOf(id, addr)), string(id), req, &reply)
}

// keepMembers makes non-voters voters when they have caught up.
func (n *Node) keepMembers() {
	defer n.wg.Done()
	t := time.NewTicker(500 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		n.raiseFeatures()
		if n.currentOffice() == nil {
			continue
		}
		for _, m := range membersOf(n.raft) {
			if !m.Voter {
				if err := n.promote(m); err != nil && n.ctx.Err() == nil {
					n.log.Debug("member does not vote yet", "node", m.ID, "error", err)
				}
			}
		}
	}
}

// promotionLag is how many entries a node may be behind when it begins to vote.
const promotionLag = 256

// promote makes a non-voter a voter if it has caught up. raft is told the log index
// of the configuration that was read before the node was asked, and refuses if
// another one is in the log by then: AddVoter would add a node again that was removed
// meanwhile.
func (n *Node) promote(m Member) error {
	index, err := n.listed(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	var r adminReply
	if err := n.askContext(ctx, m.Addr, m.ID, adminRequest{Op: opStatus}, &r); err != nil {
		return err
	}
	// A node that has applied nothing has nothing on its disk either. It would wait
	// for a leader that may need its vote: see join. One that is settling gives none.
	if commit := n.committed(); r.Status == nil || r.Status.Applied == 0 || r.Status.Settling || r.Status.Applied+promotionLag < commit {
		return errors.New("still catching up")
	}
	return n.vote(m, index)
}

// vote makes a member a voter, unless there is a later configuration than the one at
// index.
func (n *Node) vote(m Member, index uint64) error {
	if err := n.changed(n.ctx, n.raft.AddVoter(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), index, adminTimeout)); err != nil {
		return err
	}
	n.log.Info("member votes", "node", m.ID)
	return nil
}

// listed returns the log index of the latest configuration, if a non-voter is in it.
// The index comes from the machine, because that of raft.GetConfiguration is always 0
// (hashicorp/raft 1.7.3). It is read first: if it is too low, the change is refused
// and tried again.
func (n *Node) listed(m Member) (index uint64, err error) {
	if index = n.machine.configured.Load(); index == 0 {
		return 0, errors.New("no configuration has been applied yet")
	}
	if slices.Contains(membersOf(n.raft), m) && !m.Voter {
		return index, nil
	}
	return 0, fmt.Errorf("%s is no longer a non-voter", m.ID)
}

// nodeCollector reports the node's state at the time of the scrape.
type nodeCollector struct{ n *Node }

var (
	descTerm     = prometheus.NewDesc("holdfast_raft_term", "Current raft term.", nil, nil)
	descCommit   = prometheus.NewDesc("holdfast_raft_commit_index", "Raft commit index.", nil, nil)
	descApplied  = prometheus.NewDesc("holdfast_raft_applied_index", "Index of the last entry that this node's machine has applied.", nil, nil)
	descLast     = prometheus.NewDesc("holdfast_raft_last_index", "Index of the last entry in this node's log.", nil, nil)
	descLeader   = prometheus.NewDesc("holdfast_is_leader", "1 on the node that leads, 0 elsewhere.", nil, nil)
	descReady    = prometheus.NewDesc("holdfast_ready", "1 while the node has a way to a leader.", nil, nil)
	descKeys     = prometheus.NewDesc("holdfast_keys", "Keys in all databases.", nil, nil)
	descVolatile = prometheus.NewDesc("holdfast_keys_with_ttl", "Keys with a time to live.", nil, nil)
	descExpired  = prometheus.NewDesc("holdfast_expired_keys_total", "Keys expired by the log.", nil, nil)
	descOps      = prometheus.NewDesc("holdfast_logged_operations_total", "Operations run by the log.", nil, nil)
	descLease    = prometheus.NewDesc("holdfast_lease_clock_seconds", "Lease clock of the last entry, seconds since the cluster's birth.", nil, nil)
	descDup      = prometheus.NewDesc("holdfast_duplicate_groups_total", "Groups that arrived twice and ran once.", nil, nil)
	descLog      = prometheus.NewDesc("holdfast_log_bytes", "Payload bytes in the raft log.", nil, nil)
	descFeatures = prometheus.NewDesc("holdfast_feature_version", "Feature version of the cluster, as far as this node has applied the log.", nil, nil)
	descBlocked  = prometheus.NewDesc("holdfast_feature_version_blocked", "On the leader, by node: 1 for a member that keeps the feature version from being raised, because it does not answer or its program is older.", []string{"node"}, nil)
	descSessions = prometheus.NewDesc("holdfast_sessions", "Node sessions that the machine knows.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, ch)
}

// Collect implements prometheus.Collector.
func (c nodeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	st := c.n.Status()
	gauge(descTerm, float64(st.Term))
	gauge(descCommit, float64(st.Commit))
	gauge(descApplied, float64(st.Applied))
	gauge(descLast, float64(st.LastIndex))
	gauge(descLeader, number(st.Role == "leader"))
	gauge(descReady, number(st.Ready))
	gauge(descLog, float64(st.LogBytes))
	gauge(descFeatures, float64(st.FeatureVersion))
	if st.Role == "leader" {
		blocked := c.n.featuresBlocked()
		for _, m := range membersOf(c.n.running()) {
			blocks := slices.ContainsFunc(blocked, func(b blocker) bool { return b.id == m.ID })
			ch <- prometheus.MustNewConstMetric(descBlocked, prometheus.GaugeValue, number(blocks), m.ID)
		}
	}
	c.n.machine.view(func(m *fsm.Machine) {
		stats := m.Stats()
		gauge(descKeys, float64(m.Len()))
		gauge(descVolatile, float64(m.Volatile()))
		gauge(descLease, float64(m.Clock().Lease)/1e9)
		gauge(descSessions, float64(m.SessionCount()))
		count(descExpired, stats.Expired)
		count(descOps, stats.Ops)
		count(descDup, stats.Duplicates)
	})
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
