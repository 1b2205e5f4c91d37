// Package machine runs the state machine (package fsm) on a node. It applies the
// entries that raft has committed, restores snapshots, and lets the other parts
// of the node read the state.
package machine

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/events"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Config contains the settings and functions that a Machine needs. All fields
// except History are required.
type Config struct {
	Table    *fsm.Table
	Features int           // highest feature version that this node claims to know
	Log      Log           // the log whose entries are applied
	Events   *events.Queue // receives the events of the entries
	Mono     func() time.Duration
	Metrics  Metrics
	Logger   hclog.Logger
	// History records the history of locks. It is nil if the node has no
	// history.
	History History
	// MaxMemory is the size in bytes that the data set may have, unless the
	// cluster has the setting maxmemory. 0 means no limit.
	MaxMemory int64

	// Locks is called for each entry with events of locks, or with commands
	// that got no lock. It is called in log order, with the lock of the machine
	// held. The events are valid only during the call.
	Locks func(term uint64, res *fsm.Result)
	// Applied is called for each entry that was applied, in log order. began
	// and ended are the times, on the clock Mono, at which the machine began
	// and finished applying the entry.
	Applied func(index, term uint64, res *fsm.Result, began, ended time.Duration)
	// TermStarted is called when a TermStart is applied, with the lock of the
	// machine held. lease is the lease clock.
	TermStarted func(index, term uint64, t fsm.TermStart, lease int64)
	// Rebased is called, with the lock of the machine held, when an entry has
	// replaced the data with that of a backup. lease is the lease clock, which may
	// have moved forward.
	Rebased func(lease int64)
	// Restored is called after a snapshot has replaced the state.
	Restored func()
	// Unreadable is called when the leader has sent a snapshot that cannot be
	// read.
	Unreadable func(err error)
	// Fatal is called when the machine has stopped. It must end the process.
	Fatal func(error)
}

// History is the part of history.Store that a Machine uses.
type History interface {
	// Applied is called after each entry. clock is the clock after that entry.
	// Applied must not wait.
	Applied(clock fsm.Clock, res *fsm.Result)
	// Restored is called when a snapshot up to a log index has replaced the
	// state. The argument before is the wall clock of the replaced state, in
	// microseconds.
	Restored(index uint64, clock fsm.Clock, before int64)
	// Sync is called before a snapshot up to a log index is complete. When the
	// snapshot is complete, the node may delete the log up to that index.
	Sync(index uint64, clock fsm.Clock)
}

// Log is the part of raftlog.Log that a Machine uses.
type Log interface {
	// Await waits until the log is on this node's disk up to index, and reports
	// whether it is.
	Await(index uint64) bool
	// Outdated returns an error if a snapshot must not be installed, because the
	// node already has everything that it contains.
	Outdated(meta *raft.SnapshotMeta) error
}
