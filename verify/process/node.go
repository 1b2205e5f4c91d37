package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Node is one node of a cluster. It has an identity, addresses and a data
// directory. From Start until the process ends, it also has a process.
type Node struct {
	ID                   string
	Clients, Peers, HTTP string // addresses
	Sentinel             string // address, "" for none
	Dir                  string // data directory
	LogFile              string // output of all its processes

	Args []string // arguments of the program at each start
	Env  []string // environment of its processes

	password string
	program  string
	starter  *Starter

	mu     sync.Mutex
	extra  []string // environment from Use; mu guards extra and program
	run    *run     // nil before the first Start
	logged int64    // size of LogFile at the latest Start
}

// run is one process of a node.
type run struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // result of Wait, valid once exited is closed
}

func (r *run) alive() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// errRunning and errNotRunning are returned if the node is in the wrong state.
var (
	errRunning    = errors.New("node is running")
	errNotRunning = errors.New("node is not running")
)

// Another returns a new node with the same program, password, arguments and
// environment. It has no process, no id and no addresses yet.
func (n *Node) Another() *Node {
	return &Node{Args: n.Args, Env: n.Env, password: n.password, program: n.Program(), starter: n.starter}
}

// Use makes later starts run the given program, with the variables of env added to
// its environment.
func (n *Node) Use(program string, env ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.program, n.extra = program, env
}

// Program returns the path of the program that the next start runs.
func (n *Node) Program() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.program
}

// Start starts the node's process. It appends extra to the usual arguments. It
// does not wait until the node replies.
func (n *Node) Start(extra ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run.alive() {
		return fmt.Errorf("start %s: %w", n.ID, errRunning)
	}
	log, err := os.OpenFile(n.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has a descriptor of its own
	if n.logged, err = log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	r := &run{cmd: exec.Command(n.program, append(append([]string{}, n.Args...), extra...)...),
		exited: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.Env = append(slices.Clone(n.Env), n.extra...)
	// The process gets its own process group, so that Ctrl-C for a test or a
	// benchmark does not reach the node.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.starter.Start(r.cmd); err != nil {
		return fmt.Errorf("start %s: %w", n.ID, err)
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.exited)
	}()
	n.run = r
	return nil
}

func (n *Node) current() *run {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.run
}

// Running reports whether the node's process is alive.
func (n *Node) Running() bool { return n.current().alive() }

// PID returns the process id of the latest Start, 0 before the first.
func (n *Node) PID() int {
	if r := n.current(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// Signal sends a signal to the node's process.
func (n *Node) Signal(sig syscall.Signal) error {
	r := n.current()
	if !r.alive() {
		return fmt.Errorf("signal %s: %w", n.ID, errNotRunning)
	}
	return r.cmd.Process.Signal(sig)
}

// Kill ends the process with SIGKILL, if it is alive, and waits until it is
// gone.
func (n *Node) Kill() error {
	r := n.current()
	if !r.alive() {
		return nil
	}
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", n.ID, err)
	}
	<-r.exited
	return nil
}

// Wait waits for the end of the process, for at most limit. It returns the exit
// code, -1 if a signal ended the process.
func (n *Node) Wait(limit time.Duration) (exitCode int, err error) {
	r := n.current()
	if r == nil {
		return 0, fmt.Errorf("wait for %s: %w", n.ID, errNotRunning)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-r.exited:
		return r.cmd.ProcessState.ExitCode(), nil
	case <-t.C:
		return 0, fmt.Errorf("%s (pid %d) still runs after %v", n.ID, r.cmd.Process.Pid, limit)
	}
}

// Exit returns the error with which the latest process ended, for example
// "signal: killed". It returns nil if the process exited with code 0 or is
// still running, or if there was none.
func (n *Node) Exit() error {
	if r := n.current(); r != nil && !r.alive() {
		return r.err
	}
	return nil
}

// Stop sends SIGTERM to the process and then does the same as Wait.
func (n *Node) Stop(limit time.Duration) (exitCode int, err error) {
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	return n.Wait(limit)
}

// Output returns the output of the latest process.
func (n *Node) Output() string {
	n.mu.Lock()
	from := n.logged
	n.mu.Unlock()
	f, err := os.Open(n.LogFile)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, from, 1<<40))
	if err != nil {
		return string(b) + "\n" + err.Error()
	}
	return string(b)
}
