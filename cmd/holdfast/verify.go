package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/verify/attack"
	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/report"
)

// Exit codes of verify, for scripts; 0 is a pass.
const (
	exitViolated  = exitCode(1) // a promise was seen broken
	exitUndecided = exitCode(2) // nothing can be said
)

type verifyOptions struct {
	addrs, prefix string
	login         load.Login
	duration      time.Duration
	local         bool
	faults        string
	episodes      int
	seed          uint64
	dir           string
	html, summary string
}

func verifyCommand() *cobra.Command {
	o := verifyOptions{seed: rand.Uint64() >> 1}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Test a cluster's promises, and tell what was broken",
		Long: `Run clients against a cluster, keep the history of what they saw, and check it:
every key is linearizable, no lock has two owners or is lost before its time,
what was acknowledged happened once and what was refused never, replies are in
order, replicas hold the same state.

With --addrs the cluster is yours and is not harmed: only keys that begin with a
prefix of this run's own are touched, and they are removed in the end. Kill a node
meanwhile and see. It may also be a Redis.

With --local a cluster of three or five nodes is started on this machine, attacked
by the faults of --faults, and replaced by the next until --duration is over or
--episodes are played. Faults of disks need root, and some of them strace; what
cannot be done here is listed as not run.

Exit code: 0 all held, 1 a promise was broken, 2 nothing can be said.`,
		Example: `  holdfast verify --addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379 --duration 60s --report verify.html
  holdfast verify --local --faults all --report verify.html
  holdfast verify --local --faults 'kill,pause,network' --episodes 5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return verify(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.addrs, "addrs", "127.0.0.1:6379", "client addresses of the nodes, by comma")
	loginFlags(f, &o.login)
	f.DurationVar(&o.duration, "duration", time.Minute, "how long clients run; with --local no episode begins later")
	f.StringVar(&o.prefix, "prefix", "", "what all keys begin with (default: holdfast-verify: and a number of this run)")
	f.BoolVar(&o.local, "local", false, "start a cluster on this machine and attack it")
	f.StringVar(&o.faults, "faults", "all", "with --local, by comma: all, none, process, cpu, network, clock, disk, membership, or parts of the names of faults")
	f.IntVar(&o.episodes, "episodes", 0, "with --local: clusters to attack, instead of --duration")
	f.Uint64Var(&o.seed, "seed", o.seed, "seed of faults and clients: the same seed plans the same")
	f.StringVar(&o.dir, "dir", "", "with --local: where the nodes' data lives and what is left of a violation stays (default: a new directory for temporary files)")
	f.StringVar(&o.html, "report", "", "write a page that shows the history to this file")
	f.StringVar(&o.summary, "json", "", "write a summary for programs to this file, - for standard output")
	// Drawn anew at each start, so it must not stand in the help as a default.
	f.Lookup("seed").DefValue = "random"
	cmd.MarkFlagsMutuallyExclusive("local", "addrs")
	return cmd
}

// verify runs the verification, writes its reports, and makes the verdict the
// exit code.
func verify(ctx context.Context, o verifyOptions, out, errOut io.Writer) error {
	talk := out
	if o.summary == "-" {
		talk = errOut // standard output is the program's that reads the summary
	}
	var r *attack.Report
	var err error
	if o.local {
		r, err = verifyLocal(ctx, o, talk)
	} else {
		r, err = verifyLive(ctx, o, talk)
	}
	if r != nil {
		// Written even if the run was cut short: it may have found something.
		if werr := writeReports(o, r, err, out); werr != nil {
			return undecided(errOut, errors.Join(err, werr))
		}
		fmt.Fprintln(talk)
		if terr := r.Table(talk); terr != nil {
			return undecided(errOut, terr)
		}
	}
	switch {
	case r != nil && r.Violations > 0:
		fmt.Fprintf(talk, "\nVIOLATED: %d promises broken (seed %d)\n", r.Violations, r.Seed)
		return exitViolated
	case err != nil:
		return undecided(errOut, err)
	case !r.Held():
		return undecided(errOut, errors.New("an episode could not be played to its end, or no fault took effect"))
	}
	fmt.Fprintf(talk, "\nheld: %d commands, %d checks, no violation (seed %d)\n", r.Commands, r.Checked, r.Seed)
	return nil
}

func undecided(errOut io.Writer, err error) error {
	fmt.Fprintln(errOut, "holdfast: nothing can be said:", err)
	return exitUndecided
}

func verifyLive(ctx context.Context, o verifyOptions, talk io.Writer) (*attack.Report, error) {
	cfg := attack.LiveConfig{Load: load.DefaultConfig(), Duration: o.duration}
	cfg.Load.Addrs, cfg.Load.Login, cfg.Load.Seed, cfg.Load.Prefix = strings.Split(o.addrs, ","), o.login, o.seed, o.prefix
	for i, addr := range cfg.Load.Addrs {
		cfg.Load.Addrs[i] = strings.TrimSpace(addr)
		if err := checkAddr(cfg.Load.Addrs[i]); err != nil {
			return nil, fmt.Errorf("--addrs: %q: %w", addr, err)
		}
	}
	if cfg.Load.Prefix == "" {
		cfg.Load.Prefix = fmt.Sprintf("holdfast-verify:%08x:", rand.Uint32())
	}
	fmt.Fprintf(talk, "%v of clients at %s, keys %s*; they are removed in the end\n", o.duration, o.addrs, cfg.Load.Prefix)
	return attack.Live(ctx, cfg)
}

func verifyLocal(ctx context.Context, o verifyOptions, talk io.Writer) (*attack.Report, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	made := o.dir == ""
	if made {
		if o.dir, err = os.MkdirTemp("", "holdfast-verify-"); err != nil {
			return nil, err
		}
	} else if o.dir, err = filepath.Abs(o.dir); err != nil {
		return nil, err
	}
	cfg := attack.DefaultConfig()
	cfg.Program, cfg.Dir, cfg.Seed, cfg.Out, cfg.Faults = program, o.dir, o.seed, talk, strings.Split(o.faults, ",")
	cfg.Episodes, cfg.For = o.episodes, o.duration
	if o.episodes > 0 {
		cfg.For = 0
	}
	fmt.Fprintf(talk, "attacking clusters of this program in %s, seed %d\n", o.dir, o.seed)
	r, err := attack.Run(ctx, cfg)
	if made {
		// Only an empty directory goes: episodes leave theirs when there is something
		// to be seen.
		_ = os.Remove(o.dir)
	}
	return r, err
}

func writeReports(o verifyOptions, r *attack.Report, failure error, out io.Writer) error {
	why := ""
	if failure != nil {
		why = failure.Error()
	}
	if o.html != "" {
		f, err := os.Create(o.html)
		if err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		if err := errors.Join(report.Write(f, r, version, why), f.Close()); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	if o.summary == "" {
		return nil
	}
	b, err := json.MarshalIndent(struct {
		Verdict string `json:"verdict"`
		Failure string `json:"failure,omitempty"`
		*attack.Report
	}{verdictOf(r, failure), why, r}, "", " ")
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	b = append(b, '\n')
	if o.summary == "-" {
		_, err = out.Write(b)
		return err
	}
	return os.WriteFile(o.summary, b, 0o644)
}

// verdictOf is the verdict in one word: held, violated, undecided.
func verdictOf(r *attack.Report, failure error) string {
	switch {
	case r.Violations > 0:
		return "violated"
	case failure != nil || !r.Held():
		return "undecided"
	}
	return "held"
}
