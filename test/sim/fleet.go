package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Fleet runs histories in processes of their own. A history that panics, hangs
// or leaves goroutines behind then counts as failed and does not end the run.
// Each process uses one processor, so that as little as possible depends on the
// assignment of goroutines to processors.
type Fleet struct {
	// Program runs the schedules that it reads as JSON from standard input, one
	// per line. It writes to file descriptor 3: the line "begin" before each
	// schedule, and the schedule's Result after it.
	Program string
	Args    []string
	Workers int
	// Limit is the real time that one history may take.
	Limit time.Duration
}

const begin = "begin"

// Run runs schedules until none are left, and calls the function each with
// every result. If that function returns true, Run starts no more schedules.
// Run never calls the function concurrently.
func (f *Fleet) Run(plans []*Schedule, each func(*Result) (enough bool)) error {
	queue := make(chan *Schedule)
	stop := make(chan struct{})
	var once sync.Once
	go func() {
		defer close(queue)
		for _, p := range plans {
			select {
			case queue <- p:
			case <-stop:
				return
			}
		}
	}()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for range max(1, f.Workers) {
		wg.Go(func() {
			err := f.work(queue, func(r *Result) {
				mu.Lock()
				defer mu.Unlock()
				if each(r) {
					once.Do(func() { close(stop) })
				}
			})
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
				once.Do(func() { close(stop) })
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// work runs schedules in one process, and replaces the process when it ends.
func (f *Fleet) work(queue <-chan *Schedule, each func(*Result)) error {
	var w *worker
	defer func() {
		if w != nil {
			w.end()
		}
	}()
	for plan := range queue {
		if w == nil {
			var err error
			if w, err = f.start(); err != nil {
				return err
			}
		}
		r, ok := w.run(plan, f.Limit)
		each(r)
		if !ok {
			w = nil
		}
	}
	return nil
}

// worker is a process that runs histories.
type worker struct {
	cmd     *exec.Cmd
	plans   io.WriteCloser
	results *bufio.Reader
	said    bytes.Buffer // standard output and standard error
}

func (f *Fleet) start() (*worker, error) {
	r, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	w := &worker{results: bufio.NewReaderSize(r, 1<<20)}
	w.cmd = exec.Command(f.Program, f.Args...)
	// GOMAXPROCS=1 gives the process one processor. GOGC=400 and
	// asyncpreemptoff=1 reduce the number of choices that the scheduler has.
	// randseednop=0 makes math/rand.Seed take effect: see inBubble.
	w.cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "GODEBUG=randseednop=0,asyncpreemptoff=1")
	w.cmd.Stdout, w.cmd.Stderr = &w.said, &w.said
	w.cmd.ExtraFiles = []*os.File{out}
	if w.plans, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	return w, out.Close()
}

// end closes the process's input and waits until the process has ended.
func (w *worker) end() {
	_ = w.plans.Close() // Close fails if the process has already ended
	_ = w.cmd.Wait()
}

// run runs one schedule. ok is false if the process has ended.
func (w *worker) run(plan *Schedule, limit time.Duration) (r *Result, ok bool) {
	line, err := json.Marshal(plan)
	if err == nil {
		_, err = w.plans.Write(append(line, '\n'))
	}
	timer := time.AfterFunc(limit, func() {
		// SIGQUIT makes the runtime print the stacks of all goroutines.
		_ = w.cmd.Process.Signal(syscall.SIGQUIT)
	})
	r = &Result{Schedule: plan}
	if err == nil {
		line, err = w.results.ReadBytes('\n')
	}
	if err == nil && bytes.Equal(bytes.TrimSpace(line), []byte(begin)) {
		line, err = w.results.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, r)
	}
	if timer.Stop() && err == nil {
		return r, true
	}
	w.end()
	r.Violations = append(r.Violations, "the history did not end: "+tail(w.said.String(), 12000))
	return r, false
}

// tail shortens a text to about n bytes by cutting out its middle. The
// beginning stays, because it contains the message of a panic.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n/2] + "\n…\n" + s[len(s)-n/2:]
}

// Serve is the worker side of a Fleet. It runs the schedules that it reads from
// in and writes the results to out.
func Serve(in io.Reader, out io.Writer, run func(*Schedule) *Result) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	enc := json.NewEncoder(out)
	for lines.Scan() {
		plan := &Schedule{}
		if err := json.Unmarshal(lines.Bytes(), plan); err != nil {
			return fmt.Errorf("read schedule: %w", err)
		}
		if _, err := fmt.Fprintln(out, begin); err != nil {
			return err
		}
		if err := enc.Encode(run(plan)); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
	}
	return lines.Err()
}

// Shrink tries to remove each fault of a schedule, one at a time. It keeps a
// removal if the remaining schedule still fails. A history does not repeat
// exactly, so Shrink runs each smaller schedule several times before it
// concludes that the fault is needed.
// Once the time budget is used up, Shrink starts no new attempt.
func Shrink(f *Fleet, plan *Schedule, tries int, budget time.Duration, say func(string)) *Schedule {
	fails := func(s *Schedule) bool {
		again := make([]*Schedule, tries)
		for i := range again {
			again[i] = s
		}
		failed := false
		err := f.Run(again, func(r *Result) bool {
			failed = failed || len(r.Violations) > 0
			return failed
		})
		return err == nil && failed
	}
	begun := time.Now()
	best := *plan
	for i := len(best.Faults) - 1; i >= 0 && time.Since(begun) < budget; i-- {
		smaller := best
		smaller.Faults = slices.Delete(slices.Clone(best.Faults), i, i+1)
		if fails(&smaller) {
			best = smaller
			say(fmt.Sprintf("still fails with %d faults", len(best.Faults)))
		}
	}
	return &best
}
