package storage

import (
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// guard keeps the first failure of the disk. From then on every write is
// answered with it, whatever the disk says later, because after a failed
// fsync a retry may succeed although the data is gone.
type guard struct {
	first atomic.Pointer[error]
	fatal func(error)
	log   hclog.Logger
}

// err returns the failure, or nil. It is cheap and safe for concurrent use.
func (g *guard) err() error {
	if p := g.first.Load(); p != nil {
		return *p
	}
	return nil
}

// fail keeps err if it is the first and tells the owner of the process. It
// returns err.
func (g *guard) fail(err error) error {
	if g.first.CompareAndSwap(nil, &err) {
		g.log.Error("storage failed", "error", err)
		g.fatal(err)
	}
	return err
}
