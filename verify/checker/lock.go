package checker

import (
	"fmt"
	"sort"
	"time"
)

// Hold is one client's attempt to take a lock (SET … NX PX) that succeeded or
// whose outcome is unknown.
type Hold struct {
	Lock, Token string
	Client      int
	TTL         time.Duration
	Call        time.Duration // when the acquiring command was sent
	Granted     time.Duration // when that command was answered; Forever if its outcome is unknown
	Renewals    []Step        // in the order in which they were sent
	Release     *Step         // nil if the owner let the lock expire
	Fence       int64         // fencing token, 0 for none
}

// Step is a later command of an owner about its lock: a renewal with the same
// time to live, or a release.
type Step struct {
	Call, Return time.Duration
	Outcome      Outcome
	Mine         bool // whether the lock still belonged to this owner, according to the reply; valid only if Done
}

// Refusal is a failed attempt to take a lock: another owner held the lock.
type Refusal struct {
	Lock         string
	Client       int
	Call, Return time.Duration
}

// reliableUntil returns the time until which the owner could rely on the lock.
// A time to live begins when a leader stamps the entry. This is after the
// client has sent the command, so the lock lasts at least until the call plus
// the time to live. A renewal counts only if its reply says that it succeeded.
func (h *Hold) reliableUntil(health *Health) time.Duration {
	end := h.Call + h.TTL
	for _, r := range h.Renewals {
		if r.Outcome == Done && r.Mine {
			end = max(end, r.Call+h.TTL)
		}
	}
	end -= health.early()
	if h.Release != nil {
		end = min(end, h.Release.Call)
	}
	return end
}

// possibleUntil returns the latest time until which the owner may have had the
// lock.
func (h *Hold) possibleUntil(health *Health) time.Duration {
	if h.Granted == Forever {
		return Forever
	}
	end := health.Gone(h.Granted, h.TTL)
	for _, r := range h.Renewals {
		switch {
		case r.Outcome == Unknown:
			return Forever // a command of unknown outcome may be executed at any later time
		case r.Outcome == Done && r.Mine:
			end = max(end, health.Gone(r.Return, h.TTL))
		}
	}
	// A release that was answered proves that the grant has ended, whether the
	// release freed the lock or found it gone.
	if h.Release != nil && h.Release.Outcome == Done {
		end = min(end, h.Release.Return)
	}
	return end
}

// LockResult is the result of Locks.
type LockResult struct {
	Grants, Expired int // Expired counts the grants that were left to expire
	Violations      []Violation
}

// Locks checks the holds and refusals of a history.
func Locks(holds []Hold, refusals []Refusal, health *Health) LockResult {
	var res LockResult
	byLock := make(map[string][]*Hold)
	for i := range holds {
		h := &holds[i]
		if h.Granted != Forever {
			res.Grants++
			if h.Release == nil {
				res.Expired++
			}
		}
		byLock[h.Lock] = append(byLock[h.Lock], h)
	}
	refused := make(map[string][]Refusal)
	for _, r := range refusals {
		refused[r.Lock] = append(refused[r.Lock], r)
	}
	locks := make([]string, 0, len(byLock))
	for lock := range byLock {
		locks = append(locks, lock)
	}
	for lock := range refused {
		if byLock[lock] == nil {
			locks = append(locks, lock)
		}
	}
	sort.Strings(locks)
	for _, lock := range locks {
		all := byLock[lock]
		sort.Slice(all, func(i, j int) bool { return all[i].Granted < all[j].Granted })
		res.Violations = append(res.Violations, overlaps(all, health)...)
		res.Violations = append(res.Violations, lost(all, health)...)
		res.Violations = append(res.Violations, fences(all)...)
		res.Violations = append(res.Violations, late(all, refused[lock], health)...)
	}
	return res
}

// overlaps finds two owners that could rely on the lock at the same moment.
// Either the cluster granted the lock twice, or the lock expired early.
func overlaps(all []*Hold, health *Health) []Violation {
	var bad []Violation
	var longest *Hold
	for _, h := range all {
		if h.Granted == Forever || h.reliableUntil(health) <= h.Granted {
			continue // the owner could no longer rely on the lock when the reply arrived
		}
		if p := longest; p != nil && h.Granted < p.reliableUntil(health) {
			bad = append(bad, Violation{"mutual exclusion", h.Lock,
				fmt.Sprintf("%s could rely on the lock until %v, but %s got the lock at %v", p.Token,
					p.reliableUntil(health), h.Token, h.Granted),
				h.Granted, min(p.reliableUntil(health), h.reliableUntil(health))})
		}
		if longest == nil || h.reliableUntil(health) > longest.reliableUntil(health) {
			longest = h
		}
	}
	return bad
}

// lost finds owners that lost the lock before the end of its time to live,
// according to a reply.
func lost(all []*Hold, health *Health) []Violation {
	var bad []Violation
	for _, h := range all {
		if h.Granted == Forever {
			continue
		}
		end := h.Call + h.TTL - health.early()
		check := func(what string, s Step) {
			if s.Outcome == Done && !s.Mine && s.Return < end {
				bad = append(bad, Violation{"lock not lost", h.Lock,
					fmt.Sprintf("%s could rely on the lock until %v, but its %s at %v found another owner, or none",
						h.Token, end, what, s.Return), s.Call, end})
			}
		}
		for _, r := range h.Renewals {
			check("renewal", r)
			if r.Outcome == Done && r.Mine {
				end = max(end, r.Call+h.TTL-health.early())
			}
		}
		if h.Release != nil {
			check("release", *h.Release)
		}
	}
	return bad
}

// fences finds fencing tokens that did not grow from grant to grant.
func fences(all []*Hold) []Violation {
	var bad []Violation
	byCall := make([]*Hold, 0, len(all))
	for _, h := range all {
		if h.Fence != 0 && h.Granted != Forever {
			byCall = append(byCall, h)
		}
	}
	byGrant := append([]*Hold{}, byCall...) // all is sorted by the time of the grant
	sort.Slice(byCall, func(i, j int) bool { return byCall[i].Call < byCall[j].Call })
	var highest *Hold
	seen := make(map[int64]*Hold)
	next := 0
	for _, h := range byCall {
		for ; next < len(byGrant) && byGrant[next].Granted < h.Call; next++ {
			if g := byGrant[next]; highest == nil || g.Fence > highest.Fence {
				highest = g
			}
		}
		if highest != nil && h.Fence <= highest.Fence {
			bad = append(bad, Violation{"fencing", h.Lock,
				fmt.Sprintf("%s got fencing token %d after %s had got %d", h.Token, h.Fence, highest.Token,
					highest.Fence), h.Call, h.Granted})
		} else if other := seen[h.Fence]; other != nil {
			bad = append(bad, Violation{"fencing", h.Lock,
				fmt.Sprintf("%s and %s got the same fencing token %d", other.Token, h.Token, h.Fence),
				h.Call, h.Granted})
		}
		seen[h.Fence] = h
	}
	return bad
}

// late finds refusals that no grant can explain: the cluster refused a lock
// although every earlier grant must have ended.
func late(all []*Hold, refused []Refusal, health *Health) []Violation {
	if health == nil || !health.Known {
		return nil
	}
	type reach struct{ from, to time.Duration }
	reaches := make([]reach, len(all))
	for i, h := range all {
		reaches[i] = reach{h.Call, h.possibleUntil(health)}
	}
	sort.Slice(reaches, func(i, j int) bool { return reaches[i].from < reaches[j].from })
	sort.Slice(refused, func(i, j int) bool { return refused[i].Return < refused[j].Return })
	var bad []Violation
	furthest, next := time.Duration(-1), 0
	for _, r := range refused {
		for ; next < len(reaches) && reaches[next].from <= r.Return; next++ {
			furthest = max(furthest, reaches[next].to)
		}
		if furthest < r.Call {
			bad = append(bad, Violation{"late expiry", r.Lock,
				fmt.Sprintf("client %d was refused the lock at %v, although no client can have owned it since %v",
					r.Client, r.Call, furthest), furthest, r.Return})
		}
	}
	return bad
}
