// Command bench compares a cluster of three node processes on loopback with a
// redis-server that runs with appendfsync always. Both run on the same machine
// and the same disk, and alternately get the same load from redis-benchmark.
// Both write durably, with fsync, before they answer; in the cluster, a
// majority of the nodes does so. Other rows measure more than the rate of
// commands:
//
//   - "failover" kills the leader repeatedly while a client writes, and
//     measures the longest time without an acknowledged write. "silent leader"
//     does the same with a leader that hangs.
//   - The rows named "fairness" measure how long one client waits for its locks
//     while another client, in a separate process, sends a load that harms the
//     clients of its node.
//   - "overload" measures 5,000 clients, which are more than the cluster can
//     serve without delay.
//   - The rows named "tmpfs" repeat the first rows with all data in memory,
//     where fsync costs nothing.
//   - "million locks" loads a million locks through one pipeline, and measures
//     memory and the restart of a node.
//   - "idle" measures how much processor time idle servers use.
//   - The rows named "locks" measure LOCK.
//
// With -growth, the program measures how speed and memory grow along an axis,
// and writes files that test/bench/plots draws: see growth.go.
//
// The figures are meaningful only as ratios, and only on a machine that runs
// nothing else. The program exits with 1 if a floor is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/verify/neighbor"
	"github.com/holdfast-kv/holdfast/verify/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) == 3 && os.Args[1] == loadArgument {
		err = runLoad(ctx, os.Args[2], os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options holds the values of the flags.
type options struct {
	quick    bool
	only     string
	pprofDir string
	seconds  float64
	reps     int
	kills    int
	serve    string
	place    bool
	tmpfs    string
	growth   growthOptions
}

// errFloor is returned when every measurement is complete and one of them
// missed its floor.
var errFloor = errors.New("a floor was missed")

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.BoolVar(&o.quick, "quick", false,
		"one repetition and three kills; of the rows that take long (fairness, overload, tmpfs, silent leader, "+
			"million locks, idle), only those that -only names")
	fs.StringVar(&o.only, "only", "", "measure only rows whose name contains one of these words, separated by commas: "+
		strings.Join(rowNames(), ", "))
	fs.StringVar(&o.pprofDir, "pprof-dir", "",
		"write CPU profiles of the leader, one for each row, into this directory; in the rows of fairness, of the "+
			"node that the load runs against")
	fs.Float64Var(&o.seconds, "seconds", 3,
		"approximate length of a repetition, in seconds; with -growth, the default is 1")
	fs.IntVar(&o.reps, "reps", 3, "repetitions; the median counts")
	fs.IntVar(&o.kills, "kills", 10, "kills of the leader")
	fs.StringVar(&o.serve, "serve-flags", "", "further flags of the nodes, separated by blanks")
	fs.BoolVar(&o.place, "place", true,
		"on a machine with two processors, keep the server under load on one of them and everything else on the "+
			"other")
	fs.StringVar(&o.tmpfs, "tmpfs", "/dev/shm", "directory in memory for the rows named \"tmpfs\"")
	o.growth.define(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if o.quick {
		o.reps, o.kills = 1, 3
	}
	if err := o.forGrowth(fs); err != nil {
		return err
	}
	if fs.NArg() > 0 || o.reps < 1 || o.kills < 1 || o.seconds <= 0 {
		fs.Usage()
		return errors.New("wrong arguments")
	}
	parts := o.parts()
	if len(parts) == 0 {
		return fmt.Errorf("-only %s: no such row; the rows are: %s", o.only, strings.Join(rowNames(), ", "))
	}
	tools, err := findTools()
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "holdfast-bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := process.Build(dir)
	if err != nil {
		return err
	}
	place, err := newPlacement(o.place)
	if err != nil {
		return err
	}
	m := machine{dir: dir, program: program, tools: tools, o: o, place: place, out: out}
	if err := printMachine(ctx, m); err != nil {
		return err
	}
	begun := time.Now()
	missed := false
	for _, measure := range parts {
		miss, err := measure(ctx, m)
		if err != nil {
			return err
		}
		missed = missed || miss
	}
	fmt.Fprintf(out, "\nmeasured in %v\n", time.Since(begun).Round(time.Second))
	if missed {
		return errFloor
	}
	return nil
}

// machine contains the programs and the options of a part of the benchmark.
type machine struct {
	dir, program string
	tools        tools
	o            options
	place        *placement
	out          io.Writer
}

// part measures some rows and reports whether one of them missed its floor.
type part func(ctx context.Context, m machine) (missed bool, err error)

// parts returns the parts of the benchmark that the options select.
func (o *options) parts() []part {
	if o.growth.sweeps != "" {
		return []part{measureGrowth}
	}
	var parts []part
	if rows := o.selected(""); len(rows) > 0 {
		parts = append(parts, func(ctx context.Context, m machine) (bool, error) {
			return compare(ctx, m, rows)
		})
	}
	if o.wants(failoverName) {
		parts = append(parts, measureFailover)
	}
	if slices.ContainsFunc(lockRows, func(r lockRow) bool { return o.wants(r.name) }) {
		parts = append(parts, measureLocks)
	}
	if o.quick && o.only == "" {
		return parts
	}
	if loads := o.neighbors(); len(loads) > 0 {
		parts = append(parts, func(ctx context.Context, m machine) (bool, error) {
			return measureFairness(ctx, m, loads)
		})
	}
	if rows := o.selected(tmpfsName); len(rows) > 0 {
		parts = append(parts, func(ctx context.Context, m machine) (bool, error) {
			return measureTmpfs(ctx, m, rows)
		})
	}
	for _, p := range []struct {
		name    string
		measure part
	}{
		{overloadName, measureOverload},
		{silentName, measureSilent},
		{millionName, measureMillion},
		{idleName, measureIdle},
	} {
		if o.wants(p.name) {
			parts = append(parts, p.measure)
		}
	}
	return parts
}

// wants reports whether the options select a row. A word in -only selects a row
// with all data in memory only if the word contains "tmpfs": the word "SETNX"
// selects no such row.
func (o *options) wants(name string) bool {
	if o.only == "" {
		return true
	}
	name = strings.ToLower(name)
	return slices.ContainsFunc(strings.Split(strings.ToLower(o.only), ","), func(word string) bool {
		return strings.Contains(name, strings.TrimSpace(word)) &&
			strings.HasPrefix(name, tmpfsName) == strings.Contains(word, "tmpfs")
	})
}

// selected returns the rows to measure. prefix precedes their names: "" for the
// usual rows, tmpfsName for those with all data in memory.
func (o *options) selected(prefix string) []row {
	var rows []row
	for _, r := range allRows {
		if r.name = prefix + r.name; o.wants(r.name) && (prefix == "" || r.tmpfs) {
			rows = append(rows, r)
		}
	}
	return rows
}

func rowNames() []string {
	var names []string
	for _, prefix := range []string{"", tmpfsName} {
		for _, r := range allRows {
			if prefix == "" || r.tmpfs {
				names = append(names, prefix+r.name)
			}
		}
	}
	for _, l := range neighbor.All() {
		names = append(names, fairnessName+l.Name)
	}
	for _, r := range lockRows {
		names = append(names, r.name)
	}
	return append(names, failoverName, overloadName, silentName, millionName, idleName)
}

// tools holds the paths of the programs that bench needs.
type tools struct{ server, benchmark string }

func findTools() (t tools, err error) {
	for _, p := range []struct {
		name string
		path *string
	}{{"redis-server", &t.server}, {"redis-benchmark", &t.benchmark}} {
		if *p.path, err = exec.LookPath(p.name); err != nil {
			return t, fmt.Errorf("needs redis-server and redis-benchmark on the PATH (Debian: apt-get install "+
				"redis-server redis-tools): %w", err)
		}
	}
	return t, nil
}

// compare measures the rows on both systems, alternately.
func compare(ctx context.Context, m machine, rows []row) (missed bool, err error) {
	redis, err := startRedis(ctx, m.tools, filepath.Join(m.dir, "redis"), redisFlags)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, redis.close()) }()
	cluster, err := startCluster(ctx, m.program, filepath.Join(m.dir, "nodes"), m.o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	defer func() { err = errors.Join(err, m.place.free()) }()
	b := &bench{tools: m.tools, o: m.o, out: m.out, redis: redis, cluster: cluster, place: m.place}
	var results []result
	for _, r := range rows {
		res, err := b.measure(ctx, r)
		if err != nil {
			return false, fmt.Errorf("%s: %w", r.name, err)
		}
		results = append(results, res)
	}
	return printResults(m.out, results)
}

// tmpfsName is the prefix of the names of the rows with all data in memory.
const tmpfsName = "tmpfs: "

// measureTmpfs measures rows with all data in a file system in memory. It does
// not measure through a follower, and applies no floors.
func measureTmpfs(ctx context.Context, m machine, rows []row) (missed bool, err error) {
	for i := range rows {
		rows[i].leaderFloor, rows[i].followerFloor, rows[i].ownFloor, rows[i].follower = 0, 0, 0, false
	}
	if m.dir, err = os.MkdirTemp(m.o.tmpfs, "holdfast-bench"); err != nil {
		return false, fmt.Errorf("%scannot make a directory for the data (name another directory with -tmpfs): %w",
			tmpfsName, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir)) }()
	name, volatile, err := fileSystem(m.dir)
	if err != nil {
		return false, err
	}
	if !volatile {
		return false, fmt.Errorf("%s is on %s, which is not in memory: name another directory with -tmpfs", m.dir, name)
	}
	return compare(ctx, m, rows)
}
