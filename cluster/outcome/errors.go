package outcome

import "errors"

// Errors of a client's group, each with its outcome. Only package resp
// translates them to replies.
var (
	// ErrNoLeader means that the node knew no leader for as long as
	// cluster.Options.LeaderWait. The node did not send the group, or did
	// not send a read again that an earlier leader had not answered.
	ErrNoLeader = NewNotExecuted(true, "no leader")
	// ErrCrowded means that the node did not send a large group, because the
	// group waited for the outcome of earlier large groups for as long as
	// cluster.Options.ResolveWait.
	ErrCrowded = NewNotExecuted(true, "other large commands of this node took too long")
	// ErrClosed means that the node is stopping, and has not sent the group, or
	// has not finished a group that only reads.
	ErrClosed = NewNotExecuted(true, "the node is stopping")
	// ErrRemoved means that the node is no longer a member of the cluster and has
	// not sent the group. Clients have to use another node.
	ErrRemoved = NewNotExecuted(true, "this node was removed from the cluster")
	// ErrRefused means that the leader runs another version of the program,
	// which does not know a command of the group.
	ErrRefused = NewNotExecuted(false, "the leader runs another version of the program and "+
		"does not know the command: not executed")
	// ErrFeature means that the feature version of the cluster does not include
	// a command of the group.
	ErrFeature = NewNotExecuted(false, "the feature version of the cluster does not include the command: "+
		"not executed, upgrade every node first")
	// ErrBehind means that, within cluster.Options.ResolveWait, the node has not
	// applied the log index that a large read must see.
	ErrBehind = NewNotExecuted(true, "this node is too far behind the leader to answer a large read")
	// ErrUnknown means that the group was sent and its outcome could not be
	// determined within cluster.Options.ResolveWait, or before the node stopped
	// or was removed.
	ErrUnknown error = &Error{outcome: Unknown, text: msgUnknown}
	// ErrReplyLost means that the group was executed, but its reply was lost in
	// a change of leader. That happens to replies that are too large for the
	// state machine to keep on all nodes.
	ErrReplyLost = NewExecuted("its reply was lost in a change of leader")
	// ErrAbandoned means that the client has closed its connection while its
	// group was executed in pieces, and that the last pieces were not executed.
	ErrAbandoned = NewUnknown(errors.New("the client has closed its connection during a pipeline with large replies"))
)
