package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

func walDir(dir string) string { return filepath.Join(dir, "wal") }

// walLog is a raft-wal log. It inherits IsMonotonic from raft-wal.
type walLog struct {
	*wal.WAL
	list *segmentList
}

// fileOf implements diskLog.
func (w walLog) fileOf(index uint64) string { return w.list.fileOf(index) }

// deleteStep implements diskLog. raft-wal deletes entries by changing its list,
// so a deletion of any size is fast.
func (w walLog) deleteStep() uint64 { return ^uint64(0) }

// Close waits for the rotation that the last append may have started, and
// closes the log.
func (w walLog) Close() error {
	// DeleteRange waits for the rotation, and this range deletes nothing.
	err := w.WAL.DeleteRange(^uint64(0), ^uint64(0))
	return errors.Join(err, w.WAL.Close())
}

// openWAL opens the log. The caller has called repair.
func openWAL(list *segmentList, segmentBytes int, log hclog.Logger) (walLog, error) {
	w, err := wal.Open(list.dir,
		wal.WithMetaStore(list),
		wal.WithSegmentFiler(segment.NewFiler(list.dir, segmentFS{list.fs})),
		wal.WithSegmentSize(segmentBytes),
		wal.WithLogger(log.Named("wal")))
	if err != nil {
		return walLog{}, fmt.Errorf("open raft-wal log: %w", err)
	}
	return walLog{WAL: w, list: list}, nil
}

// repair completes the operations on the last segment that a crash has
// interrupted and that raft-wal itself would not complete. It must be called
// only after every check has passed.
func (t tailScan) repair(list *segmentList, segmentBytes int) error {
	if t.path == "" {
		return nil // a new log
	}
	if t.dirty > t.end {
		if err := t.wipe(); err != nil {
			return fmt.Errorf("wipe torn append from %s: %w", t.path, err)
		}
	}
	if t.indexStart > 0 {
		if err := list.CommitState(t.rotate(list.current(), segmentBytes)); err != nil {
			return fmt.Errorf("finish rotation: %w", err)
		}
	}
	return nil
}

// wipe zeroes the remains of a torn append. Otherwise, raft-wal would append
// over them, and if the append were shorter than the remains, the next scan
// would take the rest of them for damage. raft-wal also keeps the index position
// of a torn seal, and then refuses every append (raft-wal v0.4.2
// segment/writer.go, recoverTail).
func (t tailScan) wipe() error {
	f, err := os.OpenFile(t.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, t.dirty-t.end), t.end)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// rotate returns a list in which a new segment follows the sealed last one. An
// append that fills a segment seals it, and a goroutine changes the list
// afterwards. After a crash in between, raft-wal v0.4.2 opens the sealed
// segment as its tail and fails every append with ErrSealed, permanently.
func (t tailScan) rotate(state types.PersistentState, segmentBytes int) types.PersistentState {
	segs := append([]types.SegmentInfo(nil), state.Segments...)
	tail := &segs[len(segs)-1]
	tail.MaxIndex = t.last
	tail.IndexStart = t.indexStart
	tail.SealTime = time.Now()
	segs = append(segs, types.SegmentInfo{
		ID:         state.NextSegmentID,
		BaseIndex:  t.last + 1,
		MinIndex:   t.last + 1,
		SizeLimit:  uint32(segmentBytes),
		Codec:      wal.CodecBinaryV1,
		CreateTime: time.Now(),
	})
	return types.PersistentState{NextSegmentID: state.NextSegmentID + 1, Segments: segs}
}
