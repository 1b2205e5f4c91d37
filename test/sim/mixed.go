package sim

import (
	"fmt"
	"time"
)

// mixedScenario is the name of the scenario in a Schedule.
const mixedScenario = "mixed requests"

// mixedRequests slows down the goroutine with which a leader replicates to n5.
// While the goroutine reads an entry, the leader is deposed, and its log is
// replaced by the log of the next leader. The goroutine then has one entry from
// the deposed leader's old log, and the entry after it from the next leader's
// log. n5 can reach only the deposed leader, so n5 does not know of the new
// term. The goroutine must not send these two entries to n5.
func mixedRequests(plan *Schedule) *Result {
	w := newWorld(plan.Seed, 5)
	w.opts.Window = 4
	for _, id := range w.ids() {
		w.revive(id)
	}
	r := &Result{Schedule: plan, Injected: make(map[string]int), Seen: make(map[string]int),
		Checks: make(map[string]int)}
	r.Injected[mixedScenario]++
	if w.mixRequests() {
		r.Seen[mixedScenario]++
	}
	w.look()
	w.end()
	r.Virtual, r.Violations = w.elapsed(), w.audit.violations()
	return r
}

// mixRequests runs the scenario. It reports whether n5 got the first entry, and
// the log of n1 was replaced while n1 read the second one.
func (w *world) mixRequests() bool {
	if !w.ledBy("n1") {
		return false
	}
	apart := func(a, b []string) (heal func()) {
		var ds []direction
		for _, x := range a {
			for _, y := range b {
				ds = append(ds, direction{x, y}, direction{y, x})
			}
		}
		return w.net.cut(ds)
	}
	d := w.node("n1").disk
	own := d.last() + 1 // the entry that n5 gets from its leader
	alone := apart([]string{"n5"}, []string{"n2", "n3", "n4"})
	deposed := apart([]string{"n1"}, []string{"n2", "n3", "n4"})
	release := d.holdReads(own + 1)
	// Before n5 answers, the first entry must be on its way, and the next one
	// must be on n1's disk: the simulator can delay only reads of the disk, and
	// n1 reads an entry from memory until the entry is on the disk.
	late := w.net.cut([]direction{{"n1", "n5"}})
	over := w.writeThrough("n1", 4)
	w.until("entries that n1 cannot commit", func() bool { return d.synced() > own+1 })
	late()
	w.until("the second entry to be read", func() bool { return d.effects().held > 0 })
	term := d.termAt(own)
	w.until("another leader", func() bool { _, ready := w.look(); return ready && w.leader() != "n1" })
	more := w.writeThrough(w.leader(), 4)
	deposed()
	replaced := func() bool { return d.termAt(own+1) > term }
	w.until("the log of n1 to be replaced", replaced)
	seen := w.node("n5").disk.termAt(own) == term && replaced()
	release()
	<-time.After(200 * ms)
	// A new leader first compares n5's log with its own last entry. If n5 has
	// that entry, the leader assumes that n5's earlier entries equal its own.
	next := without([]string{"n2", "n3", "n4"}, w.leader())[0]
	w.until(next+" to lead", func() bool {
		leader := w.leader()
		if leader != "" && leader != next {
			_ = transferLeadership(w.node(leader).running().n, next) // w.until checks the result
		}
		_, ready := w.look()
		return ready && leader == next
	})
	alone()
	<-over
	<-more
	w.until("all nodes at one index", func() bool { w.look(); w.commits(); return w.level() })
	return seen
}

// ledBy transfers leadership to a node, and waits until all nodes have applied
// the same index.
func (w *world) ledBy(id string) bool {
	return w.until(id+" to lead, and all nodes at one index", func() bool {
		if leader := w.leader(); leader != "" && leader != id {
			_ = transferLeadership(w.node(leader).running().n, id) // w.until checks the result
		}
		_, ready := w.look()
		return ready && w.leader() == id && w.level()
	})
}

// writeThrough writes n keys through a node, each with a separate client. The
// channel over is closed when all writes have ended, successfully or not.
func (w *world) writeThrough(id string, n int) (over chan struct{}) {
	over = make(chan struct{})
	ended := make(chan struct{})
	h := &history{w: w, done: make(chan struct{}), outcomes: make(map[string]int)}
	for i := range n {
		go func() {
			<-time.After(time.Duration(i) * 5 * ms)
			c := h.client(i, "writer")
			if c.home = id; c.connect() {
				c.do(command{"set", fmt.Sprintf("k%d", i), id})
			}
			ended <- struct{}{}
		}()
	}
	go func() {
		for range n {
			<-ended
		}
		close(over)
	}()
	return over
}
