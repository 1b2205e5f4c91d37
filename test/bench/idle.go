package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

const (
	idleName = "idle"

	// idleRest is the time between the start of the servers and the
	// measurement. idleTime is the length of the measurement.
	idleRest = 10 * time.Second
	idleTime = 40 * time.Second

	// These are upper limits, as shares of one core.
	idleLeaderLimit   = 0.02
	idleFollowerLimit = 0.01
)

// measureIdle measures how much processor time a Redis and a cluster use while
// they have no data and no clients.
func measureIdle(ctx context.Context, m machine) (missed bool, err error) {
	server, err := startRedis(ctx, m.tools, filepath.Join(m.dir, "idle-redis"), redisFlags)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	c, err := startCluster(ctx, m.program, filepath.Join(m.dir, "idle"), m.o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	fmt.Fprintf(m.out, "\n%s: no data, no clients, %v\n", idleName, idleTime)
	if !load.Sleep(ctx, idleRest) {
		return false, ctx.Err()
	}
	leader, err := c.Settled(ctx)
	if err != nil {
		return false, err
	}
	pids := []int{server.cmd.Process.Pid, leader.PID()}
	for _, n := range c.Running(leader) {
		pids = append(pids, n.PID())
	}
	before, err := processorTimes(pids)
	if err != nil {
		return false, err
	}
	begun := time.Now()
	if !load.Sleep(ctx, idleTime) {
		return false, ctx.Err()
	}
	after, err := processorTimes(pids)
	if err != nil {
		return false, err
	}
	took := time.Since(begun)
	if now, err := c.Settled(ctx); err != nil || now != leader {
		return false, errors.Join(errors.New("the leader changed during the measurement"), err)
	}
	shares := make([]float64, len(pids))
	for i := range pids {
		shares[i] = float64(after[i]-before[i]) / float64(took)
	}
	verdict := "ok"
	if shares[1] > idleLeaderLimit || max(shares[2], shares[3]) > idleFollowerLimit {
		verdict, missed = "MISSED", true
	}
	fmt.Fprintf(m.out, "processor: Redis %.2f %%, leader %.2f %% (at most %.1f), followers %.2f and %.2f %% of a core "+
		"(at most %.1f): %s\n", 100*shares[0], 100*shares[1], 100*idleLeaderLimit, 100*shares[2], 100*shares[3],
		100*idleFollowerLimit, verdict)
	return missed, nil
}

// tick is the unit of the times in /proc/PID/stat on Linux: 1/USER_HZ seconds,
// and USER_HZ is 100 on all architectures that Go supports.
const tick = 10 * time.Millisecond

// processorTimes returns the sum of the user time and the system time of each
// process.
func processorTimes(pids []int) ([]time.Duration, error) {
	times := make([]time.Duration, len(pids))
	for i, pid := range pids {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			return nil, err
		}
		if times[i], err = parseStat(string(b)); err != nil {
			return nil, fmt.Errorf("read the processor time of process %d: %w", pid, err)
		}
	}
	return times, nil
}

// parseStat returns the sum of utime and stime of a line of /proc/PID/stat: see
// proc_pid_stat(5). The name of the program, in parentheses, may contain blanks.
func parseStat(line string) (time.Duration, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("the line %q of /proc/PID/stat has too few fields", line)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err
}
