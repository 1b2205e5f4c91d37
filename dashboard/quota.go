package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

var errBusy = errors.New("this node is busy with other requests, try again later")

// quota shares a number of units between requests, and bounds the units of the
// requests from one address. It is safe for concurrent use.
type quota struct {
	most, mostEach int // maximum units of all requests, and of the requests from one address

	mu    sync.Mutex
	used  int
	by    map[netip.Prefix]int
	freed chan struct{} // closed when units are released; nil if no request waits
}

// share contains the units of a quota that a request has taken.
type share struct {
	q     *quota
	from  netip.Prefix
	units int
}

// try takes units if enough units are free, without waiting.
func (q *quota) try(r *http.Request, units int) (s share, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tryLocked(sender(r), units)
}

func (q *quota) tryLocked(from netip.Prefix, units int) (s share, ok bool) {
	if q.used+units > q.most || q.by[from]+units > q.mostEach {
		return share{}, false
	}
	if q.by == nil {
		q.by = make(map[netip.Prefix]int)
	}
	q.used += units
	q.by[from] += units
	return share{q, from, units}, true
}

// take waits until units are free, for requestLimit at most, and takes them.
func (q *quota) take(r *http.Request, units int) (share, error) {
	ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
	defer cancel()
	from := sender(r)
	for {
		q.mu.Lock()
		s, ok := q.tryLocked(from, units)
		if !ok && q.freed == nil {
			q.freed = make(chan struct{})
		}
		freed := q.freed
		q.mu.Unlock()
		if ok {
			return s, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return share{}, errBusy
		}
	}
}

// keep releases all units except the given number.
func (s *share) keep(units int) {
	if units >= s.units {
		return
	}
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.q.used -= s.units - units
	if s.q.by[s.from] -= s.units - units; s.q.by[s.from] == 0 {
		delete(s.q.by, s.from)
	}
	s.units = units
	if s.q.freed != nil {
		close(s.q.freed)
		s.q.freed = nil
	}
}

// release releases all units.
func (s *share) release() { s.keep(0) }

// sender returns the network that counts as the sender of a request: an IPv4
// address, or a /64 network of IPv6.
func sender(r *http.Request) netip.Prefix {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{} // only a request of a test has no address
	}
	addr, bits := from.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(addr, bits).Masked()
}

// limiter is a token bucket. It is safe for concurrent use.
type limiter struct {
	burst int
	every time.Duration // time after which one more action is allowed

	mu   sync.Mutex
	free time.Time // when the bucket is full again
}

// allow reports whether one more action is allowed now. If so, it counts the action.
func (l *limiter) allow(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(now) {
		l.free = now
	}
	if l.free.Sub(now) > time.Duration(l.burst-1)*l.every {
		return false
	}
	l.free = l.free.Add(l.every)
	return true
}
