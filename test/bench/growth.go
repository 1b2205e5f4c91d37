package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/test/bench/record"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// growthOptions holds the values of the flags for -growth.
type growthOptions struct {
	sweeps  string
	out     string
	maxKeys int64
}

const (
	// growthSeconds is the default length of a repetition of a sweep. A sweep
	// with shorter repetitions, or with fewer than growthReps of them, is
	// preliminary. The load for a CPU profile runs costFactor times as long,
	// because a profile takes only 100 samples per second of processor time.
	growthSeconds = 1.0
	growthReps    = 3
	costFactor    = 10

	// pointLimit bounds the time for a point or a profiling. Ten million keys
	// take the longest.
	pointLimit = 15 * time.Minute

	defaultMaxKeys = 1_000_000

	// growthProfiles is the directory for profiles, unless -pprof-dir names
	// another one.
	growthProfiles = "bin/profiles"
)

func (g *growthOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&g.sweeps, "growth", "", "measure only how speed and memory grow, along these axes, separated by "+
		"commas, or \"all\": "+strings.Join(sweepNames(), ", "))
	fs.StringVar(&g.out, "growth-out", "docs/data", "directory for the data of -growth")
	fs.Int64Var(&g.maxKeys, "max-keys", defaultMaxKeys, "largest number of keys for -growth; the axis ends at 10^7, "+
		"which takes about 16 GB of memory and several minutes")
}

// forGrowth checks the axes that -growth names, and sets the defaults of -seconds
// and -pprof-dir for -growth. It turns off the placement of the processes,
// because a placement would keep a node from using the processors that
// --threads allows.
func (o *options) forGrowth(fs *flag.FlagSet) error {
	if o.growth.sweeps == "" {
		return nil
	}
	for _, name := range o.growth.names() {
		if name != "all" && !slices.Contains(sweepNames(), name) {
			return fmt.Errorf("-growth %s: no such axis; the axes are: %s", name, strings.Join(sweepNames(), ", "))
		}
	}
	set := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if !set["seconds"] {
		o.seconds = growthSeconds
	}
	if o.pprofDir == "" {
		o.pprofDir = growthProfiles
	}
	o.place = false
	return nil
}

// names returns the axes that -growth names.
func (g *growthOptions) names() []string {
	names := strings.Split(g.sweeps, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

func (g *growthOptions) wants(name string) bool {
	names := g.names()
	return slices.Contains(names, "all") || slices.Contains(names, name)
}

// sweep is one axis along which the load or the cluster grows.
type sweep struct {
	name  string
	at    []int64
	point func(g *growth, ctx context.Context, at int64) ([]record.Series, error)
}

// sweeps lists the axes with several points.
var sweeps = []sweep{
	{"keys", []int64{1e3, 1e4, 1e5, 1e6, 1e7}, (*growth).keys},
	{"values", []int64{16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10}, (*growth).values},
	{"clients", []int64{1, 10, 50, 200, 1000, 5000}, (*growth).clients},
	{"nodes", []int64{1, 3, 5}, (*growth).nodes},
	{"threads", []int64{1, 2}, (*growth).threads},
}

// profilings lists the measurements that divide a total, such as memory, by
// cause. The shares come from a profile.
var profilings = []struct {
	name    string
	measure func(g *growth, ctx context.Context) (*profiled, error)
}{
	{"cost", (*growth).cost},
	{"memory", (*growth).memory},
}

func sweepNames() []string {
	var names []string
	for _, s := range sweeps {
		names = append(names, s.name)
	}
	for _, p := range profilings {
		names = append(names, p.name)
	}
	return names
}

// growth measures the sweeps and the profilings.
type growth struct {
	m      machine
	header record.Header
	failed int // points and profilings that failed
}

// unavailable is the reason why this machine cannot measure a point.
type unavailable string

func (u unavailable) Error() string { return string(u) }

// measureGrowth measures the sweeps and the profilings that -growth names. A
// point that fails does not end the run. If the run is interrupted, the files of
// the completed sweeps remain.
func measureGrowth(ctx context.Context, m machine) (missed bool, err error) {
	lines, _, err := conditions(ctx, m.dir, m.tools, m.o)
	if err != nil {
		return false, err
	}
	g := &growth{m: m, header: record.Header{Conditions: lines,
		Preliminary: m.o.seconds < growthSeconds || m.o.reps < growthReps}}
	for _, s := range sweeps {
		if !m.o.growth.wants(s.name) {
			continue
		}
		if err := g.sweep(ctx, s); err != nil {
			return false, err
		}
	}
	for _, p := range profilings {
		if !m.o.growth.wants(p.name) {
			continue
		}
		fmt.Fprintf(m.out, "\n%s\n", p.name)
		limited, cancel := context.WithTimeout(ctx, pointLimit)
		measured, err := p.measure(g, limited)
		cancel()
		if ctx.Err() != nil {
			return false, fmt.Errorf("%s: %w", p.name, errors.Join(ctx.Err(), err))
		}
		if err == nil {
			err = g.writeProfiles(p.name, measured)
		}
		if err != nil {
			fmt.Fprintf(m.out, "%s: not measured: %v\n", p.name, err)
			g.failed++
		}
	}
	if g.failed > 0 {
		return false, fmt.Errorf("%d measurements failed, see above", g.failed)
	}
	return false, nil
}

// sweep measures the points of one axis and writes its file.
func (g *growth) sweep(ctx context.Context, s sweep) error {
	all := &record.Sweep{Header: g.headerOf(s.name), Axis: s.name}
	for _, at := range s.at {
		fmt.Fprintf(g.m.out, "\n%s: %d\n", s.name, at)
		p := record.Point{At: at}
		series, err := g.point(ctx, s, at)
		if ctx.Err() != nil {
			return fmt.Errorf("%s %d: %w", s.name, at, errors.Join(ctx.Err(), err))
		}
		if err == nil {
			p.Series = series
		} else {
			p.Missing = err.Error()
			fmt.Fprintf(g.m.out, "%s %d: not measured: %v\n", s.name, at, err)
			if !errors.As(err, new(unavailable)) {
				g.failed++
			}
		}
		all.Points = append(all.Points, p)
	}
	return record.Write(g.file(s.name), all)
}

// point measures one point. It has a time limit, because the sweep must not
// wait forever for a node that has ended.
func (g *growth) point(ctx context.Context, s sweep, at int64) ([]record.Series, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pointLimit, fmt.Errorf("not measured within %v", pointLimit))
	defer cancel()
	return s.point(g, ctx, at)
}

// headerOf returns the header for the file of an axis.
func (g *growth) headerOf(name string) record.Header {
	h := g.header
	h.Command = "make growth GROWTH=" + name
	if name == "keys" && g.m.o.growth.maxKeys != defaultMaxKeys {
		h.Command += " BENCH='-max-keys " + strconv.FormatInt(g.m.o.growth.maxKeys, 10) + "'"
	}
	return h
}

// file returns the path of the data of an axis.
func (g *growth) file(name string) string {
	return filepath.Join(g.m.o.growth.out, "growth-"+name+".json")
}

// profiled contains profiles and the totals that they divide. All of them are
// written at the end, so that an interrupted run does not leave the profiles of
// one run beside the totals of another.
type profiled struct {
	rows  []record.Profile
	files map[string][]byte
}

// add adds a row. profile is nil if there is none.
func (p *profiled) add(axis string, row record.Profile, profile []byte) {
	if profile != nil {
		name := strings.ReplaceAll(axis+" "+row.Row+" "+row.System, ",", "")
		row.File = strings.ReplaceAll(name, " ", "-") + ".pprof"
		p.files[row.File] = profile
	}
	p.rows = append(p.rows, row)
}

func (g *growth) writeProfiles(axis string, p *profiled) error {
	for name, b := range p.files {
		if err := record.WriteFile(filepath.Join(g.m.o.pprofDir, name), b); err != nil {
			return err
		}
	}
	return record.Write(g.file(axis), &record.Profiles{Header: g.headerOf(axis), Rows: p.rows})
}

// with starts a new Redis and a new cluster in a new directory and calls
// measure. Then it stops both and removes the directory.
func (g *growth) with(ctx context.Context, cfg process.Config, o options, measure func(b *bench) error) (err error) {
	dir, err := os.MkdirTemp(g.m.dir, "growth")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	redis, err := startRedis(ctx, g.m.tools, filepath.Join(dir, "redis"), redisFlags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.close()) }()
	cfg.Program, cfg.Dir = g.m.program, filepath.Join(dir, "nodes")
	cluster, err := startClusterWith(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	err = measure(&bench{tools: g.m.tools, o: o, out: g.m.out, redis: redis, cluster: cluster})
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, showLogs(cluster))
	}
	return err
}

// withoutProfiles returns the options for a cluster without --pprof.
func (g *growth) withoutProfiles() options {
	o := g.m.o
	o.pprofDir = ""
	return o
}

// lockTTL is the TTL of the locks that are written, in milliseconds.
const lockTTL = "3600000"

// filledKeys is the maximum number of keys from which GET chooses in the sweeps
// values, clients, nodes and threads.
const filledKeys = 10_000

// setLock returns a row that writes new locks.
func setLock(clients int, value string) row {
	return row{name: "SET NX PX", clients: clients, pipeline: 1, writes: true,
		command: []string{"SET", "lock:" + runMark + ":__rand_int__", value, "NX", "PX", lockTTL}}
}

// getLock returns a row that reads locks that exist.
func getLock(clients int, value string, keys int) row {
	// redis-benchmark writes random numbers with 12 digits.
	fill := lockLoad{keys, "lock:%012d", value}
	return row{name: "GET", clients: clients, pipeline: 1, command: []string{"GET", "lock:__rand_int__"},
		keys: strconv.Itoa(keys), fill: func(ctx context.Context, addr string) error {
			_, err := fill.run(ctx, addr)
			return err
		}}
}

// rows measures rows on a new Redis and a new cluster.
func (g *growth) rows(ctx context.Context, cfg process.Config, rows ...row) (series []record.Series, err error) {
	err = g.with(ctx, cfg, g.withoutProfiles(), func(b *bench) error {
		for _, r := range rows {
			res, err := b.measure(ctx, r)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			series = append(series, seriesOf(r.name, record.Redis, res.redis)...)
			series = append(series, seriesOf(r.name, record.Leader, res.leader)...)
		}
		return nil
	})
	return series, err
}

// seriesOf returns the samples of one system as series.
func seriesOf(load, system string, samples []sample) []record.Series {
	rate := record.Series{What: load + record.Rate, System: system}
	p99 := record.Series{What: load + record.P99, System: system}
	for _, s := range samples {
		rate.Samples = append(rate.Samples, s.rps)
		p99.Samples = append(p99.Samples, s.p99)
	}
	return []record.Series{rate, p99}
}

// firstBytes bounds, in the sweep "values", the total size of the values in the
// first run of a row. It also bounds the total size of the values among which GET
// chooses.
const firstBytes = 32 << 20

// values measures the speed with values of one size.
func (g *growth) values(ctx context.Context, at int64) ([]record.Series, error) {
	value := strings.Repeat("v", int(at))
	few := firstBytes / int(at) // commands or keys
	set, get := setLock(50, value), getLock(50, value, min(filledKeys, few))
	set.first, get.first = min(10_000, few), min(10_000, few)
	return g.rows(ctx, process.Config{}, set, get)
}

// clients measures the speed with a number of clients.
func (g *growth) clients(ctx context.Context, at int64) ([]record.Series, error) {
	if err := raiseFiles("clients", uint64(at)+1000); err != nil {
		return nil, unavailable(err.Error())
	}
	set, get := setLock(int(at), loopToken), getLock(int(at), loopToken, filledKeys)
	// Each client sends several commands, even if there are many clients.
	set.first, get.first = max(2000, 10*int(at)), max(2000, 10*int(at))
	return g.rows(ctx, process.Config{}, set, get)
}

// nodes measures a cluster with a number of nodes.
func (g *growth) nodes(ctx context.Context, at int64) ([]record.Series, error) {
	return g.rows(ctx, process.Config{Nodes: int(at)}, setLock(50, loopToken), getLock(50, loopToken, filledKeys))
}

// threads measures a cluster whose nodes have the given GOMAXPROCS.
func (g *growth) threads(ctx context.Context, at int64) ([]record.Series, error) {
	return g.rows(ctx, process.Config{Args: []string{"--threads", strconv.FormatInt(at, 10)}},
		setLock(50, loopToken), getLock(50, loopToken, filledKeys))
}
