package verify

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

	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/verify/attack"
	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/report"
)

// Exit codes of verify, for scripts; 0 is a pass.
const (
	exitViolated  = terminal.ExitCode(1) // a guarantee was violated
	exitUndecided = terminal.ExitCode(2) // no verdict
)

type options struct {
	addrs, prefix string
	login         client.LoginFlags
	duration      time.Duration
	local         bool
	faults        string
	episodes      int
	seed          uint64
	dir           string
	html, summary string
	version       string // version of this program, for the report
}

// Command returns the command that tests the guarantees of a cluster.
func Command() *cobra.Command {
	o := options{seed: rand.Uint64() >> 1}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Test the guarantees of a cluster, and report violations",
		Long: `Run clients against a cluster, record the history of their commands and replies,
and check the history: every key is linearizable; no lock has two owners or ends
before its time, and clients that wait for a lock get it in the order in which they
came; an acknowledged command took effect once, and a refused one never; replies
are in order; all replicas hold the same state.

With --addrs, verify tests an existing cluster and does not harm it. It uses only
keys that begin with a prefix of its own, and removes them at the end. You can
kill a node meanwhile. The addresses may also be those of Redis servers.

With --local, verify starts a cluster of three or five nodes on this machine and
injects the faults of --faults. Then it starts the next cluster, until
--duration is over or --episodes clusters have been tested. Disk faults need
root, and some of them need strace. The report lists faults that cannot be
injected here as not run.

Exit codes: 0 no violation; 1 a guarantee was violated; 2 no verdict, for instance
because the flags are wrong.`,
		Example: `  holdfast verify --addrs 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379 \
    --duration 60s --report verify.html
  holdfast verify --local --faults all --report verify.html
  holdfast verify --local --faults 'kill,pause,network' --episodes 5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.version = cmd.Root().Version
			return run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.addrs, "addrs", "127.0.0.1:6379", "client addresses of the nodes, separated by commas")
	o.login.Define(f)
	f.DurationVar(&o.duration, "duration", time.Minute,
		"how long clients run; with --local, no cluster is started after that time")
	f.StringVar(&o.prefix, "prefix", "", "prefix of all keys (default: holdfast-verify: and a number of this run)")
	f.BoolVar(&o.local, "local", false, "start clusters on this machine and inject faults")
	f.StringVar(&o.faults, "faults", "all",
		"with --local, separated by commas: all, none, process, cpu, network, clock, disk, membership, operator, "+
			"neighbor, or parts of the names of faults")
	f.IntVar(&o.episodes, "episodes", 0, "with --local: number of clusters to test, instead of --duration")
	f.Uint64Var(&o.seed, "seed", o.seed, "seed of the plan of faults and clients; the same seed gives the same plan")
	f.StringVar(&o.dir, "dir", "",
		"with --local: directory for the data of the nodes; the data of a run with a violation is kept (default: a "+
			"new temporary directory)")
	f.StringVar(&o.html, "report", "", "write an HTML page with the history to this file")
	f.StringVar(&o.summary, "json", "", "write a summary in JSON to this file; - for standard output")
	// Each start draws another seed, so the help must not print it as the
	// default.
	f.Lookup("seed").DefValue = "random"
	cmd.MarkFlagsMutuallyExclusive("local", "addrs")
	return cmd
}

// run runs the verification, writes its reports, and returns the verdict as
// an exit code.
func run(ctx context.Context, o options, out, errOut io.Writer) error {
	talk := out
	if o.summary == "-" {
		talk = errOut // standard output is for the program that reads the summary
	}
	var r *attack.Report
	var err error
	if o.local {
		r, err = runLocal(ctx, o, talk)
	} else {
		r, err = runLive(ctx, o, talk)
	}
	if r != nil {
		// Write the reports even if the run was cut short: it may have found a
		// violation.
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
		fmt.Fprintf(talk, "\nVIOLATED: number of violations: %d (seed %d)\n", r.Violations, r.Seed)
		return exitViolated
	case err != nil:
		return undecided(errOut, err)
	case !r.Passed():
		return undecided(errOut, errors.New("an episode could not be completed, or no fault took effect"))
	}
	fmt.Fprintf(talk, "\nall guarantees held: %d commands, %d checks, no violation (seed %d)\n", r.Commands,
		r.Checked, r.Seed)
	return nil
}

// Undecided returns the exit code of an error of the command, and prints the
// error if it has no exit code yet. Errors that cobra finds before it runs the
// command, such as unknown flags, have none. Without Undecided, they would end
// with the exit code of a violation.
func Undecided(errOut io.Writer, err error) error {
	if errors.As(err, new(terminal.ExitCode)) {
		return err
	}
	return undecided(errOut, err)
}

func undecided(errOut io.Writer, err error) error {
	fmt.Fprintln(errOut, "holdfast: no verdict:", err)
	return exitUndecided
}

func runLive(ctx context.Context, o options, talk io.Writer) (*attack.Report, error) {
	login, err := o.login.Login()
	if err != nil {
		return nil, err
	}
	cfg := attack.LiveConfig{Load: load.DefaultConfig(), Duration: o.duration}
	cfg.Load.Addrs, cfg.Load.Login, cfg.Load.Seed, cfg.Load.Prefix = strings.Split(o.addrs, ","),
		login, o.seed, o.prefix
	for i, addr := range cfg.Load.Addrs {
		cfg.Load.Addrs[i] = strings.TrimSpace(addr)
		if err := flags.CheckAddr(cfg.Load.Addrs[i]); err != nil {
			return nil, fmt.Errorf("--addrs: %q: %w", addr, err)
		}
	}
	if cfg.Load.Prefix == "" {
		cfg.Load.Prefix = fmt.Sprintf("holdfast-verify:%08x:", rand.Uint32())
	}
	fmt.Fprintf(talk, "running clients for %v at %s, with keys %s*, which are removed at the end\n", o.duration,
		o.addrs, cfg.Load.Prefix)
	shown := showProgress(talk, o.duration)
	defer shown.stop()
	cfg.Progress = shown.at
	return attack.Live(ctx, cfg)
}

func runLocal(ctx context.Context, o options, talk io.Writer) (*attack.Report, error) {
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
	fmt.Fprintf(talk, "injecting faults into clusters of this program; data in %s, seed %d\n", o.dir, o.seed)
	r, err := attack.Run(ctx, cfg)
	if made {
		// Remove only removes an empty directory. Episodes leave their data
		// there after a violation or a failure.
		_ = os.Remove(o.dir)
	}
	return r, err
}

func writeReports(o options, r *attack.Report, failure error, out io.Writer) error {
	why := ""
	if failure != nil {
		why = failure.Error()
	}
	if o.html != "" {
		f, err := os.Create(o.html)
		if err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		if err := errors.Join(report.Write(f, r, o.version, why), f.Close()); err != nil {
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

// verdictOf returns the verdict: held, violated or undecided.
func verdictOf(r *attack.Report, failure error) string {
	switch {
	case r.Violations > 0:
		return "violated"
	case failure != nil || !r.Passed():
		return "undecided"
	}
	return "held"
}
