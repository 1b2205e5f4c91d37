package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/dashboard/traffic"
)

// Status is the answer of /api/v1/status. Nodes is the output of "holdfast
// status --json".
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
	mux.HandleFunc("GET /api/v1/locks", d.data(d.listLocks))
	mux.HandleFunc("GET /api/v1/lock", d.data(d.lockInfo))
	mux.HandleFunc("GET /api/v1/lock/history", d.data(d.lockHistory))
	mux.HandleFunc("GET /api/v1/keys", d.data(d.listKeys))
	mux.HandleFunc("GET /api/v1/clients", d.data(d.listClients))
	mux.HandleFunc("GET /api/v1/events", d.data(func(r *http.Request) (any, error) {
		if err := d.mayRead(r); err != nil {
			return nil, err
		}
		return d.listEvents(r)
	}))
	mux.HandleFunc("GET /api/v1/stream", d.serveStream)
	mux.HandleFunc("GET /api/", func(w http.ResponseWriter, r *http.Request) {
		d.writeJSON(w, http.StatusNotFound, apiError{Error: "there is no " + r.URL.Path}, nil)
	})
}

// reading returns a handler that answers with the result of f in JSON, if the
// request may read the state of the cluster.
func (d *Dashboard) reading(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := d.mayRead(r)
		if err != nil {
			d.fail(w, err)
			return
		}
		answer, err := f(r)
		if err != nil {
			d.fail(w, err)
			return
		}
		d.writeJSON(w, http.StatusOK, answer, nil)
	}
}

// data returns a handler that answers requests for data with the result of f in
// JSON. The total size of all answers that the node makes or sends at a time is
// bounded.
func (d *Dashboard) data(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		room, err := d.answers.take(r, replyBytes)
		if err != nil {
			d.fail(w, err)
			return
		}
		defer room.release()
		answer, err := f(r)
		if err != nil {
			d.fail(w, err)
			return
		}
		d.writeJSON(w, http.StatusOK, answer, &room)
	}
}

// fail answers a request with an error.
func (d *Dashboard) fail(w http.ResponseWriter, err error) {
	code, e := explain(err)
	d.writeJSON(w, code, e, nil)
}

// writeJSON sends an answer. room is the share that was reserved for the
// answer, or nil. While the answer is sent, only the bytes of the answer stay
// reserved.
func (d *Dashboard) writeJSON(w http.ResponseWriter, code int, answer any, room *share) {
	text, err := json.Marshal(answer)
	if err != nil {
		d.cfg.Log.Error("answer of the API cannot be encoded", "error", err)
		code = http.StatusInternalServerError
		text = []byte(`{"error":"the answer cannot be encoded: see the log of the node"}`)
	}
	if room != nil {
		room.keep(len(text))
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // an error means that the client has disconnected
}

// badRequest is an error whose cause is the request itself.
type badRequest string

func (e badRequest) Error() string { return string(e) }

// throttled is the beginning of the reply with which a node refuses a login after
// too many failed logins: see msgThrottled in package resp.
const throttled = "ERR too many failed logins"

// explain returns the status code and the answer for an error.
func explain(err error) (code int, e apiError) {
	e.Error = err.Error()
	word, _, _ := strings.Cut(e.Error, " ")
	reply := redis.Error(nil)
	switch {
	case errors.As(err, new(badRequest)), errors.Is(err, errTooLarge):
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
	case errors.As(err, &reply) && strings.HasPrefix(e.Error, throttled):
		return http.StatusTooManyRequests, e
	case errors.As(err, &reply) && word == "ERR":
		return http.StatusBadRequest, e
	case errors.As(err, &reply), errors.Is(err, errClosed), errors.Is(err, errBusy),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusServiceUnavailable, e
	}
	return http.StatusInternalServerError, e
}

// status returns the state of all members, at most statusShare old.
func (d *Dashboard) status(ctx context.Context) Status {
	return d.lastStatus.get(statusShare, func() Status {
		nodes := d.cfg.Node.ClusterStatus(context.WithoutCancel(ctx))
		return Status{Node: d.cfg.Node.ID(), Verdict: verdict.Assess(nodes), Nodes: nodes}
	})
}

// Traffic is the answer of /api/v1/traffic. It leaves out nodes that do not answer.
type Traffic struct {
	Nodes map[string]traffic.Series `json:"nodes"`
}

// traffic returns the samples of all nodes. It asks the nodes only if the last
// answer is older than trafficShare.
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

// number returns a parameter that is a number from 1 to the argument most, or def
// if the parameter is missing.
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
		return "", badRequest("cursor is not a cursor that the API has returned")
	}
	return text, nil
}
