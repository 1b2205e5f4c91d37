package dashboard

import (
	"sync"
	"time"
)

// These are the times for which requests share an answer that this node must collect
// from all nodes. To collect it, the node opens a connection to every other node. So
// without sharing, a client that sends many requests could occupy the peer ports.
const (
	statusShare  = 250 * time.Millisecond
	trafficShare = time.Second
)

// shared is an answer that requests share. It is safe for concurrent use.
type shared[T any] struct {
	mu    sync.Mutex
	at    time.Time // when value was made
	value T
}

// get returns the answer, and makes a new one with f if it is older than the given
// time. Requests that arrive meanwhile wait for it.
func (s *shared[T]) get(most time.Duration, f func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= most {
		s.value = f()
		s.at = time.Now()
	}
	return s.value
}
