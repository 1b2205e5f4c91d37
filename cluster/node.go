package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/clientid"
	"github.com/holdfast-kv/holdfast/cluster/events"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/cluster/transport"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// Node is one member of a cluster. Its methods are safe for concurrent use.
type Node struct {
	*environment
	parts

	started time.Time          // by the wall clock
	cancel  context.CancelFunc // ends environment.ctx
	wg      sync.WaitGroup     // the node's goroutines: see Open and startRaft

	notify chan bool // raft reports gained and lost leadership here, in order
	// capacity 1: the leader has changed, or a leadership has opened
	leaderChanged chan struct{}

	leading  leading // the leader that the forwarder is connected to
	watchers watchers

	mu         sync.Mutex // guards the fields below
	leadership *leadership
	phase      string // what the node waits for until it has joined; "" afterwards
}

// environment is what all parts of a node share. Its fields do not change after
// Open.
type environment struct {
	cfg     *Config
	log     hclog.Logger
	clock   Clock
	self    raft.ServerID
	session fsm.SessionID // of this start of the node
	stats   *Counters
	stores  Stores
	table   *fsm.Table

	ctx   context.Context // ends when Close begins
	fatal func(error)     // reports the error that ends the node; later calls do nothing

	stopping atomic.Bool // HandOver has begun: this node must not become leader
	closing  atomic.Bool // Close has begun
}

// parts are the objects that a node connects. Open makes all of them.
type parts struct {
	raft      *raftInstance
	raftLog   *raftlog.Log
	machine   *machine.Machine
	snapshots *snapshotter
	events    *events.Queue

	forwarder *forwarder
	reads     *readHost
	scripts   *scriptHost
	waits     *waits
	clientIDs *clientid.Allocator

	mux    *rpc.Mux
	peers  *peers
	health *healthBook

	former    *former
	members   *membership
	transfers *transfers
	failover  *campaigner
}

// Open opens the data directory and the peer port, starts the node, and
// returns. The node forms or joins the cluster in the background; see Ready.
func Open(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	env, err := newEnvironment(ctx, &cfg)
	if err != nil {
		cancel()
		return nil, err
	}
	n := &Node{
		environment:   env,
		cancel:        cancel,
		started:       cfg.Clock.Wall(),
		notify:        make(chan bool, 16),
		leaderChanged: make(chan struct{}, 1),
		phase:         "starting",
	}
	n.raft = &raftInstance{environment: env}
	n.health = newHealthBook(n.clock.Wall, n.watchers.signal)
	n.former, n.failover = &former{n}, &campaigner{n}
	n.members, n.transfers = newMembership(n), &transfers{node: n}
	n.raftLog = n.openRaftLog()
	n.events = events.NewQueue(n.session)
	n.machine = n.newMachine()
	n.snapshots = &snapshotter{environment: env, raft: n.raft, machine: n.machine}
	n.forwarder = newForwarder(env)
	n.scripts = newScriptHost(env, n.machine)
	n.reads = newReadHost(env, n.machine)
	n.waits = newWaits(n.machine, n.forwarder)
	n.clientIDs = clientid.New(n.session, n.reserveClientIDs)

	rcfg := rpc.DefaultConfig()
	rcfg.BindAddr, rcfg.AdvertiseAddr = cfg.PeerAddr, cfg.AdvertisePeerAddr
	rcfg.Self = func() rpc.Hello { return helloOf(n.stores) }
	rcfg.Authorize = n.authorize
	rcfg.Verify = n.sameCluster
	book := addressBook{n.cfg, n.raft.running}
	rcfg.RaftPeer = book.idAt
	rcfg.MaxFrame = 64 << 20
	rcfg.Secret, rcfg.SecretOptional = cfg.Secret, cfg.SecretOptional
	rcfg.Listener, rcfg.Dialer = cfg.PeerListener, cfg.PeerDialer
	rcfg.Logger = n.log.Named("rpc")
	if n.mux, err = rpc.Listen(rcfg); err != nil {
		n.cancel()
		n.raftLog.Close()
		return nil, errors.Join(fmt.Errorf("cannot bind peer address %s: %w", cfg.PeerAddr, err), n.stores.Close())
	}
	n.peers = &peers{book, n.mux, n.ctx}
	n.mux.Handle(rpc.ServiceAdmin, n.serveAdmin)
	n.wg.Add(2)
	go n.run()
	// started now: a command must not wait forever for a cluster that does not
	// form
	go n.sweepCalls()
	return n, nil
}

// newEnvironment opens the data directory. ctx must end when the node closes.
func newEnvironment(ctx context.Context, cfg *Config) (*environment, error) {
	e := &environment{
		cfg:   cfg,
		log:   cfg.Logger,
		clock: cfg.Clock,
		self:  raft.ServerID(cfg.NodeID),
		stats: newCounters(),
		table: fsm.NewTable(),
		ctx:   ctx,
	}
	var once sync.Once
	e.fatal = func(err error) {
		once.Do(func() {
			e.log.Error("node cannot go on", "error", err)
			if cfg.Fatal != nil {
				cfg.Fatal(err)
			}
		})
	}
	var err error
	e.stores, err = cfg.OpenStores(storage.Config{
		Dir:          cfg.DataDir,
		NodeID:       cfg.NodeID,
		LogKind:      cfg.LogStore,
		SegmentBytes: cfg.Options.SegmentBytes,
		StallAfter:   cfg.Options.StallTimeout,
		Logger:       e.log.Named("storage"),
		Fatal:        e.fatal,
		Observe: func(op string, d time.Duration, bytes int) {
			e.stats.DiskSeconds.WithLabelValues(op).Observe(d.Seconds())
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	e.session = sessionOf(helloOf(e.stores))
	return e, nil
}

// run forms or joins the cluster and starts raft.
func (n *Node) run() {
	defer n.wg.Done()
	bootstrap, err := n.former.form()
	if err != nil {
		if n.ctx.Err() == nil {
			n.fatal(err)
		}
		return
	}
	if err := n.startRaft(bootstrap); err != nil && n.ctx.Err() == nil {
		n.fatal(err)
	}
}

// openRaftLog returns what raft must not forget, over the stores of the data
// directory.
func (n *Node) openRaftLog() *raftlog.Log {
	return raftlog.Open(raftlog.Config{
		Entries:   n.stores.Log(),
		Stable:    n.stores.Stable(),
		Snapshots: n.stores.Snapshots(),
		Table:     n.table,
		Leads:     n.raft.leads,
		Joined: func() (term uint64, joins bool) {
			id := n.stores.Identity()
			return id.JoinTerm, id.Joins
		},
		Settling: n.raft.settling,
		Refused:  func(err error) { n.snapshots.done(err) },
		Fatal:    n.fatal,
	})
}

// newMachine returns the state machine of this node. Its functions are called
// once raft runs.
func (n *Node) newMachine() *machine.Machine {
	return machine.New(machine.Config{
		Table:       n.table,
		Features:    n.cfg.Features,
		Log:         n.raftLog,
		Events:      n.events,
		Mono:        n.clock.Mono,
		Metrics:     machine.Metrics{Seconds: n.stats.ApplySeconds, Steps: n.stats.ApplySteps, Slow: n.stats.SlowEntries},
		Logger:      n.log,
		Applied:     n.onApply,
		TermStarted: n.onTermStart,
		Restored: func() {
			n.waits.restored()
			n.snapshots.done(nil)
		},
		Newer: func(err error) {
			n.log.Error("this node cannot read the leader's snapshot and stays behind: "+
				"upgrade this node to the version of the leader", "this_version", n.cfg.Version, "error", err)
		},
		Fatal: n.fatal,
	})
}

// newTransport returns the transport that raft uses.
func (n *Node) newTransport() *transport.Transport {
	self := raft.ServerAddress(n.cfg.AdvertisePeerAddr)
	return transport.New(n.ctx, transport.Config{
		Mux:          n.mux,
		Addresses:    n.peers,
		Self:         n.self,
		SelfAddr:     n.peers.addressOf(n.self, self),
		Leads:        n.raft.leadsTerm,
		ReplicatesTo: n.raft.replicatesTo,
		Durable:      n.raftLog.Durable,
		Closing:      n.closing.Load,
		Logger:       n.log.Named("transport"),
	})
}

// startRaft starts raft, and the goroutines that need it. If bootstrap is not
// nil, this node forms the cluster with that configuration.
func (n *Node) startRaft(bootstrap *raft.Configuration) error {
	trans := n.newTransport()
	r, err := n.newRaft(bootstrap, trans)
	if err != nil {
		return errors.Join(err, trans.Close())
	}
	if !n.raft.run(r, trans) {
		return r.Shutdown().Error()
	}
	n.mu.Lock()
	n.phase = ""
	n.mu.Unlock()
	observations := make(chan raft.Observation, 16)
	r.RegisterObserver(raft.NewObserver(observations, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	n.mux.Handle(rpc.ServiceWrite, n.serveWrite)
	n.mux.Handle(rpc.ServiceRead, n.serveRead)
	n.wg.Add(4)
	go n.watchLeadership()
	go n.watchLeader(observations)
	go n.keepLinked()
	go n.members.keepMembers()
	n.wg.Go(n.snapshots.keep)
	n.wg.Go(func() { n.health.keep(n.ctx, n.ClusterStatus) })
	return nil
}

// newRaft creates raft on this node's log, from which raft restores the state.
func (n *Node) newRaft(bootstrap *raft.Configuration, messages *transport.Transport) (*raft.Raft, error) {
	rc := n.cfg.raftConfig(n.notify, transport.RaftLogger(n.log.Named("raft")))
	log, snaps := n.raftLog.Entries(), n.raftLog.Snapshots()
	own, err := snaps.List()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	if len(own) > 0 {
		n.machine.Starting()
	}
	if bootstrap != nil {
		if err := raft.BootstrapCluster(rc, log, n.raftLog.Founding(), snaps, messages, *bootstrap); err != nil {
			return nil, fmt.Errorf("form cluster: %w", err)
		}
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	if len(own) > 0 {
		last = max(last, own[0].Index)
	}
	var trans raft.Transport = messages
	if last < n.stores.Identity().JoinIndex { // the node is settling
		silent := messages.Silent(n.raft.settling)
		n.wg.Go(func() { silent.Run(n.ctx) })
		trans = silent
	}
	r, err := raft.NewRaft(rc, n.machine, log, n.raftLog.Stable(), snaps, trans)
	if err != nil {
		if unread := n.machine.Unread(); unread != nil { // raft only says that no snapshot could be read
			err = fmt.Errorf("%w: %w", err, unread)
		}
		return nil, fmt.Errorf("start raft: %w", err)
	}
	return r, nil
}

// HandOver transfers leadership to another voter if this node leads. It returns
// when the groups of this node's clients have their outcome, from the new
// leader if necessary, or when ctx ends. Call it before Close.
func (n *Node) HandOver(ctx context.Context) {
	r := n.raft.running()
	if r == nil {
		return
	}
	n.stopping.Store(true)
	if r.State() == raft.Leader && n.raft.voters() > 1 {
		n.transfers.giveUpLeadership(ctx)
	}
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !n.forwarder.drained() {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close stops the node and waits for its goroutines. Groups in flight end with
// outcome.ErrClosed or outcome.ErrUnknown.
func (n *Node) Close() error {
	n.closing.Store(true)
	n.forwarder.close()
	n.cancel() // before the next two lines: see raftInstance.run and onTermStart
	r := n.raft.running()
	n.closeLeadership()
	var errs []error
	var down raft.Future
	if r != nil {
		down = r.Shutdown()
	}
	// raft waits for its calls in progress, so close their connections first.
	// Otherwise a node that cannot be reached would delay Close for seconds.
	errs = append(errs, n.mux.Close())
	if down != nil {
		errs = append(errs, down.Error())
	}
	n.machine.Stop()
	n.wg.Wait()
	n.raftLog.Close()
	errs = append(errs, n.stores.Close())
	return errors.Join(errs...)
}

// ClientID returns the number for a new connection. Once this start of the node
// has reserved its first block of numbers, they ascend.
func (n *Node) ClientID() uint64 { return n.clientIDs.Take() }

// reserveClientIDs implements clientid.Reserve.
func (n *Node) reserveClientIDs(count uint64) *clientid.Reservation {
	if n.Features() < fsm.FeatureBudget {
		return nil
	}
	c := n.forwarder.command(n.table, [][]byte{[]byte(fsm.ClientIDsCommand), decimal(count)})
	return &clientid.Reservation{Done: c.done, Result: func() ([]byte, error) { return c.reply, c.err }}
}

// ID returns the name of this node.
func (n *Node) ID() string { return n.cfg.NodeID }

// ClusterID returns the id of the cluster. It is "" before the node belongs to
// one.
func (n *Node) ClusterID() string { return n.stores.Identity().ClusterID }

// Table returns the command table.
func (n *Node) Table() *fsm.Table { return n.table }

// View calls f with the state machine under the read lock. f must be short and
// must not keep m.
func (n *Node) View(f func(m *fsm.Machine)) { n.machine.View(f) }

// Snapshot takes a snapshot of this node's state now and truncates its log.
func (n *Node) Snapshot() error {
	if n.raft.running() == nil {
		return outcome.ErrNoLeader
	}
	return n.snapshots.snapshot()
}

// Collectors returns the node's metrics.
func (n *Node) Collectors() []prometheus.Collector {
	return append(n.stats.collectors(), nodeCollector{n})
}

// sweepCalls ends the calls that have waited too long, and removes the waits
// that are over. It runs until the node stops.
func (n *Node) sweepCalls() {
	defer n.wg.Done()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-sweep.C:
			n.forwarder.sweep()
			n.waits.sweep()
			n.clientIDs.Sweep()
		}
	}
}
