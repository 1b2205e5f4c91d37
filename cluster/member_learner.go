package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// A node that was added with "holdfast member add --learner" remains a
// non-voter until an operator promotes it. raft's configuration cannot record
// this, so a setting of the cluster lists these nodes.
const settingLearners = "learners"

// membersSetting returns the value of a setting of the cluster. This package uses
// such settings when it changes the members.
func (ms *membership) membersSetting(name string) string {
	var value string
	ms.machine.View(func(m *fsm.Machine) { value = m.Setting(name) })
	return value
}

// learners returns the nodes that remain non-voters until they are promoted.
func (ms *membership) learners() []string {
	return strings.FieldsFunc(ms.membersSetting(settingLearners), func(r rune) bool { return r == ',' })
}

// setLearner records whether a node remains a non-voter. ms.changes must be
// held, because setLearner reads the list and then replaces it.
func (ms *membership) setLearner(id string, learner bool) error {
	all := ms.learners()
	if slices.Contains(all, id) == learner {
		return nil
	}
	if all = slices.DeleteFunc(all, func(s string) bool { return s == id }); learner {
		all = append(all, id)
	}
	return ms.setSetting(settingLearners, strings.Join(all, ","))
}

// setSetting changes a setting of the cluster.
func (ms *membership) setSetting(name, value string) error {
	if now := ms.machine.Features(); now < fsm.FeatureMend {
		return fmt.Errorf("this needs feature version %d and the cluster uses %d: upgrade every node first",
			fsm.FeatureMend, now)
	}
	var g fsm.Group
	g.Reset(2, 0)
	args := [][]byte{nil, []byte(name), []byte(value)}
	g.Command(ms.table.Find([]byte(fsm.SetSettingsCommand)), 0, args)
	reply, err := ms.submit(&g)
	if err == nil && len(reply) > 0 && reply[0] == '-' {
		err = errors.New(strings.TrimSpace(string(reply[1:])))
	}
	if err != nil {
		return fmt.Errorf("store the setting %s: %w", name, err)
	}
	return nil
}

// Promote makes a non-voter a voter and returns a description of what was done.
// If the node has not caught up yet, it becomes a voter once it has. Promote
// works on any node.
func (n *Node) Promote(ctx context.Context, id string) (done string, err error) {
	reply, err := n.admin.askLeader(ctx, adminRequest{Op: opPromote, Node: id})
	return reply.Done, err
}

// promoteNow answers opPromote.
func (ms *membership) promoteNow(ctx context.Context, req adminRequest, reply *adminReply) error {
	if err := checkNodeID(req.Node); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if err := ms.changes.lock(ctx); err != nil {
		return err
	}
	defer ms.changes.unlock()
	members, _, err := ms.committedMembers(ctx)
	if err != nil {
		return err
	}
	m, ok := member.Find(members, req.Node)
	switch {
	case !ok:
		return fmt.Errorf("%s is not a member: run \"holdfast member add %s ADDR\" first", req.Node, req.Node)
	case m.Voter:
		reply.Done = m.ID + " is a voter already"
		return nil
	}
	if err := ms.setLearner(m.ID, false); err != nil {
		return err
	}
	switch err := ms.promote(m); {
	case err == nil:
		reply.Done = m.ID + " is a voter now"
	case errors.Is(err, outcome.ErrUnknown):
		return err
	default:
		reply.Done = fmt.Sprintf("%s becomes a voter when it has caught up (%v)", m.ID, err)
	}
	return nil
}
