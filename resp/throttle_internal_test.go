package resp

import (
	"net"
	"testing"
	"time"
)

// TestLoginThrottle_ManyConnections: an address that opens a connection for each
// guess gets no further than one that waits for each answer.
func TestLoginThrottle_ManyConnections(t *testing.T) {
	var l loginThrottle
	now := time.Unix(1000, 0)
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	checked := 0
	for n := range 100_000 { // ten seconds of 10,000 attempts each
		at := now.Add(time.Duration(n) * 100 * time.Microsecond)
		addr.Port = n
		if _, ok := l.reserve(addr, "default", at); ok {
			checked++
			l.done(addr, "default", false, at)
		}
	}
	if most := freeLogins + 20; checked < freeLogins || checked > most {
		t.Errorf("%d passwords were checked within 10 s, want %d to %d", checked, freeLogins, most)
	}
}

// TestLoginThrottle_AtOnce: logins that are checked at the same time count.
func TestLoginThrottle_AtOnce(t *testing.T) {
	var l loginThrottle
	now := time.Unix(1000, 0)
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	checked := 0
	for range 10_000 {
		if wait, ok := l.reserve(addr, "default", now); ok && wait == 0 {
			checked++
		}
	}
	if checked > freeLogins+1 {
		t.Errorf("%d passwords are checked at once, want at most %d", checked, freeLogins+1)
	}
}

// TestLoginThrottle_ManyUsers: guessing for another user each time is limited too.
func TestLoginThrottle_ManyUsers(t *testing.T) {
	var l loginThrottle
	now := time.Unix(1000, 0)
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	checked := 0
	for n := range 10_000 {
		user := string(rune('a' + n%26))
		for range n {
			user += "x"
			if len(user) > 8 {
				break
			}
		}
		user += time.Duration(n).String()
		if _, ok := l.reserve(addr, user, now); ok {
			checked++
			l.done(addr, user, false, now)
		}
	}
	if most := freeLoginsAll + 20; checked > most {
		t.Errorf("%d passwords were checked at once, want at most %d", checked, most)
	}
}

func TestLoginThrottle(t *testing.T) {
	var l loginThrottle
	now := time.Unix(1000, 0)
	a, b := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}
	fail := func(addr net.Addr, user string, at time.Time) {
		t.Helper()
		if _, ok := l.reserve(addr, user, at); !ok {
			t.Errorf("login of %s from %v is refused", user, addr)
		}
		l.done(addr, user, false, at)
	}
	wants := func(addr net.Addr, user string, at time.Time, want time.Duration) {
		t.Helper()
		if got, ok := l.reserve(addr, user, at); !ok || got != want {
			t.Errorf("login of %s from %v waits %v, %v; want %v", user, addr, got, ok, want)
		}
	}
	for range freeLogins {
		wants(a, "u", now, 0)
		l.done(a, "u", false, now)
	}
	wants(a, "u", now, 0) // counts as one, and so the next one waits
	l.done(a, "u", false, now)
	wants(a, "u", now, 2*firstPenalty)
	l.done(a, "u", true, now) // the right password
	wants(a, "u", now, 0)
	l.done(a, "u", true, now)
	wants(a, "other", now, 0)
	wants(b, "u", now, 0)
	wants(&net.UnixAddr{Name: "x"}, "u", now, 0)
	for range freeLogins + 3 {
		fail(b, "v", now)
	}
	wants(b, "v", now.Add(2*throttleWindow), 0)
	for i := range maxThrottled + 10 {
		fail(&net.TCPAddr{IP: net.IPv4(11, byte(i>>16), byte(i>>8), byte(i))}, "u", now)
	}
	if len(l.by) > maxThrottled {
		t.Errorf("%d entries are kept", len(l.by))
	}
}
