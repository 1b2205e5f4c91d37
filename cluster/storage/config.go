package storage

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

// The kinds of log store, for Config.LogKind.
const (
	LogKindWAL    = "wal"    // raft-wal: one write and one fsync per append
	LogKindBoltDB = "boltdb" // raft-boltdb: two fdatasync per append
)

// Config configures the data directory of a node and the reaction to a failing
// disk.
type Config struct {
	// Dir is the data directory. Open creates it with mode 0700 if it is
	// missing. Required.
	Dir string

	// NodeID is the id of the node that owns the directory. A directory that
	// was created for one node cannot be opened for another node. Required.
	NodeID string

	// LogKind is LogKindWAL (the default) or LogKindBoltDB. A directory that
	// was created with one kind cannot be opened with the other.
	LogKind string

	// SegmentBytes is the size of a raft-wal segment, which is allocated when
	// the segment is created. A change affects only new segments. Default 64
	// MiB, at least 4 KiB, at most 1 GiB. Open reads one segment at a time into
	// memory.
	SegmentBytes int

	// StallAfter is how long an append or a write to stable.db may take before
	// the watchdog calls Fatal. A deletion may take ten times as long.
	// Default 3 s. It should be several election timeouts, so that a shorter
	// pause of the disk causes only a change of leader.
	StallAfter time.Duration

	// SnapshotRetain is the number of snapshots that are kept. Default 2.
	SnapshotRetain int

	// CacheEntries is the number of the latest log entries that remain in
	// memory for replication. Most entries have at most 256 KiB, but an entry
	// with one large group can have more. Default 128.
	CacheEntries int

	// Logger is used by this package and the stores below it. Default: none.
	Logger hclog.Logger

	// Fatal is called once, when the disk has failed, has stalled, or has
	// returned data that was not written. It must end the process immediately,
	// so that another node becomes leader, and it must not call Stores. It runs
	// on the goroutine that detected the failure. For a stall, this is the
	// watchdog's goroutine, and the write is still blocked. Default: print the
	// error to standard error and exit with code 1.
	Fatal func(error)

	// Observe, if set, is called after every append ("append") and after every
	// write to stable.db ("stable"), with the duration and the number of payload
	// bytes. It runs on the write path and must be quick.
	Observe func(op string, d time.Duration, bytes int)

	// SegmentFS is the file system for the segments of a raft-wal log. Tests
	// that simulate a loss of power replace it. Default: that of the operating
	// system.
	SegmentFS types.VFS

	// noteEvery is the interval at which the file acked is written. Tests set
	// it.
	noteEvery time.Duration
}

// withDefaults returns c with every field set, or an error that names the
// invalid field.
func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("storage: Config.Dir is empty")
	}
	if c.NodeID == "" {
		return c, errors.New("storage: Config.NodeID is empty")
	}
	if c.LogKind == "" {
		c.LogKind = LogKindWAL
	}
	if c.LogKind != LogKindWAL && c.LogKind != LogKindBoltDB {
		return c, fmt.Errorf("storage: Config.LogKind is %q, want %q or %q", c.LogKind, LogKindWAL, LogKindBoltDB)
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = 64 << 20
	}
	if c.SegmentBytes < 4<<10 || c.SegmentBytes > 1<<30 {
		return c, fmt.Errorf("storage: Config.SegmentBytes is %d, want 4 KiB to 1 GiB", c.SegmentBytes)
	}
	if c.StallAfter <= 0 {
		c.StallAfter = 3 * time.Second
	}
	if c.SnapshotRetain <= 0 {
		c.SnapshotRetain = 2
	}
	if c.CacheEntries <= 0 {
		c.CacheEntries = 128
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) {
			fmt.Fprintln(os.Stderr, "storage:", err)
			os.Exit(1)
		}
	}
	if c.Observe == nil {
		c.Observe = func(string, time.Duration, int) {}
	}
	if c.SegmentFS == nil {
		c.SegmentFS = fs.New()
	}
	if c.noteEvery <= 0 {
		c.noteEvery = 500 * time.Millisecond
	}
	return c, nil
}
