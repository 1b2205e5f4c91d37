package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// renewing runs clients that send the commands of a cycle, one after the other,
// again and again.
type renewing struct {
	*sockets
	cycle   []exchange
	clients []*renewer
}

// exchange is a command of a cycle.
type exchange struct {
	words func(c *renewer) []string
	reply string // "" for an integer above 0
}

// complete reports whether the expected reply has arrived as a whole. It
// returns an error if another reply has arrived.
func (e exchange) complete(got string) (bool, error) {
	whole := strings.HasSuffix(got, "\r\n")
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(got, ":"), "\r\n"), 10, 64)
	switch {
	case e.reply != "" && got == e.reply || e.reply == "" && whole && got[0] == ':' && err == nil && n > 0:
		return true, nil
	case e.reply != "" && strings.HasPrefix(e.reply, got), e.reply == "" && !whole && got[0] == ':':
		return false, nil // the rest has not arrived yet
	case e.reply == "":
		return false, fmt.Errorf("got %q, want an integer above 0", got)
	}
	return false, fmt.Errorf("got %q, want %q", got, e.reply)
}

// renewer is one client with at most one command in progress.
type renewer struct {
	socket int // index of the connection
	key    string
	owner  string
	step   int // position in the cycle of the command in progress
	sent   time.Time
	in     [64]byte
	n      int
	count  int
}

// renewals is a cycle that takes, renews and releases a lock.
var renewals = []exchange{
	{func(c *renewer) []string { return []string{"SET", c.key, c.owner, "NX", "PX", "30000"} }, "+OK\r\n"},
	{func(c *renewer) []string { return []string{"PEXPIRE", c.key, "30000"} }, ":1\r\n"},
	{func(c *renewer) []string { return []string{"DELIFEQ", c.key, c.owner} }, ":1\r\n"},
}

// newRenewing connects the clients. key returns the key of each of them. The
// clients log in if password is not empty.
func newRenewing(addr, password string, clients int, cycle []exchange, key func(i int) string) (*renewing, error) {
	s, err := connect(addr, clients, password)
	if err != nil {
		return nil, err
	}
	l := &renewing{sockets: s, cycle: cycle}
	for i := range clients {
		l.clients = append(l.clients, &renewer{socket: i, key: key(i), owner: loopToken + "-" + strconv.Itoa(i)})
	}
	return l, nil
}

// maxReplyWait is how long the clients may take to complete their cycles after
// the end of the run.
const maxReplyWait = 60 * time.Second

// runFor runs cycles for the given number of seconds. Then it lets the clients
// complete their cycles. It checks every reply.
func (l *renewing) runFor(ctx context.Context, seconds float64) (*span, error) {
	s := &span{}
	begun := time.Now()
	end := begun.Add(time.Duration(seconds * float64(time.Second)))
	open := 0
	for _, c := range l.clients {
		c.count = 0
		if err := l.request(c); err != nil {
			return nil, err
		}
		open++
	}
	for open > 0 {
		events, err := l.wait()
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		now := time.Now()
		if now.After(end.Add(maxReplyWait)) {
			return nil, fmt.Errorf("%d clients have not completed their cycles %v after the end of the run",
				open, maxReplyWait)
		}
		for _, e := range events {
			c := l.clients[e.Fd]
			complete, err := l.advance(c)
			if err != nil {
				return nil, fmt.Errorf("client %d: %w", e.Fd, err)
			}
			if !complete {
				continue
			}
			s.times = append(s.times, now.Sub(c.sent))
			if now.After(end) && c.step == 0 {
				open--
				continue
			}
			if !now.After(end) {
				c.count++
			}
			if err := l.request(c); err != nil {
				return nil, err
			}
		}
	}
	s.took = time.Since(begun)
	for _, c := range l.clients {
		s.counts = append(s.counts, c.count)
	}
	slices.Sort(s.times)
	return s, nil
}

// advance reads the data that has arrived and reports whether the reply is
// complete.
func (l *renewing) advance(c *renewer) (bool, error) {
	n, err := l.receive(c.socket, c.in[c.n:])
	if err != nil || n == 0 {
		return false, err
	}
	c.n += n
	if done, err := l.cycle[c.step].complete(string(c.in[:c.n])); err != nil || !done {
		return false, err
	}
	c.n, c.step = 0, (c.step+1)%len(l.cycle)
	return true, nil
}

// request sends the command of the client's current step.
func (l *renewing) request(c *renewer) error {
	words := l.cycle[c.step].words(c)
	c.sent = time.Now()
	return l.send(c.socket, words...)
}
