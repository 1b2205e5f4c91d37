package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// LockPast is the past of a lock as a node reports it: the reply to LOCK HISTORY.
type LockPast struct {
	Node, Lock string
	Grants     []LockGrant // in the order of their tokens
	// Gaps says that the node lacks a part of the history. GapEnd is the end of the
	// last gap. It is not known if Removed is set, which says that the node has
	// removed the beginning of the history.
	Gaps, Removed bool
	GapEnd        time.Duration
	Until         time.Duration // time up to which the reply is complete
	// From is the lowest token of a reply that contains the largest possible
	// number of grants. It is 0 if the reply contains fewer.
	From int64
}

// LockGrant is one grant in the past of a lock. The times are on the wall clock
// of the cluster, since 1970.
type LockGrant struct {
	Owner    string
	Token    int64
	Mode     LockMode
	How      string // how the grant ended
	Acquired time.Duration
	Ended    time.Duration // 0 if the grant has not ended
	Waited   time.Duration
}

// These are the values of LockGrant.How that the checker knows.
const (
	pastHeld        = "held"
	pastUnknown     = "unknown"
	pastReleased    = "released"
	pastExpired     = "expired"
	pastBroken      = "broken"
	pastUndelivered = "undelivered"
	pastRestored    = "restored"
)

// MostGrants is the largest number of grants in one reply to LOCK HISTORY.
const MostGrants = 1000

// handOverWithin is how much time may pass between the end of a grant and the next
// grant if a client waited. One entry ends the first grant and begins the next one,
// so their times are equal, except that they are rounded to milliseconds.
const handOverWithin = time.Millisecond

// LockPasts compares the nodes' histories of locks with each other and with what
// clients saw.
//
//   - All nodes report the same grants, with the same times and ends. No two grants
//     have the same token.
//   - All nodes report each grant that a client learned of, with its owner, its
//     token and its mode, and with the end that the client saw.
//   - Every owner that a node reports was used by a client that asked for this
//     lock.
//   - If a client waited for an exclusive lock, it got the lock at the moment at
//     which the previous grant ended.
//
// A node that reports a gap may lack the grants that ended by the end of the gap,
// but no others: after the gap, the node knows who holds a lock. This is not checked
// if the wall clock of the cluster went back. steady is the same as for
// LockQueues; began is the wall clock at the start of h. The last rule is
// checked only while the cluster was steady. It is not checked for a lock that
// also had grants in another mode, for a node that reports a gap, nor if the
// wall clock of the cluster went back.
func LockPasts(h LockHistory, pasts []LockPast, began time.Duration, steady *Health) (checked int, bad []Violation) {
	p := &lockPasts{steady: steady, began: began, owners: make(map[string][]*LockCall)}
	for _, c := range h.Calls {
		p.owners[c.Owner] = append(p.owners[c.Owner], c)
	}
	byLock := make(map[string][]*LockPast)
	var locks []string
	for i := range pasts {
		past := &pasts[i]
		if byLock[past.Lock] == nil {
			locks = append(locks, past.Lock)
		}
		byLock[past.Lock] = append(byLock[past.Lock], past)
		checked += len(past.Grants)
		p.wentBack = p.wentBack || past.wentBack()
	}
	for _, lock := range locks {
		all := byLock[lock]
		p.equal(all)
		for _, past := range all {
			p.asSeen(past, h)
			p.handedOver(past)
		}
	}
	return checked, p.bad
}

type lockPasts struct {
	steady *Health
	began  time.Duration
	owners map[string][]*LockCall
	// wentBack says that the wall clock of the cluster went back.
	wentBack bool
	bad      []Violation
}

func (p *lockPasts) say(lock, format string, args ...any) {
	p.bad = append(p.bad, Violation{Check: "lock history", Key: lock, Text: fmt.Sprintf(format, args...)})
}

// find returns the grant with the given token, or nil if there is none.
func (l *LockPast) find(token int64) *LockGrant {
	i, found := slices.BinarySearchFunc(l.Grants, token, func(g LockGrant, t int64) int {
		return cmp.Compare(g.Token, t)
	})
	if !found {
		return nil
	}
	return &l.Grants[i]
}

// lacks reports whether the node should report a grant and does not. held is a time
// at which the owner had the lock, 0 if none is known.
func (l *LockPast) lacks(token int64, held time.Duration) bool {
	if token <= l.From || l.find(token) != nil {
		return false
	}
	return !l.Gaps || !l.Removed && held > l.GapEnd && l.Until > l.GapEnd
}

// wentBack reports whether the times of the grants show that the wall clock of the
// cluster went back. Such times do not tell in which order things happened.
func (l *LockPast) wentBack() bool {
	latest := time.Duration(0)
	for _, g := range l.Grants {
		if g.Acquired == 0 {
			continue
		}
		if g.Acquired < latest || g.Ended != 0 && g.Ended < g.Acquired || max(g.Acquired, g.Ended) > l.Until {
			return true
		}
		latest = g.Acquired
	}
	return false
}

// heldAt returns the last time at which the owner of a grant had the lock as far as
// a node knows. It returns 0 if that is not known, or if the wall clock went back.
func (p *lockPasts) heldAt(l *LockPast, g LockGrant) time.Duration {
	switch {
	case p.wentBack || g.How == pastUnknown:
		return 0
	case g.How == pastHeld:
		return l.Until
	}
	return g.Ended - time.Millisecond // the times are rounded to milliseconds
}

// equal compares the grants that each node reports with those of every other
// node. It also finds two grants with the same token.
func (p *lockPasts) equal(all []*LockPast) {
	for _, a := range all {
		for i := 1; i < len(a.Grants); i++ {
			if g, h := a.Grants[i-1], a.Grants[i]; g.Token == h.Token {
				p.say(a.Lock, "%s reports %v, and %v", a.Node, g, h)
			}
		}
		for _, g := range a.Grants {
			for _, b := range all {
				o := b.find(g.Token)
				switch {
				case b.lacks(g.Token, p.heldAt(a, g)):
					p.say(a.Lock, "%s knows the grant %v, and %s does not", a.Node, g, b.Node)
				case o == nil || a.Node >= b.Node: // each pair of nodes is compared once, in the order of their names
				case !sameGrant(g, *o):
					p.say(a.Lock, "%s reports %v, and %s reports %v", a.Node, g, b.Node, *o)
				}
			}
		}
	}
}

// sameGrant compares what two nodes report about a grant. A node may have been
// asked before the end of the grant, or may not know its beginning or its end.
func sameGrant(a, b LockGrant) bool {
	open := func(g LockGrant) bool { return g.How == pastHeld || g.How == pastUnknown }
	if open(a) || open(b) {
		a.How, a.Ended = b.How, b.Ended
	}
	if a.Acquired == 0 || b.Acquired == 0 {
		a.Acquired, a.Mode, a.Waited = b.Acquired, b.Mode, b.Waited
	}
	return a == b
}

// asSeen compares the history of a node with what the clients saw.
func (p *lockPasts) asSeen(past *LockPast, h LockHistory) {
	for _, g := range past.Grants {
		calls := p.owners[g.Owner]
		switch {
		case len(calls) == 0:
			p.say(past.Lock, "%s reports %v, but no client used this owner", past.Node, g)
		case calls[0].Lock != past.Lock:
			p.say(past.Lock, "%s reports %v, but its client asked for %s", past.Node, g, calls[0].Lock)
		case g.Acquired != 0 && g.Mode != calls[0].Mode:
			p.say(past.Lock, "%s reports %v, but its client asked for %v", past.Node, g, calls[0].Mode)
		}
	}
	broken := make(map[int64]bool)
	anyBreak := false
	for _, b := range h.Breaks {
		if b.Lock != past.Lock || b.Outcome == Refused {
			continue
		}
		if anyBreak = true; b.Outcome == Done && b.Broke && b.Token != 0 {
			broken[b.Token] = true
		}
	}
	granted := make(map[int64]bool)
	for _, c := range h.Calls {
		if c.Lock != past.Lock || c.Outcome != Done || c.Token == 0 || granted[c.Token] {
			continue
		}
		granted[c.Token] = true
		g := past.find(c.Token)
		if g == nil {
			if past.lacks(c.Token, 0) {
				p.say(past.Lock, "%s does not know the grant of %v", past.Node, c)
			}
			continue
		}
		if g.Owner != c.Owner {
			p.say(past.Lock, "%s reports %v, but %v", past.Node, *g, c)
		}
		if want := p.ends(c.Owner, c.Token, broken, anyBreak); !slices.Contains(want, g.How) {
			p.say(past.Lock, "%s reports %v, but %v, and the grant must have ended as one of %v", past.Node, *g, c,
				want)
		}
	}
}

// ends returns the ways in which a grant that a client learned of can have
// ended.
func (p *lockPasts) ends(owner string, token int64, broken map[int64]bool, anyBreak bool) []string {
	if broken[token] {
		return []string{pastBroken, pastUnknown}
	}
	can := []string{pastHeld, pastUnknown, pastExpired, pastRestored}
	if anyBreak {
		can = append(can, pastBroken)
	}
	for _, c := range p.owners[owner] {
		for _, s := range c.Steps {
			switch {
			case s.Kind != LockRelease || s.Outcome == Refused:
			case s.Outcome == Done && s.Mine && c.Token == token:
				return []string{pastReleased, pastUnknown, pastRestored}
			case s.Outcome == Unknown:
				can = append(can, pastReleased)
			}
		}
	}
	return can
}

// handedOver finds an interval between two grants in which the lock was free,
// although the next owner waited.
func (p *lockPasts) handedOver(past *LockPast) {
	if past.Gaps || slices.ContainsFunc(past.Grants, func(g LockGrant) bool { return g.Mode != LockMode{} }) ||
		!slices.IsSortedFunc(past.Grants, func(a, b LockGrant) int { return cmp.Compare(a.Acquired, b.Acquired) }) {
		return
	}
	for i := 1; i < len(past.Grants); i++ {
		a, b := past.Grants[i-1], past.Grants[i]
		waits := b.Waited > 2*handOverWithin && b.Acquired-b.Waited+2*handOverWithin < a.Ended
		from, to := a.Ended-p.began, b.Acquired-p.began
		if a.Ended == 0 || !waits || !p.steady.Well(from-wakeWithin, to+wakeWithin) {
			continue
		}
		if b.Acquired-a.Ended > handOverWithin {
			p.bad = append(p.bad, Violation{"lock wake-up", past.Lock,
				fmt.Sprintf("%s reports %v; the lock was then free for %v although %v waited", past.Node, a,
					b.Acquired-a.Ended, b), from, to})
		}
	}
}

func (g LockGrant) String() string {
	return fmt.Sprintf("token %d of %s (%v), which ended as %s", g.Token, g.Owner, g.Mode, g.How)
}

// LockPastOf returns what a reply to LOCK HISTORY reports.
func LockPastOf(node, lock string, reply respwire.Value) LockPast {
	past := LockPast{Node: node, Lock: lock}
	fields := fieldsOf(reply)
	millis := func(v respwire.Value) time.Duration { return time.Duration(v.Int) * time.Millisecond }
	past.Removed, past.Until = !fields["since-ms"].Null, millis(fields["until-ms"])
	past.Gaps = len(fields["gaps"].Elems) > 0 || past.Removed
	for _, e := range fields["gaps"].Elems {
		past.GapEnd = max(past.GapEnd, millis(fieldsOf(e)["to-ms"])+time.Millisecond)
	}
	for _, e := range fields["grants"].Elems {
		g := fieldsOf(e)
		past.Grants = append(past.Grants, LockGrant{Owner: g["owner"].Text, Token: g["token"].Int, Mode: lockModeOf(g),
			How: g["how"].Text, Acquired: millis(g["acquired-ms"]), Ended: millis(g["ended-ms"]),
			Waited: millis(g["waited-ms"])})
	}
	slices.SortFunc(past.Grants, func(a, b LockGrant) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), -cmp.Compare(a.Acquired, b.Acquired))
	})
	full := len(past.Grants) >= MostGrants // the reply may lack older grants
	// A restore may bring back a grant with its token. If a node reports such a
	// grant twice, once without the time of its beginning, keep the other
	// report.
	past.Grants = slices.CompactFunc(past.Grants, func(a, b LockGrant) bool {
		return a.Token == b.Token && (a.Acquired == 0 || b.Acquired == 0)
	})
	if full {
		past.From = past.Grants[0].Token
	}
	return past
}
