package storage

import (
	"errors"
	"fmt"
	"time"
)

// Errors of Open about a directory that is sound but not for this process.
var (
	// ErrLocked is returned when another process has the data directory open.
	ErrLocked = errors.New("data directory is in use by another process")

	// ErrWrongNode is returned when the data directory belongs to another
	// node id. A voter must not come back with the state of another.
	ErrWrongNode = errors.New("data directory belongs to another node")

	// ErrWrongLogKind is returned when the data directory was made with
	// another Config.LogKind.
	ErrWrongLogKind = errors.New("data directory was made with another log store")

	// ErrFormat is returned when a newer release wrote the data directory.
	ErrFormat = errors.New("data directory has a newer format")
)

// Errors of an open Stores.
var (
	// ErrClosed is returned by every write after Close.
	ErrClosed = errors.New("storage is closed")

	// ErrWrongCluster is returned by SetClusterID when the directory already
	// belongs to another cluster.
	ErrWrongCluster = errors.New("data directory belongs to another cluster")

	// ErrGap is returned for an append or a deletion that would leave a hole
	// in the log, or between the newest snapshot and the log.
	ErrGap = errors.New("log would have a gap")

	// ErrTermOrder is returned for an append whose term is lower than that of
	// the entry before it.
	ErrTermOrder = errors.New("log term would go back")
)

// CorruptError says that a file does not hold what was written and
// acknowledged. The copy of the data that it is part of must not be used:
// see Remedy.
type CorruptError struct {
	File   string // path of the damaged or missing file
	Index  uint64 // log index concerned, 0 if none
	Reason string // what is wrong
	Remedy string // what the operator has to do
}

func (e *CorruptError) Error() string {
	at := ""
	if e.Index > 0 {
		at = fmt.Sprintf(" at log index %d", e.Index)
	}
	return fmt.Sprintf("%s is corrupt%s: %s. %s", e.File, at, e.Reason, e.Remedy)
}

// StallError says that a write has been running for longer than it may. It is
// only ever given to Config.Fatal and to the writes after it.
type StallError struct {
	Op    string        // "append", "stable" or "delete"
	After time.Duration // how long the write had been running when it was noticed
}

func (e *StallError) Error() string {
	return fmt.Sprintf("disk stalled: %s has been running for %v", e.Op, e.After)
}

// corrupter makes the CorruptErrors of one data directory, all with the same
// remedy.
type corrupter struct {
	dir    string
	nodeID string
}

func (c corrupter) at(file string, index uint64, format string, args ...any) *CorruptError {
	return &CorruptError{
		File:   file,
		Index:  index,
		Reason: fmt.Sprintf(format, args...),
		Remedy: fmt.Sprintf("This copy must not be trusted: stop the node, move %s away, "+
			"replace the node with `holdfast member remove %s` and `holdfast member add %s PEER-ADDR` on a live node, "+
			"then start it again with an empty directory so that it rejoins as a new member "+
			"and copies the data from the leader; if every node is affected, restore a backup",
			c.dir, c.nodeID, c.nodeID),
	}
}

func (c corrupter) file(file, format string, args ...any) *CorruptError {
	return c.at(file, 0, format, args...)
}
