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
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Config is what a node is started with.
type Config struct {
	// NodeID names the node for good; it is part of the data directory.
	NodeID string
	// DataDir holds log, votes, snapshots and the node's identity. One process
	// at a time may use it.
	DataDir string
	// PeerAddr is where the node listens for other nodes, AdvertisePeerAddr
	// what it tells them ("" for PeerAddr); the latter may be a DNS name.
	PeerAddr, AdvertisePeerAddr string
	// ClientAddr, SentinelAddr ("" for none) and HTTPAddr are advertised in the
	// status of the node, and so is RunID, which names this run of the process.
	ClientAddr, SentinelAddr, HTTPAddr, RunID string
	// Peers are the nodes that form the cluster, by id, with their advertised
	// addresses; this node's own is among them. After the cluster has formed,
	// membership is in the log, and Peers only overrides addresses.
	Peers []Peer
	// Secret is the secret by which the nodes of the cluster recognize each other:
	// see rpc.Config. Nil for none, and then the peer port trusts whoever reaches it.
	Secret []byte
	// SecretOptional lets nodes without a secret in too.
	SecretOptional bool
	// LogStore is "wal" or "boltdb".
	LogStore string
	// Version is the program's version, for status.
	Version string
	// Features is the highest feature version that the node claims to know, 0 for
	// fsm.MaxFeatures. Tests make a node of an older program with it: one that
	// stops where that program would stop, and below fsm.FeatureMend one that
	// reports no feature version and sets it with each TermStart.
	Features int

	Options Options

	// Scripts interprets Lua scripts; nil for a program that has no interpreter:
	// then only the scripts that the machine knows by their SHA1 can be run.
	Scripts fsm.ScriptRunner

	// Catalog has all commands of the client port, for redis.acl_check_cmd; nil for
	// those that scripts can call.
	Catalog *acl.Catalog
	// ScriptRules says why scripts that this node runs may not call a command, as
	// fsm.ScriptRules does; nil if they may call all.
	ScriptRules func(cmd *fsm.Command, args [][]byte) string

	Logger hclog.Logger
	// Fatal is called when the node can no longer do its work: a failing or
	// stalled disk, a state machine that stopped. The process must exit, so that
	// another node leads. It must not return in production.
	Fatal func(error)

	// Clock, PeerListener, PeerDialer and OpenStores replace the system's clock,
	// network and disk in tests and fault harnesses.
	Clock        Clock
	PeerListener net.Listener
	PeerDialer   func(ctx context.Context, addr string) (net.Conn, error)
	OpenStores   func(storage.Config) (Stores, error)
}

// Stores is what a node keeps its data in: storage.Stores, whose methods say
// what they promise.
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

// Options are the node's timings and sizes. DefaultOptions sets them all.
type Options struct {
	// HeartbeatTimeout is how long a follower waits for its leader before it
	// stands for election (and up to as much again). Failover after a loss of
	// the network takes 1 to 2 of them. It must stay well above the slowest
	// fsync of a healthy disk, because heartbeats wait for it.
	HeartbeatTimeout time.Duration
	// LeaseTimeout is how long a leader goes on without a majority before it
	// steps down; at most HeartbeatTimeout.
	LeaseTimeout time.Duration
	// CommitTimeout is how long a leader may wait before it tells followers of
	// a commit when nothing else is to be sent.
	CommitTimeout time.Duration
	// StallTimeout is how long a disk write may take before the process ends.
	StallTimeout time.Duration

	// Window is how many entries may be on their way through the log.
	Window int
	// MaxEntryBytes and MaxEntryGroups close an entry. A single larger group
	// still gets an entry of its own.
	MaxEntryBytes, MaxEntryGroups int

	// LeaderWait is how long a group waits for a leader before it is refused as
	// not executed.
	LeaderWait time.Duration
	// ResolveWait is how long the fate of a group that was sent may stay open
	// before its client is told that it is unknown.
	ResolveWait time.Duration
	// RelinkEvery and DialTimeout pace the attempts to reach the leader.
	RelinkEvery, DialTimeout time.Duration
	// ConfirmRetry is how long a read round waits before it asks again.
	ConfirmRetry time.Duration

	// ExpireEvery is how often the leader looks for keys that are due, and
	// TickEvery how far the logged clock may fall behind while any key has a
	// TTL: what a failover may add to a TTL.
	ExpireEvery, TickEvery time.Duration

	// ScriptTime bounds one script. One that takes longer than ScriptMoment is
	// tried out beside the log before it may hold up the writes of others.
	ScriptTime, ScriptMoment time.Duration

	// WaiterGrace is how long a node may have no way to the leader before its
	// clients' waits in blocking commands are forgotten. Until then elements wait
	// with them. A node that lives lets its clients wait again, behind the others.
	// Replies that were served before stay: see fsm.HoldEnd.
	WaiterGrace time.Duration

	// SnapshotBytes of log make a snapshot due, TrailingBytes of it are kept
	// for followers that are a little behind.
	SnapshotBytes, TrailingBytes int64
	// SegmentBytes is the size of the files of a raft-wal log; 0 for the default
	// of cluster/storage.
	SegmentBytes int
	// FastFailover lets a node stand for election at once when its leader's
	// process is seen to be gone (connection closed and port refused).
	FastFailover bool
}

// DefaultOptions are those for a local network and solid-state disks.
func DefaultOptions() Options {
	return Options{
		HeartbeatTimeout: 500 * time.Millisecond,
		LeaseTimeout:     400 * time.Millisecond,
		CommitTimeout:    5 * time.Millisecond,
		StallTimeout:     3 * time.Second,
		Window:           1,
		MaxEntryBytes:    256 << 10,
		MaxEntryGroups:   4096,
		LeaderWait:       5 * time.Second,
		ResolveWait:      30 * time.Second,
		RelinkEvery:      20 * time.Millisecond,
		DialTimeout:      time.Second,
		ConfirmRetry:     20 * time.Millisecond,
		ExpireEvery:      50 * time.Millisecond,
		TickEvery:        2 * time.Second,
		ScriptTime:       500 * time.Millisecond,
		ScriptMoment:     10 * time.Millisecond,
		WaiterGrace:      time.Second,
		SnapshotBytes:    128 << 20,
		TrailingBytes:    16 << 20,
		FastFailover:     true,
	}
}

// ParsePeers reads "n1=host:port,n2=host:port".
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
		if _, err := dialable(addr); err != nil {
			return nil, fmt.Errorf("--peers: address of %s: %w", id, err)
		}
		if seen[id] {
			return nil, fmt.Errorf("--peers: %s stands there twice", id)
		}
		seen[id] = true
		peers = append(peers, Peer{ID: id, Addr: addr})
	}
	sort.Slice(peers, func(i, j int) bool { return peers[i].ID < peers[j].ID })
	return peers, nil
}

// dialable returns the host of an address that others are to connect to.
func dialable(addr string) (host string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("address %s: port is not a number from 1 to 65535", addr)
	}
	return host, nil
}

// Validate names the first setting that cannot work, and fills in those that
// follow from others.
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
	if err := checkPeerAddr(c.AdvertisePeerAddr); err != nil {
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
		return fmt.Errorf("lease timeout %v is longer than the heartbeat timeout %v", o.LeaseTimeout, o.HeartbeatTimeout)
	case o.Window < 1 || o.MaxEntryBytes < 1 || o.MaxEntryGroups < 1:
		return errors.New("window and entry limits must be at least 1")
	case o.ScriptTime <= 0 || o.ScriptMoment <= 0:
		return fmt.Errorf("script time is %v, moment %v: both must be more than 0", o.ScriptTime, o.ScriptMoment)
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
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return nil
}

// checkNodeID checks the name of a node.
func checkNodeID(id string) error {
	switch {
	case id == "":
		return errors.New("a node's id is empty")
	case strings.ContainsAny(id, " \t\r\n,=/"):
		return fmt.Errorf("%q holds a blank or one of , = /", id)
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

// raftConfig is raft's own configuration. What it sets differently from raft's
// defaults it does for a reason:
//
//   - heartbeat, election and lease timeouts are shorter, for a shorter gap;
//   - CommitTimeout 5 ms (50): followers learn of commits with the next append;
//   - MaxAppendEntries 64: entries hold hundreds of groups each;
//   - BatchApplyCh off: Apply returns when the entry has been taken;
//   - ShutdownOnRemove off: a removed node says so and stays, for its operator;
//   - snapshots are taken by bytes (see snapshots.go), never by raft's own count
//     of entries.
func (c *Config) raftConfig(notify chan<- bool, log hclog.Logger) *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(c.NodeID)
	rc.HeartbeatTimeout = c.Options.HeartbeatTimeout
	rc.ElectionTimeout = c.Options.HeartbeatTimeout
	rc.LeaderLeaseTimeout = c.Options.LeaseTimeout
	rc.CommitTimeout = c.Options.CommitTimeout
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
