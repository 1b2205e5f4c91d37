package recipes

import (
	"fmt"
	"sync"
)

// region is what a lock protects: it notices when two are in it at once.
type region struct {
	mu      sync.Mutex
	inside  map[string]bool // by name: true for who wants to be alone
	entered int
	by      map[string]int
}

// enter notes that who is inside, alone or, if shared, with others that share.
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

// count returns how often the region was entered.
func (r *region) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entered
}
