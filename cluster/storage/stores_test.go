package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

func TestLog_RoundTrip(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, cfg := newNode(t, kind)
		want := entries(1, 40, 300)
		want[3].Extensions = []byte("foreign")
		want[4].Data = nil
		want[5].Type = raft.LogConfiguration
		want[6].AppendedAt = time.Time{}
		for _, l := range want[20:] {
			l.Term = 5
		}
		before := make([]raft.Log, len(want))
		for i, l := range want {
			before[i] = *l
		}
		store(t, s, want[:10]...)
		store(t, s, want[10:]...)
		for i, l := range want {
			if !reflect.DeepEqual(*l, before[i]) {
				t.Fatalf("StoreLogs changed the caller's entry %d", l.Index)
			}
		}
		wantLog(t, s, want)
		closeStores(t, s)
		wantLog(t, open(t, cfg), want)
	})
}

func TestLog_BigEntries(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, cfg := newNode(t, kind)
		want := entries(1, 3, 256<<10) // much larger than a segment
		store(t, s, want...)
		want = append(want, entry(4, 10))
		store(t, s, want[3])
		closeStores(t, s)
		wantLog(t, open(t, cfg), want)
	})
}

func TestLog_IsMonotonic(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, _ := newNode(t, kind)
		m, ok := s.Log().(raft.MonotonicLogStore)
		if !ok || !m.IsMonotonic() {
			t.Fatal("IsMonotonic = false, want true")
		}
	})
}

// TestLog_DeleteRestart deletes from the log in every way that raft does, over
// several segments, with a restart after each deletion.
func TestLog_DeleteRestart(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, cfg := newNode(t, kind)
		restart := func() { t.Helper(); closeStores(t, s); s = open(t, cfg) }
		want := entries(1, 300, 200)
		fill(t, s, 1, 300, 7, 200)
		if kind == storage.LogKindWAL && len(segments(t, cfg.Dir)) < 4 {
			t.Fatalf("%d segments, want at least 4", len(segments(t, cfg.Dir)))
		}
		check := func() { t.Helper(); wantLog(t, s, want); restart(); wantLog(t, s, want) }
		check()

		deleteRange(t, s, 290, 300) // conflict within the last segment
		want = want[:289]
		check()
		deleteRange(t, s, 150, 289) // conflict across segments
		want = want[:149]
		check()
		newer := entries(150, 260, 100)
		for _, l := range newer {
			l.Term = 3
		}
		store(t, s, newer...)
		want = append(want, newer...)
		check()

		snapshot(t, s, 200, 3, []byte("state"))
		deleteRange(t, s, 1, 10) // compaction within the first segment
		want = want[10:]
		check()
		deleteRange(t, s, 1, 180)
		want = want[170:]
		check()
		deleteRange(t, s, 181, 200)
		want = want[20:]
		check()

		snapshot(t, s, 400, 4, []byte("installed by the leader"))
		deleteRange(t, s, 201, 260) // the whole log
		want = nil
		check()
		want = []*raft.Log{{Index: 401, Term: 4, Data: []byte("x")}, {Index: 402, Term: 4, Data: []byte("y")}}
		store(t, s, want...)
		check()
	})
}

// TestLog_DeleteInSteps deletes more entries than one call of raft-boltdb may
// delete.
func TestLog_DeleteInSteps(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, cfg := newNode(t, kind)
		want := entries(1, 6000, 8)
		fill(t, s, 1, 6000, 500, 8)
		snapshot(t, s, 2500, 1, nil)
		deleteRange(t, s, 1, 2500)
		deleteRange(t, s, 3500, 6000)
		want = want[2500:3499]
		wantLog(t, s, want)
		closeStores(t, s)
		s = open(t, cfg)
		wantLog(t, s, want)
		more := entries(3500, 6000, 8)
		store(t, s, more...)
		snapshot(t, s, 7000, 1, nil)
		deleteRange(t, s, 1, 7000)
		wantLog(t, s, nil)
		closeStores(t, s)
		wantLog(t, open(t, cfg), nil)
	})
}

// TestLog_Model compares the log with a slice, after random appends, deletions
// and restarts.
func TestLog_Model(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				s, cfg := newNode(t, kind)
				var want []*raft.Log
				next, term := uint64(1), uint64(1)
				for range 60 {
					switch op := rnd.IntN(10); {
					case op < 5 || len(want) == 0:
						var batch []*raft.Log
						for range 1 + rnd.IntN(20) {
							l := entry(next, rnd.IntN(700))
							l.Term = term
							batch = append(batch, l)
							next++
						}
						store(t, s, batch...)
						want = append(want, batch...)
					case op < 7:
						i := rnd.IntN(len(want))
						hi := want[i].Index
						snapshot(t, s, hi, want[i].Term, []byte("s"))
						deleteRange(t, s, want[0].Index, hi)
						want = want[i+1:]
					case op < 8:
						i := rnd.IntN(len(want))
						if i == 0 {
							continue // deleting the whole log happens only after a snapshot
						}
						deleteRange(t, s, want[i].Index, next-1)
						next = want[i].Index
						want = want[:i]
						term = min(term+1, 9)
					default:
						if rnd.IntN(2) == 0 { // kill -9
							cfg.Dir = image(t, cfg.Dir)
						}
						closeStores(t, s)
						s = open(t, cfg)
					}
					wantLog(t, s, want)
				}
			})
		}
	})
}

// TestLog_ReadWhileCompacting reads entries while they are deleted, as raft may
// do when it replicates to a slow follower. Every read returns the right entry
// or reports that the entry no longer exists.
func TestLog_ReadWhileCompacting(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		cfg := config(t, t.TempDir(), kind)
		cfg.CacheEntries = 1
		s := open(t, cfg)
		setTerm(t, s, 9)
		const last = 600
		done := make(chan struct{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for i := uint64(1); ; i++ {
					select {
					case <-done:
						return
					default:
					}
					first, _ := s.Log().FirstIndex()
					var l raft.Log
					err := s.Log().GetLog(first+i%3, &l)
					if err != nil && err != raft.ErrLogNotFound {
						t.Errorf("GetLog: %v, want success or ErrLogNotFound", err)
						return
					}
					if err == nil {
						if err := sameLog(&l, entry(l.Index, 300)); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		for i := uint64(1); i <= last; i += 10 {
			store(t, s, entries(i, i+9, 300)...)
			if i%50 == 1 && i > 50 {
				snapshot(t, s, i-40, 1, nil)
				deleteRange(t, s, 1, i-40)
			}
		}
		close(done)
		wg.Wait()
		want := entries(last-88, last, 300)
		wantLog(t, s, want)
		closeStores(t, s)
		wantLog(t, open(t, cfg), want)
	})
}

func TestLog_RefusesGaps(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		for name, tc := range map[string]struct {
			ls   []*raft.Log
			want error
		}{
			"after the last":      {entries(12, 13, 10), storage.ErrGap},
			"over the last":       {entries(10, 11, 10), storage.ErrGap},
			"in the batch":        {[]*raft.Log{entry(11, 1), entry(13, 1)}, storage.ErrGap},
			"term of the past":    {[]*raft.Log{{Index: 11, Term: 0}}, storage.ErrTermOrder},
			"term within a batch": {[]*raft.Log{{Index: 11, Term: 3}, {Index: 12, Term: 2}}, storage.ErrTermOrder},
		} {
			t.Run(name, func(t *testing.T) {
				var f fatals
				cfg := config(t, t.TempDir(), kind)
				cfg.Fatal = f.add
				s := open(t, cfg)
				setTerm(t, s, 9)
				store(t, s, entries(1, 10, 10)...)
				if err := s.Log().StoreLogs(tc.ls); err == nil {
					t.Fatal("StoreLogs accepted the entries, want an error")
				}
				if got := f.all(); len(got) != 1 || !errors.Is(got[0], tc.want) {
					t.Fatalf("Fatal was called with %v, want %v", got, tc.want)
				}
				if err := s.Log().StoreLog(entry(11, 1)); err == nil {
					t.Fatal("StoreLog after the failure succeeded, want an error")
				}
				wantLog(t, s, entries(1, 10, 10))
			})
		}
	})
}

// TestLog_RefusesGapBehindSnapshot reproduces hashicorp/raft issue 697: raft
// still remembers its last entry after the log has been deleted. The log
// refuses the append that follows this entry.
func TestLog_RefusesGapBehindSnapshot(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		var f fatals
		cfg := config(t, t.TempDir(), kind)
		cfg.Fatal = f.add
		s := open(t, cfg)
		setTerm(t, s, 9)
		store(t, s, entries(1, 10, 10)...)
		snapshot(t, s, 5, 1, nil)
		if err := s.Log().DeleteRange(1, 6); !errors.Is(err, storage.ErrGap) {
			t.Fatalf("compaction beyond the snapshot: %v, want ErrGap", err)
		}
		if err := s.Log().DeleteRange(3, 4); !errors.Is(err, storage.ErrGap) {
			t.Fatalf("deletion from the middle: %v, want ErrGap", err)
		}
		deleteRange(t, s, 1, 10)
		if err := s.Log().StoreLog(entry(11, 1)); err == nil {
			t.Fatal("StoreLog accepted a gap after the snapshot, want an error")
		}
		if got := f.all(); len(got) != 1 || !errors.Is(got[0], storage.ErrGap) {
			t.Fatalf("Fatal was called with %v, want ErrGap", got)
		}
		closeStores(t, s)
		cfg.Fatal = func(err error) { t.Errorf("Fatal was called with %v, want no call", err) }
		s = open(t, cfg)
		store(t, s, entry(6, 1))
	})
}

// TestOpen_RemovesLogBehindInstalledSnapshot covers a crash between the end of
// an InstallSnapshot and the deletion of the log that the snapshot replaces.
func TestOpen_RemovesLogBehindInstalledSnapshot(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		for name, tc := range map[string]struct {
			index, term uint64
			want        []*raft.Log
		}{
			"log ends before":     {30, 2, nil},
			"log is of a branch":  {10, 2, nil},
			"log continues":       {10, 1, entries(1, 20, 10)},
			"log ends with it":    {20, 1, entries(1, 20, 10)},
			"log ends one before": {21, 1, nil},
		} {
			t.Run(name, func(t *testing.T) {
				s, cfg := newNode(t, kind)
				store(t, s, entries(1, 20, 10)...)
				snapshot(t, s, tc.index, tc.term, []byte("x"))
				cfg.Dir = image(t, cfg.Dir)
				for range 2 {
					s = open(t, cfg)
					wantLog(t, s, tc.want)
					closeStores(t, s)
				}
				s = open(t, cfg)
				next := tc.index + 1
				if tc.want != nil {
					next = 21
				}
				store(t, s, &raft.Log{Index: next, Term: 2})
			})
		}
	})
}

func TestEmpty(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		cfg := config(t, t.TempDir(), kind)
		s := open(t, cfg)
		want := func(want bool) {
			t.Helper()
			got, err := s.Empty()
			if err != nil || got != want {
				t.Fatalf("Empty: %v, %v, want %v", got, err, want)
			}
		}
		want(true)
		setTerm(t, s, 0) // as raft.NewRaft does
		want(true)
		closeStores(t, s)
		s = open(t, cfg)
		want(true)
		setTerm(t, s, 1) // as raft.BootstrapCluster does, before a crash
		want(true)
		closeStores(t, s)
		s = open(t, cfg)
		want(true)
		setTerm(t, s, 2)
		want(false)
		closeStores(t, s)
		s = open(t, cfg)
		want(false)
	})
}

func TestEmpty_Voted(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s := open(t, config(t, t.TempDir(), kind))
		if err := s.Stable().SetUint64([]byte("CurrentTerm"), 1); err != nil {
			t.Fatal(err)
		}
		if err := s.Stable().SetUint64([]byte("LastVoteTerm"), 1); err != nil {
			t.Fatal(err)
		}
		if err := s.Stable().Set([]byte("LastVoteCand"), []byte("n2")); err != nil {
			t.Fatal(err)
		}
		if empty, err := s.Empty(); empty || err != nil {
			t.Fatalf("Empty after a vote: %v, %v, want false", empty, err)
		}
	})
}

func TestEmpty_HasEntry(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s := open(t, config(t, t.TempDir(), kind))
		setTerm(t, s, 1)
		store(t, s, &raft.Log{Index: 1, Term: 1})
		if empty, err := s.Empty(); empty || err != nil {
			t.Fatalf("Empty after an entry: %v, %v, want false", empty, err)
		}
	})
}

func TestIdentity(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		cfg := config(t, t.TempDir(), kind)
		s := open(t, cfg)
		first := s.Identity()
		if first.NodeID != "n1" || len(first.Instance) != 32 || first.Boot != 1 || first.ClusterID != "" || first.Format != 1 {
			t.Fatalf("identity of a new directory: %+v, want n1, boot 1, format 1, a 128-bit instance and no cluster", first)
		}
		for range 2 {
			if err := s.SetClusterID("c1", true); err != nil {
				t.Fatalf("SetClusterID: %v", err)
			}
		}
		if err := s.SetClusterID("c2", false); !errors.Is(err, storage.ErrWrongCluster) {
			t.Fatalf("SetClusterID of another: %v, want ErrWrongCluster", err)
		}
		if err := s.SetJoined(7, 3); err != nil {
			t.Fatalf("SetJoined: %v", err)
		}
		closeStores(t, s)
		s = open(t, cfg)
		want := first
		want.ClusterID, want.Joins, want.JoinIndex, want.JoinTerm, want.Boot = "c1", true, 7, 3, 2
		if got := s.Identity(); got != want {
			t.Fatalf("identity after restart: %+v, want %+v", got, want)
		}
		closeStores(t, s)

		other := cfg
		other.NodeID = "n2"
		_, err := storage.Open(other)
		if !errors.Is(err, storage.ErrWrongNode) ||
			!strings.Contains(err.Error(), "belongs to node n1, but this process was started as n2") {
			t.Fatalf("Open as n2: %v, want ErrWrongNode with both ids", err)
		}
		other = cfg
		other.LogKind = kinds[0]
		if kind == kinds[0] {
			other.LogKind = kinds[1]
		}
		_, err = storage.Open(other)
		if !errors.Is(err, storage.ErrWrongLogKind) || !strings.Contains(err.Error(), "was made with log store "+kind) {
			t.Fatalf("Open with the other kind: %v, want ErrWrongLogKind", err)
		}
		if got := open(t, cfg).Identity().Boot; got != 3 {
			t.Fatalf("boot %d after refused opens, want 3", got)
		}
		if got := open(t, config(t, t.TempDir(), kind)).Identity().Instance; got == first.Instance {
			t.Fatal("two directories have the same instance")
		}
	})
}

func TestOpen_Locked(t *testing.T) {
	cfg := config(t, t.TempDir(), "")
	s := open(t, cfg)
	_, err := storage.Open(cfg)
	if !errors.Is(err, storage.ErrLocked) || !strings.Contains(err.Error(), cfg.Dir) {
		t.Fatalf("second Open: %v, want ErrLocked with the directory", err)
	}
	closeStores(t, s)
	open(t, cfg)
}

func TestConfig_Validate(t *testing.T) {
	for name, cfg := range map[string]storage.Config{
		"no dir":   {NodeID: "n"},
		"no node":  {Dir: t.TempDir()},
		"kind":     {Dir: t.TempDir(), NodeID: "n", LogKind: "paper"},
		"segments": {Dir: t.TempDir(), NodeID: "n", SegmentBytes: 100},
	} {
		if _, err := storage.Open(cfg); err == nil {
			t.Errorf("%s: Open accepted the config, want an error", name)
		}
	}
}

func TestClose_RefusesWrites(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s, _ := newNode(t, kind)
		closeStores(t, s)
		closeStores(t, s)
		for name, err := range map[string]error{
			"StoreLog":     s.Log().StoreLog(entry(1, 1)),
			"DeleteRange":  s.Log().DeleteRange(1, 1),
			"Set":          s.Stable().Set([]byte("k"), nil),
			"SetClusterID": s.SetClusterID("c", false),
			"SetJoined":    s.SetJoined(1, 1),
		} {
			if err == nil {
				t.Errorf("%s after Close succeeded, want an error", name)
			}
		}
	})
}

func TestObserve(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		got := make(map[string]int)
		cfg := config(t, t.TempDir(), kind)
		cfg.Observe = func(op string, d time.Duration, n int) {
			if d > 0 {
				got[op] += n
			}
		}
		s := open(t, cfg)
		setTerm(t, s, 1)
		store(t, s, entries(1, 4, 25)...)
		if got["append"] != 100 || got["stable"] == 0 {
			t.Fatalf("observed %v, want 100 bytes of append and some bytes of stable", got)
		}
	})
}
