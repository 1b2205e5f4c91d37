package cluster_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// badSnapshots makes the snapshots of a node fail.
type badSnapshots struct {
	mode  atomic.Pointer[string]
	tries atomic.Int64
}

// These are the modes of badSnapshots.
const (
	snapshotsGood  = ""
	snapshotsFlip  = "a byte changes before it is written" // as if the writer had a defect
	snapshotsFile  = "the file changes before it is read back"
	snapshotsFull  = "the disk is full"
	snapshotsPanic = "reading panics"
)

func (b *badSnapshots) set(mode string) { b.mode.Store(&mode) }

func (b *badSnapshots) is() string {
	if p := b.mode.Load(); p != nil {
		return *p
	}
	return snapshotsGood
}

// open implements cluster.Config.OpenStores.
func (b *badSnapshots) open(cfg storage.Config) (cluster.Stores, error) {
	s, err := storage.Open(cfg)
	if err != nil {
		return nil, err
	}
	return badStores{s, b, cfg.Dir}, nil
}

type badStores struct {
	*storage.Stores
	bad *badSnapshots
	dir string
}

func (s badStores) Snapshots() raft.SnapshotStore {
	return badSnapshotStore{s.Stores.Snapshots(), s.bad, s.dir}
}

type badSnapshotStore struct {
	raft.SnapshotStore
	bad *badSnapshots
	dir string
}

// written is the interface of the snapshot sink of cluster/storage.
type written interface {
	raft.SnapshotSink
	Written() (io.ReadCloser, error)
}

func (s badSnapshotStore) Create(v raft.SnapshotVersion, index, term uint64, members raft.Configuration, at uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(v, index, term, members, at, trans)
	if err != nil {
		return nil, err
	}
	s.bad.tries.Add(1)
	return &badSink{written: sink.(written), bad: s.bad, dir: s.dir}, nil
}

type badSink struct {
	written
	bad  *badSnapshots
	dir  string
	once sync.Once
}

func (s *badSink) Write(b []byte) (int, error) {
	switch s.bad.is() {
	case snapshotsFlip:
		b = append([]byte(nil), b...)
		s.once.Do(func() { b[len(b)/2] ^= 1 })
	case snapshotsFull:
		return 0, syscall.ENOSPC
	}
	return s.written.Write(b)
}

func (s *badSink) Written() (io.ReadCloser, error) {
	r, err := s.written.Written()
	if err != nil {
		return nil, err
	}
	switch s.bad.is() {
	case snapshotsFile:
		f, err := os.OpenFile(filepath.Join(s.dir, "snapshots", s.ID()+".tmp", "state.bin"), os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		// This snapshot decodes, but it is not the snapshot that was written.
		// Only the store's checksum shows the difference.
		_, err = f.WriteAt([]byte{0xff}, 40)
		if err := f.Close(); err != nil {
			return nil, err
		}
		return r, err
	case snapshotsPanic:
		return panicReader{r}, nil
	}
	return r, nil
}

type panicReader struct{ io.ReadCloser }

func (panicReader) Read([]byte) (int, error) { panic("out of range") }

// snapshotFiles returns the complete and the unfinished snapshots of a node.
func (m *member) snapshotFiles(t *testing.T) (complete, unfinished []string) {
	t.Helper()
	ds, err := os.ReadDir(filepath.Join(m.dir, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		if strings.HasSuffix(d.Name(), ".tmp") {
			unfinished = append(unfinished, d.Name())
		} else {
			complete = append(complete, d.Name())
		}
	}
	return complete, unfinished
}

// TestSnapshot_Unreadable: a snapshot cannot be read back or cannot be written.
// The log and the previous snapshot stay. The node reports what happened,
// continues to serve clients, and can start again from the data that it has.
func TestSnapshot_Unreadable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ mode, says string }{
		{snapshotsFlip, "checksum"},
		{snapshotsFile, "checksum"},
		{snapshotsFull, "no space left on device"},
		{snapshotsPanic, "out of range"},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			bad := &badSnapshots{}
			c := prepare(t, 1)
			c.change = func(cfg *cluster.Config) { cfg.OpenStores = bad.open }
			c.open("n1")
			c.ready("n1")
			n, m := c.node("n1"), c.members["n1"]
			c.fill("n1", 200)
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
			good, _ := m.snapshotFiles(t)
			if st := n.Status(); st.SnapshotError != "" || len(good) != 1 {
				t.Fatalf("snapshots %v, status %q, want one snapshot and no error", good, st.SnapshotError)
			}
			c.client("n1").want(t, ok, "SET", "behind", "the good one")
			c.fill("n1", 200)
			bad.set(tc.mode)
			before := n.Status()
			for range 3 {
				err := n.Snapshot()
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Fatalf("snapshot: %v, want %q", err, tc.says)
				}
				c.client("n1").must(t, "INCR", "n")
			}
			after := n.Status()
			if complete, unfinished := m.snapshotFiles(t); fmt.Sprint(complete) != fmt.Sprint(good) || len(unfinished) > 0 {
				t.Errorf("snapshots %v and %v, want %v", complete, unfinished, good)
			}
			if after.LogBytes <= before.LogBytes {
				t.Errorf("the log has %d bytes after the failed snapshots and had %d before them, want more", after.LogBytes, before.LogBytes)
			}
			if !strings.Contains(after.SnapshotError, tc.says) || !strings.Contains(after.SnapshotError, "the log is kept") {
				t.Errorf("status says %q, want %q", after.SnapshotError, tc.says)
			}
			if c.log.Count("snapshot failed, the log and the snapshots before it are kept") < 3 {
				t.Error("the log of the node does not say that snapshots failed")
			}
			if got := metric(t, n, "holdfast_snapshot_failures_total"); got != 3 {
				t.Errorf("holdfast_snapshot_failures_total is %v, want 3", got)
			}
			c.crash("n1")
			c.open("n1")
			c.ready("n1")
			c.client("n1").want(t, "$12\r\nthe good one\r\n", "GET", "behind")
			c.client("n1").want(t, "$1\r\n3\r\n", "GET", "n")
			bad.set(snapshotsGood)
			if err := c.node("n1").Snapshot(); err != nil {
				t.Fatal(err)
			}
			if st := c.node("n1").Status(); st.SnapshotError != "" {
				t.Errorf("after a good snapshot, the status says %q, want no error", st.SnapshotError)
			}
		})
	}
}

// TestSnapshot_Retry: a snapshot that is due because of the size of the log
// fails. The node tries again at growing intervals until an attempt succeeds.
func TestSnapshot_Retry(t *testing.T) {
	t.Parallel()
	bad := &badSnapshots{}
	bad.set(snapshotsFlip)
	c := prepare(t, 1, func(o *cluster.Options) { o.SnapshotBytes, o.TrailingBytes = 1024, 1024 })
	c.change = func(cfg *cluster.Config) { cfg.OpenStores = bad.open }
	c.open("n1")
	c.ready("n1")
	c.fill("n1", 200)
	// The attempts are made at 0, 1, 3, 7, 15 s and so on of the node's clock.
	eventually(t, "a first attempt", func() bool { return bad.tries.Load() >= 1 })
	for want := int64(2); want < 6; want++ {
		c.members["n1"].clock.advance(5 * time.Minute)
		eventually(t, "another attempt", func() bool { return bad.tries.Load() >= want })
	}
	before := bad.tries.Load()
	during(4 * time.Second) // the next attempt is due 16 s after the fifth
	if n := bad.tries.Load() - before; n > 1 {
		t.Errorf("%d attempts in 4 s, want at most 1", n)
	}
	bad.set(snapshotsGood)
	c.members["n1"].clock.advance(5 * time.Minute)
	eventually(t, "a snapshot", func() bool {
		complete, _ := c.members["n1"].snapshotFiles(t)
		return len(complete) > 0 && c.node("n1").Status().SnapshotError == ""
	})
}

// TestSnapshot_UnreadableFromLeader: a snapshot from the leader cannot be written
// or read back, and replaces nothing. The follower keeps its log, its snapshot and
// its state, reports the error, and accepts the next snapshot.
func TestSnapshot_UnreadableFromLeader(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{snapshotsFlip, snapshotsFile, snapshotsFull} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			bad := &badSnapshots{}
			c := prepare(t, 3, func(o *cluster.Options) { o.TrailingBytes = 1024 })
			c.change = func(cfg *cluster.Config) {
				if cfg.NodeID == "n3" {
					cfg.OpenStores = bad.open
				}
			}
			c.open(c.ids()...)
			c.ready(c.ids()...)
			c.transfer("n1")
			c.client("n1").want(t, ok, "SET", "k", "old")
			c.caughtUp(c.ids()...)
			if err := c.node("n3").Snapshot(); err != nil {
				t.Fatal(err)
			}
			c.stop("n3")
			m := c.members["n3"]
			good, _ := m.snapshotFiles(t)
			c.fill("n1", 300)
			c.client("n1").want(t, ok, "SET", "k", "new")
			for _, id := range []string{"n1", "n2"} {
				if err := c.node(id).Snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			bad.set(mode)
			tries := bad.tries.Load()
			c.open("n3")
			eventually(t, "the leader to send its snapshot", func() bool { return bad.tries.Load() > tries+1 })
			says := "cannot be read back"
			if mode == snapshotsFull {
				says = "no space left on device"
			}
			eventually(t, "n3 to say so", func() bool { return strings.Contains(c.node("n3").Status().SnapshotError, says) })
			if complete, _ := m.snapshotFiles(t); fmt.Sprint(complete) != fmt.Sprint(good) {
				t.Errorf("snapshots %v, want %v", complete, good)
			}
			if st := c.node("n3").Status(); st.LastIndex == 0 || st.Applied == 0 {
				t.Errorf("n3 has lost its log or its state: %+v", st)
			}
			c.stop("n3") // it must start again from the data that it had
			c.open("n3")
			bad.set(snapshotsGood)
			c.ready("n3")
			c.caughtUp(c.ids()...)
			c.client("n3").want(t, "$3\r\nnew\r\n", "GET", "k")
			if st := c.node("n3").Status(); st.SnapshotError != "" {
				t.Errorf("after a good snapshot, n3 still says %q, want no error", st.SnapshotError)
			}
		})
	}
}
