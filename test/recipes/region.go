package recipes

import (
	"fmt"
	"sync"
)

// region is a resource that a lock protects. It detects clients that are inside
// at the same time although one of them must be alone.
type region struct {
	mu      sync.Mutex
	inside  map[string]bool // by client: true if the client must be alone
	entered int
	by      map[string]int
}

// enter records that a client is inside: alone or, if shared is true, together
// with others that share. It returns an error if another client is inside, unless
// both clients share.
func (r *region) enter(who string, shared bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside == nil {
		r.inside, r.by = make(map[string]bool), make(map[string]int)
	}
	for other, alone := range r.inside {
		if alone || !shared {
			return fmt.Errorf("%s entered while %s was inside", who, other)
		}
	}
	r.inside[who] = !shared
	r.entered++
	r.by[who]++
	return nil
}

func (r *region) leave(who string) {
	r.mu.Lock()
	delete(r.inside, who)
	r.mu.Unlock()
}

// count returns how often clients have entered, all clients together.
func (r *region) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entered
}
