package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cmd/flags"
)

// minHTTPToken is the minimum length of a token in bytes. A token must be too
// long to guess, because the HTTP port does not limit guesses.
const minHTTPToken = 16

// httpOptions holds the flags about the HTTP port.
type httpOptions struct {
	tokenFile string
	pprof     bool
	dashboard flags.YesNo
	maxConns  int           // maximum number of open connections
	idle      time.Duration // how long a connection stays open without a request
}

func (o *httpOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.tokenFile, "http-token-file", "",
		"file with a token that requests to --http-addr must send as \"Authorization: Bearer TOKEN\", except for "+
			"/healthz, /readyz and the login; the dashboard and the API accept a login in its place")
	f.Var(&o.dashboard, "dashboard", "serve the dashboard and its API at --http-addr")
	f.IntVar(&o.maxConns, "max-http-connections", o.maxConns,
		"maximum number of connections to --http-addr; a further connection replaces the one that has been idle for "+
			"the longest time or, if none is idle, the one whose request began first")
	f.DurationVar(&o.idle, "http-idle-timeout", o.idle,
		"how long a connection to --http-addr stays open after its last request")
	f.BoolVar(&o.pprof, "pprof", false,
		"serve /debug/pprof at --http-addr, which must be on loopback or have a --http-token-file")
}

// readToken returns the token, or "" if none is configured.
func (o *httpOptions) readToken() (string, error) {
	if o.tokenFile == "" {
		return "", nil
	}
	token, err := flags.ReadSecret("http-token-file", o.tokenFile)
	if err == nil && len(token) < minHTTPToken {
		err = fmt.Errorf("--http-token-file: the token in %s has %d bytes and can be guessed; at least %d are needed",
			o.tokenFile, len(token), minHTTPToken)
	}
	return token, err
}

// HTTPAccess returns the token that a request to the HTTP port of a node needs, or
// "" if it needs none, and whether the port uses TLS. args are the flags of the
// node. HTTPAccess also applies the environment and the file of --config, as the
// node does. If a flag is wrong, HTTPAccess ignores all flags, because the node
// reports the error when it starts.
func HTTPAccess(args []string) (token string, usesTLS bool, err error) {
	o := newOptions()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	o.flags(f)
	if f.Parse(args) != nil || flags.FromEnv(f) != nil {
		return "", false, nil
	}
	if o.configFile != "" && flags.FromFile(f, o.configFile) != nil {
		return "", false, nil
	}
	token, err = o.web.readToken()
	return token, o.tls.uses("http"), err
}

// checkPprof returns an error if other hosts could read profiles without a
// token.
func (o *httpOptions) checkPprof(addr string) error {
	if o.pprof && o.tokenFile == "" && !flags.Loopback(addr) {
		return errors.New("--pprof lets every host that reaches --http-addr " + addr + " read profiles and slow the " +
			"node down: set --http-token-file, or a loopback --http-addr")
	}
	return nil
}

// httpToken is the token of the HTTP port. It can be changed while the port is
// open.
type httpToken struct {
	sum atomic.Pointer[[sha256.Size]byte]
}

// set changes the token. If it is "", requests need none.
func (t *httpToken) set(token string) {
	if token == "" {
		t.sum.Store(nil)
		return
	}
	sum := sha256.Sum256([]byte(token))
	t.sum.Store(&sum)
}

// admits reports whether a request has the token, or needs none.
func (t *httpToken) admits(r *http.Request) bool {
	if t.sum.Load() == nil {
		return true
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(kind, "Bearer") && t.matches(strings.TrimSpace(token))
}

// matches reports whether a text is the token. It returns false if there is no token.
func (t *httpToken) matches(text string) bool {
	want, sum := t.sum.Load(), sha256.Sum256([]byte(text))
	return want != nil && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// protect refuses requests without the token.
func (t *httpToken) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !t.admits(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="holdfast"`)
			http.Error(w, "this port needs the token of --http-token-file: Authorization: Bearer TOKEN",
				http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
