package main

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// maxHTTPConns is how many connections the HTTP port has open at a time.
const maxHTTPConns = 256

// httpConns bounds the open connections of an HTTP server, whose ConnState hook
// is its state method. A connection beyond the bound takes the place of the one
// that has been idle, or without a request, for the longest time; if all are
// being served, it is closed.
type httpConns struct {
	most int

	mu   sync.Mutex
	open int
	idle list.List // of net.Conn, the longest idle first
	busy list.List // of those that are being served, the longest first
	at   map[net.Conn]httpPlace
}

// httpPlace is where a connection stands.
type httpPlace struct {
	list *list.List
	e    *list.Element
}

// state implements http.Server.ConnState.
func (h *httpConns) state(c net.Conn, s http.ConnState) {
	if victim := h.note(c, s); victim != nil {
		victim.Close() // the server notices, and reports it as closed
	}
}

func (h *httpConns) note(c net.Conn, s http.ConnState) (victim net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = make(map[net.Conn]httpPlace)
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

// oldest takes out the connection that has to go. h.mu is held.
func (h *httpConns) oldest() net.Conn {
	from := &h.idle
	if from.Len() == 0 {
		from = &h.busy
	}
	if from.Len() == 0 {
		return nil // all are being closed already
	}
	victim := from.Front().Value.(net.Conn)
	h.move(victim, nil)
	return victim
}

// move puts a connection at the end of a list, or takes it out if that is nil. h.mu
// is held.
func (h *httpConns) move(c net.Conn, to *list.List) {
	if p, ok := h.at[c]; ok {
		p.list.Remove(p.e)
		delete(h.at, c)
	}
	if to != nil {
		h.at[c] = httpPlace{to, to.PushBack(c)}
	}
}
