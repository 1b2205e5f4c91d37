package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"sync"
	"time"
)

const (
	maxSessions  = 64
	sessionIdle  = 30 * time.Minute
	sessionTotal = 12 * time.Hour
)

// session is what a browser may do after a login, until it logs out.
type session struct {
	id, csrf string
	conn     *connection // connection of the ACL user, nil if only the token was given
	token    string      // the token that was given, if conn is nil
	created  time.Time
	used     time.Time // guarded by sessions.mu
}

// user returns the name of the ACL user, or "".
func (s *session) user() string {
	if s == nil || s.conn == nil {
		return ""
	}
	return s.conn.user
}

// checks reports whether a text is the token of the session against cross-site
// requests.
func (s *session) checks(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.csrf)) == 1
}

// sessions are the sessions of a Dashboard. It is safe for concurrent use.
type sessions struct {
	mu     sync.Mutex
	all    map[string]*session
	closed bool
}

// random returns a text that cannot be guessed.
func random() string {
	var b [32]byte
	rand.Read(b[:]) // crypto/rand documents that Read never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// add makes a session. If there are too many, it ends the one that has not been
// used for the longest time. token is the token that was given if conn is nil.
func (s *sessions) add(conn *connection, token string, now time.Time) *session {
	n := &session{id: random(), csrf: random(), conn: conn, token: token, created: now, used: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]*session)
	}
	if len(s.all) >= maxSessions {
		var oldest *session
		for _, o := range s.all {
			if oldest == nil || o.used.Before(oldest.used) {
				oldest = o
			}
		}
		s.remove(oldest)
	}
	if s.closed {
		if conn != nil {
			conn.close()
		}
		return n
	}
	s.all[n.id] = n
	return n
}

// find returns the session with an id, or nil. The use extends the session.
func (s *sessions) find(id string, now time.Time) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.all[id]
	if n == nil || n.over(now) {
		return nil
	}
	n.used = now
	return n
}

// over reports whether the session has ended. The caller holds the lock.
func (s *session) over(now time.Time) bool {
	return now.Sub(s.used) > sessionIdle || now.Sub(s.created) > sessionTotal ||
		s.conn != nil && s.conn.broken.Load()
}

// end ends a session.
func (s *sessions) end(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(n)
}

// remove is end for a caller that holds the lock.
func (s *sessions) remove(n *session) {
	delete(s.all, n.id)
	if n.conn != nil {
		n.conn.close()
	}
}

// expire ends the sessions that are over.
func (s *sessions) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		if n.over(now) {
			s.remove(n)
		}
	}
}

func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, n := range s.all {
		s.remove(n)
	}
}

// cookieName returns the name of the session's cookie. Browsers share the cookies
// of a host among its ports, so each node needs a name of its own.
func (d *Dashboard) cookieName() string {
	return "holdfast_" + base64.RawURLEncoding.EncodeToString([]byte(d.cfg.Node.ID()))
}

// setCookie gives the session to the browser, or takes it back if id is "".
func (d *Dashboard) setCookie(w http.ResponseWriter, id string) {
	c := &http.Cookie{
		Name: d.cookieName(), Value: id, Path: "/", HttpOnly: true, Secure: d.cfg.Secure,
		SameSite: http.SameSiteStrictMode,
	}
	if id == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// sessionOf returns the session of a request, or nil.
func (d *Dashboard) sessionOf(r *http.Request) *session {
	c, err := r.Cookie(d.cookieName())
	if err != nil {
		return nil
	}
	s := d.sessions.find(c.Value, time.Now())
	if s != nil && s.conn == nil && !d.cfg.Token.Matches(s.token) { // the token of the port was replaced
		d.sessions.end(s)
		return nil
	}
	return s
}

// limiter is a token bucket. It is safe for concurrent use.
type limiter struct {
	burst int
	every time.Duration // time after which one more is allowed

	mu   sync.Mutex
	free time.Time // when the bucket is full again
}

// allow reports whether one more is allowed now.
func (l *limiter) allow(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(now) {
		l.free = now
	}
	if l.free.Sub(now) > time.Duration(l.burst-1)*l.every {
		return false
	}
	l.free = l.free.Add(l.every)
	return true
}
