package guard

import (
	"net"
	"testing"
	"time"
)

// These are the free logins in the tests of this file: of one user, and of all
// users of an address together.
const freeLogins, freeOfAll = 7, 7 * freeLoginsAll

// TestLoginThrottle_ManyConnections checks a client that opens a connection for each
// guess, without waiting for the replies. In ten seconds, the throttle must admit at
// most 20 guesses beyond the free ones.
func TestLoginThrottle_ManyConnections(t *testing.T) {
	l := NewLoginThrottle(freeLogins)
	now := time.Unix(1000, 0)
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	checked := 0
	for n := range 100_000 { // ten seconds of 10,000 attempts each
		at := now.Add(time.Duration(n) * 100 * time.Microsecond)
		addr.Port = n
		if _, ok := l.Reserve(addr, "default", at); ok {
			checked++
			l.Done(addr, "default", LoginFailed, at)
		}
	}
	if most := freeLogins + 20; checked < freeLogins || checked > most {
		t.Errorf("%d passwords were checked within 10 s, want %d to %d", checked, freeLogins, most)
	}
}

// TestLoginThrottle_AtOnce checks that a login counts while its password is being
// checked.
func TestLoginThrottle_AtOnce(t *testing.T) {
	l := NewLoginThrottle(freeLogins)
	now := time.Unix(1000, 0)
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	checked := 0
	for range 10_000 {
		if wait, ok := l.Reserve(addr, "default", now); ok && wait == 0 {
			checked++
		}
	}
	if checked > freeLogins+1 {
		t.Errorf("%d passwords were checked at the same time, want at most %d", checked, freeLogins+1)
	}
	for range 50 { // connections of a pool log in while the node asks the leader for the users
		if _, ok := l.Reserve(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}, "app", now); !ok {
			t.Fatal("Reserve refused a login although no login has failed, want it admitted")
		}
	}
}

// TestLoginThrottle_ManyUsers checks that the guesses of a client are limited
// even if each guess is for another user.
func TestLoginThrottle_ManyUsers(t *testing.T) {
	l := NewLoginThrottle(freeLogins)
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
		if _, ok := l.Reserve(addr, user, now); ok {
			checked++
			l.Done(addr, user, LoginFailed, now)
		}
	}
	if most := freeOfAll + 20; checked > most {
		t.Errorf("%d passwords were checked at once, want at most %d", checked, most)
	}
}

func TestLoginThrottle(t *testing.T) {
	l := NewLoginThrottle(freeLogins)
	now := time.Unix(1000, 0)
	a, b := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}
	fail := func(addr net.Addr, user string, at time.Time) {
		t.Helper()
		if _, ok := l.Reserve(addr, user, at); !ok {
			t.Errorf("the login of %s from %v is refused, want it admitted", user, addr)
		}
		l.Done(addr, user, LoginFailed, at)
	}
	wants := func(addr net.Addr, user string, at time.Time, want time.Duration) {
		t.Helper()
		if got, ok := l.Reserve(addr, user, at); !ok || got != want {
			t.Errorf("login of %s from %v waits %v, %v; want %v", user, addr, got, ok, want)
		}
	}
	for range freeLogins {
		wants(a, "u", now, 0)
		l.Done(a, "u", LoginFailed, now)
	}
	wants(a, "u", now, 0) // this login is counted, so the next login waits
	l.Done(a, "u", LoginFailed, now)
	wants(a, "u", now, 2*firstPenalty)
	l.Done(a, "u", LoginSucceeded, now) // the right password
	wants(a, "u", now, 0)
	l.Done(a, "u", LoginSucceeded, now)
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
		t.Errorf("the throttle has %d entries, want at most maxThrottled", len(l.by))
	}
}

// TestLoginThrottle_OtherClients checks that a client with a wrong password
// does not lock out another user that has logged in from the same address.
func TestLoginThrottle_OtherClients(t *testing.T) {
	l := NewLoginThrottle(freeLogins)
	now := time.Unix(1000, 0)
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	good := func(at time.Time) bool {
		wait, ok := l.Reserve(addr, "good", at)
		if ok {
			l.Done(addr, "good", LoginSucceeded, at)
		}
		return ok && wait == 0
	}
	if !good(now) {
		t.Fatal("the first login must wait or is refused, want it admitted at once")
	}
	for n := range 60_000 { // ten minutes of 100 attempts a second
		at := now.Add(time.Duration(n) * 10 * time.Millisecond)
		if _, ok := l.Reserve(addr, "bad", at); ok {
			l.Done(addr, "bad", LoginFailed, at)
		}
		if n%50 == 0 && !good(at) {
			t.Fatalf("%v after the start, a user that has logged in before must wait, want no wait", at.Sub(now))
		}
	}
}

// TestLoginThrottle_Memory checks that the user names of refused logins take no
// memory, and that long names are not stored.
func TestLoginThrottle_Memory(t *testing.T) {
	l := NewLoginThrottle(freeLogins)
	now := time.Unix(1000, 0)
	addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	for n := range 20_000 {
		user := time.Duration(n).String() + string(make([]byte, 1000))
		if _, ok := l.Reserve(addr, user, now); ok {
			l.Done(addr, user, LoginFailed, now)
		}
	}
	if len(l.by) > freeOfAll+50 {
		t.Errorf("the throttle has %d entries, want none for the refused logins (at most %d)", len(l.by), freeOfAll+50)
	}
	for key := range l.by {
		if len(key.user) > maxThrottleUser {
			t.Fatalf("a stored user name has %d bytes, want at most maxThrottleUser", len(key.user))
		}
	}
}
