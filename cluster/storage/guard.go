package storage

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/go-hclog"
)

// guard keeps the first failure of the disk. From then on, every write returns
// that failure, whatever the disk answers later: after a failed fsync, a retry
// may succeed although the data is lost. Its methods are safe for concurrent
// use.
type guard struct {
	first atomic.Pointer[error]
	fatal func(error)
	log   hclog.Logger
	// opened is false while the stores are being opened. During that time, Open
	// returns the error of a full disk, and the process does not end. So the
	// node can wait for room.
	opened atomic.Bool
}

// err returns the first failure, or nil. It costs one atomic load.
func (g *guard) err() error {
	if p := g.first.Load(); p != nil {
		return *p
	}
	return nil
}

// fail records err if it is the first failure, and then calls fatal, except for
// a full disk while the stores are being opened. It returns err.
func (g *guard) fail(err error) error {
	if !g.first.CompareAndSwap(nil, &err) {
		return err
	}
	if !g.opened.Load() && errors.Is(err, syscall.ENOSPC) {
		return err
	}
	g.log.Error("storage failed", "error", err)
	g.fatal(err)
	return err
}

// open marks the stores as opened, and returns the first failure so far. The
// first failure is returned here, passed to fatal, or both.
func (g *guard) open() error {
	g.opened.Store(true)
	return g.err()
}
