package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// sockets are the connections of a load generator. One thread waits for all of
// them at once, as redis-benchmark does. One goroutine for each connection
// would cost the machine more per command than redis-benchmark does. The load
// shares the processors with the systems. So this cost would slow down mainly
// the system that needs more processor time.
type sockets struct {
	epoll  int
	fds    []int
	out    []byte // the command that is being sent
	events []unix.EpollEvent
}

// connect opens n connections to addr, one after the other. If password is not
// empty, each of them logs in with it.
func connect(addr string, n int, password string) (*sockets, error) {
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, err
	}
	s := &sockets{events: make([]unix.EpollEvent, min(n, 1024))}
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	for i := range n {
		fd, err := dial(to, password)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", addr, err), s.close())
		}
		s.fds = append(s.fds, fd)
		if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return nil, errors.Join(fmt.Errorf("epoll: %w", err), s.close())
		}
	}
	return s, nil
}

// dial opens a socket without package net. Go's poller would also watch a
// socket of package net, and would wake a second thread for every reply.
func dial(to *net.TCPAddr, password string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil && password != "" {
		err = login(fd, password)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// login sends AUTH on a blocking socket and waits for the reply.
func login(fd int, password string) error {
	if _, err := unix.Write(fd, respwire.AppendCommand(nil, "AUTH", password)); err != nil {
		return fmt.Errorf("AUTH: %w", err)
	}
	var got []byte
	for in := make([]byte, 256); !bytes.HasSuffix(got, []byte("\r\n")); {
		n, err := unix.Read(fd, in)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("AUTH: %w", err)
		case n == 0:
			return errors.New("AUTH: the connection was closed")
		}
		got = append(got, in[:n]...)
	}
	if string(got) != granted {
		return fmt.Errorf("AUTH: got %q, want %q", got, granted)
	}
	return nil
}

func (s *sockets) close() error {
	err := unix.Close(s.epoll)
	for _, fd := range s.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// pollLimit is how long wait waits at most.
const pollLimit = 100 * time.Millisecond

// wait waits until data has arrived, or for pollLimit. The field Fd of an event
// is the index of the connection.
func (s *sockets) wait() ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(s.epoll, s.events, int(pollLimit.Milliseconds()))
	if err != nil && err != unix.EINTR {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return s.events[:max(n, 0)], nil
}

// receive reads data that has arrived at connection i. It returns 0 if there is
// none.
func (s *sockets) receive(i int, into []byte) (int, error) {
	n, err := unix.Read(s.fds[i], into)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, errors.New("the connection was closed")
	}
	return n, nil
}

// send sends a command on connection i. No other command may be in progress on
// that connection, because the socket buffer must be empty to have room for the
// command.
func (s *sockets) send(i int, args ...string) error {
	s.out = respwire.AppendCommand(s.out[:0], args...)
	n, err := unix.Write(s.fds[i], s.out)
	if err == nil && n < len(s.out) {
		err = fmt.Errorf("the empty socket buffer accepted only %d of %d bytes", n, len(s.out))
	}
	return err
}
