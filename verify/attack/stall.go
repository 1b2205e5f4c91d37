package attack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// stallProbe repeatedly writes and syncs a small file next to the data of the
// nodes. It measures how long the machine's own disk stalls. Its goroutine ends
// with ctx, after the current write has ended.
type stallProbe struct {
	mu    sync.Mutex
	began time.Time // start of the current write
	slow  time.Time // end of the latest write that took longer than stalledFor
}

// stalledFor is how long a write of the probe must hang before the machine's
// own disk counts as stalled. No injected fault affects the writes of the
// probe. A node ends when its write has hung for 3 s. stalledFor is less,
// because the write of the probe may have begun later than that of the node.
const stalledFor = 1500 * time.Millisecond

func probeDisk(ctx context.Context, dir string) *stallProbe {
	p := &stallProbe{}
	go func() {
		for load.Sleep(ctx, 250*time.Millisecond) {
			p.mu.Lock()
			p.began = time.Now()
			p.mu.Unlock()
			err := syncedWrite(filepath.Join(dir, "probe"))
			p.mu.Lock()
			if err == nil && time.Since(p.began) > stalledFor {
				p.slow = time.Now()
			}
			p.began = time.Time{}
			p.mu.Unlock()
		}
	}()
	return p
}

func syncedWrite(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Sync(), f.Close())
}

// stalled reports whether a write to the machine's disk hangs now, or a slow
// write ended less than 5 s ago.
func (p *stallProbe) stalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.began.IsZero() && time.Since(p.began) > stalledFor ||
		!p.slow.IsZero() && time.Since(p.slow) < 5*time.Second
}

// pauseProbe measures for how long this machine did not run a goroutine that
// wanted to run, for example because the hypervisor paused the machine.
type pauseProbe struct {
	cancel  context.CancelFunc
	done    chan struct{}
	longest time.Duration // valid once done is closed
}

// pausedFor is the length of a pause from which on an election proves nothing:
// half of the default HeartbeatTimeout. A load that uses all processors delays
// the probe by some tens of milliseconds, because the kernel soon runs a thread
// that has slept.
const pausedFor = 250 * time.Millisecond

// probePauses starts a probe, which sleeps with the given function. Except in tests,
// that function is load.Sleep. The caller must call stop.
func probePauses(ctx context.Context, sleep func(context.Context, time.Duration) bool) *pauseProbe {
	p := &pauseProbe{done: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		const every = 5 * time.Millisecond
		for last := time.Now(); sleep(ctx, every); {
			now := time.Now()
			p.longest = max(p.longest, now.Sub(last)-every)
			last = now
		}
	}()
	return p
}

// stop ends the probe and returns the longest pause.
func (p *pauseProbe) stop() time.Duration {
	p.cancel()
	<-p.done
	return p.longest
}
