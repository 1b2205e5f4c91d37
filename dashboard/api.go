package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/dashboard/traffic"
)

// Status is the answer of /api/v1/status. Nodes is what "holdfast status --json"
// prints.
type Status struct {
	Node    string              `json:"node"` // the node that answers
	Verdict verdict.Verdict     `json:"verdict"`
	Nodes   []health.NodeStatus `json:"nodes"`
}

// apiError is the answer to a request that failed.
type apiError struct {
	Error string `json:"error"`
	// Login is set if the request may succeed after a login.
	Login bool `json:"login,omitempty"`
}

// api registers the API.
func (d *Dashboard) api(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/status", d.reading(func(r *http.Request) (any, error) {
		return d.status(r.Context()), nil
	}))
	mux.HandleFunc("GET /api/v1/traffic", d.reading(func(r *http.Request) (any, error) {
		switch window := r.FormValue("window"); window {
		case "", "15m":
			return d.traffic(r.Context(), "recent 1000"), nil
		case "24h":
			return d.traffic(r.Context(), "day"), nil
		default:
			return nil, badRequest("window is " + strconv.Quote(window) + ", not 15m or 24h")
		}
	}))
	mux.HandleFunc("GET /api/v1/locks", d.answer(d.listLocks))
	mux.HandleFunc("GET /api/v1/lock", d.answer(d.lockInfo))
	mux.HandleFunc("GET /api/v1/keys", d.answer(d.listKeys))
	mux.HandleFunc("GET /api/v1/clients", d.answer(d.listClients))
	mux.HandleFunc("GET /api/v1/events", d.reading(d.listEvents))
	mux.HandleFunc("GET /api/v1/stream", d.serveStream)
	mux.HandleFunc("GET /api/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, apiError{Error: "there is no " + r.URL.Path})
	})
}

// reading answers requests that may read the state of the cluster.
func (d *Dashboard) reading(f func(*http.Request) (any, error)) http.HandlerFunc {
	return d.answer(func(r *http.Request) (any, error) {
		if err := d.mayRead(r); err != nil {
			return nil, err
		}
		return f(r)
	})
}

// answer answers requests with the result of f in JSON.
func (d *Dashboard) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := f(r)
		if err != nil {
			code, e := explain(err)
			writeJSON(w, code, e)
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}

func writeJSON(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	// An error means that the client has gone away.
	_ = json.NewEncoder(w).Encode(answer)
}

// badRequest is an error of the sender of a request.
type badRequest string

func (e badRequest) Error() string { return string(e) }

// explain returns the status code and the answer for an error.
func explain(err error) (code int, e apiError) {
	e.Error = err.Error()
	word, _, _ := strings.Cut(e.Error, " ")
	reply := redis.Error(nil)
	switch {
	case errors.As(err, new(badRequest)):
		return http.StatusBadRequest, e
	case errors.Is(err, errToken), errors.Is(err, errLogin), errors.Is(err, errAnyPassword):
		e.Login = true
		return http.StatusUnauthorized, e
	case errors.Is(err, errCerts):
		return http.StatusForbidden, e
	case word == "NOAUTH":
		return http.StatusUnauthorized, apiError{Error: errLogin.Error(), Login: true}
	case word == "WRONGPASS":
		return http.StatusUnauthorized, apiError{Error: "wrong user or password", Login: true}
	case word == "NOPERM":
		e.Login = true
		return http.StatusForbidden, e
	case errors.As(err, &reply) && word == "ERR":
		return http.StatusBadRequest, e
	case errors.As(err, &reply), errors.Is(err, errClosed), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, e
	}
	return http.StatusInternalServerError, e
}

// status asks all members for their state.
func (d *Dashboard) status(ctx context.Context) Status {
	return d.lastStatus.get(statusShare, func() Status {
		nodes := d.cfg.Node.ClusterStatus(context.WithoutCancel(ctx))
		return Status{Node: d.cfg.Node.ID(), Verdict: verdict.Assess(nodes), Nodes: nodes}
	})
}

// report answers a query of a node about this node's traffic: "recent N" for the
// last N samples, or "day".
func (d *Dashboard) report(query string) ([]byte, error) {
	if query == "day" {
		return json.Marshal(d.sampler.Day())
	}
	word, number, _ := strings.Cut(query, " ")
	n, err := strconv.Atoi(number)
	if word != "recent" || err != nil || n < 1 {
		return nil, badRequest("unknown query " + strconv.Quote(query))
	}
	return json.Marshal(d.sampler.Recent(n))
}

// Traffic is the answer of /api/v1/traffic. It has no node that does not answer.
type Traffic struct {
	Nodes map[string]traffic.Series `json:"nodes"`
}

// traffic asks all nodes for their samples.
func (d *Dashboard) traffic(ctx context.Context, query string) Traffic {
	last := &d.lastRecent
	if query == "day" {
		last = &d.lastDay
	}
	return last.get(trafficShare, func() Traffic { return d.askTraffic(context.WithoutCancel(ctx), query) })
}

func (d *Dashboard) askTraffic(ctx context.Context, query string) Traffic {
	t := Traffic{Nodes: make(map[string]traffic.Series)}
	for id, answer := range d.cfg.Node.Reports(ctx, query) {
		var s traffic.Series
		if err := json.Unmarshal(answer, &s); err != nil {
			d.cfg.Log.Warn("samples of a node cannot be read", "peer", id, "error", err)
			continue
		}
		t.Nodes[id] = s
	}
	return t
}

// number returns a parameter that is a number from 1 to most, or def if it is
// missing.
func number(r *http.Request, name string, def, most int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badRequest(name + " is not a number from 1 to " + strconv.Itoa(most))
	}
	return n, nil
}

// cursor returns the parameter cursor, "0" if it is missing.
func cursor(r *http.Request) (string, error) {
	text := r.FormValue("cursor")
	if text == "" {
		return "0", nil
	}
	if _, err := strconv.ParseUint(text, 10, 64); err != nil {
		return "", badRequest("cursor is not one that the API has returned")
	}
	return text, nil
}
