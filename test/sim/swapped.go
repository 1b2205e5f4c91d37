package sim

import (
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
)

// swappedScenario is the name of the scenario in a Schedule.
const swappedScenario = "swapped addresses"

// swappedAddresses lets n2 win an election by the vote of n1, and then starts
// n2 and n3 with each other's address. n3 campaigns in the same term, from the
// address that has n1's vote. n1 must not vote for n3 too.
//
// n1 would refuse n3 anyway if it received messages from n2 as leader. So the
// link from n2 to n1 is cut as soon as n1 has voted. The timers of n1 are slow,
// so that n1 itself does not campaign.
func swappedAddresses(plan *Schedule) *Result {
	w := newWorld(plan.Seed, 3)
	w.node("n1").sluggish = 30
	for _, id := range w.ids() {
		w.revive(id)
	}
	r := &Result{Schedule: plan, Injected: make(map[string]int), Seen: make(map[string]int),
		Checks: make(map[string]int)}
	r.Injected[swappedScenario]++
	if w.swapAddresses() {
		r.Seen[swappedScenario]++
	}
	w.look()
	w.end()
	r.Virtual, r.Violations = w.elapsed(), w.audit.violations()
	return r
}

// swapAddresses runs the scenario. It reports whether n2 was elected with the
// vote of n1 before the addresses were exchanged.
func (w *world) swapAddresses() bool {
	n1 := w.node("n1").running()
	if !w.ledBy("n1") {
		return false
	}
	term := n1.n.Status().Term + 1
	away := w.net.cut([]direction{{"n1", "n3"}, {"n3", "n1"}, {"n2", "n3"}, {"n3", "n2"}})
	over := make(chan struct{})
	go func() {
		_ = transferLeadership(n1.n, "n2") // n1 does not learn the result
		close(over)
	}()
	d := w.node("n1").disk
	for begun := time.Now(); d.votedIn() < term && time.Since(begun) < time.Second; {
		<-time.After(20 * time.Microsecond)
	}
	deaf := w.net.cut([]direction{{"n2", "n1"}})
	elected := func() bool {
		st := w.node("n2").running().n.Status()
		if st.Role == "leader" && st.Term == term {
			w.audit.led("n2", term)
			return true
		}
		return false
	}
	seen := false
	for begun := time.Now(); !seen && time.Since(begun) < time.Second; <-time.After(ms) {
		seen = elected()
	}
	w.crash("n2", true)
	w.crash("n3", true)
	deaf()
	away()
	<-over
	w.exchange("n2", "n3")
	w.revive("n3")
	w.until("n3 to lead", func() bool { w.look(); return w.leader() == "n3" })
	w.revive("n2")
	w.crash("n1", true)
	w.revive("n1")
	w.until("all nodes at one index", func() bool { w.look(); return w.level() })
	return seen
}

// exchange gives two nodes each other's address in the flags of all nodes. The
// nodes use the new addresses when they start next.
func (w *world) exchange(a, b string) {
	peers := slices.Clone(w.peers)
	for i, p := range peers {
		switch p.ID {
		case a:
			peers[i] = cluster.Peer{ID: a, Addr: address(b)}
		case b:
			peers[i] = cluster.Peer{ID: b, Addr: address(a)}
		}
	}
	for _, id := range w.ids() {
		nd := w.node(id)
		nd.mu.Lock()
		nd.peers = peers
		nd.mu.Unlock()
	}
	w.node(a).host, w.node(b).host = w.node(b).host, w.node(a).host
}
