package cluster_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
)

// advance moves the monotonic clocks of the given nodes, or of all nodes.
func (c *testCluster) advance(d time.Duration, ids ...string) {
	if len(ids) == 0 {
		ids = c.ids()
	}
	for _, id := range ids {
		c.members[id].clock.advance(d)
	}
	for _, id := range ids {
		// Wait for a sweep: until then, the forwarder stamps new calls with the
		// time before the step. The next sweep would consider these calls to be
		// as old as the step is long.
		if n := c.members[id].running(); n != nil {
			now := c.members[id].clock.Mono()
			eventually(c.t, id+" to notice the time", func() bool { return n.Swept() >= now })
		}
	}
}

// A TTL is not shortened when the leader changes several times. The key has expired
// once a single leadership has lasted for the whole TTL.
func TestTTL_ThroughLeaders(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	cl := c.client("n2")
	// granted is read before the request, so the lock has lived for slightly
	// less than time.Since(granted).
	granted := time.Now()
	var moved time.Duration
	lived := func() time.Duration { return time.Since(granted) + moved }
	cl.want(t, ok, "SET", "lock", "me", "PX", "5000")
	for i := range 5 {
		c.advance(700 * time.Millisecond)
		moved += 700 * time.Millisecond
		if i%2 == 0 {
			leader := c.leader()
			c.crash(leader)
			c.leader(c.others(leader)...)
			c.open(leader)
			c.ready(leader)
		} else {
			c.transfer(c.others(c.leader())[i%2])
		}
		reply, err := c.client(c.ids()[i%3]).do("GET", "lock")
		if err != nil {
			t.Fatalf("GET: %v", err)
		}
		if reply == absent && lived() < 5*time.Second {
			t.Fatalf("lock of 5 s is gone after %v", lived())
		}
	}
	// When one leadership has lasted for 5 s by its own clock, the key must be
	// gone.
	leader := c.leader()
	c.client(leader).want(t, ok, "SET", "other", "x")
	c.advance(5100*time.Millisecond, leader)
	if c.leader() == leader {
		c.client("n1").want(t, absent, "GET", "lock")
	}
	c.caughtUp()
}

// Only the clock of the leadership counts. If a read meets an expired key whose
// expiry is not committed yet, the leader commits the expiry before the read gets
// its reply.
func TestTTL_ReadOfPendingExpiryCommits(t *testing.T) {
	t.Parallel()
	c := start(t, 3, slowElections, func(o *cluster.Options) {
		// With these options, only reads cause clock entries. The leadership
		// repeats lost questions of ReadIndex rounds only once an hour too, so
		// the test must lose no confirmation.
		o.ExpireEvery, o.ClockEntryEvery = time.Hour, time.Hour
	})
	c.transfer("n1")
	c.quiet()
	for _, reader := range []string{"n1", "n2"} {
		cl := c.client(reader)
		cl.want(t, ok, "SET", "k", "v", "PX", "60000")
		c.advance(time.Hour, "n2", "n3")
		cl.want(t, bulk("v"), "GET", "k")
		c.advance(61*time.Second, "n1")
		before := c.node("n1").Status().Commit
		expired := stats(c.node("n1")).Expired
		cl.want(t, absent, "GET", "k")
		if got := c.node("n1").Status().Commit; got != before+1 {
			t.Errorf("read of an expired key through %s: the commit index went from %d to %d, want one entry more", reader, before, got)
		}
		if got := stats(c.node("n1")).Expired; got != expired+1 {
			t.Errorf("read of an expired key through %s expired %d keys, want 1", reader, got-expired)
		}
		cl.want(t, absent, "GET", "k")
		if got := c.node("n1").Status().Commit; got != before+1 {
			t.Errorf("commit index is %d after two reads and %d before them, want one entry more: the second read needs none", got, before)
		}
	}
}

func stats(n *cluster.Node) (s fsm.Stats) {
	n.View(func(m *fsm.Machine) { s = m.Stats() })
	return s
}

// A key expires when it is due, even if no client reads it.
func TestTTL_ExpiresByItself(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.client("n1").want(t, ok, "SET", "k", "v", "PX", "60000")
	c.client("n1").want(t, ok, "SET", "stays", "v")
	c.advance(61 * time.Second)
	for _, id := range c.ids() {
		eventually(t, id+" to expire the key", func() bool { return stats(c.node(id)).Expired == 1 })
	}
	// Without TTLs, no clock entries are needed.
	eventually(t, "the clock entries to end", func() bool {
		before := c.node("n1").Status().Commit
		during(5 * testOptions().ExpireEvery)
		return c.node("n1").Status().Commit == before
	})
}

// The time of a leader that is cut off does not count. Such a leader can neither
// return its keys nor report that they are gone.
func TestTTL_IsolatedLeaderDoesNotCount(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.LeaderWait = 500 * time.Millisecond })
	old := c.leader()
	cl := c.client(old)
	cl.want(t, ok, "SET", "lock", "me", "PX", "60000")
	c.isolate(old)
	c.advance(2*time.Minute, old)
	if reply, err := cl.do("GET", "lock"); err == nil {
		t.Fatalf("a leader without a majority replied %q to a read of an expired key, want no reply", reply)
	}
	c.leader(c.others(old)...)
	c.client(c.others(old)[0]).want(t, bulk("me"), "GET", "lock")
	c.net.heal()
	c.ready(old)
	cl.want(t, bulk("me"), "GET", "lock")
	if left := cl.number(t, "PTTL", "lock"); left < 40_000 || left > 60_000 {
		t.Errorf("%d ms left of 60 s, want 40000 to 60000", left)
	}
}

func TestTTL_WallClockJumps(t *testing.T) {
	t.Parallel()
	c := start(t, 3, slowElections) // the node with the wrong clock must lead all the time
	c.client("n1").want(t, ok, "SET", "lock", "me", "PX", "600000")
	for i, jump := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour} {
		id := c.ids()[i]
		c.members[id].clock.wall.Store(int64(jump))
		c.transfer(id)
		left := c.client("n1").number(t, "PTTL", "lock")
		if left < 500_000 || left > 600_000 {
			t.Fatalf("wall clock of the leader off by %v: %d ms left of 10 minutes, want 500000 to 600000", jump, left)
		}
		// Times that are given as dates do follow the wall clock.
		date := time.Now().Add(jump).Add(100 * time.Second).Unix()
		c.client("n2").want(t, ok, "SET", "dated", "x", "EXAT", strconv.FormatInt(date, 10))
		if left := c.client("n3").number(t, "PTTL", "dated"); left < 50_000 || left > 101_000 {
			t.Errorf("wall clock off by %v: %d ms left until a date in 100 s, want 50000 to 101000", jump, left)
		}
	}
}

// A broken clock source must not make all keys expire.
func TestTTL_MonotonicClockJumps(t *testing.T) {
	t.Parallel()
	c := start(t, 3, slowElections)
	leader := c.leader()
	cl := c.client(leader)
	const alarm = "lease clock jumped"

	// An idle hour without any TTL is not an error.
	cl.want(t, ok, "SET", "k", "v")
	c.advance(time.Hour)
	cl.want(t, ok, "SET", "k", "w")
	if n := c.log.Count(alarm); n > 0 {
		t.Errorf("%d errors logged for an hour without a TTL, want 0", n)
	}

	cl.want(t, ok, "SET", "long", "x", "PX", "3600000")
	cl.want(t, ok, "SET", "short", "x", "PX", "60000")
	c.advance(1e9*time.Second, leader)
	cl.want(t, absent, "GET", "short")
	left := cl.number(t, "PTTL", "long")
	if left < 3_600_000-660_000 || left > 3_600_000-590_000 {
		t.Errorf("%d ms left of an hour after a jump, want about 50 minutes: the leader must cut the jump to ten minutes", left)
	}
	if n := c.log.Count(alarm); n != 1 {
		t.Errorf("%d errors logged for one jump, want 1", n)
	}
	// After the jump, the leadership's clock advances normally again.
	c.advance(10*time.Second, leader)
	if next := cl.number(t, "PTTL", "long"); next > left-9_900 || next < left-60_000 {
		t.Errorf("%d ms are left 10 s after %d ms were left", next, left)
	}
	// The next leader inherits neither the jump nor the time since the last
	// entry.
	to := c.others(leader)[0]
	c.transfer(to)
	if next := cl.number(t, "PTTL", "long"); next < left-120_000 || next > left+10_000 {
		t.Errorf("the next leader says that %d ms are left, the earlier leader said %d: want about the same", next, left)
	}
}

// While the whole cluster is down, no time counts, and the remaining TTL is
// kept.
func TestTTL_WholeClusterRestart(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.client("n1").want(t, ok, "SET", "lock", "me", "PX", "60000")
	c.advance(20 * time.Second)
	eventually(t, "a clock entry", func() bool {
		var lease int64
		c.node(c.leader()).View(func(m *fsm.Machine) { lease = m.Clock().Lease })
		return time.Duration(lease) > 19*time.Second
	})
	for _, id := range c.ids() {
		c.stop(id)
	}
	c.advance(72 * time.Hour)
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.client("n3").want(t, bulk("me"), "GET", "lock")
	if left := c.client("n2").number(t, "PTTL", "lock"); left < 20_000 || left > 41_000 {
		t.Errorf("%d ms left, want 20000 to 41000: about 40 s were left when the nodes stopped", left)
	}
	c.advance(41 * time.Second)
	c.client("n1").want(t, absent, "GET", "lock")
}
