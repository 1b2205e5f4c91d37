package load

import (
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// History is what the clients of a load saw.
type History struct {
	Ops      []oracle.Op
	Holds    []oracle.Hold
	Refusals []oracle.Refusal
	Appends  []oracle.Append
	Batches  []oracle.Batch
	Lists    map[string][]string // content at the end, of those that were appended to
	Errors   map[string]int      // what went wrong, by kind
	// Trouble is where commands took long or failed: a cluster that shows nothing
	// else of its health was ill there.
	Trouble  []oracle.Span
	Commands int // sent
	Longest  time.Duration
}

// recorder collects a History from many clients.
type recorder struct {
	begun time.Time

	mu sync.Mutex
	h  History
}

func newRecorder() *recorder {
	return &recorder{begun: time.Now(), h: History{Errors: make(map[string]int), Lists: make(map[string][]string)}}
}

func (r *recorder) now() time.Duration { return time.Since(r.begun) }

// troubled is how long a command may take before the cluster counts as ill.
const troubled = 250 * time.Millisecond

// A stretch of trouble begins so long before the command that met it, and ends so
// long after.
const (
	TroubleLead = 2500 * time.Millisecond // what a leader may forget: two seconds between ticks
	TroubleTail = 500 * time.Millisecond
)

// note counts n commands that took from call to ret, and an error.
func (r *recorder) note(n int, call, ret time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Commands += n
	r.h.Longest = max(r.h.Longest, ret-call)
	if err != nil {
		r.h.Errors[kindOf(err)]++
	}
	if err != nil || ret-call > troubled {
		r.h.Trouble = append(r.h.Trouble, oracle.Span{From: call - TroubleLead, To: ret + TroubleTail})
	}
}

func (r *recorder) add(f func(h *History)) {
	r.mu.Lock()
	f(&r.h)
	r.mu.Unlock()
}
