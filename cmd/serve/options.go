package serve

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/history"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/script"
)

// options holds the flags of serve.
type options struct {
	version                     string // version of the program
	nodeID, dataDir, logStore   string
	clientAddr, advertiseClient string
	peerAddr, advertisePeer     string
	httpAddr                    string
	discovery                   discovery
	secret                      secretOptions
	tls                         tlsOptions
	peers                       string
	configFile                  string
	lockDelay                   string
	access                      accessOptions
	logging                     logOptions
	options                     cluster.Options
	limits                      guard.Limits
	limitFlags                  map[string]resp.LimitFlag
	web                         httpOptions
	tracing                     tracingOptions
	reread                      func() (options, error) // reads the settings again, for SIGHUP
	threads                     int
	tests                       testOptions
}

// accessOptions holds the flags that decide which clients may connect.
type accessOptions struct {
	requirePass, requirePassFile string
	aclFile                      string
	protectedMode                flags.YesNo
}

// logOptions holds the flags about the logs.
type logOptions struct {
	level, format string
	scriptRate    int // lines of redis.log per second
	audit         auditOptions
}

// testOptions holds the flags for tests.
type testOptions struct{ clock, killAt string }

func newOptions() *options {
	o := &options{options: cluster.DefaultOptions(), limits: guard.DefaultLimits(),
		access:  accessOptions{protectedMode: true},
		logging: logOptions{scriptRate: script.DefaultConfig().LogRate},
		web:     httpOptions{dashboard: true, maxConns: 256, idle: time.Minute}}
	o.options.MaxMemory = -1 // auto
	o.options.LockHistory = 64 << 20
	return o
}

// Command returns the command that runs a node.
func Command() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one node",
		Long: `Run one node of a cluster.

If the data directories of all nodes in --peers are empty, the nodes form a
cluster when all of them have been started, in any order, with the same --peers.
A restarted node continues with its data and its membership. If --peers names
only one node, that node is a cluster of its own.

If other hosts can reach the peer port, every node needs the same secret: see
--cluster-secret-file. A node that joins an existing cluster must be added
first: see "holdfast member --help".

On SIGTERM the node transfers leadership, completes the commands in flight, and
exits. On SIGHUP it reads the following again: the certificates (which it also
reloads on its own when their files change), the files of --requirepass-file,
--http-token-file and --cluster-secret-file, and log-level and log-format in the
file of --config. It also reopens the file of --audit-log. If a file is wrong, the
node keeps its previous settings.

--config names a YAML file that sets flags, one "name: value" in each line, with
the flags' names without "--". Flags and environment variables take precedence.
"holdfast config check FILE" checks such a file. Sizes have units (64mb, 2gb),
which are powers of 1,024; durations have units too (500ms, 10s).`,
		Example: `  holdfast serve --node-id n1 --data-dir /var/lib/holdfast \
    --client-addr 10.0.0.1:6379 --peer-addr 10.0.0.1:7379 --http-addr 127.0.0.1:8379 \
    --peers n1=10.0.0.1:7379,n2=10.0.0.2:7379,n3=10.0.0.3:7379 \
    --cluster-secret-file /etc/holdfast/cluster-secret --requirepass-file /etc/holdfast/password`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.version = cmd.Root().Version
			o.limitFlags = limitFlags(cmd.Flags())
			o.reread = func() (options, error) { return rereadOptions(cmd.Flags()) }
			return serve(cmd.Context(), *o)
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// flags defines the flags of serve.
func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.configFile, flags.ConfigName, "", "YAML file that sets flags: see above")
	o.identityFlags(f)
	o.budgetFlags(f)
	o.engineFlags(f)
}

// identityFlags defines the flags for the node's identity, addresses, users and
// log.
func (o *options) identityFlags(f *pflag.FlagSet) {
	f.StringVar(&o.nodeID, "node-id", "", "name of this node; it cannot be changed later")
	f.StringVar(&o.dataDir, "data-dir", "", "directory for the log, votes and snapshots; only one process may use it")
	f.StringVar(&o.clientAddr, "client-addr", "127.0.0.1:6379", "address for Redis clients")
	f.StringVar(&o.advertiseClient, "advertise-client-addr", "",
		"client address that this node announces to clients and other nodes (default: --client-addr; if its host is "+
			"0.0.0.0, the host of the peer address with the same port)")
	f.StringVar(&o.peerAddr, "peer-addr", "127.0.0.1:7379", "address for the other nodes")
	f.StringVar(&o.advertisePeer, "advertise-peer-addr", "",
		"peer address that this node announces to other nodes; may be a DNS name (default: this node's address in "+
			"--peers, else --peer-addr)")
	f.StringVar(&o.httpAddr, "http-addr", "127.0.0.1:8379", "address for the dashboard, /healthz, /readyz and /metrics")
	o.web.flags(f)
	o.tracing.flags(f)
	o.discovery.flags(f)
	o.secret.flags(f)
	o.tls.flags(f)
	f.StringVar(&o.peers, "peers", "",
		"the nodes that form the cluster, with their peer addresses: n1=host:port,n2=host:port,…")
	f.StringVar(&o.access.requirePass, "requirepass", "",
		"password of the default user, until ACL SETUSER or CONFIG SET requirepass sets one for the cluster; empty "+
			"for none. Other users of the machine can see it in ps: prefer --requirepass-file")
	f.StringVar(&o.access.requirePassFile, "requirepass-file", "", "file with the password of --requirepass")
	f.StringVar(&o.access.aclFile, "acl-file", "",
		"file of ACL users in Redis' format; the cluster takes them over if it has no users yet")
	f.Var(&o.access.protectedMode, "protected-mode",
		"refuse to start if other hosts can reach a port for clients and clients need no password")
	f.StringVar(&o.logStore, "log-store", "wal",
		"library that stores the Raft log: wal or boltdb; it cannot be changed for an existing data directory")
	f.StringVar(&o.logging.level, "log-level", "info", "lowest level of log lines: trace, debug, info, warn or error")
	f.StringVar(&o.logging.format, "log-format", "text", "format of log lines: text or json")
	o.logging.audit.flags(f)
}

// budgetFlags defines the flags that limit clients.
func (o *options) budgetFlags(f *pflag.FlagSet) {
	f.IntVar(&o.limits.MaxClients, "max-clients", o.limits.MaxClients, "maximum number of client connections")
	f.IntVar(&o.limits.MaxUnauthAddr, "max-unauth-per-address", o.limits.MaxUnauthAddr,
		"maximum number of connections from one address that have not authenticated; 0 for no limit")
	flags.SizeVar(f, &o.limits.ClientMemory, "max-client-memory",
		"bytes that the node holds for all clients together: replies that they have not read, incomplete commands, "+
			"and commands that wait for EXEC; 0 for an eighth of the memory, but at least 256 MiB")
	flags.SizeVar(f, &o.limits.UnauthRate, "max-unauth-rate",
		"bytes per second that all connections together may send before they authenticate; 0 for no limit")
	f.IntVar(&o.limits.MaxUnauth, "max-unauth-clients", 0,
		"maximum number of connections that have not authenticated; 0 for half of --max-clients")
	f.DurationVar(&o.limits.HandshakeTimeout, "handshake-timeout", o.limits.HandshakeTimeout,
		"time within which a connection must send its first command, unless it has authenticated; 0 for no limit")
	f.DurationVar(&o.limits.UnauthIdle, "unauth-idle-timeout", o.limits.UnauthIdle,
		"time that an unauthenticated connection may take until its next command; 0 for no limit")
	f.IntVar(&o.limits.FailedLogins, "max-failed-logins", o.limits.FailedLogins,
		"number of logins of one user that may fail from one address before further logins wait, five times as many "+
			"for all users together; the count begins again after a minute without a failure")
	f.DurationVar(&o.limits.CommandTimeout, "command-timeout", o.limits.CommandTimeout,
		"time within which a client must send the rest of a command that it has begun to send; 0 for no limit")
	f.DurationVar(&o.limits.WriteTimeout, "write-timeout", o.limits.WriteTimeout,
		"time within which a client must take 256 KiB of its replies; 0 for no limit")
	f.IntVar(&o.limits.MaxBlocked, "max-blocked-clients", o.limits.MaxBlocked,
		"maximum number of connections whose blocking commands wait, such as BLPOP and LOCK ACQUIRE with WAIT; 0 "+
			"for no limit other than those of the cluster")
	f.DurationVar(&o.limits.UnauthTotal, "login-timeout", o.limits.UnauthTotal,
		"time within which a connection must authenticate; 0 for no limit")
	flags.SizeVar(f, &o.limits.MaxBulk, "max-bulk-bytes",
		"maximum size of an argument of a command, in bytes")
	f.IntVar(&o.limits.MaxTopics, "max-subscriptions", o.limits.MaxTopics,
		"maximum number of channels, patterns and shard channels to which one connection subscribes; 0 for no limit")
	f.IntVar(&o.limits.MaxPatterns, "max-patterns", o.limits.MaxPatterns,
		"maximum number of patterns to which one connection subscribes, and of prefixes that it tracks in BCAST "+
			"mode; 0 for no limit")
	flags.SizeVar(f, &o.limits.PushHard, "max-message-bytes",
		"bytes of messages that may wait for one client that subscribes, tracks keys or uses MONITOR; a quarter of "+
			"them may wait for longer than a minute; at least 64kb, or 0 for no limit")
	f.IntVar(&o.limits.PatternSteps, "max-pattern-steps", o.limits.PatternSteps,
		"number of steps per second to match the channels of messages against the patterns of all subscribers; a "+
			"step takes a few nanoseconds; at least 1000000, or 0 for no limit")
	f.IntVar(&o.logging.scriptRate, "max-script-log-rate", o.logging.scriptRate,
		"number of lines per second that scripts may write with redis.log; ten times as many may come at once; "+
			"0 for none")
	flags.SizeVar(f, &o.limits.SubscriptionBytes, "max-subscription-bytes",
		"estimated bytes of memory for the subscriptions and BCAST prefixes of all clients; 0 for no limit")
}

// engineFlags defines the flags for the time limits and sizes of the cluster's
// parts, and the flags for tests.
func (o *options) engineFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.options.HeartbeatTimeout, "heartbeat-timeout", o.options.HeartbeatTimeout,
		"how long a follower waits for its leader before it starts an election; must be well above the slowest fsync")
	f.DurationVar(&o.options.LeaderSilence, "leader-silence", o.options.LeaderSilence,
		"minimum time without a message from the leader before the other voters elect another leader, if a majority "+
			"of the voters finds the leader silent; with 0, only --heartbeat-timeout applies")
	f.DurationVar(&o.options.LeaderLease, "leader-lease", o.options.LeaderLease,
		"how long the voters promise a leader not to vote, so that it answers reads without asking them; delays an "+
			"election by up to this time, and needs clocks whose rates differ by less than 1%; 0 for no lease")
	f.DurationVar(&o.options.StallTimeout, "disk-stall-timeout", o.options.StallTimeout,
		"how long a disk write may take before the process ends, so that another node can lead")
	f.DurationVar(&o.options.LeaderWait, "leader-wait", o.options.LeaderWait,
		"how long a command waits for a leader before it is refused (CLUSTERDOWN)")
	f.DurationVar(&o.options.ResolveWait, "resolve-wait", o.options.ResolveWait,
		"how long the node waits for the outcome of a command that it has sent to the leader, before it replies "+
			"UNKNOWN")
	f.DurationVar(&o.options.ScriptTime, "script-time", o.options.ScriptTime,
		"how long a Lua script may run before it ends with an error; a script that needs more than 2ms first gets a "+
			"dry run, while other clients continue to write")
	f.DurationVar(&o.options.ScriptWait, "script-wait", o.options.ScriptWait,
		"how long a slow script or a heavy write may wait for the leader to run it before it is refused (BUSY); "+
			"at least 60 times --script-time")
	f.IntVar(&o.options.ScriptQueue, "max-waiting-scripts", o.options.ScriptQueue,
		"maximum number of slow scripts and heavy writes that wait in each of the leader's two lanes; one user "+
			"may have a quarter of them")
	f.DurationVar(&o.options.MaxWriteTime, "max-write-time", o.options.MaxWriteTime,
		"how long one command or transaction that writes may take on every node, estimated from the sizes of its "+
			"keys, before it is refused (BUSY)")
	f.IntVar(&o.options.SlowReads, "max-slow-reads", o.options.SlowReads,
		"number of slow reads that run at once on the node; 0 for one less than the number of processors")
	f.DurationVar(&o.options.SlowReadWait, "slow-read-wait", o.options.SlowReadWait,
		"how long a slow read waits for other slow reads before it ends with an error (BUSY)")
	f.DurationVar(&o.options.SlowReadTime, "slow-read-time", o.options.SlowReadTime,
		"how long a pipeline of reads may run before it ends with an error (BUSY)")
	flags.SizeVar(f, &o.options.SlowReadMemory, "max-slow-read-memory",
		"bytes for the intermediate results and replies of all slow reads of the node; a read that needs more ends "+
			"with an error (OOM)")
	flags.SizeVar(f, &o.options.SnapshotBytes, "snapshot-bytes",
		"bytes of log after which the node takes a snapshot")
	flags.SizeVar(f, &o.options.TrailingBytes, "trailing-bytes",
		"bytes of log that the node keeps after a snapshot, for followers that are a little behind")
	f.Var((*flags.AutoSize)(&o.options.DiskReserve), "disk-reserve",
		"free space of the disk below which the leader refuses commands that add data; \"auto\" is 5% of the disk or "+
			"1gb, whichever is less, and at least two segments of the log (128mb); 0 for none")
	f.Var((*flags.AutoSize)(&o.options.MaxMemory), "maxmemory",
		"size of the data set above which the leader refuses commands that add data (OOM), unless CONFIG SET "+
			"maxmemory has set one for the cluster; \"auto\" is 30% of the memory that the process may use; "+
			"0 for no limit")
	f.StringVar(&o.lockDelay, "lock-delay", "",
		"patterns of keys, each with a number of milliseconds (\"lock:* 15000\"); after a lock whose key matches has "+
			"expired or was broken, no client gets it for that time. The flag applies until CONFIG SET lock-delay "+
			"sets a value for the cluster; empty for no delay")
	flags.SizeVar(f, &o.options.LockHistory, "lock-history-size",
		"maximum size of the files with the history of locks (LOCK HISTORY), above which the node removes the oldest "+
			"file; at least 1mb, or 0 to keep no history")
	f.IntVar(&o.options.Window, "window", o.options.Window, "maximum number of log entries in flight")
	f.DurationVar(&o.options.RemoveAwayAfter, "remove-away-after", o.options.RemoveAwayAfter,
		"how long a member may be away before the leader removes it, if at least a majority of the original number "+
			"of voters remains; 0 to never remove a member")
	f.BoolVar(&o.options.FastFailover, "fast-failover", o.options.FastFailover,
		"do not wait for --heartbeat-timeout in two cases: campaign at once when the leader's port refuses "+
			"connections, because its process has ended, or when a majority of the voters finds the leader silent "+
			"(--leader-silence)")
	f.IntVar(&o.threads, "threads", 0,
		"number of processors that the program uses; 0 for one less than the machine has")
	f.StringVar(&o.tests.clock, "test-clock", "",
		"file with offset and rate of this node's clocks, for tests: never in production")
	f.IntVar(&o.options.SegmentBytes, "test-segment-bytes", o.options.SegmentBytes,
		"size of a segment of the log, for tests; 0 for the default")
	f.StringVar(&o.tests.killAt, "test-kill-at", "",
		"failpoint at which the program kills itself, for tests; append-synced:3 is the third pass of that failpoint")
	for _, hidden := range []string{"test-clock", "test-segment-bytes", "test-kill-at"} {
		if err := f.MarkHidden(hidden); err != nil {
			panic(err) // the flags are defined above
		}
	}
}

// validate returns an error about the first flag with a value that cannot work.
// It runs before anything is opened: a wrong flag must not leave a data
// directory or a formed cluster behind.
func (o *options) validate() error {
	for _, a := range []struct{ flag, addr string }{
		{"client-addr", o.clientAddr}, {"peer-addr", o.peerAddr}, {"http-addr", o.httpAddr},
	} {
		if err := flags.CheckAddr(a.addr); err != nil {
			return fmt.Errorf("--%s is %q: %w", a.flag, a.addr, err)
		}
	}
	if err := o.discovery.validate(o.clientAddr, o.advertiseClient); err != nil {
		return err
	}
	if err := o.checkListeners(); err != nil {
		return err
	}
	if err := o.tls.validate(); err != nil {
		return err
	}
	if err := o.tracing.validate(); err != nil {
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
		{"script-wait", o.options.ScriptWait, time.Millisecond},
		{"slow-read-time", o.options.SlowReadTime, time.Millisecond},
		{"slow-read-wait", o.options.SlowReadWait, time.Millisecond},
		{"max-write-time", o.options.MaxWriteTime, o.options.EntryWork},
		{"remove-away-after", o.options.RemoveAwayAfter, time.Minute},
		{"http-idle-timeout", o.web.idle, time.Second},
		{"login-timeout", o.limits.UnauthTotal, 10 * time.Millisecond},
		{"handshake-timeout", o.limits.HandshakeTimeout, 10 * time.Millisecond},
		{"unauth-idle-timeout", o.limits.UnauthIdle, 10 * time.Millisecond},
		{"command-timeout", o.limits.CommandTimeout, 10 * time.Millisecond},
		{"write-timeout", o.limits.WriteTimeout, 10 * time.Millisecond},
		{"leader-silence", o.options.LeaderSilence, 20 * time.Millisecond},
		{"leader-lease", o.options.LeaderLease, 10 * time.Millisecond},
	} {
		zero := d.value == 0 && slices.Contains(mayBeZero, d.flag)
		if d.value < d.want && !zero {
			return fmt.Errorf("--%s is %v, must be at least %v", d.flag, d.value, d.want)
		}
	}
	if d := o.options.LeaderLease; d > maxLeaderLease {
		return fmt.Errorf("--leader-lease is %v, must be at most %v", d, maxLeaderLease)
	}
	for _, n := range []struct {
		flag             string
		value, low, high int64
	}{
		{"window", int64(o.options.Window), 1, 1024},
		{"threads", int64(o.threads), 0, 1024},
		{"max-slow-reads", int64(o.options.SlowReads), 0, 1024},
		{"max-waiting-scripts", int64(o.options.ScriptQueue), 1, 1 << 20},
		{"max-slow-read-memory", o.options.SlowReadMemory, 1 << 20, 1 << 50},
		{"snapshot-bytes", o.options.SnapshotBytes, 1, 1 << 50},
		{"trailing-bytes", o.options.TrailingBytes, 1, 1 << 50},
		{"max-clients", int64(o.limits.MaxClients), 1, 1 << 30},
		{"max-unauth-clients", int64(o.limits.MaxUnauth), 0, int64(o.limits.MaxClients)},
		{"max-failed-logins", int64(o.limits.FailedLogins), 1, 1 << 30},
		{"max-blocked-clients", int64(o.limits.MaxBlocked), 0, 1 << 30},
		{"max-script-log-rate", int64(o.logging.scriptRate), 0, 1 << 20},
		{"max-http-connections", int64(o.web.maxConns), 1, 1 << 20},
		{"max-client-memory", o.limits.ClientMemory, 0, 1 << 50},
		{"max-bulk-bytes", int64(o.limits.MaxBulk), 1, maxBulk},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("--%s is %d, must be %d to %d", n.flag, n.value, n.low, n.high)
		}
	}
	if err := fsm.CheckLockDelay(o.lockDelay); err != nil {
		return fmt.Errorf("--lock-delay is %q: %w", o.lockDelay, err)
	}
	if n := o.options.LockHistory; n != 0 && (n < history.MinBytes || n > history.MaxBytes) {
		return fmt.Errorf("--lock-history-size is %d, must be 0 or %d to %d", n, history.MinBytes,
			int64(history.MaxBytes))
	}
	if err := o.checkMinimums(); err != nil {
		return err
	}
	// The other limits follow from the flags.
	o.limits.UnauthBulk = min(o.limits.UnauthBulk, o.limits.MaxBulk)
	o.limits.MaxCommand = max(o.limits.MaxCommand, 2*o.limits.MaxBulk)
	if o.limits.MaxUnauth == 0 {
		o.limits.MaxUnauth = max(o.limits.MaxClients/2, 1) // 0 would mean no limit
	}
	o.limits.PushSoft = o.limits.PushHard / 4
	return o.limits.Validate()
}

// checkMinimums returns an error if a number is below its minimum. 0 means no limit
// and is allowed.
func (o *options) checkMinimums() error {
	for _, n := range []struct {
		flag       string
		value, low int64
	}{
		{"max-message-bytes", int64(o.limits.PushHard), 64 << 10},
		{"max-pattern-steps", int64(o.limits.PatternSteps), guard.MinPatternSteps},
	} {
		if n.value != 0 && n.value < n.low {
			return fmt.Errorf("--%s is %d, must be 0 or at least %d", n.flag, n.value, n.low)
		}
	}
	return nil
}

// mayBeZero are the flags of durations for which 0 has a meaning of its own.
var mayBeZero = []string{
	"command-timeout", "handshake-timeout", "leader-lease", "leader-silence", "login-timeout", "remove-away-after",
	"unauth-idle-timeout", "write-timeout",
}

// checkListeners returns an error if two ports have the same address.
func (o *options) checkListeners() error {
	flags := make(map[string]string)
	for _, a := range []struct{ flag, addr string }{
		{"client-addr", o.clientAddr}, {"peer-addr", o.peerAddr}, {"http-addr", o.httpAddr},
		{"sentinel-addr", o.discovery.sentinelAddr},
	} {
		if other, taken := flags[a.addr]; taken && a.addr != "" {
			return fmt.Errorf("--%s and --%s have the same address %s", other, a.flag, a.addr)
		}
		flags[a.addr] = a.flag
	}
	return nil
}

// checkAdvertisedPeer returns an error if the peer address that this node announces
// to the other nodes belongs to another port of this node. Without this check, a
// node that forms a cluster on its own would not notice this mistake.
func (o *options) checkAdvertisedPeer() error {
	for _, a := range []struct{ flag, addr string }{
		{"client-addr", o.clientAddr}, {"advertise-client-addr", o.advertiseClient}, {"http-addr", o.httpAddr},
		{"sentinel-addr", o.discovery.sentinelAddr},
	} {
		if o.advertisePeer != "" && a.addr == o.advertisePeer {
			return fmt.Errorf("other nodes would use %s for this node (--peers, --advertise-peer-addr), and that is "+
				"its --%s: --peers needs the --peer-addr of each node", a.addr, a.flag)
		}
	}
	return nil
}

// maxBulk is the maximum of --max-bulk-bytes: a command with two such arguments
// still fits into a frame between nodes.
const maxBulk = 16 << 20

// maxLeaderLease bounds --leader-lease. A candidate stores its vote for itself
// before it asks the other voters. So if a long promise delayed one candidate, the
// next candidate would campaign in the same term, and the votes could be split. A
// vote must also arrive before raft's request for the vote times out, after 3 s.
const maxLeaderLease = time.Second
