package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
)

type options struct {
	program, dir, summary, only string
	seed                        uint64
	images, controls, checkers  int
	keep, figures               bool
}

func main() {
	var o options
	flag.StringVar(&o.program, "program", "", "holdfast binary (default: built from this tree)")
	flag.StringVar(&o.dir, "dir", defaultDir(), "directory for the clusters and for the images that violate a promise")
	flag.StringVar(&o.summary, "json", "", "write the summary to this file")
	flag.StringVar(&o.only, "only", "",
		"run only the kind of cluster with this name or, if there is none, the kinds whose names contain it")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of clients, moments and images")
	flag.IntVar(&o.images, "images", 600, "images to start")
	flag.IntVar(&o.controls, "controls", 10,
		"images of disks that ignore fsync; a check must fail on at least one")
	flag.IntVar(&o.checkers, "checkers", runtime.NumCPU()+1, "images to check at the same time")
	flag.BoolVar(&o.keep, "keep", false, "keep the recordings")
	flag.BoolVar(&o.figures, "figures", false,
		"fail if the run is too small, for example with fewer than 500 distinct images")
	flag.Parse()
	if reason := why(); reason != "" {
		fmt.Println("images: NOT RUN:", reason)
		if os.Getenv("HOLDFAST_REQUIRE_STRACE") == "1" {
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// defaultDir returns a directory in memory if the machine has one. Memory is
// enough, because the disk of this machine does not influence the checks.
func defaultDir() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm/holdfast-images"
	}
	return filepath.Join(os.TempDir(), "holdfast-images")
}

func run(ctx context.Context, o options) error {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
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
	fmt.Printf("seed %d; to repeat it: make images SEED=%d IMAGES=%d\n", o.seed, o.seed, o.images)
	rep, err := perform(ctx, plan{
		program: o.program, dir: dir, seed: o.seed, images: o.images, controls: o.controls, checkers: o.checkers,
		specs: chosen(o.only),
	})
	if err != nil {
		err = fmt.Errorf("%w (see %s)", err, dir)
		return errors.Join(err, rep.table(os.Stdout))
	}
	if err := rep.table(os.Stdout); err != nil {
		return err
	}
	if o.summary != "" {
		b, err := json.MarshalIndent(rep, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.summary, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if len(rep.Violations) > 0 {
		return fmt.Errorf("%d violations: see %s", len(rep.Violations), dir)
	}
	if !o.keep {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if rep.Controls > 0 && rep.Caught == 0 {
		return errors.New("no check failed on an image of a disk that ignores fsync: the checks detect nothing")
	}
	if o.figures {
		return figures(rep)
	}
	return nil
}

func chosen(only string) (list []spec) {
	for _, s := range specs {
		if s.name == only {
			return []spec{s}
		}
		if strings.Contains(s.name, only) {
			list = append(list, s)
		}
	}
	return list
}

// figures returns an error if a run missed one of the figures that a run with
// -figures must reach. Such a run proves too little.
func figures(r *report) error {
	var errs []error
	for _, f := range []struct {
		what      string
		got, want int
	}{
		{"distinct images", r.Distinct, 500},
		{"images started", r.Started, 500},
		{"checks", r.Checks, 50_000},
		{"kinds of mutations", len(r.Mutations), len(mutations)},
	} {
		if f.got < f.want {
			errs = append(errs, fmt.Errorf("%d %s, want at least %d", f.got, f.what, f.want))
		}
	}
	return errors.Join(errs...)
}

// pick draws a moment. It first draws the kind of event, so that it chooses
// rare kinds too, and then a moment of this kind. One draw in three is a moment
// at which several writes of a file are not durable, because only such writes
// can reach the disk in another order.
func pick(rng *rand.Rand, found map[string][]int) int {
	kinds := slices.Sorted(maps.Keys(found))
	if rng.IntN(3) == 0 {
		several := slices.DeleteFunc(slices.Clone(kinds),
			func(k string) bool { return !strings.HasSuffix(k, severalOpen) })
		if len(several) > 0 {
			kinds = several
		}
	}
	all := found[kinds[rng.IntN(len(kinds))]]
	return all[rng.IntN(len(all))]
}
