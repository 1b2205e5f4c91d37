package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/cluster/transport"
)

// raftInstance is this node's instance of raft, as the other parts of the node
// see it. The instance does not run before the node has formed or joined its
// cluster.
type raftInstance struct {
	*environment

	// mu guards instance and transport. Both are nil until run sets them
	// together, and do not change afterwards. A part that has seen the instance
	// therefore also sees the transport.
	mu        sync.Mutex
	instance  *raft.Raft
	transport *transport.Transport
}

// run makes r the node's instance of raft. It returns false if the node has
// begun to close. Then the caller must shut r down.
//
// Node.Close ends environment.ctx before it calls ri.running. So either ri.run
// sees that the context has ended, or Node.Close sees r and shuts it down.
func (ri *raftInstance) run(r *raft.Raft, t *transport.Transport) bool {
	ri.mu.Lock()
	defer ri.mu.Unlock()
	if ri.ctx.Err() != nil {
		return false
	}
	ri.instance, ri.transport = r, t
	return true
}

// shutDown stops the state machine, and then shuts raft down. While
// hashicorp/raft 1.7.3 shuts down, its main loop may drop a batch of committed
// entries and still pass on the next batch. A machine that applied the next batch
// would have skipped entries. Its state would differ from that of the other nodes,
// and it could write that state to a snapshot.
func shutDown(r *raft.Raft, m *machine.Machine) raft.Future {
	m.Stop()
	return r.Shutdown()
}

// running returns raft, or nil before raft runs.
func (ri *raftInstance) running() *raft.Raft {
	ri.mu.Lock()
	defer ri.mu.Unlock()
	return ri.instance
}

// messages returns the transport of raft, or nil before raft runs.
func (ri *raftInstance) messages() *transport.Transport {
	ri.mu.Lock()
	defer ri.mu.Unlock()
	return ri.transport
}

// await waits for a future of raft, until ctx or the node ends. raft does not
// complete the futures that are on their way to the state machine when it shuts
// down. The goroutine that waits for such a future remains until the process
// ends. When the node is closing, await may return nil although the state machine
// has not applied the entry.
func (ri *raftInstance) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-ri.ctx.Done():
		return ri.ctx.Err()
	}
}

// settling reports whether this node's log ends before the change that admitted
// the node. If the node has joined and raft does not run yet, it returns true.
func (ri *raftInstance) settling() bool {
	joined := ri.stores.Identity().JoinIndex
	if joined == 0 {
		return false
	}
	r := ri.running()
	return r == nil || r.LastIndex() < joined
}

// committed returns the commit index as far as other parts may rely on it: see
// raftlog.Log.Durable. log is the log of the instance, which must run.
func (ri *raftInstance) committed(log *raftlog.Log) uint64 {
	return log.Durable(ri.running().CommitIndex())
}

// leads reports whether raft says that this node leads.
func (ri *raftInstance) leads() bool {
	r := ri.running()
	return r != nil && r.State() == raft.Leader
}

// leadsTerm reports whether raft says that this node leads in a term, which raft
// must have reached before the call. leadsTerm must read the state before the
// term. If the state is Leader and raft's term afterwards is still this term,
// the node led in this term when the call began.
func (ri *raftInstance) leadsTerm(term uint64) bool {
	r := ri.running()
	return r != nil && r.State() == raft.Leader && r.CurrentTerm() == term
}

// replicatesTo reports whether this node leads in the term, and whether its
// latest configuration, committed or not, contains the member with this id.
func (ri *raftInstance) replicatesTo(id raft.ServerID, term uint64) bool {
	return ri.leadsTerm(term) &&
		slices.ContainsFunc(ri.members(), func(m member.Member) bool { return m.ID == string(id) })
}

// members returns the members of the latest configuration, committed or not, in
// the order of their ids. It returns nil before raft runs.
func (ri *raftInstance) members() []member.Member {
	if r := ri.running(); r != nil {
		return membersOf(r)
	}
	return nil
}

// voters returns the number of voters in the latest configuration.
func (ri *raftInstance) voters() int {
	v := 0
	for _, m := range ri.members() {
		if m.Voter {
			v++
		}
	}
	return v
}

func membersOf(r *raft.Raft) []member.Member { return member.Of(r.GetConfiguration().Configuration()) }

// newRaft creates raft on this node's log and snapshots, from which raft restores
// the state.
func (n *Node) newRaft(bootstrap *raft.Configuration, messages *transport.Transport) (*raft.Raft, error) {
	rc := n.cfg.raftConfig(n.leaderships.notify, transport.RaftLogger(n.log.Named("raft")))
	log, snaps := n.raftLog.Entries(), n.raftLog.Snapshots()
	own, err := snaps.List()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	if len(own) > 0 {
		n.machine.Starting()
	}
	if bootstrap != nil {
		if err := raft.BootstrapCluster(rc, log, n.raftLog.Founding(), snaps, messages, *bootstrap); err != nil {
			return nil, fmt.Errorf("form cluster: %w", err)
		}
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	if len(own) > 0 {
		last = max(last, own[0].Index)
	}
	n.replay.last = last
	var trans raft.Transport = messages
	if last < n.stores.Identity().JoinIndex { // the node is settling
		silent := messages.Silent(n.raft.settling)
		n.wg.Go(func() { silent.Run(n.ctx) })
		trans = silent
	}
	r, err := raft.NewRaft(rc, n.machine, log, n.raftLog.Stable(), snaps, trans)
	if err != nil {
		if unread := n.machine.Unread(); unread != nil { // raft only says that no snapshot could be read
			err = fmt.Errorf("%w: %w", err, unread)
		}
		return nil, fmt.Errorf("start raft: %w", err)
	}
	return r, nil
}
