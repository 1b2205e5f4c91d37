package neighbor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// Bystander is a client that now and then logs in, runs a script that the node
// has not seen before, and publishes a message to a channel that it has
// subscribed to. A [Victim] does none of these. A load can delay each of these
// actions while locks are still fast.
type Bystander struct {
	to        Target
	conn, sub *load.Conn
	n         int
}

// Longest contains the longest times that the actions of a Bystander took.
type Longest struct {
	Login   time.Duration // to connect, to log in, and to get the reply to a PING
	Script  time.Duration // to get the result of a new script
	Message time.Duration // from PUBLISH until the message has arrived
}

// Max returns the longest of the times and the name of its action.
func (l Longest) Max() (action string, d time.Duration) {
	action, d = "login", l.Login
	if l.Script > d {
		action, d = "new script", l.Script
	}
	if l.Message > d {
		action, d = "message", l.Message
	}
	return action, d
}

// bystanderPause is the time between two rounds of a Bystander. It keeps the
// bystander from being a load itself.
const bystanderPause = 100 * time.Millisecond

// NewBystander connects a bystander to a node.
func NewBystander(ctx context.Context, to Target) (*Bystander, error) {
	b := &Bystander{to: to}
	var err error
	if b.conn, err = load.Dial(ctx, to.Addr, to.Login, victimLimit); err != nil {
		return nil, fmt.Errorf("connect the bystander: %w", err)
	}
	if b.sub, err = load.Dial(ctx, to.Addr, to.Login, victimLimit, "SUBSCRIBE", b.channel()); err != nil {
		return nil, errors.Join(fmt.Errorf("connect the subscriber of the bystander: %w", err), b.conn.Close())
	}
	return b, nil
}

func (b *Bystander) channel() string { return b.to.Prefix + "bystander" }

// Close closes the connections.
func (b *Bystander) Close() error { return errors.Join(b.conn.Close(), b.sub.Close()) }

// Run acts until ctx is done. It returns an error reply as an error, because no
// neighbor may cause a command of another client to fail.
func (b *Bystander) Run(ctx context.Context) (Longest, error) {
	var all Longest
	for ctx.Err() == nil {
		b.n++
		for _, action := range []struct {
			name    string
			run     func() error
			longest *time.Duration
		}{
			{"login", b.login, &all.Login},
			{"new script", b.script, &all.Script},
			{"message", b.message, &all.Message},
		} {
			begun := time.Now()
			err := action.run()
			took := time.Since(begun)
			if err != nil {
				return all, fmt.Errorf("%s of the bystander, after %v: %w", action.name, took.Round(time.Millisecond),
					err)
			}
			*action.longest = max(*action.longest, took)
		}
		load.Sleep(ctx, bystanderPause)
	}
	return all, nil
}

// login opens a connection and uses it. It ignores the cancellation of Run,
// because a canceled login would look like one that the node refused.
func (b *Bystander) login() error {
	c, err := load.Dial(context.Background(), b.to.Addr, b.to.Login, victimLimit)
	if err != nil {
		return err
	}
	return errors.Join(expect(c, "PONG", "PING"), c.Close())
}

func (b *Bystander) script() error {
	result := fmt.Sprintf("%s%d", b.to.Prefix, b.n)
	return expect(b.conn, result, "EVAL", "return '"+result+"'", "0")
}

func (b *Bystander) message() error {
	text := fmt.Sprint(b.n)
	v, err := b.conn.Do("PUBLISH", b.channel(), text)
	if err == nil && v.Err != "" {
		err = errors.New(v.Err)
	}
	if err != nil {
		return err
	}
	v, err = b.sub.Next()
	if err != nil {
		return err
	}
	if got := v.Texts(); len(got) != 3 || got[2] != text {
		return fmt.Errorf("the subscriber received %q, want the message %q", got, text)
	}
	return nil
}

// expect sends a command and checks its reply.
func expect(c *load.Conn, want string, args ...string) error {
	v, err := c.Do(args...)
	switch {
	case err != nil:
		return err
	case v.Err != "":
		return errors.New(v.Err)
	case v.Text != want:
		return fmt.Errorf("the node answered %q, want %q", v.Text, want)
	}
	return nil
}
