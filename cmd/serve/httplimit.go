package serve

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// httpConns bounds the open connections of an HTTP server. The server calls the
// method state as its ConnState hook. At the bound, a new connection replaces the
// connection that has been idle for the longest time. A connection on which no
// request has arrived yet counts as idle. If no connection is idle, the new one
// replaces the connection that has been busy for the longest time.
type httpConns struct {
	most int // maximum number of open connections

	mu   sync.Mutex
	open int
	idle list.List // elements of type net.Conn, the longest idle first
	busy list.List // elements of type net.Conn, the longest busy first
	at   map[net.Conn]httpPosition
}

// httpPosition is a connection's element in one of the two lists.
type httpPosition struct {
	list *list.List
	e    *list.Element
}

// state implements http.Server.ConnState.
func (h *httpConns) state(c net.Conn, s http.ConnState) {
	if victim := h.note(c, s); victim != nil {
		victim.Close() // the server notices, and reports the connection as closed
	}
}

func (h *httpConns) note(c net.Conn, s http.ConnState) (victim net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = make(map[net.Conn]httpPosition)
	}
	switch s {
	case http.StateNew:
		if h.open++; h.open > h.most {
			victim = h.oldest()
		}
		h.move(c, &h.idle)
	case http.StateIdle:
		h.move(c, &h.idle)
	case http.StateActive:
		h.move(c, &h.busy)
	case http.StateClosed, http.StateHijacked:
		h.move(c, nil)
		h.open--
	}
	return victim
}

// oldest removes the connection that is to be closed from its list and returns
// it. The caller holds h.mu.
func (h *httpConns) oldest() net.Conn {
	from := &h.idle
	if from.Len() == 0 {
		from = &h.busy
	}
	if from.Len() == 0 {
		return nil // all connections are being closed already
	}
	victim := from.Front().Value.(net.Conn)
	h.move(victim, nil)
	return victim
}

// move removes a connection from its list and, unless the argument to is nil,
// puts it at the end of the list to. The caller holds h.mu.
func (h *httpConns) move(c net.Conn, to *list.List) {
	if p, ok := h.at[c]; ok {
		p.list.Remove(p.e)
		delete(h.at, c)
	}
	if to != nil {
		h.at[c] = httpPosition{to, to.PushBack(c)}
	}
}
