package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/verify/attack"
	"github.com/holdfast-kv/holdfast/verify/process"
)

type options struct {
	program, old, dir, faults, summary string
	seed                               uint64
	episodes, steps                    int
	controls, keep, figures, plan      bool
	library                            bool
	limit                              time.Duration
}

// repeat returns the command that runs the same episodes again.
func (o *options) repeat() string {
	if o.old != "" {
		return fmt.Sprintf("make upgrade-test SEED=%d UPGRADES=%d, with the same OLD", o.seed, o.episodes)
	}
	command := fmt.Sprintf("make chaos SEED=%d EPISODES=%d FAULTS='%s'", o.seed, o.episodes, o.faults)
	var more []string
	if o.steps != 0 {
		more = append(more, fmt.Sprintf("-steps %d", o.steps))
	}
	if !o.controls {
		more = append(more, "-controls=false")
	}
	if len(more) > 0 {
		command += fmt.Sprintf(" CHAOS='%s'", strings.Join(more, " "))
	}
	return command
}

func main() {
	var o options
	flag.StringVar(&o.program, "program", "", "holdfast binary (default: built from this tree)")
	flag.StringVar(&o.old, "old", "",
		"another build of holdfast, for the classes that mix two builds: rolling upgrade, rolling downgrade, "+
			"upgrade taken back")
	flag.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "holdfast-chaos"),
		"directory for the clusters and for the evidence of violations")
	flag.StringVar(&o.faults, "faults", "all",
		"classes of faults, with commas: all, none, a group (process, cpu, version, network, clock, disk, membership, "+
			"operator, neighbor), or parts of names")
	flag.StringVar(&o.summary, "json", "", "write the summary to this file")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of plans and clients")
	flag.IntVar(&o.episodes, "episodes", 22, "clusters to attack")
	flag.DurationVar(&o.limit, "for", 0, "begin no further episode after this time, 0 for no limit")
	flag.IntVar(&o.steps, "steps", 0, "steps of each episode, 0 for four")
	flag.BoolVar(&o.controls, "controls", true,
		"also play episodes that violate a guarantee on purpose; the checkers must find the violations")
	flag.BoolVar(&o.library, "library", true, "also run clients of go-redis with its defaults")
	flag.BoolVar(&o.keep, "keep", false, "keep the directories of all episodes, not only those with violations")
	flag.BoolVar(&o.figures, "figures", false, "fail if the run misses one of the figures in docs/testing.md")
	flag.BoolVar(&o.plan, "plan", false, "print the plans of the episodes, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// printPlan prints the plans of the episodes of a run with these options.
func printPlan(o options) error {
	plans, err := attack.Planned(attack.Config{Seed: o.seed, Episodes: o.episodes, Old: o.old,
		Faults: strings.Split(o.faults, ",")})
	if err != nil {
		return err
	}
	faults, cuts := 0, 0
	for _, p := range plans {
		fmt.Printf("episode %d: %v\n", p.Number, p)
		faults += p.Faults()
		cuts += p.PowerCuts()
	}
	_, err = fmt.Printf("seed %d: %d episodes, %d faults, %d of them power cuts\n", o.seed, len(plans), faults, cuts)
	return err
}

func run(ctx context.Context, o options) error {
	if o.plan {
		return printPlan(o)
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	// Runs that overlap in time use separate directories.
	dir, err := os.MkdirTemp(o.dir, fmt.Sprintf("seed-%d-", o.seed))
	if err != nil {
		return err
	}
	if o.program == "" {
		if o.program, err = process.Build(dir); err != nil {
			return err
		}
	}
	if o.program, err = filepath.Abs(o.program); err != nil {
		return err
	}
	if o.old != "" {
		if o.old, err = filepath.Abs(o.old); err != nil {
			return err
		}
	}
	cfg := attack.DefaultConfig()
	cfg.Program, cfg.Old, cfg.Dir, cfg.Seed, cfg.Episodes = o.program, o.old, dir, o.seed, o.episodes
	cfg.Faults, cfg.Controls, cfg.Keep, cfg.Out = strings.Split(o.faults, ","), o.controls, o.keep, os.Stdout
	cfg.Steps, cfg.For = o.steps, o.limit
	if o.library {
		cfg.Beside = withLibrary
	}
	fmt.Printf("seed %d; to repeat it: %s\n", o.seed, o.repeat())
	report, err := attack.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if left := o.episodes - (len(report.Episodes) - report.Controls); left > 0 {
		fmt.Printf("%d episodes did not begin within %v\n", left, o.limit)
	}
	fmt.Println()
	if err := report.Table(os.Stdout); err != nil {
		return err
	}
	if o.summary != "" {
		if err := writeJSON(o.summary, report); err != nil {
			return err
		}
	}
	if err := tidy(dir, o); err != nil {
		return err
	}
	if !report.Passed() {
		return fmt.Errorf("%d violations, %d episodes did not run, %d of %d controls caught", report.Violations,
			report.Failures, report.Caught, report.Controls)
	}
	if o.old != "" {
		if err := upgraded(report); err != nil {
			return err
		}
	}
	if o.figures {
		return figures(report)
	}
	return nil
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// tidy removes the directory of a run if only the program is left in it.
func tidy(dir string, o options) error {
	left, err := os.ReadDir(dir)
	if err != nil || o.keep {
		return err
	}
	for _, e := range left {
		if e.IsDir() {
			return nil // keep the evidence
		}
	}
	return os.RemoveAll(dir)
}

// upgraded returns an error if the class "rolling upgrade" never took effect,
// because the run then proves nothing about the other build.
func upgraded(r *attack.Report) error {
	for _, c := range r.Classes {
		if c.Class == "rolling upgrade" && c.Seen == 0 {
			return fmt.Errorf("%s: injected %d times and never seen: %s", c.Class, c.Injected, c.NotRun)
		}
	}
	return nil
}

// wantFaults and wantPowerCuts are the numbers of faults and of power cuts that
// a run with -figures must reach. TestPlan checks that the seed in .ci/run plans more
// of both.
const (
	wantPowerCuts = 4
	wantFaults    = 80
)

// figures returns an error if a run missed one of the figures. Such a run proves
// too little. The figures may be raised if the machines get faster. They must
// never be lowered.
func figures(r *attack.Report) error {
	var errs []error
	for _, f := range []struct {
		what      string
		got, want int
	}{
		{"histories with three classes of faults", r.Histories, 20},
		{"faults seen", r.Faults, wantFaults},
		{"failovers", r.Failovers, 30},
		{"power cuts", r.PowerCuts, wantPowerCuts},
		{"checked operations", r.Checked, 100_000},
		{"lock grants", r.Grants, 3_000},
		{"lock grants ended by expiry", r.Expired, 300},
	} {
		if f.got < f.want {
			errs = append(errs, fmt.Errorf("%d %s, want at least %d", f.got, f.what, f.want))
		}
	}
	return errors.Join(errs...)
}
