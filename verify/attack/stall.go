package attack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// stallProbe writes and syncs a small file beside the nodes' data, again and
// again, so that it is known how long the machine's own disk keeps everybody
// waiting. Its goroutine ends with ctx, once the write under way has ended.
type stallProbe struct {
	mu    sync.Mutex
	began time.Time // of the write under way
	slow  time.Time // end of the latest one that took longer than stalledFor
}

// stalledFor is for how long a write has to hang that none of this process'
// faults touches, for the disk to be the machine's matter: less than the 3 s that
// nodes wait, for the probe does not begin at the same moment.
const stalledFor = 1500 * time.Millisecond

func probeDisk(ctx context.Context, dir string) *stallProbe {
	p := &stallProbe{}
	go func() {
		for sleep(ctx, 250*time.Millisecond) {
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

// stalled reports whether the machine's disk hangs, or did so a moment ago.
func (p *stallProbe) stalled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.began.IsZero() && time.Since(p.began) > stalledFor || !p.slow.IsZero() && time.Since(p.slow) < 5*time.Second
}
