package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/rpc"
)

// Admission. Once a cluster has formed, a node joins it only after an operator has
// added the node ("holdfast member add"). Adding makes it a non-voter, by an entry
// of the log like any change of the members, so the permission survives the loss
// of the leader. A non-voter counts for no majority and no candidate asks it for a vote,
// so one that is never started does no harm.
//
// A node with an empty directory is admitted if it is a non-voter: it cannot have
// cast a vote, or confirmed an entry, that counted since it was added. (What it did
// before an earlier removal is covered in suffrage.go.) If it is a voter, its
// directory has been wiped: see form.go.

// committedMembers returns the members by what is committed. Any other answer
// may be taken back: a node that does not lead may not have heard of the latest
// change, nor may one that leads only as far as it knows, and a change that is not
// committed may be undone by the next leader. So the leader reads what it has and
// commits an entry behind it in its term.
//
// A change that rests on the answer gives raft the index, which is that of the
// configuration or lower: raft refuses the change if there is a later one.
func (n *Node) committedMembers(ctx context.Context) (members []Member, index uint64, err error) {
	o := n.currentOffice()
	if o == nil {
		return nil, 0, errNotLeader
	}
	if index = n.machine.configured.Load(); index == 0 { // raft would take it for none
		return nil, 0, errNotLeader
	}
	members = membersOf(o.raft)
	last := o.raft.LastIndex() // read second, so that it covers the change
	done := make(chan struct{})
	o.tick(func() { close(done) })
	select {
	case <-done:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if !n.ledSince(o) || o.committed() <= last {
		return nil, 0, errNotLeader
	}
	return members, index, nil
}

// ledSince reports whether this node has led without a break since it opened the
// office: it leads, and in the same term.
func (n *Node) ledSince(o *office) bool {
	return n.currentOffice() == o && o.raft.State() == raft.Leader && o.raft.CurrentTerm() == o.term
}

// find returns the member of an id.
func find(members []Member, id string) (m Member, ok bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// AddMember permits a node to join the cluster, under an id and a peer address that
// no member has; any node may be asked. The node votes once it has been started
// and has caught up.
func (n *Node) AddMember(id, addr string) error {
	_, err := n.Add(n.ctx, id, addr)
	return err
}

// Add is AddMember, and says what was done.
func (n *Node) Add(ctx context.Context, id, addr string) (done string, err error) {
	reply, err := n.askLeader(ctx, adminRequest{Op: opAdd, Node: id, Addr: addr})
	return reply.Done, err
}

// addMember answers opAdd. Asked again it reports success.
func (n *Node) addMember(req adminRequest, reply *adminReply) error {
	if err := checkNodeID(req.Node); err != nil {
		return err
	}
	if err := checkPeerAddr(req.Addr); err != nil {
		return fmt.Errorf("address of %s: %w", req.Node, err)
	}
	ctx, cancel := context.WithTimeout(n.ctx, adminTimeout)
	defer cancel()
	members, index, err := n.committedMembers(ctx)
	if err != nil {
		return err
	}
	if m, ok := find(members, req.Node); ok {
		if !m.Voter && m.Addr == req.Addr {
			reply.Done = fmt.Sprintf("%s may join, at %s", req.Node, req.Addr)
			return nil
		}
		return fmt.Errorf("%s is a member already, at %s: to replace it, run \"holdfast member remove %s\" first", m.ID, m.Addr, m.ID)
	}
	for _, m := range members {
		if req.Addr == m.Addr || req.Addr == string(n.addressOf(raft.ServerID(m.ID), "")) {
			return fmt.Errorf("address %s is in use by the member %s", req.Addr, m.ID)
		}
	}
	if p, ok := n.cfg.peer(req.Node); ok && p.Addr != req.Addr {
		return fmt.Errorf("--peers of %s says that %s is at %s: add it with that address, or change --peers of all nodes first", n.cfg.NodeID, p.ID, p.Addr)
	}
	added := n.raft.AddNonvoter(raft.ServerID(req.Node), raft.ServerAddress(req.Addr), index, adminTimeout)
	if err := n.changed(ctx, added); err != nil {
		return fmt.Errorf("add %s: %w", req.Node, err)
	}
	n.log.Info("member added, will vote when it has been started and has caught up", "node", req.Node, "address", req.Addr)
	reply.Done = fmt.Sprintf("%s may join, at %s", req.Node, req.Addr)
	return nil
}

// notAdded says how to let a node in.
func (n *Node) notAdded(req adminRequest) error {
	command := fmt.Sprintf("holdfast member add %s %s", req.Node, req.Addr)
	if n.cfg.ClientAddr != "" {
		command += " --addr " + n.cfg.ClientAddr
	}
	return fmt.Errorf("%s is not a member of this cluster: to let it in, run \"%s\"", req.Node, command)
}

// elsewhere says that a node was added with another address than it has.
func elsewhere(m Member, addr string) error {
	return fmt.Errorf("%s was added with the address %s, but this node advertises %s: correct --advertise-peer-addr, or remove it and add it again", m.ID, m.Addr, addr)
}

// answerVacant answers opVacant: whether a node with an empty directory may
// join. reply.Known says that it has been wiped, reply.Alive that another
// process has its id.
func (n *Node) answerVacant(req adminRequest, reply *adminReply) error {
	// A refusal needs no proof, and the node asks again several times a second, which
	// must not grow the log.
	if o := n.currentOffice(); o != nil {
		if _, ok := find(membersOf(o.raft), req.Node); !ok {
			return n.notAdded(req)
		}
	}
	ctx, cancel := context.WithTimeout(n.ctx, adminTimeout)
	defer cancel()
	members, _, err := n.committedMembers(ctx)
	reply.ClusterID = n.stores.Identity().ClusterID
	if err != nil {
		return err
	}
	m, ok := find(members, req.Node)
	if !ok {
		return n.notAdded(req)
	}
	if reply.Alive = n.aliveAs(ctx, m, req.Instance); reply.Alive != "" {
		return fmt.Errorf("another process runs as %s at %s", m.ID, reply.Alive)
	}
	reply.Known = m.Voter
	if !m.Voter && m.Addr != req.Addr {
		return elsewhere(m, req.Addr)
	}
	return nil
}

// aliveTimeout bounds the question whether a node answers.
const aliveTimeout = time.Second

// aliveAs returns the address at which a member answers with another data
// directory than that of instance, "" if it does not.
func (n *Node) aliveAs(ctx context.Context, m Member, instance string) string {
	if m.ID == n.cfg.NodeID { // this node
		return n.cfg.AdvertisePeerAddr
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	addr := string(n.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
	s, err := n.mux.Dial(ctx, addr, rpc.ServiceAdmin, m.ID)
	if err != nil {
		return "" // that is the answer
	}
	defer s.Close()
	if s.Peer().Instance == instance {
		return "" // the node that asks
	}
	return addr
}

// takeIn answers opJoin: it takes in a node that has been added. The entry that it
// commits changes nothing about the members; it proves that the node is a
// non-voter at its index. The answer names that index: see suffrage.go. A node
// whose answer was lost asks again.
func (n *Node) takeIn(req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(n.ctx, adminTimeout)
	defer cancel()
	term := n.raft.CurrentTerm()
	members, index, err := n.committedMembers(ctx)
	if err != nil {
		return err
	}
	m, ok := find(members, req.Node)
	switch {
	case !ok:
		return n.notAdded(req)
	case m.Voter:
		reply.Known = true
		return fmt.Errorf("%s votes already", m.ID)
	case m.Addr != req.Addr:
		return elsewhere(m, req.Addr)
	}
	added := n.raft.AddNonvoter(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), index, adminTimeout)
	if err := n.changed(ctx, added); err != nil {
		return fmt.Errorf("take in %s: %w", req.Node, err)
	}
	// The term that the node is told is that of the entry.
	if n.raft.CurrentTerm() != term || n.raft.State() != raft.Leader {
		return errNotLeader
	}
	reply.Index, reply.Term = added.Index(), term
	n.log.Info("member joins", "node", m.ID, "address", m.Addr, "index", reply.Index)
	return nil
}

// checkPeerAddr checks an address that other nodes are to connect to.
func checkPeerAddr(addr string) error {
	host, err := dialable(addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%q is no address that another node can reach", addr)
	}
	return nil
}

// joinError makes the leader's refusal of a node with an empty directory an
// error of this node.
func (n *Node) joinError(answer adminReply, err error) error {
	id, addr := n.cfg.NodeID, n.cfg.AdvertisePeerAddr
	switch {
	case answer.Alive != "":
		return fmt.Errorf("%w: %s is alive at %s. Do not remove it. Give this process another --node-id and its own --data-dir, or stop the other process first", ErrAlive, id, answer.Alive)
	case answer.Known:
		return fmt.Errorf("%w: %s. A member that lost its votes may not come back under its name. Remedy: run \"holdfast member remove %s\" and \"holdfast member add %s %s\" against a live node, then start this node again: it joins as a new member and copies the data", ErrWiped, id, id, id, addr)
	case err != nil:
		return fmt.Errorf("%w to join: %w", errWaiting, err)
	}
	return err
}
