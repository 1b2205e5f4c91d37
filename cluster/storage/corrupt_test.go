package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// frame is a frame of a raft-wal segment.
type frame struct {
	typ      byte
	off, end int
}

// frames parses a whole segment.
func frames(b []byte) []frame {
	var fs []frame
	for off := 32; off+8 <= len(b) && b[off] != 0; {
		end := off + 8
		if b[off] != 3 {
			end += (int(binary.LittleEndian.Uint32(b[off+4:])) + 7) &^ 7
		}
		fs = append(fs, frame{b[off], off, end})
		off = end
	}
	return fs
}

// damaged returns the config of a node whose data directory the test may
// damage. The directory is a copy, as a crash would leave it. The argument last
// is the index at which the log ends. The acked file was last written when the
// log ended at ackedTo.
func damaged(t *testing.T, kind string, ackedTo, last uint64) storage.Config {
	t.Helper()
	s, cfg := newNode(t, kind)
	if ackedTo > 0 {
		fill(t, s, 1, ackedTo, 4, 200)
	}
	if err := storage.FlushAcked(s); err != nil {
		t.Fatal(err)
	}
	fill(t, s, ackedTo+1, last, 4, 200)
	cfg.Dir = image(t, cfg.Dir)
	closeStores(t, s)
	return cfg
}

// TestWAL_Flip flips a byte in every region of every segment. The acked file
// does not say how far the log was acknowledged. Open must report every flip
// before the last append, and no flip may lose anything before that append.
func TestWAL_Flip(t *testing.T) {
	cfg := damaged(t, storage.LogKindWAL, 0, 160)
	segs := segments(t, cfg.Dir)
	if len(segs) < 3 {
		t.Fatalf("%d segments, want at least 3", len(segs))
	}
	for i, path := range segs {
		b := readFile(t, path)
		fs := frames(b)
		prevCommit := 0
		for _, f := range fs[:len(fs)-1] {
			if f.typ == 3 {
				prevCommit = f.off
			}
		}
		var offs []int
		for o := range 32 { // header
			offs = append(offs, o)
		}
		for _, f := range fs { // each frame: its header, its start, middle and end
			for o := f.off; o < f.off+8; o++ {
				offs = append(offs, o)
			}
			if f.end > f.off+8 {
				offs = append(offs, f.off+8, f.off+9, (f.off+f.end)/2, f.end-1)
			}
		}
		for _, o := range offs {
			back := flip(t, path, o)
			if i < len(segs)-1 || o < prevCommit {
				wantCorrupt(t, cfg, path)
			} else {
				// A damaged last append cannot be distinguished from a torn
				// one. Nothing before it may be lost.
				img := cfg
				img.Dir = image(t, cfg.Dir)
				s, err := storage.Open(img)
				var c *storage.CorruptError
				switch {
				case errors.As(err, &c):
				case err != nil:
					t.Fatalf("flip at %d: Open returned %v, want success or a CorruptError", o, err)
				default:
					last, _ := s.Log().LastIndex()
					want := uint64(156)
					if last == 160 {
						want = 160
					}
					wantLog(t, s, entries(1, want, 200))
					closeStores(t, s)
				}
			}
			back()
		}
	}
	wantLog(t, open(t, cfg), entries(1, 160, 200))
}

// TestWAL_FlipInLastAppend checks that a flipped byte in the last append is
// detected if the acked file records the end of the log.
func TestWAL_FlipInLastAppend(t *testing.T) {
	cfg := damaged(t, storage.LogKindWAL, 40, 40)
	path := segments(t, cfg.Dir)[0]
	fs := frames(readFile(t, path))
	commits := 0
	for i := len(fs) - 1; commits < 2; i-- {
		if fs[i].typ == 3 {
			commits++
		}
		for _, o := range []int{fs[i].off, fs[i].off + 5, fs[i].end - 1} {
			back := flip(t, path, o)
			wantCorrupt(t, cfg, path)
			back()
		}
	}
	wantLog(t, open(t, cfg), entries(1, 40, 200))
}

func TestWAL_Lost(t *testing.T) {
	zero := func(from, to int) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { patch(t, path, int64(from), make([]byte, to-from)) }
	}
	for name, damage := range map[string]func(t *testing.T, path string){
		"zero page":      zero(4096, 8192),
		"zero first":     zero(0, 4096),
		"zero file":      zero(0, 16<<10),
		"zero from page": zero(8192, 16<<10),
		"deleted":        func(t *testing.T, path string) { remove(t, path) },
		"cut to nothing": func(t *testing.T, path string) { truncate(t, path, 0) },
		"cut in half":    func(t *testing.T, path string) { truncate(t, path, 8192) },
		"cut by a byte":  func(t *testing.T, path string) { truncate(t, path, 16<<10-1) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := damaged(t, storage.LogKindWAL, 170, 170)
			for _, path := range segments(t, cfg.Dir) {
				img := cfg
				img.Dir = image(t, cfg.Dir)
				file := filepath.Join(img.Dir, "wal", filepath.Base(path))
				damage(t, file)
				if name == "cut by a byte" && len(readFile(t, path)) > 16<<10 {
					file = "" // the file was longer than 16 KiB, so the cut removes content too
				}
				wantCorrupt(t, img, file)
			}
		})
	}
}

// TestWAL_LostTailUnnoted zeroes the beginning of the last segment, and then
// deletes the segment, while the acked file records nothing. Open must detect
// both: later appends follow the zeros, and the segment list names the deleted
// file.
func TestWAL_LostTailUnnoted(t *testing.T) {
	cfg := damaged(t, storage.LogKindWAL, 0, 170)
	segs := segments(t, cfg.Dir)
	tail := segs[len(segs)-1]
	patch(t, tail, 32, make([]byte, 512))
	wantCorrupt(t, cfg, tail)
	remove(t, tail)
	wantCorrupt(t, cfg, tail)
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, n int64) {
	t.Helper()
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

// TestWAL_SwappedSegments replaces a newer segment file with an older one.
func TestWAL_SwappedSegments(t *testing.T) {
	cfg := damaged(t, storage.LogKindWAL, 0, 170)
	segs := segments(t, cfg.Dir)
	writeFile(t, segs[1], readFile(t, segs[0]))
	wantCorrupt(t, cfg, segs[1])
}

// TestLog_ForeignDirectory puts the log of one node into the directory of
// another.
func TestLog_ForeignDirectory(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		a := damaged(t, kind, 30, 30)
		b := damaged(t, kind, 30, 30)
		if kind == storage.LogKindBoltDB {
			writeFile(t, filepath.Join(a.Dir, "log.db"), readFile(t, filepath.Join(b.Dir, "log.db")))
		} else {
			copyDir(t, filepath.Join(b.Dir, "wal"), filepath.Join(a.Dir, "wal"))
		}
		wantCorrupt(t, a, "")
	})
}

// TestLog_RolledBack replaces only the log with an older copy of itself.
func TestLog_RolledBack(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, cfg := newNode(t, kind)
		fill(t, s, 1, 20, 4, 100)
		old := image(t, cfg.Dir)
		fill(t, s, 21, 40, 4, 100)
		closeStores(t, s)
		for _, name := range []string{"wal", "log.db"} {
			if _, err := os.Stat(filepath.Join(old, name)); err == nil {
				remove(t, filepath.Join(cfg.Dir, name))
				if name == "wal" {
					copyDir(t, filepath.Join(old, name), filepath.Join(cfg.Dir, name))
				} else {
					writeFile(t, filepath.Join(cfg.Dir, name), readFile(t, filepath.Join(old, name)))
				}
			}
		}
		wantCorrupt(t, cfg, "")
	})
}

// TestBolt_Flip changes one byte at a time, at many offsets of both bolt files.
// Either Open fails with an error that names the file, or the byte has no effect and
// nothing is lost.
func TestBolt_Flip(t *testing.T) {
	cfg := damaged(t, storage.LogKindBoltDB, 60, 60)
	for _, name := range []string{"log.db", "stable.db"} {
		path := filepath.Join(cfg.Dir, name)
		b := readFile(t, path)
		var offs []int
		for page := 0; page < len(b); page += 4096 {
			if bytes.Count(b[page:page+4096], []byte{0}) == 4096 {
				continue
			}
			for o := page; o < page+200; o++ { // headers and elements
				if o < page+80 || o%5 == 0 {
					offs = append(offs, o)
				}
			}
			for range 10 {
				offs = append(offs, page+rand.IntN(4096))
			}
		}
		rand.Shuffle(len(offs), func(i, j int) { offs[i], offs[j] = offs[j], offs[i] })
		offs = offs[:min(len(offs), 200)]
		refused := 0
		for _, o := range offs {
			back := flip(t, path, o)
			s, err := storage.Open(cfg)
			var c *storage.CorruptError
			switch {
			case errors.As(err, &c):
				refused++
				if c.File != path {
					t.Fatalf("flip at %d of %s: %v, want a CorruptError that names this file", o, name, err)
				}
				back()
			case err != nil:
				t.Fatalf("flip at %d of %s: Open returned %v, want success or a CorruptError", o, name, err)
			default:
				wantLog(t, s, entries(1, 60, 200))
				if term, err := s.Stable().GetUint64([]byte("CurrentTerm")); err != nil || term != 9 {
					t.Fatalf("flip at %d of %s: term %d, error %v, want term 9", o, name, term, err)
				}
				closeStores(t, s)
				writeFile(t, path, b)
			}
		}
		t.Logf("%s: %d of %d flips refused, the others in free space", name, refused, len(offs))
		if refused < 10 {
			t.Errorf("%s: Open refused only %d of %d flips, want at least 10", name, refused, len(offs))
		}
	}
}

// TestBolt_MetaFlip damages each meta page in the fields that have an effect.
func TestBolt_MetaFlip(t *testing.T) {
	cfg := damaged(t, storage.LogKindBoltDB, 10, 10)
	for _, name := range []string{"log.db", "stable.db"} {
		path := filepath.Join(cfg.Dir, name)
		for _, page := range []int{0, 4096} {
			for o := page; o < page+80; o++ {
				if o := o - page; o >= 10 && o < 16 {
					continue // count and overflow have no meaning in a meta page
				}
				back := flip(t, path, o)
				wantCorrupt(t, cfg, path)
				back()
			}
		}
	}
	wantLog(t, open(t, cfg), entries(1, 10, 200))
}

func TestBolt_Lost(t *testing.T) {
	for _, name := range []string{"log.db", "stable.db"} {
		for what, damage := range map[string]func(t *testing.T, path string, b []byte){
			"deleted":       func(t *testing.T, path string, _ []byte) { remove(t, path) },
			"empty":         func(t *testing.T, path string, _ []byte) { truncate(t, path, 0) },
			"cut":           func(t *testing.T, path string, b []byte) { truncate(t, path, 4096*3) },
			"zero pages":    func(t *testing.T, path string, b []byte) { writeFile(t, path, make([]byte, len(b))) },
			"zero tree":     func(t *testing.T, path string, b []byte) { patch(t, path, 8192, make([]byte, len(b)-8192)) },
			"zero new meta": func(t *testing.T, path string, b []byte) { patch(t, path, newerMeta(b), make([]byte, 4096)) },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				cfg := damaged(t, storage.LogKindBoltDB, 60, 60)
				path := filepath.Join(cfg.Dir, name)
				damage(t, path, readFile(t, path))
				wantCorrupt(t, cfg, path)
			})
		}
	}
}

// newerMeta returns the offset of the meta page of the last transaction.
func newerMeta(b []byte) int64 {
	if binary.LittleEndian.Uint64(b[16+48:]) > binary.LittleEndian.Uint64(b[4096+16+48:]) {
		return 0
	}
	return 4096
}

// TestStable_RolledBack replaces only stable.db with an older copy of itself.
func TestStable_RolledBack(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, cfg := newNode(t, kind)
		path := filepath.Join(cfg.Dir, "stable.db")
		old := readFile(t, path)
		vote(t, s, 9, "n2")
		closeStores(t, s)
		writeFile(t, path, old)
		wantCorrupt(t, cfg, path)
	})
}

// TestStable_TermBehindLog checks that Open reports damage if the stored term is
// lower than the term of an entry in the log.
func TestStable_TermBehindLog(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		cfg := config(t, t.TempDir(), kind)
		s := open(t, cfg)
		setTerm(t, s, 1)
		store(t, s, &raft.Log{Index: 1, Term: 2})
		closeStores(t, s)
		wantCorrupt(t, cfg, filepath.Join(cfg.Dir, "stable.db"))
	})
}

func TestSmallFiles_Flip(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		cfg := damaged(t, kind, 10, 10)
		path := filepath.Join(cfg.Dir, "node.json")
		node := readFile(t, path)
		for o := range node {
			back := flip(t, path, o)
			_, err := storage.Open(cfg)
			var c *storage.CorruptError
			// A changed format number may equal the number of a newer release.
			if !errors.Is(err, storage.ErrFormat) && (!errors.As(err, &c) || c.File != path) {
				t.Fatalf("flip at %d: Open returned %v, want ErrFormat or a CorruptError that names the file", o, err)
			}
			back()
		}
		remove(t, path)
		wantCorrupt(t, cfg, path)
		writeFile(t, path, node)

		path = filepath.Join(cfg.Dir, "acked")
		acked := readFile(t, path)
		for o := range 44 {
			back := flip(t, path, o)
			flip(t, path, 4096+o)
			wantCorrupt(t, cfg, path)
			back()
			writeFile(t, path, acked)
		}
		truncate(t, path, 4096)
		wantCorrupt(t, cfg, path)
		remove(t, path)
		wantCorrupt(t, cfg, path)
		writeFile(t, path, acked)
		wantLog(t, open(t, cfg), entries(1, 10, 200))
	})
}

// TestGetLog_CorruptWhileOpen changes an entry on disk while the stores are
// open.
func TestGetLog_CorruptWhileOpen(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		var f fatals
		cfg := damaged(t, kind, 40, 40)
		cfg.Fatal = f.add
		cfg.CacheEntries = 1
		s := open(t, cfg)
		path := filepath.Join(cfg.Dir, "log.db")
		if kind == storage.LogKindWAL {
			path = segments(t, cfg.Dir)[0]
		}
		b := readFile(t, path)
		data := entry(17, 200).Data
		n := 0
		for at := 0; ; n++ { // bolt may hold older copies of the page
			i := bytes.Index(b[at:], data)
			if i < 0 {
				break
			}
			flip(t, path, at+i+100)
			at += i + 1
		}
		if n == 0 {
			t.Fatal("the file does not contain the data of entry 17")
		}
		var l raft.Log
		err := s.Log().GetLog(17, &l)
		var c *storage.CorruptError
		if !errors.As(err, &c) || c.File != path || c.Index != 17 || l.Data != nil {
			t.Fatalf("GetLog: %v, data %q, want a CorruptError for entry 17 and no data", err, l.Data)
		}
		if got := f.all(); len(got) != 1 || got[0] != err {
			t.Fatalf("Fatal was called with %v, want one call with the error of GetLog", got)
		}
		if err := s.Log().StoreLog(entry(41, 1)); err == nil {
			t.Fatal("StoreLog after the failure succeeded, want an error")
		}
		if s.Err() != err {
			t.Fatalf("Err: %v, want the error of GetLog", s.Err())
		}
	})
}
