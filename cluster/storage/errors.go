package storage

import (
	"errors"
	"fmt"
	"time"
)

// Errors of Open for a directory that is undamaged but does not belong to this
// process.
var (
	// ErrLocked is returned when another process has the data directory open.
	ErrLocked = errors.New("data directory is in use by another process")

	// ErrWrongNode is returned when the data directory belongs to another node
	// id. A voter must not return with the state of another voter.
	ErrWrongNode = errors.New("data directory belongs to another node")

	// ErrWrongLogKind is returned when the data directory was created with
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

	// ErrGap is returned for an append or a deletion that would leave a gap in
	// the log, or between the newest snapshot and the log.
	ErrGap = errors.New("log would have a gap")

	// ErrTermOrder is returned for an append whose term is lower than that of
	// the preceding entry.
	ErrTermOrder = errors.New("log term would decrease")
)

// CorruptError reports that a file does not contain the data that was written
// and acknowledged. The data directory of the file must not be used: see
// Remedy.
type CorruptError struct {
	File   string // path of the damaged or missing file
	Index  uint64 // log index concerned, 0 if none
	Reason string // description of the damage
	Remedy string // instructions for the operator
}

func (e *CorruptError) Error() string {
	at := ""
	if e.Index > 0 {
		at = fmt.Sprintf(" at log index %d", e.Index)
	}
	return fmt.Sprintf("%s is corrupt%s: %s. %s", e.File, at, e.Reason, e.Remedy)
}

// StallError reports that a write has exceeded its time limit. It is passed to
// Config.Fatal and returned by the writes that follow.
type StallError struct {
	Op    string        // "append", "stable" or "delete"
	After time.Duration // how long the write had been running when the watchdog detected it
}

func (e *StallError) Error() string {
	return fmt.Sprintf("disk stalled: %s has been running for %v", e.Op, e.After)
}

// corrupter creates the CorruptErrors of one data directory. They all have the
// same remedy.
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
