package cluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/rpc"
)

func TestEveryNodeServes(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	for _, writer := range c.ids() {
		for _, reader := range c.ids() {
			value := writer + reader
			c.client(writer).want(t, ok, "SET", "k", value)
			c.client(reader).want(t, bulk(value), "GET", "k")
		}
	}
	c.caughtUp()
}

// result is the outcome of a request that was sent from another goroutine.
type result struct {
	reply string
	err   error
}

func (c *client) start(args ...string) <-chan result {
	done := make(chan result, 1)
	go func() {
		reply, err := c.do(args...)
		done <- result{reply, err}
	}()
	return done
}

// awaitResult waits for the result of a request.
func awaitResult(t testing.TB, what string, r <-chan result) result {
	t.Helper()
	select {
	case res := <-r:
		return res
	case <-time.After(waitLimit):
		t.Fatalf("%s has no outcome", what)
		return result{}
	}
}

func TestPartition_LeaderIsolated(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name    string
		out, in bool
	}{{"both ways", true, true}, {"cannot send", true, false}, {"cannot hear", false, true}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 3, func(o *cluster.Options) { o.LeaderWait = 500 * time.Millisecond })
			old := c.leader()
			rest := c.others(old)
			before := c.client(old)
			before.want(t, ok, "SET", "k", "before")
			l := c.load("n", 3, c.ids()...)
			l.progress(50)

			for _, id := range rest {
				if way.out {
					c.net.hold(old, id)
				}
				if way.in {
					c.net.hold(id, old)
				}
			}
			// The old leader accepts this command before it knows that it is
			// deposed. The command has a number and must get its outcome.
			sent := c.client(old).start("INCR", "sent")
			c.leader(rest...)
			eventually(t, "the old leader to lose its link", func() bool { return !c.node(old).Linked() })
			for _, id := range rest {
				c.client(id).want(t, ok, "SET", "k", "after")
			}
			l.progress(50)
			// This command is never sent, so it is certainly not executed.
			if _, err := c.client(old).do("INCR", "refused"); !errors.Is(err, outcome.ErrNoLeader) {
				t.Errorf("write on the isolated node: %v, want ErrNoLeader", err)
			}
			if reply, err := c.client(old).do("GET", "k"); !errors.Is(err, outcome.ErrNoLeader) {
				t.Errorf("read on the isolated node: %q, %v, want ErrNoLeader", reply, err)
			}

			c.net.heal()
			// On a slow machine, the group may not have been sent before the cut.
			r := awaitResult(t, "group sent before the cut", sent)
			if r.err != nil && !errors.Is(r.err, outcome.ErrNoLeader) {
				t.Errorf("group sent before the cut: %v, want no error or ErrNoLeader", r.err)
			}
			want := absent
			if r.err == nil {
				want = bulk("1")
			}
			c.ready(old)
			c.client(old).want(t, want, "GET", "sent")
			c.client(old).want(t, absent, "GET", "refused")
			c.client(old).want(t, bulk("after"), "GET", "k")
			l.progress(50)
			l.check(old)
			c.caughtUp()
			if c.net.held.Load() == 0 {
				t.Error("the cut has delayed no bytes, so nothing was tested")
			}
		})
	}
}

// TestPartition_ForwarderCutFromLeader cuts only the direction from one node to
// the leader. No other node may be affected, and each command of the node's
// clients gets its outcome once.
func TestPartition_ForwarderCutFromLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	rest := c.others(leader)
	cut, spared := rest[0], rest[1]
	mine := c.load("mine", 3, cut)
	others := c.load("others", 2, leader, spared)
	mine.progress(50)
	for range 3 {
		c.net.hold(cut, leader)
		during(700 * time.Millisecond) // raft on the cut node gives up the leader meanwhile
		others.progress(200)
		c.net.heal()
		mine.progress(50)
	}
	mine.check(cut)
	others.check(cut)
	c.caughtUp()
	if c.net.held.Load() == 0 {
		t.Error("the cut has delayed no bytes, so nothing was tested")
	}
}

// TestPartition_BetweenFollowers checks that the verdict names the two members that
// do not reach each other while both reach the leader.
func TestPartition_BetweenFollowers(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	rest := c.others(leader)
	link := func(of, to string) (l health.Link) {
		for _, st := range c.node(leader).ClusterStatus(t.Context()) {
			for _, known := range st.Links {
				if st.ID == of && known.To == to {
					l = known
				}
			}
		}
		return l
	}
	eventually(t, "all members know their round trips", func() bool {
		for _, of := range c.ids() {
			for _, to := range c.others(of) {
				if l := link(of, to); !l.Alive || l.RoundTrip <= 0 {
					return false
				}
			}
		}
		return true
	})
	c.net.hold(rest[0], rest[1])
	c.net.hold(rest[1], rest[0])
	eventually(t, "the verdict names the link", func() bool {
		v := verdict.Assess(c.node(leader).ClusterStatus(t.Context()))
		return len(v.Problems) == 2 && v.Problems[0].Text == rest[0]+" gets no answers from "+rest[1] &&
			v.Problems[1].Text == rest[1]+" gets no answers from "+rest[0]
	})
	c.net.heal()
	eventually(t, "the verdict is healthy", func() bool {
		return verdict.Assess(c.node(leader).ClusterStatus(t.Context())).State == verdict.Healthy
	})
}

// TestPartition_SilentStream: a connection can die without a message, for
// example when a firewall forgets it. Raft uses other connections, so no change
// of leader replaces the stream. The node must replace it.
func TestPartition_SilentStream(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.LeaderWait = time.Second })
	c.client("n1").want(t, ":1\r\n", "INCR", "n")
	for i, s := range []rpc.Service{rpc.ServiceWrite, rpc.ServiceRead} {
		var cl *client
		eventually(t, fmt.Sprintf("a %s stream to freeze", s), func() bool {
			leader := c.leader()
			f := c.others(leader)[0]
			cl = c.client(f)
			return c.net.freeze(s, f, leader) > 0
		})
		cmd, want := []string{"INCR", "n"}, ":2\r\n"
		if i > 0 {
			cmd, want = []string{"GET", "n"}, bulk("2")
		}
		r := awaitResult(t, "request on a dead stream", cl.start(cmd...))
		if r.err != nil || r.reply != want {
			t.Errorf("%v on a dead stream: %q, %v, want %q", cmd, r.reply, r.err, want)
		}
	}
}

// TestPartition_StreamsOutOfOrder: a node gives up a stream and opens the next
// one. The first stream can reach the leader later than the second, and soon
// ends. Its end must not leave the node without a stream.
func TestPartition_StreamsOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		service rpc.Service
		name    string
		passes  int // number of the dialer's writes that pass; after one, a write stream has asked for its session
	}{{rpc.ServiceWrite, "write", 1}, {rpc.ServiceRead, "read", 0}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 3, slowElections)
			leader := c.leader()
			f, other := c.others(leader)[0], c.others(leader)[1]
			c.client(f).want(t, ":1\r\n", "INCR", "n")
			linked, ended := f+": linked to leader", fmt.Sprintf("%s: %s stream ended: from=%s", leader, way.name, f)
			links, ends := c.log.Count(linked), c.log.Count(ended)

			caught, flow := c.net.straggle(way.service, f, leader, way.passes)
			if c.net.reset(way.service, f, leader) == 0 {
				t.Fatal("there was no stream to break")
			}
			select {
			case <-caught:
			case <-time.After(waitLimit):
				t.Fatal("the node has not dialed again")
			}
			eventually(t, "the node to give the stream up and open another one", func() bool { return c.log.Count(linked) > links })
			flow()
			eventually(t, "the older stream to come and go", func() bool { return c.log.Count(ended) >= ends+2 })

			want := func(id, want string, cmd ...string) {
				t.Helper()
				if r := awaitResult(t, cmd[0]+" at "+id, c.client(id).start(cmd...)); r.err != nil || r.reply != want {
					t.Fatalf("%v at %s: %q, %v, want %q", cmd, id, r.reply, r.err, want)
				}
			}
			want(f, ":2\r\n", "INCR", "n")
			c.crash(other) // from here on the leader needs the confirmation of f for every read
			want(leader, bulk("2"), "GET", "n")
			want(f, bulk("2"), "GET", "n")
			if got := c.log.Count(linked); got != links+1 {
				t.Errorf("the link was replaced %d times, so nothing was tested", got-links)
			}
		})
	}
}

func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"leader", "follower"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			c := start(t, 3, func(o *cluster.Options) {
				o.ResolveWait, o.LeaderWait = time.Second, 500*time.Millisecond
			})
			leader := c.leader()
			at := leader
			if where == "follower" {
				at = c.others(leader)[0]
			}
			cl := c.client(at)
			eventually(t, "a first write", func() bool { // on a slow machine its outcome, too, may be unknown
				reply, err := cl.do("SET", "n", "1")
				return err == nil && reply == ok
			})
			rest := c.others(at)
			// Commands that are sent now are on their way when the majority is
			// cut off.
			for _, id := range rest {
				c.net.hold(at, id)
			}
			sent := cl.start("INCR", "n")
			second := c.client(at).start("INCR", "n")
			eventually(t, "the groups to be sent", func() bool { return c.net.held.Load() > 0 })
			for _, id := range rest {
				c.crash(id)
			}
			for _, s := range []<-chan result{sent, second} {
				if r := awaitResult(t, "group without a majority", s); !errors.Is(r.err, outcome.ErrUnknown) {
					t.Fatalf("group without a majority: %q, %v, want ErrUnknown", r.reply, r.err)
				}
			}
			// From here on, the node has no link, so it sends no command.
			eventually(t, "the node to lose its link", func() bool { return !c.node(at).Linked() })
			if _, err := c.client(at).do("INCR", "n"); !errors.Is(err, outcome.ErrNoLeader) {
				t.Errorf("without a leader: %v, want ErrNoLeader", err)
			}
			c.net.heal()
			c.open(rest...)
			c.ready(c.ids()...)
			// The two groups whose outcome is unknown do not block later groups.
			n := cl.number(t, "GET", "n")
			if n < 1 || n > 3 {
				t.Errorf("counter is %d after a SET to 1 and two increments with an unknown outcome, want 1 to 3", n)
			}
			for i := range int64(10) {
				if got := c.client(at).number(t, "INCR", "n"); got != n+i+1 {
					t.Fatalf("INCR: %d, want %d", got, n+i+1)
				}
			}
			c.caughtUp()
		})
	}
}
