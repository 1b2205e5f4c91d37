package guard

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// errPad says that the client has been silent for padAfter since a large
// command. receive returns errPad to fill, which then calls pad. Read never
// returns errPad.
var errPad = errors.New("client has been silent since a large command")

// padAfter is how long a client must be silent after a large command before
// redcon's memory for that command is freed: see pad. A busy client would need the
// memory again at once.
const padAfter = time.Second

// deadlines contains the deadlines for the client's input. A deadline starts
// when a read first waits for the client, so that the time that the server
// spends on earlier commands does not count against the client.
type deadlines struct {
	command time.Time // deadline of the incomplete command
	silence time.Time // time by which a client that has not authenticated must have sent a complete command
	pad     time.Time // time at which errPad is due

	armed time.Time // the deadline that is set on the socket; zero for none
	kind  string    // kind of the deadline in armed; "" for errPad
}

// restart clears all deadlines after a complete command.
func (c *deadlines) restart() {
	if !c.command.IsZero() {
		c.command = time.Time{}
	}
	if !c.silence.IsZero() {
		c.silence = time.Time{}
	}
	if !c.pad.IsZero() {
		c.pad = time.Time{}
	}
}

// receive returns bytes that have been read ahead. If there are none, it reads from
// the socket with the deadline that applies. partial says that the last command is
// incomplete. No deadline applies to an authenticated client whose commands are all
// complete, unless padDue is set. receive makes no system call to set a deadline if
// no deadline applies and none is set.
func (g *Conn) receive(p []byte, partial, auth bool) (int, error) {
	if n := g.takeAhead(p); n > 0 {
		return n, nil
	}
	if g.readErr != nil {
		return 0, g.readErr
	}
	if partial || !auth || g.padDue || !g.deadlines.armed.IsZero() {
		if err := g.arm(partial, auth); err != nil {
			return 0, fmt.Errorf("set read deadline: %w", err)
		}
	}
	g.endEarly()
	n, err := g.Conn.Read(p)
	if n > 0 && !g.hadCommand {
		g.startEarly()
	}
	if n > 0 {
		g.readErr = err
		return n, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !g.deadlines.armed.IsZero() && !time.Now().Before(g.deadlines.armed) {
		return 0, g.missed(err)
	}
	return 0, err
}

// arm sets the socket's read deadline to the earliest deadline that applies.
func (g *Conn) arm(partial, auth bool) error {
	c, l := &g.deadlines, g.limits
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
	case g.hadCommand:
		earlier(&c.silence, l.UnauthIdle, "unauthenticated idle")
	default:
		earlier(&c.silence, l.HandshakeTimeout, "handshake")
	}
	if g.padDue && !partial {
		earlier(&c.pad, padAfter, "")
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
func (g *Conn) missed(err error) error {
	if g.deadlines.kind == "" {
		g.padDue = false
		return errPad
	}
	if g.hooks.Timeout != nil {
		g.hooks.Timeout(g, g.deadlines.kind)
	}
	return fmt.Errorf("%s deadline missed: %w", g.deadlines.kind, err)
}

// send writes to the socket with the deadline of WriteTimeout. The caller holds
// g.writeMu.
func (g *Conn) send(p []byte) (int, error) {
	// Setting the deadline costs a tenth of a small write. So the deadline is
	// extended only when more than an eighth of WriteTimeout has passed since the
	// last extension. A client therefore has at least 7/8 of WriteTimeout.
	if limit := g.limits.WriteTimeout; limit > 0 {
		if now := time.Now(); now.Sub(g.writeArmed) > limit/8 {
			if err := g.Conn.SetWriteDeadline(now.Add(limit)); err != nil {
				return 0, err
			}
			g.writeArmed = now
		}
	}
	return g.Conn.Write(p)
}
