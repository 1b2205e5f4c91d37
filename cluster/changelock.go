package cluster

// changeLock is held while a change of the members is checked and made, which may
// take seconds. It is a channel and not a sync.Mutex because the virtual time of the
// simulator stands still while a goroutine waits for a mutex, and so would the
// change that it waits for.
type changeLock chan struct{}

func newChangeLock() changeLock { return make(changeLock, 1) }

func (l changeLock) Lock() { l <- struct{}{} }

func (l changeLock) Unlock() { <-l }
