package yield

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller makes the scheduler poll the network. The goroutine that calls poll
// makes a file descriptor readable and then waits for it. So the goroutine is
// parked until the scheduler asks the kernel which descriptors are ready. The
// kernel's answer includes the sockets that are ready.
type poller struct {
	conn    syscall.RawConn       // connection to an eventfd; nil if none has been opened
	signal  func(fd uintptr) bool // p.signaled, stored so that poll does not allocate
	written bool                  // this poll has made the descriptor readable
	counter [8]byte               // buffer for the number that poll reads from the descriptor
}

// one is the number that the method signaled writes to make the eventfd
// readable. All its bytes are the same, so that the byte order does not matter.
var one = [8]byte{1, 1, 1, 1, 1, 1, 1, 1}

// open opens the descriptor, which stays open until the process ends.
func (p *poller) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	p.conn, err = os.NewFile(uintptr(fd), "eventfd").SyscallConn()
	p.signal = p.signaled
	return err
}

func (p *poller) poll() {
	if p.conn == nil && p.open() != nil {
		runtime.Gosched()
		return
	}
	p.written = false
	if err := p.conn.Read(p.signal); err != nil {
		runtime.Gosched()
		return
	}
	// The scheduler may have continued this goroutine before those that the
	// network has woken. Let them run first.
	runtime.Gosched()
}

// signaled makes the descriptor readable and returns false, which makes Read
// wait for it. When it is called again, it makes the descriptor unreadable, so
// that the next write is an event again.
func (p *poller) signaled(fd uintptr) bool {
	if p.written {
		_, _ = unix.Read(int(fd), p.counter[:]) // fails only if another event has woken the goroutine
		return true
	}
	p.written = true
	_, err := unix.Write(int(fd), one[:])
	return err != nil
}
