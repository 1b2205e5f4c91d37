package fairshare

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// work occupies a slot for ms milliseconds. After every millisecond, it offers
// the slot to other workers.
func work(p *Slots, who Worker, ms int, done <-chan struct{}) error {
	l, err := p.Enter(who, time.Minute, done)
	if err != nil {
		return err
	}
	for range ms {
		time.Sleep(time.Millisecond)
		if err := l.Pause(p.mono(), done); err != nil {
			return err
		}
	}
	l.Leave()
	select { // Enter takes a free slot even if done is closed
	case <-done:
		return ErrLost
	default:
		return nil
	}
}

// TestSlots_Short checks that the work of a connection that has used little
// time ends soon, however much work of other connections came before it.
func TestSlots_Short(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 10*time.Millisecond, testutil.SinceNow())
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				for range 3 {
					if err := work(p, Worker{Node: "n", Conn: uint64(i)}, 50, nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(3 * time.Second)
		begun := time.Now()
		if err := work(p, Worker{Node: "n", Conn: 100}, 5, nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 30*time.Millisecond {
			t.Errorf("5 ms of work took %v, want at most 30ms", took)
		}
		wg.Wait()
		if p.free != 1 || len(p.waiting) != 0 {
			t.Errorf("at the end %d slots are free and %d workers wait, want 1 and 0", p.free, len(p.waiting))
		}
	})
}

// TestSlots_Users checks that users share the slots about evenly, however many
// connections one of them has.
func TestSlots_Users(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(2, 10*time.Millisecond, testutil.SinceNow())
		done := make(chan struct{})
		var wg sync.WaitGroup
		had := make([]int, 2)
		var mu sync.Mutex
		for i := range 22 {
			user := min(i/20, 1) // 20 connections of one user, 2 of the other
			wg.Go(func() {
				for work(p, Worker{fmt.Sprint(user), "n", uint64(i)}, 20, done) == nil {
					mu.Lock()
					had[user]++
					mu.Unlock()
				}
			})
		}
		time.Sleep(20 * time.Second)
		close(done)
		wg.Wait()
		if slices.Min(had)*3 < slices.Max(had)*2 {
			t.Errorf("the users were served %d times, want numbers that differ by at most a third", had)
		}
	})
}

// TestSlots_GiveUp checks that a worker that gives up takes no slot from other
// workers.
func TestSlots_GiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 10*time.Millisecond, testutil.SinceNow())
		l, err := p.Enter(Worker{Conn: 1}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Enter(Worker{Conn: 2}, time.Second, nil); !errors.Is(err, ErrNoSlot) {
			t.Errorf("Enter without a free slot: %v, want ErrNoSlot", err)
		}
		done := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(done) })
		if _, err := p.Enter(Worker{Conn: 3}, time.Minute, done); !errors.Is(err, ErrLost) {
			t.Errorf("Enter with done closed: %v, want ErrLost", err)
		}
		l.Leave()
		if l, err = p.Enter(Worker{Conn: 4}, 0, nil); err != nil {
			t.Errorf("Enter after the slot was freed: %v, want success", err)
		}
		// A pause that fails neither leaves a slot occupied nor takes one.
		go func() { _ = work(p, Worker{Conn: 5}, 1, nil) }()
		synctest.Wait()
		time.Sleep(20 * time.Millisecond)
		gone := make(chan struct{})
		close(gone)
		err = l.Pause(p.mono(), gone)
		if err == nil {
			l.Leave()
		}
		time.Sleep(time.Second)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.free != 1 || len(p.waiting) != 0 {
			t.Errorf("after a pause (%v) %d slots are free and %d workers wait, want 1 and 0", err, p.free, len(p.waiting))
		}
	})
}
