package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// placement assigns processes to processors on a machine that has two. The
// server that receives the load runs on one of them. The load and all other
// servers run on the other. Both systems are placed in this way.
//
// Without a placement, the kernel runs a process that a message wakes on the
// processor of the sender. When both processors are nearly busy, the kernel
// does not look for an idle one. For a fifth of the time, four processes then
// share one processor while the other processor is idle. A Redis and its load
// are two processes, and they settle on one processor each. The three nodes do
// not settle, because they share two processors. With more processors, or with
// one machine per node, a placement is not needed.
type placement struct {
	all, asked, rest unix.CPUSet
}

// newPlacement returns the placement for this machine, or nil if there is none,
// because it is not wanted or the machine does not have two processors.
func newPlacement(wanted bool) (*placement, error) {
	if !wanted || runtime.NumCPU() != 2 {
		return nil, nil
	}
	p := &placement{}
	if err := unix.SchedGetaffinity(0, &p.all); err != nil {
		return nil, fmt.Errorf("read the list of processors: %w", err)
	}
	for cpu, seen := 0, 0; seen < 2; cpu++ {
		if !p.all.IsSet(cpu) {
			continue
		}
		if seen++; seen == 1 {
			p.rest.Set(cpu)
		} else {
			p.asked.Set(cpu)
		}
	}
	return p, nil
}

// String describes the placement for the report.
func (p *placement) String() string {
	if p == nil {
		return "none: the kernel chooses the processors"
	}
	return "the server under load on one processor; the load and the other nodes on the other (-place=false: " +
		"the kernel chooses)"
}

// place moves the measured process to its own processor. It moves the other
// processes, and this process, to the other processor.
func (p *placement) place(measured int, others ...int) error {
	if p == nil {
		return nil
	}
	for _, pid := range append(others, os.Getpid()) {
		if pid != measured {
			if err := move(pid, &p.rest); err != nil {
				return err
			}
		}
	}
	return move(measured, &p.asked)
}

// free lets this process, and the processes that it starts, run on all
// processors again.
func (p *placement) free() error {
	if p == nil {
		return nil
	}
	return move(os.Getpid(), &p.all)
}

// move sets the processors of all threads of a process. A new thread inherits
// the processors of the thread that creates it. So all threads have been moved
// after two successive passes in which move finds no thread on another
// processor.
func move(pid int, to *unix.CPUSet) error {
	for last := -1; ; {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return err
		}
		if len(tasks) == 0 {
			return fmt.Errorf("move process %d: it has ended", pid)
		}
		moved := 0
		for _, task := range tasks {
			tid, err := strconv.Atoi(filepath.Base(task))
			if err != nil {
				return fmt.Errorf("list the threads of process %d: %w", pid, err)
			}
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(tid, &now); err == nil && now == *to {
				continue
			}
			if err := unix.SchedSetaffinity(tid, to); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move thread %d of process %d: %w", tid, pid, err)
			}
			moved++
		}
		if moved == 0 && last == 0 {
			return nil
		}
		last = moved
	}
}
