package serve

import (
	"net/http"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/dashboard"
	"github.com/holdfast-kv/holdfast/dashboard/traffic"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// dashboardToken is the token of the HTTP port as a dashboard.Token.
type dashboardToken struct{ *httpToken }

// Needed implements dashboard.Token.
func (t dashboardToken) Needed() bool { return t.sum.Load() != nil }

// Admits implements dashboard.Token.
func (t dashboardToken) Admits(r *http.Request) bool { return t.admits(r) }

// Matches implements dashboard.Token.
func (t dashboardToken) Matches(text string) bool { return t.matches(text) }

// openDashboard returns the dashboard of a node.
func (o *options) openDashboard(node *cluster.Node, clients *resp.Server, port *joinedListener, token *httpToken,
	events *dashboard.Events, log hclog.Logger) (*dashboard.Dashboard, error) {
	node.WatchExpiries(func(e fsm.LockEvent) {
		events.LockExpired(e.DB, e.Key, e.Owner, uint64(e.Token))
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(node.Collectors()...)
	registry.MustRegister(clients.Metrics().Collectors()...)
	return dashboard.New(dashboard.Config{
		Node: node, Token: dashboardToken{token}, Metrics: registry, Kind: kindsOf(node.Table()), Dial: port.dial,
		AnyPassword: clients.AcceptsAnyPassword, Permits: clients.Permits, ClientList: clients.ClientList,
		SlowLog: func(count int) (all []dashboard.SlowCommand) {
			for _, e := range clients.SlowLog(count) {
				all = append(all, dashboard.SlowCommand{
					At: e.At, Took: e.Took, Args: e.Args, Addr: e.Addr, Name: e.Name,
				})
			}
			return all
		},
		Local: flags.Loopback(o.httpAddr), Certificates: o.tls.needsCertificates("clients"),
		Secure: o.tls.uses("http"), Events: events, Log: log,
	})
}

// kindsOf returns a function that maps the name of a command in the metrics, which
// is in lower case, to the kind of the command. EVAL and FCALL count as writes,
// because their scripts may write; EVAL_RO and FCALL_RO count as reads.
func kindsOf(table *fsm.Table) func(command string) traffic.Kind {
	kinds := make(map[string]traffic.Kind)
	for _, c := range table.Rows() {
		name, kind := strings.ToLower(c.Name), traffic.Other
		switch {
		case name == "lock":
			kind = traffic.Lock
		case c.Flags&fsm.ReadOnly != 0:
			kind = traffic.Read
		case c.Flags&(fsm.Write|fsm.MayWrite|fsm.Scripted) != 0:
			kind = traffic.Write
		}
		kinds[name] = kind
	}
	return func(command string) traffic.Kind { return kinds[command] }
}
