package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/fsm"
)

var pid = os.Getpid()

// errNotLeader makes the sender of a request ask the leader instead. It has no
// outcome.
var errNotLeader = errors.New("this node does not lead")

// replicatesTo reports whether this node leads a term and its latest
// configuration, committed or not, contains the member id.
func (n *Node) replicatesTo(id raft.ServerID, term uint64) bool {
	r := n.running()
	return r != nil && r.State() == raft.Leader && r.CurrentTerm() == term &&
		slices.ContainsFunc(membersOf(r), func(m Member) bool { return m.ID == string(id) })
}

// changed waits until raft has committed a change of the members, whose future
// is f. The error says whether the change was made. See OutcomeError.
func (n *Node) changed(ctx context.Context, f raft.Future) error {
	failpoint.Hit(failpoint.MemberProposed)
	err := n.await(ctx, f)
	if err == nil {
		failpoint.Hit(failpoint.MemberChanged)
	}
	return changeError(err)
}

// changeError converts an error of raft into one with an outcome. Only the
// errors that are named here say that the change never got into the log.
// (hashicorp/raft 1.7.3 has no exported value for the last one.)
func changeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return errNotLed
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return errChanging
	case strings.HasPrefix(err.Error(), "configuration changed since"):
		return errMoved
	}
	return ChangeUnknown(err)
}

// enqueueTimeout returns how long raft may take to begin a change whose time
// limit is ctx. raft begins a change only after the previous one is committed.
// The timeout is shorter than the limit of ctx, so that the caller learns in
// time that raft has not begun this change.
func enqueueTimeout(ctx context.Context) time.Duration {
	left := adminTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline)/2)
	}
	return max(left, time.Millisecond) // for raft, 0 means no limit
}

// toLeader sends a request to the leader and ignores the content of the reply.
// This node may be the leader.
func (n *Node) toLeader(req adminRequest) error {
	_, err := n.askLeader(n.ctx, req)
	return err
}

// askLeader sends a request to the leader and returns its reply. It fails with
// ErrNoLeader if this node knows no leader.
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
		return reply, n.answer(ctx, req, &reply)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return reply, n.askContext(ctx, string(n.addressOf(id, addr)), string(id), req, &reply)
}

// keepMembers makes non-voters voters once they have caught up, and raises the
// feature version. It runs until the node stops.
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
		if n.currentLeadership() == nil {
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

// promotionLag is how many entries a node may be behind when it becomes a
// voter.
const promotionLag = 256

// promote makes a non-voter a voter if it has caught up. It reads the log index
// of the latest configuration before it asks the node, and raft refuses the
// change if the log contains another configuration by then. Otherwise AddVoter
// would add again a node that was removed meanwhile.
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
	// A node that has applied nothing has nothing on its disk either. As a
	// voter it would wait for a leader that may need its vote: see join. A node
	// that is settling gives no votes.
	if commit := n.committed(); r.Status == nil || r.Status.Applied == 0 || r.Status.Settling || r.Status.Applied+promotionLag < commit {
		return errors.New("still catching up")
	}
	return n.vote(m, index)
}

// vote makes a member a voter. It fails if a later configuration than the one
// at index exists.
func (n *Node) vote(m Member, index uint64) error {
	if err := n.changed(n.ctx, n.raft.AddVoter(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), index, adminTimeout)); err != nil {
		return err
	}
	n.log.Info("member votes", "node", m.ID)
	return nil
}

// listed returns the log index of the latest configuration if that
// configuration contains m as a non-voter. The index comes from the state
// machine, because the one of raft.GetConfiguration is always 0 (hashicorp/raft
// 1.7.3). listed reads the index before the members. If the index is then too
// low, raft refuses the change and keepMembers tries again.
func (n *Node) listed(m Member) (index uint64, err error) {
	if index = n.machine.Configured(); index == 0 {
		return 0, errors.New("no configuration has been applied yet")
	}
	if slices.Contains(membersOf(n.raft), m) && !m.Voter {
		return index, nil
	}
	return 0, fmt.Errorf("%s is no longer a non-voter", m.ID)
}

// nodeCollector reports the state of the node at the time of the scrape.
type nodeCollector struct{ n *Node }

var (
	descTerm     = prometheus.NewDesc("holdfast_raft_term", "Current raft term.", nil, nil)
	descCommit   = prometheus.NewDesc("holdfast_raft_commit_index", "Raft commit index.", nil, nil)
	descApplied  = prometheus.NewDesc("holdfast_raft_applied_index", "Index of the last entry that this node's machine has applied.", nil, nil)
	descLast     = prometheus.NewDesc("holdfast_raft_last_index", "Index of the last entry in this node's log.", nil, nil)
	descLeader   = prometheus.NewDesc("holdfast_is_leader", "1 on the node that leads, 0 elsewhere.", nil, nil)
	descReady    = prometheus.NewDesc("holdfast_ready", "1 while the node is connected to a leader.", nil, nil)
	descKeys     = prometheus.NewDesc("holdfast_keys", "Keys in all databases.", nil, nil)
	descVolatile = prometheus.NewDesc("holdfast_keys_with_ttl", "Keys with a time to live.", nil, nil)
	descExpired  = prometheus.NewDesc("holdfast_expired_keys_total", "Keys expired by the log.", nil, nil)
	descOps      = prometheus.NewDesc("holdfast_logged_operations_total", "Operations run by the log.", nil, nil)
	descLease    = prometheus.NewDesc("holdfast_lease_clock_seconds", "Lease clock of the last entry, seconds since the cluster was formed.", nil, nil)
	descDup      = prometheus.NewDesc("holdfast_duplicate_groups_total", "Groups that arrived twice and ran once.", nil, nil)
	descLog      = prometheus.NewDesc("holdfast_log_bytes", "Payload bytes in the raft log.", nil, nil)
	descFeatures = prometheus.NewDesc("holdfast_feature_version", "Feature version of the cluster, as far as this node has applied the log.", nil, nil)
	descBlocked  = prometheus.NewDesc("holdfast_feature_version_blocked", "On the leader, by node: 1 for a member that keeps the feature version from being raised, because it does not answer or its program is older.", []string{"node"}, nil)
	descSessions = prometheus.NewDesc("holdfast_sessions", "Node sessions that the machine knows.", nil, nil)
	descSlowRun  = prometheus.NewDesc("holdfast_slow_reads_running", "Slow reads that have begun and have not ended.", nil, nil)
	descSlowWait = prometheus.NewDesc("holdfast_slow_reads_waiting", "Slow reads that wait for their first slot.", nil, nil)
	descSlowHeld = prometheus.NewDesc("holdfast_slow_read_bytes", "Bytes of intermediate results and replies that slow reads are charged.", nil, nil)
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
	gauge(descSlowRun, float64(c.n.reads.running.Load()))
	gauge(descSlowWait, float64(c.n.reads.waiting.Load()))
	gauge(descSlowHeld, float64(c.n.reads.held.Load()))
	c.n.machine.View(func(m *fsm.Machine) {
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
