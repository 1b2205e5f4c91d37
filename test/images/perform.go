package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// plan holds the parameters of one run.
type plan struct {
	program                    string
	dir                        string
	seed                       uint64
	images, controls, checkers int
	specs                      []spec
}

// perform records clusters, one after the other. While it records one cluster,
// it checks the images of the previous one.
func perform(ctx context.Context, p plan) (*report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rep := &report{Seed: p.seed, Program: p.program, Mutations: make(map[string]int), Kinds: make(map[string]int),
		Refused: make(map[string]int), began: time.Now()}
	jobs := make(chan *job, p.checkers)
	var wg sync.WaitGroup
	for i := range p.checkers {
		j := newChecker(filepath.Join(p.dir, fmt.Sprintf("checker%d", i)), p.program)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for t := range jobs {
				if ctx.Err() != nil {
					continue
				}
				v, err := j.try(ctx, t)
				if err != nil {
					cancel(err)
					continue
				}
				rep.count(t, v, p.dir)
			}
		}()
	}
	err := p.produce(ctx, rep, jobs)
	close(jobs)
	wg.Wait()
	rep.Seconds = time.Since(rep.began).Seconds()
	if err == nil {
		err = context.Cause(ctx)
	}
	return rep, err
}

// produce records clusters and draws images.
func (p plan) produce(ctx context.Context, rep *report, jobs chan<- *job) error {
	total := 0
	for _, s := range p.specs {
		total += s.share
	}
	seen := make(map[uint64]bool)
	for i, s := range p.specs {
		dir := filepath.Join(p.dir, fmt.Sprintf("recording%d", i))
		rec, err := record(ctx, s, p.program, dir, p.seed+uint64(i))
		if err != nil {
			return err
		}
		t, err := readTape(rec)
		if err != nil {
			return err
		}
		found, bad, err := t.moments()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rep.recorded(rec, t, found, bad)
		rng := rand.New(rand.NewPCG(p.seed, uint64(i)))
		if err := p.draw(ctx, rng, t, found, p.images*s.share/total, seen, jobs); err != nil {
			return err
		}
		if s.nodes == 1 && p.controls > 0 {
			// In the controls, fsync has no effect on the files of the log. No
			// other file contains their data, so the checks can detect its
			// loss.
			forgets := func(path string) bool {
				return strings.HasSuffix(path, ".wal") ||
					strings.HasSuffix(path, "log.db")
			}
			if err := p.controlImages(ctx, rng, t, found, forgets, jobs); err != nil {
				return err
			}
		}
	}
	return nil
}

// draw makes n images of random moments of a recording.
func (p plan) draw(ctx context.Context, rng *rand.Rand, t *tape, found map[string][]int, n int, seen map[uint64]bool,
	jobs chan<- *job) error {
	at := make(map[int]int)
	for range n {
		at[pick(rng, found)]++
	}
	again := 0
	pl := t.player(nil)
	for i := range t.steps {
		if _, err := pl.play(i); err != nil {
			return err
		}
		for range at[i] + min(again, at[i]*3) {
			var im *image
			for range 8 {
				if im = draw(rng, pl.disks); !seen[im.sum] {
					break
				}
			}
			if seen[im.sum] {
				again++ // draw an image of another moment instead
				continue
			}
			seen[im.sum] = true
			if n--; n < 0 {
				return nil
			}
			if err := submit(ctx, jobs,
				&job{image: im, promise: t.promisedAt(i), spec: t.rec.spec, about: t.about(i)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// controlImages makes images of a disk that ignores fsync for the files that the
// function forgets selects: fsync reports success, but makes nothing durable. Each
// image shows the disk right after the node acknowledged a command.
func (p plan) controlImages(ctx context.Context, rng *rand.Rand, t *tape, found map[string][]int,
	forgets func(string) bool,
	jobs chan<- *job) error {
	at := make(map[int]bool)
	for _, i := range found["reply"] {
		at[i] = rng.IntN(len(found["reply"])) < p.controls
	}
	pl := t.player(forgets)
	for i := range t.steps {
		if _, err := pl.play(i); err != nil {
			return err
		}
		if !at[i] {
			continue
		}
		if err := submit(ctx, jobs, &job{image: draw(rng, pl.disks), promise: t.promisedAt(i), spec: t.rec.spec,
			about: t.about(i), control: true}); err != nil {
			return err
		}
	}
	return nil
}

func submit(ctx context.Context, jobs chan<- *job, t *job) error {
	select {
	case jobs <- t:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// about describes the step of the recording that an image comes from.
func (t *tape) about(i int) string {
	s := t.steps[i]
	what := "death of the process"
	if s.call != nil {
		word := "begin"
		if s.end {
			word = "end"
		}
		_, path := fd(s.call.arg(0))
		if strings.HasSuffix(s.call.name, "at") {
			path = join(s.call.arg(0), s.call.arg(1))
		}
		what = fmt.Sprintf("%s of %s %s", word, s.call.name, filepath.Base(path))
	}
	return fmt.Sprintf("%s, step %d of %d: n%d, %s", t.rec.spec.name, i, len(t.steps), s.node+1, what)
}

// report is the result of a run.
type report struct {
	Seed       uint64
	Program    string
	Seconds    float64
	Recordings []recorded
	Images     int
	Distinct   int
	Kinds      map[string]int // images by kind of cluster
	Mutations  map[string]int // images by how their files differ from the files that the processes saw
	Started    int
	Refused    map[string]int // refused images by the last line that the node printed
	Checks     int
	Acked      int // acknowledged commands, summed over the images
	Controls   int // images of disks that ignore fsync
	Caught     int // images among Controls that a check detected
	Violations []violation

	mu      sync.Mutex
	began   time.Time
	checker time.Duration
}

// recorded describes the content of a recording.
type recorded struct {
	Kind                       string
	Steps, Syncs, Replies      int
	Lives                      int
	Snapshots, Segments, Moved int
	Moments                    map[string]int
	Seconds                    float64
}

// violation is a broken promise.
type violation struct {
	About string
	Marks []string
	What  []string
	Image string // where the image is stored
}

func (r *report) recorded(rec *recording, t *tape, found map[string][]int, bad []string) {
	x := recorded{Kind: rec.spec.name, Steps: len(t.steps), Replies: len(found["reply"]), Seconds: rec.took.Seconds(),
		Moments: make(map[string]int)}
	for _, l := range rec.lives {
		x.Lives += len(l)
	}
	for k, v := range found {
		x.Moments[k] = len(v)
		if strings.Contains(k, "begin of f") {
			x.Syncs += len(v)
		}
	}
	x.Snapshots = len(found["snapshots rename"])
	x.Segments = len(found[".wal openat"])
	x.Moved = len(found[".wal unlinkat"])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Recordings = append(r.Recordings, x)
	if len(bad) > 0 {
		r.Violations = append(r.Violations, violation{About: x.Kind, What: bad})
	}
}

var digits = regexp.MustCompile(`[0-9]+|/[^ ]*/`)

// count adds a verdict. If the verdict has a violation, count keeps the image,
// unless it is the image of a control.
func (r *report) count(t *job, v *verdict, dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checker += v.took
	if t.control {
		r.Controls++
		if len(v.violations) > 0 {
			r.Caught++
		}
		return
	}
	r.Images++
	r.Distinct++
	r.Kinds[t.spec.name]++
	r.Checks += v.checks
	r.Acked += t.promise.acked
	for _, m := range t.image.marks {
		r.Mutations[m]++
	}
	if len(v.refused) == 0 {
		r.Started++
	}
	for _, words := range v.refused {
		r.Refused[digits.ReplaceAllString(words, "*")]++
	}
	if len(v.violations) == 0 {
		return
	}
	kept := filepath.Join(dir, fmt.Sprintf("violation%d", len(r.Violations)+1))
	err := os.Mkdir(kept, 0o755)
	for i, d := range t.image.dirs {
		if err == nil {
			err = d.save(filepath.Join(kept, fmt.Sprintf("n%d", i+1)))
		}
	}
	if err != nil {
		kept = "not kept: " + err.Error()
	}
	r.Violations = append(r.Violations, violation{t.about, t.image.marks, v.violations, kept})
}

// table prints the report.
func (r *report) table(w *os.File) error {
	var b strings.Builder
	line := func(what string, args ...any) { fmt.Fprintf(&b, "  %-44s %s\n", what, fmt.Sprint(args...)) }
	fmt.Fprintf(&b, "\nseed %d, %.0f s\n", r.Seed, r.Seconds)
	for _, x := range r.Recordings {
		line("recorded: "+x.Kind, fmt.Sprintf("%d steps, %d fsyncs, %d replies, %d processes, %d snapshots, %d "+
			"segments made, %d removed, %.1f s",
			x.Steps, x.Syncs, x.Replies, x.Lives, x.Snapshots, x.Segments, x.Moved, x.Seconds))
	}
	line("images built", r.Images)
	line("distinct", r.Distinct)
	for _, k := range slices.Sorted(maps.Keys(r.Kinds)) {
		line("  "+k, r.Kinds[k])
	}
	for _, m := range mutations {
		line("with: "+m, r.Mutations[m])
	}
	line("started", r.Started)
	line("refused", r.Images-r.Started)
	for _, words := range slices.Sorted(maps.Keys(r.Refused)) {
		line("  "+words, r.Refused[words])
	}
	line("checks", r.Checks)
	line("acknowledged commands in them", r.Acked)
	line("control: images of disks that ignore fsync, caught", fmt.Sprintf("%d of %d", r.Caught, r.Controls))
	if r.Images > 0 {
		line("a start took", (r.checker / time.Duration(r.Images+r.Controls)).Round(time.Millisecond))
	}
	line("violations", len(r.Violations))
	for _, v := range r.Violations[:min(len(r.Violations), 20)] {
		fmt.Fprintf(&b, "\n%s\n  has: %s\n  image: %s\n", v.About, strings.Join(v.Marks, "; "), v.Image)
		for _, what := range slices.Compact(v.What) {
			fmt.Fprintf(&b, "  %s\n", what)
		}
	}
	_, err := w.WriteString(b.String())
	return err
}
