package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/dashboard/traffic"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// fakeNode is the only node of a cluster.
type fakeNode struct{}

func (fakeNode) ID() string                                        { return "n1" }
func (fakeNode) Status() health.NodeStatus                         { return health.NodeStatus{ID: "n1"} }
func (fakeNode) PeerHealth() []health.PeerHealth                   { return nil }
func (fakeNode) Leader() (string, bool)                            { return "n1", true }
func (fakeNode) Watch() (<-chan struct{}, func())                  { return nil, func() {} }
func (fakeNode) SetReporter(func(string) ([]byte, error))          {}
func (fakeNode) Reports(context.Context, string) map[string][]byte { return nil }
func (fakeNode) ClusterStatus(context.Context) []health.NodeStatus {
	return []health.NodeStatus{{ID: "n1", Role: "leader", Voter: true, Reachable: true}}
}

// fakeToken is the token of the port, "" for none.
type fakeToken string

func (t fakeToken) Needed() bool { return t != "" }
func (t fakeToken) Admits(r *http.Request) bool {
	return t == "" || r.Header.Get("Authorization") == "Bearer "+string(t)
}
func (t fakeToken) Matches(text string) bool { return t != "" && text == string(t) }

// port is a client port with the user ann and the password secret. open is set if
// clients need no password.
type port struct{ open bool }

func (p port) dial(_ context.Context, _ net.Addr) (net.Conn, error) {
	server, client := net.Pipe()
	go p.serve(server)
	return client, nil
}

// serve answers commands until the pipe is closed.
func (p port) serve(c net.Conn) {
	defer c.Close()
	r, in := bufio.NewReader(c), p.open
	for {
		command, err := respwire.Read(r)
		if err != nil {
			return
		}
		args := command.Texts()
		answer := "-ERR unknown command\r\n"
		switch word := strings.ToUpper(args[0]); {
		case word == "AUTH" && (p.open || args[1] == "ann" && args[2] == "secret"):
			in, answer = true, "+OK\r\n"
		case word == "AUTH":
			answer = "-WRONGPASS wrong\r\n"
		case !in:
			answer = "-NOAUTH Authentication required.\r\n"
		case word == "HELLO":
			answer = "%1\r\n$5\r\nproto\r\n:3\r\n"
		case word == "ACL", word == "SLOWLOG", word == "LOCK", word == "CLIENT":
			answer = "*0\r\n"
		case word == "SCAN":
			answer = "*2\r\n$1\r\n0\r\n*0\r\n"
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// open starts a dashboard.
func open(t *testing.T, p port, change func(*Config)) (d *Dashboard, server *httptest.Server) {
	t.Helper()
	cfg := Config{
		Node: fakeNode{}, Token: fakeToken(""), Metrics: prometheus.NewRegistry(), Dial: p.dial, Local: true,
		AnyPassword: func(string) bool { return p.open }, Permits: func(string, ...string) bool { return true },
		ClientList: func() string { return "" }, SlowLog: func(int) []SlowCommand { return nil },
		Kind: func(string) traffic.Kind { return traffic.Other }, Events: &Events{}, Log: hclog.NewNullLogger(),
	}
	change(&cfg)
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server = httptest.NewServer(d.Handler())
	t.Cleanup(func() {
		server.Close()
		d.Close()
	})
	return d, server
}

// TestAccess checks which requests may see the state of the cluster, and which may
// see data.
func TestAccess(t *testing.T) {
	basic := func(password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth("ann", password) }
	}
	token := func(r *http.Request) { r.Header.Set("Authorization", "Bearer a token") }
	none := func(*http.Request) {}
	withToken := func(c *Config) { c.Token = fakeToken("a token") }
	for _, c := range []struct {
		name         string
		port         port
		change       func(*Config)
		request      func(*http.Request)
		status, data int
	}{
		{"no password, loopback", port{open: true}, func(*Config) {}, none, 200, 200},
		{"no password, loopback, name of another host", port{open: true}, func(*Config) {},
			func(r *http.Request) { r.Host = "attacker.example" }, 200, 401},
		{"no password, open port", port{open: true}, func(c *Config) { c.Local = false }, none, 200, 401},
		{"no password, client certificates", port{open: true}, func(c *Config) { c.Certificates = true }, none, 200, 403},
		{"no password, token not sent", port{open: true}, withToken, none, 401, 401},
		{"no password, token sent", port{open: true}, withToken, token, 200, 200},
		{"no password, loopback, through a proxy", port{open: true}, func(*Config) {},
			func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") }, 200, 401},
		{"no password, page of another site", port{open: true}, func(*Config) {},
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, 403},
		{"no password, loopback, made-up password", port{open: true}, func(*Config) {}, basic("made up"), 200, 200},
		{"no password, made-up password, name of another host", port{open: true}, func(*Config) {},
			func(r *http.Request) { r.Host = "attacker.example"; basic("made up")(r) }, 200, 401},
		{"no password, open port, made-up password", port{open: true}, func(c *Config) { c.Local = false },
			basic("made up"), 200, 401},
		{"no password, token not sent, made-up password", port{open: true}, withToken, basic("made up"), 401, 401},
		{"password, loopback", port{}, func(*Config) {}, none, 200, 401},
		{"password, token sent", port{}, withToken, token, 200, 401},
		{"password, login", port{}, func(*Config) {}, basic("secret"), 200, 200},
		{"password, wrong login", port{}, func(*Config) {}, basic("guess"), 200, 401},
		{"password and token, login", port{}, withToken, basic("secret"), 200, 200},
		{"password and token, wrong login", port{}, withToken, basic("guess"), 401, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, server := open(t, c.port, c.change)
			for path, want := range map[string]int{"/api/v1/status": c.status, "/api/v1/keys": c.data} {
				req, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				c.request(req)
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != want || !json.Valid(body) {
					t.Errorf("%s: %d %s %v, want %d", path, res.StatusCode, body, err, want)
				}
			}
		})
	}
}

// TestLogin checks what a browser may do from the login to the logout.
func TestLogin(t *testing.T) {
	d, server := open(t, port{}, func(*Config) {})
	var cookie *http.Cookie
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	send := func(path string, form url.Values, headers ...string) (*http.Response, string) {
		t.Helper()
		method := http.MethodGet
		if form != nil {
			method = http.MethodPost
		}
		req, err := http.NewRequest(method, server.URL+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		if cookie != nil {
			req.AddCookie(cookie)
		}
		res, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(body)
	}
	login := url.Values{"user": {"ann"}, "password": {"guess"}, "next": {"//attacker.example"}}
	if res, body := send("/login", login); res.StatusCode != 401 || !strings.Contains(body, "wrong user or password") {
		t.Errorf("login with a wrong password: %d %s", res.StatusCode, body)
	}
	login.Set("password", "secret")
	if res, _ := send("/login", login, "Sec-Fetch-Site", "cross-site"); res.StatusCode != 403 {
		t.Errorf("login from another site: %d", res.StatusCode)
	}
	res, _ := send("/login", login)
	if res.StatusCode != 303 || res.Header.Get("Location") != "/" || len(res.Cookies()) != 1 {
		t.Fatalf("login: %d, to %q, cookies %v", res.StatusCode, res.Header.Get("Location"), res.Cookies())
	}
	cookie = res.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie %v is not protected", cookie)
	}
	if res, body := send("/api/v1/keys", nil); res.StatusCode != 200 {
		t.Errorf("keys after the login: %d %s", res.StatusCode, body)
	}
	for _, form := range []url.Values{{"csrf": {""}}, {"csrf": {"guess"}}} {
		if res, _ := send("/logout", form); res.StatusCode != 403 {
			t.Errorf("logout with the form %v: %d", form, res.StatusCode)
		}
		form.Set("key", "k")
		form.Set("grant", "1")
		if res, _ := send("/locks/break", form); res.StatusCode != 403 {
			t.Errorf("break with the form %v: %d", form, res.StatusCode)
		}
	}
	csrf := d.browserLogins.find(cookie.Value, time.Now()).csrf
	if res, _ := send("/logout", url.Values{"csrf": {csrf}}); res.StatusCode != 303 {
		t.Errorf("logout: %d", res.StatusCode)
	}
	if res, _ := send("/api/v1/keys", nil); res.StatusCode != 401 {
		t.Errorf("keys after the logout: %d", res.StatusCode)
	}
}

// TestBrowserLogins_End checks that a login ends, and its connection is closed, when
// the login has not been used for loginIdle. It also checks that a login ends when
// it is older than loginTotal, and that the number of logins is bounded.
func TestBrowserLogins_End(t *testing.T) {
	d, _ := open(t, port{open: true}, func(*Config) {})
	now := time.Now()
	var s browserLogins
	n := s.add(d.dial(&net.TCPAddr{}), "", now)
	if s.find(n.id, now.Add(loginIdle)) == nil {
		t.Fatal("the login has ended too early")
	}
	if s.find(n.id, now.Add(2*loginIdle+1)) != nil {
		t.Error("a login that was not used has not ended")
	}
	s.expire(now.Add(2*loginIdle + 1))
	if !n.conn.broken.Load() || len(s.all) != 0 {
		t.Error("the connection of a login that has ended is open")
	}
	n = s.add(nil, "", now)
	for used := now; used.Sub(now) < loginTotal; used = used.Add(loginIdle) {
		s.find(n.id, used)
	}
	if s.find(n.id, now.Add(loginTotal+1)) != nil {
		t.Error("an old login has not ended")
	}
	for range maxBrowserLogins + 5 {
		s.add(nil, "", now)
	}
	if len(s.all) > maxBrowserLogins {
		t.Errorf("%d logins, at most %d are allowed", len(s.all), maxBrowserLogins)
	}
}

func TestNextPage_IsOfThisNode(t *testing.T) {
	for next, want := range map[string]string{
		"/locks?match=a": "/locks?match=a", "": "/", "//host": "/", "https://host/": "/", `/\host`: "/", "locks": "/",
	} {
		r := httptest.NewRequest(http.MethodGet, "/login?next="+url.QueryEscape(next), nil)
		if got := nextPage(r); got != want {
			t.Errorf("next %q: %q, want %q", next, got, want)
		}
	}
}
