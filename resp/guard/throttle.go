package guard

import (
	"crypto/sha256"
	"net"
	"sync"
	"time"
)

// LoginThrottle limits how fast passwords can be tried, over all connections. It
// counts failed logins by client address and user, and by client address alone.
// Once the free attempts of a window are used, each further attempt reserves a
// time slot and waits for it before the password is checked. So a client gains
// nothing by opening more connections. A login whose slot is too far away is
// refused without a check of the password.
//
// A user that has logged in from an address within throttleTrust, and has not
// failed there since, is not subject to the limit of the address. So clients
// behind one address do not lock each other out if they use different users.
//
// It is safe for concurrent use.
type LoginThrottle struct {
	free int // number of free logins of one user from one address within throttleWindow

	mu sync.Mutex
	by map[throttleKey]*throttleEntry
}

// NewLoginThrottle returns a throttle without failed logins. free is
// Limits.FailedLogins.
func NewLoginThrottle(free int) *LoginThrottle {
	return &LoginThrottle{free: free, by: make(map[throttleKey]*throttleEntry)}
}

// throttleKey is a key under which logins are counted: the address of the
// client and the name of the user or, if all is set, the address alone.
type throttleKey struct {
	addr, user string
	all        bool
}

// throttleEntry counts the logins of a key.
type throttleEntry struct {
	pending  int // logins that Reserve has admitted and that Done has not ended yet
	failures int
	last     time.Time // time of the last failure
	next     time.Time // start of the first free time slot
	trusted  time.Time // time of the last success, zero if a login has failed since then
}

const (
	// freeLoginsAll is the number of free logins of all users of one address
	// together, as a multiple of LoginThrottle.free. Many clients may share an
	// address.
	freeLoginsAll  = 5
	throttleWindow = time.Minute
	// throttlePending is the interval between time slots while fewer logins
	// have failed than are free, but failed and pending logins together exceed
	// that number.
	throttlePending = 10 * time.Millisecond
	// throttleRefuse is the maximum wait. An attempt that would wait longer is
	// refused.
	throttleRefuse = 5 * time.Second
	// throttleTrust is the time after a successful login during which the user
	// is exempt from the limit of the address.
	throttleTrust = 24 * time.Hour
	// maxThrottled bounds the number of entries. When this number is reached,
	// the throttle drops the entries whose window is over. If that is not
	// enough, it drops all entries.
	maxThrottled = 10000
	// maxThrottleUser is the maximum length, in bytes, of a user name that is
	// stored. A longer name is replaced by its hash.
	maxThrottleUser = 64
)

// After the first wrong password, the reply to each further wrong password on a
// connection is delayed: see LoginPenalty. After MaxWrongPasswords wrong passwords,
// the connection is closed.
const (
	MaxWrongPasswords = 10
	firstPenalty      = 100 * time.Millisecond
	maxPenalty        = 2 * time.Second
)

// LoginPenalty returns how long the reply to a wrong password is delayed on a
// connection that has sent n wrong passwords before; n is at least 1. The delay
// doubles each time, up to maxPenalty.
func LoginPenalty(n int) time.Duration {
	return min(firstPenalty<<min(n-1, MaxWrongPasswords), maxPenalty)
}

// throttleKeys returns the two keys under which a login is counted: first the
// key of the user at the address, and then the key of the address alone.
func throttleKeys(ip, user string) [2]throttleKey {
	if len(user) > maxThrottleUser {
		sum := sha256.Sum256([]byte(user))
		user = string(sum[:])
	}
	return [2]throttleKey{{addr: ip, user: user}, {addr: ip, all: true}}
}

// Reserve returns how long a login has to wait before its password may be
// checked. It returns false if the login must be refused without a check.
// Otherwise the caller must call Done afterwards.
func (t *LoginThrottle) Reserve(addr net.Addr, user string, now time.Time) (wait time.Duration, ok bool) {
	ip := throttleAddr(addr)
	if ip == "" {
		return 0, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := throttleKeys(ip, user)
	own := t.by[keys[0]]
	trusted := own != nil && now.Sub(own.trusted) < throttleTrust
	for i, key := range keys {
		e := t.by[key]
		if e == nil || i == 1 && trusted {
			continue
		}
		e.expire(now)
		if t.over(e, i) > 0 {
			wait = max(wait, e.next.Sub(now))
		}
	}
	if wait > throttleRefuse { // no entry is added: refused names must not take memory
		return 0, false
	}
	for i, key := range keys {
		// Pending logins count; otherwise many concurrent attempts would all be
		// free.
		e := t.entry(key, now)
		if e.pending++; t.over(e, i) > 0 && !(i == 1 && trusted) {
			e.next = now.Add(wait + t.interval(e, i))
		}
	}
	return wait, true
}

// expire resets the failures if the last one was before the current window.
func (e *throttleEntry) expire(now time.Time) {
	if now.Sub(e.last) > throttleWindow {
		e.failures = 0
	}
}

// over returns by how much the number of logins exceeds the number of free logins.
// kind is the index of the key in throttleKeys.
func (t *LoginThrottle) over(e *throttleEntry, kind int) int {
	return e.failures + e.pending - t.freeOf(kind)
}

func (t *LoginThrottle) freeOf(kind int) int { return [2]int{t.free, freeLoginsAll * t.free}[kind] }

// interval returns the time between two time slots.
func (t *LoginThrottle) interval(e *throttleEntry, kind int) time.Duration {
	if e.failures < t.freeOf(kind) {
		return throttlePending
	}
	return LoginPenalty(t.over(e, kind) + 1)
}

// LoginOutcome is the outcome of a login.
type LoginOutcome int

const (
	// LoginFailed means that the password was wrong.
	LoginFailed LoginOutcome = iota
	// LoginSucceeded means that the password was right.
	LoginSucceeded
	LoginUnchecked // the user could not be read, so the password was not checked
)

// Done ends a login that Reserve admitted. A success resets the failures of the
// user at the address. The failures of the address stay; otherwise a client
// with a valid password could continue to guess the passwords of other users.
func (t *LoginThrottle) Done(addr net.Addr, user string, outcome LoginOutcome, now time.Time) {
	ip := throttleAddr(addr)
	if ip == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, key := range throttleKeys(ip, user) {
		e := t.by[key]
		if e == nil { // makeRoom has dropped the entry
			continue
		}
		e.pending = max(0, e.pending-1)
		switch {
		case outcome == LoginFailed:
			e.failures++
			e.last, e.trusted = now, time.Time{}
		case outcome == LoginSucceeded && i == 0:
			e.failures, e.trusted = 0, now
		}
		if e.failures == 0 && e.pending == 0 && e.trusted.IsZero() {
			delete(t.by, key)
		}
	}
}

// entry returns the entry of a key, and creates the entry if there is none. If the
// last failure was before the current window, entry resets the failures.
func (t *LoginThrottle) entry(key throttleKey, now time.Time) *throttleEntry {
	e := t.by[key]
	if e == nil {
		t.makeRoom(now)
		e = &throttleEntry{}
		t.by[key] = e
	}
	e.expire(now)
	return e
}

func (t *LoginThrottle) makeRoom(now time.Time) {
	if len(t.by) < maxThrottled {
		return
	}
	for key, e := range t.by {
		if e.pending == 0 && now.Sub(e.last) > throttleWindow && now.Sub(e.trusted) > throttleWindow {
			delete(t.by, key)
		}
	}
	if len(t.by) >= maxThrottled {
		clear(t.by)
	}
}

// throttleAddr returns the key of a client address. It returns "" for a client
// that does not connect over TCP. The logins of such a client are not limited.
// Addresses of one IPv6 /64 network count as one, because a single host usually
// has all of them.
func throttleAddr(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
		return ""
	case tcp.IP.To4() != nil:
		return string(tcp.IP.To4())
	case len(tcp.IP) == net.IPv6len:
		return string(tcp.IP[:8])
	}
	return string(tcp.IP)
}
