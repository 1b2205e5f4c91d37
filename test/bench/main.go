// Command bench compares a cluster of three node processes on loopback with a
// redis-server that runs with appendfsync always. Both run on the same machine
// and the same disk, with the same redis-benchmark, in turns. Both fsync before
// they answer; the cluster does so on a majority. The program also kills the
// leader repeatedly under a write loop, and measures the longest time without
// an acknowledged write. The rows named "fairness" measure how long one client
// waits for its locks while another client sends the load that harms other
// clients most; that load runs in a process of its own. The row "overload" measures 5,000 clients, which is more than
// the cluster can carry.
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
}

// errFloor is returned when every measurement is complete and one of them
// missed its floor.
var errFloor = errors.New("a floor was missed")

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.BoolVar(&o.quick, "quick", false,
		"one repetition and three kills; no rows of fairness and overload unless -only names them")
	fs.StringVar(&o.only, "only", "", "measure only rows whose name contains one of these words, separated by commas: "+
		strings.Join(rowNames(), ", "))
	fs.StringVar(&o.pprofDir, "pprof-dir", "",
		"write CPU profiles of the leader, one for each row, into this directory; in the rows of fairness, of the "+
			"node that the load runs against")
	fs.Float64Var(&o.seconds, "seconds", 3, "length of one repetition, about")
	fs.IntVar(&o.reps, "reps", 3, "repetitions; the median counts")
	fs.IntVar(&o.kills, "kills", 10, "kills of the leader")
	fs.StringVar(&o.serve, "serve-flags", "", "further flags of the nodes, separated by blanks")
	fs.BoolVar(&o.place, "place", true,
		"on a machine with two processors, keep the server that the load goes to on one of them and all else on the "+
			"other")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if o.quick {
		o.reps, o.kills = 1, 3
	}
	if fs.NArg() > 0 || o.reps < 1 || o.kills < 1 || o.seconds <= 0 {
		fs.Usage()
		return errors.New("wrong arguments")
	}
	rows := o.selected()
	failover := o.wants(failoverName)
	var neighbors []neighbor.Load
	overload := false
	if !o.quick || o.only != "" {
		neighbors, overload = o.neighbors(), o.wants(overloadName)
	}
	if len(rows) == 0 && len(neighbors) == 0 && !failover && !overload {
		return fmt.Errorf("-only %s: no such row; there are: %s", o.only, strings.Join(rowNames(), ", "))
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
	if err := printMachine(ctx, out, dir, program, tools, o, place); err != nil {
		return err
	}
	begun := time.Now()
	missed := false
	if len(rows) > 0 {
		miss, err := compare(ctx, out, dir, program, tools, o, place, rows)
		if err != nil {
			return err
		}
		missed = missed || miss
	}
	if failover {
		miss, err := measureFailover(ctx, out, filepath.Join(dir, "failover"), program, o)
		if err != nil {
			return err
		}
		missed = missed || miss
	}
	if len(neighbors) > 0 {
		miss, err := measureFairness(ctx, out, filepath.Join(dir, "fairness"), program, o, neighbors)
		if err != nil {
			return err
		}
		missed = missed || miss
	}
	if overload {
		miss, err := measureOverload(ctx, out, filepath.Join(dir, "overload"), program, o)
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

// wants reports whether a row is to be measured.
func (o *options) wants(name string) bool {
	if o.only == "" {
		return true
	}
	return slices.ContainsFunc(strings.Split(o.only, ","), func(word string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(strings.TrimSpace(word)))
	})
}

// selected returns the rows to measure.
func (o *options) selected() []row {
	var rows []row
	for _, r := range allRows {
		if o.wants(r.name) {
			rows = append(rows, r)
		}
	}
	return rows
}

func rowNames() []string {
	var names []string
	for _, r := range allRows {
		names = append(names, r.name)
	}
	for _, l := range neighbor.All() {
		names = append(names, fairnessName+l.Name)
	}
	return append(names, failoverName, overloadName)
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

// compare measures the rows on both systems, in turns.
func compare(ctx context.Context, out io.Writer, dir, program string, tools tools, o options, place *placement,
	rows []row) (missed bool, err error) {
	redis, err := startRedis(ctx, tools, filepath.Join(dir, "redis"))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, redis.close()) }()
	cluster, err := startCluster(ctx, program, filepath.Join(dir, "nodes"), o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	defer func() { err = errors.Join(err, place.free()) }()
	b := &bench{tools: tools, o: o, out: out, redis: redis, cluster: cluster, place: place}
	var results []result
	for _, r := range rows {
		res, err := b.measure(ctx, r)
		if err != nil {
			return false, fmt.Errorf("%s: %w", r.name, err)
		}
		results = append(results, res)
	}
	return printResults(out, results)
}
