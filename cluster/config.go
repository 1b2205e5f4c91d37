package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/diskspace"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/platform"
)

// Secrets contains the secrets with which the nodes of the cluster authenticate each
// other: see rpc.Config. Without a Secret, the peer port trusts every host that can
// reach it.
type Secrets struct {
	Secret         []byte
	PreviousSecret []byte // accepted too, while an operator replaces it with Secret on each node
	SecretOptional bool   // whether the node also accepts nodes without a secret
}

// Config is the configuration of a node.
type Config struct {
	// NodeID is the node's permanent name. The data directory contains it.
	NodeID string
	// DataDir holds the log, votes, snapshots and the node's identity. Only one
	// process at a time may use it.
	DataDir string
	// PeerAddr is the address on which the node listens for other nodes.
	// AdvertisePeerAddr is the address that the node announces to other nodes;
	// "" means PeerAddr. It may contain a DNS name.
	PeerAddr, AdvertisePeerAddr string
	// ClientAddr, SentinelAddr ("" for none) and HTTPAddr are advertised in the
	// node's status, and so is RunID, which identifies this run of the process.
	ClientAddr, SentinelAddr, HTTPAddr, RunID string
	// Peers are the nodes that form the cluster, in the order of their ids,
	// with their advertised addresses. If there are any, this node must be one
	// of them. After the cluster has formed, the log contains the members, and
	// Peers only overrides their addresses.
	Peers []Peer
	Secrets
	// LogStore is "wal" or "boltdb".
	LogStore string
	// Version is the program's version, for the status.
	Version string
	// Features is the highest feature version that the node claims to know, or
	// 0 for fsm.MaxFeatures. Tests use it to simulate an older program. Such a
	// node stops at the entries at which that program would stop. If Features
	// is below fsm.FeatureMend, the node also does what the programs before
	// that version did: it reports no feature version, and it sets the
	// cluster's feature version with each TermStart.
	Features int

	Options Options

	// Scripts interprets Lua scripts. If it is nil, only the scripts that the
	// state machine recognizes by their SHA1 can be run.
	Scripts fsm.ScriptRunner

	// Catalog contains all commands of the client port, for
	// redis.acl_check_cmd. If it is nil, that function knows only the commands
	// that scripts can call.
	Catalog *acl.Catalog
	// ScriptRules returns why scripts on this node may not call a command, or
	// "" if they may: see fsm.ScriptRules. If ScriptRules is nil, scripts may
	// call all commands.
	ScriptRules func(cmd *fsm.Command, args [][]byte) string

	Logger hclog.Logger
	// Fatal is called when the node cannot continue, for example because its
	// disk fails or stalls, or because its state machine has stopped. Fatal must
	// end the process, so that another node becomes leader. In production it
	// must not return.
	Fatal func(error)

	// Clock, PeerListener, PeerDialer, OpenStores and DiskSpace replace the
	// system's clock, network and disk in tests and fault harnesses. DiskSpace
	// returns the free bytes and the size of the file system of a directory.
	Clock        Clock
	PeerListener net.Listener
	PeerDialer   func(ctx context.Context, addr string) (net.Conn, error)
	OpenStores   func(storage.Config) (Stores, error)
	DiskSpace    func(dir string) (free, total int64, err error)
}

// Stores is the storage of a node. storage.Stores implements it and documents
// what the methods guarantee.
type Stores interface {
	Log() raft.LogStore
	Stable() raft.StableStore
	Snapshots() raft.SnapshotStore
	LogBytes() int64
	Empty() (bool, error)
	Identity() storage.Identity
	SetClusterID(id string, joins bool) error
	SetJoined(index, term uint64) error
	Close() error
}

func openStores(cfg storage.Config) (Stores, error) {
	s, err := storage.Open(cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Peer is a node of the initial cluster.
type Peer struct {
	ID   string
	Addr string
}

// WaiterOptions are the options for the removal of waiters whose nodes are
// gone.
type WaiterOptions struct {
	// WaiterGrace is how long a node may be disconnected from the leader before
	// the leader removes the waiters of the node's clients in blocking
	// commands. Until then, the waiters keep their positions. If the node is
	// alive, it adds its clients' waiters again after the removal, behind all
	// other waiters. The state machine keeps the replies of waiters that were
	// served before: see fsm.SuspendEnd.
	WaiterGrace time.Duration
	// WaiterWork is the longest time, estimated in steps of fsm.StepNanos, that
	// one entry may spend on the removal of waiters. Later entries remove the
	// remaining waiters.
	WaiterWork time.Duration
}

// Options are the node's timings and sizes. DefaultOptions returns the defaults.
type Options struct {
	RaftOptions

	// Window is how many entries may be in flight in the log at a time.
	Window int
	// MaxEntryBytes and MaxEntryGroups limit the size of an entry. A single
	// group that exceeds MaxEntryBytes gets an entry of its own.
	MaxEntryBytes, MaxEntryGroups int
	// EntryWork limits how long applying an entry may take. A single command or
	// transaction that takes longer gets its own entry. The leader refuses a
	// command or transaction that would take longer than MaxWriteTime. Both
	// limits are counted in steps, so they do not depend on the load of the
	// machine: see fsm.StepNanos. The default of MaxWriteTime is 6 ms, because an
	// entry must not take longer than 10 ms (cluster/machine/slowentry.go), and a
	// step can take longer than its estimate.
	EntryWork, MaxWriteTime time.Duration

	// LeaderWait is how long a group waits for a leader before it fails with
	// the outcome "not executed".
	LeaderWait time.Duration
	// ResolveWait is how long the node waits for the outcome of a group that it
	// has sent. It then replies to the client that the outcome is unknown.
	ResolveWait time.Duration
	// RelinkEvery is the time between attempts to connect to the leader, and
	// DialTimeout is the time limit of an attempt.
	RelinkEvery, DialTimeout time.Duration
	// ConfirmRetry is how long a ReadIndex round waits for confirmations before
	// it asks for them again.
	ConfirmRetry time.Duration

	// ExpireEvery is how often the leader looks for expired keys.
	// ClockEntryEvery is how far the logged clock may fall behind the leader's
	// clock while the state has a deadline, such as the TTL of a key. A
	// failover may lengthen a TTL by up to this time, in addition to the time
	// without a leader.
	ExpireEvery, ClockEntryEvery time.Duration

	// ScriptTime is the time limit of one script. A script that takes longer
	// than BriefScriptTime gets a dry run outside of the log before it may delay
	// the writes of other clients for a longer time.
	ScriptTime, BriefScriptTime time.Duration
	// ScriptWait bounds how long a slow script or a heavy write may wait in its
	// lane (the queue for dry runs): the limit is ScriptWait or 60 times
	// ScriptTime, whichever is longer. ScriptQueue bounds how many scripts and
	// writes may wait in a lane, and one user may have at most a quarter of that
	// number.
	ScriptWait  time.Duration
	ScriptQueue int

	// QuickRead is how long a group that only reads may delay the entries of
	// the log. A group that takes longer runs as a slow read.
	QuickRead time.Duration
	// SlowReadWait is how long a slow read waits for a slot, and SlowReadTime
	// is how long it may run. SlowReadMemory bounds the bytes of intermediate
	// results and replies of all slow reads of the node.
	SlowReadWait, SlowReadTime time.Duration
	SlowReadMemory             int64
	// SlowReads is the number of slots for slow reads. 0 means the number of
	// processors minus one, but at least one slot.
	SlowReads int

	WaiterOptions
	SnapshotOptions

	// FastFailover lets a node campaign at once when its leader's process has
	// ended, that is, when the connection is closed and the port refuses new
	// connections.
	FastFailover bool
}

// RaftOptions are the timings of elections, of the disk, and of removals.
type RaftOptions struct {
	// HeartbeatTimeout is the minimum time for which a follower waits for a
	// message from its leader before it campaigns; the maximum is twice as
	// long. Without LeaderSilence, failover after a loss of the network takes
	// one to two times this timeout. HeartbeatTimeout must stay well above the
	// slowest fsync of a healthy disk, because heartbeats wait for fsyncs.
	HeartbeatTimeout time.Duration
	// LeaderSilence is how long the leader must have sent nothing before the
	// other voters elect another leader, if a majority of the voters agrees that
	// it is silent: see transport.Silence. The node uses at least two fifths of
	// HeartbeatTimeout, because the heartbeats of an idle leader can be up to one
	// fifth of HeartbeatTimeout apart. 0 means that only HeartbeatTimeout detects
	// a silent leader.
	LeaderSilence time.Duration
	// LeaderLease is the time for which the voters promise their leader not to
	// vote. With these promises, the leader answers reads without a ReadIndex
	// round: see package readindex. 0 means that the leader asks for no
	// promises. The promises delay an election by up to LeaderLease, which must
	// be at most half of HeartbeatTimeout.
	LeaderLease time.Duration
	// LeaseTimeout is how long a leader continues without a majority before it
	// steps down. It must be at most HeartbeatTimeout.
	LeaseTimeout time.Duration
	// CommitTimeout is how long a leader may wait before it sends a new commit
	// index to the followers when it has nothing else to send.
	CommitTimeout time.Duration
	// StallTimeout is how long a disk write may take before the process ends.
	StallTimeout time.Duration
	// RemoveAwayAfter is how long a member may be away before the leader removes
	// it. 0 means that only an operator removes members.
	RemoveAwayAfter time.Duration
}

// SnapshotOptions limit the size of the log, of the data set and of the history
// of locks, and set the free space that the disk must keep.
type SnapshotOptions struct {
	// SnapshotBytes is the size of the log, in bytes, at which a snapshot is
	// taken. TrailingBytes of the log are kept for followers that are slightly
	// behind.
	SnapshotBytes, TrailingBytes int64
	// SegmentBytes is the size of the files of a raft-wal log, or 0 for the
	// default of cluster/storage.
	SegmentBytes int
	// DiskReserve is the free space of the disk, in bytes, below which a leader
	// refuses commands that add data. A negative number means the default: 5 %
	// of the disk or 1 GiB, whichever is less, but at least two segments of the
	// log. 0 means that nothing is refused.
	DiskReserve int64
	// MaxMemory is the size of the data set, in bytes, above which this node,
	// as leader, refuses commands that add data. 0 means no limit. The
	// cluster's setting maxmemory, if it exists, takes precedence.
	MaxMemory int64
	// LockHistory bounds the files with the history of locks, in bytes: at least
	// history.MinBytes, or 0 if the node keeps no history.
	LockHistory int64
}

// DefaultOptions returns the options for a local network and solid-state disks.
func DefaultOptions() Options {
	return Options{
		RaftOptions: RaftOptions{
			HeartbeatTimeout: 500 * time.Millisecond,
			LeaderSilence:    200 * time.Millisecond,
			LeaseTimeout:     400 * time.Millisecond,
			CommitTimeout:    5 * time.Millisecond,
			StallTimeout:     3 * time.Second,
		},
		Window:          1,
		MaxEntryBytes:   256 << 10,
		MaxEntryGroups:  4096,
		EntryWork:       4 * time.Millisecond,
		MaxWriteTime:    6 * time.Millisecond,
		LeaderWait:      5 * time.Second,
		ResolveWait:     30 * time.Second,
		RelinkEvery:     20 * time.Millisecond,
		DialTimeout:     time.Second,
		ConfirmRetry:    20 * time.Millisecond,
		ExpireEvery:     50 * time.Millisecond,
		ClockEntryEvery: 2 * time.Second,
		ScriptTime:      500 * time.Millisecond,
		BriefScriptTime: 2 * time.Millisecond,
		QuickRead:       500 * time.Microsecond,
		SlowReadWait:    5 * time.Second,
		SlowReadTime:    10 * time.Second,
		ScriptWait:      30 * time.Second,
		ScriptQueue:     1024,
		SlowReadMemory:  256 << 20,
		FastFailover:    true,
		WaiterOptions: WaiterOptions{
			WaiterGrace: time.Second,
			WaiterWork:  time.Millisecond,
		},
		SnapshotOptions: SnapshotOptions{
			SnapshotBytes: 128 << 20,
			TrailingBytes: 16 << 20,
			DiskReserve:   -1,
		},
	}
}

// ParsePeers parses a list of the form "n1=host:port,n2=host:port", and returns
// the peers in the order of their ids.
func ParsePeers(s string) ([]Peer, error) {
	var peers []Peer
	seen := make(map[string]bool)
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		id, addr, ok := strings.Cut(part, "=")
		if !ok || id == "" || addr == "" {
			return nil, fmt.Errorf("--peers: %q is not of the form id=host:port", part)
		}
		if err := CheckPeerAddr(addr); err != nil {
			return nil, fmt.Errorf("--peers: address of %s: %w", id, err)
		}
		if seen[id] {
			return nil, fmt.Errorf("--peers: %s is listed twice", id)
		}
		for _, p := range peers {
			if p.Addr == addr {
				return nil, fmt.Errorf("--peers: %s and %s have the same address %s", p.ID, id, addr)
			}
		}
		seen[id] = true
		peers = append(peers, Peer{ID: id, Addr: addr})
	}
	sort.Slice(peers, func(i, j int) bool { return peers[i].ID < peers[j].ID })
	return peers, nil
}

// maxHostName is the longest name that DNS allows, in bytes.
const maxHostName = 253

// CheckPeerAddr returns an error if addr is not an address to which other nodes
// can connect.
func CheckPeerAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("address %s: port is not a number from 1 to 65535", addr)
	}
	if strings.ContainsAny(host, " \t\r\n,=/@") || len(host) > maxHostName {
		return fmt.Errorf("address %q: the host is neither a name nor an IP address", addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%q is not an address that another node can reach: use the name or an IP address of the "+
			"machine", addr)
	}
	return nil
}

// Validate returns an error for the first invalid setting, and fills in the
// settings that have defaults.
func (c *Config) Validate() error {
	if c.NodeID == "" {
		return errors.New("--node-id is missing")
	}
	if err := checkNodeID(c.NodeID); err != nil {
		return fmt.Errorf("--node-id: %w", err)
	}
	switch {
	case c.DataDir == "":
		return errors.New("--data-dir is missing")
	case c.PeerAddr == "":
		return errors.New("--peer-addr is missing")
	case c.LogStore != "wal" && c.LogStore != "boltdb":
		return fmt.Errorf("--log-store is %q, not wal or boltdb", c.LogStore)
	}
	if c.AdvertisePeerAddr == "" {
		c.AdvertisePeerAddr = c.PeerAddr
	}
	if err := CheckPeerAddr(c.AdvertisePeerAddr); err != nil {
		return fmt.Errorf("--advertise-peer-addr: %w", err)
	}
	if len(c.Peers) > 0 {
		if _, ok := c.peer(c.NodeID); !ok {
			return fmt.Errorf("--peers does not name this node, %s", c.NodeID)
		}
	}
	o := &c.Options
	switch {
	case o.LeaseTimeout > o.HeartbeatTimeout:
		return fmt.Errorf("lease timeout %v is longer than the heartbeat timeout %v",
			o.LeaseTimeout, o.HeartbeatTimeout)
	case o.LeaderLease < 0 || o.LeaderLease > o.HeartbeatTimeout/2:
		return fmt.Errorf("leader lease is %v: must be from 0 to half of the heartbeat timeout %v (--leader-lease)",
			o.LeaderLease, o.HeartbeatTimeout)
	case o.Window < 1 || o.MaxEntryBytes < 1 || o.MaxEntryGroups < 1:
		return errors.New("window and entry limits must be at least 1")
	case o.EntryWork < fsm.StepNanos || o.MaxWriteTime < o.EntryWork:
		return fmt.Errorf("applying an entry may take %v, and a single command %v: "+
			"the first must be at least one step, and the second at least as long as the first (--max-write-time)",
			o.EntryWork, o.MaxWriteTime)
	case o.ScriptTime <= 0 || o.BriefScriptTime <= 0:
		return fmt.Errorf("script time is %v, script budget without a dry run is %v: both must be more than 0",
			o.ScriptTime, o.BriefScriptTime)
	case o.ScriptWait <= 0 || o.ScriptQueue < 1 || o.SlowReads < 0:
		return fmt.Errorf("at most %[2]d slow scripts wait for at most %[1]v, and %[3]d slow reads run at once: "+
			"the first two numbers must be more than 0, and the third must not be negative",
			o.ScriptWait, o.ScriptQueue, o.SlowReads)
	case o.QuickRead <= 0 || o.SlowReadWait <= 0 || o.SlowReadTime <= 0 || o.SlowReadMemory <= 0:
		return fmt.Errorf("the limits of reads are %v for a quick read, %v to wait for a slot, "+
			"%v for a slow read and %d bytes: all must be more than 0",
			o.QuickRead, o.SlowReadWait, o.SlowReadTime, o.SlowReadMemory)
	}
	if c.Features == 0 {
		c.Features = fsm.MaxFeatures
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.OpenStores == nil {
		c.OpenStores = openStores
	}
	if c.DiskSpace == nil {
		c.DiskSpace = diskspace.Of
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return nil
}

// checkNodeID returns an error if id cannot be the id of a node.
func checkNodeID(id string) error {
	switch {
	case id == "":
		return errors.New("a node's id is empty")
	case strings.ContainsAny(id, " \t\r\n,=/@"): // a session's name is NODE@DIRECTORY
		return fmt.Errorf("%q contains whitespace or one of the characters , = / @", id)
	case len(id) > 64:
		return errors.New("a node's id is longer than 64 bytes")
	}
	return nil
}

func (c *Config) peer(id string) (Peer, bool) {
	for _, p := range c.Peers {
		if p.ID == id {
			return p, true
		}
	}
	return Peer{}, false
}

// peerList formats --peers in a canonical form for comparison.
func (c *Config) peerList() string {
	var b strings.Builder
	for i, p := range c.Peers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(p.ID + "=" + p.Addr)
	}
	return b.String()
}

// raftConfig returns the configuration of raft. These are the reasons for its
// settings, some of which are also raft's defaults:
//
//   - The heartbeat, election and lease timeouts are shorter than raft's
//     defaults, so that failover is faster.
//   - CommitTimeout is at least two fifths of the heartbeat timeout (200 ms
//     with the default settings), because transport.Transport reports commits
//     to the followers earlier.
//   - MaxAppendEntries is 64, because one entry may contain hundreds of groups.
//   - BatchApplyCh is off, so that Apply returns when raft has accepted the
//     entry.
//   - ShutdownOnRemove is off: a removed node keeps running and reports its
//     removal to its operator.
//   - raft itself starts no snapshots. The node decides by the size of the log
//     in bytes when to take one: see snapshot.Taker.
func (c *Config) raftConfig(notify chan<- bool, log hclog.Logger) *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(c.NodeID)
	rc.HeartbeatTimeout = c.Options.HeartbeatTimeout
	rc.ElectionTimeout = c.Options.HeartbeatTimeout
	rc.LeaderLeaseTimeout = c.Options.LeaseTimeout
	rc.CommitTimeout = max(c.Options.CommitTimeout, 2*c.Options.HeartbeatTimeout/5)
	rc.MaxAppendEntries = 64
	rc.BatchApplyCh = false
	rc.ShutdownOnRemove = false
	rc.SnapshotInterval = 24 * time.Hour
	rc.SnapshotThreshold = 1 << 62
	rc.TrailingLogs = 10240
	rc.NoLegacyTelemetry = true
	rc.NotifyCh = notify
	rc.Logger = log
	return rc
}

// leaderSilence returns LeaderSilence, raised if HeartbeatTimeout requires it.
func (o *Options) leaderSilence() time.Duration {
	if o.LeaderSilence == 0 {
		return 0
	}
	return max(o.LeaderSilence, 2*o.HeartbeatTimeout/5)
}

// Clock is a node's source of time. Tests replace it.
type Clock interface {
	// Mono returns the time since an arbitrary moment. It never goes back and
	// does not follow changes of the wall clock.
	Mono() time.Duration
	// Wall returns the wall clock.
	Wall() time.Time
}

// systemClock is the system's clock. Mono reads a clock that, unlike Go's own
// monotonic clock, advances while the machine is suspended. With Go's clock, a TTL
// would last longer by the time of a suspension, and a leader lease would not be
// safe: see package readindex.
type systemClock struct{}

func (systemClock) Mono() time.Duration { return platform.Elapsed() }

func (systemClock) Wall() time.Time { return time.Now() }
