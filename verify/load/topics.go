package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// channels is the number of channels that messages are published to.
const channels = 2

func (c *client) channel() string {
	return fmt.Sprintf("%schannel:%d", c.load.cfg.Prefix, c.rng.IntN(channels))
}

// publish publishes unique messages until the load stops.
func (c *client) publish() {
	l := c.load
	for c.ready() {
		p := checker.Publish{Channel: c.channel(), ID: c.unique("message"), Client: c.id, Outcome: checker.Unknown}
		replies, call, ret := c.send([][]string{{"PUBLISH", p.Channel, p.ID}})
		p.Call, p.Return = call, ret
		if len(replies) > 0 {
			p.Outcome = outcomeOf(replies[0])
		}
		l.rec.add(func(h *History) { h.Publishes = append(h.Publishes, p) })
	}
}

// subscribe subscribes to a channel for a while and then unsubscribes, until
// the load stops.
func (c *client) subscribe() {
	l := c.load
	for c.ready() {
		s := &subscriber{client: c, heard: checker.Subscription{Channel: c.channel(), Client: c.id, Node: c.node(),
			Left: checker.Forever}}
		err := s.listen(time.Duration(c.rng.Int64N(int64(8 * time.Second))))
		s.heard.Ended = l.Now()
		if err != nil {
			c.hangUp() // if the node is down, other clients record that
			if l.ctx.Err() == nil {
				c.at++
			}
		}
		if s.confirmed {
			l.rec.add(func(h *History) { h.Listens = append(h.Listens, s.heard) })
		}
	}
}

// subscriber is one subscription of one connection.
type subscriber struct {
	*client
	heard           checker.Subscription
	confirmed, left bool
}

// listen subscribes, receives messages for at most d, and unsubscribes.
func (s *subscriber) listen(d time.Duration) error {
	l, conn := s.load, s.conn
	defer context.AfterFunc(l.ctx, func() { _ = conn.Close() })() // closing only makes reads and writes fail
	s.heard.Call = l.Now()
	if err := conn.write([]string{"SUBSCRIBE", s.heard.Channel}); err != nil {
		return err
	}
	if err := s.take(l.cfg.ReplyTimeout, func() bool { return s.confirmed }); err != nil {
		return err
	}
	if !s.confirmed {
		return errors.New("no confirmation of SUBSCRIBE")
	}
	if err := s.take(d, func() bool { return false }); err != nil {
		return err
	}
	call := l.Now()
	if err := conn.write([]string{"UNSUBSCRIBE", s.heard.Channel}); err != nil {
		return err
	}
	if err := s.take(takeTimeout, func() bool { return s.left }); err != nil {
		return err
	}
	if !s.left {
		return errors.New("no confirmation of UNSUBSCRIBE")
	}
	s.heard.Left = call
	return nil
}

// take receives messages for at most d, or until the function enough returns
// true.
func (s *subscriber) take(d time.Duration, enough func() bool) error {
	for end := time.Now().Add(d); !enough(); {
		v, err := s.conn.next(end)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		case v.Err != "":
			return errors.New(v.Err)
		case len(v.Elems) != 3:
			return fmt.Errorf("%w: a subscriber received %+v", respwire.ErrProtocol, v)
		}
		switch word := v.Elems[0].Text; word {
		case "subscribe":
			s.confirmed, s.heard.Since = true, s.load.Now()
		case "unsubscribe":
			s.left = true
		case "message":
			s.heard.Received = append(s.heard.Received, checker.Received{ID: v.Elems[2].Text, At: s.load.Now()})
		default:
			return fmt.Errorf("%w: a subscriber received %q", respwire.ErrProtocol, word)
		}
	}
	return nil
}

// next reads a value whose first byte arrives before a given time. If none
// arrives, it fails with os.ErrDeadlineExceeded, and nothing is lost.
func (c *Conn) next(before time.Time) (respwire.Value, error) {
	if err := c.conn.SetReadDeadline(before); err != nil {
		return respwire.Value{}, err
	}
	if _, err := c.conn.R.Peek(1); err != nil {
		return respwire.Value{}, err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return respwire.Value{}, err
	}
	v, err := c.conn.Receive()
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		err = errors.New("timed out in the middle of a value")
	}
	return v, err
}

// write sends a command and does not wait for a reply.
func (c *Conn) write(args []string) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	return c.conn.Send(args)
}
