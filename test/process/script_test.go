package process_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// compareAndDelete is a script that the state machine does not recognize, so it
// is interpreted.
const compareAndDelete = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('INCR', 'released')
return redis.call('DEL', KEYS[1])`

// compareAndDeleteLibrary is the same script as a function.
const compareAndDeleteLibrary = `#!lua name=locks
redis.register_function('release', function(keys, args)
	if redis.call('GET', keys[1]) ~= args[1] then return 0 end
	redis.call('INCR', 'released')
	return redis.call('DEL', keys[1])
end)`

// TestScript_KillOfLeader runs lock cycles through a follower while the leader
// is killed repeatedly. Every SET NX is granted. A script and a function take
// turns to compare and delete. Each run deletes its token exactly once,
// although a new leader runs scripts again that were in progress.
func TestScript_KillOfLeader(t *testing.T) {
	c := startCluster(t)
	follower := c.others(c.leader())[0]
	sum := sha1.Sum([]byte(compareAndDelete))
	sha := hex.EncodeToString(sum[:])
	want(t, follower, "NOSCRIPT No matching script. Please use EVAL.", "EVALSHA", sha, "1", "lock", "x")
	want(t, follower, sha, "SCRIPT", "LOAD", compareAndDelete)
	want(t, follower, "locks", "FUNCTION", "LOAD", compareAndDeleteLibrary)

	var cycles atomic.Int64
	stop, failed := make(chan struct{}), make(chan string, 1)
	conn := dial(t, follower)
	go func() {
		defer close(failed)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			token := "holder-" + strconv.Itoa(i)
			if got := show(conn, "SET", "lock", token, "NX", "PX", "600000"); got != "OK" {
				failed <- fmt.Sprintf("SET NX of cycle %d: %q", i, got)
				return
			}
			release := []string{"EVALSHA", sha, "1", "lock", token}
			if i%2 > 0 {
				release = []string{"FCALL", "release", "1", "lock", token}
			}
			if got := show(conn, release...); got != "(integer) 1" {
				failed <- fmt.Sprintf("%s of cycle %d: %q", release[0], i, got)
				return
			}
			cycles.Add(1)
		}
	}()
	progress := func(n int64) {
		t.Helper()
		from := cycles.Load()
		if err := process.Poll(testutil.Within(t, 30*time.Second), "lock cycles",
			func() bool { return cycles.Load() >= from+n || len(failed) > 0 }); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		progress(100)
		dead := c.leader()
		if dead == follower {
			if o := invoke(t, nil, "member", "transfer", c.others(follower)[0].ID, "--addr",
				follower.Clients); o.code != 0 {
				t.Fatalf("member transfer: %+v", o)
			}
			if err := process.Poll(testutil.Within(t, 10*time.Second), "another leader",
				func() bool { return c.leader() != follower }); err != nil {
				t.Fatal(err)
			}
			dead = c.leader()
		}
		kill(t, dead)
		progress(20)
		start(t, dead)
		c.settled()
	}
	close(stop)
	if text := <-failed; text != "" {
		t.Fatal(text)
	}
	n := cycles.Load()
	for _, node := range c.Nodes {
		want(t, node, strconv.FormatInt(n, 10), "GET", "released")
		want(t, node, "(integer) 0", "EXISTS", "lock")
		want(t, node, "(integer) 0", "EVALSHA", sha, "1", "lock", "x")
		want(t, node, "(integer) 0", "FCALL", "release", "1", "lock", "x")
	}
	t.Logf("%d lock cycles", n)
}

// TestScript_Loops checks that a script with an endless loop ends within its
// time limit, and that reads do not wait for it.
func TestScript_Loops(t *testing.T) {
	c := startCluster(t)
	want(t, c.Nodes[0], "OK", "SET", "k", "v")
	ended := make(chan string, 1)
	conn := dial(t, c.Nodes[1])
	begun := time.Now()
	go func() { ended <- show(conn, "EVAL", "redis.call('SET','k','w') while true do end", "0") }()
	reads := 0
	for len(ended) == 0 {
		want(t, c.Nodes[2], "v", "GET", "k")
		reads++
	}
	text := <-ended
	t.Logf("%q after %v and %d reads", text, time.Since(begun).Round(time.Millisecond), reads)
	wantContains(t, "a script that loops", text, "script exceeded its time limit (500 ms) and was rolled back",
		"on @user_script:1.")
	want(t, c.Nodes[0], "v", "GET", "k")
	want(t, c.Nodes[0], "OK", "SET", "k", "x")
}

// TestScript_LargeReplies checks scripts and functions whose replies are too
// large for the log. A node executes them as reads if they write nothing.
// Functions, and scripts with a #! line, also need the flag no-writes. All
// others get an error, and their writes are rolled back.
func TestScript_LargeReplies(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	const fill = "local x = string.rep('x', 700000) return redis.call('RPUSH', KEYS[1], x, x)"
	want(t, leader, "(integer) 2", "EVAL", fill, "1", "large")
	const read = "return redis.call('LRANGE', KEYS[1], 0, -1)"
	want(t, leader, "sized", "FUNCTION", "LOAD", `#!lua name=sized
redis.register_function('open', function(KEYS) `+read+` end)
redis.register_function{function_name = 'closed', callback = function(KEYS) `+read+` end, flags = {'no-writes'}}`)
	const refused = "ERR script returns more than 1 MiB and was rolled back: return less, " +
		"or read with EVAL_RO, FCALL_RO or the flag no-writes"
	for _, n := range []*process.Node{leader, c.others(leader)[0]} {
		for _, args := range [][]string{
			{"FCALL", "closed", "1", "large"}, {"FCALL_RO", "closed", "1", "large"}, {"EVAL", read, "1", "large"},
			{"EVAL", "#!lua flags=no-writes\n" + read, "1", "large"}, {"EVAL_RO", read, "1", "large"},
		} {
			for range 2 {
				if got := show(dial(t, n), args...); len(got) < 1_400_000 {
					t.Errorf("%s: got %.200q, want a reply of 1.4 MB", args[:2], got)
				}
			}
		}
		want(t, n, refused, "FCALL", "open", "1", "large")
		want(t, n, refused, "EVAL", "#!lua\n"+read, "1", "large")
		want(t, n, refused, "EVAL", "redis.call('INCR', 'written') "+read, "1", "large")
		want(t, n, "(integer) 0", "EXISTS", "written")
	}
}
