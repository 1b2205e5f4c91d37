package resp

import (
	"net"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/resp/guard"
)

// hooks returns hooks that count and log what the guard refuses.
func (s *Server) hooks() guard.Hooks {
	return guard.Hooks{
		ProtocolError: func(g *guard.Conn, reason string) {
			s.refusal("protocol", "protocol error", "addr", g.RemoteAddr(), "reason", reason)
		},
		CrossProtocol: func(g *guard.Conn) {
			s.refusal("http", "client sent HTTP: a web page may be attacking this port through a browser",
				"addr", g.RemoteAddr())
		},
		Timeout: func(g *guard.Conn, kind string) {
			s.refusal(strings.ReplaceAll(kind, " ", "_")+"_timeout", "client missed a deadline",
				"addr", g.RemoteAddr(), "kind", kind)
		},
		Refused: func(addr net.Addr, unauth bool) {
			s.metrics.refused.Add(1)
			reason := "max_clients"
			if unauth {
				reason = "max_unauthenticated"
			}
			s.refusal(reason, "connection refused or closed because of a limit", "addr", addr, "limit", reason)
		},
		AcceptError: func(err error, pause time.Duration) {
			s.refusal("accept", "cannot accept a connection", "error", err, "pause", pause)
		},
	}
}

// refusal counts and logs an event that any client can cause as often as it
// wants.
func (s *Server) refusal(reason, message string, pairs ...any) {
	s.metrics.Refused.WithLabelValues(reason).Inc()
	s.warn(reason, message, pairs...)
}

// warn logs at most one line per second for each reason. The line says how many
// were suppressed before it.
func (s *Server) warn(reason, message string, pairs ...any) {
	if left, ok := s.quiet.allow(reason, time.Now()); ok {
		s.log.Warn(message, append(pairs, "suppressed", left)...)
	}
}

// quietTime is the minimum time between two log lines for the same reason.
const quietTime = time.Second

// quiet stores when a line was last logged, by reason. There is a fixed number
// of reasons. It is safe for concurrent use.
type quiet struct {
	mu   sync.Mutex
	last map[string]time.Time
	left map[string]int
}

// allow reports whether a line may be logged now, and how many lines have been
// suppressed since the last one.
func (q *quiet) allow(reason string, now time.Time) (left int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == nil {
		q.last, q.left = make(map[string]time.Time), make(map[string]int)
	}
	if last, seen := q.last[reason]; seen && now.Sub(last) < quietTime {
		q.left[reason]++
		return 0, false
	}
	left = q.left[reason]
	q.last[reason], q.left[reason] = now, 0
	return left, true
}
