package process

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Starter starts processes from one operating system thread of its own. A
// process dies with the thread that started it (PR_SET_PDEATHSIG goes by the
// thread), so none is left behind when this process is killed, panics or runs
// into a time limit. And what the thread has made its own, such as a mount
// namespace, the processes share.
type Starter struct {
	calls chan func()
	quit  chan struct{}
	once  sync.Once
}

// errStarterClosed is returned by a Starter after Close.
var errStarterClosed = errors.New("starter is closed")

// NewStarter makes a Starter. If prepare is not nil it runs on the thread
// first.
func NewStarter(prepare func() error) (*Starter, error) {
	s := &Starter{calls: make(chan func()), quit: make(chan struct{})}
	ready := make(chan error)
	go func() {
		// Never unlocked: the thread ends with this goroutine.
		runtime.LockOSThread()
		if prepare != nil {
			if err := prepare(); err != nil {
				ready <- err
				return
			}
		}
		ready <- nil
		for {
			select {
			case f := <-s.calls:
				f()
			case <-s.quit:
				return
			}
		}
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("prepare starter: %w", err)
	}
	return s, nil
}

// Do runs f on the Starter's thread.
func (s *Starter) Do(f func() error) error {
	done := make(chan error, 1)
	select {
	case s.calls <- func() { done <- f() }:
		return <-done
	case <-s.quit:
		return errStarterClosed
	}
}

// Start starts a process that dies with the Starter.
func (s *Starter) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return s.Do(cmd.Start)
}

// Close ends the thread, and with it, by SIGKILL, what it has started.
func (s *Starter) Close() { s.once.Do(func() { close(s.quit) }) }

// common is the Starter of all that ask for no other.
var common = sync.OnceValues(func() (*Starter, error) { return NewStarter(nil) })

// Start starts a process that dies with this one.
func Start(cmd *exec.Cmd) error {
	s, err := common()
	if err != nil {
		return err
	}
	return s.Start(cmd)
}
