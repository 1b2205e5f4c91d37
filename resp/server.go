package resp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/history"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/clientmem"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/resp/metrics"
	"github.com/holdfast-kv/holdfast/resp/output"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
	"github.com/holdfast-kv/holdfast/resp/sentinel"
	"github.com/holdfast-kv/holdfast/resp/slow"
	"github.com/holdfast-kv/holdfast/resp/topology"
)

// RedisVersion is the version of Redis whose behavior this server provides.
// Client libraries choose their behavior by this version.
const RedisVersion = "7.0.15"

// Cluster is the node behind the server. Its methods may be called from any
// goroutine.
type Cluster interface {
	NewExecutor() Executor
	// ClientID returns a number for a new connection. It is unique in the
	// cluster.
	ClientID() uint64
	// Listen registers l as the receiver of the events that the log causes on
	// this node. Want sets the kinds of events that l receives from then on.
	Listen(l Listener)
	Want(kinds fsm.EventKinds)
	// EventsDelivered calls f as soon as the listener has received all events
	// of the log up to index, or will receive no more events. f must not block.
	EventsDelivered(index uint64, f func())
	// OwnEventsDelivered calls f as soon as the listener has received all events
	// of this node's groups up to the group with the given number, or will receive
	// no more events. Executor.Sent returns the number of a group. f gets the
	// position of the group in the log: the index of its entry, and its position
	// in the entry (fsm.Event.Group). The index is 0 if it is not known.
	OwnEventsDelivered(group uint64, f func(index uint64, position int))
	// FeatureVersion returns the feature version of the cluster. If need is higher
	// than the version that this node knows, but not higher than the newest version
	// that this program supports, FeatureVersion first waits for this node to catch
	// up with the leader. Without a leader, it returns the version that this node
	// knows.
	FeatureVersion(need int) int
	// State returns this node's view of the cluster, for INFO, ROLE and WAIT.
	State() State
	// Admin runs a HOLDFAST subcommand that concerns the cluster and returns
	// its output.
	Admin(ctx context.Context, args []string) (string, error)
	// RefuseQueued reports whether this node, as leader, refuses commands that add
	// data because the data set is larger than maxmemory. If so, it counts a
	// refusal. The client port asks when it queues such a command for EXEC.
	RefuseQueued() bool
	// LockHistory answers a query from the history of locks that this node keeps.
	// Unless local is set, or this node cannot catch up with a leader, the answer
	// contains everything that was acknowledged before the call.
	LockHistory(ctx context.Context, q history.Query, local bool) (history.Answer, error)
	// WatchUsers calls f with the ACL users of this node's state, once at the
	// start and after each change. f may get an older set of users after a
	// newer one.
	WatchUsers(f func(*fsm.Users))
	// WatchDenials makes this node call f whenever a script that it runs is denied
	// a command.
	WatchDenials(f func(user string, v acl.Verdict))
}

// Listener receives the effects of the log on this node. It has the methods and
// the contract of events.Listener in package cluster/events.
type Listener interface {
	Applied(index uint64, events []fsm.Event)
	Missed(index uint64, why string)
}

// State is the state of the cluster that INFO and related commands print.
type State struct {
	NodeID, ClusterID, Role, Leader string
	Term, Commit, Applied           uint64
	// Replicas contains other nodes, as many as must store a write before the
	// write is acknowledged. WAIT returns their number.
	Replicas []Replica
	Ready    bool
	Version  string

	Keys       [fsm.Databases]DBState
	Expired    uint64
	Operations uint64
	// Scripts is the number of cached scripts; ScriptBytes is their size in
	// bytes.
	Scripts, ScriptBytes int
	// Libraries and Functions are the numbers of function libraries and of
	// their functions; LibraryBytes is the size of the libraries in bytes.
	Libraries, Functions, LibraryBytes int
	LogBytes                           int64
	// DiskFree, DiskTotal and DiskReserve describe the disk of the data
	// directory, in bytes. They are 0 if they are not known. WritesRefused is
	// the reason why commands that add data are refused, or "".
	DiskFree, DiskTotal, DiskReserve int64
	WritesRefused                    string
	// Dataset is the approximate memory of the data set, and MaxMemory its
	// limit, in bytes. MaxMemory is 0 for no limit.
	Dataset, MaxMemory int64
}

// DBState holds the key counts of one database.
type DBState struct{ Keys, Volatile int }

// Replica is a node that INFO and ROLE report as a replica.
type Replica struct{ Host, Port string }

// Config is the configuration of a server.
type Config struct {
	Addr string // address of the client port
	// RequirePass is the password that the default user gets if the cluster has no
	// default user yet. It is "" for no password.
	RequirePass string
	// Users are the users of --acl-file. If the cluster has no users, it adopts
	// these users. If RequirePass is set, Users contains no default user.
	Users []*acl.User
	// LockDelay is the value that the setting lock-delay gets if the cluster has no
	// value yet. It is "" if the setting must not get a value.
	LockDelay string
	DataDir   string // as CONFIG GET dir prints it
	Limits    guard.Limits
	// LimitFlags are the flags that limit clients, by name without the leading
	// dashes.
	LimitFlags map[string]LimitFlag
	Logger     hclog.Logger
	// Audit receives lines about administrative commands and failed logins. If
	// Audit is nil, there is no audit log.
	Audit hclog.Logger
	// NodeID is the name of this node in Audit.
	NodeID   string
	Listener net.Listener // if nil, Listen opens Addr

	// Mode is the kind of server that the port presents to clients. All modes
	// but Standalone require a Topology.
	Mode     Mode
	Topology topology.Source
	// MasterName is the leader's name on a Sentinel port.
	MasterName string
	// Shutdown, for the command SHUTDOWN, asks the program to stop this node
	// gracefully. It returns at once and may be called more than once. If it is
	// nil, SHUTDOWN fails.
	Shutdown func()
	// RunID identifies this run of the process, in 40 hex digits. If it is "",
	// Listen creates one.
	RunID string
}

// Server is a client port.
type Server struct {
	cfg        Config
	log        hclog.Logger
	cluster    Cluster
	cmds       commandTable
	metrics    *metrics.Port
	hub        *pubsub.Hub
	clientMem  *clientmem.Budget
	pushers    *output.Pushers
	outboxes   output.Node
	monitor    *sentinel.Monitor // nil except in mode Sentinel
	accounts   accounts
	diag       diagnostics
	saves      saves
	logLimiter logLimiter
	audit      auditLog
	port       port
	run        processRun
	life       lifecycle

	pause        atomic.Pointer[pause] // the pause in force; nil while clients are not paused
	blocked      atomic.Int64          // connections in a blocking command that waits
	maxEventWait time.Duration         // the constant maxEventWait, except in tests

	mu    sync.Mutex // guards conns
	conns map[uint64]*conn
}

// diagnostics contains the records that the server keeps for operators.
type diagnostics struct {
	monitors monitorStream
	slowlog  slow.Log
	latency  slow.Latency
}

// saves records the snapshots that clients ask for.
type saves struct {
	running atomic.Bool
	last    atomic.Int64 // time of the last snapshot, or of the start of the server, in Unix seconds
}

// port is the client port: its listener, and the server that reads from it.
type port struct {
	guard    *guard.Listener
	redcon   *redcon.Server
	number   int
	served   chan struct{} // closed when redcon has stopped serving
	released chan struct{} // closed by Close: see lateCloseListener
	release  sync.Once
}

// processRun identifies this run of the process.
type processRun struct {
	id      string
	started time.Time
}

// maxDepartures is the largest number of goroutines that release what closed
// connections hold: see depart.
const maxDepartures = 16

// lifecycle contains the state that the server needs in order to stop: see Stop
// and Close.
type lifecycle struct {
	closing    atomic.Bool
	stopping   chan struct{}   // closed when closing is set; ends pauses, sleeps and other waits
	ctx        context.Context // ends when stopping is closed
	stop       context.CancelFunc
	busy       atomic.Int64   // connections that are executing a pipeline
	idle       chan struct{}  // capacity 1; signals that busy has reached 0 while closing is set
	background sync.WaitGroup // BGSAVE, outboxes, sentinel.Monitor.Run, departures
	departures chan struct{}  // contains an element for each goroutine of depart
	// users waits for bootstrapUsers. The reads of bootstrapUsers end when a leader
	// answers, after a few seconds, or when the cluster is closed.
	users sync.WaitGroup
}

// NewRunID returns a random identifier for a run of the process.
func NewRunID() string {
	var id [20]byte
	rand.Read(id[:]) // crypto/rand documents that Read never fails
	return hex.EncodeToString(id[:])
}

// Listen opens the client port and serves it.
func Listen(cfg Config, cluster Cluster, table *fsm.Table) (*Server, error) {
	ln := cfg.Listener
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", cfg.Addr); err != nil {
			what := "client"
			if cfg.Mode == Sentinel {
				what = "sentinel"
			}
			return nil, fmt.Errorf("open %s port: %w", what, err)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.RunID == "" {
		cfg.RunID = NewRunID()
	}
	cmds := newCommandTable(table, cfg.Mode == Sentinel)
	s := &Server{
		cfg: cfg, log: cfg.Logger, cluster: cluster, cmds: cmds, audit: auditLog{log: cfg.Audit, node: cfg.NodeID},
		clientMem: clientmem.New(cfg.Limits.ClientMemory), pushers: output.NewPushers(),
		accounts: accounts{seed: seedOf(cmds.catalog, cfg.Users, cfg.RequirePass), log: aclLog{max: aclLogMax},
			logins: guard.NewLoginThrottle(cfg.Limits.FailedLogins)},
		port: port{served: make(chan struct{}), released: make(chan struct{})},
		run:  processRun{id: cfg.RunID, started: time.Now()},
		life: lifecycle{
			stopping: make(chan struct{}), idle: make(chan struct{}, 1),
			departures: make(chan struct{}, maxDepartures),
		},
		maxEventWait: maxEventWait,
		conns:        make(map[uint64]*conn),
	}
	s.metrics = newMetrics(cmds.rows, metrics.State{
		Open:    func() int { return s.port.guard.Open() },
		Blocked: s.blocked.Load,
		Hub:     func() *pubsub.Hub { return s.hub },
		Memory:  s.clientMem,
		Limits:  cfg.LimitFlags,
	})
	s.diag.slowlog.SetLimit(startSlowlog)
	s.diag.slowlog.Threshold.Store(startSlowerThan)
	s.life.ctx, s.life.stop = context.WithCancel(context.Background())
	s.saves.last.Store(s.run.started.Unix())
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		s.port.number = a.Port
	}
	s.outboxes = output.Node{
		Memory: s.clientMem, Limits: &s.cfg.Limits, Go: s.life.background.Go, Closed: s.port.released, Logger: s.log,
	}
	s.hub = pubsub.New(s.hubConfig())
	if cfg.Mode != Sentinel { // a Sentinel publishes only its own messages
		cluster.Listen(s.hub)
	}
	cluster.WatchUsers(s.install)
	s.noticePassword(s.accounts.current.Load())
	if cfg.Mode != Sentinel {
		cluster.WatchDenials(s.accounts.log.script)
	}
	s.life.users.Go(s.bootstrapUsers)
	s.port.guard = guard.NewListener(ln, cfg.Limits, s.hooks())
	s.port.redcon = redcon.NewServerNetwork("tcp", cfg.Addr, s.handle, s.accept, s.closed)
	if cfg.Mode == Sentinel {
		s.monitor = sentinel.New(cfg.MasterName, cfg.Topology, s.hub.Announce)
		s.life.background.Go(func() { s.monitor.Run(s.life.ctx) })
	}
	go func() {
		defer close(s.port.served)
		err := s.port.redcon.Serve(lateCloseListener{s.port.guard, s.port.released})
		if err != nil && !s.life.closing.Load() {
			s.log.Error("client port closed", "error", err)
		}
	}()
	return s, nil
}

// lateCloseListener hides the closing of the port from redcon until Close.
// Otherwise, redcon would close all connections at once, although Stop waits until
// their pipelines are answered.
type lateCloseListener struct {
	*guard.Listener
	released <-chan struct{}
}

// Accept implements net.Listener.
func (l lateCloseListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.released
	}
	return c, err
}

// newMetrics returns the metrics of a port, and gives each row of its command
// table a series. The subcommands that the cluster executes count for their
// container.
func newMetrics(rows map[string]*row, state metrics.State) *metrics.Port {
	m := metrics.New(state)
	for _, r := range rows {
		r.stats = m.Series(r.cmd.Name)
		for i := range r.sub {
			r.sub[i].stats = m.Series(r.sub[i].fullName())
		}
	}
	return m
}

// Addr returns the address of the client port.
func (s *Server) Addr() net.Addr { return s.port.guard.Addr() }

// Metrics returns the server's metrics.
func (s *Server) Metrics() *metrics.Port { return s.metrics }

// Stop refuses new connections and new pipelines. It waits until the pipelines
// that are being executed are answered, or ctx is done. Pauses, sleeps and the
// waits of blocking commands end early.
func (s *Server) Stop(ctx context.Context) error {
	s.refuseWork()
	err := s.port.guard.Close()
	for s.life.busy.Load() > 0 {
		select {
		case <-s.life.idle:
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("wait for the pipelines of clients: %w", ctx.Err()))
		}
	}
	return err
}

// Close closes the port and all connections. It waits for the server's
// background goroutines: snapshots that a client asked for, outboxes, and the
// monitor of a Sentinel.
func (s *Server) Close() error {
	s.refuseWork()
	err := s.port.guard.Close()
	s.port.release.Do(func() { close(s.port.released) })
	for _, c := range s.connections() {
		err = errors.Join(err, ignoreClosed(c.net.Close()))
	}
	<-s.port.served
	s.life.background.Wait()
	return ignoreClosed(err)
}

// Wait waits for the goroutine that runs bootstrapUsers. Close does not wait
// for this goroutine, because it may end only when the cluster is closed. So
// call Wait after both the server and the cluster have been closed.
func (s *Server) Wait() { s.life.users.Wait() }

// refuseWork makes handle refuse pipelines, and ends pauses and sleeps.
func (s *Server) refuseWork() {
	if !s.life.closing.Swap(true) {
		close(s.life.stopping)
		s.life.stop()
	}
}

// enter counts a pipeline and returns true, unless the server is stopping. It
// increments busy before it reads closing, and refuseWork sets closing before
// Stop reads busy. So Stop waits for every pipeline that enter has admitted.
func (s *Server) enter() bool {
	s.life.busy.Add(1)
	if s.life.closing.Load() {
		s.leave()
		return false
	}
	return true
}

func (s *Server) leave() {
	if s.life.busy.Add(-1) == 0 && s.life.closing.Load() {
		select {
		case s.life.idle <- struct{}{}:
		default:
		}
	}
}

// connections returns the open connections, oldest first.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		conns = append(conns, c)
	}
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return conns
}

// hubConfig returns the configuration of the hub.
func (s *Server) hubConfig() pubsub.Config {
	cfg := pubsub.Config{
		MaxBytes:     s.cfg.Limits.SubscriptionBytes,
		PatternSteps: s.cfg.Limits.PatternSteps,
		Find: func(id uint64) *pubsub.Subscriber {
			if c := s.connection(id); c != nil {
				return c.sub
			}
			return nil
		},
		Refused:       func() { s.metrics.Refused.WithLabelValues("pattern_steps").Inc() },
		Logger:        s.log,
		Published:     s.metrics.Published,
		Delivered:     s.metrics.Delivered,
		Invalidations: s.metrics.Invalidations,
	}
	if s.cfg.Mode != Sentinel {
		cfg.Want = s.cluster.Want
	}
	return cfg
}

// connection returns the open connection with an id, or nil.
func (s *Server) connection(id uint64) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) accept(rc redcon.Conn) bool {
	if s.life.closing.Load() {
		return false
	}
	c := newConn(s, rc)
	rc.SetContext(c)
	s.mu.Lock()
	s.conns[c.id] = c
	s.mu.Unlock()
	_ = c.applyUser() // the users may have changed after newConn read them
	s.metrics.Connections.Inc()
	s.metrics.Accepted.Add(1)
	return true
}

func (s *Server) closed(rc redcon.Conn, err error) {
	c, ok := rc.Context().(*conn)
	if !ok {
		return
	}
	s.mu.Lock()
	delete(s.conns, c.id)
	s.mu.Unlock()
	s.depart(c)
	if err != nil {
		s.log.Debug("connection ended", "client", c.id, "addr", rc.RemoteAddr(), "error", err)
	}
}

// depart releases what a closed connection holds. redcon calls closed with the lock
// with which it accepts connections, and it may take seconds to remove a connection
// with 100,000 subscriptions. So depart does not wait for this, unless the limit
// maxDepartures is reached: clients that subscribe faster than the node removes
// their subscriptions must wait. The memory stays charged to the connection until
// then.
func (s *Server) depart(c *conn) {
	release := func() {
		s.hub.Leave(c.sub)
		c.monitorEnd()
		c.out.Close()
		c.mem.End()
	}
	if !s.enter() {
		release()
		return
	}
	defer s.leave()
	select {
	case s.life.departures <- struct{}{}:
		s.life.background.Go(func() {
			defer func() { <-s.life.departures }()
			release()
		})
	default:
		release()
	}
}

// handle executes a pipeline. redcon calls it with the first command of the
// pipeline; handle reads the others.
func (s *Server) handle(rc redcon.Conn, first redcon.Command) {
	c := rc.Context().(*conn)
	if !s.enter() {
		c.hangUp()
		return
	}
	defer s.leave()
	defer c.recover()
	c.serve(first, rc.ReadPipeline())
}

// hooks returns the guard's hooks. They count and log refusals, protocol errors,
// missed deadlines and errors of Accept.
func (s *Server) hooks() guard.Hooks {
	return guard.Hooks{
		ProtocolError: func(g *guard.Conn, reason string) {
			s.refusal("protocol", "protocol error", "addr", g.RemoteAddr(), "reason", reason)
		},
		CrossProtocol: func(g *guard.Conn) {
			s.refusal("http", "client sent HTTP: a web page may be attacking this port through a browser",
				"addr", g.RemoteAddr())
		},
		Timeout: func(g *guard.Conn, kind string) {
			s.refusal(strings.ReplaceAll(kind, " ", "_")+"_timeout", "client missed a deadline",
				"addr", g.RemoteAddr(), "kind", kind)
		},
		TooMuchAhead: func(g *guard.Conn, bytes int) {
			s.refusal("waiting_input", "closed a client that sent too much while its command waited",
				"addr", g.RemoteAddr(), "bytes", bytes)
		},
		Refused: func(addr net.Addr, unauth bool) {
			s.metrics.Unserved.Add(1)
			reason := "max_clients"
			if unauth {
				reason = "max_unauthenticated"
			}
			s.refusal(reason, "connection refused or closed because of a limit", "addr", addr, "limit", reason)
		},
		AcceptError: func(err error, pause time.Duration) {
			s.refusal("accept", "cannot accept a connection", "error", err, "pause", pause)
		},
	}
}

// refusal counts an event that clients can cause any number of times, and logs it
// at most once a second for each reason: see warn.
func (s *Server) refusal(reason, message string, pairs ...any) {
	s.metrics.Refused.WithLabelValues(reason).Inc()
	s.warn(reason, message, pairs...)
}

// warn logs at most one line per second for each reason. The line says how many
// lines for the same reason were suppressed since the line before it.
func (s *Server) warn(reason, message string, pairs ...any) {
	if left, ok := s.logLimiter.allow(reason, time.Now()); ok {
		s.log.Warn(message, append(pairs, "suppressed", left)...)
	}
}

// logInterval is the minimum time between two log lines for the same reason.
const logInterval = time.Second

// logLimiter stores, for each reason, when a line was last logged and how many
// lines have been suppressed since. The number of reasons is fixed. It is safe
// for concurrent use.
type logLimiter struct {
	mu   sync.Mutex
	last map[string]time.Time
	left map[string]int
}

// allow reports whether a line for a reason may be logged now, and how many lines
// for that reason have been suppressed since the last logged one.
func (q *logLimiter) allow(reason string, now time.Time) (left int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == nil {
		q.last, q.left = make(map[string]time.Time), make(map[string]int)
	}
	if last, seen := q.last[reason]; seen && now.Sub(last) < logInterval {
		q.left[reason]++
		return 0, false
	}
	left = q.left[reason]
	q.last[reason], q.left[reason] = now, 0
	return left, true
}

// Mode is the kind of server that a port presents to clients that find the
// leader by themselves.
type Mode int

const (
	// Standalone is a plain server. Every node calls itself a master, because
	// every node accepts writes.
	Standalone Mode = iota
	// Monitored is a plain server with a Sentinel port next to it. The leader
	// calls itself a master, and the followers call themselves its replicas.
	// All of them still accept writes.
	Monitored
	// Clustered is a node of a Redis Cluster with one shard. The followers
	// redirect commands with keys to the leader, except for reads after
	// READONLY.
	Clustered
	// Sentinel is a Redis Sentinel. It has no commands on data.
	Sentinel
)

// String returns the name that INFO and HELLO print.
func (m Mode) String() string {
	switch m {
	case Clustered:
		return "cluster"
	case Sentinel:
		return "sentinel"
	}
	return "standalone"
}
