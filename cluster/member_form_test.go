package cluster_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/rpc"
)

func TestForm_AnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"n1", "n2", "n3"}, {"n3", "n2", "n1"}, {"n2", "n1", "n3"}} {
		t.Run(strings.Join(order, "-"), func(t *testing.T) {
			t.Parallel()
			c := prepare(t, 3)
			c.open(order[:2]...)
			during(2 * time.Second) // no node may form a cluster meanwhile
			for _, id := range order[:2] {
				if st := c.node(id).Status(); st.Term != 0 {
					t.Fatalf("%s has started without all peers: %+v", id, st)
				}
				if st := c.node(id).Status(); !strings.Contains(st.Detail, "waiting") {
					t.Errorf("%s does not say what it waits for: %q", id, st.Detail)
				}
			}
			c.open(order[2])
			c.ready(c.ids()...)
			c.client("n1").want(t, ok, "SET", "k", "v")
			c.client("n3").want(t, bulk("v"), "GET", "k")
			c.oneCluster()
			c.caughtUp()
		})
	}
}

// oneCluster checks that all nodes have the same cluster id, and waits until each
// of them knows other members, if there are any.
func (c *testCluster) oneCluster() {
	c.t.Helper()
	ids := make(map[string]bool)
	for _, id := range c.ids() {
		st := c.node(id).Status()
		if st.ClusterID == "" {
			c.t.Errorf("%s has no cluster id", id)
		}
		ids[st.ClusterID] = true
	}
	if len(ids) != 1 {
		c.t.Errorf("the nodes have the cluster ids %v, want one id", ids)
	}
	for _, id := range c.ids() {
		// A node may have a link to the leader before it has the first entry,
		// which is the configuration.
		eventually(c.t, id+" to know other members", func() bool { return len(c.node(id).Acknowledging()) == len(c.ids())/2 })
	}
}

func TestForm_PeersDiffer(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	c.members["n2"].peers = append([]cluster.Peer{peer("n1"), peer("n2")}, peer("n4"))
	c.open("n1", "n2", "n3")
	for _, id := range []string{"n1", "n2"} {
		eventually(t, id+" to see that --peers differ", func() bool {
			return strings.Contains(c.node(id).Status().Detail, cluster.ErrPeersDiffer.Error())
		})
	}
	for _, id := range c.ids() {
		if st := c.node(id).Status(); st.Term != 0 || st.ClusterID != "" {
			t.Errorf("%s has a term or a cluster id although --peers differ: %+v", id, st)
		}
	}
	// After the correction, the nodes form a cluster.
	c.stop("n2")
	c.members["n2"].peers = c.peers
	c.open("n2")
	c.ready(c.ids()...)
	c.oneCluster()
}

func TestForm_CutShort(t *testing.T) {
	t.Parallel()
	// The node with the lowest id dies after it has sent the cluster id to some
	// of the other nodes.
	c := prepare(t, 3)
	c.net.hold("n1", "n3")
	c.open("n1", "n2", "n3")
	eventually(t, "n1 to wait for n3", func() bool { return strings.Contains(c.node("n1").Status().Detail, "n3") })
	c.crash("n1")
	c.wipe("n1")
	c.net.heal()
	c.open("n1")
	c.ready(c.ids()...)
	c.oneCluster()
}

// Power is lost between the first term and the first entry of a new cluster. The
// nodes form the cluster after that.
func TestForm_CutShortAfterTerm(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(strconv.Itoa(nodes), func(t *testing.T) {
			t.Parallel()
			c := prepare(t, nodes)
			s, err := storage.Open(storage.Config{Dir: c.members["n1"].dir, NodeID: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SetClusterID("0123456789abcdef", false); err != nil {
				t.Fatal(err)
			}
			if err := s.Stable().SetUint64([]byte("CurrentTerm"), 1); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.open(c.ids()...)
			c.ready(c.ids()...)
			c.oneCluster()
			c.client("n1").want(t, ok, "SET", "k", "v")
		})
	}
}

func TestJoin_WipedMemberIsRefused(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.client("n1").want(t, ok, "SET", "k", "v")
	c.transfer("n1")
	for range 3 { // so that the cluster knows higher start counts of n3 than the counts after the wipe
		c.client("n3").want(t, ok, "SET", "k", "v")
		c.crash("n3")
		c.open("n3")
		c.ready("n3")
	}
	c.client("n3").want(t, ok, "SET", "k", "v")
	c.crash("n3")
	c.wipe("n3")
	c.members["n3"].dies = true
	c.open("n3")
	select {
	case err := <-c.members["n3"].fatal:
		if !strings.Contains(err.Error(), cluster.ErrWiped.Error()) || !strings.Contains(err.Error(), "holdfast member remove n3") {
			t.Fatalf("refused with %q, without the reason or the remedy", err)
		}
	case <-time.After(waitLimit):
		t.Fatal("a wiped member was not refused")
	}
	c.stop("n3")
	c.members["n3"].dies = false

	// The remedy works: once n3 has been removed and added, it joins as a new
	// member and gets the data.
	eventually(t, "n3 to be removed", func() bool {
		err := c.node("n2").RemoveMember("n3")
		if err != nil {
			t.Logf("remove n3: %v", err) // n3 may have led, and n2 may not know the new leader yet
		}
		return err == nil
	})
	c.add("n3")
	c.open("n3")
	c.ready("n3")
	eventually(t, "n3 to vote", func() bool { return c.node("n3").Status().Voter })
	// The new directory of n3 counts starts from 1 again. The cluster must not
	// confuse the new session with the earlier one, which has higher numbers.
	for i := range 5 {
		if got := c.client("n3").number(t, "INCR", "n"); got != int64(i+1) {
			t.Fatalf("INCR through the new n3: %d, want %d", got, i+1)
		}
	}
	c.caughtUp()
	// The vote of the new n3 counts.
	c.crash("n2")
	c.client("n3").want(t, ok, "SET", "k", "w")
	c.client("n1").want(t, bulk("w"), "GET", "k")
}

// A member that does not know of a removal yet must not keep a node from
// joining.
func TestJoin_RemovalUnknownToPeer(t *testing.T) {
	t.Parallel()
	c := start(t, 4)
	c.transfer("n2")
	c.crash("n4")
	c.wipe("n4")
	c.cutOff("n1", "n2", "n3") // n4 asks n1 first
	if err := c.node("n2").RemoveMember("n4"); err != nil {
		t.Fatalf("remove n4: %v", err)
	}
	c.add("n4")
	c.open("n4")
	c.ready("n4")
	eventually(t, "n4 to vote", func() bool { return c.node("n4").Status().Voter })
	c.net.heal()
	c.caughtUp()
}

// If there is a cluster to join, it does not matter that another node without
// data has different --peers.
func TestJoin_PastDifferentPeers(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.place("a", []cluster.Peer{peer("a"), peer("b")}) // "a" names only "b", which is not a member yet
	c.place("b", append([]cluster.Peer{peer("a"), peer("b")}, c.peers...))
	c.add("a")
	c.add("b")
	c.open("a", "b") // b asks a first
	c.ready("a", "b")
	for _, id := range []string{"a", "b"} {
		eventually(t, id+" to vote", func() bool { return c.node(id).Status().Voter })
	}
	c.caughtUp()
}

// A node that was wiped after it became a voter must not be admitted, even if it
// first asks a member that does not know yet that the node became a voter.
func TestJoin_AdditionUnknownToPeer(t *testing.T) {
	t.Parallel()
	c := start(t, 4)
	c.transfer("n2")
	c.crash("n1")
	c.change = func(cfg *cluster.Config) {
		if cfg.NodeID == "n1" { // n1 continues to follow its leader
			cfg.Options.HeartbeatTimeout = time.Hour
		}
	}
	c.open("n1")
	c.ready("n1")
	c.cutOff("n1", "n2", "n3", "n4")
	c.place("n5", append(slices.Clone(c.peers), peer("n5"))) // n5 asks n1 first
	c.add("n5")
	c.open("n5")
	c.ready("n5")
	eventually(t, "n5 to vote", func() bool { return c.node("n5").Status().Voter })
	c.crash("n5")
	c.wipe("n5")
	c.members["n5"].dies = true
	c.open("n5")
	c.wantFatal("n5", cluster.ErrWiped.Error())
}

// A leader that is cut off must not admit a node, because its list of members
// may be outdated.
func TestJoin_LeaderCutOff(t *testing.T) {
	t.Parallel()
	c := start(t, 3, slowElections)
	c.transfer("n1")
	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	c.add("n4")
	c.caughtUp("n1", "n2", "n3")
	c.cutOff("n1", "n2", "n3")
	c.cutOff("n4", "n2", "n3")
	c.open("n4")
	eventually(t, "n4 to ask", func() bool { return strings.Contains(c.node("n4").Status().Detail, "to join") })
	c.leader("n2", "n3")
	eventually(t, "n1 to step down", func() bool { return c.node("n1").Status().Role != "leader" })
	if id := c.node("n4").ClusterID(); id != "" {
		t.Errorf("n4 relied on a leader that was cut off, and belongs to cluster %s", id)
	}
	c.net.heal()
	c.ready("n4")
	eventually(t, "n4 to vote", func() bool { return c.node("n4").Status().Voter })
	c.caughtUp()
}

// A node that dies while it joins may ask again, whether it was admitted or not.
func TestJoin_CutShort(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.client("n1").want(t, ok, "SET", "k", "v")
	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	c.add("n4")

	// First, n4 was not admitted: it stored the cluster id and then died.
	s, err := storage.Open(storage.Config{Dir: c.members["n4"].dir, NodeID: "n4", LogKind: "wal", Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SetClusterID(c.node("n1").ClusterID(), true), s.Close()); err != nil {
		t.Fatal(err)
	}
	c.isolate("n4")
	c.open("n4")
	eventually(t, "n4 to wait for a member of the cluster", func() bool {
		return strings.Contains(c.node("n4").Status().Detail, "for a member of the cluster")
	})
	c.net.refuse(rpc.ServiceRaft, "n4") // n4 gets no data
	c.net.heal()

	// Second, n4 was admitted, and it dies before its log contains an entry.
	eventually(t, "n4 to be admitted", func() bool { return c.log.Count("n4: joined cluster") > 0 })
	eventually(t, "n4 to be asked", func() bool {
		return c.log.Count("member cannot become a voter yet: node=n4 error=\"still catching up\"") > 2
	})
	for _, m := range c.node(c.leader("n1", "n2", "n3")).ClusterStatus(context.Background()) {
		if m.ID == "n4" && m.Voter {
			t.Error("n4 has no data and is a voter, want a non-voter")
		}
	}
	c.crash("n4")
	c.net.admit(rpc.ServiceRaft, "n4")
	c.open("n4")
	c.ready("n4")
	eventually(t, "n4 to vote", func() bool { return c.node("n4").Status().Voter })
	c.client("n4").want(t, bulk("v"), "GET", "k")
	c.caughtUp()
}

// A node that was removed while it was cut off does not know of its removal. It
// asks another node for its vote. That node was removed too, lost its data, and
// has just been admitted again. It must not give its vote. The simulator found this
// case (seed 357, 70 s).
func TestJoin_VoteWithoutLog(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.client("n1").want(t, ok, "SET", "k", "before")
	c.caughtUp()
	c.isolate("n3")
	eventually(t, "n3 to be removed", func() bool { return c.node("n1").RemoveMember("n3") == nil })
	eventually(t, "n2 to be removed", func() bool { return c.node("n1").RemoveMember("n2") == nil })
	c.crash("n2")
	c.wipe("n2")
	c.client("n1").want(t, ok, "SET", "k", "after")

	c.add("n2")
	c.net.refuse(rpc.ServiceRaft, "n2") // n2 is admitted, and receives nothing after that
	c.open("n2")
	eventually(t, "n2 to be let in", func() bool { return c.log.Count("n2: joined cluster") > 0 })
	c.cutOff("n2", "n1")
	// On a slow machine, n3 may have campaigned already. So the test first
	// counts the log lines that exist before n2 and n3 are connected.
	granted, won := c.log.Count("n3.raft: pre-vote granted: from=n2"), c.log.Count("n3.raft: election won")
	denied := c.log.Count("n3.raft: pre-vote denied: from=n2")
	c.net.admit(rpc.ServiceRaft, "n2")
	c.net.release("n2", "n3")
	c.net.release("n3", "n2")
	// n3 first sends a pre-vote request, which n2 must refuse. Otherwise n3
	// would raise the term of n2 again and again, even if it did not win.
	eventually(t, "n3 to ask n2", func() bool {
		return c.log.Count("n3.raft: pre-vote denied: from=n2") > denied+1 || c.log.Count("n3.raft: pre-vote granted: from=n2") > granted
	})
	if c.log.Count("n3.raft: pre-vote granted: from=n2") > granted {
		t.Error("a node without data grants a pre-vote")
	}
	if c.log.Count("n3.raft: election won") > won {
		t.Fatal("a node that was removed leads by the vote of a node without data")
	}
	c.net.heal()
	c.ready("n2")
	eventually(t, "n2 to vote", func() bool { return c.node("n2").Status().Voter })
	c.client("n2").want(t, bulk("after"), "GET", "k")
	c.caughtUp("n1", "n2")
}

func TestJoin_ThroughSnapshot(t *testing.T) {
	t.Parallel()
	c := start(t, 3, smallSnapshots)
	c.fill("n1", 400)
	c.crash("n3")
	c.wipe("n3")
	c.caughtUp("n1", "n2") // a removal is refused while the other voter is behind
	if err := c.node(c.leader("n1", "n2")).RemoveMember("n3"); err != nil {
		t.Fatalf("remove n3: %v", err)
	}
	for _, id := range []string{"n1", "n2"} {
		// raft takes no snapshot while the node has not applied the removal.
		eventually(t, "a snapshot on "+id, func() bool { return c.node(id).Snapshot() == nil })
	}
	c.add("n3")
	c.open("n3")
	c.ready("n3")
	eventually(t, "n3 to vote", func() bool { return c.node("n3").Status().Voter })
	if c.log.Count("n3.raft: Installed remote snapshot") == 0 {
		t.Error("the log was not shortened: n3 has not needed a snapshot")
	}
	c.client("n3").want(t, ":401\r\n", "DBSIZE")
	c.caughtUp()
}

func TestJoin_OtherCluster(t *testing.T) {
	t.Parallel()
	a, b := start(t, 1), start(t, 1)
	a.client("n1").want(t, ok, "SET", "k", "a")
	a.stop("n1")
	b.stop("n1")
	// A node with the data of one cluster uses the address of a member of
	// another cluster.
	c := start(t, 3)
	c.crash("n3")
	c.wipe("n3")
	stranger := c.place("n3", c.peers)
	stranger.dir = a.members["n1"].dir
	cfg := c.config(stranger)
	cfg.NodeID = "n1"
	n, err := cluster.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stranger.node = n
	eventually(t, "the stranger to be refused", func() bool {
		return c.log.Count(cluster.ErrOtherCluster.Error()) > 0
	})
	c.client("n1").want(t, ok, "SET", "k", "c")
	c.client("n2").want(t, bulk("c"), "GET", "k")
	// The node's own cluster continues alone, with its own data.
	c.ready("n3")
	c.client("n3").want(t, bulk("a"), "GET", "k")
}

// A new member counts for majorities only when it has the data.
func TestJoin_VotesWhenCaughtUp(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.fill("n1", 300) // more entries than a node may be behind when it becomes a voter
	c.transfer("n1")
	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	c.add("n4")
	c.net.refuse(rpc.ServiceRaft, "n4") // n4 can send and answer requests, but gets no data
	c.open("n4")
	eventually(t, "n4 to be admitted", func() bool { return c.log.Count("n4: joined cluster") > 0 })
	eventually(t, "n4 to be asked", func() bool { return c.log.Count("member cannot become a voter yet: node=n4") > 1 })
	c.crash("n3")
	c.client("n2").want(t, ok, "SET", "k", "v") // needs two of three voters; two of four would not be enough
	for _, m := range c.node("n1").ClusterStatus(context.Background()) {
		if m.ID == "n4" && m.Voter {
			t.Error("n4 has no data and is a voter, want a non-voter")
		}
	}
}

// A follower that was down during a change of the members must be able to
// follow a leader that it does not know.
func TestJoin_LeaderUnknownToFollower(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.crash("n3")
	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	c.add("n4")
	c.open("n4")
	c.ready("n4")
	eventually(t, "n4 to vote", func() bool { return c.node("n4").Status().Voter })
	c.transfer("n4")
	c.open("n3")
	c.ready("n3")
	c.client("n3").want(t, ok, "SET", "k", "v")
	c.caughtUp()
	if n := c.log.Count("n4 is not a member of this cluster"); n > 0 {
		t.Errorf("n3 refused the leader %d times, want 0", n)
	}
}

func smallSnapshots(o *cluster.Options) { o.SnapshotBytes, o.TrailingBytes = 16<<10, 1 }

// fill writes n keys of 100 bytes, and a counter.
func (c *testCluster) fill(id string, n int) {
	c.t.Helper()
	cl := c.client(id)
	value := strings.Repeat("x", 100)
	for i := range n {
		cl.want(c.t, ok, "SET", "fill:"+strconv.Itoa(i), value)
	}
	cl.number(c.t, "INCR", "filled")
}

// A node that is removed while the leader makes it a voter stays removed.
func TestPromote_Removed(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	n, gone := c.node(leader), c.others(leader)[0]
	before := n.Configured()
	if before == 0 {
		t.Fatal("the leader knows of no configuration")
	}
	c.stop(gone)
	if err := n.RemoveMember(gone); err != nil {
		t.Fatal(err)
	}
	if err := n.Vote(gone, address(gone), before); err == nil {
		t.Error("a node was made a voter after its removal")
	}
	for _, m := range n.PeerHealth() {
		if m.ID == gone {
			t.Errorf("%s is a member again", gone)
		}
	}
	eventually(t, "the removal to be applied", func() bool { return n.Configured() > before })
}
