// Package fairshare limits how much work of one kind runs at a time on a node,
// and shares the slots fairly between users and connections.
package fairshare

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Slots is a set of slots for work of one kind. A free slot goes to the user
// that has had the least slot time recently. Among the connections of that
// user, it goes to the connection that has had the least slot time. Among the
// work of that connection, it goes to the work that arrived first. Work that
// runs for longer than a slice gives its slot to waiting work and waits to get
// it back (see Slot.Pause). So short work waits for few slices, no matter how
// much work the others have.
type Slots struct {
	mono  func() time.Duration // the time since an arbitrary moment
	slice time.Duration

	queued atomic.Int64 // len(waiting), readable without mu

	mu      sync.Mutex // guards the fields below
	free    int
	waiting []*slotWait // in order of arrival
	users   map[string]*usage
	conns   map[Worker]*usage
}

// Worker identifies the origin of work: a connection, its node, and its user.
// User is "" if the user is not known.
type Worker struct {
	User, Node string
	Conn       uint64
}

// usage is the recent time for which a user or a connection has had slots. It
// decays by half every usageHalfLife. So a new user or connection goes first
// for about usageHalfLife, no matter how much time the others have had.
type usage struct {
	spent float64       // time with a slot, in nanoseconds, decayed until usage.at
	at    time.Duration // the time at which spent was computed
}

const (
	usageHalfLife = time.Second
	// maxUsages limits the memory for usages: it is the largest number of
	// users, and of connections, that are remembered.
	maxUsages = 4096
)

// slotWait is work that waits for a slot.
type slotWait struct {
	who     Worker
	granted chan struct{} // closed when the work has been given a slot
}

// Errors of Enter and Pause.
var (
	// ErrNoSlot means that no slot became free within the time limit.
	ErrNoSlot = errors.New("no slot became free in time")
	// ErrLost means that nothing waits for the result of the work.
	ErrLost = errors.New("the result of the work is no longer wanted")
)

// New returns n slots. mono returns the time since an arbitrary moment.
func New(n int, slice time.Duration, mono func() time.Duration) *Slots {
	return &Slots{mono: mono, slice: slice, free: n, users: make(map[string]*usage), conns: make(map[Worker]*usage)}
}

// Slot is a slot that work occupies. Only the goroutine that does the work may
// use it.
type Slot struct {
	p     *Slots
	who   Worker
	begun time.Duration // monotonic time at which the slice began
}

// Enter waits for a slot. It fails with ErrNoSlot when limit has passed, and
// with ErrLost when done is closed. If a slot is free, Enter takes it even if
// limit is 0 or done is closed already.
func (p *Slots) Enter(who Worker, limit time.Duration, done <-chan struct{}) (*Slot, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	if err := p.take(who, late.C, done); err != nil {
		return nil, err
	}
	return &Slot{p, who, p.mono()}, nil
}

// take waits for a slot as Enter does. late is the channel of the time limit; nil
// means no limit.
func (p *Slots) take(who Worker, late <-chan time.Time, done <-chan struct{}) error {
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
func (p *Slots) await(w *slotWait, late <-chan time.Time, done <-chan struct{}) error {
	var err error
	select {
	case <-w.granted:
		return nil
	case <-late:
		err = ErrNoSlot
	case <-done:
		err = ErrLost
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.queued.Store(int64(len(p.waiting)))
		return err
	}
	// The slot was given to w meanwhile.
	if errors.Is(err, ErrNoSlot) {
		return nil
	}
	p.passOn()
	return err
}

// passOn gives a slot that has become free to the waiting work that goes first.
// The caller holds p.mu.
func (p *Slots) passOn() {
	if len(p.waiting) == 0 {
		p.free++
		return
	}
	now, best := p.mono(), 0
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

// before reports whether a goes before b. The user that has had less slot time
// goes first. If the users are the same, or have had the same time, the
// connection that has had less slot time goes first. The caller holds p.mu.
func (p *Slots) before(a, b Worker, now time.Duration) bool {
	if x, y := p.users[a.User].value(now), p.users[b.User].value(now); a.User != b.User && x != y {
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

// spent adds the time for which a worker has had a slot to the usage of the
// worker's connection and to the usage of its user. The caller holds p.mu.
func (p *Slots) spent(who Worker, took, now time.Duration) {
	note(p.users, who.User, took, now)
	note(p.conns, who, took, now)
}

// note adds the time for which key has had a slot. It limits the number of
// usages, and drops the smallest ones first.
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

// Pause gives the slot to waiting work, if there is any and if the slice is
// over, and then waits to get the slot back. now is the current time. If Pause
// fails, the slot is lost, and the caller must not call Leave.
func (l *Slot) Pause(now time.Duration, done <-chan struct{}) error {
	p := l.p
	if now-l.begun < p.slice || p.queued.Load() == 0 {
		return nil
	}
	if err := p.await(p.swap(l.who, now-l.begun, now), nil, done); err != nil {
		return err
	}
	l.begun = p.mono()
	return nil
}

// Charge counts a time for which the work has run without a slot as if the work
// had occupied this slot.
func (l *Slot) Charge(ran time.Duration) { l.begun -= ran }

// Leave gives the slot back.
func (l *Slot) Leave() {
	now := l.p.mono()
	l.p.release(l.who, now-l.begun, now)
}

// swap puts a worker that has a slot back into the queue, and gives the slot to
// the waiting work that goes first. That may be the worker itself. The argument
// had is the time for which the worker has had the slot.
func (p *Slots) swap(who Worker, had, now time.Duration) *slotWait {
	w := &slotWait{who, make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent(who, had, now)
	p.waiting = append(p.waiting, w)
	p.passOn()
	return w
}

// release takes a slot from a worker and gives it to waiting work. The argument
// had is the time for which the worker has had the slot.
func (p *Slots) release(who Worker, had, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent(who, had, now)
	p.passOn()
}

// Free returns the number of free slots.
func (p *Slots) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}
