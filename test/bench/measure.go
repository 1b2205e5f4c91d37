package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/test/bench/record"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// bench measures rows on a running redis-server and a running cluster.
type bench struct {
	tools   tools
	o       options
	out     io.Writer
	redis   *redisServer
	cluster *process.Cluster
	place   *placement
	runs    int
}

// sample is the result of one run of a load.
type sample struct{ rps, p50, p99 float64 }

// result holds the measurements of a row: one sample per repetition.
type result struct {
	row
	redis, leader, follower []sample
}

// target is a server that a run sends its commands to.
type target struct {
	name    string
	addr    string
	pid     int
	leader  *process.Node // node to profile, nil for none
	samples *[]sample
	count   int // commands per run
}

// measure measures one row. Short runs on each target determine how many
// commands fill the time of one repetition. In each repetition, measure then
// runs the row on one target after the other.
func (b *bench) measure(ctx context.Context, r row) (result, error) {
	res := result{row: r}
	leader, err := b.cluster.Settled(ctx)
	if err != nil {
		return res, err
	}
	targets := []*target{
		{name: "redis", addr: b.redis.addr, pid: b.redis.cmd.Process.Pid, samples: &res.redis},
		{name: "leader", addr: leader.Clients, pid: leader.PID(), leader: leader, samples: &res.leader},
	}
	if r.follower {
		f := b.cluster.Running(leader)[0]
		targets = append(targets, &target{name: "follower", addr: f.Clients, pid: f.PID(), samples: &res.follower})
	}
	// When a row begins, the systems contain only the keys that it needs.
	for _, addr := range []string{b.redis.addr, leader.Clients} {
		if err := empty(ctx, r, addr); err != nil {
			return res, err
		}
	}
	for _, t := range targets {
		if err := b.calibrate(ctx, r, t); err != nil {
			return res, err
		}
	}
	for rep := range b.o.reps {
		for _, t := range targets {
			var profiled chan error
			if b.o.pprofDir != "" && t.leader != nil && rep == 0 {
				profiled = make(chan error, 1)
				go func() { profiled <- b.o.profile(ctx, r.name, t.leader) }()
			}
			s, _, err := b.once(ctx, r, t, t.count)
			if profiled != nil {
				err = errors.Join(err, <-profiled)
			}
			if err != nil {
				return res, err
			}
			*t.samples = append(*t.samples, s)
			fmt.Fprintf(b.out, "%-19s %-9s %d/%d  %8.0f/s  p50 %.3f ms  p99 %.3f ms\n", r.name, t.name, rep+1, b.o.reps,
				s.rps, s.p50, s.p99)
		}
	}
	// If the leader has changed, the samples of the row are not comparable.
	now, err := b.cluster.Settled(ctx)
	if err != nil {
		return res, err
	}
	if now != leader {
		return res, fmt.Errorf("leadership changed from %s to %s during the measurement", leader.ID, now.ID)
	}
	return res, nil
}

// empty deletes all keys of a server, and writes the keys that the row needs.
func empty(ctx context.Context, r row, addr string) error {
	if _, err := ask(addr, "FLUSHALL"); err != nil {
		return fmt.Errorf("empty %s: %w", addr, err)
	}
	if r.fill != nil {
		if err := r.fill(ctx, addr); err != nil {
			return fmt.Errorf("fill %s: %w", addr, err)
		}
	}
	return nil
}

// calibrate determines the number of commands that fill the time of one
// repetition.
func (b *bench) calibrate(ctx context.Context, r row, t *target) error {
	count := cmp.Or(r.first, 200*r.pipeline*min(r.clients, 50))
	for range 4 { // raise the count until a run is long enough to measure the rate
		s, took, err := b.once(ctx, r, t, count)
		if err != nil {
			return err
		}
		t.count = max(int(s.rps*b.o.seconds), count)
		if took >= 300*time.Millisecond {
			break
		}
		count = max(int(s.rps*0.5), 2*count)
	}
	return nil
}

// once runs a row on a target once. If redis-benchmark sends the commands, once
// checks that they were executed, because redis-benchmark also counts error
// replies.
func (b *bench) once(ctx context.Context, r row, t *target, count int) (s sample, took time.Duration, err error) {
	servers := []int{b.redis.cmd.Process.Pid}
	for _, n := range b.cluster.Nodes {
		servers = append(servers, n.PID())
	}
	if err := b.place.place(t.pid, servers...); err != nil {
		return s, 0, err
	}
	addr := t.addr
	if r.cycle != nil {
		return b.cycles(ctx, r, addr, count)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return s, 0, err
	}
	errorsBefore, err := stat(addr, "stats", "total_error_replies")
	if err != nil {
		return s, 0, err
	}
	keysBefore, err := integer(ask(addr, "DBSIZE"))
	if err != nil {
		return s, 0, err
	}
	args := []string{"-h", host, "-p", port, "-c", strconv.Itoa(r.clients), "-n", strconv.Itoa(count),
		"-P", strconv.Itoa(r.pipeline), "-r", cmp.Or(r.keys, keyspace), "--csv"}
	b.runs++
	for _, word := range r.command {
		args = append(args, strings.ReplaceAll(word, runMark, fmt.Sprintf("%04d", b.runs)))
	}
	cmd := exec.CommandContext(ctx, b.tools.benchmark, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return s, 0, fmt.Errorf("redis-benchmark: %w: %s", err, errOut.String())
	}
	took = time.Since(begun)
	if s, err = parse(out.String()); err != nil {
		return s, 0, err
	}
	keys, err := integer(ask(addr, "DBSIZE"))
	if err != nil {
		return s, 0, err
	}
	if made := keys - keysBefore; r.writes && float64(made) < 0.98*float64(count) {
		return s, 0, fmt.Errorf("%d commands at %s created only %d keys", count, addr, made)
	}
	errorsAfter, err := stat(addr, "stats", "total_error_replies")
	if err != nil {
		return s, 0, err
	}
	// redis-benchmark also sends a few commands of its own, which may fail.
	if failed := errorsAfter - errorsBefore; failed > 5 {
		return s, 0, fmt.Errorf("%d of %d commands at %s failed", failed, count, addr)
	}
	return s, took, nil
}

// parse reads the output of redis-benchmark --csv: a line of headings and a
// line of values.
func parse(text string) (s sample, err error) {
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(lines) != 2 {
		return s, fmt.Errorf("redis-benchmark printed %q: %d lines of CSV, want 2, error %v", text, len(lines), err)
	}
	for name, into := range map[string]*float64{"rps": &s.rps, "p50_latency_ms": &s.p50, "p99_latency_ms": &s.p99} {
		i := slices.Index(lines[0], name)
		if i < 0 || i >= len(lines[1]) {
			return s, fmt.Errorf("redis-benchmark printed no %s: %q", name, text)
		}
		if *into, err = strconv.ParseFloat(lines[1][i], 64); err != nil {
			return s, fmt.Errorf("redis-benchmark: %s: %w", name, err)
		}
	}
	return s, nil
}

// profile writes a CPU profile of a node over the time of one repetition of a
// row.
func (o *options) profile(ctx context.Context, row string, n *process.Node) error {
	b, err := fetchProfile(ctx, n, fmt.Sprintf("profile?seconds=%d", max(int(o.seconds), 1)))
	if err != nil {
		return err
	}
	return record.WriteFile(filepath.Join(o.pprofDir, strings.ReplaceAll(row, " ", "-")+".pprof"), b)
}

// fetchProfile gets a profile from a node that runs with --pprof. query is the name
// of the profile and its parameters.
func fetchProfile(ctx context.Context, n *process.Node, query string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTP+"/debug/pprof/"+query, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("profile of %s: %w", n.ID, err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("profile of %s: %w", n.ID, err)
	}
	return b, nil
}
