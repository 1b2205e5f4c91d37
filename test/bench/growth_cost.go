package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/test/bench/record"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// costRows lists the loads whose processor time is divided by cause.
func costRows() []row {
	const keys = 100_000
	set := func(name string, clients, pipeline int) row {
		return row{name: name, clients: clients, pipeline: pipeline, command: setnx, writes: true}
	}
	get := getLock(50, loopToken, keys)
	get.name = "GET, 50 connections"
	return []row{
		set("SETNX, 1 connection", 1, 1),
		set("SETNX, 50 connections", 50, 1),
		set("SETNX, 50 connections, pipelines of 16", 50, 16),
		get,
	}
}

// cost measures the processor time per command, and takes the profiles that
// divide this time by cause.
func (g *growth) cost(ctx context.Context) (*profiled, error) {
	p := &profiled{files: make(map[string][]byte)}
	o := g.m.o
	o.seconds *= costFactor
	err := g.with(ctx, process.Config{}, o, func(b *bench) error {
		for _, r := range costRows() {
			if err := b.cost(ctx, r, p); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
		return nil
	})
	return p, err
}

// cost measures one row on both systems.
func (b *bench) cost(ctx context.Context, r row, p *profiled) error {
	leader, err := b.cluster.Settled(ctx)
	if err != nil {
		return err
	}
	for _, addr := range []string{b.redis.addr, leader.Clients} {
		if err := empty(ctx, r, addr); err != nil {
			return err
		}
	}
	follower := b.cluster.Running(leader)[0]
	redis := &target{name: record.Redis, addr: b.redis.addr}
	times, _, err := b.spend(ctx, r, redis, []int{b.redis.cmd.Process.Pid}, nil)
	if err != nil {
		return err
	}
	row := record.Profile{Row: r.name, System: record.Redis, Count: int64(redis.count), Total: times[0].Seconds()}
	p.add("cost", row, nil)
	nodes := []*process.Node{leader, follower}
	to := &target{name: record.Leader, addr: leader.Clients}
	times, profiles, err := b.spend(ctx, r, to, []int{leader.PID(), follower.PID()}, nodes)
	if err != nil {
		return err
	}
	if now, err := b.cluster.Settled(ctx); err != nil || now != leader {
		return errors.Join(errors.New("the leader changed during the measurement"), err)
	}
	for i, system := range []string{record.Leader, record.Follower} {
		p.add("cost", record.Profile{Row: r.name, System: system, Count: int64(to.count), Total: times[i].Seconds()},
			profiles[i])
	}
	fmt.Fprintf(b.out, "%s: processor time per command: Redis %.1f µs, leader %.1f µs, follower %.1f µs\n", r.name,
		p.perCommand(-3), p.perCommand(-2), p.perCommand(-1))
	return nil
}

// perCommand returns the microseconds of processor time per command of a row. i
// counts from the end: -1 is the last row.
func (p *profiled) perCommand(i int) float64 {
	r := p.rows[len(p.rows)+i]
	return 1e6 * r.Total / float64(r.Count)
}

// spend calibrates a row for a target and then runs the row once. It returns the
// processor time of the processes during this run, and a CPU profile of each node.
// A profile covers about the first four fifths of the run.
func (b *bench) spend(ctx context.Context, r row, t *target, pids []int, nodes []*process.Node) ([]time.Duration,
	[][]byte, error) {
	if err := b.calibrate(ctx, r, t); err != nil {
		return nil, nil, err
	}
	before, err := processorTimes(pids)
	if err != nil {
		return nil, nil, err
	}
	seconds := max(int(0.8*b.o.seconds), 1)
	profiles := make([][]byte, len(nodes))
	ended := make(chan error, len(nodes))
	for i, n := range nodes {
		go func() {
			var err error
			profiles[i], err = fetchProfile(ctx, n, "profile?seconds="+strconv.Itoa(seconds))
			ended <- err
		}()
	}
	_, _, err = b.once(ctx, r, t, t.count)
	after, timeErr := processorTimes(pids)
	for range nodes {
		if profileErr := <-ended; err == nil {
			err = profileErr
		}
	}
	if err == nil {
		err = timeErr
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range after {
		after[i] -= before[i]
	}
	return after, profiles, nil
}

// memory loads locks and takes the heap profiles that divide the memory of the
// nodes by cause.
func (g *growth) memory(ctx context.Context) (*profiled, error) {
	p := &profiled{files: make(map[string][]byte)}
	locks := lockLoad{int(min(millionLocks, g.m.o.growth.maxKeys)), keyFormat, keyValue}
	err := g.with(ctx, process.Config{}, g.m.o, func(b *bench) error {
		leader, err := b.cluster.Settled(ctx)
		if err != nil {
			return err
		}
		for _, addr := range []string{b.redis.addr, leader.Clients} {
			if _, err := locks.run(ctx, addr); err != nil {
				return fmt.Errorf("load %s: %w", addr, err)
			}
		}
		if _, err := b.cluster.Settled(ctx); err != nil {
			return err
		}
		row := fmt.Sprintf("%d locks", locks.count)
		for _, s := range []struct {
			system string
			pid    int
			node   *process.Node
		}{
			{record.Redis, b.redis.cmd.Process.Pid, nil}, {record.Leader, leader.PID(), leader},
			{record.Follower, b.cluster.Running(leader)[0].PID(), b.cluster.Running(leader)[0]},
		} {
			kb, err := kilobytes(filepath.Join("/proc", strconv.Itoa(s.pid), "status"), "VmRSS")
			if err != nil {
				return err
			}
			var heap []byte
			if s.node != nil {
				if heap, err = fetchProfile(ctx, s.node, "heap?gc=1"); err != nil {
					return err
				}
			}
			p.add("memory", record.Profile{Row: row, System: s.system, Count: int64(locks.count),
				Total: float64(kb << 10)}, heap)
			fmt.Fprintf(b.out, "%s: %s: %.0f bytes of resident memory per lock\n", row, s.system,
				float64(kb<<10)/float64(locks.count))
		}
		return nil
	})
	return p, err
}
