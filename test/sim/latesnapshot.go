package sim

import (
	"fmt"
	"slices"
	"time"
)

// lateSnapshotScenario is the name of the scenario in a Schedule.
const lateSnapshotScenario = "late snapshots"

// until waits for a condition, for at most one minute of virtual time. It
// records a violation if the condition does not become true.
func (w *world) until(what string, cond func() bool) bool {
	for begun := w.elapsed(); w.elapsed() < begun+time.Minute; <-time.After(10 * ms) {
		if cond() {
			return true
		}
	}
	w.audit.violate("waited a minute for %s: %s", what, w.describe())
	return false
}

// lateSnapshots lets a follower fall behind until the leader sends it a
// snapshot. Later, the network delivers the recorded requests of the leader to
// the follower a second time. A snapshot that arrives after newer entries must
// not move the follower or its log back.
func lateSnapshots(plan *Schedule) *Result {
	w := newWorld(plan.Seed, 3)
	for _, id := range w.ids() {
		w.revive(id)
	}
	r := &Result{Schedule: plan, Injected: make(map[string]int), Seen: make(map[string]int),
		Checks: make(map[string]int)}
	r.playSnapshots(w)
	w.look()
	w.end()
	r.Virtual, r.Violations = w.elapsed(), w.audit.violations()
	return r
}

func (r *Result) playSnapshots(w *world) {
	if !w.until("a leader", func() bool { _, ready := w.look(); return ready }) {
		return
	}
	leader := w.leader()
	behind := without(w.ids(), leader)[0]
	w.crash(behind, true)
	h := &history{w: w, done: make(chan struct{}), outcomes: make(map[string]int)}
	c := h.client(1, "writer")
	write := func(n int) {
		for i := range n {
			c.home = leader
			if c.connect() {
				c.do(command{"set", fmt.Sprintf("k%d", i%50), fmt.Sprintf("%d of %d", i, n)})
			}
		}
	}
	write(600)
	d := w.node(behind).disk
	w.revive(behind)
	if !w.until("a snapshot from the leader", func() bool { return d.effects().snaps > 0 && w.level() }) {
		return
	}
	write(50)
	if !w.until("the follower to have all entries", w.level) {
		return
	}
	before := d.last()
	w.net.mu.Lock()
	w.net.tapes = slices.DeleteFunc(w.net.tapes, func(t *tape) bool { return t.dir != direction{leader, behind} })
	tapes := len(w.net.tapes)
	w.net.mu.Unlock()
	for i := range tapes {
		r.Injected["replay of old requests"]++
		if w.net.replay(func(n int) int { return i % n }) {
			r.Seen["replay of old requests"]++
		}
		<-time.After(time.Second)
		if now := d.last(); now < before {
			w.audit.violate("acknowledged entries: the log of %s ended at %d before an old snapshot,"+
				" and at %d after it", behind, before, now)
		}
		r.Checks["acknowledged entries"]++
	}
	write(50)
	w.until("all nodes at one index", w.level)
}
