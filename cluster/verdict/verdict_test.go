package verdict_test

import (
	"slices"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
)

func TestAssess(t *testing.T) {
	for _, c := range slices.Concat(voterCases(), leaderCases(), stateCases(), linkCases()) {
		v := verdict.Assess(c.nodes)
		if v.State != c.state || v.Sentence != c.says || len(v.Advice) != c.advice {
			t.Errorf("%s: got state %s, sentence %q, advice %q, want those of the case", c.name, v.State, v.Sentence, v.Advice)
		}
	}
}

// assessCase contains the status of the nodes, and the expected verdict.
type assessCase struct {
	name   string
	nodes  []health.NodeStatus
	state  string
	says   string
	advice int
}

func up(id, role string) health.NodeStatus {
	return health.NodeStatus{ID: id, Role: role, Voter: true, Reachable: true}
}

func down(id string) health.NodeStatus {
	return health.NodeStatus{ID: id, Role: "unreachable", Voter: true, Detail: "connection refused"}
}

// linked returns a node with links to others.
func linked(id, role string, links ...health.Link) health.NodeStatus {
	n := up(id, role)
	n.Links = links
	return n
}

// follows returns a node that follows a leader.
func follows(n health.NodeStatus, leader string) health.NodeStatus {
	n.Leader = leader
	return n
}

// fullDisk returns a follower whose disk counts as full.
func fullDisk(id string) health.NodeStatus {
	n := lowDisk(id)
	n.DiskFull = true
	return n
}

// lowDisk returns a follower whose disk space is below its reserve.
func lowDisk(id string) health.NodeStatus {
	n := up(id, "follower")
	n.DiskFree, n.DiskTotal, n.DiskReserve, n.DiskLow = 100<<20, 10<<30, 512<<20, true
	return n
}

// voterCases returns the cases that differ in the number of voters.
func voterCases() []assessCase {
	learner := up("n4", "follower")
	learner.Voter = false
	return []assessCase{
		{"one node", []health.NodeStatus{up("n1", "leader")}, verdict.Healthy, "Healthy: tolerates no more failures", 0},
		{"three nodes", []health.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower")}, verdict.Healthy,
			"Healthy: tolerates 1 more failure", 0},
		{"five nodes", []health.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower"),
			up("n4", "follower"), up("n5", "follower")}, verdict.Healthy, "Healthy: tolerates 2 more failures", 0},
		{"a learner does not count", []health.NodeStatus{up("n1", "leader"), up("n2", "follower"), down("n3"), learner},
			verdict.Degraded, "Degraded: n3 is unreachable: connection refused; tolerates no more failures", 0},
		{"four voters", []health.NodeStatus{up("n1", "leader"), up("n2", "follower"), up("n3", "follower"),
			up("n4", "follower")}, verdict.Healthy, "Healthy: tolerates 1 more failure", 1},
	}
}

// leaderCases returns the cases without a leader, or with a leader that not all
// nodes reach.
func leaderCases() []assessCase {
	follower := follows(linked("n2", "follower", health.Link{To: "n3", Alive: true}), "n3")
	leading := linked("n2", "leader", health.Link{To: "n3", Alive: true}, health.Link{To: "n4", Alive: true})
	cutOff := up("n4", "follower")
	cutOff.Voter = false
	return []assessCase{
		{"no majority", []health.NodeStatus{up("n1", "candidate"), down("n2"), down("n3")}, verdict.NoLeader,
			"No leader in reach: writes through this node wait until it reaches a majority of the voters (1 of 3 voters " +
				"are reachable, 2 are needed)", 1},
		{"cut off from the leader", []health.NodeStatus{up("n1", "candidate"), follower, down("n3")}, verdict.NoLeader,
			"No leader in reach: other nodes follow n3, which this node does not reach; writes through this node wait", 0},
		{"cut off from all but the leader", []health.NodeStatus{up("n1", "follower"), leading, down("n3"), down("n4"),
			down("n5")}, verdict.Degraded, "Degraded: n3 is unreachable: connection refused; n4 is unreachable: " +
			"connection refused; n5 is unreachable: connection refused; this node reaches only 2 of 5 voters", 0},
		{"the leader has just lost the majority", []health.NodeStatus{up("n1", "leader"), down("n2"), down("n3")},
			verdict.Degraded, "Degraded: n2 is unreachable: connection refused; n3 is unreachable: connection refused; " +
				"writes through this node wait, because only 1 of 3 voters are known to accept entries and 2 are needed", 0},
		{"forming", []health.NodeStatus{up("n1", "starting"), up("n2", "starting")}, verdict.NoLeader,
			"No leader: writes wait until the voters have elected one (2 of 2 voters accept entries, 2 are needed)", 0},
		{"a learner is cut off from the leader", []health.NodeStatus{follows(up("n1", "follower"), "n3"), follower,
			down("n3"), cutOff},
			verdict.NoLeader, "No leader in reach: other nodes follow n3, which this node does not reach; writes through " +
				"this node wait", 0},
		{"full disks, and no leader", []health.NodeStatus{up("n1", "follower"), fullDisk("n2"), fullDisk("n3")}, verdict.NoLeader,
			"No leader: writes wait until the voters have elected one (1 of 3 voters accept entries, 2 are needed)", 0},
	}
}

// stateCases returns the cases that differ in the state of a node.
func stateCases() []assessCase {
	behind, noSnapshot := up("n2", "follower"), up("n2", "follower")
	behind.Lag = verdict.MaxHealthyLag + 1
	noSnapshot.SnapshotError = "no space left on device"
	refusing := up("n1", "leader")
	refusing.WritesRefused = "MISCONF"
	healing := lowDisk("n2")
	healing.DiskFree = 520 << 20
	nearly, over := up("n1", "leader"), up("n1", "leader")
	nearly.MemoryStatus = health.MemoryStatus{DatasetBytes: 120 << 20, MaxMemory: 128 << 20}
	over.MemoryStatus = health.MemoryStatus{DatasetBytes: 129 << 20, MaxMemory: 128 << 20, MemoryRefused: true}
	removed := up("n3", "removed") // the status comes from the removed node, which still lists itself
	return []assessCase{
		{"far behind", []health.NodeStatus{up("n1", "leader"), behind, up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2 is 20001 entries behind; tolerates no more failures", 0},
		{"starting", []health.NodeStatus{up("n1", "leader"), up("n2", "starting"), up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2 is starting; tolerates no more failures", 0},
		{"no snapshot", []health.NodeStatus{up("n1", "leader"), noSnapshot, up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2: no space left on device; tolerates 1 more failure", 0},
		{"low disk", []health.NodeStatus{refusing, lowDisk("n2"), up("n3", "follower")}, verdict.Degraded,
			"Degraded: commands that add data are refused; " +
				"n2 has 100MiB of disk space left, less than its reserve of 512MiB; tolerates 1 more failure", 0},
		{"the disk heals", []health.NodeStatus{refusing, healing, up("n3", "follower")}, verdict.Degraded,
			"Degraded: commands that add data are refused; " +
				"n2 has 520MiB of disk space left and needs 544MiB before it counts as having room; tolerates 1 more failure", 0},
		{"full disk", []health.NodeStatus{up("n1", "leader"), fullDisk("n2"), up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2 has only 100MiB of disk space left and accepts no entries; tolerates no more failures", 0},
		{"much data", []health.NodeStatus{nearly}, verdict.Healthy, "Healthy: tolerates no more failures", 1},
		{"too much data", []health.NodeStatus{over}, verdict.Degraded, "Degraded: commands that add data are refused, " +
			"because the data set takes 129MiB and maxmemory is 128MiB; tolerates no more failures", 0},
		{"removed", []health.NodeStatus{up("n1", "leader"), removed}, verdict.Degraded,
			"Degraded: n3 was removed from the cluster; tolerates no more failures", 0},
	}
}

// linkCases returns the cases that differ in the links between the nodes.
func linkCases() []assessCase {
	reaching := linked("n2", "follower",
		health.Link{To: "n1", Alive: true, RoundTrip: 0.3}, health.Link{To: "n3", Alive: true, RoundTrip: 0.4})
	far := linked("n1", "leader",
		health.Link{To: "n2", Alive: true, RoundTrip: 130}, health.Link{To: "n3", Alive: true, RoundTrip: 20})
	cut := linked("n2", "follower", health.Link{To: "n1", Alive: true}, health.Link{To: "n3", Silent: 4})
	blink := linked("n2", "follower", health.Link{To: "n1", Alive: true}, health.Link{To: "n3", Silent: 1})
	return []assessCase{
		{"all reach each other", []health.NodeStatus{up("n1", "leader"), reaching, up("n3", "follower")}, verdict.Healthy,
			"Healthy: tolerates 1 more failure", 0},
		{"long round trip", []health.NodeStatus{far, up("n2", "follower"), up("n3", "follower")}, verdict.Healthy,
			"Healthy: tolerates 1 more failure", 1},
		{"cut off from one", []health.NodeStatus{up("n1", "leader"), cut, up("n3", "follower")}, verdict.Degraded,
			"Degraded: n2 gets no answers from n3; tolerates 1 more failure", 0},
		{"short silence", []health.NodeStatus{up("n1", "leader"), blink, up("n3", "follower")}, verdict.Healthy,
			"Healthy: tolerates 1 more failure", 0},
		{"cut off from a node that is down", []health.NodeStatus{up("n1", "leader"), cut, down("n3")}, verdict.Degraded,
			"Degraded: n3 is unreachable: connection refused; tolerates no more failures", 0},
	}
}

// TestAssess_Witness checks that the remedy for an unreachable node depends on
// whether another node reaches it.
func TestAssess_Witness(t *testing.T) {
	nodes := []health.NodeStatus{
		{ID: "n1", Role: "leader", Voter: true, Reachable: true},
		{ID: "n2", Role: "follower", Voter: true, Reachable: true},
		{ID: "n3", Role: "unreachable", Voter: true, Endpoints: health.Endpoints{PeerAddr: "host:1"}},
	}
	for witness, want := range map[bool]string{
		true: "the process of n3 runs, because n2 gets answers from it: check the network to host:1",
		false: "check that the process of n3 runs and that the network to host:1 works; if the node is lost, remove it " +
			"(holdfast member remove) and add another",
	} {
		nodes[1].Links = []health.Link{{To: "n3", Alive: witness}}
		if v := verdict.Assess(nodes); len(v.Problems) != 1 || v.Problems[0].Remedy != want {
			t.Errorf("witness %v: problems %+v, want one with the remedy for this case", witness, v.Problems)
		}
	}
}

// TestAssess_Majority checks that, without a majority of the voters, the remedy
// for an unreachable node is not a change of the members: such a change would
// need that majority.
func TestAssess_Majority(t *testing.T) {
	nodes := []health.NodeStatus{
		{ID: "n1", Role: "candidate", Voter: true, Reachable: true},
		{ID: "n2", Role: "unreachable", Voter: true, Endpoints: health.Endpoints{PeerAddr: "host:1"}},
		{ID: "n3", Role: "unreachable", Voter: true, Endpoints: health.Endpoints{PeerAddr: "host:2"}},
	}
	const want = "check that the process of n2 runs and that the network to host:1 works; if a majority of the disks is " +
		"lost for good, make a new cluster (holdfast recover)"
	if v := verdict.Assess(nodes); len(v.Problems) != 2 || v.Problems[0].Remedy != want {
		t.Errorf("problems %+v, want two, the first with the remedy for a lost majority", v.Problems)
	}
}
