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
	at   map[net.Conn]*list.Element
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
		h.at = make(map[net.Conn]*list.Element)
	}
	switch s {
	case http.StateNew:
		if h.open++; h.open > h.most {
			if victim = c; h.idle.Len() > 0 {
				victim = h.idle.Front().Value.(net.Conn)
				h.busy(victim)
			}
		}
		if victim != c {
			h.at[c] = h.idle.PushBack(c)
		}
	case http.StateIdle:
		if h.at[c] == nil {
			h.at[c] = h.idle.PushBack(c)
		}
	case http.StateActive:
		h.busy(c)
	case http.StateClosed, http.StateHijacked:
		h.busy(c)
		h.open--
	}
	return victim
}

// busy takes a connection out of the idle ones. h.mu is held.
func (h *httpConns) busy(c net.Conn) {
	if e := h.at[c]; e != nil {
		h.idle.Remove(e)
		delete(h.at, c)
	}
}
