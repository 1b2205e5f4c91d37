package cluster_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestRead_StaleLeader tests a case in which raft's own VerifyLeader is wrong:
// acknowledgments that were on their way before a read must not confirm the
// read. The old leader does not know yet that it is deposed. The network delays
// the answers of its followers until the new leader has committed something
// new.
func TestRead_StaleLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) {
		// During the whole test, the old leader believes that it leads.
		o.HeartbeatTimeout, o.LeaseTimeout = 2*time.Second, 2*time.Second
		o.LeaderWait = 20 * time.Second
	})
	old := c.leader()
	rest := c.others(old)
	c.client(old).want(t, ok, "SET", "k", "old")
	c.caughtUp()
	term := c.node(old).Status().Term

	// Delay the followers' confirmations of the ReadIndex rounds that begin
	// now. Each retry of a round adds confirmations.
	for _, id := range rest {
		c.net.hold(id, old)
	}
	early := c.client(old).start("GET", "k")
	eventually(t, "answers to be held back", func() bool { return c.net.reads.Load() > 0 })
	during(300 * time.Millisecond) // time for some more rounds
	for _, id := range rest {
		c.net.hold(old, id)
	}

	if err := c.node(rest[0]).Campaign(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another leader", func() bool {
		st := c.node(rest[0]).Status()
		return st.Role == "leader" && st.Ready
	})
	c.client(rest[0]).want(t, ok, "SET", "k", "new")
	late := c.client(old).start("GET", "k")
	eventually(t, "the read to wait", func() bool { return c.node(old).ReadsWaiting() > 0 })
	if st := c.node(old).Status(); st.Role != "leader" || st.Term != term {
		t.Fatalf("the old leader knows already that it is deposed: %+v", st)
	}
	// The delayed answers arrive, and for a while nothing else does.
	for _, id := range rest {
		c.net.release(id, old)
	}
	during(300 * time.Millisecond)
	c.net.heal()
	if r := awaitResult(t, "read before the new value", early); r.err != nil || r.reply != bulk("old") && r.reply != bulk("new") {
		t.Errorf("read that began before the new value was written: %q, %v, want the old or the new value", r.reply, r.err)
	}
	if r := awaitResult(t, "read after the new value", late); r.err != nil || r.reply != bulk("new") {
		t.Errorf("read on the old leader: %q, %v, want the new value", r.reply, r.err)
	}
}

// TestRead_Lease cuts off a leader that answers reads under its lease. The other
// nodes must not elect another leader before the lease has ended, and then the old
// leader must not answer a read.
func TestRead_Lease(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) {
		// During the whole test, the old leader believes that it leads.
		o.HeartbeatTimeout, o.LeaseTimeout = slowdown*3*time.Second, slowdown*3*time.Second
		o.LeaderLease = slowdown * time.Second
		o.LeaderWait = slowdown * 20 * time.Second
	})
	old := c.leader()
	rest := c.others(old)
	c.client(old).want(t, ok, "SET", "k", "old")
	c.caughtUp()
	eventually(t, "a read under a lease", func() bool {
		c.client(old).want(t, bulk("old"), "GET", "k")
		return c.node(old).ReadsLeased() > 0
	})
	for _, id := range rest {
		c.net.hold(old, id)
		c.net.hold(id, old)
	}
	if err := c.node(rest[0]).Campaign(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another leader", func() bool { return c.node(rest[0]).Status().Role == "leader" })
	c.client(rest[0]).want(t, ok, "SET", "k", "new")
	leased := c.node(old).ReadsLeased()
	late := c.client(old).start("GET", "k")
	during(300 * time.Millisecond) // time for a wrong answer
	if st := c.node(old).Status(); st.Role != "leader" {
		t.Logf("the old leader knows already that it is deposed, so this run proves little: %+v", st)
	}
	c.net.heal()
	if r := awaitResult(t, "read after the new value", late); r.err != nil || r.reply != bulk("new") {
		t.Errorf("read on the old leader: %q, %v, want the new value", r.reply, r.err)
	}
	if got := c.node(old).ReadsLeased(); got != leased {
		t.Errorf("the old leader has answered %v reads under its lease after the cut, want 0", got-leased)
	}
}

// TestRead_LeaseEndsBeforeItsCheck stops a read after it has its value under a
// lease, and before the leader checks whether it still has the lease. Meanwhile
// another node leads and the value changes. The read must not return the old
// value.
func TestRead_LeaseEndsBeforeItsCheck(t *testing.T) {
	t.Parallel()
	for _, through := range []string{"the leader", "a follower"} {
		t.Run(through, func(t *testing.T) {
			t.Parallel()
			c := start(t, 5, func(o *cluster.Options) {
				o.HeartbeatTimeout, o.LeaseTimeout = slowdown*time.Second, slowdown*time.Second
				o.LeaderLease = slowdown * 400 * time.Millisecond
				o.LeaderWait = slowdown * 20 * time.Second
			})
			old := c.leader()
			with := c.others(old)[0]
			rest := c.others(old, with)
			via := old
			if through != "the leader" {
				via = with
			}
			c.client(old).want(t, ok, "SET", "k", "old")
			c.caughtUp()
			stop := newStopPoint(").Holds")
			var late <-chan result
			eventually(t, "a read under a lease", func() bool {
				c.client(via).want(t, bulk("old"), "GET", "k")
				if c.node(old).ReadsLeased() == 0 {
					return false
				}
				leased := c.node(old).ReadsLeased()
				c.members[old].clock.stop.Store(stop)
				late = c.client(via).start("GET", "k")
				select {
				case <-stop.reached:
					return true
				case <-late: // the lease had ended before the read, so the read had a ReadIndex round
					if c.node(old).ReadsLeased() > leased {
						t.Fatal("a read under a lease was answered without a look at the lease")
					}
					c.members[old].clock.stop.Store(nil)
					return false
				}
			})
			for _, id := range rest {
				for _, cut := range []string{old, with} {
					c.net.hold(cut, id)
					c.net.hold(id, cut)
				}
			}
			if err := c.node(rest[0]).Campaign(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "another leader", func() bool { return c.node(rest[0]).Status().Role == "leader" })
			c.client(rest[0]).want(t, ok, "SET", "k", "new")
			c.members[old].clock.stop.Store(nil)
			close(stop.released)
			c.net.heal()
			if r := awaitResult(t, "read after the new value", late); r.err != nil || r.reply != bulk("new") {
				t.Errorf("read through %s: %q, %v, want the new value", through, r.reply, r.err)
			}
		})
	}
}

// TestRead_AfterWriteElsewhere checks that every client on every node sees an
// acknowledged write, also through elections.
func TestRead_AfterWriteElsewhere(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	elections := make(chan struct{})
	for w, id := range c.ids() {
		wg.Go(func() {
			writer, key := c.client(id), "k"+id
			readers := []*client{c.client(c.ids()[(w+1)%3]), c.client(c.ids()[(w+2)%3]), c.client(id)}
			for i := 1; ctx.Err() == nil; i++ {
				value := strconv.Itoa(i)
				if reply, err := writer.do("SET", key, value); err != nil || reply != ok {
					t.Errorf("SET through %s: %q, %v, want OK", id, reply, err)
					return
				}
				r := readers[i%3]
				if reply, err := r.do("GET", key); err != nil || reply != bulk(value) {
					t.Errorf("GET after SET %s: %q, %v, want the value that was set", value, reply, err)
					return
				}
				select {
				case elections <- struct{}{}:
				default:
				}
			}
		})
	}
	for i := range 8 {
		for range 40 {
			select {
			case <-elections:
			case <-time.After(waitLimit):
				t.Fatal("reads and writes hang")
			}
		}
		if err := c.node(c.ids()[i%3]).Campaign(); err != nil {
			t.Logf("election: %v", err)
		}
	}
	stop()
	wg.Wait()
}

// TestRead_Local checks that READONLY reads may return an old state, but never
// an older one than before, and that they work without a leader.
func TestRead_Local(t *testing.T) {
	t.Parallel()
	c := start(t, 3, smallSnapshots)
	l := c.load("n", 2, c.ids()...)
	l.progress(10)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for _, id := range c.ids() {
		wg.Go(func() {
			r := c.client(id)
			r.local = true
			var last int64
			for ctx.Err() == nil {
				reply, err := r.do("GET", "n")
				if err != nil {
					t.Errorf("local read: %v", err)
					return
				}
				if reply == absent {
					reply = "0"
				}
				n, err := integer(reply)
				if err != nil || n < last {
					t.Errorf("local reads on %s returned %d and then %q, want no smaller number", id, last, reply)
					return
				}
				last = n
				<-time.After(time.Millisecond)
			}
		})
	}
	for i := range 5 {
		l.progress(20)
		if err := c.node(c.ids()[i%3]).Campaign(); err != nil {
			t.Logf("election: %v", err)
		}
	}
	l.progress(20)
	stop()
	wg.Wait()
	l.check("n1")
	c.caughtUp()
	for _, id := range c.others("n1") {
		c.crash(id)
	}
	r := c.client("n1")
	r.local = true
	if n := r.number(t, "GET", "n"); n < l.acked.Load() {
		t.Errorf("local read without a leader returned %d although %d increments were acknowledged", n, l.acked.Load())
	}
}

// TestRead_VoterRemovedDuringRound checks that a ReadIndex round ends if the
// other voter is removed while the round is under way, and that the next round
// ends too.
func TestRead_VoterRemovedDuringRound(t *testing.T) {
	t.Parallel()
	c := start(t, 2, func(o *cluster.Options) {
		o.HeartbeatTimeout, o.LeaseTimeout, o.LeaderWait = 1500*time.Millisecond, 1500*time.Millisecond, 20*time.Second
	})
	leader := c.leader()
	other := c.others(leader)[0]
	c.client(leader).want(t, ok, "SET", "k", "v")
	c.net.hold(other, leader)
	first := c.client(leader).start("GET", "k")
	eventually(t, "an answer to be held", func() bool { return c.net.reads.Load() > 0 })
	second := c.client(leader).start("GET", "k")
	eventually(t, "the read to wait", func() bool { return c.node(leader).ReadsWaiting() > 0 })
	if err := c.node(leader).RemoveMember(other); err != nil {
		t.Fatal(err)
	}
	for _, r := range []<-chan result{first, second} {
		if got := awaitResult(t, "read", r); got.err != nil || got.reply != bulk("v") {
			t.Errorf("read: %q, %v, want v", got.reply, got.err)
		}
	}
}

// TestRead_Large checks that each node runs its clients' reads with large replies
// itself, piece by piece, and never on a state that lacks an acknowledged write.
func TestRead_Large(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	writer := c.client(leader)
	const size = 4 << 20
	for _, id := range c.ids() {
		s := c.node(id).NewSession()
		for round := range 10 {
			mark := strconv.Itoa(round)
			writer.must(t, "SETRANGE", "big", strconv.Itoa(size-1), mark)
			var g fsm.Group
			g.Reset(2, 1)
			table := c.node(id).Table()
			for _, words := range [][]string{{"STRLEN", "big"}, {"GET", "big"}, {"GETRANGE", "big", "-1", "-1"}} {
				args := respwire.Args(words...)
				g.Command(table.Find(args[0]), 0, args)
			}
			var p fsm.Front
			var got []byte
			larges := 0
			for left := true; left; {
				p.Most, g.Front = 256<<10, &p
				out, err := s.Do(&g, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, out...); p.Large != nil { // the value comes from this node's own state machine
					larges++
					got = p.Large.Append(got, 2)
				}
				if len(out) > 256<<10 {
					t.Errorf("%s returned %d bytes at once, want at most 256 KiB", id, len(out))
				}
				if left = p.Cut() && p.Left; left {
					if err := g.Skip(p.Ops); err != nil {
						t.Fatal(err)
					}
				}
			}
			if larges != 1 {
				t.Errorf("round %d on %s: %d large replies, want 1", round, id, larges)
			}
			if want := ":" + strconv.Itoa(size) + "\r\n" + bulk(strings.Repeat("\x00", size-1)+mark) + bulk(mark); string(got) != want {
				t.Fatalf("round %d on %s (the leader is %s): %d bytes that end with %q, want %d that end with %q", round, id, leader, len(got), got[max(len(got)-20, 0):], len(want), want[len(want)-20:])
			}
		}
	}
}

// TestRead_VouchOfMinority cuts a leader and one follower off from the other three
// nodes, which elect another leader. The follower still follows the old leader and
// vouches for it with its reads, but the two are not a majority, so they must not
// answer.
func TestRead_VouchOfMinority(t *testing.T) {
	t.Parallel()
	c := start(t, 5, func(o *cluster.Options) {
		// The old leader keeps its leadership for longer than the other nodes need
		// for an election.
		o.HeartbeatTimeout, o.LeaseTimeout = slowdown*4*time.Second, slowdown*4*time.Second
		o.LeaderWait = slowdown * 20 * time.Second
	})
	old := c.leader()
	others := c.others(old)
	follower, rest := others[0], others[1:]
	c.client(follower).want(t, ok, "SET", "k", "before")
	c.client(follower).want(t, bulk("before"), "GET", "k")
	for _, id := range rest {
		c.net.hold(old, id)
		c.net.hold(follower, id)
		c.net.hold(id, old, follower)
	}
	c.leader(rest...)
	c.client(rest[0]).want(t, ok, "SET", "k", "after")
	if st := c.node(follower).Status(); st.Leader != old {
		t.Logf("%s follows %q already, so this run proves little", follower, st.Leader)
	}
	read := c.client(follower).start("GET", "k")
	eventually(t, "the old leader to give up", func() bool { return c.node(old).Status().Role != "leader" })
	c.net.heal()
	if r := awaitResult(t, "the read", read); r.err == nil && r.reply != bulk("after") {
		t.Errorf("a minority answered a read with %q, want the new value or an error", r.reply)
	}
	c.ready(old, follower)
	c.caughtUp()
}
