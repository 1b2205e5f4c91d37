package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

const (
	millionName  = "million locks"
	millionLocks = 1_000_000

	// These are upper limits, as multiples of the time and the memory that one
	// Redis without persistence needs for the same locks. They are for the time to
	// load the locks, for the resident memory of any node, and for its peak while
	// the nodes write snapshots.
	loadFactor   = 20
	memoryFactor = 3
	peakFactor   = 4

	// restartLimit is the upper limit for the time from the start of a stopped
	// follower until it is ready again.
	restartLimit = 5 * time.Second
)

// measureMillion loads a million locks with a TTL through one pipeline, into a
// Redis without persistence and into a cluster. Then it measures three things:
// the resident memory, the peak while the nodes write snapshots, and the time
// of a restart of a follower.
func measureMillion(ctx context.Context, m machine) (missed bool, err error) {
	fmt.Fprintf(m.out, "\n%s: %d times SET NX PX through one pipeline, keys of 20 bytes and values of 16\n",
		millionName, millionLocks)
	server, err := startRedis(ctx, m.tools, filepath.Join(m.dir, "million-redis"), redisMemoryFlags)
	if err != nil {
		return false, err
	}
	locks := lockLoad{millionLocks, "lock:%015d", "holder-012345678"}
	redisTook, err := locks.run(ctx, server.addr)
	if err != nil {
		return false, errors.Join(fmt.Errorf("load redis: %w", err), server.close())
	}
	redisMemory, err := memoryOf(server.cmd.Process.Pid, "VmRSS")
	if err := errors.Join(err, server.close()); err != nil {
		return false, err
	}

	c, err := startCluster(ctx, m.program, filepath.Join(m.dir, "million"), m.o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	leader, err := c.Settled(ctx)
	if err != nil {
		return false, err
	}
	took, err := locks.run(ctx, leader.Clients)
	if err != nil {
		return false, errors.Join(fmt.Errorf("load the cluster: %w", err), showLogs(c))
	}
	if leader, err = c.Settled(ctx); err != nil {
		return false, errors.Join(err, showLogs(c))
	}
	memory, err := memoryOfNodes(c.Nodes, leader, "VmRSS")
	if err != nil {
		return false, err
	}
	for _, n := range c.Nodes {
		if err := resetPeak(n.PID()); err != nil {
			return false, err
		}
	}
	for _, n := range c.Nodes {
		if _, err := ask(n.Clients, "SAVE"); err != nil {
			return false, fmt.Errorf("snapshot of %s: %w", n.ID, err)
		}
	}
	peaks, err := memoryOfNodes(c.Nodes, leader, "VmHWM")
	if err != nil {
		return false, err
	}
	restart, err := restartOne(ctx, c, leader)
	if err != nil {
		return false, errors.Join(err, showLogs(c))
	}
	verdict := "ok"
	if took > loadFactor*redisTook || memory.most() > memoryFactor*redisMemory ||
		peaks.most() > peakFactor*redisMemory || restart > restartLimit {
		verdict, missed = "MISSED", true
	}
	fmt.Fprintf(m.out, "loading: Redis %.1f s, leader %.1f s (%.1f times, at most %d)\n",
		redisTook.Seconds(), took.Seconds(), took.Seconds()/redisTook.Seconds(), loadFactor)
	fmt.Fprintf(m.out, "resident memory: Redis %d MB; %s (at most %d times)\n", redisMemory,
		memory.timesOf(redisMemory), memoryFactor)
	fmt.Fprintf(m.out, "peak while snapshots are written: %s (at most %d times)\n", peaks.timesOf(redisMemory),
		peakFactor)
	fmt.Fprintf(m.out, "restart of a follower until it is ready: %.1f s (at most %.0f s): %s\n", restart.Seconds(),
		restartLimit.Seconds(), verdict)
	return missed, nil
}

// lockLoad describes locks with a TTL that one pipeline writes.
type lockLoad struct {
	count int
	key   string // format of the keys
	value string
}

// run sends the locks through one pipeline, and returns the time until the last
// reply. Every lock must be new.
func (l lockLoad) run(ctx context.Context, addr string) (time.Duration, error) {
	conn, err := respwire.Connect(addr, replyLimit)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	begun := time.Now()
	sent := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(conn)
		var command []byte
		for i := range l.count {
			key := fmt.Sprintf(l.key, i)
			command = respwire.AppendCommand(command[:0], "SET", key, l.value, "NX", "PX", "3600000")
			if _, err := w.Write(command); err != nil {
				sent <- err
				return
			}
		}
		sent <- w.Flush()
	}()
	for i := range l.count {
		reply, err := conn.Receive()
		if err == nil && reply.Head() != "+OK" {
			err = fmt.Errorf("reply %q", reply)
		}
		if err != nil {
			conn.Close() // ends the goroutine that sends
			return 0, errors.Join(fmt.Errorf("lock %d: %w", i, err), <-sent)
		}
	}
	return time.Since(begun), <-sent
}

// nodeMemory is the memory of the nodes, in MB.
type nodeMemory struct {
	leader    int
	followers []int
}

func memoryOfNodes(nodes []*process.Node, leader *process.Node, field string) (nodeMemory, error) {
	var all nodeMemory
	for _, n := range nodes {
		mb, err := memoryOf(n.PID(), field)
		if err != nil {
			return all, err
		}
		if n == leader {
			all.leader = mb
		} else {
			all.followers = append(all.followers, mb)
		}
	}
	return all, nil
}

func (m nodeMemory) most() int {
	most := m.leader
	for _, mb := range m.followers {
		most = max(most, mb)
	}
	return most
}

// timesOf describes the memory of each node in MB and as a multiple of redis, the
// memory of Redis in MB.
func (m nodeMemory) timesOf(redis int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "leader %d MB (%.1f times)", m.leader, float64(m.leader)/float64(redis))
	for _, mb := range m.followers {
		fmt.Fprintf(&b, ", follower %d MB (%.1f times)", mb, float64(mb)/float64(redis))
	}
	return b.String()
}

// memoryOf returns a field of /proc/PID/status, in MB.
func memoryOf(pid int, name string) (int, error) {
	kb, err := kilobytes(filepath.Join("/proc", strconv.Itoa(pid), "status"), name)
	return int(kb >> 10), err
}

// kilobytes returns the value, in kB, of a field of a file in /proc.
func kilobytes(path, name string) (int64, error) {
	kb, err := strconv.ParseInt(strings.TrimSuffix(field(path, name), " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s in %s: %w", name, path, err)
	}
	return kb, nil
}

// restartOne stops a follower and starts it again. It returns the time from the
// start until the node is ready and has applied all entries that the cluster has
// committed.
func restartOne(ctx context.Context, c *process.Cluster, leader *process.Node) (time.Duration, error) {
	n := c.Running(leader)[0]
	if _, err := n.Stop(time.Minute); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := n.Start(); err != nil {
		return 0, err
	}
	_, err := c.Settled(ctx)
	return time.Since(begun), err
}
