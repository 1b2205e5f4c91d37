package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
)

// lockBuckets are the upper bounds of the buckets of the histograms: 1 ms … 1 h.
var lockBuckets = [...]time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
	5 * time.Minute, 15 * time.Minute, time.Hour,
}

// lockEnds lists the ends of grants that are counted. The end of a grant is not
// counted if FLUSHDB, FLUSHALL or a restore has caused it.
var lockEnds = [...]string{
	fsm.LockReleased, fsm.LockExpired, fsm.LockDeleted, fsm.LockBroken, fsm.LockOverwritten, fsm.LockUndelivered,
	fsm.LockRenamed,
}

// Locks counts grants of locks, refusals, and ends of grants. A node counts
// only the entries of the terms in which it leads. So each event is counted on
// one node, and the sum over the nodes is the number for the cluster.
//
// The goroutine that applies the log takes the mutex at most once for each entry.
type Locks struct {
	mu              sync.Mutex
	granted         uint64
	held, timedOut  uint64 // refusals, by reason
	ended           [len(lockEnds)]uint64
	waits, holdings durations
	term            uint64 // term of the last entry that was counted
	starts          lockStarts
}

// lockStarts records the beginning of each grant that LOCK ACQUIRE did not
// make, because the event that ends such a grant does not contain its
// beginning. Grants are looked up by their fencing tokens, which ascend in the
// order of the grants. The time is exact for the newest tokens. For an older
// token, it is the time of a token that was given slightly earlier. The number
// of tokens between these two is less than a thousandth of the tokens that were
// given since then. The levels have a constant size.
type lockStarts struct {
	levels [3][]lockStart // nil until there is a grant
	first  fsm.Pos        // oldest token that is recorded; 0 if there is none
}

const (
	lockStartSlots = 1 << 16
	lockStartShift = 6 // a slot of a level covers 64 slots of the level before it
)

type lockStart struct {
	token fsm.Pos // first token of the slot that was recorded
	lease int64
}

func (s *lockStarts) note(token fsm.Pos, lease int64) {
	if s.levels[0] == nil {
		for i := range s.levels {
			s.levels[i] = make([]lockStart, lockStartSlots)
		}
	}
	if s.first == 0 {
		s.first = token
	}
	for i, level := range s.levels {
		block := token >> (i * lockStartShift)
		slot := &level[block%lockStartSlots]
		if slot.token>>(i*lockStartShift) == block && slot.token >= s.first {
			return // the block has an earlier token already, and so have the blocks above it
		}
		*slot = lockStart{token, lease}
	}
}

// of returns the lease clock at the beginning of a grant. token is the fencing
// token of the grant.
func (s *lockStarts) of(token fsm.Pos) (lease int64, known bool) {
	if s.first == 0 || token < s.first {
		return 0, false
	}
	for i, level := range s.levels {
		block := token >> (i * lockStartShift)
		slot := &level[block%lockStartSlots]
		if slot.token>>(i*lockStartShift) == block && slot.token >= s.first && slot.token <= token {
			return slot.lease, true
		}
	}
	return 0, false
}

// forget removes the tokens of all earlier grants.
func (s *lockStarts) forget() { s.first = 0 }

// durations is a histogram of times.
type durations struct {
	counts [len(lockBuckets) + 1]uint64 // not cumulative
	sum    time.Duration
}

func (d *durations) observe(t time.Duration) {
	i := 0
	for i < len(lockBuckets) && t > lockBuckets[i] {
		i++
	}
	d.counts[i]++
	d.sum += t
}

func (d *durations) metric(desc *prometheus.Desc) prometheus.Metric {
	buckets, total := make(map[float64]uint64, len(lockBuckets)), uint64(0)
	for i, n := range d.counts {
		total += n
		if i < len(lockBuckets) {
			buckets[lockBuckets[i].Seconds()] = total
		}
	}
	return prometheus.MustNewConstHistogram(desc, total, d.sum.Seconds(), buckets)
}

// NewLocks returns new metrics.
func NewLocks() *Locks { return new(Locks) }

// Applied counts the events of an entry of a term. It is called in log order.
func (l *Locks) Applied(term uint64, res *fsm.Result) {
	if len(res.Locks) == 0 && res.LocksRefused == (fsm.LockRefusals{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if term != l.term { // in between, other nodes may have led, and this node recorded none of their grants
		l.term = term
		l.starts.forget()
	}
	l.held += res.LocksRefused.Held
	l.timedOut += res.LocksRefused.TimedOut
	for i := range res.Locks {
		e := &res.Locks[i]
		switch e.Kind {
		case fsm.LockGranted:
			l.granted++
			if e.Waited > 0 {
				l.waits.observe(time.Duration(e.Waited))
			}
			if e.Since == 0 {
				l.starts.note(e.Token, e.Now-e.Before)
			}
		case fsm.LockEnded:
			for j := range lockEnds {
				if e.How == lockEnds[j] {
					l.ended[j]++
				}
			}
			l.end(e)
		case fsm.LocksReplaced: // the tokens of the backup were given at other times
			l.starts.forget()
		}
	}
}

// end observes for how long a grant has lasted, if that is known.
func (l *Locks) end(e *fsm.LockEvent) {
	since := e.Since
	if since == 0 {
		var known bool
		if since, known = l.starts.of(e.Token); !known {
			return
		}
	}
	l.holdings.observe(time.Duration(max(e.Now-since, 0)))
}

var (
	descGranted = prometheus.NewDesc("holdfast_locks_granted_total",
		"Grants of locks in entries of the terms in which this node led: by LOCK ACQUIRE, and by SET NX with a time "+
			"to live and commands like it.", nil, nil)
	descLockRefused = prometheus.NewDesc("holdfast_locks_refused_total",
		"Commands that got no lock in the terms in which this node led, because another owner held the lock, another "+
			"client waited for it, or the lock delay was not over. By reason: held (the command did not wait), "+
			"timeout (the command waited until its timeout, or its node ended the wait earlier, for example because "+
			"of CLIENT UNBLOCK; a client that disconnects while it waits does not count).",
		[]string{"reason"}, nil)
	descEnded = prometheus.NewDesc("holdfast_locks_ended_total",
		"Grants of locks that ended in the terms in which this node led, by how they ended: released, expired (while "+
			"the owner held the lock), broken (by LOCK BREAK), deleted, overwritten, renamed, undelivered (the "+
			"grant could not be delivered to the client that had waited). FLUSHDB, FLUSHALL and a restore "+
			"end grants that are not counted.",
		[]string{"how"}, nil)
	descWaited = prometheus.NewDesc("holdfast_lock_wait_seconds",
		"Seconds for which clients had waited when they got a lock that another owner had held.", nil, nil)
	descHoldings = prometheus.NewDesc("holdfast_lock_hold_seconds",
		"Seconds from the grant of a lock to its end. A lock of SET NX is observed if this node has led without "+
			"a break since the grant.", nil, nil)
	descHeld = prometheus.NewDesc("holdfast_locks_held",
		"Grants of LOCK ACQUIRE that have not ended, as LOCK LIST shows them. The same on all nodes.", nil, nil)
	descWaiting = prometheus.NewDesc("holdfast_lock_waiters",
		"Clients of all nodes that wait for a lock. The same on all nodes.", nil, nil)
)

// Describe implements prometheus.Collector.
func (l *Locks) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, ch) }

// Collect implements prometheus.Collector.
func (l *Locks) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	count(descGranted, l.granted)
	count(descLockRefused, l.held, "held")
	count(descLockRefused, l.timedOut, "timeout")
	for i, n := range l.ended {
		count(descEnded, n, lockEnds[i])
	}
	ch <- l.waits.metric(descWaited)
	ch <- l.holdings.metric(descHoldings)
}
