package cluster

import "errors"

// What a client's group can end with other than its replies, each with its
// outcome: see OutcomeError. resp translates them to the wire, and only there.
var (
	// ErrNoLeader: the group was never sent anywhere because no leader was
	// known for Config.LeaderWait.
	ErrNoLeader error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true, text: "no leader"}
	// ErrClosed: the node is stopping and has not sent the group anywhere.
	ErrClosed error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true, text: "the node is stopping"}
	// ErrRefused: the leader runs another version, which does not know a command
	// of the group.
	ErrRefused error = &OutcomeError{outcome: OutcomeNotExecuted, text: "the leader runs another version of the program and does not know the command: not executed"}
	// ErrFeature: the feature version of the cluster does not include a command of
	// the group.
	ErrFeature error = &OutcomeError{outcome: OutcomeNotExecuted, text: "the feature version of the cluster does not include the command: not executed, upgrade every node first"}
	// ErrUnknown: the group was sent and its fate could not be learnt within
	// Config.ResolveWait.
	ErrUnknown error = &OutcomeError{outcome: OutcomeUnknown, text: msgUnknown}
	// ErrReplyLost: the group was executed, but a leader change lost its reply,
	// which was too large to be kept by all nodes.
	ErrReplyLost = Executed("its reply was lost in a change of leader")
)

// ErrStaleSession: a later start of this node is known to the cluster: the data
// directory was copied, or is served by two processes.
var ErrStaleSession = errors.New("the cluster knows a later start of this node: was its data directory copied or restored?")

// What keeps a node from starting or joining.
var (
	// ErrWiped: the directory is empty and has not asked to join, but the cluster
	// counts this node as a member: it may have voted.
	ErrWiped = errors.New("data directory is empty, but the cluster knows this node as a member")
	// ErrAlive: the directory is empty, and another process runs under this node's
	// id.
	ErrAlive = errors.New("another process runs under this node's id")
	// ErrPeersDiffer: the nodes were started with different --peers.
	ErrPeersDiffer = errors.New("nodes were started with different --peers")
	// ErrOtherCluster: a peer belongs to another cluster.
	ErrOtherCluster = errors.New("peer belongs to another cluster")
)
