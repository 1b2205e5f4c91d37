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

// walLog is a raft-wal log. IsMonotonic is raft-wal's.
type walLog struct {
	*wal.WAL
	list *segmentList
}

// fileOf implements diskLog.
func (w walLog) fileOf(index uint64) string { return w.list.fileOf(index) }

// deleteStep implements diskLog: raft-wal deletes by changing its list.
func (w walLog) deleteStep() uint64 { return ^uint64(0) }

// Close waits for the rotation that the last append may have started, and
// closes the log.
func (w walLog) Close() error {
	// A deletion waits for the rotation, and this one deletes nothing.
	err := w.WAL.DeleteRange(^uint64(0), ^uint64(0))
	return errors.Join(err, w.WAL.Close())
}

// openWAL opens the log after mend.
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

// mend finishes what a crash interrupted in the last segment, where raft-wal
// itself would not. It is called when every check has passed.
func (t tailScan) mend(list *segmentList, segmentBytes int) error {
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

// wipe zeroes the remains of a torn append. raft-wal would append over them,
// and what is left of them behind a shorter append would look like damage to
// the next scan. It also keeps the index position of a torn seal, which makes
// it refuse every append (raft-wal v0.4.2 segment/writer.go, recoverTail).
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

// rotate returns the list in which the sealed last segment is followed by a
// new one. An append that fills a segment seals it, and a goroutine changes the
// list afterwards. After a crash in between, raft-wal v0.4.2 opens the segment
// as its tail and answers every append with ErrSealed for ever.
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
