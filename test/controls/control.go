package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/test/sim"
)

// limit is the real time that one history, or the tests of one control, may
// take on a slow and busy machine.
const limit = 5 * time.Minute

// runner runs schedules. It is a sim.Fleet, or a substitute in the tests.
type runner interface {
	Run(plans []*sim.Schedule, each func(*sim.Result) (enough bool)) error
}

func fleet(program string, workers int) runner {
	return &sim.Fleet{
		Program: program, Args: []string{"-test.run=^TestServe$", "-test.timeout=0", "-serve"},
		Workers: workers, Limit: limit,
	}
}

// outcome is the result of a control that has passed.
type outcome struct {
	histories, clean int
	by               string // the violation that the expected checker reported
}

// simulate runs schedules with the bug until a violation matches want. Then it
// runs the same schedules without the bug, which must cause no violation. If no
// violation with the bug matches want, simulate returns an error.
func simulate(
	ctx context.Context, plans []*sim.Schedule, want *regexp.Regexp, bug, clean runner,
) (o outcome, err error) {
	if len(plans) == 0 {
		return o, errors.New("test/sim/controls.go has no schedules for this patch")
	}
	var ran []*sim.Schedule
	var others []string
	err = bug.Run(plans, func(r *sim.Result) bool {
		ran = append(ran, r.Schedule)
		for _, v := range r.Violations {
			if o.by == "" && want.MatchString(v) {
				o.by = v
			}
		}
		others = append(others, r.Violations...)
		return o.by != "" || ctx.Err() != nil
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return o, err
	}
	o.histories = len(ran)
	if o.by == "" {
		return o, fmt.Errorf("NOT FOUND in %d histories: no violation matches %q; the reported ones are: %s",
			o.histories, want, firstLines(others))
	}
	var errs []error
	err = clean.Run(ran, func(r *sim.Result) bool {
		if len(r.Violations) > 0 {
			errs = append(errs, fmt.Errorf("without the bug the schedule of seed %d fails too:\n%v\n%s",
				r.Schedule.Seed, r.Schedule, strings.Join(r.Violations, "\n")))
		} else {
			o.clean++
		}
		return len(errs) > 0 || ctx.Err() != nil
	})
	return o, errors.Join(append(errs, err, ctx.Err())...)
}

// firstLines shortens a list of violations.
func firstLines(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	var lines []string
	for _, v := range all[:min(len(all), 5)] {
		lines = append(lines, firstLine(v))
	}
	return strings.Join(lines, "; ")
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s[:min(len(s), 150)]
}

// errNotRun means that this machine lacks something that the program needs.
var errNotRun = errors.New("not run")

// startImages lets test/images start holdfast, which is the program with the bug,
// on crash images of its own data. program is the path of test/images.
func startImages(ctx context.Context, program, holdfast, dir string, want *regexp.Regexp) (string, error) {
	summary := filepath.Join(dir, "images.json")
	cmd := exec.CommandContext(ctx, program,
		"-program", holdfast, "-dir", filepath.Join(dir, "clusters"), "-json", summary,
		"-seed", "1", "-images", "40", "-controls", "0", "-checkers", "2", "-only", "one node, wal")
	out, ranErr := cmd.CombinedOutput()
	text, err := os.ReadFile(summary)
	if errors.Is(err, os.ErrNotExist) {
		if ranErr == nil {
			// This machine cannot run strace, and HOLDFAST_REQUIRE_STRACE is not 1.
			return "", fmt.Errorf("%w: %s", errNotRun, strings.TrimSpace(string(out)))
		}
		return "", fmt.Errorf("test/images: %w\n%s", ranErr, out)
	}
	if err != nil {
		return "", err
	}
	var report struct {
		Images     int
		Violations []struct{ What []string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return "", fmt.Errorf("read the summary of test/images: %w", err)
	}
	var others []string
	for _, v := range report.Violations {
		for _, what := range v.What {
			if want.MatchString(what) {
				return fmt.Sprintf("%d of %d images: %s", len(report.Violations), report.Images, firstLine(what)), nil
			}
		}
		others = append(others, v.What...)
	}
	return "", fmt.Errorf("NOT FOUND in %d images: no violation matches %q; the reported ones are: %s",
		report.Images, want, firstLines(others))
}

// attack runs one short episode of test/chaos. It injects the faults of a
// demand into a cluster of holdfast, the program with the bug.
func attack(ctx context.Context, program, holdfast, dir string, d demand) (string, error) {
	summary := filepath.Join(dir, "chaos.json")
	cmd := exec.CommandContext(ctx, program,
		"-program", holdfast, "-dir", filepath.Join(dir, "clusters"), "-json", summary,
		"-seed", "1", "-episodes", "1", "-steps", "1", "-controls=false", "-library=false", "-faults", d.what)
	out, ranErr := cmd.CombinedOutput()
	text, err := os.ReadFile(summary)
	if err != nil {
		return "", errors.Join(fmt.Errorf("test/chaos: %w\n%s", ranErr, out), err)
	}
	var report struct {
		Episodes []struct {
			Events []struct {
				Class  string
				NotRun string `json:"not_run"`
			}
			Failure    string
			Violations []struct{ Check, Text string }
		}
	}
	if err := errors.Join(json.Unmarshal(text, &report), os.Remove(summary)); err != nil {
		return "", fmt.Errorf("read the summary of test/chaos: %w", err)
	}
	var others []string
	for _, e := range report.Episodes {
		for _, v := range e.Violations {
			what := v.Check + ": " + v.Text
			if d.want.MatchString(what) {
				return fmt.Sprintf("%s: %s", d.what, firstLine(what)), nil
			}
			others = append(others, what)
		}
		for _, ev := range e.Events {
			others = append(others, ev.Class+": "+ev.NotRun)
		}
		others = append(others, e.Failure)
	}
	return "", fmt.Errorf("NOT FOUND: no violation matches %q; the run reported: %s", d.want, firstLines(others))
}

// runTests runs tests of a package. At least one of them must fail, with output
// that matches d.want. dir is the directory of the package.
func runTests(ctx context.Context, program, dir string, d demand) (string, error) {
	if _, err := exec.LookPath("redis-server"); d.program == compat && err != nil &&
		os.Getenv("HOLDFAST_REQUIRE_REDIS") == "" {
		return "", fmt.Errorf("%w: %w", errNotRun, err)
	}
	cmd := exec.CommandContext(ctx, program, "-test.run", d.what, "-test.timeout", limit.String())
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil && strings.Contains(string(out), "no tests to run"):
		return "", fmt.Errorf("no test matches %q", d.what)
	case err == nil:
		return "", fmt.Errorf("NOT FOUND: the tests %q pass", d.what)
	case !errors.As(err, &exit):
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); d.want.MatchString(line) {
			return firstLine(line), nil
		}
	}
	return "", fmt.Errorf("NOT FOUND: no line matches %q; the tests printed:\n%s", d.want, tail(out))
}

// tail returns the end of the output of a program.
func tail(out []byte) []byte { return out[max(0, len(out)-2000):] }
