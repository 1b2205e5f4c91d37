package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// segmentList is raft-wal's list of segments (types.MetaStore). It is stored in
// stable.db with a checksum, and not in raft-wal's own bolt file, which has no
// checksums.
//
// raft-wal commits the list before it creates the file of a new segment. So a
// missing file may be the result of a crash in between, and raft-wal creates a
// new one without an error. segmentList makes the file durable, with its full
// size, before the list names it. So if a listed segment is missing or too
// short, data was lost.
type segmentList struct {
	kv  *kv
	dir string // directory of the segments
	fs  types.VFS
	g   *guard

	mu    sync.Mutex
	state types.PersistentState // as on disk; guarded by mu
}

var _ types.MetaStore = (*segmentList)(nil)

func newSegmentList(s *kv, dir string, fs types.VFS, g *guard) *segmentList {
	return &segmentList{kv: s, dir: dir, fs: fs, g: g}
}

// load reads the list. A new log has none.
func (l *segmentList) load() (found bool, err error) {
	b, found, err := l.kv.get(keySegments)
	if err != nil || !found {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := json.Unmarshal(b, &l.state); err != nil {
		return false, l.kv.bad.file(l.kv.path, "the segment list does not decode (%v)", err)
	}
	return true, nil
}

// current returns the list as it is on disk.
func (l *segmentList) current() types.PersistentState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// fileOf returns the path of the segment that contains index.
func (l *segmentList) fileOf(index uint64) string {
	path := l.dir
	for _, s := range l.current().Segments {
		if s.BaseIndex <= index {
			path = l.path(s)
		}
	}
	return path
}

func (l *segmentList) path(s types.SegmentInfo) string {
	return filepath.Join(l.dir, segment.FileName(s))
}

// Load implements types.MetaStore.
func (l *segmentList) Load(string) (types.PersistentState, error) { return l.current(), nil }

// CommitState implements types.MetaStore. raft-wal calls it from one goroutine
// at a time. Often, this is a background goroutine of raft-wal, which only logs
// the error. So CommitState itself makes a failure final.
func (l *segmentList) CommitState(state types.PersistentState) error {
	if err := l.commit(state); err != nil {
		if errors.Is(err, ErrClosed) {
			return err
		}
		return l.g.fail(fmt.Errorf("commit segment list: %w", err))
	}
	return nil
}

func (l *segmentList) commit(state types.PersistentState) error {
	known := make(map[uint64]bool)
	for _, s := range l.current().Segments {
		known[s.ID] = true
	}
	for _, s := range state.Segments {
		if known[s.ID] {
			continue
		}
		if err := l.makeFile(s); err != nil {
			return fmt.Errorf("make segment %s: %w", segment.FileName(s), err)
		}
		failpoint.Hit(failpoint.SegmentUnlisted)
	}
	b, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode segment list: %w", err)
	}
	if err := l.kv.put(keySegments, b); err != nil {
		return err
	}
	l.mu.Lock()
	l.state = state
	l.mu.Unlock()
	return nil
}

// makeFile creates the file of a segment, zeroed and allocated, with a durable
// name. If a file with that name exists, a crash left it before the list named
// it.
func (l *segmentList) makeFile(s types.SegmentInfo) error {
	if err := os.Remove(l.path(s)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := l.fs.Create(l.dir, segment.FileName(s), uint64(s.SizeLimit))
	if err != nil {
		return err
	}
	err = os.Chmod(l.path(s), 0o600) // raft-wal creates files that every user can read
	// the first Sync of a new file also syncs the directory
	return errors.Join(err, f.Sync(), f.Close())
}

// GetStable implements types.MetaStore. It is unused, because the log is not
// used as a stable store.
func (l *segmentList) GetStable([]byte) ([]byte, error) { return nil, errors.ErrUnsupported }

// SetStable implements types.MetaStore. It is unused, like GetStable.
func (l *segmentList) SetStable([]byte, []byte) error { return errors.ErrUnsupported }

// Close implements types.MetaStore. It does nothing, because stable.db is
// closed after the log.
func (l *segmentList) Close() error { return nil }

// segmentFS is the file system that raft-wal writes to. Unlike raft-wal's own,
// its Create opens the file that segmentList has created. Its files write zeros
// ahead (aheadFile) and contain the failpoints of an append.
type segmentFS struct {
	types.VFS
}

// Create implements types.VFS.
func (f segmentFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	if uint64(info.Size()) < size {
		return nil, fmt.Errorf("segment %s has %d bytes instead of %d", name, info.Size(), size)
	}
	return f.OpenWriter(dir, name)
}

// OpenWriter implements types.VFS.
func (f segmentFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	w, err := f.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	ahead, err := newAheadFile(w, dir, name)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return pointedFile{ahead}, nil
}

// Delete implements types.VFS.
func (f segmentFS) Delete(dir, name string) error {
	failpoint.Hit(failpoint.SegmentUndeleted)
	return f.VFS.Delete(dir, name)
}

// pointedFile is a file with the failpoints of an append. An append is one
// WriteAt and one Sync.
type pointedFile struct{ types.WritableFile }

// WriteAt implements types.WritableFile.
func (f pointedFile) WriteAt(b []byte, at int64) (int, error) {
	failpoint.HitAfter(failpoint.AppendTorn, func() {
		// a failure here is no worse than the kill that follows
		_, _ = f.WritableFile.WriteAt(b[:len(b)/2], at)
	})
	return f.WritableFile.WriteAt(b, at)
}

// Sync implements types.WritableFile.
func (f pointedFile) Sync() error {
	failpoint.Hit(failpoint.AppendWritten)
	return f.WritableFile.Sync()
}
