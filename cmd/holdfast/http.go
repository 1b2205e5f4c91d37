package main

import (
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

// listenHTTP serves health and metrics. /healthz says that the process lives,
// /readyz that it has a way to a leader.
func listenHTTP(addr string, node *cluster.Node, clients *resp.Server, withPprof bool, log hclog.Logger) (*http.Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(node.Collectors()...)
	registry.MustRegister(clients.Metrics().Collectors()...)

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if node.Linked() {
			fmt.Fprintln(w, "ready")
			return
		}
		st := node.Status()
		reason := "no leader"
		if st.Detail != "" {
			reason = st.Detail
		}
		http.Error(w, "not ready: "+reason, http.StatusServiceUnavailable)
	})
	if withPprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open http port: %w", err)
	}
	conns := &httpConns{most: maxHTTPConns}
	srv := &http.Server{
		ConnState:         conns.state,
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.StandardLogger(nil),
	}
	if !withPprof { // a profile takes as long as its client asks for
		srv.WriteTimeout = 30 * time.Second
	}
	go func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("http port closed", "error", err)
		}
	}()
	return srv, nil
}
