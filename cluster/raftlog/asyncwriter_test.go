package raftlog

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// slowLog is a log whose appends block until the test lets them return.
type slowLog struct {
	*raft.InmemStore
	let chan error // result of the next append

	mu     sync.Mutex
	stored []int // number of entries of each append
}

func (s *slowLog) StoreLogs(logs []*raft.Log) error {
	if err := <-s.let; err != nil {
		return err
	}
	s.mu.Lock()
	s.stored = append(s.stored, len(logs))
	s.mu.Unlock()
	return s.InmemStore.StoreLogs(logs)
}

func (s *slowLog) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// newSlowWriter returns an asyncWriter on a slow log that contains the entries
// 1 to 10. It also returns the slow log, and a pointer to the result of leads.
func newSlowWriter(t *testing.T) (*asyncWriter, *slowLog, *bool) {
	t.Helper()
	leads := true
	disk := &slowLog{InmemStore: raft.NewInmemStore(), let: make(chan error)}
	if err := disk.InmemStore.StoreLogs(entries(raft.LogCommand, 1, 10)); err != nil {
		t.Fatal(err)
	}
	return newAsyncWriter(disk, func() bool { return leads }), disk, &leads
}

func entries(kind raft.LogType, first, last uint64) []*raft.Log {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 3, Type: kind})
	}
	return logs
}

func store(t *testing.T, b *asyncWriter, logs []*raft.Log) {
	t.Helper()
	if err := b.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
}

// mustWait starts f, and checks that f waits for the disk.
func mustWait(t *testing.T, what string, f func() error) (done chan error) {
	t.Helper()
	done = make(chan error, 1)
	go func() { done <- f() }()
	synctest.Wait()
	select {
	case err := <-done:
		t.Errorf("%s did not wait for the disk, and returned %v", what, err)
		done <- err
	default:
	}
	return done
}

func TestAsyncWriter_Read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, disk, _ := newSlowWriter(t)
		store(t, b, entries(raft.LogCommand, 11, 11))
		synctest.Wait() // entry 11 is being written
		store(t, b, entries(raft.LogCommand, 12, 12))
		store(t, b, entries(raft.LogCommand, 13, 13))
		look := func(when string) {
			t.Helper()
			first, err1 := b.FirstIndex()
			last, err2 := b.LastIndex()
			if first != 1 || last != 13 || err1 != nil || err2 != nil {
				t.Errorf("%s: log is %d..%d (%v, %v), want 1..13", when, first, last, err1, err2)
			}
			for i := uint64(1); i <= 13; i++ {
				var l raft.Log
				if err := b.GetLog(i, &l); err != nil || l.Index != i {
					t.Errorf("%s: GetLog(%d) returned %+v, %v, want that entry", when, i, l, err)
				}
			}
			if err := b.GetLog(14, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("%s: GetLog(14): %v, want ErrLogNotFound", when, err)
			}
		}
		look("nothing on disk")
		if got := b.durable(13); got != 10 {
			t.Errorf("durable up to %d, want 10", got)
		}
		if got := b.durable(9); got != 9 {
			t.Errorf("durable(9) = %d, want 9", got)
		}
		disk.let <- nil
		synctest.Wait()
		look("some on disk")
		disk.let <- nil
		synctest.Wait()
		look("all on disk")
		if got := b.durable(13); got != 13 {
			t.Errorf("durable up to %d, want 13", got)
		}
		b.close()
		if want := []int{1, 2}; !slices.Equal(disk.stored, want) {
			t.Errorf("appends of %v entries, want %v: entries that arrive during an append go into one append",
				disk.stored, want)
		}
	})
}

func TestAsyncWriter_Await(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, disk, _ := newSlowWriter(t)
		store(t, b, entries(raft.LogCommand, 11, 11))
		synctest.Wait() // entry 11 is being written
		store(t, b, entries(raft.LogCommand, 12, 12))
		if !b.await(10) {
			t.Error("await(10) = false, want true")
		}
		await := func(index uint64) func() error {
			return func() error {
				if !b.await(index) {
					return errors.New("never")
				}
				return nil
			}
		}
		first, second := mustWait(t, "await of 11", await(11)), mustWait(t, "await of 12", await(12))
		disk.let <- nil
		if err := <-first; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(second) > 0 {
			t.Error("await of 12 ended when only entry 11 was on disk")
		}
		disk.let <- nil
		if err := <-second; err != nil {
			t.Error(err)
		}
		b.close()
	})
}

// Some operations must not happen while an entry is only in memory. Each of
// them waits until all entries are on disk.
func TestAsyncWriter_Waits(t *testing.T) {
	for what, f := range map[string]func(b *asyncWriter, leads *bool) error{
		"a change of the members": func(b *asyncWriter, _ *bool) error { return b.StoreLogs(entries(raft.LogConfiguration, 12, 12)) },
		"the first entry of a term": func(b *asyncWriter, _ *bool) error {
			return b.StoreLogs(append(entries(raft.LogNoop, 12, 12), entries(raft.LogCommand, 13, 13)...))
		},
		"an append by a follower": func(b *asyncWriter, leads *bool) error {
			*leads = false
			return b.StoreLogs(entries(raft.LogCommand, 12, 12))
		},
		"the deletion of a suffix": func(b *asyncWriter, _ *bool) error { return b.DeleteRange(11, 11) },
		"a term": func(b *asyncWriter, _ *bool) error {
			return orderedStable{raft.NewInmemStore(), b}.SetUint64([]byte("k"), 4)
		},
		"a vote": func(b *asyncWriter, _ *bool) error {
			return orderedStable{raft.NewInmemStore(), b}.Set([]byte("k"), nil)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, disk, leads := newSlowWriter(t)
				store(t, b, entries(raft.LogCommand, 11, 11))
				synctest.Wait()
				done := mustWait(t, what, func() error { return f(b, leads) })
				close(disk.let)
				if err := <-done; err != nil {
					t.Error(err)
				}
				var l raft.Log
				if err := disk.GetLog(11, &l); (err == nil) == (what == "the deletion of a suffix") {
					t.Errorf("GetLog(11) from the disk: %v, want an error only if the entry was deleted", err)
				}
				b.close()
			})
		})
	}
}

// Compaction runs concurrently with appends, and does not wait for them.
func TestAsyncWriter_Compaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, disk, _ := newSlowWriter(t)
		store(t, b, entries(raft.LogCommand, 11, 11))
		if err := b.DeleteRange(1, 10); err != nil {
			t.Error(err)
		}
		if first, err := b.FirstIndex(); first != 11 || err != nil {
			t.Errorf("log begins at %d (%v), want 11", first, err)
		}
		close(disk.let)
		b.close()
	})
}

func TestAsyncWriter_DiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, disk, leads := newSlowWriter(t)
		broken := errors.New("broken")
		store(t, b, entries(raft.LogCommand, 11, 11))
		waiting := mustWait(t, "await", func() error {
			if b.await(11) {
				return errors.New("durable")
			}
			return nil
		})
		disk.let <- broken
		if err := <-waiting; err != nil {
			t.Error(err)
		}
		if got := b.durable(11); got != 10 {
			t.Errorf("durable up to %d after the failure, want 10", got)
		}
		for _, *leads = range []bool{true, false} {
			if err := b.StoreLogs(entries(raft.LogCommand, 12, 12)); !errors.Is(err, broken) {
				t.Errorf("append after a failed one, leads %v: %v, want the error of the failed one", *leads, err)
			}
		}
		if err := (orderedStable{raft.NewInmemStore(), b}).SetUint64([]byte("k"), 4); !errors.Is(err, broken) {
			t.Errorf("term after a failed append: %v, want the error of the append", err)
		}
		b.close()
	})
}

// close writes all entries that were passed to the writer.
func TestAsyncWriter_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, disk, _ := newSlowWriter(t)
		store(t, b, entries(raft.LogCommand, 11, 14))
		close(disk.let)
		b.close()
		if last, err := disk.LastIndex(); last != 14 || err != nil {
			t.Errorf("disk ends at %d (%v), want 14", last, err)
		}
	})
}
