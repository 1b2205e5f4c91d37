// Package health describes the state that nodes report about themselves, and
// keeps the last reports of the other members of the cluster.
package health

import (
	"time"

	"github.com/holdfast-kv/holdfast/cluster/diskspace"
)

// NodeStatus is the state that one node reports about itself.
type NodeStatus struct {
	ID        string `json:"id"`
	ClusterID string `json:"cluster_id,omitempty"`
	Role      string `json:"role"` // leader, follower, candidate, starting, removed, unreachable
	Voter     bool   `json:"voter"`
	Leader    string `json:"leader,omitempty"`
	LogStatus
	Endpoints
	RoomStatus
	Version  string  `json:"version,omitempty"`
	Uptime   float64 `json:"uptime_seconds"`
	Keys     int     `json:"keys"`
	LogBytes int64   `json:"log_bytes"`
	// StateIndex and StateHash are one point of the hash chain over everything
	// that the node has applied. Nodes that report the same index must report
	// the same hash.
	StateIndex uint64 `json:"state_index"`
	StateHash  string `json:"state_hash,omitempty"`
	PID        int    `json:"pid,omitempty"`
	RunID      string `json:"run_id,omitempty"`
	Reachable  bool   `json:"reachable"`
	Ready      bool   `json:"ready"` // the node has a link to a leader
	Detail     string `json:"detail,omitempty"`
	// LastAnswer is the time at which an unreachable member last answered the
	// node that reports this status, by the wall clock of the reporting node.
	// It is zero if the member has not answered since the reporting node
	// started.
	LastAnswer time.Time `json:"last_answer,omitzero"`
	// SnapshotError says since when and why snapshots of the node's state fail,
	// or why the node refuses the snapshots of the leader. It is "" if neither
	// is the case.
	SnapshotError string `json:"snapshot_error,omitempty"`
	FeatureStatus
	RestoreStatus
	Transition
	// Links are the links of the node to the other members.
	Links []Link `json:"links,omitempty"`
}

// Transition says whether a node is joining or stopping.
type Transition struct {
	// Settling is set until the node's log contains the change that admitted
	// the node.
	Settling bool `json:"settling,omitempty"`
	// Stopping is set from the beginning of an orderly stop. A node that is
	// stopping must not become leader.
	Stopping bool `json:"stopping,omitempty"`
}

// Link describes the link of a node to another member. The node asks the member
// for its state once a second.
type Link struct {
	To    string `json:"to"`
	Alive bool   `json:"alive"` // the member answered the latest request
	// RoundTrip is the shortest time between a request and its answer, among the
	// last requests. It is 0 if it is not known.
	RoundTrip float64 `json:"round_trip_ms,omitempty"`
	// Silent is the time since the last answer of a member that is not alive. It is
	// 0 if the member has not answered since the node started.
	Silent float64 `json:"silent_seconds,omitempty"`
}

// MarkSilent updates the links of a node, which describe the answers to earlier
// requests. It marks the links to members that have not answered the node's
// latest request as not alive. nodes is the result of that request for all
// members.
func MarkSilent(links []Link, nodes []NodeStatus) {
	for i := range links {
		for _, n := range nodes {
			if n.ID == links[i].To && !n.Reachable {
				links[i].Alive, links[i].RoundTrip = false, 0
			}
		}
	}
}

// RoomStatus says how much room a node has for data.
type RoomStatus struct {
	DiskStatus
	MemoryStatus
}

// DiskStatus is the state of the disk with a node's data directory.
type DiskStatus = diskspace.Status

// MemoryStatus contains the size of the data set as a node counts it, and the
// limits on the memory of the node.
type MemoryStatus struct {
	// DatasetBytes is the approximate memory of all keys and their values.
	// Nodes that have applied the same entries report the same value.
	DatasetBytes int64 `json:"dataset_bytes"`
	// MaxMemory is the size above which this node, as leader, refuses commands
	// that add data: the setting of the cluster, or else --maxmemory. It is 0
	// for no limit.
	MaxMemory int64 `json:"maxmemory_bytes,omitempty"`
	// ProcessMemory is how many bytes of memory the node's process may use, 0 if
	// that is not known.
	ProcessMemory uint64 `json:"process_memory_bytes,omitempty"`
	// MemoryRefused is set on the leader while it refuses commands that add
	// data because the data set is larger than MaxMemory.
	MemoryRefused bool `json:"memory_refused,omitempty"`
}

// LogStatus describes which part of the log a node has received and applied.
type LogStatus struct {
	Term      uint64 `json:"term"`
	Commit    uint64 `json:"commit_index"`
	Applied   uint64 `json:"applied_index"`
	LastIndex uint64 `json:"last_index"`
	Lag       uint64 `json:"lag"` // entries behind the highest known commit index
	// LeaderSilent says that the leader has sent the node nothing for so long that
	// it probably hangs or cannot be reached.
	LeaderSilent bool `json:"leader_silent,omitempty"`
}

// Endpoints are the addresses of a node.
type Endpoints struct {
	ClientAddr string `json:"client_addr,omitempty"`
	Sentinel   string `json:"sentinel_addr,omitempty"`
	PeerAddr   string `json:"peer_addr"`
	HTTPAddr   string `json:"http_addr,omitempty"`
}

// FeatureStatus is the report of a node about feature versions.
type FeatureStatus struct {
	// Features is the highest feature version that the node's program knows, or
	// 0 if the program does not report it. FeatureVersion is the feature
	// version of the cluster as of the last entry that the node has applied. On
	// the leader, FeaturesBlocked says why the feature version cannot be
	// raised.
	Features        int    `json:"features,omitempty"`
	FeatureVersion  int    `json:"feature_version"`
	FeaturesBlocked string `json:"features_blocked,omitempty"`
}

// RestoreStatus describes the effects of a restore or a recovery.
type RestoreStatus struct {
	// Quarantine is the time until locks are granted again, in seconds. It is 0
	// if there is no quarantine.
	Quarantine float64 `json:"quarantine_seconds,omitempty"`
	// TokenEpoch is the epoch of the cluster's fencing tokens.
	TokenEpoch uint64 `json:"token_epoch,omitempty"`
}
