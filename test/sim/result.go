package sim

import (
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/replay"
)

// Result is the result of one history.
type Result struct {
	Schedule   *Schedule      `json:"schedule"`
	Virtual    time.Duration  `json:"virtual_ns"`
	Real       time.Duration  `json:"real_ns"`
	Injected   map[string]int `json:"injected"`
	Seen       map[string]int `json:"seen"` // injected faults that took effect
	Outcomes   map[string]int `json:"outcomes"`
	Exits      map[string]int `json:"exits"` // planned exits of processes, by reason: see the variable planned
	Failovers  int            `json:"failovers"`
	Ops        int            `json:"ops"`
	Keys       int            `json:"keys"`
	Grants     int            `json:"grants"`
	Expired    int            `json:"expired"` // grants that ended by expiry
	Hashes     int            `json:"hashes"`  // state hashes of replicas compared
	Entries    int            `json:"entries"` // log entries replayed
	Checks     map[string]int `json:"checks"`
	Violations []string       `json:"violations,omitempty"`
	Log        string         `json:"log,omitempty"` // log of the nodes, if it was kept

	bad       map[string][]*checker.Op
	committed replay.Log // the whole log, or empty if it has gaps
}
