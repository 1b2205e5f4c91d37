package cluster_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// slowElections raises the election timeouts, so that on a slow host the
// cluster keeps its leader while the nodes send tens of megabytes. A change of
// leader would lose replies of this size.
func slowElections(o *cluster.Options) {
	o.HeartbeatTimeout, o.LeaseTimeout, o.LeaderWait = 1500*time.Millisecond, 1500*time.Millisecond, 10*time.Second
}

func TestReplies_Large(t *testing.T) {
	t.Parallel()
	c := start(t, 3, slowElections)
	cl := c.client(c.others(c.leader())[0])
	mget := []string{"MGET"}
	var want strings.Builder
	values := 20
	if underRace {
		values = 4
	}
	fmt.Fprintf(&want, "*%d\r\n", values)
	for i := range values {
		key, value := fmt.Sprintf("k%d", i), strings.Repeat(string(rune('a'+i)), 1<<20)
		cl.want(t, ok, "SET", key, value)
		mget = append(mget, key)
		want.WriteString(bulk(value))
	}
	cl.want(t, want.String(), mget...)
	// With a write in the same group, the read goes through the log.
	reply, err := cl.pipeline([]string{"INCR", "n"}, mget)
	if err != nil || reply != ":1\r\n"+want.String() {
		t.Errorf("INCR and MGET in one group: got %d bytes, %v: %.200s; want all values", len(reply), err, reply)
	}
}

// TestReplies_MoreThanQueue sends more answers at once than the queue of a
// stream holds. No answer is lost, and the stream stays open.
func TestReplies_MoreThanQueue(t *testing.T) {
	if underRace {
		t.Skip("copies hundreds of megabytes")
	}
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { // a change of leader would replace the links
		o.HeartbeatTimeout, o.LeaseTimeout, o.LeaderWait = 6*time.Second, 6*time.Second, 30*time.Second
	})
	leader := c.leader()
	follower := c.others(leader)[0]
	value := strings.Repeat("x", 1<<20)
	c.client(follower).want(t, ok, "SET", "k", value)
	mget := []string{"MGET"}
	for range 47 {
		mget = append(mget, "k")
	}
	want := "*47\r\n" + strings.Repeat(bulk(value), 47)
	links := c.log.Count(follower + ": linked to leader")
	confirmed := c.node(leader).ReadsConfirmed()
	flow := c.net.stall(rpc.ServiceRead, follower, leader)
	var wg sync.WaitGroup
	const reads = 6
	for range reads {
		cl := c.client(follower)
		wg.Go(func() {
			reply, err := cl.do(mget...)
			if err != nil || reply != want {
				t.Errorf("one of six MGETs at the same time: %d bytes, %v, want the reply of 47 MiB", len(reply), err)
			}
		})
	}
	// The last read finds 235 MiB queued before it, which is more than the queue
	// holds. The other follower confirms leadership.
	eventually(t, "the reads", func() bool { return c.node(leader).ReadsConfirmed() >= confirmed+reads })
	during(3 * time.Second) // long enough for the reads to run, and for a ping to find the queue full
	flow()
	wg.Wait()
	if got := c.log.Count(follower + ": linked to leader"); got != links {
		t.Errorf("the link was replaced %d times, want 0", got-links)
	}
}

func TestReplies_ManyOperations(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	for _, id := range c.ids() {
		var cmds [][]string
		var want strings.Builder
		for i := range 1024 {
			cmds = append(cmds, []string{"INCR", id})
			fmt.Fprintf(&want, ":%d\r\n", i+1)
		}
		reply, err := c.client(id).pipeline(cmds...)
		if err != nil || reply != want.String() {
			t.Errorf("1024 operations through %s: %q, %v, want 1 to 1024", id, clip(reply), err)
		}
	}
	c.caughtUp()
}

// TestReplies_SlowReads runs reads that walk many keys for clients of all nodes,
// while other clients write. Each read must return all keys, and each write must
// be executed once.
func TestReplies_SlowReads(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	var cmds [][]string
	for i := range 1000 {
		cmds = append(cmds, []string{"SET", fmt.Sprintf("key:%04d", i), "v"})
	}
	if _, err := c.client("n1").pipeline(cmds...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, id := range c.ids() {
		for range 3 {
			cl := c.client(id)
			wg.Go(func() {
				for range 5 {
					reply, err := cl.do("KEYS", "key:*")
					if err != nil || !strings.HasPrefix(reply, "*1000\r\n") || strings.Count(reply, "key:") != 1000 {
						t.Errorf("KEYS through %s: %q, %v, want 1000 keys", cl.node.Status().ID, clip(reply), err)
						return
					}
				}
			})
		}
	}
	l := c.load("n", 1, c.ids()...)
	wg.Wait()
	l.check("n1")
}

// TestWindow checks that increments take effect once with a window of several
// entries, and with entries that close early.
func TestWindow(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.Window, o.MaxEntryGroups, o.MaxEntryBytes = 3, 2, 256 })
	l := c.load("n", 8, c.ids()...)
	l.progress(500)
	if err := c.node("n1").Campaign(); err != nil {
		t.Fatal(err)
	}
	l.progress(500)
	l.check("n1")
	c.caughtUp()
}

// TestReplies_PiecesTooLarge: a pipeline that removes values is executed in pieces
// and exceeds the limit of replies. No value is lost: the client gets each value, or
// the value is still there. The commands after the limit are not executed.
func TestReplies_PiecesTooLarge(t *testing.T) {
	t.Parallel()
	c := start(t, 3, slowElections)
	cl := c.client(c.others(c.leader())[0])
	const size, count = 1 << 20, 60 // 48 values are the limit
	for _, test := range []struct {
		create, remove []string // the command for each value
	}{
		{[]string{"rpush", "l"}, []string{"lpop", "l"}},
		{[]string{"set", "k%d"}, []string{"getset", "k%d", "v"}},
	} {
		name := test.remove[0]
		numbered := func(words []string, i int) []string {
			words = slices.Clone(words)
			words[1] = strings.ReplaceAll(words[1], "%d", strconv.Itoa(i))
			return words
		}
		var pipeline [][]string
		for i := range count {
			value := strconv.Itoa(100+i) + strings.Repeat("x", size)
			cl.must(t, append(numbered(test.create, i), value)...)
			pipeline = append(pipeline, numbered(test.remove, i))
		}
		got, err := cl.pipeline(append(pipeline, []string{"set", "after", name})...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		returned, refused := strings.Count(got, strings.Repeat("x", size)), strings.Count(got, fsm.ReplyTooLarge)
		left := 0
		for i := range count {
			if test.create[0] == "rpush" {
				left = int(cl.number(t, "llen", "l"))
				break
			}
			if cl.number(t, "strlen", "k"+strconv.Itoa(i)) > size {
				left++
			}
		}
		if returned+left != count || returned < 47 || refused != left+1 {
			t.Errorf("%s: %d values returned, %d commands refused and %d values left, want %d values and a refused SET",
				name, returned, refused, left, count)
		}
		cl.want(t, "$-1\r\n", "get", "after")
		cl.must(t, "flushall")
	}
}

// TestReplies_Removed: pipelines and transactions through a follower remove more than
// their replies may contain. No value is lost: the client gets each value, or the
// value is still there. The reply of the last transaction has almost twice the size
// of the limit, and other clients of the same node write meanwhile. With the default
// of MaxWriteTime, the leader would refuse the transactions.
func TestReplies_Removed(t *testing.T) {
	if underRace {
		t.Skip("copies hundreds of megabytes")
	}
	t.Parallel()
	c := start(t, 3, slowElections, func(o *cluster.Options) { o.MaxWriteTime = time.Second })
	follower := c.others(c.leader())[0]
	cl := c.client(follower)
	const size = 1 << 20
	value := strings.Repeat("x", size)
	fill := func(count int, add ...string) {
		t.Helper()
		for i := range count {
			cl.must(t, append(slices.Clone(add), strconv.Itoa(1000+i)+value)...)
		}
	}
	check := func(what, got string, err error, count, least int, left ...string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		returned, remain := strings.Count(got, value), int(cl.number(t, left...))
		if returned+remain != count || returned < least {
			t.Errorf("%s: %d values were returned and %d are left, want %d together and at least %d returned",
				what, returned, remain, count, least)
		}
	}
	spop := slices.Repeat([][]string{{"SPOP", "s"}}, 60)
	fill(60, "SADD", "s")
	got, err := cl.pipeline(spop...)
	check("pipeline", got, err, 60, 47, "SCARD", "s")
	cl.must(t, "DEL", "s")
	fill(60, "SADD", "s")
	got, err = cl.transaction(spop...)
	check("transaction", got, err, 60, 47, "SCARD", "s")
	cl.must(t, "DEL", "s")
	fill(94, "SADD", "s")
	l := c.load("n", 2, follower)
	many := []string{"SPOP", "s", "47"}
	got, err = cl.transaction(many, many, []string{"SET", "after", "v"})
	check("transaction of two commands", got, err, 94, 94, "SCARD", "s")
	if !strings.HasSuffix(got, "-"+fsm.ReplyTooLarge+"\r\n") {
		t.Errorf("the reply of the SET is %q, want the error for large replies", got[max(len(got)-100, 0):])
	}
	cl.want(t, ":0\r\n", "EXISTS", "after")
	l.check(follower)
}
