// Package dashboard serves the web dashboard and the JSON API of a node, on its
// HTTP port. docs/api.md describes the API, and docs/dashboard.md the pages. The
// package itself is not a supported API.
//
// The package cannot access the data directly. It reads locks and keys as a
// client of its node, over connections inside the process, with the rights of
// an ACL user. So the rules, limits and logs of the client port apply to it.
// Before it shows connections or slow commands, it checks in the same way that
// the user may run the commands that list them.
package dashboard

import (
	"context"
	"embed"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/dashboard/traffic"
	"github.com/holdfast-kv/holdfast/lock/listing"
)

// files are the templates and the static files.
//
//go:embed templates static
var files embed.FS

// Node is the node that a dashboard describes. Its methods are safe for
// concurrent use.
type Node interface {
	ID() string
	Status() health.NodeStatus
	// ClusterStatus asks every member for its state.
	ClusterStatus(ctx context.Context) []health.NodeStatus
	// PeerHealth returns the last answer of each member.
	PeerHealth() []health.PeerHealth
	Leader() (id string, known bool)
	// Watch returns a channel that receives a value after a change of the leader
	// or of PeerHealth, until stop is called.
	Watch() (changed <-chan struct{}, stop func())
	// SetReporter sets the function that answers the queries that nodes send
	// with Reports.
	SetReporter(f func(query string) ([]byte, error))
	// Reports sends a query to the reporters of all nodes.
	Reports(ctx context.Context, query string) map[string][]byte
}

// Token is the token of the HTTP port. Its methods are safe for concurrent use.
type Token interface {
	// Needed reports whether requests need the token.
	Needed() bool
	// Admits reports whether a request has the token, or needs none.
	Admits(r *http.Request) bool
	// Matches reports whether a text is the token.
	Matches(text string) bool
}

// Config is the configuration of a Dashboard.
type Config struct {
	Node    Node
	Token   Token
	Metrics prometheus.Gatherer
	// Kind returns the kind of a command by its name in the metrics.
	Kind func(command string) traffic.Kind
	// Dial opens a connection to the node's client port from within the process.
	// The argument from is the address that the port sees.
	Dial func(ctx context.Context, from net.Addr) (net.Conn, error)
	// AnyPassword reports whether the cluster accepts any password for a user. A
	// login as such a user proves nothing.
	AnyPassword func(user string) bool
	// Local is set if only this machine can reach the HTTP port. Then, without
	// a login, a browser has the rights of a client without a password.
	Local bool
	// Permits reports whether a user may run a command. Unlike a command that
	// is refused, Permits adds no entry to the ACL log.
	Permits func(user string, command ...string) bool
	// ClientList returns the connections to this node, as CLIENT LIST prints them,
	// with an additional field that contains the number of their commands.
	ClientList func() string
	// SlowLog returns the newest commands of the slow log of this node.
	SlowLog func(count int) []SlowCommand
	// Certificates is set if the client port admits only clients with a
	// certificate. Then the dashboard shows no data, because a browser could read
	// it without a certificate.
	Certificates bool
	// Secure is set if the HTTP port uses TLS.
	Secure bool
	Events *Events
	Log    hclog.Logger
}

// Dashboard serves the pages and the API. It is safe for concurrent use.
type Dashboard struct {
	cfg           Config
	sampler       *traffic.Sampler
	browserLogins browserLogins
	stream        stream
	breaks        limiter
	logins        quota // bounds the logins that are being checked
	answers       quota // bounds the bytes of answers with data
	origins       listing.Origins
	pages         pages

	reports             reports
	lastStatus          shared[Status]
	lastRecent, lastDay shared[Traffic]

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

const (
	// maxLogins bounds the logins that are being checked at a time.
	// maxLoginsEach bounds the logins from one address among them.
	maxLogins, maxLoginsEach = 8, 2
	// maxAnswers bounds the answers with data that are being made or sent, in
	// bytes.
	maxAnswers = 8 * replyBytes
)

// New returns a Dashboard. It starts goroutines that take samples of the node's
// metrics and record events. Close ends them.
func New(cfg Config) (*Dashboard, error) {
	pages, err := parsePages()
	if err != nil {
		return nil, fmt.Errorf("templates of the dashboard: %w", err)
	}
	d := &Dashboard{
		cfg: cfg, sampler: traffic.New(cfg.Metrics, cfg.Kind, cfg.Log), pages: pages,
		logins:  quota{most: maxLogins, mostEach: maxLoginsEach},
		answers: quota{most: maxAnswers, mostEach: maxAnswers / 2}, breaks: limiter{burst: 10, every: 6 * time.Second},
		stream: stream{
			opened: make(chan struct{}, 1), log: cfg.Log,
			places: quota{most: maxStreams, mostEach: maxStreamsEach},
		},
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	cfg.Node.SetReporter(d.report)
	d.wg.Go(func() { d.sampler.Run(d.ctx, d.sampled) })
	d.wg.Go(d.watch)
	d.wg.Go(d.keepStream)
	return d, nil
}

// Close ends the sampling, the streams and the connections, and waits for the
// goroutines of the Dashboard.
func (d *Dashboard) Close() {
	d.stop()
	d.wg.Wait()
	d.browserLogins.close()
}

// recentQuery asks a node for its samples of the last 30 s. The last sample alone
// is not enough for a stream. A node may take its sample just after it has
// answered; its next answer then has two new samples. A node may also fail to
// answer a query.
const recentQuery = "recent 6"

// sampled runs after each sample.
func (d *Dashboard) sampled() {
	d.browserLogins.expire(time.Now())
	if d.stream.wanted(topicTraffic) {
		d.stream.send(topicTraffic, d.askTraffic(d.ctx, recentQuery))
	}
}
