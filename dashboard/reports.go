package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// reportShare is how long requests with the same query share the answers of
	// other nodes.
	reportShare = time.Second
	// maxReports bounds the queries whose answers are shared.
	maxReports = 16
)

// reports shares the answers of the other nodes to queries. It is safe for
// concurrent use.
type reports struct {
	mu   sync.Mutex
	last map[string]*shared[map[string][]byte] // by query
}

// of returns the shared answer to a query.
func (r *reports) of(query string) *shared[map[string][]byte] {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := r.last[query]
	if answer == nil {
		if len(r.last) >= maxReports || r.last == nil {
			r.last = make(map[string]*shared[map[string][]byte])
		}
		answer = new(shared[map[string][]byte])
		r.last[query] = answer
	}
	return answer
}

// gather calls add with the answer of each node to a query. own returns the answer
// of this node; gather asks the other nodes. It returns the members that have not
// answered. If the request has the parameter node, gather considers only that node.
func gather[T any](d *Dashboard, r *http.Request, query string, own func() T, add func(T)) (silent []string) {
	only, self := r.FormValue("node"), d.cfg.Node.ID()
	silent = []string{}
	if only == "" || only == self {
		add(own())
	}
	if only == self {
		return silent
	}
	answers := d.reports.of(query).get(reportShare, func() map[string][]byte {
		return d.cfg.Node.Reports(context.WithoutCancel(r.Context()), query)
	})
	for _, m := range d.cfg.Node.PeerHealth() {
		if m.ID == self || only != "" && m.ID != only {
			continue
		}
		var part T
		text, ok := answers[m.ID]
		if ok {
			if err := json.Unmarshal(text, &part); err != nil {
				d.cfg.Log.Warn("answer of a node cannot be read", "peer", m.ID, "error", err)
				ok = false
			}
		}
		if !ok {
			silent = append(silent, m.ID)
			continue
		}
		add(part)
	}
	slices.Sort(silent)
	return silent
}

// report answers a query that a node of the cluster sends about this node. The
// queries are "recent N" for the last N samples of the traffic, "day" for the
// samples of a day, "events" for the events, and "clients" followed by a
// clientFilter for the connections. The node that asks decides which user may
// see the answer.
func (d *Dashboard) report(query string) ([]byte, error) {
	word, rest, _ := strings.Cut(query, " ")
	switch word {
	case "day":
		return json.Marshal(d.sampler.Day())
	case "recent":
		if n, err := strconv.Atoi(rest); err == nil && n >= 1 {
			return json.Marshal(d.sampler.Recent(n))
		}
	case "events":
		return json.Marshal(d.ownEvents(0))
	case "clients":
		var f clientFilter
		if err := json.Unmarshal([]byte(rest), &f); err == nil {
			return json.Marshal(d.ownClients(f))
		}
	}
	return nil, badRequest("unknown query " + strconv.Quote(query))
}
