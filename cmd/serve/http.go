package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/resp"
)

// httpPages are the pages of the HTTP port: health, status and metrics. /healthz
// reports that the process runs. /readyz reports that the node is connected to a
// leader and can catch up with it. /status returns this node's part of "holdfast
// status --json". /healthz and /readyz need no token. All other pages need the
// token, if there is one, except that the dashboard also accepts logins.
type httpPages struct {
	// notReady returns the reason why the node is not ready, or "" if it is ready.
	notReady func() string
	status   func() cluster.NodeStatus
	metrics  http.Handler
	token    *httpToken
	pprof    bool
	maxConns int           // maximum number of open connections
	idle     time.Duration // how long a connection stays open without a request
	// dashboard is nil if there is none. The handler itself decides what a request may see.
	dashboard http.Handler
	log       hclog.Logger
}

func newHTTPPages(
	node *cluster.Node, clients *resp.Server, expiry []prometheus.Collector, token *httpToken, o httpOptions,
	log hclog.Logger,
) httpPages {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(node.Collectors()...)
	registry.MustRegister(clients.Metrics().Collectors()...)
	registry.MustRegister(expiry...)
	return httpPages{
		notReady: node.NotReady, status: node.Status, token: token, pprof: o.pprof, log: log,
		maxConns: o.maxConns, idle: o.idle,
		metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}),
	}
}

func (p httpPages) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.token.protect(p.metrics))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		reason := p.notReady()
		if reason == "" {
			fmt.Fprintln(w, "ready")
			return
		}
		if !p.token.admits(r) { // the reason may name other nodes
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		http.Error(w, "not ready: "+reason, http.StatusServiceUnavailable)
	})
	mux.Handle("GET /status", p.token.protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(p.status()); err != nil {
			p.log.Debug("status not sent", "error", err)
		}
	})))
	if p.dashboard != nil {
		mux.Handle("/", p.dashboard)
	}
	if p.pprof {
		for path, serve := range map[string]http.HandlerFunc{
			"/debug/pprof/": pprof.Index, "/debug/pprof/profile": pprof.Profile, "/debug/pprof/trace": pprof.Trace,
			"/debug/pprof/symbol": pprof.Symbol,
		} {
			mux.Handle(path, p.token.protect(serve))
		}
	}
	return mux
}

// serveHTTP serves the pages until the server that it returns is closed.
func serveHTTP(ln net.Listener, p httpPages) *http.Server {
	conns := &httpConns{most: p.maxConns}
	srv := &http.Server{
		ConnState:         conns.state,
		Handler:           p.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		IdleTimeout:       p.idle,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          p.log.StandardLogger(nil),
	}
	if !p.pprof { // no limit with --pprof: the client chooses the duration of a profile
		srv.WriteTimeout = 30 * time.Second
	}
	go func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			p.log.Error("http port closed", "error", err)
		}
	}()
	return srv
}
