package attack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-kv/holdfast/platform"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// threads returns the ids of the threads of a process.
func threads(pid int) ([]int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	var all []int
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, tid)
	}
	return all, nil
}

// pin restricts a process to the given processors. Threads that the process
// creates later inherit the restriction. pin lists the threads repeatedly to
// find those that the process creates while pin runs.
func pin(pid int, where platform.Processors) error {
	done := make(map[int]bool)
	for {
		all, err := threads(pid)
		if err != nil {
			return err
		}
		before := len(done)
		for _, tid := range all {
			if done[tid] {
				continue
			}
			// ESRCH means that the thread has ended.
			if err := platform.Pin(tid, &where); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("pin thread %d of process %d: %w", tid, pid, err)
			}
			done[tid] = true
		}
		if len(done) == before {
			return nil
		}
	}
}

// schedTimes contains two times that the scheduler of the kernel reports for a
// process since its start: how long its threads have run, and how long they
// were runnable but waited for a processor. Both are sums over the threads that
// exist.
type schedTimes struct{ ran, waited time.Duration }

func (t schedTimes) since(u schedTimes) schedTimes {
	return schedTimes{t.ran - u.ran, t.waited - u.waited}
}

func turnsOf(pid int) (schedTimes, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return schedTimes{}, err
	}
	var sum schedTimes
	read := false
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		var t schedTimes
		if _, err := fmt.Sscan(string(b), &t.ran, &t.waited); err != nil {
			return schedTimes{}, fmt.Errorf("%s: %q: %w", f, b, err)
		}
		sum.ran, sum.waited, read = sum.ran+t.ran, sum.waited+t.waited, true
	}
	if !read {
		return schedTimes{}, fmt.Errorf("/proc has no schedstat for process %d", pid)
	}
	return sum, nil
}

// canStarve returns why processes cannot be starved of CPU on this machine, or
// "" if they can.
func canStarve(Config) string {
	if runtime.NumCPU() < 2 {
		return "needs two processors: with one, the clients would be starved together with the nodes"
	}
	if _, err := exec.LookPath("sh"); err != nil {
		return "needs sh"
	}
	if b, err := os.ReadFile("/proc/self/schedstat"); err != nil || strings.HasPrefix(string(b), "0 0 ") {
		return "needs a kernel that counts waiting times in /proc/…/schedstat"
	}
	return ""
}

// hogNice is the priority of hogs. At this priority a hog has the weight of
// three threads of a node. Only root may set it. For other users hogs run at
// the default priority.
const hogNice = -5

// hogs are processes that run a busy loop.
type hogs []*exec.Cmd

// startHogs starts n hogs on the given processors. They end when this process
// ends.
func startHogs(n int, where platform.Processors) (hogs, error) {
	var all hogs
	for range n {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := process.Start(cmd); err != nil {
			return all, fmt.Errorf("start a hog: %w", err)
		}
		all = append(all, cmd)
		if err := platform.Pin(cmd.Process.Pid, &where); err != nil {
			return all, fmt.Errorf("pin a hog: %w", err)
		}
		if os.Getuid() != 0 {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, hogNice); err != nil {
			return all, fmt.Errorf("set the priority of a hog: %w", err)
		}
	}
	return all, nil
}

// stop kills the hogs and waits until they have ended.
func (h hogs) stop() {
	for _, cmd := range h {
		discard(cmd.Process.Kill())
	}
	for _, cmd := range h {
		discard(cmd.Wait()) // killed, as expected
	}
}
