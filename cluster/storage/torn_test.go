package storage_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// twoImages returns copies of a data directory from before and after n entries are
// appended to its log, which already has some entries.
func twoImages(t *testing.T, kind string, n uint64, size int) (cfg storage.Config, before, after string) {
	t.Helper()
	s, cfg := newNode(t, kind)
	fill(t, s, 1, 12, 3, 60)
	if err := storage.FlushAcked(s); err != nil {
		t.Fatal(err)
	}
	before = image(t, cfg.Dir)
	store(t, s, entries(13, 12+n, size)...)
	after = image(t, cfg.Dir)
	closeStores(t, s)
	return cfg, before, after
}

// TestWAL_TornAtEveryByte cuts the last append short, at every byte at first
// and then at every third byte.
func TestWAL_TornAtEveryByte(t *testing.T) {
	cfg, before, after := twoImages(t, storage.LogKindWAL, 3, 60)
	path := segments(t, before)[0]
	old, full := readFile(t, path), readFile(t, segments(t, after)[0])
	end := len(bytes.TrimRight(full, "\x00"))
	start := len(bytes.TrimRight(old, "\x00")) &^ 7
	cfg.Dir = before
	for cut := start; cut <= end; cut++ {
		b := append([]byte(nil), old...)
		copy(b, full[:cut])
		writeFile(t, path, b)
		s, err := storage.Open(cfg)
		if err != nil {
			t.Fatalf("Open with a cut at %d of %d..%d: %v, want success", cut, start, end, err)
		}
		want := uint64(12)
		if bytes.Equal(b, full) {
			want = 15
		}
		wantLog(t, s, entries(1, want, 60))
		// The remaining bytes must not disturb the appends and starts that
		// follow.
		store(t, s, entry(want+1, 5))
		crashed := cfg
		crashed.Dir = image(t, before)
		closeStores(t, s)
		s = open(t, crashed)
		if last, _ := s.Log().LastIndex(); last != want+1 {
			t.Fatalf("cut at %d: last index %d after the next append, want %d", cut, last, want+1)
		}
		closeStores(t, s)
		// Restore the previous state, including the acked file, for the next
		// cut.
		resetDir(t, before, after, path, old)
		if cut > start+64 {
			cut += 2 // the remaining cuts are less dense
		}
	}
}

// resetDir restores the log and the acked file of dir.
func resetDir(t *testing.T, dir, after, path string, old []byte) {
	t.Helper()
	writeFile(t, path, old)
	// Opening the log has changed the acked file of dir. The one in after was
	// written before the last append, so it can replace it.
	writeFile(t, filepath.Join(dir, "acked"), readFile(t, filepath.Join(after, "acked")))
}

// TestWAL_TornSectors keeps each subset of the sectors of the last append.
func TestWAL_TornSectors(t *testing.T) {
	cfg, before, after := twoImages(t, storage.LogKindWAL, 5, 500)
	path := segments(t, before)[0]
	old, full := readFile(t, path), readFile(t, segments(t, after)[0])
	var sectors []int
	for o := 0; o < len(full); o += 512 {
		if !bytes.Equal(old[o:o+512], full[o:o+512]) {
			sectors = append(sectors, o)
		}
	}
	cfg.Dir = before
	for set := range 1 << len(sectors) {
		b := append([]byte(nil), old...)
		for i, o := range sectors {
			if set>>i&1 == 1 {
				copy(b[o:o+512], full[o:])
			}
		}
		writeFile(t, path, b)
		s, err := storage.Open(cfg)
		if err != nil {
			t.Fatalf("Open with the sectors %b: %v, want success", set, err)
		}
		want := entries(1, 12, 60)
		if set == 1<<len(sectors)-1 {
			want = append(want, entries(13, 17, 500)...)
		}
		wantLog(t, s, want)
		closeStores(t, s)
		resetDir(t, before, after, path, old)
	}
}

// TestBolt_TornSectors keeps each prefix of the sectors of the last append. The
// meta page is last, because bolt writes it last.
func TestBolt_TornSectors(t *testing.T) {
	cfg, before, after := twoImages(t, storage.LogKindBoltDB, 3, 60)
	path := filepath.Join(before, "log.db")
	old, full := readFile(t, path), readFile(t, filepath.Join(after, "log.db"))
	old = append(old, make([]byte, len(full)-len(old))...)
	var sectors []int
	for o := 8192; o < len(full); o += 512 {
		if !bytes.Equal(old[o:o+512], full[o:o+512]) {
			sectors = append(sectors, o)
		}
	}
	for o := 0; o < 8192; o += 512 {
		if !bytes.Equal(old[o:o+512], full[o:o+512]) {
			sectors = append(sectors, o)
		}
	}
	cfg.Dir = before
	acked := readFile(t, filepath.Join(before, "acked"))
	for n := range len(sectors) + 1 {
		b := append([]byte(nil), old...)
		for _, o := range sectors[:n] {
			copy(b[o:o+512], full[o:])
		}
		writeFile(t, path, b)
		writeFile(t, filepath.Join(before, "acked"), acked)
		s, err := storage.Open(cfg)
		if err != nil {
			t.Fatalf("Open with %d sectors of %d: %v, want success", n, len(sectors), err)
		}
		want := uint64(12)
		if n == len(sectors) {
			want = 15
		}
		wantLog(t, s, entries(1, want, 60))
		closeStores(t, s)
	}
}

// TestWAL_CrashBeforeRotation restores the directory to its state between the
// append that seals a segment and the change of the segment list.
func TestWAL_CrashBeforeRotation(t *testing.T) {
	s, cfg := newNode(t, storage.LogKindWAL)
	stable := readFile(t, filepath.Join(cfg.Dir, "stable.db"))
	acked := readFile(t, filepath.Join(cfg.Dir, "acked"))
	for i := uint64(1); len(segments(t, cfg.Dir)) == 1; i++ {
		store(t, s, entry(i, 900))
	}
	closeStores(t, s)
	segs := segments(t, cfg.Dir)
	var last uint64 // rotation is asynchronous, so the test counts the entries
	for _, f := range frames(readFile(t, segs[0])) {
		if f.typ == 1 {
			last++
		}
	}
	remove(t, segs[1])
	writeFile(t, filepath.Join(cfg.Dir, "stable.db"), stable)
	writeFile(t, filepath.Join(cfg.Dir, "acked"), acked)

	s = open(t, cfg)
	wantLog(t, s, entries(1, last, 900))
	fill(t, s, last+1, last+40, 1, 900)
	closeStores(t, s)
	s = open(t, cfg)
	wantLog(t, s, entries(1, last+40, 900))
}

// TestRaftWAL_SealedTail checks the behavior that rotate works around. Raft-wal
// refuses all appends after a crash between sealing a segment and changing its
// list. When this test fails, the workaround can be removed.
func TestRaftWAL_SealedTail(t *testing.T) {
	dir := t.TempDir()
	w, err := wal.Open(dir, wal.WithSegmentSize(4096))
	if err != nil {
		t.Fatal(err)
	}
	meta := readFile(t, filepath.Join(dir, "wal-meta.db"))
	if err := w.StoreLog(&raft.Log{Index: 1, Data: make([]byte, 5000)}); err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteRange(5, 5); err != nil { // waits for the rotation
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "wal-meta.db"), meta)
	w, err = wal.Open(dir, wal.WithSegmentSize(4096))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.StoreLog(&raft.Log{Index: 2}); !errors.Is(err, wal.ErrSealed) {
		t.Fatalf("append to a sealed tail: %v, want ErrSealed as from raft-wal v0.4.2", err)
	}
}
