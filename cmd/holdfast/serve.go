package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/script"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	nodeID, dataDir, logStore   string
	clientAddr, advertiseClient string
	peerAddr, advertisePeer     string
	httpAddr                    string
	discovery                   discovery
	secret                      secretOptions
	peers                       string
	requirePass                 string
	aclFile                     string
	logLevel, logFormat         string
	options                     cluster.Options
	limits                      resp.Limits
	pprof                       bool
	threads                     int
	testClock, testKillAt       string
}

// stopTimeout is how long a stopping node may take for handing over and for
// what is in flight; the process exits within 5 s of SIGTERM.
const stopTimeout = 4 * time.Second

func serveCommand() *cobra.Command {
	o := serveOptions{options: cluster.DefaultOptions(), limits: resp.DefaultLimits()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one node",
		Long: `Run one node of a cluster.

On empty data directories the nodes named in --peers form the cluster by
themselves, in whatever order they are started; all of them must be started once
with the same --peers. A node that is restarted comes back with its data and its
place. --peers with one name is a cluster of one node.

Where other hosts can reach the peer port, every node needs the same secret: see
--cluster-secret-file. A node that is to join later has to be added first: see
"holdfast member add --help".

SIGTERM hands leadership over, finishes what is in flight and exits. SIGHUP
changes nothing.`,
		Example: `  holdfast serve --node-id n1 --data-dir /var/lib/holdfast \
    --client-addr 10.0.0.1:6379 --peer-addr 10.0.0.1:7379 --http-addr 127.0.0.1:8379 \
    --peers n1=10.0.0.1:7379,n2=10.0.0.2:7379,n3=10.0.0.3:7379 \
    --cluster-secret-file /etc/holdfast/cluster-secret`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return serve(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.nodeID, "node-id", "", "name of this node, for good")
	f.StringVar(&o.dataDir, "data-dir", "", "directory for log, votes and snapshots; one process at a time")
	f.StringVar(&o.clientAddr, "client-addr", "127.0.0.1:6379", "where Redis clients connect")
	f.StringVar(&o.advertiseClient, "advertise-client-addr", "", "client address that others are told (default: --client-addr)")
	f.StringVar(&o.peerAddr, "peer-addr", "127.0.0.1:7379", "where the other nodes connect")
	f.StringVar(&o.advertisePeer, "advertise-peer-addr", "", "peer address that others are told; may be a DNS name (default: this node's in --peers, else --peer-addr)")
	f.StringVar(&o.httpAddr, "http-addr", "127.0.0.1:8379", "where /healthz, /readyz and /metrics are served")
	o.discovery.flags(f)
	o.secret.flags(f)
	f.StringVar(&o.peers, "peers", "", "the nodes that form the cluster: n1=host:port,n2=host:port,… (peer addresses)")
	f.StringVar(&o.requirePass, "requirepass", "", "password of the default user, as long as the cluster has none of its own (ACL SETUSER, CONFIG SET requirepass); none if empty")
	f.StringVar(&o.aclFile, "acl-file", "", "file of ACL users in Redis' form, which become the cluster's if it has none yet")
	f.StringVar(&o.logStore, "log-store", "wal", "library that keeps the raft log: wal or boltdb; cannot be changed for a data directory")
	f.StringVar(&o.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.IntVar(&o.limits.MaxClients, "max-clients", o.limits.MaxClients, "client connections at a time")
	f.IntVar(&o.limits.MaxUnauthAddr, "max-unauth-per-address", o.limits.MaxUnauthAddr, "connections of one address that have not authenticated, 0 for no limit")
	f.IntVar(&o.limits.UnauthRate, "max-unauth-rate", o.limits.UnauthRate, "bytes a second of input that all connections that have not authenticated may send together, 0 for no limit")
	f.DurationVar(&o.limits.UnauthTotal, "login-timeout", o.limits.UnauthTotal, "time in which a connection must authenticate, 0 for no limit")
	f.IntVar(&o.limits.MaxBulk, "max-bulk-bytes", o.limits.MaxBulk, "largest argument of a command, in bytes")
	f.DurationVar(&o.options.HeartbeatTimeout, "heartbeat-timeout", o.options.HeartbeatTimeout, "how long a follower waits for its leader before an election; well above the slowest fsync")
	f.DurationVar(&o.options.StallTimeout, "disk-stall-timeout", o.options.StallTimeout, "how long a disk write may take before the process ends, so that another node leads")
	f.DurationVar(&o.options.LeaderWait, "leader-wait", o.options.LeaderWait, "how long a command waits for a leader before it is refused (CLUSTERDOWN)")
	f.DurationVar(&o.options.ResolveWait, "resolve-wait", o.options.ResolveWait, "how long the outcome of a command that was sent may stay open (UNKNOWN)")
	f.DurationVar(&o.options.ScriptTime, "script-time", o.options.ScriptTime, "how long one Lua script may run before it ends with an error; past 10ms it is tried out beside the writes of others first")
	f.Int64Var(&o.options.SnapshotBytes, "snapshot-bytes", o.options.SnapshotBytes, "bytes of log that make a snapshot due")
	f.Int64Var(&o.options.TrailingBytes, "trailing-bytes", o.options.TrailingBytes, "bytes of log kept behind a snapshot, for nodes that are a little behind")
	f.IntVar(&o.options.Window, "window", o.options.Window, "log entries under way at a time")
	f.BoolVar(&o.options.FastFailover, "fast-failover", o.options.FastFailover, "stand for election at once when the leader's process is seen to be gone")
	f.IntVar(&o.threads, "threads", 0, "processors that the program uses at a time; 0 for all of the machine's but one")
	f.BoolVar(&o.pprof, "pprof", false, "serve /debug/pprof on the http address")
	f.StringVar(&o.testClock, "test-clock", "", "file that says how this node's clocks lie, for tests: never in production")
	f.IntVar(&o.options.SegmentBytes, "test-segment-bytes", o.options.SegmentBytes, "size of a file of the log, for tests of what happens where two of them meet; 0 for the usual")
	f.StringVar(&o.testKillAt, "test-kill-at", "", "point of the program at which it kills itself, and at which time, for tests: append-synced:3")
	for _, hidden := range []string{"test-clock", "test-segment-bytes", "test-kill-at"} {
		if err := f.MarkHidden(hidden); err != nil {
			panic(err) // the flags are defined on the lines above
		}
	}
	return cmd
}

// validate names the first flag with a value that cannot work. It runs before
// anything is opened: a node must not leave a data directory or a formed cluster
// behind because of a flag that shows itself to be wrong only later.
func (o *serveOptions) validate() error {
	for _, a := range []struct{ flag, addr string }{
		{"client-addr", o.clientAddr}, {"peer-addr", o.peerAddr}, {"http-addr", o.httpAddr},
		{"advertise-client-addr", o.advertiseClient},
	} {
		if a.addr == "" && a.flag == "advertise-client-addr" {
			continue
		}
		if err := checkAddr(a.addr); err != nil {
			return fmt.Errorf("--%s is %q: %w", a.flag, a.addr, err)
		}
	}
	if err := o.discovery.validate(o.clientAddr, o.advertiseClient); err != nil {
		return err
	}
	if err := o.checkListeners(); err != nil {
		return err
	}
	for _, d := range []struct {
		flag        string
		value, want time.Duration
	}{
		{"heartbeat-timeout", o.options.HeartbeatTimeout, 20 * time.Millisecond},
		{"disk-stall-timeout", o.options.StallTimeout, 100 * time.Millisecond},
		{"leader-wait", o.options.LeaderWait, time.Millisecond},
		{"resolve-wait", o.options.ResolveWait, time.Millisecond},
		{"script-time", o.options.ScriptTime, time.Millisecond},
	} {
		if d.value < d.want {
			return fmt.Errorf("--%s is %v, must be at least %v", d.flag, d.value, d.want)
		}
	}
	for _, n := range []struct {
		flag             string
		value, low, high int64
	}{
		{"window", int64(o.options.Window), 1, 1024},
		{"threads", int64(o.threads), 0, 1024},
		{"snapshot-bytes", o.options.SnapshotBytes, 1, 1 << 50},
		{"trailing-bytes", o.options.TrailingBytes, 1, 1 << 50},
		{"max-clients", int64(o.limits.MaxClients), 1, 1 << 30},
		{"max-bulk-bytes", int64(o.limits.MaxBulk), 1, maxBulk},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("--%s is %d, must be %d to %d", n.flag, n.value, n.low, n.high)
		}
	}
	// The other limits follow the one that can be set.
	o.limits.UnauthBulk = min(o.limits.UnauthBulk, o.limits.MaxBulk)
	o.limits.MaxCommand = max(o.limits.MaxCommand, 2*o.limits.MaxBulk)
	o.limits.MaxUnauth = max(o.limits.MaxClients/2, 1) // 0 would be no limit
	return o.limits.Validate()
}

// checkListeners reports two ports that are given the same address.
func (o *serveOptions) checkListeners() error {
	flags := make(map[string]string)
	for _, a := range []struct{ flag, addr string }{
		{"client-addr", o.clientAddr}, {"peer-addr", o.peerAddr}, {"http-addr", o.httpAddr}, {"sentinel-addr", o.discovery.sentinelAddr},
	} {
		if other, taken := flags[a.addr]; taken && a.addr != "" {
			return fmt.Errorf("--%s and --%s are both %s", other, a.flag, a.addr)
		}
		flags[a.addr] = a.flag
	}
	return nil
}

// maxBulk is the largest --max-bulk-bytes: a command of two such arguments still
// fits into a frame between nodes.
const maxBulk = 16 << 20

func checkAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("not of the form host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return nil
}

func (o *serveOptions) config(log hclog.Logger, fatal func(error)) (cluster.Config, error) {
	peers, err := cluster.ParsePeers(o.peers)
	if err != nil {
		return cluster.Config{}, err
	}
	if o.advertisePeer == "" {
		for _, p := range peers {
			if p.ID == o.nodeID {
				o.advertisePeer = p.Addr
			}
		}
	}
	if o.advertiseClient == "" {
		o.advertiseClient = o.clientAddr
	}
	if o.options.LeaseTimeout > o.options.HeartbeatTimeout {
		o.options.LeaseTimeout = o.options.HeartbeatTimeout
	}
	cfg := cluster.Config{
		NodeID: o.nodeID, DataDir: o.dataDir, LogStore: o.logStore,
		PeerAddr: o.peerAddr, AdvertisePeerAddr: o.advertisePeer,
		ClientAddr: o.advertiseClient, SentinelAddr: o.discovery.advertised(), HTTPAddr: o.httpAddr, RunID: resp.NewRunID(),
		Peers: peers, Options: o.options, Version: version, Logger: log, Fatal: fatal,
		Scripts: newInterpreter(o.options.ScriptTime, log.Named("lua")),
		Catalog: resp.NewCatalog(fsm.NewTable()),
	}
	if o.discovery.clusterMode {
		cfg.ScriptRules = resp.ForeignDatabase
	}
	return cfg, nil
}

// newInterpreter returns the interpreter of scripts. limit, which the cluster
// holds scripts to, is also the backstop of the interpreter itself.
func newInterpreter(limit time.Duration, log hclog.Logger) *script.Runner {
	c := script.DefaultConfig()
	c.Limits = script.LimitsFor(2 * limit)
	c.Log = func(level int, text string) {
		switch level {
		case script.LogDebug, script.LogVerbose:
			log.Debug(text)
		case script.LogNotice:
			log.Info(text)
		default:
			log.Warn(text)
		}
	}
	return script.NewRunner(c)
}

func newLogger(level, format string) (hclog.Logger, error) {
	l := hclog.LevelFromString(level)
	if l == hclog.NoLevel {
		return nil, fmt.Errorf("--log-level is %q, not trace, debug, info, warn or error", level)
	}
	if format != "text" && format != "json" {
		return nil, fmt.Errorf("--log-format is %q, not text or json", format)
	}
	return hclog.New(&hclog.LoggerOptions{Name: "holdfast", Level: l, JSONFormat: format == "json", Output: os.Stderr}), nil
}

// serve runs a node until ctx ends. The order of starting: all addresses are
// bound, then the node is opened, then clients and the HTTP port are served.
// Stopping is the reverse, except that clients are kept until their commands
// have an outcome.
func serve(ctx context.Context, o serveOptions) error {
	log, err := newLogger(o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	defer surviveHangup(log)()
	tuneMemory()
	useThreads(o.threads)
	cfg, err := o.config(log, func(err error) {
		// Said at once and without cleaning up: a stalled disk would hang that.
		fmt.Fprintln(os.Stderr, "holdfast: fatal:", err)
		os.Exit(2)
	})
	if err != nil {
		return err
	}
	users, err := o.users()
	if err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Secret, err = o.secret.read(); err != nil {
		return err
	}
	if err := o.secret.admit(&cfg, log); err != nil {
		return err
	}
	if o.open(users) && !loopback(o.clientAddr) {
		log.Warn("client port is open to the network without a password", "addr", o.clientAddr)
	}
	if o.testKillAt != "" {
		if err := failpoint.Arm(o.testKillAt); err != nil {
			return fmt.Errorf("--test-kill-at is %q: %w", o.testKillAt, err)
		}
		log.Error("this node is going to kill itself, as a test says: it must hold no data of worth", "point", o.testKillAt)
	}
	if o.testClock != "" {
		clock, err := newTestClock(o.testClock)
		if err != nil {
			return err
		}
		log.Error("this node's clocks lie, as a test says: it must hold no data of worth", "file", o.testClock)
		cfg.Clock = clock
		following, stopFollowing := context.WithCancel(ctx)
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			clock.follow(following)
		}()
		defer func() {
			stopFollowing()
			<-followed
		}()
	}
	bound, err := o.bind()
	if err != nil {
		return err
	}
	node, err := cluster.Open(cfg)
	if err != nil {
		return errors.Join(err, bound.close())
	}
	ctx, shutdown := context.WithCancel(ctx) // SHUTDOWN ends it too
	defer shutdown()
	port := resp.Config{
		Shutdown: shutdown,
		Addr:     o.clientAddr, Listener: bound.clients, DataDir: o.dataDir, RequirePass: o.requirePass, Users: users, Limits: o.limits, Logger: log.Named("resp"),
		Mode: o.discovery.mode(), Topology: clusterAdapter{node}, RunID: cfg.RunID,
	}
	clients, err := resp.Listen(port, clusterAdapter{node}, node.Table())
	if err != nil {
		return errors.Join(err, node.Close(), bound.close())
	}
	sentinel, err := o.discovery.listen(port, bound.sentinel, clusterAdapter{node}, node.Table())
	if err != nil {
		return errors.Join(err, clients.Close(), node.Close(), bound.close())
	}
	web := serveHTTP(bound.http, node, clients, o.pprof, log.Named("http"))
	log.Info("node started", "node", o.nodeID, "clients", clients.Addr(), "peers", cfg.AdvertisePeerAddr, "http", o.httpAddr, "sentinel", o.discovery.sentinelAddr, "version", version, "pid", os.Getpid())

	<-ctx.Done()
	log.Info("stopping")
	begun := time.Now()
	stopping, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	// New commands stop coming, those under way get their outcome from the next
	// leader.
	handedOver := make(chan struct{})
	go func() {
		defer close(handedOver)
		node.HandOver(stopping)
	}()
	err = clients.Stop(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		// Nobody is left who could tell them the outcome, as when all nodes are
		// stopped at once: they are told that it is unknown, and this is a clean stop.
		log.Warn("clients still wait for an outcome, stopping without it", "error", err)
		err = nil
	}
	<-handedOver
	// The Sentinel port stays until here: its subscribers have heard of the new leader.
	err = errors.Join(err, sentinel.Close(), clients.Close(), web.Close(), node.Close())
	log.Info("stopped", "took", time.Since(begun).Round(time.Millisecond))
	return err
}

// tuneMemory trades memory for less garbage collection, unless the operator has
// said otherwise: a node's heap is small beside what a machine has.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
