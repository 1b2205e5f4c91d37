package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"

	"github.com/holdfast-kv/holdfast/test/bench/record"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// These are estimates of the memory for a key with a TTL, in bytes. The sweep
// uses them to decide whether the machine has enough memory for a number of
// keys.
const (
	nodeKeyBytes  = 500
	redisKeyBytes = 200
)

// The keys sweep loads locks of the same size as the row "million locks".
const (
	keyFormat = "lock:%015d"
	keyValue  = "holder-012345678"
)

// cycleLoad is the name of the load of lock cycles: a client takes a lock with
// a new key and then deletes the key. So the number of keys stays the same.
const cycleLoad = "SET NX PX and DEL"

// keys measures a number of keys: the time to load them, the memory that they
// occupy, and the speed of lock cycles and of GET while they exist.
func (g *growth) keys(ctx context.Context, at int64) (series []record.Series, err error) {
	if at > g.m.o.growth.maxKeys {
		return nil, unavailable(fmt.Sprintf("more than -max-keys %d", g.m.o.growth.maxKeys))
	}
	free, err := kilobytes("/proc/meminfo", "MemAvailable")
	if err != nil {
		return nil, err
	}
	if need := at * (3*nodeKeyBytes + redisKeyBytes) >> 20; need > free>>10 {
		return nil, unavailable(fmt.Sprintf("needs about %d MB of memory, %d MB are available", need, free>>10))
	}
	err = g.with(ctx, process.Config{}, g.withoutProfiles(), func(b *bench) error {
		series, err = b.keys(ctx, int(at))
		return err
	})
	return series, err
}

// server is a process whose memory is measured.
type server struct {
	system string
	pid    int
}

// keys loads keys into both systems, and measures both systems.
func (b *bench) keys(ctx context.Context, count int) ([]record.Series, error) {
	leader, err := b.cluster.Settled(ctx)
	if err != nil {
		return nil, err
	}
	targets := []target{{name: record.Redis, addr: b.redis.addr}, {name: record.Leader, addr: leader.Clients}}
	servers := []server{{record.Redis, b.redis.cmd.Process.Pid}, {record.Leader, leader.PID()}}
	for _, n := range b.cluster.Running(leader) {
		servers = append(servers, server{record.Follower, n.PID()})
	}
	var series []record.Series
	resident := func(what string) error {
		for _, s := range servers {
			kb, err := kilobytes(filepath.Join("/proc", strconv.Itoa(s.pid), "status"), "VmRSS")
			if err != nil {
				return err
			}
			series = add(series, what, s.system, float64(kb<<10))
		}
		return nil
	}
	if err := resident(record.Empty); err != nil {
		return nil, err
	}
	for _, t := range targets {
		took, err := lockLoad{count, keyFormat, keyValue}.run(ctx, t.addr)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", t.name, err)
		}
		series = add(series, record.Loading, t.name, took.Seconds())
	}
	if _, err := b.cluster.Settled(ctx); err != nil {
		return nil, err
	}
	if err := resident(record.Resident); err != nil {
		return nil, err
	}
	fmt.Fprintf(b.out, "%d keys: loaded, resident memory %s\n", count, describe(series))
	for rep := range b.o.reps {
		for _, load := range keyLoads(count) {
			for _, t := range targets {
				s, err := b.exchanges(ctx, t.addr, load.cycle)
				if err != nil {
					return nil, fmt.Errorf("%s at %s: %w", load.name, t.name, err)
				}
				series = add(series, load.name+record.Rate, t.name, s.rps)
				series = add(series, load.name+record.P99, t.name, s.p99)
				fmt.Fprintf(b.out, "%-19s %-9s %d/%d  %8.0f/s  p50 %.3f ms  p99 %.3f ms\n", load.name, t.name, rep+1,
					b.o.reps, s.rps, s.p50, s.p99)
			}
		}
	}
	now, err := b.cluster.Settled(ctx)
	if err == nil && now != leader {
		err = errors.New("the leader changed during the measurement")
	}
	return series, err
}

// add adds a sample to the series of a quantity and a system.
func add(series []record.Series, what, system string, sample float64) []record.Series {
	for i := range series {
		if series[i].What == what && series[i].System == system {
			series[i].Samples = append(series[i].Samples, sample)
			return series
		}
	}
	return append(series, record.Series{What: what, System: system, Samples: []float64{sample}})
}

// describe lists the resident memory of the processes.
func describe(series []record.Series) string {
	text := ""
	for _, s := range series {
		if s.What != record.Resident {
			continue
		}
		for _, bytes := range s.Samples {
			text += fmt.Sprintf(" %s %.0f MB", s.System, bytes/(1<<20))
		}
	}
	return text
}

// keyLoad is a load that the keys sweep runs while the keys exist.
type keyLoad struct {
	name  string
	cycle []exchange
}

// keyLoads returns the loads for a number of existing keys.
func keyLoads(count int) []keyLoad {
	value := fmt.Sprintf("$%d\r\n%s\r\n", len(keyValue), keyValue)
	random := func() string { return fmt.Sprintf(keyFormat, rand.IntN(count)) }
	return []keyLoad{
		{cycleLoad, []exchange{
			{func(c *renewer) []string {
				// The name of the new key begins with that of an existing key.
				c.key = random() + ":" + strconv.Itoa(c.socket)
				return []string{"SET", c.key, keyValue, "NX", "PX", lockTTL}
			}, granted},
			{func(c *renewer) []string { return []string{"DEL", c.key} }, released},
		}},
		{"GET", []exchange{{func(*renewer) []string { return []string{"GET", random()} }, value}}},
	}
}

// exchanges runs a cycle on 50 connections for the time of a repetition.
func (b *bench) exchanges(ctx context.Context, addr string, cycle []exchange) (s sample, err error) {
	l, err := newRenewing(addr, "", 50, cycle, ownKeys("lock"))
	if err != nil {
		return s, err
	}
	ran, err := l.runFor(ctx, b.o.seconds)
	if err := errors.Join(err, l.close()); err != nil {
		return s, err
	}
	return sample{rps: ran.rate(), p50: ms(ran.at(0.5)), p99: ms(ran.at(0.99))}, nil
}
