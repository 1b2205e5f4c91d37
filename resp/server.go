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
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// RedisVersion is the Redis whose behaviour this server promises; clients
// choose their code paths by it.
const RedisVersion = "7.0.15"

// Executor runs groups for one connection, one at a time.
type Executor interface {
	// Do runs a group and returns the replies of its operations one after the
	// other, valid until the next Do. local allows stale reads from this node.
	// Errors are those that errors.go translates. early, unless nil, may be called
	// once with what Do is about to return, on another goroutine, which it must not
	// block.
	Do(g *fsm.Group, local bool, early func(replies []byte)) ([]byte, error)
	// Block runs a group whose only operation is a blocking command of connection
	// origin. If fsm.Waiting reads the reply, the command waits, and the connection
	// must hear from Waited, or call Unblock or Abandon, before it goes on. If own is
	// set, the reply comes when this node has applied the entry that served the
	// command: then ToldOwn waits for the events of that entry too.
	Block(g *fsm.Group, origin uint64, own bool) ([]byte, error)
	// Sent returns the numbers of the first and the last group that the last call of
	// Do, Block or Unblock sent through the log; they differ if the group was run in
	// pieces. Both are 0 if it sent none.
	Sent() (first, last uint64)
	// Waited returns the channel on which the reply comes when the present wait is
	// served, or nil when the command has to be run again.
	Waited() <-chan []byte
	// Unblock ends the present wait. The reply is not nil if it had been served.
	Unblock() ([]byte, error)
	// Abandon ends the present wait of a client that is gone.
	Abandon()
}

// Cluster is what the server asks of the node behind it. Calls may come from
// any goroutine.
type Cluster interface {
	NewExecutor() Executor
	// Listen has l told of what the log does on this node, and Want says which
	// kinds of events l is to be told of from then on.
	Listen(l Listener)
	Want(kinds fsm.EventKinds)
	// Told has f called once l has been told of all that the log holds up to index,
	// or will be told nothing more. f must not block.
	Told(index uint64, f func())
	// ToldOwn has f called once l has been told of all that the groups of this node
	// up to a number did (see Executor.Sent), or will be told nothing more. f is
	// given where in the log that group is: the index of its entry and its position
	// in the entry (fsm.Event.Group). The index is 0 if that is not known.
	ToldOwn(group uint64, f func(index uint64, position int))
	// FeatureVersion is the feature version of the cluster. It is exact if it is less
	// than need, and may have to wait for the leader then.
	FeatureVersion(need int) int
	// State is this node's view of the cluster, for INFO, ROLE and WAIT.
	State() State
	// Admin runs one of the HOLDFAST subcommands that concern the cluster and
	// returns what it prints.
	Admin(ctx context.Context, args []string) (string, error)
	// WatchUsers calls f with the ACL users of this node's state, at once and with
	// each change; perhaps with an older table after a newer one.
	WatchUsers(f func(*fsm.Users))
	// WatchDenials has f told of what scripts that this node runs were denied.
	WatchDenials(f func(user string, v acl.Verdict))
}

// State is what INFO and its like print of the cluster.
type State struct {
	NodeID, ClusterID, Role, Leader string
	Term, Commit, Applied           uint64
	// Replicas are the nodes whose acknowledgement every write has waited for,
	// as ip, port; WAIT answers their number.
	Replicas []Replica
	Ready    bool
	Version  string

	Keys       [fsm.Databases]DBState
	Expired    uint64
	Operations uint64
	// Scripts are those in the cache, and the bytes that they take.
	Scripts, ScriptBytes int
	// Libraries are those of functions, and the bytes that they take.
	Libraries, Functions, LibraryBytes int
	LogBytes                           int64
}

// DBState counts one database.
type DBState struct{ Keys, Volatile int }

// Replica is a node that a write has reached before it is acknowledged.
type Replica struct{ Host, Port string }

// Config is what a server is started with.
type Config struct {
	Addr        string // client port
	RequirePass string // of the default user, as long as nobody has changed it; "" for none
	// Users are those of --acl-file: the first of a cluster that has none.
	Users    []*acl.User
	DataDir  string // CONFIG GET dir prints it
	Limits   Limits
	Logger   hclog.Logger
	Listener net.Listener // in place of Addr, for tests

	// Mode is what the port pretends to be. All but Standalone need a Topology.
	Mode     Mode
	Topology Topology
	// MasterName is what a Sentinel calls the leader.
	MasterName string
	// Shutdown asks the program to stop this node in good order, and returns at once:
	// SHUTDOWN. It may be called more than once. nil: SHUTDOWN fails.
	Shutdown func()
	// RunID names this run of the process, in 40 hex digits; "" for a new one.
	RunID string
}

// Server is the client port.
type Server struct {
	cfg     Config
	log     hclog.Logger
	cluster Cluster
	table   *fsm.Table
	rows    map[string]*row
	metrics *Metrics
	hub     *hub
	feed    feed
	slowlog slowlog
	spikes  spikes

	// Rows of the machine's table that the server itself uses: see forLog and
	// position.
	publish, spublish, publishRow, spublishRow, positionRow, sort, sortRO *fsm.Command

	guard   *GuardListener
	redcon  *redcon.Server
	served  chan struct{}
	started time.Time
	runID   string
	port    int

	nextID   atomic.Uint64
	closing  atomic.Bool
	stopping chan struct{} // closed with closing: ends pauses and sleeps
	busy     atomic.Int64  // connections that are executing a pipeline
	idle     chan struct{} // capacity 1: busy came down to 0 while closing
	released chan struct{} // closed by Close: see heldListener
	release  sync.Once
	behind   sync.WaitGroup // BGSAVE, outboxes, monitor.run, sow
	saving   atomic.Bool
	blocked  atomic.Int64 // connections whose command waits

	machine      *fsm.Table // the table, of a Sentinel too: for the internal commands
	catalog      *acl.Catalog
	seed         []fsm.User // of Config.Users, sorted by name
	usersMu      sync.Mutex // held while another set of users is installed
	users        atomic.Pointer[userSet]
	acllog       aclLog
	logins       loginThrottle
	openChannels atomic.Bool // acl-pubsub-default allchannels

	monitor *monitor // of a Sentinel, else nil

	maxHear time.Duration // maxHear, but for tests

	pause atomic.Pointer[pause] // nil when clients are not paused
	quiet quiet
	ctx   context.Context // ends with stopping
	stop  context.CancelFunc
	saved atomic.Int64 // unix seconds of the last snapshot asked for by a client

	mu    sync.Mutex
	conns map[uint64]*conn
	rpass string // what CONFIG GET requirepass prints: see requirePass
}

// NewRunID returns a name for a run of the process.
func NewRunID() string {
	var id [20]byte
	rand.Read(id[:]) // never fails: see crypto/rand
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
	machine := table
	var rows map[string]*row
	if cfg.Mode == Sentinel {
		table = &fsm.Table{}
		rows = indexRows(table, sentinelFamilies())
	} else {
		rows = sessionTable(table)
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, cluster: cluster, table: table, rows: rows,
		metrics: newMetrics(table, rows), served: make(chan struct{}), started: time.Now(), runID: cfg.RunID,
		stopping: make(chan struct{}), released: make(chan struct{}), idle: make(chan struct{}, 1),
		conns: make(map[uint64]*conn), rpass: cfg.RequirePass,
		machine: machine, catalog: NewCatalog(machine), seed: seedOf(cfg.Users), acllog: aclLog{max: aclLogMax},
		maxHear: maxHear,
	}
	s.slowlog.max = startSlowlog
	s.slowlog.than.Store(startSlowerThan)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.saved.Store(s.started.Unix())
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		s.port = a.Port
	}
	s.publish, s.spublish = table.Find([]byte("publish")), table.Find([]byte("spublish"))
	s.publishRow, s.spublishRow = table.Find([]byte(fsm.PublishCommand)), table.Find([]byte(fsm.SpublishCommand))
	s.positionRow = table.Find([]byte(fsm.PositionCommand))
	s.sort, s.sortRO = table.Find([]byte("sort")), table.Find([]byte("sort_ro"))
	s.hub = newHub(s)
	s.metrics.hub = s.hub
	if cfg.Mode == Sentinel { // has messages of its own only
		s.hub.local = true
	} else {
		cluster.Listen(s.hub)
	}
	cluster.WatchUsers(s.install)
	s.noticePassword(s.users.Load())
	if cfg.Mode != Sentinel {
		cluster.WatchDenials(s.acllog.script)
	}
	if len(s.seed) > 0 && cfg.Mode != Sentinel {
		s.behind.Go(s.sow)
	}
	s.guard = NewGuardListener(ln, cfg.Limits, s.hooks())
	s.metrics.open, s.metrics.blocked = s.guard.Open, s.blocked.Load
	s.redcon = redcon.NewServerNetwork("tcp", cfg.Addr, s.handle, s.accept, s.closed)
	if cfg.Mode == Sentinel {
		s.monitor = &monitor{name: cfg.MasterName, topology: cfg.Topology, publish: s.hub.announce}
		s.behind.Go(func() { s.monitor.run(s.ctx) })
	}
	go func() {
		defer close(s.served)
		if err := s.redcon.Serve(heldListener{s.guard, s.released}); err != nil && !s.closing.Load() {
			s.log.Error("client port closed", "error", err)
		}
	}()
	return s, nil
}

// heldListener keeps redcon from seeing that the port is closed before Close: it
// would close all connections at once, and Stop has promised them an answer.
type heldListener struct {
	*GuardListener
	released <-chan struct{}
}

// Accept implements net.Listener.
func (l heldListener) Accept() (net.Conn, error) {
	c, err := l.GuardListener.Accept()
	if err != nil {
		<-l.released
	}
	return c, err
}

// Addr returns the address of the client port.
func (s *Server) Addr() net.Addr { return s.guard.Addr() }

// Metrics returns the server's measurements.
func (s *Server) Metrics() *Metrics { return s.metrics }

// Stop refuses new connections and new pipelines, and waits until those being
// executed are answered or ctx is done. Pauses and sleeps end early.
func (s *Server) Stop(ctx context.Context) error {
	s.refuseWork()
	err := s.guard.Close()
	for s.busy.Load() > 0 {
		select {
		case <-s.idle:
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("clients still waiting: %w", ctx.Err()))
		}
	}
	return err
}

// Close closes the port and all connections, and waits for a snapshot that a
// client asked for, and for a Sentinel's monitor.
func (s *Server) Close() error {
	s.refuseWork()
	err := s.guard.Close()
	s.release.Do(func() { close(s.released) })
	for _, c := range s.connections() {
		err = errors.Join(err, ignoreClosed(c.net.Close()))
	}
	<-s.served
	s.behind.Wait()
	return ignoreClosed(err)
}

// refuseWork makes handle turn pipelines away.
func (s *Server) refuseWork() {
	if !s.closing.Swap(true) {
		close(s.stopping)
		s.stop()
	}
}

// enter counts a pipeline in, unless the server is stopping. Of a pipeline and
// a Stop at the same moment, one sees the other.
func (s *Server) enter() bool {
	s.busy.Add(1)
	if s.closing.Load() {
		s.leave()
		return false
	}
	return true
}

func (s *Server) leave() {
	if s.busy.Add(-1) == 0 && s.closing.Load() {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// connections returns the open connections in the order in which they came.
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

// connection returns the open connection with a number, or nil.
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
	if s.closing.Load() {
		return false
	}
	c := newConn(s, rc)
	rc.SetContext(c)
	s.mu.Lock()
	s.conns[c.id] = c
	s.mu.Unlock()
	c.settle() // the users may have changed since newConn looked at them
	s.metrics.Connections.Inc()
	s.metrics.connections.Add(1)
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
	s.hub.leave(c)
	c.monitorEnd()
	c.out.close()
	if err != nil {
		s.log.Debug("connection ended", "client", c.id, "addr", rc.RemoteAddr(), "error", err)
	}
}

// handle is called by redcon with the first command of a pipeline; the rest of
// it is taken here.
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
