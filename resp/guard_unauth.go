package resp

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// unauthConns are the open connections of a listener that have not
// authenticated. They share a bounded number of places and a bounded rate of
// input, so that clients that do not log in cannot keep others from it.
//
// When the places are taken, or those of one address, a new connection takes the
// place of the oldest one: a client that logs in needs its place for a moment
// only. It is safe for concurrent use.
type unauthConns struct {
	mu     sync.Mutex
	n      int
	byAddr map[string]*list.List // of *Guard, the oldest first
	// free is when input that is charged now would be paid for: see charge.
	free time.Time
}

// unauthFree is how many bytes of input a connection may send before it logs in
// at no charge: several times what any client library sends.
const unauthFree = 16 << 10

// unauthCommand is what a command is charged beside its bytes.
const unauthCommand = 256

// unauthPause is the longest time for which one read is held up.
const unauthPause = time.Second

// add gives g a place. It returns the connection that has to go for it, nil if
// none has to.
func (u *unauthConns) add(g *Guard, l *Limits) (evicted *Guard) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byAddr == nil {
		u.byAddr = make(map[string]*list.List)
	}
	all := u.byAddr[g.unauthAddr]
	switch {
	case l.MaxUnauthAddr > 0 && all != nil && all.Len() >= l.MaxUnauthAddr:
		evicted = all.Front().Value.(*Guard)
	case l.MaxUnauth > 0 && u.n >= l.MaxUnauth:
		evicted = u.most().Front().Value.(*Guard)
	}
	if evicted != nil {
		u.removeLocked(evicted)
		all = u.byAddr[g.unauthAddr]
	}
	if all == nil {
		all = list.New()
		u.byAddr[g.unauthAddr] = all
	}
	g.unauthPlace = all.PushBack(g)
	u.n++
	return evicted
}

// most returns the connections of the address that has the most. u.mu is held.
func (u *unauthConns) most() *list.List {
	var most *list.List
	for _, all := range u.byAddr {
		if most == nil || all.Len() > most.Len() {
			most = all
		}
	}
	return most
}

// remove takes the place of g away, if it has one.
func (u *unauthConns) remove(g *Guard) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removeLocked(g)
}

func (u *unauthConns) removeLocked(g *Guard) {
	if g.unauthPlace == nil {
		return
	}
	all := u.byAddr[g.unauthAddr]
	all.Remove(g.unauthPlace)
	g.unauthPlace = nil
	u.n--
	if all.Len() == 0 {
		delete(u.byAddr, g.unauthAddr)
	}
}

func (u *unauthConns) len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// charge counts n bytes against the shared rate, in bytes a second, and returns
// how long the connection that sent them has to wait: unauthPause at most, so that
// many connections are one read a second each, and leave no debt to others.
func (u *unauthConns) charge(n, rate int, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.free.Before(now) {
		u.free = now
	}
	u.free = u.free.Add(time.Duration(n) * time.Second / time.Duration(rate))
	if most := now.Add(unauthPause); u.free.After(most) {
		u.free = most
	}
	return u.free.Sub(now)
}

// unauthAddrOf returns the address by which connections are counted.
func unauthAddrOf(addr net.Addr) string {
	if tcp := throttleAddr(addr); tcp != "" {
		return tcp
	}
	return addr.String()
}

// chargeInput charges input of a connection that has not authenticated, and holds
// the connection up if there is too much of it.
func (g *Guard) chargeInput(n int) {
	if g.owner == nil || g.limits.UnauthRate == 0 {
		return
	}
	if g.unauthInput += n; g.unauthInput <= unauthFree {
		return
	}
	if wait := g.owner.unauth.charge(n, g.limits.UnauthRate, time.Now()); wait > 0 {
		g.owner.sleep(min(wait, unauthPause))
	}
}
