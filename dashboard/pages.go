package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/lock/listing"
)

// pages are the parsed templates and the version of the static files.
type pages struct {
	templates map[string]*template.Template
	// version is part of the addresses of the static files, so that browsers may
	// keep the files.
	version string
}

// tab is an entry of the navigation.
type tab struct{ Path, Title string }

var tabs = []tab{
	{"/", "Overview"}, {"/traffic", "Traffic"}, {"/locks", "Locks"}, {"/keys", "Keys"}, {"/clients", "Clients"},
	{"/events", "Events"},
}

// view contains the data for a template.
type view struct {
	Title, Path, Version, Node string
	Here                       string // path and query
	Tabs                       []tab
	User                       string // user of the login, "" without one
	LoggedIn                   bool
	CSRF                       string
	NeedsToken, Certificates   bool
	Error                      string
	Next                       string // page after a login
	Lock                       listing.Lock
	Key                        string
	Owners                     []string
	KeyBase64, DB              string
	Tokens                     []int64
}

// In reports whether the page is below the page with the given path. For instance,
// the page of a lock is below the list of locks.
func (v view) In(path string) bool { return path != "/" && strings.HasPrefix(v.Path, path+"/") }

func parsePages() (pages, error) {
	p := pages{templates: make(map[string]*template.Template)}
	for _, name := range []string{
		"overview", "traffic", "locks", "lock", "break", "keys", "clients", "events", "login",
	} {
		t, err := template.New("").Funcs(template.FuncMap{"shown": shown}).
			ParseFS(files, "templates/layout.html", "templates/"+name+".html")
		if err != nil {
			return p, err
		}
		p.templates[name] = t
	}
	sum := sha256.New()
	err := fs.WalkDir(files, "static", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n", path, len(text))
		sum.Write(text)
		return err
	})
	p.version = hex.EncodeToString(sum.Sum(nil)[:8])
	return p, err
}

// Handler returns the handler of the pages, of the static files and of the API.
func (d *Dashboard) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, page := range []struct{ path, name, title string }{
		{"/{$}", "overview", "Overview"}, {"/traffic", "traffic", "Traffic"}, {"/locks", "locks", "Locks"},
		{"/locks/lock", "lock", "Lock"}, {"/keys", "keys", "Keys"}, {"/clients", "clients", "Clients"},
		{"/events", "events", "Events"},
	} {
		mux.HandleFunc("GET "+page.path, func(w http.ResponseWriter, r *http.Request) {
			if err := d.mayRead(r); err != nil {
				d.toLogin(w, r)
				return
			}
			v := view{Title: page.title}
			if key, err := keyOf(r); page.name == "lock" && err == nil {
				v.Title += " " + beginning(shown(key))
			}
			d.render(w, r, http.StatusOK, page.name, v)
		})
	}
	mux.HandleFunc("GET /locks/break", d.budgeted(d.showBreak))
	mux.HandleFunc("POST /locks/break", d.budgeted(d.doBreak))
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		d.render(w, r, http.StatusOK, "login", view{Title: "Log in", Next: nextPage(r)})
	})
	mux.HandleFunc("POST /login", d.doLogin)
	mux.HandleFunc("POST /logout", d.doLogout)
	mux.HandleFunc("GET /static/{version}/{file...}", d.serveStatic)
	d.api(mux)
	return http.NewCrossOriginProtection().Handler(d.secured(mux))
}

// policy permits only the files of the node itself, and no inline scripts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secured adds headers that make browsers protect the user against other sites.
func (d *Dashboard) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); strings.HasPrefix(r.URL.Path, "/api/") &&
			(site == "cross-site" || site == "same-site") { // the other site could not read an answer anyway
			d.writeJSON(w, http.StatusForbidden, apiError{Error: "the API does not answer pages of other sites"}, nil)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		next.ServeHTTP(w, r)
	})
}

// serveStatic serves a static file.
func (d *Dashboard) serveStatic(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("version") == d.pages.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, files, "static/"+r.PathValue("file"))
}

// budgeted makes a page with data count toward maxAnswers until it is sent.
func (d *Dashboard) budgeted(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		room, err := d.answers.take(r, replyBytes)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer room.release()
		page(w, r)
	}
}

// shown returns a text in which control characters, and characters that change
// the direction of text or are invisible, are visible as escapes. common.js has
// the same function.
func shown(text string) string {
	var b strings.Builder
	for _, c := range text {
		switch {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ', c >= 0x7f && c <= 0x9f, c == 0xad, c == 0x61c, c >= 0x200b && c <= 0x200f,
			c >= 0x2028 && c <= 0x202e, c >= 0x2060 && c <= 0x206f, c == 0xfeff,
			c == 0xfffe, c == 0xffff: // XML allows neither
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// beginning returns a text for a title. It cuts off a long text.
func beginning(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// render writes a page.
func (d *Dashboard) render(w http.ResponseWriter, r *http.Request, code int, name string, v view) {
	s := d.loginOf(r)
	v.Path, v.Here, v.Version, v.Node, v.Tabs = r.URL.Path, r.URL.RequestURI(), d.pages.version, d.cfg.Node.ID(), tabs
	if name == "login" { // the link to the login must not lead back to the login page
		v.Here = v.Next
	}
	v.User, v.LoggedIn, v.Certificates = s.user(), s != nil, d.cfg.Certificates
	v.NeedsToken = d.cfg.Token.Needed()
	if s != nil {
		v.CSRF = s.csrf
	}
	var page bytes.Buffer
	if err := d.pages.templates[name].ExecuteTemplate(&page, "layout", v); err != nil {
		d.cfg.Log.Error("page of the dashboard not rendered", "page", name, "error", err)
		http.Error(w, "the page cannot be shown: see the log of the node", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(page.Bytes()) // an error means that the browser has disconnected
}

// toLogin redirects the browser to the login page. After the login, the browser
// returns to the page that it has requested.
func (d *Dashboard) toLogin(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
}

// nextPage returns the page to which the browser goes after a login. It is always a
// page of this node, so that a link cannot lead to another site.
func nextPage(r *http.Request) string {
	next := r.FormValue("next")
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		return "/"
	}
	return next
}

// doLogin makes a login for an ACL user, or for the token of the port.
func (d *Dashboard) doLogin(w http.ResponseWriter, r *http.Request) {
	user, password, token := r.PostFormValue("user"), r.PostFormValue("password"), r.PostFormValue("token")
	var conn *connection
	if user != "" {
		var err error
		if conn, err = d.loginAs(r, user, password); err != nil {
			code, e := explain(err)
			d.render(w, r, code, "login", view{Title: "Log in", Error: e.Error, Next: nextPage(r)})
			return
		}
	} else if !d.cfg.Token.Needed() || !d.cfg.Token.Matches(token) {
		d.render(w, r, http.StatusUnauthorized, "login",
			view{Title: "Log in", Error: "enter a user of the cluster, or the token of this port", Next: nextPage(r)})
		return
	}
	if old := d.loginOf(r); old != nil {
		d.browserLogins.end(old)
	}
	d.setCookie(w, d.browserLogins.add(conn, token, time.Now()).id)
	http.Redirect(w, r, nextPage(r), http.StatusSeeOther)
}

// doLogout ends the login.
func (d *Dashboard) doLogout(w http.ResponseWriter, r *http.Request) {
	s := d.loginOf(r)
	if s != nil && !s.checks(r.PostFormValue("csrf")) {
		http.Error(w, "the form belongs to another login", http.StatusForbidden)
		return
	}
	if s != nil {
		d.browserLogins.end(s)
	}
	d.setCookie(w, "")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// showBreak shows the grants that a break would end, and asks for confirmation.
func (d *Dashboard) showBreak(w http.ResponseWriter, r *http.Request) {
	if d.loginOf(r).user() == "" {
		d.toLogin(w, r)
		return
	}
	v, code := d.breakView(r)
	d.render(w, r, code, "break", v)
}

// breakView returns the page that asks whether a lock is to be broken.
func (d *Dashboard) breakView(r *http.Request) (v view, code int) {
	v = view{Title: "Break a lock", DB: r.FormValue("db")}
	key, err := keyOf(r)
	if err == nil {
		v.Key, v.KeyBase64 = key, base64.StdEncoding.EncodeToString([]byte(key))
		err = d.read(r, func(ctx context.Context, c *connection) error {
			return c.inDatabase(ctx, r, func(ctx context.Context, conn *redis.Conn) (err error) {
				v.Lock, err = listing.Info(ctx, conn, key)
				return err
			})
		})
	}
	if err != nil {
		code, e := explain(err)
		v.Error = e.Error
		return v, code
	}
	if v.Owners = []string{v.Lock.Text("owner")}; len(v.Lock.Holders()) > 0 {
		v.Owners = nil
		for _, h := range v.Lock.Holders() {
			v.Owners = append(v.Owners, h.Text("owner"))
		}
	}
	for _, token := range v.Lock.Tokens() {
		if only := r.FormValue("token"); only == "" || only == strconv.FormatInt(token, 10) {
			v.Tokens = append(v.Tokens, token)
		}
	}
	if len(v.Tokens) == 0 {
		v.Error = "the lock is free, or has another owner now"
	}
	return v, http.StatusOK
}

// doBreak breaks the grants that the page of showBreak has shown.
func (d *Dashboard) doBreak(w http.ResponseWriter, r *http.Request) {
	s := d.loginOf(r)
	if s.user() == "" {
		d.toLogin(w, r)
		return
	}
	fail := func(code int, text string) {
		v, _ := d.breakView(r)
		v.Error = text
		d.render(w, r, code, "break", v)
	}
	key, err := keyOf(r)
	var tokens []int64
	for _, text := range r.PostForm["grant"] {
		token, wrong := strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, wrong)
		tokens = append(tokens, token)
	}
	switch {
	case !s.checks(r.PostFormValue("csrf")):
		http.Error(w, "the form belongs to another login", http.StatusForbidden)
		return
	case err != nil || len(tokens) == 0:
		http.Error(w, "the form is not complete", http.StatusBadRequest)
		return
	case !d.breaks.allow(time.Now()):
		fail(http.StatusTooManyRequests, "too many locks were broken through the dashboard: wait some seconds")
		return
	}
	broken, err := s.conn.breakLock(r.Context(), r, key, slices.Compact(tokens))
	switch {
	case err != nil:
		code, e := explain(err)
		fail(code, e.Error)
	case broken == 0:
		fail(http.StatusConflict, "the grant has ended in the meantime: nothing was broken")
	default:
		q := url.Values{"key_base64": {base64.StdEncoding.EncodeToString([]byte(key))}}
		if db := r.FormValue("db"); db != "" {
			q.Set("db", db)
		}
		http.Redirect(w, r, "/locks/lock?"+q.Encode(), http.StatusSeeOther)
	}
}
