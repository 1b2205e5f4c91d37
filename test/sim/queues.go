package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

const queues = 2

// queueLists returns the names of the queues and of the lists to which their
// elements are moved.
func queueLists() []string {
	var lists []string
	for i := range queues {
		lists = append(lists, number("queue", i), number("moved", i))
	}
	return lists
}

// producer pushes unique elements to queues.
func (c *remote) producer() {
	for n := 0; c.think() && c.connect(); n++ {
		p := checker.Push{Queue: number("queue", c.r.IntN(queues)), ID: fmt.Sprintf("%d.%d", c.id, n), Client: c.id}
		x := c.do(command{"rpush", p.Queue, p.ID})
		p.Call, p.Return, p.Outcome = x.call, x.ret, x.outcome
		c.h.served.mu.Lock()
		c.h.served.pushes = append(c.h.served.pushes, p)
		c.h.served.mu.Unlock()
		if c.r.IntN(20) == 0 {
			c.leave()
		}
	}
}

// consumer takes elements with blocking commands. The client sometimes closes
// its connection while it waits.
func (c *remote) consumer() {
	c.setup = []command{{"client", "id"}}
	for c.h.pause(time.Duration(c.r.Int64N(int64(60*time.Millisecond)))) && c.connect() {
		i := c.r.IntN(queues)
		k := &checker.Take{Queue: number("queue", i), Client: c.id, Node: c.home, Blocks: true}
		timeout := time.Duration(1+c.r.IntN(4)) * 100 * time.Millisecond
		if c.r.IntN(3) > 0 {
			timeout *= 10
		}
		seconds := strconv.FormatFloat(timeout.Seconds(), 'f', 1, 64)
		cmd := command{"blpop", k.Queue, seconds}
		if c.r.IntN(3) == 0 {
			k.To = number("moved", i)
			cmd = command{"blmove", k.Queue, k.To, "left", "right", seconds}
		}
		c.take(k, cmd, timeout)
	}
}

// impatient waits for elements that never come. It closes its connection and
// waits again, over and over. Therefore even a node that is delayed, or that
// has just started, gets a new waiter soon.
func (c *remote) impatient() {
	for c.h.pause(time.Duration(c.r.Int64N(int64(20*time.Millisecond)))) && c.connect() {
		home := c.home
		x := c.send(command{"blpop", "nothing", "0"})
		if x.outcome == checker.Done {
			c.receiveOrLeave(x, time.Duration(c.r.Int64N(int64(600*time.Millisecond))))
		}
		if c.r.IntN(8) > 0 {
			c.home = home
		}
	}
}

func (c *remote) take(k *checker.Take, cmd command, timeout time.Duration) {
	s := &c.h.served
	name := waiterName{c.proc.session, c.origin}
	s.mu.Lock()
	s.takes = append(s.takes, k)
	s.waiting[name] = k
	s.mu.Unlock()
	x := c.send(cmd)
	if x.outcome == checker.Done {
		limit := timeout + replyTimeout
		if c.r.IntN(8) == 0 { // the client leaves while it waits, or while the node replies
			limit = time.Duration(c.r.Int64N(int64(timeout)))
			x = c.receiveOrLeave(x, limit)
		} else {
			x = c.receive(x, 1, limit)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, name)
	k.Call, k.Return, k.Outcome = x.call, x.ret, x.outcome
	if x.err != nil {
		k.Error = x.err.Error()
	}
	if x.outcome != checker.Done {
		return
	}
	switch v := x.first(); {
	case v.Error:
		c.h.w.audit.violate("client %d: %v answered %s", c.id, cmd, v.Text)
	case v.Null:
	case k.To != "":
		k.ID = v.Text
	case len(v.Array) == 2:
		k.ID = v.Array[1].Text
	default:
		c.h.w.audit.violate("client %d: %v answered %+v", c.id, cmd, v)
	}
}
