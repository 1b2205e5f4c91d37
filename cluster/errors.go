package cluster

import "errors"

// What a client's group can end with other than its replies. resp translates
// them to the wire, and only there.
var (
	// ErrNoLeader: the group was never sent anywhere because no leader was
	// known for Config.LeaderWait. It was not executed.
	ErrNoLeader = errors.New("no leader")
	// ErrUnknown: the group was sent and its fate could not be learnt within
	// Config.ResolveWait. It may have been executed.
	ErrUnknown = errors.New("outcome unknown")
	// ErrReplyLost: the group was executed, but a leader change lost its reply,
	// which was too large to be kept by all nodes.
	ErrReplyLost = errors.New("executed, but the reply was lost")
	// ErrRefused: the leader runs another version, which does not know a command
	// of the group. It was not executed.
	ErrRefused = errors.New("the leader runs another version of the program and does not know the command: not executed")
	// ErrFeature: the feature version of the cluster does not include a command of
	// the group. It was not executed.
	ErrFeature = errors.New("the feature version of the cluster does not include the command: not executed, upgrade every node first")
	// ErrClosed: the node is stopping; the group was not executed.
	ErrClosed = errors.New("node is stopping")
	// ErrStaleSession: a later start of this node is known to the cluster: the
	// data directory was copied, or is served by two processes.
	ErrStaleSession = errors.New("the cluster knows a later start of this node: was its data directory copied or restored?")
)

// What keeps a node from starting or joining.
var (
	// ErrWiped: the directory is empty and has not asked to join, but the cluster
	// counts this node as a member: it may have voted.
	ErrWiped = errors.New("data directory is empty, but the cluster knows this node as a member")
	// ErrPeersDiffer: the nodes were started with different --peers.
	ErrPeersDiffer = errors.New("nodes were started with different --peers")
	// ErrOtherCluster: a peer belongs to another cluster.
	ErrOtherCluster = errors.New("peer belongs to another cluster")
)
