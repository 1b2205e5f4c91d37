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

// placement says which processors who runs on, on a machine that has two: the
// server that the load goes to on one of them; the load, and all that this server
// talks to, on the other. Both systems are placed so.
//
// Left to itself the kernel puts whoever is woken by a message beside who sent it,
// and with both processors nearly busy it does not look for the idle one: four
// processes then share one processor for milliseconds while the other has nothing
// to do, for a fifth of the time. A Redis and its load, which are two, come to
// rest on a processor each. That is a property of three nodes on two processors,
// not of three nodes; with more processors, or a machine each, there is nothing
// to place.
type placement struct {
	all, asked, rest unix.CPUSet
}

// newPlacement returns nil if nothing is to be placed.
func newPlacement(wanted bool) (*placement, error) {
	if !wanted || runtime.NumCPU() != 2 {
		return nil, nil
	}
	p := &placement{}
	if err := unix.SchedGetaffinity(0, &p.all); err != nil {
		return nil, fmt.Errorf("read which processors there are: %w", err)
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

// String is what is printed of it.
func (p *placement) String() string {
	if p == nil {
		return "as the kernel likes"
	}
	return "the server that the load goes to on one processor; the load and other nodes on the other (-place=false: as the kernel likes)"
}

// place moves asked to its processor, and all others, this process included, to
// the other.
func (p *placement) place(asked int, others ...int) error {
	if p == nil {
		return nil
	}
	for _, pid := range append(others, os.Getpid()) {
		if pid != asked {
			if err := move(pid, &p.rest); err != nil {
				return err
			}
		}
	}
	return move(asked, &p.asked)
}

// free lets this process, and what it starts, run everywhere again.
func (p *placement) free() error {
	if p == nil {
		return nil
	}
	return move(os.Getpid(), &p.all)
}

// move sets the processors of all threads of a process. A new thread inherits
// those of its maker, so a pass that finds no other than the last has seen them
// all.
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
				return fmt.Errorf("threads of process %d: %w", pid, err)
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
