package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// fakeDisk is a diskLog in memory whose writes wait and fail on request.
type fakeDisk struct {
	*raft.InmemStore
	appends atomic.Int64
	gate    chan struct{} // if set, a write waits until gate is closed
	err     error         // if set, a write fails with err
}

func (d *fakeDisk) fileOf(uint64) string { return "fake.log" }
func (d *fakeDisk) deleteStep() uint64   { return ^uint64(0) }
func (d *fakeDisk) Close() error         { return nil }

func (d *fakeDisk) wait() error {
	if d.gate != nil {
		<-d.gate
	}
	return d.err
}

func (d *fakeDisk) StoreLogs(ls []*raft.Log) error {
	d.appends.Add(1)
	if err := d.wait(); err != nil {
		return err
	}
	return d.InmemStore.StoreLogs(ls)
}

func (d *fakeDisk) DeleteRange(lo, hi uint64) error {
	if err := d.wait(); err != nil {
		return err
	}
	return d.InmemStore.DeleteRange(lo, hi)
}

// fakeLog returns a checkedLog over a fakeDisk. fatal receives the errors that
// are passed to Config.Fatal.
func fakeLog(t *testing.T, d *fakeDisk, stallAfter time.Duration) (c *checkedLog, fatal chan error) {
	t.Helper()
	d.InmemStore = raft.NewInmemStore()
	fatal = make(chan error, 10)
	g := &guard{fatal: func(err error) { fatal <- err }, log: hclog.NewNullLogger()}
	g.opened.Store(true)
	dog := newWatchdog(stallAfter, func(err error) { g.fail(err) })
	t.Cleanup(dog.stop)
	dir := t.TempDir()
	if err := createAcked(dir, mark{}); err != nil {
		t.Fatal(err)
	}
	bad := corrupter{dir: dir, nodeID: "n1"}
	a, err := openAcked(dir, mark{}, bad, g, g.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.close() })
	return &checkedLog{
		disk: d, bad: bad, g: g, dog: dog, limit: stallAfter, acked: a,
		snapshot: func() (uint64, uint64) { return 1000, 1 },
		observe:  func(string, time.Duration, int) {},
	}, fatal
}

func TestWatchdog_StalledAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{gate: make(chan struct{})}
		c, fatal := fakeLog(t, d, 3*time.Second)
		began := time.Now()
		var stored error
		var wg sync.WaitGroup
		wg.Go(func() { stored = c.StoreLog(&raft.Log{Index: 1, Term: 1}) })

		err := <-fatal // the write is still blocked when Fatal is called
		var stall *StallError
		if !errors.As(err, &stall) || stall.Op != "append" {
			t.Fatalf("Fatal was called with %v, want a StallError of an append", err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 3500*time.Millisecond {
			t.Fatalf("noticed after %v, want 3 s", took)
		}
		close(d.gate)
		wg.Wait()
		if !errors.Is(stored, err) {
			t.Fatalf("the write that was blocked returned %v, want %v", stored, err)
		}
		if err := c.StoreLog(&raft.Log{Index: 1, Term: 1}); !errors.Is(err, stored) {
			t.Fatalf("the next write returned %v, want the same error", err)
		}
		if got := d.appends.Load(); got != 1 {
			t.Fatalf("%d writes reached the disk, want 1", got)
		}
		time.Sleep(time.Minute)
		if len(fatal) != 0 {
			t.Fatal("Fatal was called again")
		}
	})
}

func TestWatchdog_Bounds(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(c *checkedLog) error
		takes time.Duration
		stall bool
	}{
		"append in time":   {func(c *checkedLog) error { return c.StoreLog(&raft.Log{Index: 1, Term: 1}) }, 2900 * time.Millisecond, false},
		"deletion in time": {func(c *checkedLog) error { return c.DeleteRange(1, 5) }, 29 * time.Second, false},
		"slow deletion":    {func(c *checkedLog) error { return c.DeleteRange(1, 5) }, 31 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &fakeDisk{}
				c, fatal := fakeLog(t, d, 3*time.Second)
				if name != "append in time" {
					for i := range uint64(10) {
						if err := c.StoreLog(&raft.Log{Index: i + 1, Term: 1}); err != nil {
							t.Fatal(err)
						}
					}
				}
				d.gate = make(chan struct{})
				time.AfterFunc(tc.takes, func() { close(d.gate) })
				err := tc.write(c)
				if got := err != nil; got != tc.stall {
					t.Fatalf("write: %v, want stall %v", err, tc.stall)
				}
				if got := len(fatal) == 1; got != tc.stall {
					t.Fatalf("Fatal was called %d times, want one call for a stall and none otherwise", len(fatal))
				}
			})
		})
	}
}

// TestWatchdog_StoppedProcess checks that the watchdog does not report a
// stalled disk after a pause of the process itself.
func TestWatchdog_StoppedProcess(t *testing.T) {
	w := &watchdog{interval: 100 * time.Millisecond, running: make(map[*watched]struct{})}
	x := w.begin("append", time.Second)
	last := time.Now()
	if err := w.tick(last, last.Add(time.Hour)); err != nil {
		t.Fatalf("a pause of the process is reported as a stall: %v", err)
	}
	last = last.Add(time.Hour)
	for range 7 {
		if err := w.tick(last, last.Add(w.interval)); err != nil {
			t.Fatalf("a write of age %v is reported as a stall: %v", x.age, err)
		}
		last = last.Add(w.interval)
	}
	if err := w.tick(last, last.Add(w.interval)); err == nil {
		t.Fatal("a write that still hangs after the pause is not reported")
	}
}

func TestStoreLogs_ErrorIsFinal(t *testing.T) {
	broken := errors.New("fsync: input/output error")
	d := &fakeDisk{err: broken}
	c, fatal := fakeLog(t, d, time.Minute)
	if err := c.StoreLog(&raft.Log{Index: 1, Term: 1}); !errors.Is(err, broken) {
		t.Fatalf("StoreLog: %v, want the error of the disk", err)
	}
	d.err = nil // the disk works again, so a retry would succeed
	if err := c.StoreLog(&raft.Log{Index: 1, Term: 1}); !errors.Is(err, broken) {
		t.Fatalf("the retry returned %v, want the first error", err)
	}
	if err := c.DeleteRange(1, 1); !errors.Is(err, broken) {
		t.Fatalf("DeleteRange: %v, want the first error", err)
	}
	if got := d.appends.Load(); got != 1 || len(fatal) != 1 {
		t.Fatalf("%d writes reached the disk and Fatal was called %d times, want 1 and 1", got, len(fatal))
	}
}

func TestDeleteRange_ErrorIsFinal(t *testing.T) {
	d := &fakeDisk{}
	c, fatal := fakeLog(t, d, time.Minute)
	for i := range uint64(4) {
		if err := c.StoreLog(&raft.Log{Index: i + 1, Term: 1}); err != nil {
			t.Fatal(err)
		}
	}
	d.err = errors.New("no space left on device")
	if err := c.DeleteRange(3, 4); !errors.Is(err, d.err) {
		t.Fatalf("DeleteRange: %v, want the error of the disk", err)
	}
	if len(fatal) != 1 {
		t.Fatalf("Fatal was called %d times, want 1", len(fatal))
	}
}

// testConfig returns a config, and the channel on which its Fatal sends the
// error.
func testConfig(t *testing.T) (Config, chan error) {
	t.Helper()
	fatal := make(chan error, 10)
	return Config{
		Dir: filepath.Join(t.TempDir(), "data"), NodeID: "n1", SegmentBytes: 16 << 10,
		StallAfter: time.Minute, Fatal: func(err error) { fatal <- err },
	}, fatal
}

// TestStable_ErrorIsFinal closes the file that bolt uses, so that the next
// write fails. All later writes must fail too.
func TestStable_ErrorIsFinal(t *testing.T) {
	cfg, fatal := testConfig(t)
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.kv.store.Close(); err != nil {
		t.Fatal(err)
	}
	first := s.Stable().SetUint64([]byte(keyCurrentTerm), 2)
	if first == nil || len(fatal) != 1 {
		t.Fatalf("SetUint64: %v, Fatal was called %d times, want an error and 1 call", first, len(fatal))
	}
	for name, err := range map[string]error{
		"SetUint64": s.Stable().SetUint64([]byte(keyCurrentTerm), 2),
		"vote term": s.Stable().SetUint64([]byte(keyLastVoteTerm), 2),
		"vote":      s.Stable().Set([]byte(keyLastVoteCand), nil),
		"Set":       s.Stable().Set([]byte("k"), nil),
		"append":    s.Log().StoreLog(&raft.Log{Index: 1, Term: 1}),
	} {
		if err == nil {
			t.Errorf("%s after the failure succeeded, want an error", name)
		}
	}
	if len(fatal) != 1 {
		t.Fatalf("Fatal was called %d times, want 1", len(fatal))
	}
	if got := s.stab.currentTerm(); got != 0 {
		t.Fatalf("currentTerm = %d after a failed write, want 0", got)
	}
}

// TestAppend_FailsForReal closes the raft-wal log below the checked log, so
// that the next append fails.
func TestAppend_FailsForReal(t *testing.T) {
	cfg, fatal := testConfig(t)
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.log.disk.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Log().StoreLog(&raft.Log{Index: 1, Term: 1}); err == nil || len(fatal) != 1 {
		t.Fatalf("StoreLog: %v, Fatal was called %d times, want an error and 1 call", err, len(fatal))
	}
}

// TestGuard_Open checks the effect of a full disk. While the stores are opened,
// open returns an error. After that, the process ends. Other failures end the
// process at once.
func TestGuard_Open(t *testing.T) {
	full := fmt.Errorf("make segment: %w", syscall.ENOSPC)
	for _, tt := range []struct {
		name   string
		err    error
		opened bool
		fatal  bool
	}{
		{"full disk while opening", full, false, false},
		{"full disk afterwards", full, true, true},
		{"stall while opening", errors.New("disk stalled"), false, true},
	} {
		fatal := false
		g := &guard{fatal: func(error) { fatal = true }, log: hclog.NewNullLogger()}
		if tt.opened {
			if err := g.open(); err != nil {
				t.Errorf("%s: open before any failure returned %v, want nil", tt.name, err)
			}
		}
		if err := g.fail(tt.err); err != tt.err || fatal != tt.fatal {
			t.Errorf("%s: fail returned %v, fatal was called: %v; want the failure, and a call unless a full disk "+
				"prevents opening", tt.name, err, fatal)
		}
		if err := g.open(); err != tt.err {
			t.Errorf("%s: open returned %v, want the failure", tt.name, err)
		}
	}
}

// TestRotation_ErrorIsFinal checks that the failure of a rotation is final,
// although raft-wal itself only logs it.
func TestRotation_ErrorIsFinal(t *testing.T) {
	cfg, fatal := testConfig(t)
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// segmentList cannot remove this directory, which is not empty, so it
	// cannot create the file of the next segment.
	next := filepath.Join(walDir(cfg.Dir), "00000000000000000002-0000000000000001.wal")
	if err := os.MkdirAll(filepath.Join(next, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	// The append starts a rotation, which fails while the append returns or
	// later.
	first := s.Log().StoreLog(&raft.Log{Index: 1, Term: 1, Data: make([]byte, 20<<10)})
	// raft's log cache copies the text of the error instead of wrapping the
	// error.
	if failure := <-fatal; first != nil && !strings.Contains(first.Error(), failure.Error()) {
		t.Fatalf("append: %v, want nil or the failure of the rotation: %v", first, failure)
	}
	if err := s.Log().StoreLog(&raft.Log{Index: 2, Term: 1}); err == nil {
		t.Fatal("append after a failed rotation succeeded, want an error")
	}
	if len(fatal) != 0 {
		t.Fatal("Fatal was called again")
	}
}

// TestOpen_CrashWhileNew checks that a directory can be opened if a crash in the
// first Open left node.json and some of the other files, which are incomplete.
func TestOpen_CrashWhileNew(t *testing.T) {
	for _, kind := range []string{LogKindWAL, LogKindBoltDB} {
		for n := range 6 {
			cfg, _ := testConfig(t)
			cfg.LogKind = kind
			if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			cfg, err := cfg.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			node, err := newNodeFile(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := node.save(cfg.Dir); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"stable.db.tmp", "stable.db", "log.db", "acked", "wal"}[:n] {
				if err := os.WriteFile(filepath.Join(cfg.Dir, name), []byte("half"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for boot := range uint64(2) {
				s, err := Open(cfg)
				if err != nil {
					t.Fatalf("%s, crash after %d files: Open returned %v, want success", kind, n, err)
				}
				id := s.Identity()
				if id.Boot != boot+1 || id.Instance != node.Instance {
					t.Fatalf("%s, crash after %d files: identity %+v, want the next boot of the same instance", kind, n, id)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestAcked_Follows checks that the goroutine of the acked file records how far
// the log has grown.
func TestAcked_Follows(t *testing.T) {
	cfg, _ := testConfig(t)
	cfg.noteEvery = time.Millisecond
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	onDisk := func() note {
		b, err := os.ReadFile(ackedPath(cfg.Dir))
		if err != nil {
			t.Fatal(err)
		}
		n0, _ := decodeNote(b, s.acked.m)
		n1, _ := decodeNote(b[ackedSlot:], s.acked.m)
		if n1.seq > n0.seq {
			return n1
		}
		return n0
	}
	if err := s.Stable().SetUint64([]byte(keyCurrentTerm), 4); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(20) {
		if err := s.Log().StoreLog(&raft.Log{Index: i + 1, Term: 4}); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for n := onDisk(); n.index != 20 || n.term != 4 || n.stable != 1; n = onDisk() {
		if time.Now().After(deadline) {
			t.Fatalf("the file contains %+v, want index 20, term 4 and stable 1", n)
		}
		time.Sleep(time.Millisecond)
	}
	// When a deletion returns, the file must claim none of the deleted entries.
	if err := s.Log().DeleteRange(11, 20); err != nil {
		t.Fatal(err)
	}
	if n := onDisk(); n.index > 10 {
		t.Fatalf("after the deletion the file contains %+v, want at most index 10", n)
	}
}

func TestSpan(t *testing.T) {
	var s span
	for i, term := range []uint64{1, 1, 3, 3, 3, 7} {
		s.push(uint64(i)+10, term, 5)
	}
	if s.first != 10 || s.last() != 15 || s.bytes != 30 || s.lastTerm() != 7 {
		t.Fatalf("after the pushes: %+v, want entries 10 to 15, 30 bytes and the last term 7", s)
	}
	for i, want := range []uint64{1, 1, 3, 3, 3, 7} {
		if got := s.term(uint64(i) + 10); got != want {
			t.Errorf("term(%d) = %d, want %d", i+10, got, want)
		}
	}
	s.dropTo(12)
	if s.first != 13 || s.term(13) != 3 || s.bytes != 15 {
		t.Fatalf("after dropTo(12): %+v, want entries from 13 with term 3 and 15 bytes", s)
	}
	s.dropFrom(15)
	if s.last() != 14 || s.lastTerm() != 3 || s.bytes != 10 {
		t.Fatalf("after dropFrom(15): %+v, want entries up to 14 with term 3 and 10 bytes", s)
	}
	s.push(15, 3, 1)
	if s.lastTerm() != 3 || len(s.terms) != 1 {
		t.Fatalf("after push(15, 3, 1): %+v, want one run of term 3", s)
	}
	s.dropTo(99)
	if !s.empty() || s.last() != 0 || s.first != 0 || s.bytes != 0 {
		t.Fatalf("after dropTo of all entries: %+v, want an empty span", s)
	}
}
