// Package raftlog stores the durable state of a node: its log, its term and
// vote, and its snapshots. A Log is between raft and the stores of a data
// directory (package cluster/storage). It adds the guarantees that Holdfast
// needs and hashicorp/raft 1.7.3 does not give.
//
// # Entries
//
// A leader's entries are written to its disk while raft already sends them to
// the followers. An entry counts as committed only when the leader's disk has
// it too: see Durable and Await.
//
// # Term and vote
//
// A node votes at most once in a term. A node that has joined gives no vote
// before its log contains the change that admitted it. A node that has promised
// its leader not to vote delays its votes until the promise is over (see
// Log.Promise). No term and no vote is stored before all earlier entries are on
// disk.
//
// # Snapshots
//
// A snapshot is read back before it counts as complete, because raft deletes
// the entries that a complete snapshot replaces. A snapshot that is older than
// the log is not installed (see Outdated). A node that received a snapshot
// knows the entry at which the snapshot ends. If a snapshot takes the place of
// entries that no other node has, the process ends, because raft then remembers
// a wrong end of its log until it starts again.
package raftlog

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Config contains the stores and functions that a Log needs. All fields are
// required.
type Config struct {
	// Entries, Stable and Snapshots are the stores of the data directory. A
	// sink of Snapshots must have the method Written() (io.ReadCloser, error),
	// which returns a reader of everything that was written to the sink.
	Entries   raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore

	// Table is the command table with which snapshots are read.
	Table *fsm.Table
	// Leads reports whether this node leads. It must be exact on raft's main
	// loop.
	Leads func() bool
	// Joined returns the term of the leader that admitted this node. joins is
	// false for a node that was a member when the cluster was formed.
	Joined func() (term uint64, joins bool)
	// Settling reports whether the log ends before the change that admitted
	// this node. Such a node gives no vote.
	Settling func() bool

	// Mono is the monotonic clock by which this node keeps its promises. Done
	// is closed when the node stops.
	Mono func() time.Duration
	Done <-chan struct{}

	// Full returns an error while there is no room for the entries that a leader
	// sends. A follower then refuses them, and its log remains as it is. It also
	// refuses the leader's snapshots.
	Full func() error

	// Refused is called with the reason why a snapshot that the leader sent was
	// not accepted.
	Refused func(error)
	// Fatal is called when only a restart of the process repairs the state of
	// raft. It must end the process.
	Fatal func(error)
}

// Log is the durable state of a node, as raft and the state machine see it. All
// of its methods are safe for concurrent use.
type Log struct {
	writer    *asyncWriter
	ended     *endedLog
	raw       raft.StableStore // without the guards
	stable    raft.StableStore
	snapshots checkedSnapshots
	promises  *promises
	changes   atomic.Uint64 // see Changes
}

// Open returns a Log over the stores of cfg, and starts the goroutine that
// writes a leader's entries. Close ends it.
func Open(cfg Config) *Log {
	ended := &endedLog{LogStore: cfg.Entries, snaps: cfg.Snapshots, fatal: cfg.Fatal, leads: cfg.Leads}
	writer := newAsyncWriter(ended, cfg.Leads)
	writer.full = cfg.Full
	promises := openPromises(cfg.Stable, cfg.Mono, cfg.Done)
	stable := heldVotes{singleVote{orderedStable{cfg.Stable, writer}}, promises}
	return &Log{
		promises:  promises,
		writer:    writer,
		ended:     ended,
		raw:       cfg.Stable,
		stable:    voteGuard{StableStore: stable, joined: cfg.Joined, settling: cfg.Settling},
		snapshots: checkedSnapshots{metaSnapshots{cfg.Snapshots}, cfg.Table, cfg.Full, cfg.Refused},
	}
}

// Entries returns the log.
func (l *Log) Entries() raft.LogStore { return countedChanges{l.writer, &l.changes} }

// Changes returns how many changes of the members this process has stored in
// the log. It counts a change before raft uses the new configuration. So while
// the number stays the same, raft uses at most two configurations: the one
// after the last counted change, and the one before it.
func (l *Log) Changes() uint64 { return l.changes.Load() }

// Promise promises that this node votes for no candidate, itself included,
// during the time d from now. The promise survives a restart of the process. If
// Promise returns an error, the caller must not rely on a promise.
func (l *Log) Promise(d time.Duration) error { return l.promises.give(d) }

// Stable returns the store of the term and the vote.
func (l *Log) Stable() raft.StableStore { return l.stable }

// Founding returns the stable store for a node that is about to form its
// cluster. The node may have stored a term, but must have no other data.
func (l *Log) Founding() raft.StableStore { return unformed{l.stable} }

// Snapshots returns the store of the snapshots.
func (l *Log) Snapshots() raft.SnapshotStore { return l.snapshots }

// Durable returns the commit index on which other parts of the node may rely.
// index is the commit index of raft. The result is index, but at most the index
// before the first entry that is not on this node's disk.
func (l *Log) Durable(index uint64) uint64 { return l.writer.durable(index) }

// Await waits until the log is on this node's disk up to index. It returns
// false if these entries never get to the disk, because a write has failed.
func (l *Log) Await(index uint64) bool { return l.writer.await(index) }

// LastVoteTerm returns the term of the last vote that this node has given. It
// fails if the node has not voted yet.
func (l *Log) LastVoteTerm() (uint64, error) { return l.raw.GetUint64([]byte(keyLastVoteTerm)) }

// Close writes the remaining entries to disk and ends the goroutine. It must be
// called after raft has shut down, and does not close the stores of Config.
func (l *Log) Close() { l.writer.close() }
