package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/diskspace"
	"github.com/holdfast-kv/holdfast/cluster/features"
	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/cluster/snapshot"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/platform"
)

// NodeStatus is the state that one node reports about itself.
type NodeStatus = health.NodeStatus

// PeerHealth is the last answer of a member to a query for its status.
type PeerHealth = health.PeerHealth

// WritesRefused returns the error with which the cluster refuses commands that add
// data because disks are almost full, as far as this node knows, or "".
func (n *Node) WritesRefused() string { return n.disk.Full() }

// Status returns this node's own state.
func (n *Node) Status() NodeStatus { return n.status.own() }

// ClusterStatus asks every member for its state, at the same time, and reports
// a member as unreachable if it does not answer within a second.
func (n *Node) ClusterStatus(ctx context.Context) []NodeStatus { return n.status.ofCluster(ctx) }

// statusReporter collects the state of this node and of the other members.
type statusReporter struct {
	*environment
	started   time.Time // by the wall clock
	raft      *raftInstance
	raftLog   *raftlog.Log
	machine   *machine.Machine
	peers     *peers
	founder   *founder
	features  *features.Features
	forwarder *forwarder
	snapshots *snapshot.Taker
	health    *health.Book
	disk      *diskspace.Monitor
	removal   *removalWatch
	state     stateReader
	memory    memoryReader
	reporter  atomic.Pointer[func(query string) ([]byte, error)]
}

// stateReader reads the part of a node's status that needs the lock of the
// state machine. An entry that restores a backup holds the lock for seconds,
// and so does the installation of a snapshot. The node must answer the other
// members meanwhile. Otherwise they report that they get no answers from it.
type stateReader struct {
	mu   sync.Mutex
	last stateSummary
	// reading is closed when the goroutine that waits for the lock has set the
	// field last. It is nil if there is no such goroutine.
	reading chan struct{}
}

// stateSummary is the part of a node's status that a stateReader reads.
type stateSummary struct {
	keys        int
	tokenEpoch  uint64
	index, hash uint64
	quarantine  time.Duration
}

// stateWait is how long a request for the status waits for the lock of the state
// machine. It leaves most of statusLimit for the network.
const stateWait = statusLimit / 4

// read returns the summary of the current state of m. If it does not get the lock
// within stateWait, it returns the summary that was read last.
func (sr *stateReader) read(m *machine.Machine) stateSummary {
	var now stateSummary
	if m.TryView(func(m *fsm.Machine) { now = summaryOf(m) }) {
		sr.mu.Lock()
		defer sr.mu.Unlock()
		sr.last = now
		return now
	}
	sr.mu.Lock()
	done := sr.reading
	if done == nil {
		done = make(chan struct{})
		sr.reading = done
		go func() {
			defer close(done)
			var s stateSummary
			m.View(func(m *fsm.Machine) { s = summaryOf(m) })
			sr.mu.Lock()
			defer sr.mu.Unlock()
			sr.last, sr.reading = s, nil
		}()
	}
	sr.mu.Unlock()
	t := time.NewTimer(stateWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
	sr.mu.Lock()
	defer sr.mu.Unlock()
	return sr.last
}

func summaryOf(m *fsm.Machine) stateSummary {
	s := stateSummary{keys: m.Len(), tokenEpoch: fsm.TokenEpoch(m.Token()), quarantine: quarantineOf(m)}
	s.index, s.hash = m.Hash()
	return s
}

// SetReporter sets the function that answers for this node when Reports is called
// on any node. f returns JSON, and any goroutine may call it. The package does not
// interpret queries and answers.
func (n *Node) SetReporter(f func(query string) ([]byte, error)) { n.status.reporter.Store(&f) }

// Reports asks the reporters of all members, at the same time, and returns their
// answers by node id. It leaves out members that do not answer within a second,
// and members whose program has no reporter.
func (n *Node) Reports(ctx context.Context, query string) map[string][]byte {
	return n.status.reports(ctx, query)
}

var errNoReporter = errors.New("this node has no reporter")

func (sr *statusReporter) report(query string) ([]byte, error) {
	f := sr.reporter.Load()
	if f == nil {
		return nil, errNoReporter
	}
	return (*f)(query)
}

func (sr *statusReporter) reports(ctx context.Context, query string) map[string][]byte {
	var members []member.Member
	if r := sr.raft.running(); r != nil {
		members = membersOf(r)
	}
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	answers := make(map[string][]byte)
	if own, err := sr.report(query); err == nil {
		answers[sr.cfg.NodeID] = own
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards answers
	for _, m := range members {
		if m.ID == sr.cfg.NodeID {
			continue
		}
		wg.Go(func() {
			addr := string(sr.peers.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
			var r adminReply
			req := adminRequest{Op: opReport, Query: query}
			if err := sr.peers.askContext(ctx, addr, m.ID, req, &r); err != nil || r.Report == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[m.ID] = r.Report
		})
	}
	wg.Wait()
	return answers
}

// memoryReader reads how much memory the process may use, at most once in
// memoryEvery. Reading it opens several files of the system, and every member asks
// for the status once a second.
type memoryReader struct {
	mu    sync.Mutex
	known bool          // whether memory and at are set
	at    time.Duration // Clock.Mono when memory was measured
	// memory is in bytes; 0 means that it is not known.
	memory uint64
}

// memoryEvery is how long a node may continue to report the old memory limit
// after the limit of its control group has changed.
const memoryEvery = 10 * time.Second

// read returns the result of measure, or the result of an earlier call of
// measure. now is the time by Clock.Mono.
func (mr *memoryReader) read(now time.Duration, measure func() (uint64, error)) uint64 {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.known && now-mr.at < memoryEvery {
		return mr.memory
	}
	memory, err := measure()
	if err != nil {
		memory = 0 // the status then says that the memory is not known
	}
	mr.known, mr.at, mr.memory = true, now, memory
	return memory
}

// MemoryStatus contains the size of the data set as a node counts it, and the
// limits on the memory of the node.
type MemoryStatus = health.MemoryStatus

// Memory returns the size of the data set and its limit.
func (n *Node) Memory() MemoryStatus { return memoryOf(n.machine, n.raft) }

func memoryOf(m *machine.Machine, r *raftInstance) MemoryStatus {
	return MemoryStatus{
		DatasetBytes: m.Bytes(), MaxMemory: m.MaxMemory(), MemoryRefused: m.TooLarge() && r.leads(),
	}
}

func (sr *statusReporter) own() NodeStatus {
	id := sr.stores.Identity()
	st := NodeStatus{
		ID: id.NodeID, ClusterID: id.ClusterID, Role: "starting",
		Endpoints: health.Endpoints{
			ClientAddr: sr.cfg.ClientAddr, Sentinel: sr.cfg.SentinelAddr,
			PeerAddr: sr.cfg.AdvertisePeerAddr, HTTPAddr: sr.cfg.HTTPAddr,
		},
		RunID: sr.cfg.RunID, Version: sr.cfg.Version,
		Uptime:   sr.clock.Wall().Sub(sr.started).Seconds(),
		LogBytes: sr.stores.LogBytes(), Reachable: true, Ready: sr.forwarder.isLinked(), PID: pid,
		Transition:    health.Transition{Settling: sr.raft.settling(), Stopping: sr.stopping.Load()},
		SnapshotError: sr.snapshots.Problem(), RoomStatus: health.RoomStatus{
			DiskStatus: sr.disk.Status(), MemoryStatus: memoryOf(sr.machine, sr.raft),
		},
		FeatureStatus: health.FeatureStatus{
			Features: sr.features.Reports(), FeatureVersion: sr.machine.Features(),
			FeaturesBlocked: features.Describe(sr.features.Blockers()),
		},
	}
	st.ProcessMemory = sr.memory.read(sr.clock.Mono(), platform.ProcessMemory)
	state := sr.state.read(sr.machine)
	st.Keys, st.TokenEpoch, st.Quarantine = state.keys, state.tokenEpoch, state.quarantine.Seconds()
	st.StateIndex, st.StateHash = state.index, fmt.Sprintf("%016x", state.hash)
	r := sr.raft.running()
	st.Detail = sr.founder.waitsFor()
	if r == nil {
		return st
	}
	switch r.State() {
	case raft.Leader:
		st.Role = "leader"
	case raft.Candidate:
		st.Role = "candidate"
	case raft.Follower:
		st.Role = "follower"
	}
	_, leader := r.LeaderWithID()
	st.Leader = string(leader)
	if left, known := sr.raft.messages().Silence().Left(st.Leader); known && st.Role == "follower" {
		st.LeaderSilent = left <= 0
	}
	st.Term, st.Commit, st.LastIndex = r.CurrentTerm(), sr.raft.committed(sr.raftLog), r.LastIndex()
	st.Applied = sr.machine.Applied()
	for _, m := range membersOf(r) {
		if m.ID == id.NodeID {
			// While a node reads the log from its start, it sees its earlier
			// memberships, so raft's configuration may name it a voter.
			st.Voter = m.Voter && !st.Settling
		} else {
			st.Links = append(st.Links, sr.health.Link(m.ID))
		}
	}
	if sr.removal.removed.Load() {
		st.Role, st.Voter = "removed", false
	}
	return st
}

// statusLimit bounds requests that a healthy node answers quickly, such as those
// of ClusterStatus.
const statusLimit = time.Second

// ofCluster implements Node.ClusterStatus.
func (sr *statusReporter) ofCluster(ctx context.Context) []NodeStatus {
	var members []member.Member
	if r := sr.raft.running(); r != nil {
		members = membersOf(r)
	}
	forming := len(members) == 0
	if forming {
		for _, p := range sr.cfg.Peers {
			members = append(members, member.Member{ID: p.ID, Addr: p.Addr, Voter: true})
		}
	}
	// This node is not listed if it was removed, or lacks the entry that added it.
	if _, ok := member.Find(members, sr.cfg.NodeID); !ok && len(members) > 0 {
		members = append(members, member.Member{ID: sr.cfg.NodeID, Addr: sr.cfg.AdvertisePeerAddr})
	}
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	out := make([]NodeStatus, len(members))
	var wg sync.WaitGroup
	self := -1
	for i, m := range members {
		if m.ID == sr.cfg.NodeID {
			self = i
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			addr := string(sr.peers.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
			var r adminReply
			err := sr.peers.askStatus(ctx, addr, m.ID, &r)
			if err != nil || r.Status == nil {
				detail := "no status in the answer"
				if err != nil {
					detail = shortReason(err)
				}
				out[i] = NodeStatus{
					ID: m.ID, Role: "unreachable", Endpoints: health.Endpoints{PeerAddr: addr}, Voter: m.Voter,
					Detail: detail, LastAnswer: sr.health.Of(m.ID).Heard,
				}
				return
			}
			out[i] = *r.Status
			sr.health.Measured(m.ID, r.took)
			// Use the configuration of this node, not the other node's own
			// view: a node that joins again replays past configurations, in
			// which it may have been a voter.
			out[i].Voter = m.Voter
		}()
	}
	if self >= 0 { // after the requests have begun, because ctx limits the time for their answers
		out[self] = sr.own()
		if forming {
			out[self].Voter = members[self].Voter
		}
	}
	wg.Wait()
	var commit uint64
	for _, st := range out {
		commit = max(commit, st.Commit)
	}
	for i := range out {
		if out[i].Reachable {
			out[i].Lag = commit - min(out[i].Applied, commit)
		}
		if out[i].ID == sr.cfg.NodeID {
			health.MarkSilent(out[i].Links, out)
		}
	}
	return out
}

// PeerHealth returns the members of the latest configuration, ordered by id. The
// fields of this node are current, except HTTPAddr and Disk, which are not set. The
// fields of another member are those that it last reported.
func (n *Node) PeerHealth() []PeerHealth {
	r := n.raft.running()
	if r == nil {
		return nil
	}
	members := membersOf(r)
	out := make([]PeerHealth, 0, len(members))
	for _, m := range members {
		c := n.health.Of(m.ID)
		if m.ID == n.cfg.NodeID {
			c = PeerHealth{
				ClientAddr: n.cfg.ClientAddr, SentinelAddr: n.cfg.SentinelAddr, RunID: n.cfg.RunID,
				Applied: n.machine.Applied(), Heard: n.clock.Wall(), Alive: true,
			}
		}
		c.ID, c.PeerAddr, c.Voter = m.ID, m.Addr, m.Voter
		out = append(out, c)
	}
	return out
}

// Acknowledging returns a list of other voters, as many as must have a write on
// disk before the write is acknowledged. Voters that answer come first and the
// leader comes last. The list is only an example, because different voters
// acknowledge different writes. The length of the list depends only on the
// membership and on whether this node is a voter. So it is the same on every
// voter, with or without a leader.
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
