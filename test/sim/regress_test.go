package sim

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// until waits for a condition, in the time of the bubble.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 6000 {
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited a minute for: %s", what)
}

// TestOldSnapshot: a snapshot that was under way for so long that newer entries
// came before it must not take a follower back, nor its log.
//
// Found by seed 18 of 60 s, by a replay of old requests: raft installed the
// snapshot once more, the follower answered for entries that it had deleted, and
// its process ended with a panic.
func TestOldSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, 3)
		for _, id := range w.ids() {
			if err := w.start(id); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "a leader", func() bool { _, ready := w.reign(); return ready })
		leader := w.leader()
		behind := without(w.ids(), leader)[0]
		w.crash(behind, true)
		h := &history{w: w, done: make(chan struct{}), outcomes: make(map[string]int)}
		c := h.client(1, "writer")
		write := func(n int) {
			for i := range n {
				c.home = leader
				if !c.connect() {
					t.Fatal("not connected")
				}
				c.do(command{"set", fmt.Sprintf("k%d", i%50), fmt.Sprint(i, "of", n)})
			}
		}
		write(600)
		d := w.node(behind).disk
		w.revive(behind)
		until(t, "a snapshot from the leader", func() bool { return d.effects().snaps > 0 && w.level() })
		write(50)
		until(t, "the follower to have it all", w.level)
		last := func() uint64 { n, _ := logStore{&stores{d: d}}.LastIndex(); return n }
		before := last()
		played := 0
		w.net.mu.Lock()
		w.net.tapes = slices.DeleteFunc(w.net.tapes, func(t *tape) bool { return t.dir != direction{leader, behind} })
		tapes := len(w.net.tapes)
		w.net.mu.Unlock()
		for i := range tapes {
			if w.net.replay(func(n int) int { return i % n }) {
				played++
			}
			time.Sleep(time.Second)
			if now := last(); now < before {
				t.Errorf("log of %s ended at %d, now at %d", behind, before, now)
			}
		}
		if played == 0 {
			t.Error("no request was played again")
		}
		write(50)
		until(t, "all nodes at one index", w.level)
		w.look()
		for _, bad := range w.audit.violations() {
			t.Error(bad)
		}
		w.over.Store(true)
		for _, id := range w.ids() {
			w.stop(id)
		}
		w.wg.Wait()
	})
}
