package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// loop generates the load of the lock cycles. One thread waits for all
// connections at once, as redis-benchmark does. One goroutine for each
// connection would cost the machine more per command than redis-benchmark does.
// Where the load and the systems share the processors, that cost would slow
// down the system that needs the processors most.
type loop struct {
	cycle *cycle
	lanes []*lane
	each  int // cycles per lane
	epoll int
	out   []byte // the command that is being sent
	times []time.Duration
}

// lane is a connection with one command under way.
type lane struct {
	fd      int
	prefix  string
	done    int // cycles completed
	key     string
	begun   time.Time // beginning of the cycle
	release bool      // the command under way is the second one of the cycle
	in      [64]byte  // the part of the reply that has arrived
	n       int
}

const loopToken = "holder-0123456789"

// These are the only valid replies to the two commands of a cycle.
const (
	granted  = "+OK\r\n"
	released = ":1\r\n"
)

// newLoop opens the connections to addr.
func newLoop(c *cycle, addr string, clients int, prefix string, each int) (*loop, error) {
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, err
	}
	l := &loop{cycle: c, each: each, times: make([]time.Duration, 0, each*clients)}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	for i := range clients {
		fd, err := dial(to)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", addr, err), l.close())
		}
		l.lanes = append(l.lanes, &lane{fd: fd, prefix: prefix + ":" + strconv.Itoa(i) + ":"})
		if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return nil, errors.Join(fmt.Errorf("epoll: %w", err), l.close())
		}
	}
	return l, nil
}

// dial opens a socket that package net does not know. Go's poller would also
// watch a socket of package net, and would wake a second thread for every
// reply.
func dial(to *net.TCPAddr) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func (l *loop) close() error {
	err := unix.Close(l.epoll)
	for _, ln := range l.lanes {
		err = errors.Join(err, unix.Close(ln.fd))
	}
	return err
}

// run runs all cycles and checks every reply.
func (l *loop) run(ctx context.Context) error {
	open := len(l.lanes)
	for _, ln := range l.lanes {
		if err := l.lock(ln); err != nil {
			return err
		}
	}
	events := make([]unix.EpollEvent, len(l.lanes))
	for open > 0 {
		n, err := unix.EpollWait(l.epoll, events, 100)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("epoll: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			ended, err := l.receive(l.lanes[e.Fd])
			if err != nil {
				return err
			}
			if ended {
				open--
			}
		}
	}
	return nil
}

// receive reads the data that has arrived. If the reply is complete, receive
// sends the next command. ended reports whether the lane has run all its
// cycles.
func (l *loop) receive(ln *lane) (ended bool, err error) {
	n, err := unix.Read(ln.fd, ln.in[ln.n:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return false, errors.New("the connection was closed")
	}
	ln.n += n
	got, want := string(ln.in[:ln.n]), granted
	if ln.release {
		want = released
	}
	if len(got) < len(want) && got == want[:len(got)] {
		return false, nil // the rest has not arrived yet
	}
	if got != want {
		return false, fmt.Errorf("got %q, want %q", got, want)
	}
	ln.n = 0
	if !ln.release {
		ln.release = true
		return false, l.send(ln, "EVALSHA", l.cycle.sha, "1", ln.key, loopToken)
	}
	l.times = append(l.times, time.Since(ln.begun))
	if ln.done++; ln.done == l.each {
		return true, nil
	}
	return false, l.lock(ln)
}

// lock begins the next cycle of a lane.
func (l *loop) lock(ln *lane) error {
	ln.release, ln.key, ln.begun = false, ln.prefix+strconv.Itoa(ln.done), time.Now()
	return l.send(ln, "SET", ln.key, loopToken, "NX", "PX", "30000")
}

func (l *loop) send(ln *lane, args ...string) error {
	out := append(strconv.AppendInt(append(l.out[:0], '*'), int64(len(args)), 10), "\r\n"...)
	for _, a := range args {
		out = append(strconv.AppendInt(append(out, '$'), int64(len(a)), 10), "\r\n"...)
		out = append(append(out, a...), "\r\n"...)
	}
	l.out = out
	n, err := unix.Write(ln.fd, out)
	if err == nil && n < len(out) {
		err = fmt.Errorf("the empty socket buffer accepted only %d of %d bytes", n, len(out))
	}
	return err
}
