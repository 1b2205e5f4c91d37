package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

const channels = 2

// publisher publishes unique messages.
func (c *remote) publisher() {
	for n := 0; c.think() && c.connect(); n++ {
		p := checker.Publish{Channel: number("channel", c.r.IntN(channels)),
			ID: fmt.Sprintf("%d.%d", c.id, n), Client: c.id}
		x := c.do(command{"publish", p.Channel, p.ID})
		p.Call, p.Return, p.Outcome = x.call, x.ret, x.outcome
		c.h.served.mu.Lock()
		c.h.served.publishes = append(c.h.served.publishes, p)
		c.h.served.mu.Unlock()
		if c.r.IntN(20) == 0 {
			c.leave()
		}
	}
}

// subscriber subscribes to a channel, listens for a while, and unsubscribes.
func (c *remote) subscriber() {
	if c.r.IntN(2) == 0 {
		c.setup = []command{{"hello", "3"}}
	}
	for c.h.pause(time.Duration(c.r.Int64N(int64(500*time.Millisecond)))) && c.connect() {
		c.listen()
	}
}

func (c *remote) listen() {
	l := checker.Subscription{Channel: number("channel", c.r.IntN(channels)), Client: c.id, Node: c.home,
		Left: checker.Forever}
	confirmed, left := false, false
	c.pushed = func(v value) {
		if len(v.Array) != 3 {
			c.h.w.audit.violate("client %d received %+v", c.id, v)
			return
		}
		switch v.Array[0].Text {
		case "subscribe":
			confirmed, l.Since = true, c.h.w.elapsed()
		case "unsubscribe":
			left = true
		case "message":
			l.Received = append(l.Received, checker.Received{ID: v.Array[2].Text, At: c.h.w.elapsed()})
		}
	}
	defer func() { c.pushed = nil }()
	x := c.send(command{"subscribe", l.Channel})
	l.Call = x.call
	ok := x.outcome == checker.Done && c.receivePushes(replyTimeout, func() bool { return confirmed })
	if ok {
		until := c.h.w.elapsed() + time.Duration(c.r.Int64N(int64(15*time.Second)))
		ok = c.receivePushes(until-c.h.w.elapsed(), func() bool { return c.h.ended() })
	}
	if ok {
		x = c.send(command{"unsubscribe", l.Channel})
		// Without a leader, UNSUBSCRIBE waits up to LeaderWait for one. After
		// that, the node unsubscribes, although it may not have all messages
		// that were acknowledged before. The last messages may then be missing,
		// so Left is not set.
		if x.outcome == checker.Done && c.receivePushes(replyTimeout, func() bool { return left }) && left &&
			c.h.w.elapsed()-x.call < c.h.w.opts.LeaderWait {
			l.Left = x.call
		}
	}
	l.Ended = c.h.w.elapsed()
	if !confirmed {
		c.leave()
		return
	}
	c.h.served.mu.Lock()
	c.h.served.listens = append(c.h.served.listens, l)
	c.h.served.mu.Unlock()
}

// receivePushes receives pushes until the function enough returns true or d has
// elapsed. It reports whether the connection is still open.
func (c *remote) receivePushes(d time.Duration, enough func() bool) bool {
	end := time.Now().Add(d)
	for !enough() && time.Now().Before(end) {
		next := time.Now().Add(200 * time.Millisecond)
		if next.After(end) {
			next = end
		}
		if err := c.conn.SetReadDeadline(next); err != nil {
			c.leave()
			return false
		}
		raw, err := c.conn.Receive() // in RESP2, messages are arrays
		switch {
		case isDeadline(err):
			// The deadline cannot cut a value in two, because the simulated
			// network delivers the data of one write together.
		case err != nil:
			c.leave()
			return false
		case raw.IsError():
			c.h.count(errors.New(raw.Err))
			c.leave()
			return false
		default:
			c.pushed(valueOf(raw))
		}
	}
	return true
}
