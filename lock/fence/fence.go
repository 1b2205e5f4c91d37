// Package fence protects a resource from a former owner of its lock. Such an
// owner may have been paused, and may not know yet that its lease has ended.
// Each grant of a lock has a fencing token that is higher than all earlier
// tokens. The owner sends the token with each request, and the resource refuses
// a token that is lower than the highest token that it has received.
//
// Handler performs this check for an HTTP service. A database checks the token in
// the statement that writes: see docs/recipes/fencing.md.
package fence

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// Header is the HTTP header with the fencing token of a request.
const Header = "Lock-Token"

// Handler calls next for each request whose token is not lower than the token
// of any earlier request for the same resource. The function resource returns
// the name of the resource that a request changes, usually a part of the path.
// Each resource has its own highest token.
//
// A request without a valid token gets 428 (Precondition Required), and a request
// with an old token gets 412 (Precondition Failed). The requests of one resource
// run one after another. Otherwise, a request with an old token could still be
// running when a request with a new token begins.
//
// Handler keeps the tokens in memory only. A service that keeps its data across a
// restart must store the highest token with the data, in the same transaction.
func Handler(next http.Handler, resource func(*http.Request) string) http.Handler {
	return &handler{next: next, resource: resource, seen: make(map[string]*highest)}
}

type handler struct {
	next     http.Handler
	resource func(*http.Request) string

	mu   sync.Mutex
	seen map[string]*highest // guarded by mu
}

// highest contains the highest token of a resource. Its mutex is locked while a
// request runs.
type highest struct {
	mu    sync.Mutex
	token int64
}

func (h *handler) of(resource string) *highest {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.seen[resource]
	if s == nil {
		s = &highest{}
		h.seen[resource] = s
	}
	return s
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := strconv.ParseInt(r.Header.Get(Header), 10, 64)
	if err != nil || token <= 0 {
		http.Error(w, "the header "+Header+" must contain the fencing token of the lock",
			http.StatusPreconditionRequired)
		return
	}
	s := h.of(h.resource(r))
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		http.Error(w, fmt.Sprintf("the fencing token %d is too old: the highest token so far is %d", token, s.token),
			http.StatusPreconditionFailed)
		return
	}
	s.token = token
	h.next.ServeHTTP(w, r)
}
