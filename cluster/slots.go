package cluster

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// slots limits how much work of one kind runs at a time on a node. The work
// that has had the least processor time lately goes first: of the users, then
// of the connections of a user, then in order of arrival. Work that runs for
// longer than a slice gives its slot to waiting work and waits to get it back.
// So short work waits for few slices, no matter how much work the others have.
type slots struct {
	clock Clock
	slice time.Duration

	queued atomic.Int64 // len(waiting), readable without mu

	mu      sync.Mutex
	free    int
	waiting []*slotWait // in order of arrival
	users   map[string]*usage
	conns   map[worker]*usage
}

// worker identifies the origin of work: a connection, its node, and its user.
// user is "" if the user is not known.
type worker struct {
	user, node string
	conn       uint64
}

// usage is the recent time for which a user or a connection has had slots. It
// decays by half every usageHalfLife. So a newcomer goes first for about that
// long, no matter how much time the others have had.
type usage struct {
	spent float64 // nanoseconds, as of the time at
	at    time.Duration
}

const (
	usageHalfLife = time.Second
	// maxUsages limits the memory for usages: it is the largest number of
	// users, and of connections, that are remembered.
	maxUsages = 4096
)

// slotWait is work that waits for a slot.
type slotWait struct {
	who     worker
	granted chan struct{} // closed when the work has been given a slot
}

// errNoSlot means that work has waited for a slot for too long. errSlotLost
// means that nothing waits for the result of the work any more.
var (
	errNoSlot   = errors.New("no slot became free in time")
	errSlotLost = errors.New("the result of the work is no longer wanted")
)

func newSlots(n int, slice time.Duration, clock Clock) *slots {
	return &slots{clock: clock, slice: slice, free: n, users: make(map[string]*usage), conns: make(map[worker]*usage)}
}

// slot is a slot that work occupies.
type slot struct {
	p     *slots
	who   worker
	begun time.Duration // monotonic time at which the slice began
}

// enter waits for a slot until limit has passed or done is closed. It takes a
// free slot even if both have happened already. It fails with errNoSlot or
// errSlotLost.
func (p *slots) enter(who worker, limit time.Duration, done <-chan struct{}) (*slot, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	if err := p.take(who, late.C, done); err != nil {
		return nil, err
	}
	return &slot{p, who, p.clock.Mono()}, nil
}

// take is like enter, for work that may have had a slot before. late is the
// channel of the time limit; nil means no limit.
func (p *slots) take(who worker, late <-chan time.Time, done <-chan struct{}) error {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return nil
	}
	w := &slotWait{who, make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.queued.Store(int64(len(p.waiting)))
	p.mu.Unlock()
	return p.await(w, late, done)
}

// await waits until w is given a slot. late may be nil.
func (p *slots) await(w *slotWait, late <-chan time.Time, done <-chan struct{}) error {
	var err error
	select {
	case <-w.granted:
		return nil
	case <-late:
		err = errNoSlot
	case <-done:
		err = errSlotLost
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.queued.Store(int64(len(p.waiting)))
		return err
	}
	// The slot was given to w meanwhile.
	if errors.Is(err, errNoSlot) {
		return nil
	}
	p.passOn()
	return err
}

// passOn gives a slot that has become free to the waiting work that goes first.
// The caller holds p.mu.
func (p *slots) passOn() {
	if len(p.waiting) == 0 {
		p.free++
		return
	}
	now, best := p.clock.Mono(), 0
	for i := range p.waiting[1:] {
		if p.before(p.waiting[1+i].who, p.waiting[best].who, now) {
			best = 1 + i
		}
	}
	w := p.waiting[best]
	p.waiting = slices.Delete(p.waiting, best, best+1)
	p.queued.Store(int64(len(p.waiting)))
	close(w.granted)
}

// before reports whether a goes before b, because a has had less time. The
// caller holds p.mu.
func (p *slots) before(a, b worker, now time.Duration) bool {
	if x, y := p.users[a.user].value(now), p.users[b.user].value(now); a.user != b.user && x != y {
		return x < y
	}
	return p.conns[a].value(now) < p.conns[b].value(now)
}

// value returns the usage at now, after decay. u may be nil.
func (u *usage) value(now time.Duration) float64 {
	if u == nil {
		return 0
	}
	return u.spent * math.Exp2(-float64(now-u.at)/float64(usageHalfLife))
}

// spent adds the time for which who has had a slot. The caller holds p.mu.
func (p *slots) spent(who worker, took, now time.Duration) {
	note(p.users, who.user, took, now)
	note(p.conns, who, took, now)
}

func note[K comparable](usages map[K]*usage, key K, took, now time.Duration) {
	if u := usages[key]; u != nil {
		u.spent, u.at = u.value(now)+float64(took), now
		return
	}
	if len(usages) >= maxUsages {
		for k, u := range usages {
			if u.value(now) < float64(time.Millisecond) {
				delete(usages, k)
			}
		}
		if len(usages) >= maxUsages {
			clear(usages) // heavy users are soon recorded again
		}
	}
	usages[key] = &usage{float64(took), now}
}

// pause gives the slot to waiting work if its slice is over, and waits to get
// it back. If pause fails, the slot is lost and the caller must not call leave.
func (l *slot) pause(now time.Duration, done <-chan struct{}) error {
	p := l.p
	if now-l.begun < p.slice || p.queued.Load() == 0 {
		return nil
	}
	w := &slotWait{l.who, make(chan struct{})}
	p.mu.Lock()
	p.spent(l.who, now-l.begun, now)
	p.waiting = append(p.waiting, w)
	p.passOn()
	p.mu.Unlock()
	if err := p.await(w, nil, done); err != nil {
		return err
	}
	l.begun = p.clock.Mono()
	return nil
}

// leave gives the slot back.
func (l *slot) leave() {
	p := l.p
	now := p.clock.Mono()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent(l.who, now-l.begun, now)
	p.passOn()
}
