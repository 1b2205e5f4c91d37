package cluster_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

func TestExactlyOnce_Transfers(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	l := c.load("n", 4, c.ids()...)
	leaderships := 0
	for i := range 20 {
		l.progress(20)
		to := c.ids()[i%3]
		if c.leader() == to {
			continue
		}
		if err := c.node(c.ids()[(i+1)%3]).TransferLeadership(to); err != nil {
			t.Logf("transfer to %s: %v", to, err) // a transfer may fail: the test only needs the load to continue
			continue
		}
		leaderships++
	}
	l.progress(20)
	l.check("n1")
	if l.unknown.Load() > 0 {
		t.Errorf("%d unknown outcomes although no node was stopped, want 0", l.unknown.Load())
	}
	if leaderships < 10 {
		t.Errorf("only %d transfers succeeded, want at least 10", leaderships)
	}
	c.caughtUp()
}

func TestExactlyOnce_LeaderCrashes(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	l := c.load("n", 4, c.ids()...)
	for range 8 {
		l.progress(20)
		leader := c.leader()
		c.crash(leader)
		l.progress(20) // on the two remaining nodes
		c.open(leader)
		c.ready(leader)
	}
	l.check("n2")
	c.caughtUp()
}

// The first node in candidate order lacks an entry that the leader
// acknowledged, so no node votes for it. The next node still campaigns in its
// order, long before raft's timers expire.
func TestFailover_FirstInOrderIsBehind(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) {
		o.HeartbeatTimeout, o.LeaderSilence = slowdown*12*time.Second, 0
		o.LeaseTimeout = o.HeartbeatTimeout
		o.LeaderWait = slowdown * 6 * time.Second // a command that waits for raft's timers fails
	})
	c.transfer("n3")
	c.caughtUp()
	through := c.client("n2")
	through.want(t, "+OK\r\n", "SET", "k", "1")
	c.net.refuse(rpc.ServiceRaft, "n1")
	through.want(t, "+OK\r\n", "SET", "k", "2")
	c.crash("n3")
	c.net.admit(rpc.ServiceRaft, "n1")
	if got, err := through.do("GET", "k"); err != nil || got != bulk("2") {
		t.Errorf("GET after the leader's end: %q, %v, want 2", got, err)
	}
	if leader := c.leader("n1", "n2"); leader != "n2" {
		t.Errorf("%s leads without the acknowledged entry", leader)
	}
}

// As in TestFailover_FirstInOrderIsBehind, the first candidate lacks an entry.
// The next node receives that candidate's vote request before it notices that
// the leader is gone, so its raft names no leader. The next node still
// campaigns in its order, once the lost leader's port refuses connections.
func TestFailover_CandidateHeardBeforeRefusal(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) {
		o.HeartbeatTimeout, o.LeaderSilence = slowdown*12*time.Second, 0
		o.LeaseTimeout = o.HeartbeatTimeout
		o.LeaderWait = slowdown * 6 * time.Second // a command that waits for raft's timers fails
	})
	c.transfer("n3")
	c.caughtUp()
	through := c.client("n2")
	through.want(t, "+OK\r\n", "SET", "k", "1")
	c.net.refuse(rpc.ServiceRaft, "n1")
	through.want(t, "+OK\r\n", "SET", "k", "2")
	c.net.hold("n2", "n3") // n2's dials to n3 neither succeed nor fail
	c.crash("n3")
	leaderless := func() int { return c.log.Count(`n2: failed to link to the leader: error="no leader is known"`) }
	before := leaderless()
	c.net.admit(rpc.ServiceRaft, "n1")
	eventually(t, "n2 to refuse n1 its vote, and to give up its last dial", func() bool {
		return c.log.Count("n2.raft: rejecting vote request since our last") > 0 && leaderless() > before
	})
	c.net.heal()
	if got, err := through.do("GET", "k"); err != nil || got != bulk("2") {
		t.Errorf("GET after the leader's end: %q, %v, want 2", got, err)
	}
	if leader := c.leader("n1", "n2"); leader != "n2" {
		t.Errorf("%s leads without the acknowledged entry", leader)
	}
}

// raft keeps its connections to other nodes. No vote is lost if one of them has
// broken meanwhile: the candidate wins in its first term.
func TestElection_BrokenConnection(t *testing.T) {
	t.Parallel()
	c := start(t, 2, func(o *cluster.Options) {
		o.HeartbeatTimeout, o.LeaderSilence = slowdown*6*time.Second, 0
		o.LeaseTimeout = o.HeartbeatTimeout
	})
	c.transfer("n2")
	c.transfer("n1")
	c.caughtUp()
	term := c.node("n1").Status().Term
	if c.net.reset(rpc.ServiceRaft, "n2", "n1") == 0 {
		t.Fatal("n2 has kept no connection to n1")
	}
	if err := c.node("n1").TransferLeadership("n2"); err != nil {
		t.Fatal(err)
	}
	if now := c.node("n2").Status().Term; now != term+1 {
		t.Errorf("n2 was elected in term %d, want %d", now, term+1)
	}
}

// Streams break while the leader stays, so the leader already has some of the
// groups that are sent again.
func TestExactlyOnce_BrokenStreams(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	rest := c.others(leader)
	l := c.load("n", 8, rest...)
	broken := 0
	for i := range 40 {
		l.progress(10)
		service := rpc.ServiceWrite
		if i%4 == 3 {
			service = rpc.ServiceRead
		}
		broken += c.net.reset(service, rest[i%2], leader)
	}
	l.progress(20)
	l.check("n1")
	if l.unknown.Load() > 0 {
		t.Errorf("%d unknown outcomes although no node was stopped", l.unknown.Load())
	}
	if broken < 10 {
		t.Errorf("the test broke only %d streams, want at least 10", broken)
	}
	c.caughtUp()
}

// A node gives up a stream and sends the groups in flight again over another
// stream. After the cluster has executed these groups, the first stream still
// delivers them too.
func TestExactlyOnce_LateDuplicates(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.LeaderWait = 400 * time.Millisecond })
	l := c.load("n", 4, c.ids()...)
	eventually(t, "duplicates to arrive", func() bool {
		leader := c.leader()
		f := c.others(leader)[0]
		flow := c.net.delay(rpc.ServiceWrite, f, leader)
		other := c.load("other", 2, f)
		other.progress(5) // so that the node has a new link
		flow()
		other.progress(5)
		other.stop()
		other.wg.Wait()
		return stats(c.node(leader)).Duplicates > 10
	})
	l.check("n1")
	c.caughtUp()
}

// The test causes needless elections, one after another, while groups are in
// flight. An entry of an old leader may or may not survive.
func TestExactlyOnce_Elections(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	l := c.load("n", 4, c.ids()...)
	for i := range 20 {
		l.progress(10)
		if err := c.node(c.ids()[i%3]).Campaign(); err != nil {
			t.Logf("election: %v", err)
		}
	}
	l.progress(20)
	l.check("n3")
	if l.unknown.Load() > 0 {
		t.Errorf("%d unknown outcomes although no node was stopped", l.unknown.Load())
	}
	c.caughtUp()
}

// An entry that was built in an older term than the one in which it was
// appended has no effect: neither its groups nor its clock count.
func TestTermFence(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.client("n1").want(t, ok, "SET", "lock", "me", "PX", "60000")
	eventually(t, "a late entry in the log", func() bool {
		leader := c.node(c.leader())
		err := leader.ApplyLate(leader.Status().Term-1, "n")
		if err != nil {
			t.Logf("late entry: %v", err)
		}
		return err == nil
	})
	c.client("n1").want(t, absent, "GET", "n")
	c.client("n1").want(t, bulk("me"), "GET", "lock")
	c.caughtUp()
	for _, id := range c.ids() {
		s := stats(c.node(id))
		if s.Fenced != 1 || s.Backwards != 0 {
			t.Errorf("%s: %d groups fenced, %d entries backwards, want 1 and 0", id, s.Fenced, s.Backwards)
		}
		c.node(id).View(func(m *fsm.Machine) {
			if lease := time.Duration(m.Clock().Lease); lease > 30*time.Minute {
				t.Errorf("%s: the lease clock went to %v with the stamp of a late entry", id, lease)
			}
		})
	}
	c.client("n2").want(t, ":1\r\n", "INCR", "n")
}

// A group was executed, but its reply never reached the node that sent the
// group. A leader that got its state from a snapshot answers the group with the
// kept reply.
func TestExactlyOnce_ReplyOutOfSnapshot(t *testing.T) {
	t.Parallel()
	// slowElections raises LeaderWait, so that the pings do not detect the
	// missing replies before the test ends.
	c := start(t, 3, smallSnapshots, slowElections)
	c.transfer("n1")
	asker := c.client("n2")
	asker.want(t, ":1\r\n", "INCR", "n")
	c.crash("n3")

	// The network discards the reply of the second INCR on its way to n2. The
	// entry is still committed with the acknowledgment of n2, because raft has
	// its own connections.
	if c.net.mute(rpc.ServiceWrite, "n2", "n1") == 0 {
		t.Fatal("n2 has no write stream to n1")
	}
	r := asker.start("INCR", "n")
	eventually(t, "the increment to be applied", func() bool {
		reply, err := c.client("n1").do("GET", "n")
		return err == nil && reply == bulk("2")
	})
	c.fill("n1", 300)
	for _, id := range []string{"n1", "n2"} {
		if err := c.node(id).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	c.open("n3")
	eventually(t, "n3 to get the snapshot", func() bool { return c.log.Count("n3.raft: Installed remote snapshot") > 0 })
	c.caughtUp()
	select {
	case got := <-r:
		t.Fatalf("n2 got the reply that the network must discard: %q, %v", got.reply, got.err)
	default:
	}

	c.transfer("n3")
	got := awaitResult(t, "increment whose reply was lost", r)
	if got.err != nil || got.reply != ":2\r\n" {
		t.Fatalf("increment whose reply was lost: %q, %v, want 2", got.reply, got.err)
	}
	c.client("n3").want(t, bulk("2"), "GET", "n")
	c.ready("n1")
	c.caughtUp()
}

// A reply that is too large to be kept is reported as lost after a change of
// leader.
func TestExactlyOnce_LargeReplyLost(t *testing.T) {
	t.Parallel()
	c := start(t, 3, slowElections)
	c.transfer("n1")
	asker := c.client("n2")
	asker.want(t, ok, "SET", "big", strings.Repeat("x", 100<<10))
	if c.net.mute(rpc.ServiceWrite, "n2", "n1") == 0 {
		t.Fatal("n2 has no write stream to n1")
	}
	done := make(chan error, 1)
	go func() {
		_, err := asker.pipeline([]string{"INCR", "n"}, []string{"GET", "big"})
		done <- err
	}()
	eventually(t, "the group to be applied", func() bool {
		reply, err := c.client("n1").do("GET", "n")
		return err == nil && reply == bulk("1")
	})
	c.caughtUp()
	c.transfer("n3")
	if err := <-done; !errors.Is(err, outcome.ErrReplyLost) {
		t.Fatalf("group with a reply of 100 KiB: %v, want ErrReplyLost", err)
	}
	asker.want(t, bulk("1"), "GET", "n")
}

// A follower that was down while the log was compacted catches up through a
// snapshot, with the same state, hash and clock.
func TestSnapshot_FollowerCatchesUp(t *testing.T) {
	t.Parallel()
	c := start(t, 3, smallSnapshots)
	c.transfer("n1")
	c.client("n1").want(t, ok, "SET", "lock", "owner", "PX", "600000")
	c.fill("n2", 50)
	c.crash("n3")
	c.fill("n1", 300)
	// The size of the log causes these snapshots; no operator requests them.
	eventually(t, "snapshots", func() bool { return c.log.Count("n1: snapshot taken") > 0 && c.log.Count("n2: snapshot taken") > 0 })
	for _, id := range []string{"n1", "n2"} { // after an early first snapshot, the log may still contain all that n3 lacks
		if err := c.node(id).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	c.open("n3")
	c.ready("n3")
	c.caughtUp()
	if c.log.Count("n3.raft: Installed remote snapshot") == 0 {
		t.Fatal("the log was not shortened: n3 has not needed a snapshot")
	}
	c.node("n3").View(func(m *fsm.Machine) {
		if got := m.Len(); got != 302 {
			t.Errorf("n3 holds %d keys, want 302", got)
		}
	})
	c.transfer("n3")
	if left := c.client("n3").number(t, "PTTL", "lock"); left < 500_000 || left > 600_000 {
		t.Errorf("TTL after failover to the node that received the snapshot: %d ms, want 500000 to 600000", left)
	}
	c.crash("n1")
	c.client("n2").want(t, ":3\r\n", "INCR", "filled")
}

// All nodes restart together, from their snapshots and the log after them.
func TestRestart_WholeCluster(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"wal", "boltdb"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			c := prepare(t, 3, smallSnapshots)
			c.change = func(cfg *cluster.Config) { cfg.LogStore = store }
			c.open(c.ids()...)
			c.ready(c.ids()...)
			c.fill("n1", 200)
			if err := c.node("n2").Snapshot(); err != nil {
				t.Fatal(err)
			}
			c.client("n3").want(t, ok, "SET", "after", "snapshot")
			c.caughtUp()
			_, before := c.hash("n1")
			for _, id := range c.ids() {
				c.net.unplug(id)
			}
			for _, id := range c.ids() {
				c.stop(id)
			}
			c.open(c.ids()...)
			c.ready(c.ids()...)
			c.client("n1").want(t, bulk("snapshot"), "GET", "after")
			c.client("n2").want(t, ":2\r\n", "INCR", "filled")
			c.client("n2").want(t, ":202\r\n", "DBSIZE")
			c.caughtUp()
			if _, after := c.hash("n1"); after == before {
				t.Error("the hash chain does not advance")
			}
		})
	}
}

// A voter waits for another voter that is already a candidate, although its own
// position in the candidate order lets it campaign. Two candidates of one term
// would split the vote.
func TestFailover_WaitsForCandidate(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) {
		o.HeartbeatTimeout, o.LeaderSilence = slowdown*12*time.Second, 0 // so that raft's timers start no election
		o.LeaseTimeout = o.HeartbeatTimeout
	})
	c.transfer("n3")
	c.caughtUp()
	c.net.hold("n2", "n3") // n2 does not notice yet that n3 has died
	c.net.refuse(rpc.ServiceRaft, "n2")
	c.crash("n3")
	eventually(t, "n1 to be a candidate", func() bool { return c.node("n1").Status().Role == "candidate" })
	c.net.heal()
	eventually(t, "n2 to wait for n1", func() bool { return c.log.Count("n2: another voter is already campaigning") > 0 })
}

// When the candidate order lets a voter with a slow disk campaign, the voter
// may still be storing its vote for another candidate. So it first waits until
// raft has handled the requests that arrived before. If it has voted for the
// other candidate, it does not campaign; otherwise, it does.
func TestFailover_SlowVote(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, key, elected string
		behind             bool // n1, which campaigns first, lacks an entry
	}{
		{"vote", "LastVoteTerm", "n1", false},
		{"term", "CurrentTerm", "n2", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			disk := &heldDisk{key: test.key}
			c := prepare(t, 3, func(o *cluster.Options) {
				o.HeartbeatTimeout, o.LeaderSilence = slowdown*12*time.Second, 0 // so that raft's timers start no election
				o.LeaseTimeout = o.HeartbeatTimeout
				o.LeaderWait = slowdown * 6 * time.Second
			})
			c.change = func(cfg *cluster.Config) {
				if cfg.NodeID == "n2" {
					cfg.OpenStores = disk.open
				}
			}
			c.open(c.ids()...)
			c.ready(c.ids()...)
			c.transfer("n3")
			c.caughtUp()
			c.client("n2").want(t, ok, "SET", "k", "1")
			if test.behind {
				c.net.refuse(rpc.ServiceRaft, "n1")
			}
			c.client("n2").want(t, ok, "SET", "k", "2")
			if !test.behind {
				c.caughtUp() // otherwise n1 may lack an entry that n2 has
			}
			term := c.node("n3").Status().Term
			c.net.reset(rpc.ServiceRaft, "n2", "n2")
			c.net.hold("n2", "n3") // n2 does not notice yet that n3 has died
			disk.Lock()
			release := sync.OnceFunc(disk.Unlock)
			defer release()
			c.crash("n3")
			c.net.admit(rpc.ServiceRaft, "n1")
			eventually(t, "n2 to be about to write", func() bool { return disk.waiting.Load() > 0 })
			c.net.heal()
			// n2 connects to itself, both to wait for its raft and to campaign.
			eventually(t, "n2 to be allowed to campaign by the candidate order", func() bool {
				return c.net.each(rpc.ServiceRaft, "n2", "n2", func(*relay) {}) > 0
			})
			release()
			if leader := c.leader("n1", "n2"); leader != test.elected {
				t.Errorf("%s leads, want %s", leader, test.elected)
			}
			c.client("n2").want(t, bulk("2"), "GET", "k")
			if got := c.node("n2").Status().Term; !test.behind && got != term+1 {
				t.Errorf("term %d, want %d: n2 has campaigned against n1", got, term+1)
			}
		})
	}
}
