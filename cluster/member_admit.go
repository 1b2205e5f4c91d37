package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/rpc"
)

// Admission: once a cluster has formed, a node can join only after an operator
// has added it with "holdfast member add". Adding a node commits a
// configuration entry that makes it a non-voter, so the permission survives the
// loss of the leader. A non-voter counts for no majority, and no candidate asks
// it for a vote. So a node that is added and never started delays no write and no
// election. It only prevents a raise of the feature version: see package features.
//
// A node with an empty directory is admitted if it is a non-voter: since the
// node was added, none of its votes and acknowledgments has counted.
// raftlog/votes.go covers the votes and acknowledgments that the node may have
// given before an earlier removal. If the node is a voter, its directory has been
// wiped: see member_form.go.

// committedMembers returns the committed members. Without its check, the
// members could be wrong: a node that does not lead may not have received the
// latest change, a node may believe wrongly that it still leads, and the next
// leader may undo a change that is not committed. So the leader reads its
// configuration, and then commits an entry in its term.
//
// index is the log index of the configuration, or a lower one. A change that
// relies on the answer must pass index to raft, which refuses the change if
// there is a later configuration.
func (ms *membership) committedMembers(ctx context.Context) (members []member.Member, index uint64, err error) {
	ld := ms.leaderships.current()
	if ld == nil {
		return nil, 0, errNotLed
	}
	// raft would take index 0 to mean "no index given".
	if index = ms.machine.Configured(); index == 0 {
		return nil, 0, errNotLed
	}
	members = membersOf(ld.raft)
	last := ld.raft.LastIndex() // read after the members, so that it covers their configuration
	done := make(chan struct{})
	ld.awaitClockEntry(func() { close(done) })
	select {
	case <-done:
	case <-ctx.Done():
		return nil, 0, errUnconfirmed
	}
	if !ms.ledSince(ld) || ld.committed() <= last {
		return nil, 0, errNotLed
	}
	return members, index, nil
}

// ledSince reports whether this node has led without interruption since it
// opened the leadership: it still leads, in the same term.
func (ms *membership) ledSince(ld *leadership) bool {
	return ms.leaderships.current() == ld && ld.raft.State() == raft.Leader && ld.raft.CurrentTerm() == ld.term
}

// Add permits a node to join the cluster, and returns a description of what was
// done. Unless the node is already a non-voter with this address, no member may
// have the id, and no port of a member may have the address. Add works on any
// node. The new node becomes a voter once it has been started and has caught
// up. If learner is set, it becomes a voter only by Promote.
func (n *Node) Add(ctx context.Context, id, addr string, learner bool) (done string, err error) {
	reply, err := n.admin.askLeader(ctx, adminRequest{Op: opAdd, Node: id, Addr: addr, Learner: learner})
	return reply.Done, err
}

// add answers opAdd. It reports success if the node is already a non-voter with
// the same address.
func (ms *membership) add(ctx context.Context, req adminRequest, reply *adminReply) error {
	if err := checkNodeID(req.Node); err != nil {
		return err
	}
	if err := CheckPeerAddr(req.Addr); err != nil {
		return fmt.Errorf("address of %s: %w", req.Node, err)
	}
	note, wrong := ms.answersAt(ctx, Peer{ID: req.Node, Addr: req.Addr})
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if err := ms.changes.lock(ctx); err != nil {
		return err
	}
	defer ms.changes.unlock()
	members, index, err := ms.committedMembers(ctx)
	if err != nil {
		return err
	}
	if m, ok := member.Find(members, req.Node); ok {
		if !m.Voter && m.Addr == req.Addr {
			reply.Done = fmt.Sprintf("%s may join, at %s%s", req.Node, req.Addr, note)
			return ms.setLearner(req.Node, req.Learner)
		}
		return fmt.Errorf("%s is already a member, at %s: to replace it, run \"holdfast member remove %s\" first",
			m.ID, m.Addr, m.ID)
	}
	if err := ms.inUse(members, req.Addr); err != nil {
		return err
	}
	if wrong != nil {
		return wrong
	}
	if p, ok := ms.cfg.peer(req.Node); ok && p.Addr != req.Addr {
		return fmt.Errorf("--peers of %s says that %s is at %s: "+
			"add it with that address, or change --peers of all nodes first", ms.cfg.NodeID, p.ID, p.Addr)
	}
	if err := ms.setLearner(req.Node, req.Learner); err != nil {
		return err
	}
	ms.operatorChanged()
	ms.away.Forget(req.Node) // absences before an earlier removal do not count
	id, addr := raft.ServerID(req.Node), raft.ServerAddress(req.Addr)
	added := ms.raft.running().AddNonvoter(id, addr, index, enqueueTimeout(ctx))
	if err := ms.changed(ctx, added); err != nil {
		return fmt.Errorf("add %s: %w", req.Node, err)
	}
	ms.log.Info("member added as non-voter; unless it is a learner, it becomes a voter when it has caught up",
		"node", req.Node, "address", req.Addr, "learner", req.Learner)
	reply.Done = fmt.Sprintf("%s may join, at %s%s", req.Node, req.Addr, note)
	return nil
}

// answersAt finds out which process answers at the address with which a node is
// to be added. If another node or another program answers, answersAt returns
// the error wrong, because the new node cannot use the address. note tells the
// operator about a problem that may be temporary. If no process answers, answersAt
// returns neither, because the node may be started later.
func (ms *membership) answersAt(ctx context.Context, p Peer) (note string, wrong error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	err := ms.peers.askContext(ctx, p.Addr, p.ID, adminRequest{Op: opProbe}, &adminReply{})
	var refused *rpc.RefusedError
	var dns *net.DNSError
	switch {
	case err == nil:
	case errors.As(err, &refused) && refused.Reason == rpc.ReasonWrongNode:
		return "", fmt.Errorf("another node answers at %s: %s", p.Addr, refused.Text)
	case errors.As(err, &refused) && refused.Reason == rpc.ReasonUnauthorized: // a node of another cluster
		return "; but the process that answers there refuses this cluster: " + refused.Text, nil
	case errors.Is(err, rpc.ErrNotPeer):
		return "", notPeerPort(p.Addr, rpc.WhatAnswers(err))
	case errors.As(err, &dns):
		return fmt.Sprintf("; but %s cannot resolve %s at present: %s", ms.cfg.NodeID, dns.Name, dns.Err), nil
	case errors.Is(err, rpc.ErrSecret):
		return "; but the process that answers there has another cluster secret", nil
	case errors.Is(err, context.DeadlineExceeded):
		if answers := ms.silentPort(p.Addr); answers != "" {
			return "", notPeerPort(p.Addr, answers)
		}
	}
	return "", nil
}

func notPeerPort(addr, answers string) error {
	return fmt.Errorf("%s is not a peer port: %s; a new node is added with its peer address (its --peer-addr)",
		addr, answers)
}

// inUse returns an error if a port of a member has the address.
func (ms *membership) inUse(members []member.Member, addr string) error {
	for _, m := range members {
		h := ms.health.Of(m.ID)
		if m.ID == ms.cfg.NodeID {
			h = PeerHealth{ClientAddr: ms.cfg.ClientAddr, SentinelAddr: ms.cfg.SentinelAddr, HTTPAddr: ms.cfg.HTTPAddr}
		}
		switch addr {
		case m.Addr, string(ms.peers.addressOf(raft.ServerID(m.ID), "")):
			return fmt.Errorf("address %s is in use by the member %s", addr, m.ID)
		case h.ClientAddr:
			return fmt.Errorf("address %s is the client port of the member %s: "+
				"a new node needs a peer address of its own (its --peer-addr)", addr, m.ID)
		case h.SentinelAddr, h.HTTPAddr:
			return fmt.Errorf("address %s is in use by the member %s, but is not its peer address", addr, m.ID)
		}
	}
	return nil
}

// notAdded returns the error for a node that is not a member. It tells the
// operator how to add the node.
func (ms *membership) notAdded(req adminRequest) error {
	command := fmt.Sprintf("holdfast member add %s %s", req.Node, req.Addr)
	if ms.cfg.ClientAddr != "" {
		command += " --addr " + ms.cfg.ClientAddr
	}
	return fmt.Errorf("%s is not a member of this cluster: to let it in, run \"%s\"", req.Node, command)
}

// wrongAddress returns the error for a node that advertises another address than
// the address with which it was added.
func wrongAddress(m member.Member, addr string) error {
	return fmt.Errorf("%s was added with the address %s, but this node advertises %s: "+
		"correct --advertise-peer-addr, or remove it and add it again", m.ID, m.Addr, addr)
}

// answerVacant answers opVacant: whether a node with an empty directory may
// join. It sets reply.Known if the node's directory has been wiped, and
// reply.Alive if another process runs under the node's id.
func (ms *membership) answerVacant(req adminRequest, reply *adminReply) error {
	// A refusal needs no committed members. The node repeats the request
	// several times a second, and these requests must not make the log grow.
	if ld := ms.leaderships.current(); ld != nil {
		if _, ok := member.Find(membersOf(ld.raft), req.Node); !ok {
			return ms.notAdded(req)
		}
	}
	ctx, cancel := context.WithTimeout(ms.ctx, adminTimeout)
	defer cancel()
	members, _, err := ms.committedMembers(ctx)
	reply.ClusterID = ms.stores.Identity().ClusterID
	if err != nil {
		return err
	}
	m, ok := member.Find(members, req.Node)
	if !ok {
		return ms.notAdded(req)
	}
	if reply.Alive = ms.aliveAs(ctx, m, req.Instance); reply.Alive != "" {
		return fmt.Errorf("another process runs as %s at %s", m.ID, reply.Alive)
	}
	reply.Known = m.Voter
	if !m.Voter && m.Addr != req.Addr {
		return wrongAddress(m, req.Addr)
	}
	return nil
}

// aliveTimeout bounds the attempt to connect to a node to see whether it is
// alive.
const aliveTimeout = time.Second

// aliveAs returns the address of member m if a process with a data directory other
// than the requester's answers there. Otherwise it returns "". instance is the
// identity of the requester's data directory.
func (ms *membership) aliveAs(ctx context.Context, m member.Member, instance string) string {
	if m.ID == ms.cfg.NodeID { // this node
		return ms.cfg.AdvertisePeerAddr
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	addr := string(ms.peers.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
	s, err := ms.mux.Dial(ctx, addr, rpc.ServiceAdmin, m.ID)
	if err != nil {
		return "" // no process answers there
	}
	defer s.Close()
	if s.Peer().Instance == instance {
		return "" // the node that sent the request
	}
	return addr
}

// admit answers opJoin: it admits a node that has been added, if the node's
// program knows the feature version of the cluster.
func (ms *membership) admit(ctx context.Context, req adminRequest, reply *adminReply) error {
	if ms.leaderships.current() == nil {
		return errNotLed
	}
	return ms.features.WhileUnchanged(func() error {
		if err := ms.features.Allow(req.Node, req.Features); err != nil {
			return err
		}
		return ms.commitAdmission(ctx, req, reply)
	})
}

// commitAdmission admits a node that has been added. It commits an entry that
// changes no member but proves that the node is a non-voter at the entry's
// index. The reply names that index: see raftlog/votes.go. If a reply is
// lost, the node asks again.
func (ms *membership) commitAdmission(ctx context.Context, req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	term := ms.raft.running().CurrentTerm()
	members, index, err := ms.committedMembers(ctx)
	if err != nil {
		return err
	}
	// Check again: an entry that raises the feature version may have been
	// applied since admit checked the node's version. WhileUnchanged cannot
	// prevent this if the call that proposed the entry ended without an
	// outcome. Such an entry precedes the one that committedMembers has
	// committed, so this check sees its effect.
	if err := ms.features.Allow(req.Node, req.Features); err != nil {
		return err
	}
	m, ok := member.Find(members, req.Node)
	switch {
	case !ok:
		return ms.notAdded(req)
	case m.Voter:
		reply.Known = true
		return fmt.Errorf("%s votes already", m.ID)
	case m.Addr != req.Addr:
		return wrongAddress(m, req.Addr)
	}
	added := ms.raft.running().AddNonvoter(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), index, enqueueTimeout(ctx))
	if err := ms.changed(ctx, added); err != nil {
		return fmt.Errorf("admit %s: %w", req.Node, err)
	}
	// The reply must name the term of the entry, so the term must not have
	// changed.
	if ms.raft.running().CurrentTerm() != term || ms.raft.running().State() != raft.Leader {
		return errNotLeader
	}
	reply.Index, reply.Term = added.Index(), term
	ms.log.Info("member was admitted", "node", m.ID, "address", m.Addr, "index", reply.Index)
	return nil
}
