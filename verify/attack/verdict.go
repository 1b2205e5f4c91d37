package attack

import (
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/replay"
)

// Check is the result of one checker.
type Check struct {
	Name    string `json:"name"`
	Checked int    `json:"checked"`
	Bad     int    `json:"bad"`
}

// Verdict is the result of all checkers for a history.
type Verdict struct {
	Checks     []Check             `json:"checks"`
	Violations []checker.Violation `json:"violations"`
	Keys       int                 `json:"keys"`
	Grants     int                 `json:"grants"`
	Expired    int                 `json:"expired"` // grants that ended by expiry

	bad map[string][]*checker.Op // histories of the keys that Linear did not find linearizable
}

// checkLimit bounds porcupine's search for one key.
const checkLimit = 60 * time.Second

func (v *Verdict) note(name string, checked int, bad []checker.Violation) {
	v.Violations = append(v.Violations, bad...)
	for i := range v.Checks {
		if c := &v.Checks[i]; c.Name == name {
			c.Checked += checked
			c.Bad += len(bad)
			return
		}
	}
	v.Checks = append(v.Checks, Check{name, checked, len(bad)})
}

// CheckHistory runs the checkers that need only a history. steady says when the
// order of clients that wait for locks is checked. The history names further
// intervals in which this order is not checked.
func CheckHistory(h *load.History, health, steady *checker.Health) *Verdict {
	v := &Verdict{}
	linear := checker.Linear(h.Ops, health, checkLimit)
	v.Keys, v.bad = linear.Keys, linear.Bad
	v.note("linearizable keys: commands", linear.Ops, linear.Violations)
	locks := checker.Locks(h.Holds, h.Refusals, health)
	v.Grants, v.Expired = locks.Grants, locks.Expired
	v.note("locks: grants and refusals", len(h.Holds)+len(h.Refusals), locks.Violations)
	v.note("at most once: appends", len(h.Appends), checker.Once(h.Appends, h.Lists))
	checked, bad := checker.Replies(h.Ops)
	batches := checker.Batches(h.Batches)
	for _, b := range h.Batches {
		checked += len(b.Numbers)
	}
	v.note("reply order: replies", checked, append(bad, batches...))
	if len(h.Pushes) > 0 {
		checked, bad = checker.Queues(h.Pushes, h.Takes, h.Queues, health)
		v.note("queue: pushes and takes", checked, bad)
	}
	if len(h.Publishes) > 0 {
		forgetLeaving(h, health)
		checked, bad = checker.Messages(h.Publishes, h.Listens, nil)
		v.note("pub/sub: messages received", checked, bad)
	}
	if len(h.Locks.Calls) > 0 {
		v.checkLocks(h, health, steady)
	}
	return v
}

// checkLocks runs the checkers of locks with a queue of waiters.
func (v *Verdict) checkLocks(h *load.History, health, steady *checker.Health) {
	h.Locks.LeaveWithin = load.LeaveWithin
	all := &checker.Health{Known: steady.Known, Ill: slices.Concat(steady.Ill, h.Unsteady)}
	checked, bad := checker.LockQueues(h.Locks, health, all)
	v.note("lock queues: calls and views", checked, bad)
	granted, waited := 0, 0
	for _, c := range h.Locks.Calls {
		if c.Outcome == checker.Done && c.Token != 0 {
			granted++
			waited += b2i(c.Waits)
		}
	}
	counted := 0
	for _, view := range h.Locks.Views {
		counted += b2i(all.Well(view.Call, view.Return))
	}
	v.note("lock queues: views in which the order was checked", counted, nil)
	v.note("lock queues: grants", granted, nil)
	v.note("lock queues: grants to clients that could wait", waited, nil)
	checked, bad = checker.LockPasts(h.Locks, h.Pasts, h.Began, all)
	v.note("lock history: grants of all nodes", checked, bad) // checked is 0 if no node has answered
}

// forgetLeaving treats subscribers that left while the cluster was not healthy
// as if their connections had been lost: a node that finds no leader confirms
// UNSUBSCRIBE although it does not know the last messages.
func forgetLeaving(h *load.History, health *checker.Health) {
	for i := range h.Listens {
		if l := &h.Listens[i]; l.Left != checker.Forever && !health.Well(l.Left, l.Ended) {
			l.Left = checker.Forever
		}
	}
}

// checkNodes runs the checkers that need the nodes: their states and their
// logs.
func (e *episode) checkNodes(v *Verdict, h *load.History, commit uint64) {
	for _, points := range append(e.mon.lost, e.mon.points) {
		compared, bad := checker.Chains(points)
		v.note("replica equality: states", compared, bad)
	}
	var logs []replay.Log
	for _, n := range e.c.nodes {
		log, err := replay.ReadDir(n.files, n.ID, e.plan.LogStore)
		if err != nil {
			e.violation("data directory", "%v", err)
			continue
		}
		logs = append(logs, log)
	}
	longest, compared, bad := replay.Compare(logs, commit)
	v.note("log equality: entries", compared, bad)
	res := replay.Check(longest, h.Ops, h.Appends)
	v.note("log replay: writes and reads found", res.Matched+res.Reads, res.Violations)
	if longest.Base == nil && len(h.Publishes) > 0 {
		compared, bad = checker.Messages(h.Publishes, h.Listens, replay.Published(longest))
		v.note("pub/sub: messages in log order", compared, bad)
	}
	e.checkOnRedis(v, longest)
}
