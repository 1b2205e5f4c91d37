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
	maxBrowserLogins = 64
	loginIdle        = 30 * time.Minute
	loginTotal       = 12 * time.Hour
)

// browserLogin contains the rights of a browser, from the login until the logout.
type browserLogin struct {
	id, csrf string
	conn     *connection // connection of the ACL user, nil if only the token was given
	token    string      // the token that was given, if conn is nil
	created  time.Time
	used     time.Time // guarded by browserLogins.mu
}

// user returns the name of the ACL user, or "".
func (s *browserLogin) user() string {
	if s == nil || s.conn == nil {
		return ""
	}
	return s.conn.user
}

// checks reports whether token is the CSRF token of the login. The forms of our
// pages contain this token. The pages of other sites do not know it.
func (s *browserLogin) checks(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.csrf)) == 1
}

// browserLogins contains the logins of the browsers that use a Dashboard. It is safe
// for concurrent use.
type browserLogins struct {
	mu     sync.Mutex
	all    map[string]*browserLogin
	closed bool
}

// random returns a text that cannot be guessed.
func random() string {
	var b [32]byte
	rand.Read(b[:]) // crypto/rand documents that Read never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// add makes a login. If there are too many, it ends the login that has not been
// used for the longest time. If conn is nil, the user has entered the token of the
// HTTP port, and token is that token.
func (s *browserLogins) add(conn *connection, token string, now time.Time) *browserLogin {
	n := &browserLogin{id: random(), csrf: random(), conn: conn, token: token, created: now, used: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]*browserLogin)
	}
	if len(s.all) >= maxBrowserLogins {
		var oldest *browserLogin
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

// find returns the login with an id, or nil. The call counts as a use of the
// login, so the idle time begins again.
func (s *browserLogins) find(id string, now time.Time) *browserLogin {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.all[id]
	if n == nil || n.over(now) {
		return nil
	}
	n.used = now
	return n
}

// over reports whether the login has ended. The caller holds browserLogins.mu.
func (s *browserLogin) over(now time.Time) bool {
	return now.Sub(s.used) > loginIdle || now.Sub(s.created) > loginTotal ||
		s.conn != nil && s.conn.broken.Load()
}

// end ends a login.
func (s *browserLogins) end(n *browserLogin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(n)
}

// remove ends a login, as the method end does. The caller holds s.mu.
func (s *browserLogins) remove(n *browserLogin) {
	delete(s.all, n.id)
	if n.conn != nil {
		n.conn.close()
	}
}

// expire ends the logins that are over.
func (s *browserLogins) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		if n.over(now) {
			s.remove(n)
		}
	}
}

func (s *browserLogins) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, n := range s.all {
		s.remove(n)
	}
}

// cookieName returns the name of the login's cookie. Browsers share the cookies
// of a host among its ports, so each node needs a name of its own.
func (d *Dashboard) cookieName() string {
	return "holdfast_" + base64.RawURLEncoding.EncodeToString([]byte(d.cfg.Node.ID()))
}

// setCookie makes the browser store the id of the login, or delete it if id is "".
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

// loginOf returns the login of a request, or nil.
func (d *Dashboard) loginOf(r *http.Request) *browserLogin {
	c, err := r.Cookie(d.cookieName())
	if err != nil {
		return nil
	}
	s := d.browserLogins.find(c.Value, time.Now())
	if s != nil && s.conn == nil && !d.cfg.Token.Matches(s.token) { // the token of the port was replaced
		d.browserLogins.end(s)
		return nil
	}
	return s
}
