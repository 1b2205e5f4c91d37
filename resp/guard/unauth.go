package guard

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// unauthConns are the open connections of a listener that have not
// authenticated. Their number and their rate of input are limited, so that they
// cannot keep other clients from logging in.
//
// One limit applies to all such connections, another to those of one address.
// If a new connection exceeds the limit per address, the listener closes the
// oldest connection from that address. If it exceeds the other limit, the
// listener closes the oldest connection of the address that has the most such
// connections. The connection of a client that logs in is seldom closed, because
// it is unauthenticated only briefly. unauthConns is safe for concurrent use.
type unauthConns struct {
	mu     sync.Mutex
	n      int
	byAddr map[string]*list.List // values are *Conn, oldest first
	// free is the time from which a connection may send without a delay,
	// because the rate then covers all charged input: see charge.
	free time.Time
}

// unauthFree is the number of bytes for which a connection is not charged
// before it logs in. Client libraries send only a fraction of this before a
// login.
const unauthFree = 16 << 10

// unauthCommand is the number of bytes that each command is charged in addition
// to its own bytes.
const unauthCommand = 256

// unauthPause is the maximum delay of one read.
const unauthPause = time.Second

// add adds g. It returns the connection that must be closed because a limit is
// reached, or nil.
func (u *unauthConns) add(g *Conn, l *Limits) (evicted *Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byAddr == nil {
		u.byAddr = make(map[string]*list.List)
	}
	all := u.byAddr[g.unauthAddr]
	switch {
	case l.MaxUnauthAddr > 0 && all != nil && all.Len() >= l.MaxUnauthAddr:
		evicted = all.Front().Value.(*Conn)
	case l.MaxUnauth > 0 && u.n >= l.MaxUnauth:
		evicted = u.most().Front().Value.(*Conn)
	}
	if evicted != nil {
		u.removeLocked(evicted)
		all = u.byAddr[g.unauthAddr]
	}
	if all == nil {
		all = list.New()
		u.byAddr[g.unauthAddr] = all
	}
	g.unauthElement = all.PushBack(g)
	u.n++
	return evicted
}

// most returns the connections of the address that has the most. The caller
// must hold u.mu.
func (u *unauthConns) most() *list.List {
	var most *list.List
	for _, all := range u.byAddr {
		if most == nil || all.Len() > most.Len() {
			most = all
		}
	}
	return most
}

// remove removes g, if it is present.
func (u *unauthConns) remove(g *Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removeLocked(g)
}

func (u *unauthConns) removeLocked(g *Conn) {
	if g.unauthElement == nil {
		return
	}
	all := u.byAddr[g.unauthAddr]
	all.Remove(g.unauthElement)
	g.unauthElement = nil
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

// charge charges n bytes against the shared rate, in bytes per second, and
// returns how long the connection that sent them must wait. The wait is at most
// unauthPause. So even if many connections exceed the rate together, the guard
// reads from each of them every one or two seconds, and later connections do not
// wait longer.
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

// unauthAddrOf returns the address under which a connection is counted.
func unauthAddrOf(addr net.Addr) string {
	if tcp := throttleAddr(addr); tcp != "" {
		return tcp
	}
	return addr.String()
}

// chargeInput charges n bytes of input of a connection that has not
// authenticated, and delays the connection if the rate is exceeded.
func (g *Conn) chargeInput(n int) {
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
