package locking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/lock"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// lease contains the methods of lock.Held that supervise uses.
type lease interface {
	Key() string
	Token() int64
	// Until returns the earliest time at which the lease can end. Each renewal
	// moves this time.
	Until() time.Time
	// Context is canceled when the lock is lost or the lease may have ended.
	Context() context.Context
}

// ownName returns a unique owner that names this machine and this process.
func ownName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:8])
}

// child is the command that runs while the lock is held.
type child struct {
	cmd *exec.Cmd
	// group says whether the command has a process group of its own. On a terminal,
	// the command stays in the group of this process, because the terminal sends
	// Ctrl-C only to the foreground group.
	group bool
	ended chan error // receives the result of Wait
}

func startChild(l lease, command []string) (*child, error) {
	c := &child{cmd: exec.Command(command[0], command[1:]...), ended: make(chan error, 1)}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.Env = append(os.Environ(), "HOLDFAST_LOCK_KEY="+l.Key(),
		"HOLDFAST_LOCK_TOKEN="+strconv.FormatInt(l.Token(), 10))
	c.group = !term.IsTerminal(int(os.Stdin.Fd()))
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: c.group}
	if err := process.Start(c.cmd); err != nil {
		return nil, err
	}
	go func() { c.ended <- c.cmd.Wait() }()
	return c, nil
}

// send sends a signal to the command, or to its process group if it has one. The
// group may have processes even after the command has ended. If no process is
// left, send does nothing.
func (c *child) send(s syscall.Signal) {
	pid := c.cmd.Process.Pid
	if c.group {
		pid = -pid
	}
	_ = syscall.Kill(pid, s) // ESRCH means that no process is left
}

// forward passes a signal of this process on to the command.
func (c *child) forward(s syscall.Signal) {
	if !c.group && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		return // the terminal has sent it to the command too
	}
	c.send(s)
}

// supervise runs the command and waits until it has ended. If the lock is lost,
// supervise ends the command. It returns the exit code and, if the lock was lost,
// the reason.
func supervise(l lease, grace time.Duration, command []string, signals <-chan os.Signal,
	say func(string, ...any)) (code terminal.ExitCode, lost error) {
	c, err := startChild(l, command)
	if err != nil {
		say("%v", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNotFound, nil
		}
		return exitNotStarted, nil
	}
	over := l.Context().Done()
	var kill <-chan time.Time
	end := func(why error, rest time.Duration) {
		lost, over = why, nil
		c.send(syscall.SIGTERM)
		kill = time.After(rest)
	}
	for {
		var late <-chan time.Time
		if lost == nil {
			late = time.After(time.Until(l.Until()) - grace)
		}
		select {
		case err := <-c.ended:
			if lost != nil && c.group {
				c.send(syscall.SIGKILL) // to processes that the command has left in its group
			}
			return exitCode(err, say), lost
		case s := <-signals:
			c.forward(s.(syscall.Signal))
		case <-late:
			// A renewal may have extended the lease in the meantime.
			if rest := time.Until(l.Until()); rest <= grace {
				end(lock.ErrUnproved, rest)
			}
		case <-over:
			end(context.Cause(l.Context()), grace)
		case <-kill:
			c.send(syscall.SIGKILL)
		}
	}
}

// exitCode returns the exit code for the result of Wait.
func exitCode(err error, say func(string, ...any)) terminal.ExitCode {
	var failed *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &failed):
		say("wait for the command: %v", err)
		return 1
	}
	if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return terminal.ExitCode(exitSignal + int(status.Signal()))
	}
	return terminal.ExitCode(failed.ExitCode())
}
