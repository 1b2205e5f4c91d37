package cluster

import "context"

// changeLock is held while a change of the members is checked and made, which
// may take seconds. It is a channel and not a sync.Mutex because of the
// simulator: its virtual time does not advance while a goroutine waits for a
// mutex, so the change that holds the lock would never end.
type changeLock chan struct{}

func newChangeLock() changeLock { return make(changeLock, 1) }

// lock acquires the lock. It returns errChanging if ctx ends first, because
// then another change of the members is still under way.
func (l changeLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errChanging
	}
}

func (l changeLock) unlock() { <-l }
