package dashboard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
)

// Errors that a request gets if it lacks rights. A browser shows their texts to the
// user.
var (
	errToken = errors.New("this port needs its token (--http-token-file), or a login")
	errLogin = errors.New("log in as a user of the cluster with read permission to see this")
	// The ACL user accepts any password, so a login gives no more rights than no
	// login.
	errAnyPassword = errors.New("the cluster accepts any password for this user, so logging in proves nothing: " +
		"give the user a password, or use the token of this port (--http-token-file)")
	errCerts = errors.New("the client port admits only clients with a certificate, so the dashboard shows no data")
)

// mayRead returns nil if a request may read the state of the cluster: it has the
// token, the port needs no token, it comes from a browser that has logged in, or
// its Authorization header names an ACL user with the right password.
func (d *Dashboard) mayRead(r *http.Request) error {
	if d.cfg.Token.Admits(r) || d.loginOf(r) != nil {
		return nil
	}
	if user, password, ok := r.BasicAuth(); ok {
		c, err := d.loginAs(r, user, password)
		if err == nil {
			c.close()
		}
		return err
	}
	return errToken
}

// read calls f with a connection that has the rights of a request. They are the
// rights of its login, or of the ACL user in its Authorization header. Without
// either, they are the rights of a client without a password.
func (d *Dashboard) read(r *http.Request, f func(context.Context, *connection) error) error {
	if d.cfg.Certificates {
		return errCerts
	}
	s := d.loginOf(r)
	if s != nil && s.conn != nil {
		return f(r.Context(), s.conn)
	}
	if user, password, ok := r.BasicAuth(); ok {
		c, err := d.loginAs(r, user, password)
		if err != nil {
			return err
		}
		defer c.close()
		return f(r.Context(), c)
	}
	if s == nil && !d.cfg.Token.Admits(r) {
		return errToken
	}
	if !d.cfg.Token.Needed() && !d.local(r) {
		return errLogin
	}
	// Each request gets a new connection. An older connection could still have
	// rights that clients without a password have lost since it was opened.
	c := d.dial(remoteAddr(r))
	defer c.close()
	return f(r.Context(), c)
}

// localHost reports whether a Host header names this machine. Without this check,
// a page of another site could read data, because the name of that site may
// resolve to a loopback address.
func localHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// loginAs opens a connection and authenticates it. After wrong passwords, the
// client port delays and refuses logins from the address of the request.
func (d *Dashboard) loginAs(r *http.Request, user, password string) (*connection, error) {
	if d.cfg.Certificates {
		return nil, errCerts
	}
	place, err := d.logins.take(r, 1)
	if err != nil {
		return nil, err
	}
	defer place.release()
	c := d.dial(remoteAddr(r))
	if err := c.login(r.Context(), user, password); err != nil {
		c.close()
		return nil, err
	}
	if d.cfg.AnyPassword(user) && !d.trusts(r) {
		c.close()
		return nil, errAnyPassword
	}
	return c, nil
}

// trusts reports whether a request may read data without a login as an ACL user.
// If the port needs a token, the request or its login must have the token.
// Otherwise, the request must come from a browser on this machine.
func (d *Dashboard) trusts(r *http.Request) bool {
	if d.cfg.Token.Needed() {
		s := d.loginOf(r)
		return d.cfg.Token.Admits(r) || s != nil && s.conn == nil
	}
	return d.local(r)
}

// local reports whether a request comes from a browser on this machine. A request
// with a header that proxies add does not count, because its sender may be
// elsewhere.
func (d *Dashboard) local(r *http.Request) bool {
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	return d.cfg.Local && localHost(r.Host)
}

// remoteAddr returns the address of the sender of a request.
func remoteAddr(r *http.Request) net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", r.RemoteAddr) // an IP address: no name is resolved
	if err != nil {
		return &net.TCPAddr{}
	}
	return addr
}
