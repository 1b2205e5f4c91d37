package load

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// takeTimeout is how long a client waits for the reply of a blocking command
// after the time for which the command may block. It is longer than the time
// for which a node looks for a leader before it replies that there is none.
const takeTimeout = 10 * time.Second

// slowQueues is the number of queues with so few elements that many clients
// wait for them at a time. While a node is cut off, the cluster serves elements
// to some of its waiting clients and not to others.
const slowQueues = 2

func (c *client) slowQueue() string {
	return fmt.Sprintf("%sslow:%d", c.load.cfg.Prefix, c.rng.IntN(slowQueues))
}

// produce pushes unique elements to queues until the load stops.
func (c *client) produce() {
	for c.ready() {
		c.push(c.load.queues.take(c.rng, 1))
	}
}

// produceSlowly is like produce, for the slow queues.
func (c *client) produceSlowly() {
	for c.ready() {
		c.push(c.slowQueue())
		Sleep(c.load.ctx, time.Duration(c.rng.Int64N(int64(time.Second))))
	}
}

func (c *client) push(queue string) {
	l := c.load
	p := checker.Push{Queue: l.mark(queue), ID: c.unique("element"), Client: c.id, Outcome: checker.Unknown}
	replies, call, ret := c.send([][]string{{"RPUSH", queue, p.ID}})
	p.Call, p.Return = call, ret
	if len(replies) > 0 {
		p.Outcome = outcomeOf(replies[0])
	}
	l.rec.add(func(h *History) { h.Pushes = append(h.Pushes, p) })
}

// consume takes elements with blocking commands until the load stops.
func (c *client) consume() {
	for c.ready() {
		c.take(c.load.queues.take(c.rng, 0), time.Duration(100+c.rng.IntN(4900))*time.Millisecond)
	}
}

// consumeSlowly is like consume, for the slow queues. It waits for 20 s, or for
// 1 to 8 s. So when a node is connected again after a cut, some of its clients
// still wait and others have given up.
func (c *client) consumeSlowly() {
	for c.ready() {
		block := 20 * time.Second
		if c.rng.IntN(2) == 0 {
			block = time.Duration(1000+c.rng.IntN(7000)) * time.Millisecond
		}
		c.take(c.slowQueue(), block)
	}
}

// take takes an element. In some calls, the client closes the connection while
// it waits. A command has an unknown outcome if it is still in flight when the
// client closes the connection or the load ends.
func (c *client) take(queue string, block time.Duration) {
	l := c.load
	k := checker.Take{Queue: l.mark(queue), Client: c.id, Node: c.node(), Blocks: true, Outcome: checker.Unknown}
	seconds := strconv.FormatFloat(block.Seconds(), 'f', 3, 64)
	cmd := []string{"BLPOP", queue, seconds}
	if c.rng.IntN(3) == 0 {
		k.To = l.mark(queue + ":moved")
		cmd = []string{"BLMOVE", queue, k.To, "LEFT", "RIGHT", seconds}
	}
	limit := block + takeTimeout
	if c.rng.IntN(30) == 0 {
		limit = time.Duration(1 + c.rng.Int64N(int64(min(block, time.Second))))
	}
	l.begins(queue)
	v, call, ret, err := c.await(cmd, limit)
	l.ends(queue)
	k.Call, k.Return = call, ret
	if err == nil {
		settleTake(&k, v)
	}
	l.rec.add(func(h *History) { h.Takes = append(h.Takes, k) })
}

// await sends one command whose reply may take as long as limit. It waits for
// the reply, but not beyond the end of the load. A long wait does not mean that
// the cluster is unhealthy, so await records no trouble.
func (c *client) await(cmd []string, limit time.Duration) (v respwire.Value, call, ret time.Duration, err error) {
	l := c.load
	conn := c.conn
	conn.timeout = limit
	call = l.Now()
	stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() }) // closing only makes reads and writes fail
	replies, err := conn.Pipeline([][]string{cmd})
	stop()
	ret = l.Now()
	conn.timeout = l.cfg.ReplyTimeout
	l.rec.note(1, ret, ret, nil)
	if err != nil {
		c.hangUp()
		if l.ctx.Err() == nil {
			c.at++
		}
		return respwire.Value{}, call, ret, err
	}
	return replies[0], call, ret, nil
}

// settleTake records a reply. An error that is not a refusal does not show what
// happened to the element.
func settleTake(k *checker.Take, v respwire.Value) {
	switch {
	case v.Err != "":
		k.Error = v.Err
		if outcomeOf(v) == checker.Refused {
			k.Outcome = checker.Refused
		}
		return
	case k.To != "":
		k.ID = v.Text
	case len(v.Elems) == 2:
		k.ID = v.Elems[1].Text
	}
	k.Outcome = checker.Done
}
