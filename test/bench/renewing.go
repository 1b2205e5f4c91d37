package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// renewing runs clients that send the commands of a cycle, one after the other,
// again and again. As in loop, one thread serves all connections.
type renewing struct {
	cycle   []exchange
	clients []*renewer
	epoll   int
	out     []byte
}

// exchange is a command of a cycle.
type exchange struct {
	words func(c *renewer) []string
	reply string // "" for an integer above 0
}

// complete reports whether the reply has arrived. It returns an error if
// another reply has arrived.
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

// renewer is one client with at most one command under way.
type renewer struct {
	fd    int
	key   string
	owner string
	step  int // position in the cycle of the command under way
	sent  time.Time
	in    [64]byte
	n     int
	count int
}

// renewals is a cycle that takes, renews and releases a lock.
var renewals = []exchange{
	{func(c *renewer) []string { return []string{"SET", c.key, c.owner, "NX", "PX", "30000"} }, "+OK\r\n"},
	{func(c *renewer) []string { return []string{"PEXPIRE", c.key, "30000"} }, ":1\r\n"},
	{func(c *renewer) []string { return []string{"DELIFEQ", c.key, c.owner} }, ":1\r\n"},
}

// newRenewing connects the clients. key returns the key of each of them.
func newRenewing(addr string, clients int, cycle []exchange, key func(i int) string) (*renewing, error) {
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, err
	}
	l := &renewing{cycle: cycle}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	for i := range clients {
		fd, err := dial(to)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", addr, err), l.close())
		}
		l.clients = append(l.clients, &renewer{fd: fd, key: key(i), owner: loopToken + "-" + strconv.Itoa(i)})
		if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return nil, errors.Join(fmt.Errorf("epoll: %w", err), l.close())
		}
	}
	return l, nil
}

func (l *renewing) close() error {
	err := unix.Close(l.epoll)
	for _, c := range l.clients {
		err = errors.Join(err, unix.Close(c.fd))
	}
	return err
}

// maxReplyWait is how long a client may wait for a reply.
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
		if err := l.send(c); err != nil {
			return nil, err
		}
		open++
	}
	events := make([]unix.EpollEvent, 1024)
	for open > 0 {
		n, err := unix.EpollWait(l.epoll, events, 100)
		if err != nil && err != unix.EINTR {
			return nil, fmt.Errorf("epoll: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		now := time.Now()
		if now.After(end.Add(maxReplyWait)) {
			return nil, fmt.Errorf("%d clients have waited for a reply for %v", open, maxReplyWait)
		}
		for _, e := range events[:max(n, 0)] {
			c := l.clients[e.Fd]
			complete, err := l.receive(c)
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
			if err := l.send(c); err != nil {
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

// receive reads the data that has arrived and reports whether the reply is
// complete.
func (l *renewing) receive(c *renewer) (bool, error) {
	n, err := unix.Read(c.fd, c.in[c.n:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return false, errors.New("the connection was closed")
	}
	c.n += n
	if done, err := l.cycle[c.step].complete(string(c.in[:c.n])); err != nil || !done {
		return false, err
	}
	c.n, c.step = 0, (c.step+1)%len(l.cycle)
	return true, nil
}

// send sends the command of the client's current step.
func (l *renewing) send(c *renewer) error {
	words := l.cycle[c.step].words(c)
	l.out = append(strconv.AppendInt(append(l.out[:0], '*'), int64(len(words)), 10), "\r\n"...)
	for _, w := range words {
		l.out = append(strconv.AppendInt(append(l.out, '$'), int64(len(w)), 10), "\r\n"...)
		l.out = append(append(l.out, w...), "\r\n"...)
	}
	c.sent = time.Now()
	n, err := unix.Write(c.fd, l.out)
	if err == nil && n < len(l.out) {
		err = fmt.Errorf("the empty socket buffer accepted only %d of %d bytes", n, len(l.out))
	}
	return err
}
