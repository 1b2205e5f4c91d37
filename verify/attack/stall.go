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
