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

	"github.com/holdfast-kv/holdfast/test/process"
	"github.com/holdfast-kv/holdfast/verify/attack"
)

type options struct {
	program, old, dir, faults, summary string
	seed                               uint64
	episodes                           int
	controls, keep, figures            bool
	library                            bool
}

func main() {
	var o options
	flag.StringVar(&o.program, "program", "", "holdfast binary (default: built from this tree)")
	flag.StringVar(&o.old, "old", "", "another build of holdfast, for the classes that mix two: rolling upgrade, rolling downgrade, upgrade taken back")
	flag.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "holdfast-chaos"), "where clusters live, and what is left of a violation")
	flag.StringVar(&o.faults, "faults", "all", "classes of faults, by comma: all, none, a group (process, cpu, version, network, clock, disk, membership, operator), or parts of names")
	flag.StringVar(&o.summary, "json", "", "write the summary to this file")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of plans and clients")
	flag.IntVar(&o.episodes, "episodes", 20, "clusters to attack")
	flag.BoolVar(&o.controls, "controls", true, "also play episodes that break a promise on purpose, which has to be caught")
	flag.BoolVar(&o.library, "library", true, "also run clients of go-redis with its defaults")
	flag.BoolVar(&o.keep, "keep", false, "keep what every episode leaves, not only violations")
	flag.BoolVar(&o.figures, "figures", false, "fail if the run stays below the figures of CI")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	// Runs beside each other keep apart.
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
	if o.library {
		cfg.Beside = withLibrary
	}
	fmt.Printf("seed %d; again with: make chaos SEED=%d EPISODES=%d FAULTS='%s'\n", o.seed, o.seed, o.episodes, o.faults)
	report, err := attack.Run(ctx, cfg)
	if err != nil {
		return err
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
	if !report.Held() {
		return fmt.Errorf("%d violations, %d episodes not played, %d of %d controls caught", report.Violations, report.Failures, report.Caught, report.Controls)
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

// tidy removes the directory of a run that left nothing but the program.
func tidy(dir string, o options) error {
	left, err := os.ReadDir(dir)
	if err != nil || o.keep {
		return err
	}
	for _, e := range left {
		if e.IsDir() {
			return nil // evidence
		}
	}
	return os.RemoveAll(dir)
}

// upgraded says what was not proved about the other build that was given.
func upgraded(r *attack.Report) error {
	for _, c := range r.Classes {
		if c.Class == "rolling upgrade" && c.Seen == 0 {
			return fmt.Errorf("%s: injected %d times, seen never: %s", c.Class, c.Injected, c.NotRun)
		}
	}
	return nil
}

// figures are what one run of CI has to reach, or it has proved too little. They
// go up when a machine gives more, never down.
func figures(r *attack.Report) error {
	var errs []error
	for _, f := range []struct {
		what      string
		got, want int
	}{
		{"histories with three classes of faults", r.Histories, 20},
		{"faults seen", r.Faults, 80},
		{"failovers", r.Failovers, 30},
		{"power cuts", r.PowerCuts, 4},
		{"checked operations", r.Checked, 100_000},
		{"lock grants", r.Grants, 3_000},
		{"lock grants ended by expiry", r.Expired, 300},
	} {
		if f.got < f.want {
			errs = append(errs, fmt.Errorf("%d %s, want %d at least", f.got, f.what, f.want))
		}
	}
	return errors.Join(errs...)
}
