package process

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Starter starts processes from one operating system thread of its own.
//
// On Linux, the kernel kills a process when the thread that started it ends,
// because PR_SET_PDEATHSIG applies to the thread. So no process is left behind
// when this process is killed, panics, or exceeds a time limit. The processes
// also share the attributes of the thread, such as its mount namespace.
type Starter struct {
	calls chan func()
	quit  chan struct{}
	once  sync.Once
}

// errStarterClosed is returned by a Starter after Close.
var errStarterClosed = errors.New("starter is closed")

// NewStarter makes a Starter. If prepare is not nil, NewStarter first runs
// prepare on the thread of the Starter.
func NewStarter(prepare func() error) (*Starter, error) {
	s := &Starter{calls: make(chan func()), quit: make(chan struct{})}
	ready := make(chan error)
	go func() {
		// The goroutine never unlocks the thread, so the thread ends with the
		// goroutine.
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

// Start starts a process that ends with the Starter. Only Linux supports this: on
// other systems, the process continues to run if this process is killed.
func (s *Starter) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithThread(cmd.SysProcAttr)
	return s.Do(cmd.Start)
}

// Close ends the thread. On Linux, the kernel then sends SIGKILL to the
// processes that the thread has started.
func (s *Starter) Close() { s.once.Do(func() { close(s.quit) }) }

// CommonStarter returns the Starter that all callers share if they have none of
// their own.
var CommonStarter = sync.OnceValues(func() (*Starter, error) { return NewStarter(nil) })

// Start starts a process that ends with this process: see Starter.Start.
func Start(cmd *exec.Cmd) error {
	s, err := CommonStarter()
	if err != nil {
		return err
	}
	return s.Start(cmd)
}
