package load

import (
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

// History is everything that the clients of a load saw.
type History struct {
	Ops      []checker.Op
	Holds    []checker.Hold
	Refusals []checker.Refusal
	Appends  []checker.Append
	Batches  []checker.Batch
	Lists    map[string][]string // final content of the lists to which elements were appended
	Pushes   []checker.Push
	Takes    []checker.Take
	// Queues is the final content of the queues, and of the lists to which
	// their elements were moved.
	Queues    map[string][]string
	Publishes []checker.Publish
	Listens   []checker.Subscription
	// Locks contains the commands about the locks that have a queue of waiters,
	// and the observed states of these locks. Unsteady contains the intervals in
	// which the order and the times of the queues are not checked. Pasts are the
	// nodes' own histories of these locks.
	Locks    checker.LockHistory
	Unsteady []checker.Span
	Pasts    []checker.LockPast
	Began    time.Duration  // wall clock at the start of the load, since 1970
	Errors   map[string]int // number of errors by kind
	// Trouble contains the intervals in which commands took long or failed. If the
	// cluster does not report its health in another way, the checkers treat it as
	// unhealthy in these intervals.
	Trouble  []checker.Span
	Commands int // number of commands sent
	Longest  time.Duration
	Samples  []Sample `json:"-"` // for charts
}

// Sample is one command, or one pipeline of commands, as its client saw it.
type Sample struct {
	At       time.Duration // when the last reply or the error arrived
	Took     time.Duration
	Commands int
	Failed   bool
}

// recorder collects a History from many clients.
type recorder struct {
	begun time.Time

	mu sync.Mutex
	h  History
}

func newRecorder() *recorder {
	now := time.Now()
	return &recorder{begun: now, h: History{Began: time.Duration(now.UnixNano()), Errors: make(map[string]int),
		Lists: make(map[string][]string), Queues: make(map[string][]string)}}
}

func (r *recorder) now() time.Duration { return time.Since(r.begun) }

// troubled is how long a command may take before its interval is added to
// Trouble.
const troubled = 250 * time.Millisecond

// TroubleLead is how long before an affected command an interval of trouble
// begins, and TroubleTail is how long after the command it ends.
const (
	TroubleLead = 2500 * time.Millisecond // time that a change of leader may lose: two seconds between clock entries
	TroubleTail = 500 * time.Millisecond
)

// note counts n commands that were sent at call and answered at ret, and an
// error if there was one.
func (r *recorder) note(n int, call, ret time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Commands += n
	r.h.Longest = max(r.h.Longest, ret-call)
	if ret > call { // for a blocking command, call and ret are equal, because its duration is not a latency
		r.h.Samples = append(r.h.Samples, Sample{At: ret, Took: ret - call, Commands: n, Failed: err != nil})
	}
	if err != nil {
		r.h.Errors[kindOf(err)]++
	}
	if err != nil || ret-call > troubled {
		r.h.Trouble = append(r.h.Trouble, checker.Span{From: call - TroubleLead, To: ret + TroubleTail})
	}
}

// unsteady records an interval in which the order and the times of the queues of
// locks are not checked.
func (r *recorder) unsteady(from, to time.Duration) {
	r.add(func(h *History) { h.Unsteady = append(h.Unsteady, checker.Span{From: from, To: to}) })
}

func (r *recorder) add(f func(h *History)) {
	r.mu.Lock()
	f(&r.h)
	r.mu.Unlock()
}
