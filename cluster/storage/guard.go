package storage

import (
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// guard keeps the first failure of the disk. From then on every write returns
// that failure, whatever the disk answers later: after a failed fsync a retry
// may succeed although the data is lost. Its methods are safe for concurrent
// use.
type guard struct {
	first atomic.Pointer[error]
	fatal func(error)
	log   hclog.Logger
}

// err returns the first failure, or nil. It costs one atomic load.
func (g *guard) err() error {
	if p := g.first.Load(); p != nil {
		return *p
	}
	return nil
}

// fail records err if it is the first failure, and then calls fatal. It returns
// err.
func (g *guard) fail(err error) error {
	if g.first.CompareAndSwap(nil, &err) {
		g.log.Error("storage failed", "error", err)
		g.fatal(err)
	}
	return err
}
