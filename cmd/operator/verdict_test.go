package operator

import (
	"testing"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

func TestAssess(t *testing.T) {
	up := func(id, role string) cluster.NodeStatus {
		return cluster.NodeStatus{ID: id, Role: role, Voter: true, Reachable: true}
	}
	down := func(id string) cluster.NodeStatus {
		return cluster.NodeStatus{ID: id, Role: "unreachable", Voter: true, Detail: "connection refused"}
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
	nearly.MemoryStatus = cluster.MemoryStatus{DatasetBytes: 120 << 20, MaxMemory: 128 << 20}
	over.MemoryStatus = cluster.MemoryStatus{DatasetBytes: 129 << 20, MaxMemory: 128 << 20, MemoryRefused: true}
	removed := up("n3", "removed") // a removed node that is asked counts itself
	for _, c := range []struct {
		name   string
		nodes  []cluster.NodeStatus
		code   terminal.ExitCode
		says   string
		advice int
	}{
		{"one node", []cluster.NodeStatus{up("n1", "leader")}, 0, "Healthy: tolerates no more failures", 0},
		{"three nodes", []cluster.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower")}, 0,
			"Healthy: tolerates 1 more failure", 0},
		{"five nodes", []cluster.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower"),
			up("n4", "follower"), up("n5", "follower")}, 0, "Healthy: tolerates 2 more failures", 0},
		{"a learner does not count", []cluster.NodeStatus{up("n1", "leader"), up("n2", "follower"), down("n3"), learner},
			exitDegraded, "Degraded: n3 is unreachable: connection refused; tolerates no more failures", 0},
		{"four voters", []cluster.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower"),
			up("n4", "follower")}, 0, "Healthy: tolerates 1 more failure", 1},
		{"no majority", []cluster.NodeStatus{up("n1", "candidate"), down("n2"), down("n3")}, exitNoLeader,
			"No leader: writes wait until a majority of the voters is up and connected (1 of 3 voters are reachable, " +
				"2 are needed)", 0},
		{"forming", []cluster.NodeStatus{up("n1", "starting"), up("n2", "starting")}, exitNoLeader,
			"No leader: writes wait until a majority of the voters is up and connected (2 of 2 voters are reachable, " +
				"2 are needed)", 0},
		{"far behind", []cluster.NodeStatus{up("n1", "leader"), behind, up("n3", "follower")}, exitDegraded,
			"Degraded: n2 is 20001 entries behind; tolerates no more failures", 0},
		{"starting", []cluster.NodeStatus{up("n1", "leader"), up("n2", "starting"), up("n3", "follower")}, exitDegraded,
			"Degraded: n2 is starting; tolerates no more failures", 0},
		{"no snapshot", []cluster.NodeStatus{up("n1", "leader"), noSnapshot, up("n3", "follower")}, exitDegraded,
			"Degraded: n2: no space left on device; tolerates 1 more failure", 0},
		{"low disk", []cluster.NodeStatus{refusing, low, up("n3", "follower")}, exitDegraded,
			"Degraded: commands that add data are refused; " +
				"n2 has 100MiB of disk space left, less than its reserve of 512MiB; tolerates 1 more failure", 0},
		{"full disk", []cluster.NodeStatus{up("n1", "leader"), full, up("n3", "follower")}, exitDegraded,
			"Degraded: n2 has only 100MiB of disk space left and accepts no entries; tolerates no more failures", 0},
		{"much data", []cluster.NodeStatus{nearly}, 0, "Healthy: tolerates no more failures", 1},
		{"too much data", []cluster.NodeStatus{over}, exitDegraded, "Degraded: commands that add data are refused, " +
			"because the data set takes 129MiB and maxmemory is 128MiB; tolerates no more failures", 0},
		{"removed", []cluster.NodeStatus{up("n1", "leader"), removed}, exitDegraded,
			"Degraded: n3 was removed from the cluster; tolerates no more failures", 0},
	} {
		v := verdict.Assess(c.nodes)
		if exitCode(v) != c.code || v.Sentence != c.says || len(v.Advice) != c.advice {
			t.Errorf("%s: code %d, %q, advice %q", c.name, exitCode(v), v.Sentence, v.Advice)
		}
	}
}
