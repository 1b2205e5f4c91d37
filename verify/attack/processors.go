package attack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// clockTicks is the number of units of /proc/stat in a second: USER_HZ, which
// is 100 on all architectures that Linux runs on today.
const clockTicks = 100

// maxOthers limits the share of the processors that processes outside the run
// may use. Above this share, those processes determine how soon a node runs. An
// election or a long wait then proves nothing.
const maxOthers = 0.4

// usage is the processor time that the machine and this run had used at one
// moment.
type usage struct {
	at    time.Time
	all   float64         // seconds, by all processes
	known map[int]float64 // seconds, by process of the run
}

// processors returns the processor time that the machine and the given
// processes have used. A process that has ended is left out.
func processors(pids []int) (usage, error) {
	u := usage{at: time.Now(), known: make(map[int]float64)}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return u, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		n, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return u, fmt.Errorf("/proc/stat: %w", err)
		}
		u.all += n / clockTicks
	}
	for _, pid := range pids {
		used, err := processorTime(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return u, err
		default:
			u.known[pid] = used
		}
	}
	return u, nil
}

// processorTime returns the seconds of processor time that a process has used.
func processorTime(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name is in parentheses and may contain any character.
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, b)
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / clockTicks, errors.Join(err1, err2)
}

// others returns the share of all processors that processes outside the run
// have used between two moments, from 0 to 1.
func (u usage) others(since usage) float64 {
	used := u.all - since.all
	for pid, now := range u.known {
		used -= now - since.known[pid]
	}
	elapsed := u.at.Sub(since.at).Seconds() * float64(runtime.NumCPU())
	return max(used, 0) / elapsed
}

// usage returns the processor time that the machine, this process and the
// running nodes have used.
func (c *cluster) usage() (usage, error) {
	pids := []int{os.Getpid()}
	for _, n := range c.live() {
		pids = append(pids, n.PID())
	}
	return processors(pids)
}
