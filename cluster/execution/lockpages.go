package execution

import (
	"sync"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/locklist"
)

// lockPages stores the locks that calls of LOCK LIST have found. All reads of a
// node share it. It is safe for concurrent use.
type lockPages struct {
	mu    sync.Mutex
	pages locklist.Pages
}

// Find implements locklist.Keeper.
func (p *lockPages) Find(q locklist.Query, from fsm.Pos, now int64) ([]locklist.Lock, fsm.Pos, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages.Find(q, from, now)
}

// Put implements locklist.Keeper.
func (p *lockPages) Put(q locklist.Query, from, next fsm.Pos, locks []locklist.Lock, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pages.Put(q, from, next, locks, now)
}
