package cluster

import "errors"

// Errors of a client's group, each with its outcome: see OutcomeError. Only
// package resp translates them to the wire.
var (
	// ErrNoLeader means that the node did not send the group because it knew no
	// leader for Config.LeaderWait.
	ErrNoLeader error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true, text: "no leader"}
	// ErrClosed means that the node is stopping and has not sent the group.
	ErrClosed error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true, text: "the node is stopping"}
	// ErrRefused means that the leader runs another version of the program,
	// which does not know a command of the group.
	ErrRefused error = &OutcomeError{outcome: OutcomeNotExecuted,
		text: "the leader runs another version of the program and does not know the command: not executed"}
	// ErrFeature means that the feature version of the cluster does not include
	// a command of the group.
	ErrFeature error = &OutcomeError{outcome: OutcomeNotExecuted,
		text: "the feature version of the cluster does not include the command: " +
			"not executed, upgrade every node first"}
	// ErrBehind means that, within Config.ResolveWait, the node has not applied
	// the log index that a large read must see.
	ErrBehind error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true,
		text: "this node is too far behind the leader to answer a large read"}
	// errClientLeft is the error of a read whose client has closed its
	// connection. It differs from errSlotLost, after which a session asks the
	// next leader.
	errClientLeft error = &OutcomeError{outcome: OutcomeNotExecuted,
		text: "the client has closed its connection, the read was ended"}
	// ErrUnknown means that the group was sent and its outcome could not be
	// determined within Config.ResolveWait.
	ErrUnknown error = &OutcomeError{outcome: OutcomeUnknown, text: msgUnknown}
	// ErrReplyLost means that the group was executed, but its reply was lost in
	// a change of leader. That happens to replies that are too large for the
	// state machine to keep on all nodes.
	ErrReplyLost = Executed("its reply was lost in a change of leader")
)

// Errors of a change of the members, besides refusals that have their own text
// and ChangeUnknown. After these errors, nothing was changed.
var (
	errNotLed error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true,
		text: "this node does not lead"}
	errChanging error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true,
		text: "another change of the members is under way"}
	errUnconfirmed error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true,
		text: "the leader could not commit an entry in time to confirm the members"}
	errUnasked error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true,
		text: "the members could not be asked in time whether they are alive"}
	errMoved error = &OutcomeError{outcome: OutcomeNotExecuted, retryable: true,
		text: "the members have changed since they were checked"}
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
