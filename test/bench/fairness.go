package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/neighbor"
	"github.com/holdfast-kv/holdfast/verify/process"
)

const (
	fairnessName = "fairness: "

	// fairnessCeiling is an upper limit: a neighbor must raise the victim's
	// p99 by less than this factor.
	fairnessCeiling = 10
	// loggedCeiling is an upper limit: during a neighbor.Load with Logged set,
	// the victim's p99 must be below it.
	loggedCeiling = 200 * time.Millisecond

	// benchPassword is the password of the clusters for the rows "fairness" and
	// "overload". Some loads are clients that do not know the password.
	benchPassword = "of-the-bench"

	// quietShare and noisyShare are the lengths of the victim's two runs,
	// as shares of the length of a repetition.
	quietShare, noisyShare = 0.5, 1
)

// neighbors returns the loads to measure.
func (o *options) neighbors() []neighbor.Load {
	var loads []neighbor.Load
	for _, l := range neighbor.All() {
		if o.wants(fairnessName + l.Name) {
			loads = append(loads, l)
		}
	}
	return loads
}

// fairness is one row: a load on a node, and the latencies of a victim on the
// same node.
type fairness struct {
	load         neighbor.Load
	through      string // "leader" or "follower"
	quiet, noisy neighbor.Times
	elections    uint64
	peak         int // peak resident memory of the node, in MB
	effect       neighbor.Effect
	others       neighbor.Longest // longest times of the bystander's actions during the load
	failed       error            // error of a command of the victim or of the bystander
}

// slower returns the factor by which the load raised the p99.
func (f *fairness) slower() float64 {
	return float64(f.noisy.At(0.99)) / float64(f.quiet.At(0.99))
}

func (f *fairness) missed() bool {
	over := f.slower() >= fairnessCeiling
	if f.load.Logged {
		over = f.noisy.At(0.99) >= loggedCeiling
	}
	return f.failed != nil || over || f.elections > 0
}

// ceiling returns the text for the column with the limit of the row.
func (f *fairness) ceiling() string {
	if f.load.Logged {
		return fmt.Sprintf("%.0f ms", ms(loggedCeiling))
	}
	return fmt.Sprintf("%d times", fairnessCeiling)
}

// measureFairness runs each load on the leader and on a follower. A victim
// takes locks through the same node, first alone and then during the load.
func measureFairness(ctx context.Context, m machine, loads []neighbor.Load) (missed bool, err error) {
	out, o := m.out, m.o
	c, err := startClusterWith(ctx, process.Config{
		Program: m.program, Dir: filepath.Join(m.dir, "fairness"), Password: benchPassword,
	}, o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	fmt.Fprintf(out, "\nfairness: one client takes locks with SET NX PX, alone and during a load of another client "+
		"on the same node; meanwhile, a third client logs in, runs new scripts and publishes messages; the "+
		"longest time of each is listed\n")
	var rows []fairness
	for _, l := range loads {
		for _, through := range []string{"leader", "follower"} {
			f, err := measureNeighbor(ctx, c, l, through, o)
			if err != nil {
				return false, errors.Join(fmt.Errorf("%s%s, through the %s: %w", fairnessName, l.Name, through, err),
					showLogs(c))
			}
			missed = missed || f.missed()
			rows = append(rows, f)
			fmt.Fprintf(out, "%s through the %s: %v\n", l.Name, f.through, f.effect)
			if f.failed != nil {
				fmt.Fprintf(out, "%s through the %s: FAILED: %v\n", l.Name, f.through, f.failed)
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\nNEIGHBOR\tTHROUGH\tQUIET P99 MS\tP99 MS\tMAX MS\tTIMES SLOWER\tCEILING\tELECTIONS\tPEAK MB\t"+
		"LOGIN MS\tSCRIPT MS\tMESSAGE MS\t")
	for _, f := range rows {
		verdict := "ok"
		if f.missed() {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.1f\t%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%s\n", f.load.Name, f.through,
			ms(f.quiet.At(0.99)), ms(f.noisy.At(0.99)), ms(f.noisy.At(1)), f.slower(), f.ceiling(), f.elections,
			f.peak, ms(f.others.Login), ms(f.others.Script), ms(f.others.Message), verdict)
	}
	return missed, w.Flush()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func measureNeighbor(ctx context.Context, c *process.Cluster, l neighbor.Load, through string,
	o options) (f fairness, err error) {
	leader, err := c.Settled(ctx)
	if err != nil {
		return f, err
	}
	n := leader
	if through == "follower" {
		n = c.Running(leader)[0]
	}
	before, err := n.State()
	if err != nil {
		return f, err
	}
	to := neighbor.Target{Addr: n.Clients, Login: load.Login{Password: benchPassword}, Prefix: "bench:"}
	f = fairness{load: l, through: through}
	victim, err := neighbor.NewVictim(ctx, to)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, victim.Close()) }()
	bystander, err := neighbor.NewBystander(ctx, to)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, bystander.Close()) }()
	if f.quiet, _, err = runBoth(ctx, victim, bystander, o.seconds*quietShare); err != nil {
		return f, err
	}
	if err := resetPeak(n.PID()); err != nil {
		return f, err
	}
	running, err := startLoad(l, to)
	if err != nil {
		return f, err
	}
	var profiled chan error
	if o.pprofDir != "" {
		profiled = make(chan error, 1)
		go func() { profiled <- o.profile(ctx, l.Name+" "+through, n) }()
	}
	f.noisy, f.others, f.failed = runBoth(ctx, victim, bystander, o.seconds*noisyShare)
	f.effect, err = running.stop()
	if err != nil {
		return f, err
	}
	if profiled != nil {
		if err := <-profiled; err != nil {
			return f, err
		}
	}
	if f.effect.Rounds+f.effect.Closed == 0 {
		return f, errors.New("the load had no effect")
	}
	if err := awaitEnd(ctx, to); err != nil {
		return f, err
	}
	if f.peak, err = peak(n.PID()); err != nil {
		return f, err
	}
	if _, err = c.Settled(ctx); err != nil {
		return f, err
	}
	after, err := n.State()
	if err != nil {
		return f, err
	}
	f.elections = after.Term - before.Term
	return f, neighbor.Clean(ctx, to)
}

// runBoth lets the victim and the bystander run for a while.
func runBoth(ctx context.Context, v *neighbor.Victim, b *neighbor.Bystander, seconds float64) (neighbor.Times,
	neighbor.Longest, error) {
	ctx, stop := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer stop()
	var others neighbor.Longest
	var failed error
	var running sync.WaitGroup
	running.Go(func() { others, failed = b.Run(ctx) })
	times, err := v.Run(ctx)
	running.Wait()
	return times, others, errors.Join(err, failed)
}

// ownConnections is the number of connections of a row that do not belong to
// the load. They belong to the victim, to the bystander and its subscriber, and
// to awaitEnd.
const ownConnections = 4

// awaitEnd waits until the node has ended the commands of the load. The node may
// still execute them after the load's connections are closed, and they would slow
// down the quiet run of the next row.
func awaitEnd(ctx context.Context, to neighbor.Target) error {
	c, err := load.Dial(ctx, to.Addr, to.Login, time.Minute)
	if err != nil {
		return err
	}
	err = process.Poll(ctx, "the commands of the load to end", func() bool {
		v, err := c.Do("CLIENT", "LIST")
		return err == nil && strings.Count(v.Text, "\n") <= ownConnections
	})
	return errors.Join(err, c.Close())
}

// resetPeak resets the kernel's record of the peak memory of a process.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// peak returns the peak resident memory of a process, in MB.
func peak(pid int) (int, error) { return memoryOf(pid, "VmHWM") }
