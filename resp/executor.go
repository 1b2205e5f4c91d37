package resp

import (
	"time"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Executor runs groups for one connection, one at a time.
type Executor interface {
	// Do runs a group and returns the replies of its operations, one after the
	// other. The replies are valid until the next Do. local allows stale reads
	// from this node. errorText in errors.go translates the errors that Do may
	// return.
	//
	// If early is not nil, Do may call it once, on another goroutine, with the
	// replies that Do is about to return. early must not block.
	Do(g *fsm.Group, local bool, early func(replies []byte)) ([]byte, error)
	// Block runs a group whose only operation is a blocking command of the
	// connection with the number origin. If fsm.Waiting recognizes the reply,
	// the command waits. The connection must then receive from Waited, or call
	// Unblock or Abandon, before it continues. If own is true, the reply comes
	// only after this node has applied the entry that served the command.
	// Cluster.OwnEventsDelivered then also waits for the events of that entry.
	Block(g *fsm.Group, origin uint64, own bool) ([]byte, error)
	// WaitsFor sets the lock that the commands of the next calls of Block ask
	// for, and the owner that is to get it. The key is "" if these commands do
	// not ask for a lock. If that owner gets the lock by another command,
	// Waited delivers a reply without bytes.
	WaitsFor(db int, key, owner string)
	// Sent returns the numbers of the first and the last group that the last
	// call of Do, Block or Unblock sent through the log. They differ if the
	// group was run in pieces. Both are 0 if the call sent no group.
	Sent() (first, last uint64)
	// Traced reports whether the group with this number, as Sent returned it, is
	// traced. Trace records the stages of such a group: see cluster.Session.
	Traced(number uint64) bool
	Trace(number uint64, command string, begun, replied, sent time.Time)
	// OnPiece sets the function that reports the pieces of a group. If Do or Block
	// executes its group in pieces, it calls f, on the goroutine of its caller,
	// after each executed piece that may write. group is the number of the piece,
	// as in Sent. For a script that was executed as a read, group is the number of
	// an earlier piece, or 0. op is the position of the piece's first operation in
	// the whole group.
	OnPiece(f func(group uint64, op int))
	// Waited returns the channel that delivers the reply when the current wait is
	// served. It delivers nil if the command must be run again. It delivers a reply
	// without bytes if the connection must first call Unblock and then run the
	// command again.
	Waited() <-chan []byte
	// Unblock ends the current wait. If the command has already been served,
	// Unblock returns its reply. Otherwise, the reply is nil.
	Unblock() ([]byte, error)
	// Abandon ends the current wait of a client that has disconnected.
	Abandon()
	// WatchClient sets the function that watches whether the client disconnects.
	// Do may call it, so that a slow read ends when its client disconnects.
	WatchClient(watch func() (left <-chan struct{}, stop func(), err error))
}

// executor wraps the Executor of a connection. Some client commands run as
// several groups: a change with a read after it, or a blocking command that is
// run again. The outcome of such a command is not the outcome of its last
// group. So executor remembers whether a group of the client command has
// changed the state, or may have changed it. After that, no later error of the
// same command says that the command was not executed.
type executor struct {
	Executor
	changed bool
}

// begin must be called before the first group of a client command.
func (e *executor) begin() { e.changed = false }

// Do implements Executor.
func (e *executor) Do(g *fsm.Group, local bool, early func(replies []byte)) ([]byte, error) {
	out, err := e.Executor.Do(g, local, early)
	return out, e.outcome(g, err)
}

// Block implements Executor. A command that waits counts as a change, because
// it may be served at any time.
func (e *executor) Block(g *fsm.Group, origin uint64, own bool) ([]byte, error) {
	out, err := e.Executor.Block(g, origin, own)
	return out, e.outcome(g, err)
}

// Unblock implements Executor.
func (e *executor) Unblock() ([]byte, error) {
	reply, err := e.Executor.Unblock()
	if err != nil {
		err = outcome.NewUnknown(err)
	}
	return reply, err
}

// outcome records the outcome of a group and returns the error to report.
func (e *executor) outcome(g *fsm.Group, err error) error {
	before, known := e.changed, outcome.Of(err)
	if g.Write && known != outcome.NotExecuted {
		e.changed = true
	}
	if err != nil && (before || g.Write && known == outcome.Unknown) {
		return outcome.NewUnknown(err)
	}
	return err
}
