package resp

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// errGuardRelief is what receive returns when the client has been silent since a
// large command. It never leaves the guard.
var errGuardRelief = errors.New("silent after a large command")

// guardReliefAfter is how long a client must be silent after a large command
// before memory is given back: a busy one would need it again at once.
const guardReliefAfter = time.Second

// A guardClock holds the times by which the client must have sent something. They
// are taken when a read first waits for it, not before, so that time that the
// server spends on earlier commands does not count against the client.
type guardClock struct {
	command time.Time // the incomplete command must be whole
	silence time.Time // a client that has not authenticated must have sent a whole command
	relief  time.Time // errGuardRelief is due

	armed time.Time // the deadline that the socket has, zero for none
	kind  string    // what it is for, "" for errGuardRelief
}

// restart forgets all times after a whole command.
func (c *guardClock) restart() {
	if !c.command.IsZero() {
		c.command = time.Time{}
	}
	if !c.silence.IsZero() {
		c.silence = time.Time{}
	}
	if !c.relief.IsZero() {
		c.relief = time.Time{}
	}
}

// receive reads from the socket under the deadline that holds: none for whole
// commands of an authenticated client, and then nothing is set either. partial
// says that a command is incomplete.
func (g *Guard) receive(p []byte, partial, auth bool) (int, error) {
	if g.readErr != nil {
		return 0, g.readErr
	}
	if partial || !auth || g.relief || !g.clock.armed.IsZero() {
		if err := g.arm(partial, auth); err != nil {
			return 0, fmt.Errorf("set read deadline: %w", err)
		}
	}
	n, err := g.Conn.Read(p)
	if n > 0 {
		g.readErr = err
		return n, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !g.clock.armed.IsZero() && !time.Now().Before(g.clock.armed) {
		return 0, g.missed(err)
	}
	return 0, err
}

// arm gives the socket the earliest of the times that hold now.
func (g *Guard) arm(partial, auth bool) error {
	c, l := &g.clock, g.limits
	var at time.Time
	var kind string
	earlier := func(t *time.Time, d time.Duration, what string) {
		if d == 0 {
			return
		}
		if t.IsZero() {
			*t = time.Now().Add(d)
		}
		if at.IsZero() || t.Before(at) {
			at, kind = *t, what
		}
	}
	if partial {
		earlier(&c.command, l.CommandTimeout, "command")
	}
	if !auth && l.UnauthTotal > 0 {
		if end := time.Unix(0, g.unauthSince.Load()).Add(l.UnauthTotal); at.IsZero() || end.Before(at) {
			at, kind = end, "login"
		}
	}
	switch {
	case auth:
	case g.greeted:
		earlier(&c.silence, l.UnauthIdle, "unauthenticated idle")
	default:
		earlier(&c.silence, l.HandshakeTimeout, "handshake")
	}
	if g.relief && !partial {
		earlier(&c.relief, guardReliefAfter, "")
	}
	if at.Equal(c.armed) {
		c.kind = kind
		return nil
	}
	c.armed, c.kind = at, kind
	return g.Conn.SetReadDeadline(at)
}

// missed turns a deadline that has passed into what it means.
func (g *Guard) missed(err error) error {
	if g.clock.kind == "" {
		g.relief = false
		return errGuardRelief
	}
	if g.hooks.Timeout != nil {
		g.hooks.Timeout(g, g.clock.kind)
	}
	return fmt.Errorf("%s deadline missed: %w", g.clock.kind, err)
}
