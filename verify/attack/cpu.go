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

	"github.com/holdfast-kv/holdfast/test/process"
)

// threads are the ids of a process' threads.
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

// pin lets a process run on the given processors only. Threads that it makes
// later inherit that; those that it makes meanwhile are found by looking again.
func pin(pid int, where unix.CPUSet) error {
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
			if err := unix.SchedSetaffinity(tid, &where); err != nil && !errors.Is(err, unix.ESRCH) { // a thread may end
				return fmt.Errorf("pin thread %d of process %d: %w", tid, pid, err)
			}
			done[tid] = true
		}
		if len(done) == before {
			return nil
		}
	}
}

// turns is what the kernel's scheduler did with a process since it began: how
// long its threads have run, and how long they could have and had to wait for a
// processor, all threads added up.
type turns struct{ ran, waited time.Duration }

func (t turns) since(u turns) turns { return turns{t.ran - u.ran, t.waited - u.waited} }

func turnsOf(pid int) (turns, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return turns{}, err
	}
	var sum turns
	read := false
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		var t turns
		if _, err := fmt.Sscan(string(b), &t.ran, &t.waited); err != nil {
			return turns{}, fmt.Errorf("%s: %q: %w", f, b, err)
		}
		sum.ran, sum.waited, read = sum.ran+t.ran, sum.waited+t.waited, true
	}
	if !read {
		return turns{}, fmt.Errorf("process %d shows no schedstat", pid)
	}
	return sum, nil
}

// canStarve says why processes cannot be kept from the processor here, or "".
func canStarve(Config) string {
	if runtime.NumCPU() < 2 {
		return "needs two processors: on one the clients would starve with the nodes"
	}
	if _, err := exec.LookPath("sh"); err != nil {
		return "needs sh"
	}
	if b, err := os.ReadFile("/proc/self/schedstat"); err != nil || strings.HasPrefix(string(b), "0 0 ") {
		return "needs /proc/…/schedstat of the kernel"
	}
	return ""
}

// hogNice is the priority of hogs: each weighs as much as three threads of a
// node. Only root may have it; else they are as good as everybody.
const hogNice = -5

// hogs are processes that do nothing as fast as they can.
type hogs []*exec.Cmd

// startHogs starts n of them on the given processors. They die with this process.
func startHogs(n int, where unix.CPUSet) (hogs, error) {
	var all hogs
	for range n {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := process.Start(cmd); err != nil {
			return all, fmt.Errorf("hog: %w", err)
		}
		all = append(all, cmd)
		if err := unix.SchedSetaffinity(cmd.Process.Pid, &where); err != nil {
			return all, fmt.Errorf("pin a hog: %w", err)
		}
		if os.Getuid() != 0 {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, hogNice); err != nil {
			return all, fmt.Errorf("priority of a hog: %w", err)
		}
	}
	return all, nil
}

// stop ends them and waits until they are gone.
func (h hogs) stop() {
	for _, cmd := range h {
		discard(cmd.Process.Kill())
	}
	for _, cmd := range h {
		discard(cmd.Wait()) // killed, as it should be
	}
}
