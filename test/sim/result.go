package sim

import (
	"time"

	"github.com/holdfast-kv/holdfast/verify/oracle"
	"github.com/holdfast-kv/holdfast/verify/replay"
)

// Result is what became of one history.
type Result struct {
	Schedule   *Schedule      `json:"schedule"`
	Virtual    time.Duration  `json:"virtual_ns"`
	Real       time.Duration  `json:"real_ns"`
	Injected   map[string]int `json:"injected"`
	Seen       map[string]int `json:"seen"` // of those injected, the ones that made a difference
	Outcomes   map[string]int `json:"outcomes"`
	Exits      map[string]int `json:"exits"` // of processes, as the product is made to
	Failovers  int            `json:"failovers"`
	Ops        int            `json:"ops"`
	Keys       int            `json:"keys"`
	Grants     int            `json:"grants"`
	Expired    int            `json:"expired"` // grants that ended because their time was over
	Hashes     int            `json:"hashes"`  // states of replicas compared
	Entries    int            `json:"entries"` // of the log, replayed
	Checks     map[string]int `json:"checks"`
	Violations []string       `json:"violations,omitempty"`
	Log        string         `json:"log,omitempty"` // of the nodes, if it was kept

	bad       map[string][]*oracle.Op
	committed replay.Log // without gaps, or empty
}
