package verdict_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
)

func TestAssess(t *testing.T) {
	up := func(id, role string) health.NodeStatus {
		return health.NodeStatus{ID: id, Role: role, Voter: true, Reachable: true}
	}
	down := func(id string) health.NodeStatus {
		return health.NodeStatus{ID: id, Role: "unreachable", Voter: true, Detail: "connection refused"}
	}
	learner := up("n4", "follower")
	learner.Voter = false
	behind := up("n2", "follower")
	behind.Lag = verdict.MaxHealthyLag + 1
	noSnapshot := up("n2", "follower")
	noSnapshot.SnapshotError = "no space left on device"
	low := up("n2", "follower")
	low.DiskFree, low.DiskTotal, low.DiskReserve, low.DiskLow = 100<<20, 10<<30, 512<<20, true
	full := low
	full.DiskFull = true
	refusing := up("n1", "leader")
	refusing.WritesRefused = "MISCONF"
	nearly, over := up("n1", "leader"), up("n1", "leader")
	nearly.MemoryStatus = health.MemoryStatus{DatasetBytes: 120 << 20, MaxMemory: 128 << 20}
	over.MemoryStatus = health.MemoryStatus{DatasetBytes: 129 << 20, MaxMemory: 128 << 20, MemoryRefused: true}
	removed := up("n3", "removed") // a removed node that is asked counts itself
	for _, c := range []struct {
		name   string
		nodes  []health.NodeStatus
		state  string
		says   string
		advice int
	}{
		{"one node", []health.NodeStatus{up("n1", "leader")}, verdict.Healthy, "Healthy: tolerates no more failures", 0},
		{"three nodes", []health.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower")}, verdict.Healthy,
			"Healthy: tolerates 1 more failure", 0},
		{"five nodes", []health.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower"),
			up("n4", "follower"), up("n5", "follower")}, verdict.Healthy, "Healthy: tolerates 2 more failures", 0},
		{"a learner does not count", []health.NodeStatus{up("n1", "leader"), up("n2", "follower"), down("n3"), learner},
			verdict.Degraded, "Degraded: n3 is unreachable: connection refused; tolerates no more failures", 0},
		{"four voters", []health.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower"),
			up("n4", "follower")}, verdict.Healthy, "Healthy: tolerates 1 more failure", 1},
		{"no majority", []health.NodeStatus{up("n1", "candidate"), down("n2"), down("n3")}, verdict.NoLeader,
			"No leader: writes wait until a majority of the voters is up and connected (1 of 3 voters are reachable, " +
				"2 are needed)", 0},
		{"forming", []health.NodeStatus{up("n1", "starting"), up("n2", "starting")}, verdict.NoLeader,
			"No leader: writes wait until a majority of the voters is up and connected (2 of 2 voters are reachable, " +
				"2 are needed)", 0},
		{"far behind", []health.NodeStatus{up("n1", "leader"), behind, up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2 is 20001 entries behind; tolerates no more failures", 0},
		{"starting", []health.NodeStatus{up("n1", "leader"), up("n2", "starting"), up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2 is starting; tolerates no more failures", 0},
		{"no snapshot", []health.NodeStatus{up("n1", "leader"), noSnapshot, up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2: no space left on device; tolerates 1 more failure", 0},
		{"low disk", []health.NodeStatus{refusing, low, up("n3", "follower")}, verdict.Degraded,
			"Degraded: commands that add data are refused; " +
				"n2 has 100MiB of disk space left, less than its reserve of 512MiB; tolerates 1 more failure", 0},
		{"full disk", []health.NodeStatus{up("n1", "leader"), full, up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2 has only 100MiB of disk space left and accepts no entries; tolerates no more failures", 0},
		{"much data", []health.NodeStatus{nearly}, verdict.Healthy, "Healthy: tolerates no more failures", 1},
		{"too much data", []health.NodeStatus{over}, verdict.Degraded, "Degraded: commands that add data are refused, " +
			"because the data set takes 129MiB and maxmemory is 128MiB; tolerates no more failures", 0},
		{"removed", []health.NodeStatus{up("n1", "leader"), removed}, verdict.Degraded,
			"Degraded: n3 was removed from the cluster; tolerates no more failures", 0},
	} {
		v := verdict.Assess(c.nodes)
		if v.State != c.state || v.Sentence != c.says || len(v.Advice) != c.advice {
			t.Errorf("%s: state %s, %q, advice %q", c.name, v.State, v.Sentence, v.Advice)
		}
	}
}
