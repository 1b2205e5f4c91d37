package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

var kinds = []string{storage.LogKindWAL, storage.LogKindBoltDB}

// eachKind runs a test for both log stores.
func eachKind(t *testing.T, fn func(t *testing.T, kind string)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { fn(t, kind) })
	}
}

// fatals records the calls of Config.Fatal.
type fatals struct {
	mu   sync.Mutex
	errs []error
}

func (f *fatals) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

func (f *fatals) all() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]error(nil), f.errs...)
}

// config returns the config of a small node in dir. A call of its Fatal fails
// the test.
func config(t testing.TB, dir, kind string) storage.Config {
	t.Helper()
	return storage.NoteNever(storage.Config{
		Dir:          dir,
		NodeID:       "n1",
		LogKind:      kind,
		SegmentBytes: 16 << 10,
		StallAfter:   time.Minute,
		Fatal:        func(err error) { t.Errorf("Fatal was called with %v, want no call", err) },
	})
}

// open opens a data directory and closes it at the end of the test.
func open(t testing.TB, cfg storage.Config) *storage.Stores {
	t.Helper()
	s, err := storage.Open(cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func closeStores(t testing.TB, s *storage.Stores) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// newNode opens an empty directory and sets a term, as raft does before it
// writes an entry.
func newNode(t testing.TB, kind string) (*storage.Stores, storage.Config) {
	t.Helper()
	cfg := config(t, filepath.Join(t.TempDir(), "data"), kind)
	s := open(t, cfg)
	setTerm(t, s, 9)
	return s, cfg
}

func setTerm(t testing.TB, s *storage.Stores, term uint64) {
	t.Helper()
	if err := s.Stable().SetUint64([]byte("CurrentTerm"), term); err != nil {
		t.Fatalf("set term: %v", err)
	}
}

// entry returns a log entry of the given size, written in term 1.
func entry(index uint64, size int) *raft.Log {
	return &raft.Log{
		Index: index, Term: 1, Type: raft.LogCommand,
		Data:       bytes.Repeat(fmt.Appendf(nil, "%d.", index), size)[:size],
		AppendedAt: time.Unix(1700000000, int64(index)).UTC(),
	}
}

func entries(from, to uint64, size int) []*raft.Log {
	var ls []*raft.Log
	for i := from; i <= to; i++ {
		ls = append(ls, entry(i, size))
	}
	return ls
}

func store(t testing.TB, s *storage.Stores, ls ...*raft.Log) {
	t.Helper()
	if err := s.Log().StoreLogs(ls); err != nil {
		t.Fatalf("StoreLogs(%d..%d): %v", ls[0].Index, ls[len(ls)-1].Index, err)
	}
}

// fill appends entries from..to in batches of n.
func fill(t testing.TB, s *storage.Stores, from, to uint64, n, size int) {
	t.Helper()
	for i := from; i <= to; i += uint64(n) {
		store(t, s, entries(i, min(to, i+uint64(n)-1), size)...)
	}
}

func deleteRange(t testing.TB, s *storage.Stores, lo, hi uint64) {
	t.Helper()
	if err := s.Log().DeleteRange(lo, hi); err != nil {
		t.Fatalf("DeleteRange(%d, %d): %v", lo, hi, err)
	}
}

// snapshot makes a snapshot of the given content.
func snapshot(t testing.TB, s *storage.Stores, index, term uint64, data []byte) string {
	t.Helper()
	_, trans := raft.NewInmemTransport("n1")
	sink, err := s.Snapshots().Create(1, index, term, raft.Configuration{
		Servers: []raft.Server{{Suffrage: raft.Voter, ID: "n1", Address: "127.0.0.1:1"}},
	}, 1, trans)
	if err != nil {
		t.Fatalf("create snapshot: %v", err)
	}
	if _, err := sink.Write(data); err != nil {
		t.Fatalf("write snapshot: %v", err)
	}
	if err := sink.Close(); err != nil {
		t.Fatalf("close snapshot: %v", err)
	}
	return sink.ID()
}

// wantLog checks that the log holds exactly these entries.
func wantLog(t testing.TB, s *storage.Stores, want []*raft.Log) {
	t.Helper()
	first, err := s.Log().FirstIndex()
	if err != nil {
		t.Fatalf("FirstIndex: %v", err)
	}
	last, err := s.Log().LastIndex()
	if err != nil {
		t.Fatalf("LastIndex: %v", err)
	}
	var wantFirst, wantLast uint64
	var wantBytes int64
	if len(want) > 0 {
		wantFirst, wantLast = want[0].Index, want[len(want)-1].Index
	}
	if first != wantFirst || last != wantLast {
		t.Fatalf("log is %d..%d, want %d..%d", first, last, wantFirst, wantLast)
	}
	for _, w := range want {
		var got raft.Log
		if err := s.Log().GetLog(w.Index, &got); err != nil {
			t.Fatalf("GetLog(%d): %v", w.Index, err)
		}
		if err := sameLog(&got, w); err != nil {
			t.Fatalf("GetLog(%d): %v", w.Index, err)
		}
		wantBytes += int64(len(w.Data) + len(w.Extensions))
	}
	for _, i := range []uint64{wantFirst - 1, wantLast + 1} {
		var l raft.Log
		if err := s.Log().GetLog(i, &l); err != raft.ErrLogNotFound {
			t.Fatalf("GetLog(%d) outside of the log: %v, want ErrLogNotFound", i, err)
		}
	}
	if got := s.LogBytes(); got != wantBytes {
		t.Fatalf("LogBytes %d, want %d", got, wantBytes)
	}
}

func sameLog(got, want *raft.Log) error {
	if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type ||
		!bytes.Equal(got.Data, want.Data) || !bytes.Equal(got.Extensions, want.Extensions) ||
		!got.AppendedAt.Equal(want.AppendedAt) {
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	return nil
}

// image copies a data directory as a crash would leave it.
func image(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "image")
	copyDir(t, dir, to)
	return to
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(dst, 0o700)
		}
		src, err := os.Open(path)
		if err != nil {
			return err
		}
		defer src.Close()
		out, err := os.Create(dst)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, src)
		return errors.Join(err, out.Close())
	})
	if err != nil {
		t.Fatalf("copy %s: %v", from, err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// patch changes bytes of a file in place.
func patch(t testing.TB, path string, off int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, off)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// flip changes one byte of a file and returns a function that restores it.
func flip(t testing.TB, path string, off int) func() {
	t.Helper()
	b := readFile(t, path)[off]
	patch(t, path, int64(off), []byte{b ^ 0x10})
	return func() { patch(t, path, int64(off), []byte{b}) }
}

// segments returns the segment files in order.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// wantCorrupt checks that Open refuses the directory with a message that names
// the file and the remedy. A second Open must do the same.
func wantCorrupt(t testing.TB, cfg storage.Config, file string) {
	t.Helper()
	for range 2 {
		s, err := storage.Open(cfg)
		if err == nil {
			last, _ := s.Log().LastIndex()
			s.Close()
			t.Fatalf("Open accepted a directory with a damaged file (%s), last index %d", file, last)
		}
		var c *storage.CorruptError
		if !errors.As(err, &c) {
			t.Fatalf("Open: %v, want a CorruptError", err)
		}
		if file != "" && c.File != file {
			t.Fatalf("Open blames %s, want %s: %v", c.File, file, err)
		}
		for _, part := range []string{c.File, "holdfast member remove n1", cfg.Dir} {
			if !bytes.Contains([]byte(err.Error()), []byte(part)) {
				t.Fatalf("message %q, want a text with %q", err, part)
			}
		}
	}
}
