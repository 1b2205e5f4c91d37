package attack

import (
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/oracle"
	"github.com/holdfast-kv/holdfast/verify/replay"
)

// Check is what one oracle looked at.
type Check struct {
	Name    string `json:"name"`
	Checked int    `json:"checked"`
	Bad     int    `json:"bad"`
}

// Verdict is what the oracles say of a history.
type Verdict struct {
	Checks     []Check            `json:"checks"`
	Violations []oracle.Violation `json:"violations"`
	Keys       int                `json:"keys"`
	Grants     int                `json:"grants"`
	Expired    int                `json:"expired"` // grants that ended by expiry

	bad map[string][]*oracle.Op // keys that porcupine refused
}

// checkLimit bounds porcupine's search for one key.
const checkLimit = 60 * time.Second

func (v *Verdict) note(name string, checked int, bad []oracle.Violation) {
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

// Judge asks the oracles that need a history only.
func Judge(h *load.History, health *oracle.Health) *Verdict {
	v := &Verdict{}
	linear := oracle.Linear(h.Ops, health, checkLimit)
	v.Keys, v.bad = linear.Keys, linear.Bad
	v.note("linearizable keys: commands", linear.Ops, linear.Violations)
	locks := oracle.Locks(h.Holds, h.Refusals, health)
	v.Grants, v.Expired = locks.Grants, locks.Expired
	v.note("locks: grants and refusals", len(h.Holds)+len(h.Refusals), locks.Violations)
	v.note("at most once: appends", len(h.Appends), oracle.Once(h.Appends, h.Lists))
	checked, bad := oracle.Replies(h.Ops)
	batches := oracle.Batches(h.Batches)
	for _, b := range h.Batches {
		checked += len(b.Numbers)
	}
	v.note("reply order: replies", checked, append(bad, batches...))
	return v
}

// judgeNodes asks the oracles that need the nodes: their states and their logs.
func (e *episode) judgeNodes(v *Verdict, h *load.History, commit uint64) {
	compared, bad := oracle.Chains(e.mon.points)
	v.note("replica equality: states", compared, bad)
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
	e.judgeOnRedis(v, longest)
}
