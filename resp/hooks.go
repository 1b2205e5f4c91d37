package resp

import (
	"net"
	"strings"
	"sync"
	"time"
)

// hooks counts what the guard refuses, and logs it.
func (s *Server) hooks() GuardHooks {
	return GuardHooks{
		ProtocolError: func(g *Guard, reason string) {
			s.refusal("protocol", "client sent a bad frame", "addr", g.RemoteAddr(), "reason", reason)
		},
		CrossProtocol: func(g *Guard) {
			s.refusal("http", "client sent HTTP: a browser may have been made to attack this port", "addr", g.RemoteAddr())
		},
		Timeout: func(g *Guard, kind string) {
			s.refusal(strings.ReplaceAll(kind, " ", "_")+"_timeout", "client missed a deadline", "addr", g.RemoteAddr(), "kind", kind)
		},
		Refused: func(addr net.Addr, unauth bool) {
			s.metrics.refused.Add(1)
			reason := "max_clients"
			if unauth {
				reason = "max_unauthenticated"
			}
			s.refusal(reason, "client turned away", "addr", addr, "limit", reason)
		},
		AcceptError: func(err error, pause time.Duration) {
			s.refusal("accept", "cannot accept a client", "error", err, "pause", pause)
		},
	}
}

// refusal counts and logs something that a stranger can bring about as often as
// he likes.
func (s *Server) refusal(reason, message string, pairs ...any) {
	s.metrics.Refused.WithLabelValues(reason).Inc()
	s.warn(reason, message, pairs...)
}

// warn logs at most one line a second for each reason, and says how many were
// left out.
func (s *Server) warn(reason, message string, pairs ...any) {
	if left, ok := s.quiet.allow(reason, time.Now()); ok {
		s.log.Warn(message, append(pairs, "suppressed", left)...)
	}
}

// quietTime is the shortest time between two log lines of one reason.
const quietTime = time.Second

// quiet remembers when a line was logged last, by reason. The reasons are a
// fixed few.
type quiet struct {
	mu   sync.Mutex
	last map[string]time.Time
	left map[string]int
}

// allow reports whether a line may be logged now, and how many were not since
// the last.
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
