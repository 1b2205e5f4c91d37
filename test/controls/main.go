package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/test/sim"
)

type options struct {
	root, only, refresh string
	programs            string // separated by commas, "" for all
	workers             int
	// first is the index of the patch to begin with. After its last patch, the
	// list continues with its first one.
	first int
	// budget is the time after which no further patch begins. 0 means no limit.
	budget time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the tree")
	flag.StringVar(&o.only, "only", "", "only the patches whose name matches this regular expression")
	flag.StringVar(&o.programs, "programs", "",
		"only the patches that one of these programs must find, separated by commas: sim, images, chaos, fsm, "+
			"cluster, compat")
	flag.StringVar(&o.refresh, "refresh", "", "write the changes of the working tree to this patch, and run nothing")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "histories at a time")
	flag.DurationVar(&o.budget, "budget", 0, "the time after which no further patch begins (0: no limit)")
	flag.IntVar(&o.first, "first", 0,
		"begin with the patch at this index; it may be larger than the number of patches. "+
			"With -budget, runs with different indices run different patches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "controls:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.refresh != "" {
		return refresh(ctx, o.root, o.refresh)
	}
	list, err := chosen(o)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "holdfast-controls-")
	if err != nil {
		return err
	}
	return errors.Join(controls(ctx, o, list, dir), os.RemoveAll(dir))
}

// chosen returns the patches to run.
func chosen(o options) ([]patch, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	all, err := patches(o.root)
	if err != nil {
		return nil, err
	}
	var list []patch
	for _, p := range all {
		if only.MatchString(p.name) && p.foundBy(o.programs) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no patch in %s matches %q for the programs %q", folder, o.only, o.programs)
	}
	if o.first < 0 {
		return nil, fmt.Errorf("-first: %d is negative", o.first)
	}
	first := o.first % len(list)
	return slices.Concat(list[first:], list[:first]), nil
}

// foundBy reports whether one of the programs must find the bug. programs is a
// list separated by commas; an empty list stands for all programs.
func (p *patch) foundBy(programs string) bool {
	return programs == "" || slices.ContainsFunc(p.demands, func(d demand) bool {
		return slices.Contains(strings.Split(programs, ","), d.program)
	})
}

// controls runs the controls of the patches until the budget is used up. While it
// runs the programs of one patch, it builds those of the next patch.
func controls(ctx context.Context, o options, list []patch, dir string) error {
	begun := time.Now()
	b := builder{tree: filepath.Join(dir, "tree"), out: dir}
	if err := copyTree(o.root, b.tree); err != nil {
		return fmt.Errorf("copy the tree: %w", err)
	}
	clean, err := b.clean(ctx, list)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	built := make(chan programs)
	go func() {
		defer close(built)
		for _, p := range list {
			select {
			case built <- b.build(ctx, p):
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { // the goroutine that builds must end before the caller removes its directory
		cancel()
		for range built {
		}
	}()
	fmt.Printf("%-20s %-8s %s\n", "injected bug", "program", "found by")
	var failed []error
	var ran int
	why := "the time budget was used up"
	for made := range built {
		ran++
		if made.err != nil {
			failed = append(failed, made.err)
			fmt.Printf("%-20s %v\n", made.patch.name, made.err)
			if !errors.Is(made.err, errStale) {
				why = "the copy of the tree may still contain a bug"
				break
			}
			continue
		}
		failed = append(failed, o.control(ctx, made, clean, b)...)
		if o.budget > 0 && time.Since(begun) > o.budget {
			break
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Printf("controls: ran for %d of %d injected bugs, in %.0f s\n", ran, len(list), time.Since(begun).Seconds())
	for _, p := range list[ran:] {
		fmt.Printf("not run, because %s: %s\n", why, p.name)
	}
	return errors.Join(failed...)
}

// control runs the controls of one patch, prints a line for each, and removes
// its programs.
func (o options) control(ctx context.Context, made programs, clean map[string]string, b builder) (failed []error) {
	p := made.patch
	for _, d := range p.demands {
		line, err := o.meet(ctx, made, d, clean[d.program], b)
		switch {
		case errors.Is(err, errNotRun):
			line = err.Error()
		case err != nil:
			line = err.Error()
			failed = append(failed, fmt.Errorf("%s: %s: %w", p.name, d.program, err))
		}
		fmt.Printf("%-20s %-8s %s\n", p.name, d.program, line)
	}
	for program, path := range made.paths {
		if err := os.Remove(path); err != nil {
			failed = append(failed, fmt.Errorf("%s: %s: %w", p.name, program, err))
		}
	}
	return failed
}

// meet runs the control of one demand, and returns a line that says how the bug
// was found.
func (o options) meet(
	ctx context.Context, made programs, d demand, clean string, b builder,
) (line string, err error) {
	program := made.paths[d.program]
	switch d.program {
	case simulator:
		r, err := simulate(ctx, sim.Drill(made.patch.name), d.want, fleet(program, o.workers), fleet(clean, o.workers))
		return fmt.Sprintf("%d histories, %d clean: %s", r.histories, r.clean, firstLine(r.by)), err
	case images:
		return startImages(ctx, clean, program, b.out, d.want)
	case chaos:
		return attack(ctx, clean, program, b.out, d)
	}
	return runTests(ctx, program, filepath.Join(b.tree, testPackages[d.program]), d)
}
