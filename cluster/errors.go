package cluster

import (
	"errors"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// Errors of a change of the members, besides refusals that have their own text
// and outcome.NewChangeUnknown. After these errors, nothing was changed.
var (
	errNotLed      = outcome.NewNotExecuted(true, "this node does not lead")
	errChanging    = outcome.NewNotExecuted(true, "another change of the members is under way")
	errUnconfirmed = outcome.NewNotExecuted(true, "the leader could not commit an entry in time to confirm the members")
	errNoAnswers   = outcome.NewNotExecuted(true, "the members could not be asked in time whether they are alive")
	errMoved       = outcome.NewNotExecuted(true, "the members have changed since they were checked")
)

// ErrStaleSession means that the cluster knows a later start of this node. The
// data directory was copied, or two processes use copies of it.
var ErrStaleSession = errors.New("the cluster knows a later start of this node: " +
	"was its data directory copied or restored?")

// Errors that keep a node from starting or joining.
var (
	// ErrWiped means that the directory is empty and has not asked to join, but
	// the node is a voter of the cluster, so it may have voted.
	ErrWiped = errors.New("data directory is empty, but the cluster knows this node as a member")
	// ErrAlive means that the directory is empty and another process runs under
	// this node's id.
	ErrAlive = errors.New("another process runs under this node's id")
	// ErrPeersDiffer means that the nodes were started with different --peers.
	ErrPeersDiffer = errors.New("nodes were started with different --peers")
	// ErrOtherCluster means that a peer belongs to another cluster.
	ErrOtherCluster = errors.New("peer belongs to another cluster")
)

// unreached returns the error of a change that was not made because the leader
// could not be asked for it.
func unreached(leader string, why error) error {
	return outcome.NewNotExecuted(true, "the leader "+leader+" cannot be reached: "+why.Error())
}

// readFailed returns the error of a failed read. A read has no effect, so its
// outcome is "not executed".
func readFailed(err error) error {
	var o *outcome.Error
	if err == nil || errors.As(err, &o) {
		return err
	}
	return outcome.NewNotExecuted(false, err.Error())
}
