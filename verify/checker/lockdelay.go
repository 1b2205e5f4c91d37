package checker

import "time"

const (
	// delayRounding covers the rounding of LockView.Delay.
	delayRounding = time.Millisecond
	// delayWithin is how long after the end of a lock delay a view may still
	// show the delay.
	delayWithin = 800 * time.Millisecond
)

// LockDelays returns the number of lock delays that the views show. The views
// of each lock must be in order.
func LockDelays(views []*LockView) int {
	n := 0
	had := make(map[string]bool)
	for _, v := range views {
		if v.Delay > 0 && !had[v.Lock] {
			n++
		}
		had[v.Lock] = v.Delay > 0
	}
	return n
}

// delayed finds owners that got a lock during its delay, and delays that end too
// early or too late. Whether an end is too early is measured on the lease clock
// of the views, and whether it is too late by the times of the history.
func (l *lockQueue) delayed() {
	var from *LockView // the view so far whose lock delay ends last
	for i, v := range l.views {
		if v.Clock == 0 { // the lease clock of the view is not known, or has not started yet
			continue
		}
		// An exclusive lock has a delay only while it is free. If a view shows
		// both a delay and an owner, the lock was granted during the delay, for
		// example by the entry that began the delay.
		if v.Delay > 0 && len(v.Holders) > 0 && v.Mode == (LockMode{}) {
			l.say("lock delay", l.name, v.Call, v.Return,
				"%s held the lock with token %d at %v, although the delay of the lock had %v left",
				v.Holders[0].Owner, v.Holders[0].Token, v.Call, v.Delay)
			return
		}
		if from != nil && v.Clock+delayRounding < from.Clock+from.Delay {
			for _, h := range v.Holders {
				if !from.holds(h.Owner, h.Token) {
					l.say("lock delay", l.name, from.Call, v.Return, "%s got the lock with token %d by %v, although "+
						"at %v the delay of the lock had %v left", h.Owner, h.Token, v.Call, from.Call, from.Delay)
					return
				}
			}
			if v.Delay == 0 {
				l.say("lock delay", l.name, from.Call, v.Return, "the lock had no delay at %v, although at %v "+
					"its delay had %v left", v.Call, from.Call, from.Delay)
				return
			}
		}
		if v.Delay > 0 && (from == nil || v.Clock+v.Delay > from.Clock+from.Delay+delayRounding) {
			from = v
		}
		same := from != nil && v.Delay > 0 && v.Clock+v.Delay+delayRounding >= from.Clock+from.Delay
		if same && v.Call-from.Return > from.Delay+delayWithin && l.steady.Well(l.views[max(i-1, 0)].Call, v.Return) &&
			l.steady.Well(from.Call, v.Return) {
			l.say("lock delay", l.name, from.Call, v.Return, "the delay had %v left at %v, and %v left at %v",
				from.Delay, from.Call, v.Delay, v.Call)
			return
		}
	}
}

// undelayed finds grants that expired or were broken without a lock delay
// afterward.
func (l *lockQueue) undelayed() {
	delay := l.delays[l.name]
	if delay == 0 {
		return
	}
	for i, v := range l.views {
		if i == 0 || v.Delay > 0 {
			continue
		}
		before := l.views[i-1]
		if before.Call < l.delaysSince || before.Clock == 0 || v.Clock-before.Clock >= delay {
			continue
		}
		for _, h := range before.Holders {
			if v.holds(h.Owner, h.Token) || !l.expired(h) {
				continue
			}
			l.say("lock delay", l.name, before.Call, v.Return, "%s lost the lock with token %d between %v and %v, "+
				"and no delay began", h.Owner, h.Token, before.Call, v.Call)
			return
		}
	}
}

// expired reports whether a grant ended because its lease expired or because it
// was broken. An earlier view must show the grant, and the grant must have
// ended. expired returns true only if the client got the reply with the grant
// and never tried to release the lock. If the client got no reply, the grant
// may have passed to the next waiter, and no lock delay begins.
func (l *lockQueue) expired(h LockHolder) bool {
	o := l.lockQueues.owners[h.Owner]
	if o == nil || o.again() || o.token != h.Token {
		return false
	}
	for _, s := range o.call().Steps {
		if s.Kind == LockRelease {
			return false
		}
	}
	return true
}
