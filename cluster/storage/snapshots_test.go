package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

func readSnapshot(t testing.TB, s *storage.Stores, id string) []byte {
	t.Helper()
	_, r, err := s.Snapshots().Open(id)
	if err != nil {
		t.Fatalf("open snapshot: %v", err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read snapshot: %v", err)
	}
	return b
}

func TestSnapshots_RoundTrip(t *testing.T) {
	s, cfg := newNode(t, "")
	store(t, s, entries(1, 30, 10)...)
	data := bytes.Repeat([]byte("0123456789"), 350<<10) // larger than several buffers
	snapshot(t, s, 5, 1, []byte("old"))
	snapshot(t, s, 10, 1, []byte("older than the last"))
	id := snapshot(t, s, 20, 1, data)
	closeStores(t, s)
	s = open(t, cfg)
	metas, err := s.Snapshots().List()
	if err != nil || len(metas) != 2 || metas[0].ID != id || metas[0].Index != 20 || metas[1].Index != 10 {
		t.Fatalf("List: %+v, %v, want the snapshots at 20 and 10", metas, err)
	}
	if metas[0].Size != int64(len(data)) || len(metas[0].Configuration.Servers) != 1 {
		t.Fatalf("meta %+v, want the size of the data and one server", metas[0])
	}
	if got := readSnapshot(t, s, id); !bytes.Equal(got, data) {
		t.Fatalf("the snapshot has %d bytes that differ from the data that was written", len(got))
	}
}

func TestSnapshots_Cancel(t *testing.T) {
	s, cfg := newNode(t, "")
	_, trans := raft.NewInmemTransport("n1")
	sink, err := s.Snapshots().Create(1, 5, 1, raft.Configuration{}, 1, trans)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if err := sink.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err == nil {
		t.Fatal("Close after Cancel returned nil, want an error")
	}
	left, err := os.ReadDir(filepath.Join(cfg.Dir, "snapshots"))
	if err != nil || len(left) != 0 {
		t.Fatalf("files after Cancel: %v (error %v), want none", left, err)
	}
}

// TestSnapshots_CloseFailsTwice: raft calls Close again after the state machine
// did, and compacts the log if the second call succeeds.
func TestSnapshots_CloseFailsTwice(t *testing.T) {
	s, cfg := newNode(t, "")
	_, trans := raft.NewInmemTransport("n1")
	sink, err := s.Snapshots().Create(1, 5, 1, raft.Configuration{}, 1, trans)
	if err != nil {
		t.Fatal(err)
	}
	remove(t, filepath.Join(cfg.Dir, "snapshots", sink.ID()+".tmp"))
	for i := range 2 {
		if err := sink.Close(); err == nil {
			t.Fatalf("call %d of Close returned nil, want an error", i+1)
		}
	}
	store(t, s, entries(1, 10, 10)...)
	if err := s.Log().DeleteRange(1, 5); !errors.Is(err, storage.ErrGap) {
		t.Fatalf("compaction after a failed snapshot: %v, want ErrGap", err)
	}
}

func TestSnapshots_Leftovers(t *testing.T) {
	s, cfg := newNode(t, "")
	store(t, s, entries(1, 30, 10)...)
	old := snapshot(t, s, 10, 1, []byte("a"))
	id := snapshot(t, s, 20, 1, []byte("b"))
	_, trans := raft.NewInmemTransport("n1")
	sink, err := s.Snapshots().Create(1, 25, 1, raft.Configuration{}, 1, trans)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	cfg.Dir = image(t, cfg.Dir)
	// The deletion of the old snapshot has been interrupted.
	remove(t, filepath.Join(cfg.Dir, "snapshots", old, "state.bin"))
	open(t, cfg)
	left, err := os.ReadDir(filepath.Join(cfg.Dir, "snapshots"))
	if err != nil || len(left) != 1 || left[0].Name() != id {
		t.Fatalf("left: %v, %v, want only %s", left, err, id)
	}
	if err := sink.Cancel(); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshots_Corrupt(t *testing.T) {
	s, cfg := newNode(t, "")
	store(t, s, entries(1, 30, 10)...)
	old := snapshot(t, s, 10, 1, []byte("the old state"))
	id := snapshot(t, s, 20, 1, bytes.Repeat([]byte("the new state "), 100))
	closeStores(t, s)
	dir := filepath.Join(cfg.Dir, "snapshots")
	for _, f := range []struct{ id, name, blame string }{
		{id, "state.bin", "state.bin"},
		{id, "meta.json", "meta.json"},
		{id, "seal.json", "meta.json"},
		{old, "meta.json", "meta.json"},
	} {
		path := filepath.Join(dir, f.id, f.name)
		b := readFile(t, path)
		if f.id == old { // Open does not read this state, so it does not check the fields that describe the state
			b = b[:bytes.Index(b, []byte(`"Size"`))]
		}
		for o := 0; o < len(b); o += 1 + len(b)/150 {
			back := flip(t, path, o)
			blame := filepath.Join(dir, f.id, f.blame)
			if f.name == "meta.json" && f.id == id {
				blame = "" // meta.json has the size and checksum of the state, so Open may name either file
			}
			wantCorrupt(t, cfg, blame)
			back()
		}
	}
	for _, name := range []string{"state.bin", "meta.json", "seal.json"} {
		path := filepath.Join(dir, id, name)
		b := readFile(t, path)
		for _, n := range []int{0, len(b) / 2, len(b) - 1} {
			writeFile(t, path, b[:n])
			wantCorrupt(t, cfg, "")
		}
		remove(t, path)
		wantCorrupt(t, cfg, filepath.Join(dir, id))
		writeFile(t, path, b)
	}
	if err := os.Rename(filepath.Join(dir, id), filepath.Join(dir, "1-21-1")); err != nil {
		t.Fatal(err)
	}
	wantCorrupt(t, cfg, filepath.Join(dir, "1-21-1", "meta.json"))
	if err := os.Rename(filepath.Join(dir, "1-21-1"), filepath.Join(dir, id)); err != nil {
		t.Fatal(err)
	}
	open(t, cfg)
}

// TestSnapshots_Lost deletes the newest snapshot after the log was compacted.
func TestSnapshots_Lost(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, cfg := newNode(t, kind)
		store(t, s, entries(1, 30, 10)...)
		snapshot(t, s, 10, 1, []byte("a"))
		id := snapshot(t, s, 20, 1, []byte("b"))
		deleteRange(t, s, 1, 18)
		closeStores(t, s)
		remove(t, filepath.Join(cfg.Dir, "snapshots", id))
		wantCorrupt(t, cfg, "")
	})
}

// TestSnapshots_CorruptWhileOpen damages a snapshot while the stores are open.
func TestSnapshots_CorruptWhileOpen(t *testing.T) {
	for _, name := range []string{"state.bin", "meta.json"} {
		var f fatals
		cfg := config(t, t.TempDir(), "")
		cfg.Fatal = f.add
		s := open(t, cfg)
		setTerm(t, s, 1)
		id := snapshot(t, s, 20, 1, []byte("some state"))
		if _, _, err := s.Snapshots().Open("1-19-1"); err == nil || len(f.all()) != 0 {
			t.Fatalf("Open of a snapshot that does not exist: %v, Fatal was called with %v, want an error and no call",
				err, f.all())
		}
		flip(t, filepath.Join(cfg.Dir, "snapshots", id, name), 5)
		var c *storage.CorruptError
		if _, _, err := s.Snapshots().Open(id); !errors.As(err, &c) || len(f.all()) != 1 {
			t.Fatalf("Open with a damaged %s: %v, Fatal was called with %v, want a CorruptError and one call",
				name, err, f.all())
		}
	}
}

func TestSnapshots_Retain(t *testing.T) {
	cfg := config(t, t.TempDir(), "")
	cfg.SnapshotRetain = 1
	s := open(t, cfg)
	setTerm(t, s, 1)
	for i := range uint64(4) {
		snapshot(t, s, i+1, 1, fmt.Appendf(nil, "%d", i))
	}
	left, err := os.ReadDir(filepath.Join(cfg.Dir, "snapshots"))
	if err != nil || len(left) != 1 {
		t.Fatalf("files: %v (error %v), want one snapshot", left, err)
	}
}

// TestPrivate checks that only the owner can read the files of a data
// directory: the log, the snapshots and all others.
func TestPrivate(t *testing.T) {
	s, cfg := newNode(t, "")
	store(t, s, entries(1, 10, 10)...)
	snapshot(t, s, 5, 1, []byte("secret"))
	closeStores(t, s)
	err := filepath.WalkDir(cfg.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == cfg.Dir { // the test has made the directory itself
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, want no rights for group and others", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
