package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// This file simulates power cuts with the real cluster/storage on real files. A
// power cut reverts the writes to log segments that were not synced, as if the
// disk had them only in its cache.

// powerFS is the system's file system. It records the writes that are not
// synced yet.
type powerFS struct {
	*fs.FS
	mu   sync.Mutex
	undo []undone
}

// undone is a write that a power cut reverts.
type undone struct {
	path string
	at   int64
	old  []byte
}

// Create implements types.VFS.
func (p *powerFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := p.FS.Create(dir, name, size)
	return p.wrap(f, err, dir, name)
}

// OpenWriter implements types.VFS.
func (p *powerFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := p.FS.OpenWriter(dir, name)
	return p.wrap(f, err, dir, name)
}

func (p *powerFS) wrap(f types.WritableFile, err error, dir, name string) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	return &powerFile{f, p, filepath.Join(dir, name)}, nil
}

// powerFile is a file of a powerFS.
type powerFile struct {
	types.WritableFile
	p    *powerFS
	path string
}

// WriteAt implements io.WriterAt.
func (f *powerFile) WriteAt(b []byte, at int64) (int, error) {
	old := make([]byte, len(b))
	n, err := f.ReadAt(old, at)
	if n < len(old) && err == nil {
		return 0, fmt.Errorf("sim: short read of %s", f.path)
	}
	f.p.mu.Lock()
	f.p.undo = append(f.p.undo, undone{f.path, at, old[:n]})
	f.p.mu.Unlock()
	return f.WritableFile.WriteAt(b, at)
}

// Sync implements types.WritableFile.
func (f *powerFile) Sync() error {
	if err := f.WritableFile.Sync(); err != nil {
		return err
	}
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	var rest []undone
	for _, u := range f.p.undo {
		if u.path != f.path {
			rest = append(rest, u)
		}
	}
	f.p.undo = rest
	return nil
}

// cut reverts the writes that were not synced, the last one first, and returns
// their number.
func (p *powerFS) cut() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.undo) - 1; i >= 0; i-- {
		u := p.undo[i]
		f, err := os.OpenFile(u.path, os.O_RDWR, 0)
		if os.IsNotExist(err) {
			continue // the segment has been deleted since
		}
		if err == nil {
			_, err = f.WriteAt(u.old, u.at)
			f.Close()
		}
		if err != nil {
			return 0, err
		}
	}
	n := len(p.undo)
	p.undo = nil
	return n, nil
}

// powerCuts repeatedly appends to a log and cuts the power. At each start after
// a cut, every acknowledged entry must be readable.
func powerCuts(plan *Schedule) *Result {
	r := &Result{Schedule: plan, Injected: make(map[string]int), Seen: make(map[string]int),
		Checks: make(map[string]int)}
	if err := r.powerCuts(); err != nil {
		r.Violations = append(r.Violations, "durability: "+err.Error())
	}
	return r
}

// powerCutScenario is the name of the scenario in a Schedule.
const powerCutScenario = "power cuts of real files"

const (
	powerRounds  = 25
	perRound     = 12
	entryAverage = 400
)

func (r *Result) powerCuts() (err error) {
	dir, err := os.MkdirTemp("", "holdfast-sim-power")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rng := stream(r.Schedule.Seed, "power")
	var acked []raft.Log
	for range powerRounds {
		power := &powerFS{FS: fs.New()}
		s, err := storage.Open(storage.Config{
			Dir: filepath.Join(dir, "n1"), NodeID: "n1", SegmentBytes: 16 << 10, SegmentFS: power,
			Fatal: func(error) {}, // ignored, because the methods return the error too
		})
		if err != nil {
			return fmt.Errorf("start after %d acknowledged entries: %w", len(acked), err)
		}
		for i := range acked {
			var l raft.Log
			if err := s.Log().GetLog(acked[i].Index, &l); err != nil {
				return fmt.Errorf("entry %d was acknowledged and cannot be read after a power cut: %w",
					acked[i].Index, err)
			}
			if l.Term != acked[i].Term || !bytes.Equal(l.Data, acked[i].Data) {
				return fmt.Errorf("entry %d is not the one that was acknowledged", acked[i].Index)
			}
			r.Checks["durability"]++
		}
		if err := s.Stable().SetUint64([]byte(keyCurrentTerm), 1); err != nil {
			return fmt.Errorf("write term: %w", err)
		}
		for range 1 + rng.IntN(perRound) {
			l := raft.Log{Index: uint64(len(acked)) + 1, Term: 1, Type: raft.LogCommand,
				Data: make([]byte, 1+rng.IntN(2*entryAverage))}
			for i := range l.Data {
				l.Data[i] = byte(rng.Uint32())
			}
			if err := s.Log().StoreLog(&l); err != nil {
				return fmt.Errorf("append: %w", err)
			}
			acked = append(acked, l)
		}
		r.Injected["power cut of real files"]++
		r.Ops = len(acked)
		// The power fails here. Close is called first, because it releases the
		// files. Its own writes must not survive, so the cut comes after it.
		if err := s.Close(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		if _, err := power.cut(); err != nil {
			return fmt.Errorf("cut the power: %w", err)
		}
		r.Seen["power cut of real files"]++
	}
	return nil
}
