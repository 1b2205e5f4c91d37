package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/clientid"
	"github.com/holdfast-kv/holdfast/cluster/diskspace"
	"github.com/holdfast-kv/holdfast/cluster/events"
	"github.com/holdfast-kv/holdfast/cluster/execution"
	"github.com/holdfast-kv/holdfast/cluster/failover"
	"github.com/holdfast-kv/holdfast/cluster/features"
	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/history"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/metrics"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/cluster/snapshot"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/cluster/trace"
	"github.com/holdfast-kv/holdfast/cluster/transport"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/rpc"
)

// Node is one node of a cluster. Its methods are safe for concurrent use.
//
// The parts do the work. Node makes them, starts and stops them, and passes
// calls on to them.
type Node struct {
	*environment
	parts

	cancel context.CancelFunc // ends environment.ctx
	wg     sync.WaitGroup     // the node's goroutines: see the package comment
}

// environment contains the fields that all parts of a node share. They do not
// change after Open, except traces, stopping and closing.
type environment struct {
	cfg     *Config
	log     hclog.Logger
	clock   Clock
	self    raft.ServerID
	session fsm.SessionID // identifies the session of this start of the node
	stats   *metrics.Counters
	stores  Stores
	table   *fsm.Table
	traces  trace.Slot

	ctx   context.Context // ends when Close begins
	fatal func(error)     // reports the error that ends the node; later calls do nothing

	stopping atomic.Bool // HandOver has begun: this node must not become leader
	closing  atomic.Bool // Close has begun
}

// parts are the objects that a node connects. Open makes all of them. Each part
// has its own state and its own lock, and no part uses the lock of another.
type parts struct {
	raft    *raftInstance
	raftLog *raftlog.Log
	machine *machine.Machine
	snapshotParts
	events *events.Queue

	forwarder *forwarder
	reads     *execution.Reads
	scripts   *execution.Scripts
	waits     *waits
	clientIDs *clientid.Allocator

	mux     *rpc.Mux
	peers   *peers
	admin   *admin
	streams *streamServer

	leaderships *leaderships
	leading     *leading
	linker      *linker
	failover    *failover.Campaigner
	transfers   *transfers

	founder  *founder
	members  *membership
	features *features.Features
	status   *statusReporter
	health   *health.Book
	disk     *diskspace.Monitor
}

// snapshotParts are the parts that take snapshots, stream backups and keep the
// history of locks. The node uses replay to log restores and quarantines, and
// expiries to report expired leases: see WatchExpiries.
type snapshotParts struct {
	replay    replay
	snapshots *snapshot.Taker
	backups   *snapshot.Backups // for clients
	history   *history.Store    // nil if the node keeps no history of locks
	expiries  atomic.Pointer[func(fsm.LockEvent)]
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
	n := &Node{environment: env, cancel: cancel}
	n.raft = &raftInstance{environment: env}
	n.disk = n.newDiskMonitor()
	n.raftLog = n.openRaftLog()
	n.events = events.NewQueue(n.session)
	n.history = n.openHistory()
	n.machine = n.newMachine()
	n.forwarder = newForwarder(env)
	n.scripts = n.newScripts()
	n.reads = n.newReads()
	n.waits = newWaits(n.machine, n.forwarder)
	n.clientIDs = newClientIDs(env, n.machine, n.forwarder)
	n.snapshots = n.newSnapshotTaker()
	n.backups = snapshot.NewBackups(n.cfg.NodeID, n.machine, n.log)
	if err := n.listen(); err != nil {
		n.cancel()
		n.raftLog.Close()
		n.closeHistory()
		return nil, errors.Join(fmt.Errorf("cannot bind peer address %s: %w (is another node running? choose another "+
			"--peer-addr)", cfg.PeerAddr, err), n.stores.Close())
	}
	n.connect()
	n.mux.Handle(rpc.ServiceAdmin, n.admin.serve)
	n.wg.Go(n.run)
	// Sweeping starts now, because a command must not wait forever for a cluster
	// that does not form.
	n.wg.Go(n.sweep)
	return n, nil
}

// listen opens the peer port.
func (n *Node) listen() error {
	greeter := handshake{n.environment, n.raft}
	book := addressBook{n.cfg, n.raft}
	rc := rpc.DefaultConfig()
	rc.BindAddr, rc.AdvertiseAddr = n.cfg.PeerAddr, n.cfg.AdvertisePeerAddr
	rc.Self = greeter.hello
	rc.Authorize = greeter.authorize
	rc.Verify = greeter.sameCluster
	rc.RaftPeer = book.idAt
	rc.ClientHint = "this is the peer port of " + n.cfg.NodeID + ", for other nodes"
	if n.cfg.ClientAddr != "" {
		rc.ClientHint += ": use its client port, " + n.cfg.ClientAddr
	}
	// The handshake must time out before a request of peers.ask does, so that
	// the request fails with the error of the handshake, which contains the
	// reason: see environment.absence.
	rc.HandshakeTimeout = adminTimeout - time.Second
	// The frame must have room for the largest replies of a group (see
	// fsm.ReplyTooLarge), and the queue for the frames behind them: the leader
	// closes a write stream whose queue is full. Programs that do not know
	// fsm.FeatureReplies accept frames of at most 64 MiB. No larger frame is sent to
	// them, because below this feature version the replies of a group are smaller.
	rc.MaxFrame, rc.MaxQueue = 4*fsm.MaxReplyBytes, 4*fsm.MaxReplyBytes
	rc.Secret, rc.PreviousSecret, rc.SecretOptional = n.cfg.Secret, n.cfg.PreviousSecret, n.cfg.SecretOptional
	rc.Listener, rc.Dialer = n.cfg.PeerListener, n.cfg.PeerDialer
	rc.Logger = n.log.Named("rpc")
	mux, err := rpc.Listen(rc)
	if err != nil {
		return err
	}
	n.mux, n.peers = mux, &peers{addressBook: book, mux: mux, ctx: n.ctx}
	return nil
}

// connect makes the parts of this node that Open has not made before. Each part
// is made after the parts that it uses, except that the statusReporter gets its
// removalWatch later.
func (n *Node) connect() {
	env := n.environment
	n.leading = &leading{}
	n.health = health.NewBook(n.clock.Wall, n.leading.watchers.signal)
	n.features = features.New(features.Config{
		Known: n.cfg.Features, Version: n.cfg.Version, Machine: n.machine, Logger: n.log,
		Barrier: func() error { return n.raft.await(n.ctx, n.raft.running().Barrier(0)) },
	})
	n.leaderships = &leaderships{
		environment: env, raft: n.raft, features: n.features, waits: n.waits,
		notify: make(chan bool, 16), changed: make(chan struct{}, 1),
		parts: leaderParts{
			log:       n.log.Named("leadership"),
			self:      n.self,
			committed: func() uint64 { return n.raft.committed(n.raftLog) },
			changes:   n.raftLog.Changes,
			machine:   n.machine,
			forwarder: n.forwarder,
			readers:   n.reads,
			host:      n.scripts,
			clock:     n.clock,
			opts:      n.cfg.Options,
			stats:     n.stats,
			traces:    &n.traces,
			fatal:     n.fatal,
		},
	}
	n.founder = &founder{
		environment: env, raft: n.raft, peers: n.peers, features: n.features, phase: "starting",
	}
	n.status = &statusReporter{
		environment: env, started: n.clock.Wall(), raft: n.raft, raftLog: n.raftLog, machine: n.machine,
		peers: n.peers, founder: n.founder, features: n.features, forwarder: n.forwarder, snapshots: n.snapshots,
		health: n.health, disk: n.disk,
	}
	n.transfers = &transfers{environment: env, raft: n.raft, peers: n.peers, leaderships: n.leaderships}
	n.members = &membership{
		environment: env, raft: n.raft, raftLog: n.raftLog, machine: n.machine, mux: n.mux, peers: n.peers,
		leaderships: n.leaderships, features: n.features, transfers: n.transfers, status: n.status,
		health: n.health, changes: newChangeLock(),
		away: member.NewAbsences(), warned: make(map[string]string),
		submit: func(g *fsm.Group) ([]byte, error) { return n.NewSession().Do(g, false, nil) },
	}
	n.status.removal = &removalWatch{
		environment: env, raft: n.raft, peers: n.peers, founder: n.founder, now: make(chan struct{}, 1),
		changed: n.membershipChanged,
	}
	n.admin = &admin{
		environment: env, raft: n.raft, peers: n.peers, founder: n.founder, members: n.members,
		transfers: n.transfers, status: n.status,
	}
	n.failover = n.newCampaigner()
	n.linker = &linker{
		environment: env, raft: n.raft, machine: n.machine, mux: n.mux, peers: n.peers,
		forwarder: n.forwarder, waits: n.waits, leaderships: n.leaderships, leading: n.leading,
		health: n.health, promise: n.raftLog.Promise, failover: n.failover, removal: n.status.removal,
	}
	n.streams = &streamServer{
		environment: env, machine: n.machine, forwarder: n.forwarder, leaderships: n.leaderships,
	}
}

// newEnvironment opens the data directory. ctx must end when the node closes.
func newEnvironment(ctx context.Context, cfg *Config) (*environment, error) {
	e := &environment{
		cfg:   cfg,
		log:   cfg.Logger,
		clock: cfg.Clock,
		self:  raft.ServerID(cfg.NodeID),
		stats: metrics.New(),
		table: command.NewTable(),
		ctx:   ctx,
	}
	var once sync.Once
	e.fatal = func(err error) {
		once.Do(func() {
			e.log.Error("node cannot continue", "error", err)
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
	e.session = sessionOf(helloOf(e.stores.Identity()))
	return e, nil
}

// run forms or joins the cluster and starts raft.
func (n *Node) run() {
	bootstrap, err := n.founder.form()
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

// openRaftLog returns the log, the vote and the snapshots of raft, in the
// stores of the data directory.
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
		Mono:     n.clock.Mono,
		Done:     n.ctx.Done(),
		Full:     n.disk.Scarce,
		Refused:  func(err error) { n.snapshots.Refused(n.ctx, err) },
		Fatal:    n.fatal,
	})
}

// newDiskMonitor returns the monitor of the disk with the data directory. Before
// raft starts, the monitor calls only Space and Leads of its configuration.
func (n *Node) newDiskMonitor() *diskspace.Monitor {
	return diskspace.New(diskspace.Config{
		NodeID:  n.cfg.NodeID,
		DataDir: n.cfg.DataDir,
		Space:   n.cfg.DiskSpace,
		Reserve: n.cfg.Options.DiskReserve,
		Segment: int64(n.cfg.Options.SegmentBytes),
		Mono:    n.clock.Mono,
		Logger:  n.log,
		Leads:   n.raft.leads,
		LeaderRefuses: func() string {
			_, leader := n.raft.running().LeaderWithID()
			return n.health.Of(string(leader)).Disk.WritesRefused
		},
		Members: n.raft.members,
		Peer: func(id string) diskspace.Peer {
			h := n.health.Of(id)
			return diskspace.Peer{Disk: h.Disk, Alive: h.Alive, Applied: h.Applied}
		},
		Transfer: func(ctx context.Context, next string) error {
			ctx, cancel := context.WithTimeout(ctx, adminTimeout)
			defer cancel()
			return n.transfers.transfer(ctx, next, &adminReply{})
		},
	})
}

// newMachine returns the state machine of this node. No function of its
// configuration is called before raft starts.
func (n *Node) newMachine() *machine.Machine {
	var locks machine.History
	if n.history != nil {
		locks = n.history
	}
	return machine.New(machine.Config{
		History:   locks,
		Table:     n.table,
		Features:  n.cfg.Features,
		Log:       n.raftLog,
		Events:    n.events,
		Mono:      n.clock.Mono,
		Metrics:   machine.Metrics{Seconds: n.stats.ApplySeconds, Steps: n.stats.ApplySteps, Slow: n.stats.SlowEntries},
		Logger:    n.log,
		MaxMemory: n.cfg.Options.MaxMemory,
		Locks:     n.locksChanged,
		Applied: func(index, term uint64, res *fsm.Result, began, ended time.Duration) {
			n.leaderships.applied(index, term, res, began, ended)
			if t := n.raft.messages(); t != nil {
				t.Committed(index)
			}
			n.announce(index, res)
		},
		Rebased: func(lease int64) { n.leaderships.rebased(lease) },
		TermStarted: func(index, term uint64, t fsm.TermStart, lease int64) {
			n.leaderships.termStarted(index, term, t, lease)
		},
		Restored: func() {
			n.waits.restored()
			n.announceSnapshot()
			n.snapshots.Done(nil)
		},
		Unreadable: func(err error) { n.snapshots.Refused(n.ctx, err) },
		Fatal:      n.fatal,
	})
}

// SlowReadSlots returns the number of slots for slow reads. The setting 0 means
// the number of processors that the program uses minus one, but at least one.
func SlowReadSlots(setting int) int {
	if setting > 0 {
		return setting
	}
	return max(runtime.GOMAXPROCS(0)-1, 1)
}

// newReads returns the part of the node that executes reads.
func (n *Node) newReads() *execution.Reads {
	opts := &n.cfg.Options
	return execution.NewReads(execution.ReadConfig{
		Machine: n.machine,
		Mono:    n.clock.Mono,
		Slots:   SlowReadSlots(opts.SlowReads),
		Quick:   opts.QuickRead,
		Time:    opts.SlowReadTime,
		Wait:    opts.SlowReadWait,
		Memory:  opts.SlowReadMemory,
		Metrics: execution.ReadMetrics{
			Slow: n.stats.SlowReads, Refused: n.stats.SlowReadsRefused, Seconds: n.stats.SlowReadSeconds,
		},
	})
}

// newScripts returns the part of the node that runs scripts.
func (n *Node) newScripts() *execution.Scripts {
	catalog := n.cfg.Catalog
	if catalog == nil {
		catalog = acl.ScriptCatalog(n.table)
	}
	opts := &n.cfg.Options
	return execution.NewScripts(execution.ScriptConfig{
		Interpreter: n.cfg.Scripts,
		Guard:       acl.NewGuard(catalog),
		Rules:       n.cfg.ScriptRules,
		Full:        n.noRoom,
		Mono:        n.clock.Mono,
		Limit:       opts.ScriptTime,
		Brief:       opts.BriefScriptTime,
		Wait:        opts.ScriptWait,
		Queue:       opts.ScriptQueue,
		MostWork:    opts.workLimits().Operation,
		Logger:      n.log.Named("script"),
		Metrics: execution.ScriptMetrics{
			Scripts: n.stats.Scripts, Seconds: n.stats.ScriptSeconds,
			Refused: n.stats.ScriptsRefused, WritesRefused: n.stats.WritesRefused,
			MemoryRefused: n.stats.MemoryRefused,
		},
	})
}

// newSnapshotTaker returns the part of the node that takes its snapshots.
func (n *Node) newSnapshotTaker() *snapshot.Taker {
	return snapshot.NewTaker(snapshot.Config{
		Raft:     n.raft.running,
		Machine:  n.machine,
		Stores:   n.stores,
		RoomFor:  n.disk.RoomFor,
		Mono:     n.clock.Mono,
		Wall:     n.clock.Wall,
		Every:    n.cfg.Options.SnapshotBytes,
		Trailing: n.cfg.Options.TrailingBytes,
		Taken:    n.stats.Snapshots,
		Failed:   n.stats.SnapshotFailures,
		Version:  n.cfg.Version,
		Fatal:    n.fatal,
		Logger:   n.log,
	})
}

// newCampaigner returns the part of the node that starts an election when the
// leader's process has ended, or when the leader is silent.
func (n *Node) newCampaigner() *failover.Campaigner {
	return failover.New(failover.Config{
		ID:           n.self,
		Addr:         n.peers.addressOf(n.self, raft.ServerAddress(n.cfg.AdvertisePeerAddr)),
		Enabled:      n.cfg.Options.FastFailover,
		DialTimeout:  n.cfg.Options.DialTimeout,
		Raft:         n.raft.running,
		Messages:     n.raft.messages,
		Members:      n.raft.members,
		LastVoteTerm: n.raftLog.LastVoteTerm,
		Dial: func(ctx context.Context, id raft.ServerID, addr raft.ServerAddress) error {
			s, err := n.mux.Dial(ctx, string(n.peers.addressOf(id, addr)), rpc.ServiceWrite, string(id))
			if err != nil {
				return err
			}
			s.Close()
			return nil
		},
		Ask:      n.peers.statusOf,
		Silent:   n.health.Silent,
		Changed:  n.leaderships.changed,
		Stopping: n.stopping.Load,
		Logger:   n.log,
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
		CommitNotice: n.cfg.Options.CommitTimeout,

		LeaderSilence: n.cfg.Options.leaderSilence(),
		MaxSilence:    n.cfg.Options.HeartbeatTimeout,

		Closing: n.closing.Load,
		Removed: n.status.removal.removed.Load,
		Logger:  n.log.Named("transport"),
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
		return shutDown(r, n.machine).Error()
	}
	n.founder.setPhase("")
	observations := make(chan raft.Observation, 16)
	r.RegisterObserver(raft.NewObserver(observations, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	n.mux.Handle(rpc.ServiceWrite, n.streams.serveWrite)
	n.mux.Handle(rpc.ServiceRead, n.streams.serveRead)
	n.wg.Go(n.leaderships.keep)
	n.wg.Go(func() { n.leaderships.watchLeader(observations) })
	n.wg.Go(n.linker.keep)
	n.wg.Go(n.members.keep)
	n.wg.Go(func() { n.snapshots.Keep(n.ctx) })
	n.wg.Go(func() { n.disk.Keep(n.ctx) })
	n.wg.Go(n.status.removal.keep)
	n.wg.Go(func() { n.health.Keep(n.ctx, n.ClusterStatus, n.status.removal.askHealthEvery) })
	return nil
}

// membershipChanged is called when this node has learned that it was removed, or
// that it is a member again.
func (n *Node) membershipChanged(removed bool) {
	if removed {
		n.forwarder.expel()
		n.events.Lost(n.machine.Applied(), "this node was removed from the cluster")
	} else {
		n.forwarder.readmit()
	}
	signal(n.leaderships.changed) // for linker.keep
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
	n.cancel() // before the next two lines: see raftInstance.run and leaderships.termStarted
	r := n.raft.running()
	n.leaderships.close()
	var errs []error
	var down raft.Future
	if r != nil {
		down = shutDown(r, n.machine)
	}
	// While it shuts down, raft waits for its calls in progress. So close their
	// connections before waiting for raft. Otherwise a node that cannot be
	// reached would delay Close for seconds.
	errs = append(errs, n.mux.Close())
	if down != nil {
		errs = append(errs, down.Error())
	}
	n.machine.Stop()
	n.wg.Wait()
	n.raftLog.Close()
	n.closeHistory()
	errs = append(errs, n.stores.Close())
	return errors.Join(errs...)
}

// ClientID returns the number for a new connection. Once this start of the node
// has reserved its first block of numbers, the returned numbers usually ascend:
// see clientid.Allocator.Take.
func (n *Node) ClientID() uint64 { return n.clientIDs.Take() }

// newClientIDs returns the allocator of client ids, which reserves blocks of
// them in the log.
func newClientIDs(e *environment, m *machine.Machine, fw *forwarder) *clientid.Allocator {
	return clientid.New(e.session, func(count uint64) *clientid.Reservation {
		if m.Features() < fsm.FeatureBudget {
			return nil
		}
		c := fw.housekeep(e.table, [][]byte{[]byte(fsm.ClientIDsCommand), decimal(count)})
		return &clientid.Reservation{Done: c.done, Result: func() ([]byte, error) { return c.reply, c.err }}
	})
}

// ID returns the id of this node.
func (n *Node) ID() string { return n.cfg.NodeID }

// SetSecrets replaces the secrets with which the nodes of the cluster
// authenticate each other. Connections that were authenticated with another
// secret end.
func (n *Node) SetSecrets(secret, previous []byte) error { return n.mux.SetSecrets(secret, previous) }

// ClusterID returns the id of the cluster. It is "" before the node belongs to
// a cluster.
func (n *Node) ClusterID() string { return n.stores.Identity().ClusterID }

// Table returns the command table.
func (n *Node) Table() *fsm.Table { return n.table }

// View calls f with the state machine under the read lock. f must be short and
// must not keep m.
func (n *Node) View(f func(m *fsm.Machine)) { n.machine.View(f) }

// Features returns the feature version of the cluster as of the last entry that
// this node has applied. From fsm.FeatureMend on, the version never goes down. So
// even if this node lags, every member knows the commands of that version.
func (n *Node) Features() int { return n.machine.Features() }

// FeatureVersion returns the feature version of the cluster. If this node's
// version is below need, and this program knows the version need, this node may
// lag behind the leader. FeatureVersion then first asks the leader for the end
// of the log and waits until this node has applied it, at most
// Options.LeaderWait. So if a client has seen the raised version at another
// node, this node does not refuse the commands of that version.
func (n *Node) FeatureVersion(need int) int {
	if now := n.Features(); now >= need || need > n.cfg.Features {
		return now
	}
	index, err := n.endOfLog()
	if err != nil {
		return n.Features() // without a leader, the current feature version cannot be determined
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.Options.LeaderWait)
	defer cancel()
	_ = n.awaitApplied(ctx, index) // after an error, this node's own version is the best answer
	return n.Features()
}

// catchUp waits until this node has applied everything that was acknowledged
// before the call.
func (n *Node) catchUp(ctx context.Context) error {
	index, err := n.endOfLog()
	if err != nil {
		return err
	}
	return n.awaitApplied(ctx, index)
}

// endOfLog asks the leader for a log index. No entry that was acknowledged
// before the call has a higher index.
func (n *Node) endOfLog() (index uint64, err error) {
	var g fsm.Group
	g.Reset(2, 0)
	g.Command(n.Table().Find([]byte(fsm.PositionCommand)), 0, [][]byte{nil})
	reply, err := n.NewSession().Do(&g, false, nil)
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(string(reply), ":%d\r\n", &index); err != nil {
		n.log.Error("failed to parse the leader's log index", "reply", string(reply), "error", err)
		return 0, fmt.Errorf("parse the leader's log index %q: %w", reply, err)
	}
	return index, nil
}

// awaitApplied waits until this node has applied the log up to index.
func (n *Node) awaitApplied(ctx context.Context, index uint64) error {
	applied := make(chan bool, 1)
	n.machine.WhenApplied(index, func(ok bool) { applied <- ok })
	select {
	case ok := <-applied:
		if !ok {
			return snapshot.ErrNodeStops
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("this node is behind the leader: %w", ctx.Err())
	}
}

// Snapshot takes a snapshot of this node's state now and truncates its log.
func (n *Node) Snapshot() error {
	if n.raft.running() == nil {
		return outcome.ErrNoLeader
	}
	return n.snapshots.Take(n.ctx)
}

// RecordTraces makes this node record traces of commands. It may be called once.
func (n *Node) RecordTraces(r trace.Recorder) { n.traces.Set(r) }

// Collectors returns the node's metrics.
func (n *Node) Collectors() []prometheus.Collector {
	return n.stats.Collectors(metrics.Source{
		Status: n.Status, Blocked: n.blockers, Reads: n.reads, Machine: n.machine, LockHistory: n.lockHistoryBytes,
		Members: n.PeerHealth, Snapshot: n.snapshots.Newest, Wall: n.clock.Wall,
	})
}

// blockers reports for each member whether the member keeps the feature version
// from being raised.
func (n *Node) blockers() map[string]bool {
	blocked := n.features.Blockers()
	all := make(map[string]bool)
	for _, m := range n.raft.members() {
		all[m.ID] = slices.ContainsFunc(blocked, func(b features.Blocker) bool { return b.ID == m.ID })
	}
	return all
}

// sweep ends the calls that have waited too long, removes the waiters for which
// no connection waits, and reserves client ids. It runs until the node stops.
func (n *Node) sweep() {
	tick := n.forwarder.pulse
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.Woken():
			tick.Next(true)
		case <-tick.C():
			calls := n.forwarder.sweep()
			waiters := n.waits.sweep()
			n.clientIDs.Sweep()
			tick.Next(calls || waiters)
		}
	}
}
