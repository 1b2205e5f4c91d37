package resp

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// errGuardRelief is the error of receive if the client has been silent since a
// large command. The guard never returns it to its caller.
var errGuardRelief = errors.New("silent after a large command")

// guardReliefAfter is how long a client must be silent after a large command
// before its memory is freed. A busy client would need it again at once.
const guardReliefAfter = time.Second

// A guardClock contains the deadlines for the client's input. A deadline starts
// when a read first waits for the client, so that the time that the server
// spends on earlier commands does not count against the client.
type guardClock struct {
	command time.Time // end of the incomplete command's time
	silence time.Time // a client that has not authenticated must have sent a complete command
	relief  time.Time // errGuardRelief is due

	armed time.Time // the deadline that is set on the socket; zero for none
	kind  string    // the reason of armed; "" for errGuardRelief
}

// restart clears all deadlines after a complete command.
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

// receive reads from the socket with the deadline that applies. For complete
// commands of an authenticated client there is none, and no system call is made
// to set it. partial reports that a command is incomplete.
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

// arm sets the earliest deadline that applies on the socket.
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

// missed returns the error for a deadline that has passed, and calls the
// Timeout hook.
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
