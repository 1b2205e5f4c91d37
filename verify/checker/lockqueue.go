package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// LockMode says which owners may hold a lock together. The zero value permits
// only one owner.
type LockMode struct {
	Shared bool
	Limit  int // the largest number of owners; 0 if Shared is set, or if only one owner is permitted
}

func (m LockMode) String() string {
	switch {
	case m.Shared:
		return "shared"
	case m.Limit > 0:
		return fmt.Sprintf("limit %d", m.Limit)
	}
	return "exclusive"
}

// permits reports whether n owners may hold a lock with this mode together.
func (m LockMode) permits(n int) bool { return m.Shared || n <= max(m.Limit, 1) }

// LockCall is an attempt to take a lock: LOCK ACQUIRE, or SET NX and LOCK TOKEN
// in one transaction or pipeline. Each Owner belongs to one client.
type LockCall struct {
	Lock, Owner string
	Mode        LockMode
	TTL         time.Duration
	Waits       bool // the option WAIT
	Client      int
	Node        string
	Call        time.Duration
	Return      time.Duration // Return is valid only for Done and Refused
	Outcome     Outcome
	Token       int64 // fencing token, 0 if the lock was not granted
	// Left is when the connection ended before the reply arrived: the client
	// closed it, or the node died. It is 0 if the reply arrived, or if the time is
	// not known.
	Left  time.Duration
	Steps []LockStep // steps in the order in which they were sent, if the lock was granted
}

func (c *LockCall) String() string {
	what := fmt.Sprintf("got token %d", c.Token)
	switch {
	case c.Outcome == Refused:
		what = "was refused"
	case c.Outcome == Unknown:
		what = "has an unknown outcome"
	case c.Token == 0:
		what = "did not get it"
	}
	return fmt.Sprintf("%s (%v, client %d at %s, from %v to %v) %s", c.Owner, c.Mode, c.Client, c.Node, c.Call,
		c.Return, what)
}

// LockStepKind is a command of an owner about its lock.
type LockStepKind string

// These are the commands of an owner.
const (
	LockRenew   LockStepKind = "renewal" // renews the lock for its whole TTL
	LockCheck   LockStepKind = "check"
	LockRelease LockStepKind = "release"
)

// LockStep is one command of an owner about its lock, with the reply.
type LockStep struct {
	Kind LockStepKind
	Step
	Token int64 // the token in the reply, 0 for none
}

// LockBreak is an attempt to take a lock away from its owners. If Token is 0,
// the attempt is for all owners.
type LockBreak struct {
	Lock         string
	Token        int64
	Call, Return time.Duration
	Outcome      Outcome
	Broke        bool
}

// LockHolder is an owner of a lock with its fencing token.
type LockHolder struct {
	Owner string
	Token int64
}

// LockView is the state of a lock at one moment between Call and Return: the
// reply to LOCK INFO. The views of a lock must not overlap.
type LockView struct {
	Lock         string
	Mode         LockMode // the mode of the holders
	Call, Return time.Duration
	// Clock is the lease clock of the state, 0 if it is not known.
	Clock   time.Duration
	Holders []LockHolder
	Waiters []LockWaiter // in the order of the queue
	// Delay is how long the lock delay still lasts on the lease clock, rounded
	// up to milliseconds. It is 0 if there is no delay.
	Delay time.Duration
}

// LockWaiter is a client in the queue of a lock.
type LockWaiter struct {
	Owner string
	Mode  LockMode
}

// LockHistory contains the commands of clients about locks, and the observed
// states of the locks. No command outside the history takes these locks.
type LockHistory struct {
	Calls  []*LockCall
	Breaks []LockBreak
	Views  []*LockView
	// LeaveWithin is how long a client whose connection has ended may stay in the
	// queue, or hold the lock although the reply did not arrive. It must be longer
	// than the time after which the cluster notices that a node is gone.
	LeaveWithin time.Duration
	// Delays are the lock delays of the locks that have one. They are in force
	// for grants that end after DelaysSince.
	Delays      map[string]time.Duration
	DelaysSince time.Duration
}

const (
	// wakeWithin is how long a lock may be free while clients wait for it.
	wakeWithin = 100 * time.Millisecond
	// queueWithin is how long a client that has left the queue may wait for its
	// reply. A client that has sent its command may need LeaveWithin to enter
	// the queue, because the client's node may first have to notice that its
	// connection to the leader is broken.
	queueWithin = 800 * time.Millisecond
	// lateReply is how long after the end of a client's connection a node may
	// still send a reply to the client, because it has not noticed the end.
	lateReply = 100 * time.Millisecond
)

// LockQueues checks the history of locks with a queue of waiters.
//
//   - Owners rely on a lock at the same time only if their modes permit it.
//   - An answered grant is not lost before its lease ends, and a lease does not
//     end late.
//   - Fencing tokens grow over all locks.
//   - Waiters get the lock in the order in which they came, before clients that
//     come later, and keep their positions in the queue.
//   - A lock is not free while clients wait for it, and no waiter is forgotten.
//   - A client whose connection has ended leaves the queue, and a grant that it
//     receives afterward passes to another waiter.
//   - A lock delay begins when a lease expires or a grant is broken. No client gets
//     the lock until the delay ends, and the delay ends on time.
//
// health says when a lease must have ended. steady says when the order and the
// times of the queue are checked: while a leader can reach all nodes that are
// running. They are not checked in the intervals of steady.Ill. Each of these
// intervals ends some time after the cluster is whole again. Without views, only
// the first three guarantees are checked, and not whether a lease ends late.
func LockQueues(h LockHistory, health, steady *Health) (checked int, bad []Violation) {
	q := &lockQueues{health: health, steady: steady, leaves: h.LeaveWithin, delays: h.Delays,
		delaysSince: h.DelaysSince, owners: make(map[string]*ownership)}
	byLock := make(map[string]*lockQueue)
	get := func(lock string) *lockQueue {
		l := byLock[lock]
		if l == nil {
			l = &lockQueue{lockQueues: q, name: lock}
			byLock[lock] = l
		}
		return l
	}
	for _, c := range h.Calls {
		l := get(c.Lock)
		o := q.owners[c.Owner]
		if o == nil {
			o = &ownership{since: c.Call}
			q.owners[c.Owner] = o
			l.owners = append(l.owners, o)
		}
		o.calls = append(o.calls, c)
		o.since = min(o.since, c.Call)
	}
	for _, b := range h.Breaks {
		get(b.Lock).breaks = append(get(b.Lock).breaks, b)
	}
	for _, v := range h.Views {
		get(v.Lock).views = append(get(v.Lock).views, v)
	}
	for _, name := range slices.Sorted(maps.Keys(byLock)) {
		byLock[name].check()
	}
	q.tokens()
	return len(h.Calls) + len(h.Views), q.bad
}

// lockQueues is the check of all locks.
type lockQueues struct {
	health, steady *Health
	leaves         time.Duration // LeaveWithin
	delays         map[string]time.Duration
	delaysSince    time.Duration
	owners         map[string]*ownership
	grants         []*ownership // the grants in replies that arrived
	bad            []Violation
}

// lockQueue is the part of the history about one lock.
type lockQueue struct {
	*lockQueues
	name   string
	owners []*ownership
	breaks []LockBreak
	views  []*LockView // in order
}

// ownership is the history of one owner of a lock.
type ownership struct {
	calls []*LockCall
	since time.Duration // when the owner asked for the first time
	// queued contains the views that show the owner in the queue, and held
	// those that show it as a holder.
	queued, held []*LockView
	// waited is the last time at which the owner was seen in the queue, 0 for
	// never.
	waited time.Duration

	// These are set if a call was answered with a token.
	token   int64
	granted time.Duration // when the first reply with the token arrived
	begun   time.Duration // the grant began after this time
	until   time.Duration // the owner could rely on the lock until this time
	// The lease ended after clock, a time on the clock of the views, unless the
	// owner or a break ended the grant earlier. ended is the first time of the
	// history at which the owner or a break may have done that.
	clock, ended time.Duration
}

// again reports whether the owner repeated its command. Several waiters may then
// have the same owner.
func (o *ownership) again() bool { return len(o.calls) > 1 }

func (o *ownership) call() *LockCall { return o.calls[0] }

func (q *lockQueues) say(check, lock string, from, to time.Duration, format string, args ...any) {
	q.bad = append(q.bad, Violation{check, lock, fmt.Sprintf(format, args...), from, to})
}

func (l *lockQueue) check() {
	slices.SortStableFunc(l.views, func(a, b *LockView) int { return cmp.Compare(a.Call, b.Call) })
	for _, v := range l.views {
		for _, w := range v.Waiters {
			if o := l.lockQueues.owners[w.Owner]; o != nil {
				o.waited = max(o.waited, v.Call)
				o.queued = append(o.queued, v)
			}
		}
		for _, h := range v.Holders {
			if o := l.lockQueues.owners[h.Owner]; o != nil {
				o.held = append(o.held, v)
			}
		}
	}
	var granted []*ownership
	for _, o := range l.owners {
		if l.grant(o); o.token != 0 {
			granted = append(granted, o)
		}
	}
	l.grants = append(l.grants, granted...)
	slices.SortStableFunc(granted, func(a, b *ownership) int { return cmp.Compare(a.granted, b.granted) })
	l.together(granted)
	l.kept(granted)
	l.inOrder()
	l.overtaken()
	l.free()
	l.delayed()
	l.undelayed()
	for _, o := range l.owners {
		l.forgotten(o)
		l.passedOn(o)
		l.late(o)
	}
}

// grant determines when the owner could rely on the lock. A lease begins at the
// time stamp of the entry with the grant. The leader sets this time stamp after
// the client has sent the command. On the clock of the views, it is also after
// the owner was last seen in the queue.
func (l *lockQueue) grant(o *ownership) {
	for _, c := range o.calls {
		if c.Outcome != Done || c.Token == 0 {
			continue
		}
		switch {
		case o.token == 0:
			o.token, o.granted, o.begun = c.Token, c.Return, o.since
			if !o.again() {
				o.begun = max(o.begun, o.waited)
			}
		case o.token != c.Token && c.Call < o.until:
			l.say("lock token", l.name, c.Call, c.Return, "%v, while it held the lock with token %d", c, o.token)
		}
		o.granted = min(o.granted, c.Return)
		o.until = max(o.until, c.Call+c.TTL)
	}
	if o.token == 0 {
		return
	}
	if n := len(o.queued); n > 0 && !o.again() && o.queued[n-1].Clock > 0 {
		o.clock = o.queued[n-1].Clock + o.call().TTL
	}
	o.ended = l.broken(o)
	for _, c := range o.calls {
		for _, s := range c.Steps {
			l.step(o, c, s)
		}
	}
	o.until = min(o.until, o.ended)
}

// step checks a command of an owner, and determines how long the owner can rely
// on the lock afterward.
func (l *lockQueue) step(o *ownership, c *LockCall, s LockStep) {
	switch {
	case s.Outcome == Refused:
	case s.Kind == LockRelease:
		if s.Outcome == Done && !s.Mine && s.Return < min(o.until, l.broken(o)) {
			l.lost(o, s)
		}
		o.ended = min(o.ended, s.Call)
		if o.until = min(o.until, s.Call); s.Outcome == Done && s.Mine {
			o.until = s.Call // the owner held the lock until then
		}
	case s.Outcome != Done:
	case !s.Mine:
		if s.Return < min(o.until, l.broken(o)) {
			l.lost(o, s)
		}
	case s.Token != 0 && s.Token != o.token:
		l.say("lock token", l.name, s.Call, s.Return, "%v, and its %s at %v returned token %d", c, s.Kind, s.Call,
			s.Token)
	case s.Kind == LockRenew:
		o.until = max(o.until, s.Call+c.TTL)
	default:
		o.until = max(o.until, s.Call)
	}
}

func (l *lockQueue) lost(o *ownership, s LockStep) {
	l.say("lock not lost", l.name, s.Call, o.until, "%v, and could rely on it until %v, but its %s from %v to %v "+
		"found that it did not hold it", o.call(), o.until, s.Kind, s.Call, s.Return)
}

// broken returns the first time at which a break may have ended the grant of an
// owner.
func (l *lockQueue) broken(o *ownership) time.Duration {
	first := Forever
	for _, b := range l.breaks {
		end := b.Return
		if b.Outcome == Unknown {
			end = Forever
		}
		hit := b.Outcome == Unknown || b.Outcome == Done && b.Broke
		if hit && (b.Token == 0 || b.Token == o.token) && end >= o.begun {
			first = min(first, b.Call)
		}
	}
	return first
}

// together finds owners that could rely on a lock at the same time, although
// they must not hold it together.
func (l *lockQueue) together(granted []*ownership) {
	var now []*ownership
	for _, o := range granted {
		if o.until <= o.granted {
			continue
		}
		now = slices.DeleteFunc(now, func(p *ownership) bool { return p.until <= o.granted })
		mode := o.call().Mode
		n := 1
		for _, p := range now {
			if other := p.call().Mode; other != mode {
				l.say("lock exclusion", l.name, o.granted, min(o.until, p.until),
					"%v, while %s (%v) could rely on it until %v", o.call(), p.call().Owner, other, p.until)
				continue
			}
			n++
		}
		if now = append(now, o); !mode.permits(n) {
			p := now[len(now)-2]
			l.say("lock exclusion", l.name, o.granted, min(o.until, p.until),
				"%v, as owner number %d that could rely on the lock at %v; %s could rely on it until %v", o.call(), n,
				o.granted, p.call().Owner, p.until)
		}
	}
}

// kept finds owners that could rely on a lock although a view shows that they
// did not hold it. It also finds views with more holders than the mode permits.
func (l *lockQueue) kept(granted []*ownership) {
	for _, o := range granted {
		for _, v := range l.between(o.granted, o.ended) {
			leased := v.Return < o.until || v.Clock > 0 && v.Clock < o.clock && v.Return < o.ended
			if v.Call > o.granted && leased && !v.holds(o.call().Owner, o.token) {
				l.say("lock not lost", l.name, v.Call, o.until,
					"%v, and could rely on it until %v, but at %v the holders were %v", o.call(), o.until, v.Call,
					v.Holders)
				break
			}
		}
	}
	for _, v := range l.views {
		if len(v.Holders) > 0 && !v.Mode.permits(len(v.Holders)) {
			l.say("lock exclusion", l.name, v.Call, v.Return, "%d owners held the lock (%v)", len(v.Holders), v.Mode)
		}
	}
}

// between returns the views that were requested in the interval [from, to).
func (l *lockQueue) between(from, to time.Duration) []*LockView {
	at := func(t time.Duration) int {
		i, _ := slices.BinarySearchFunc(l.views, t, func(v *LockView, t time.Duration) int {
			return cmp.Compare(v.Call, t)
		})
		return i
	}
	return l.views[at(from):max(at(from), at(to))]
}

func (v *LockView) holds(owner string, token int64) bool {
	return slices.ContainsFunc(v.Holders, func(h LockHolder) bool {
		return h.Owner == owner && (token == 0 || h.Token == token)
	})
}

func (v *LockView) position(owner string) int {
	return slices.IndexFunc(v.Waiters, func(w LockWaiter) bool { return w.Owner == owner })
}

// gone reports whether the position of a waiting client in the queue cannot be
// known at a time. This is the case after its connection has ended, and for an
// owner that is not in the history or has repeated its command.
func (l *lockQueue) gone(owner string, at time.Duration) bool {
	o := l.lockQueues.owners[owner]
	return o == nil || o.again() || o.call().Left != 0 && o.call().Left <= at
}

// mayBreak reports whether a break may have ended a grant between two times. If
// a break ends the grant of a waiter before the waiter's node has claimed it,
// the node executes the command again, and the client enters the queue at its
// end. So another client may get the lock first.
func (l *lockQueue) mayBreak(from, to time.Duration) bool {
	return slices.ContainsFunc(l.breaks, func(b LockBreak) bool {
		return b.Outcome == Unknown || b.Outcome == Done && b.Broke && b.Call < to && b.Return > from
	})
}

// inOrder compares each view with the next one. An owner that got the lock must
// have been ahead of the remaining waiters, and the remaining waiters must keep
// their order.
func (l *lockQueue) inOrder() {
	for i := 1; i < len(l.views); i++ {
		a, b := l.views[i-1], l.views[i]
		if !l.steady.Well(a.Call, b.Return) || l.mayBreak(a.Call, b.Return) {
			continue
		}
		behind := -1 // last position in view b of a waiter that view a has too
		first := -1  // position of the first waiter of view a that still waits
		for at, w := range a.Waiters {
			n := b.position(w.Owner)
			if n < 0 || l.gone(w.Owner, b.Return) {
				continue
			}
			if first < 0 {
				first = at
			}
			if n < behind {
				l.say("lock order", l.name, a.Call, b.Return, "%s waited behind %s at %v, and before it at %v",
					w.Owner, b.Waiters[behind].Owner, a.Call, b.Call)
			}
			behind = max(behind, n)
		}
		if first < 0 {
			continue
		}
		for n, w := range b.Waiters[:behind] {
			if a.position(w.Owner) < 0 && !a.holds(w.Owner, 0) && !l.gone(w.Owner, b.Return) {
				l.say("lock order", l.name, a.Call, b.Return, "%s came after %v, and was at position %d in front of "+
					"%s", w.Owner, a.Call, n, b.Waiters[behind].Owner)
			}
		}
		for _, h := range b.Holders {
			if at := a.position(h.Owner); !a.holds(h.Owner, h.Token) && (at < 0 || at > first) {
				l.say("lock order", l.name, a.Call, b.Return,
					"%s got the lock between %v and %v, and %s, which waited before, did not", h.Owner, a.Call,
					b.Return, a.Waiters[first].Owner)
			}
		}
	}
}

// overtaken finds owners that asked for a lock after another client was seen in
// the queue, but got the lock before that client. Tokens grow in the order of the
// grants, so overtaken also finds what happened between two views.
func (l *lockQueue) overtaken() {
	bySince := slices.Clone(l.owners)
	slices.SortStableFunc(bySince, func(a, b *ownership) int { return cmp.Compare(a.since, b.since) })
	for _, a := range l.owners {
		if len(a.queued) == 0 || a.again() {
			continue
		}
		seen, end := a.queued[0], a.waited // owner a waited from seen until end
		if a.token != 0 {
			end = max(end, a.granted)
		}
		if l.mayBreak(seen.Call, end) {
			continue
		}
		from, _ := slices.BinarySearchFunc(bySince, seen.Return, func(o *ownership, t time.Duration) int {
			return cmp.Compare(o.since, t+1)
		})
		for _, b := range bySince[from:] {
			if b.since > end {
				break
			}
			first := b.token != 0 && (a.token != 0 && b.token < a.token || a.token == 0 && b.granted < a.waited)
			if !first || b.again() || l.gone(a.call().Owner, b.granted) ||
				!l.steady.Well(seen.Call, max(end, b.granted)) {
				continue
			}
			l.say("lock order", l.name, seen.Call, b.granted, "%v, but %v, although it was in the queue at %v",
				b.call(), a.call(), seen.Call)
		}
	}
}

// free finds intervals in which the first waiter could have got the lock and
// did not get it.
func (l *lockQueue) free() {
	var from *LockView
	for i, v := range l.views {
		idle := v.Delay == 0 && len(v.Waiters) > 0 && !l.gone(v.Waiters[0].Owner, v.Return) && v.open(v.Waiters[0].Mode)
		if !idle || i > 0 && !l.steady.Well(l.views[i-1].Call, v.Return) {
			from = nil
			continue
		}
		if from == nil || from.Waiters[0] != v.Waiters[0] {
			from = v
		}
		if v.Call-from.Return > wakeWithin {
			l.say("lock wake-up", l.name, from.Return, v.Call,
				"%s was the first waiter from %v to %v, and could have got the lock: the holders were %v",
				v.Waiters[0].Owner, from.Return, v.Call, v.Holders)
			from = nil
		}
	}
}

// open reports whether an owner that requests the lock in the given mode may
// hold it together with the current holders, if there are any.
func (v *LockView) open(mode LockMode) bool {
	n := len(v.Holders)
	return n == 0 || v.Mode == mode && mode != LockMode{} && mode.permits(n+1)
}

// forgotten finds a client that waits and is not in the queue.
func (l *lockQueue) forgotten(o *ownership) {
	c := o.call()
	if !c.Waits || c.Outcome == Refused || o.again() {
		return
	}
	end := c.Return
	if c.Outcome == Unknown {
		if end = c.Left; end == 0 {
			return
		}
	}
	from, limit := c.Call, max(l.leaves, queueWithin)
	for _, v := range l.between(c.Call, end) {
		in := v.position(c.Owner) >= 0 || v.holds(c.Owner, 0)
		if in {
			limit = queueWithin
		}
		if in || !l.steady.Well(from, v.Return) {
			from = v.Return
			continue
		}
		if v.Call-from > limit {
			l.say("lock queue", l.name, from, v.Call, "%v; it was not in the queue from %v to %v", c, from, v.Call)
			return
		}
	}
}

// passedOn finds a client whose connection has ended and that is still in the
// queue, or holds the lock although it cannot have got the reply.
func (l *lockQueue) passedOn(o *ownership) {
	c := o.call()
	if c.Left == 0 || o.again() {
		return
	}
	counts := func(v *LockView) bool {
		return v.Call > c.Left+l.leaves && l.steady.Well(v.Call-l.leaves, v.Return)
	}
	if i := slices.IndexFunc(o.queued, counts); i >= 0 {
		l.say("lock passed on", l.name, c.Left, o.queued[i].Call, "%v: its connection ended at %v, and it waited at %v",
			c, c.Left, o.queued[i].Call)
		return
	}
	if o.waited < c.Left+lateReply {
		return // the node may have sent the reply to the client
	}
	for _, v := range o.held {
		if counts(v) && v.Call-o.waited > l.leaves {
			l.say("lock passed on", l.name, c.Left, v.Call,
				"%v: its connection ended at %v, when it waited, and it held the lock at %v", c, c.Left, v.Call)
			return
		}
	}
}

// late finds an owner that held the lock long after the end of its lease, and an
// owner that held it although its command was refused.
func (l *lockQueue) late(o *ownership) {
	end, refused := time.Duration(0), true
	for _, c := range o.calls {
		if c.Outcome == Refused {
			continue
		}
		refused = false
		if c.Outcome == Unknown {
			end = Forever
			continue
		}
		end = max(end, l.health.Gone(c.Return, c.TTL))
		for _, s := range c.Steps {
			switch {
			case s.Kind != LockRenew || s.Outcome == Refused:
			case s.Outcome == Unknown:
				end = Forever
			case s.Mine:
				end = max(end, l.health.Gone(s.Return, c.TTL))
			}
		}
	}
	c := o.call()
	for _, v := range o.held {
		if refused {
			l.say("lock refused", l.name, c.Call, v.Return, "%v as not executed, but held the lock at %v", c, v.Call)
			return
		}
		if v.Call > end {
			l.say("lock late expiry", l.name, end, v.Call,
				"%v; its lease had ended at %v, and it held the lock at %v", c, end, v.Call)
			return
		}
	}
}

// tokens finds fencing tokens that do not grow from grant to grant, over all
// locks.
func (q *lockQueues) tokens() {
	byToken := make(map[int64]*ownership)
	for _, o := range q.grants {
		if other := byToken[o.token]; other != nil {
			q.say("lock token", o.call().Lock, o.call().Call, o.granted, "%v, although %v for the lock %s", o.call(),
				other.call(), other.call().Lock)
		}
		byToken[o.token] = o
	}
	granted := slices.Clone(q.grants)
	slices.SortStableFunc(granted, func(a, b *ownership) int { return cmp.Compare(a.granted, b.granted) })
	begun := slices.Clone(q.grants)
	slices.SortStableFunc(begun, func(a, b *ownership) int { return cmp.Compare(a.begun, b.begun) })
	var highest *ownership
	next := 0
	for _, o := range begun {
		for ; next < len(granted) && granted[next].granted < o.begun; next++ {
			if g := granted[next]; highest == nil || g.token > highest.token {
				highest = g
			}
		}
		if highest != nil && o.token < highest.token {
			q.say("lock token", o.call().Lock, highest.granted, o.granted, "%v, after %v for the lock %s", o.call(),
				highest.call(), highest.call().Lock)
		}
	}
}

// LockViewOf returns the view of a lock that a reply to LOCK INFO describes.
// The reply is null if the lock is free and no client waits for it.
func LockViewOf(lock string, reply respwire.Value) LockView {
	v := LockView{Lock: lock}
	info := fieldsOf(reply)
	v.Mode = lockModeOf(info)
	v.Delay = time.Duration(info["delay-ms"].Int) * time.Millisecond
	for _, e := range info["waiters"].Elems {
		w := fieldsOf(e)
		v.Waiters = append(v.Waiters, LockWaiter{w["owner"].Text, lockModeOf(w)})
	}
	if holders, many := info["holders"]; many {
		for _, e := range holders.Elems {
			h := fieldsOf(e)
			v.Holders = append(v.Holders, LockHolder{h["owner"].Text, h["token"].Int})
		}
	} else if owner, held := info["owner"]; held && !owner.Null {
		v.Holders = []LockHolder{{owner.Text, info["token"].Int}}
	}
	return v
}

// fieldsOf returns the fields of a map, or of the array that RESP2 uses instead
// of a map.
func fieldsOf(v respwire.Value) map[string]respwire.Value {
	m := make(map[string]respwire.Value)
	for i := 0; i+1 < len(v.Elems); i += 2 {
		m[v.Elems[i].Text] = v.Elems[i+1]
	}
	return m
}

func lockModeOf(fields map[string]respwire.Value) LockMode {
	return LockMode{Shared: fields["mode"].Text == "shared", Limit: int(fields["limit"].Int)}
}
