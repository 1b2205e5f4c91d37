package dashboard

import (
	"sync"
	"time"
)

// Some answers need data of all nodes. These constants say for how long requests
// share such an answer. To collect an answer, this node opens a connection to every
// other node. So without sharing, a client that sends many requests could occupy
// the peer ports.
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

// get returns the answer. most is the maximum age of an answer: if the answer
// is older, get makes a new one with f. Requests that arrive meanwhile wait for
// the new answer.
func (s *shared[T]) get(most time.Duration, f func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= most {
		s.value = f()
		s.at = time.Now()
	}
	return s.value
}
