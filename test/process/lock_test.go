package process_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestLock_SurvivesKillOfLeader runs the example of the README. A lock taken
// through any node still exists after kill -9 of the leader, with its owner and
// its remaining time.
func TestLock_SurvivesKillOfLeader(t *testing.T) {
	c := startCluster(t)
	dead := c.leader()
	through := c.others(dead)
	taken := time.Now() // before the command is sent; the lock lasts at least 600 s from here
	want(t, through[0], "OK", "SET", "lock:a", "me", "NX", "EX", "600")
	kill(t, dead)
	begun := time.Now()
	want(t, through[1], "(nil)", "SET", "lock:a", "you", "NX", "EX", "600")
	t.Logf("the lock was refused %v after the kill", time.Since(begun))
	checkTTL(t, through[0], "lock:a", taken, 600*time.Second)
	want(t, through[1], "me", "GET", "lock:a")

	// The killed node starts again, catches up, and leads with all data.
	start(t, dead)
	c.settled()
	want(t, dead, "me", "GET", "lock:a")
	kill(t, c.leader())
	next := c.leader()
	if next != dead {
		if o := invoke(t, nil, "member", "transfer", dead.ID, "--addr", next.Clients); o.code != 0 {
			t.Fatalf("member transfer: %+v", o)
		}
		if err := process.Poll(testutil.Within(t, 10*time.Second), dead.ID+" to lead",
			func() bool { return c.leader() == dead }); err != nil {
			t.Fatal(err)
		}
	}
	want(t, dead, "(nil)", "SET", "lock:a", "you", "NX", "EX", "600")
	want(t, dead, "me", "GET", "lock:a")
	checkTTL(t, dead, "lock:a", taken, 600*time.Second)

	// With the last other node killed there is no majority. The node must
	// not answer from its own state.
	kill(t, c.others(dead)[0])
	if err := process.Poll(testutil.Within(t, 10*time.Second), "the leader to step down", func() bool {
		s, err := dead.State()
		return err == nil && s.Role != "leader" && !s.Ready
	}); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{{"GET", "lock:a"}, {"SET", "lock:a", "you", "NX", "EX", "600"}} {
		if got := do(t, dead, cmd...); !strings.HasPrefix(got, "CLUSTERDOWN") {
			t.Errorf("%v without a majority: %q, want CLUSTERDOWN", cmd, got)
		}
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.settled()
	for _, n := range c.Nodes {
		want(t, n, "me", "GET", "lock:a")
		checkTTL(t, n, "lock:a", taken, 600*time.Second)
	}
	want(t, dead, "(integer) 1", "DELIFEQ", "lock:a", "me")
	want(t, c.others(dead)[0], "OK", "SET", "lock:a", "you", "NX", "EX", "600")
}

// lateBound is the largest amount by which a TTL may be too long after a few
// failovers. Each failover lengthens a TTL by at most the time since the last
// advance of the lease clock plus the time without a leader.
const lateBound = 30 * time.Second

// checkTTL compares TTL and PTTL with this test's own monotonic clock. Apart from
// rounding, the reported time must not be less than the time that is really left,
// and must not exceed it by more than lateBound.
func checkTTL(t *testing.T, n *process.Node, key string, taken time.Time, ttl time.Duration) {
	t.Helper()
	for name, unit := range map[string]time.Duration{"PTTL": time.Millisecond, "TTL": time.Second} {
		begun := time.Now()
		text, _ := strings.CutPrefix(do(t, n, name, key), "(integer) ")
		left, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%s %s: %q", name, key, text)
		}
		// The cluster granted the lock after the time in the parameter taken, and
		// the node read the TTL before now.
		low := ttl - time.Since(taken)
		high := ttl - begun.Sub(taken) + lateBound
		// PTTL rounds up to a whole millisecond, and TTL rounds to the nearest
		// second.
		rounding := unit/2 + time.Millisecond
		if got := time.Duration(left) * unit; got < low-rounding || got > min(high, ttl)+rounding {
			t.Errorf("%s %s through %s: %v, want %v to %v", name, key, n.ID, got, low, min(high, ttl))
		}
	}
}

// TestLock_ExpiresLateNotEarly checks that a lock with a short TTL does not
// expire early because leaders die, and that it does expire.
func TestLock_ExpiresLateNotEarly(t *testing.T) {
	c := startCluster(t)
	const ttl = 4 * time.Second
	dead := c.leader()
	n := c.others(dead)[0]
	conn := dial(t, n)
	begun := time.Now()
	if got := show(conn, "SET", "lock:b", "me", "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10)); got != "OK" {
		t.Fatal(got)
	}
	acked := time.Now()
	kill(t, dead)
	restarted := false
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for ; ; <-pause.C {
		asked := time.Now()
		got := show(conn, "SET", "lock:b", "you", "NX", "PX", "600000")
		if got == "OK" {
			if held := time.Since(begun); held < ttl {
				t.Fatalf("another client got the lock %v after it was taken for %v", held, ttl)
			}
			t.Logf("another client got the lock %v after it was acknowledged for %v", asked.Sub(acked), ttl)
			break
		}
		if got != "(nil)" {
			t.Fatalf("SET: %q", got)
		}
		if late := asked.Sub(acked) - ttl; late > lateBound {
			t.Fatalf("the lock still exists %v after its end", late)
		}
		if !restarted && time.Since(acked) > ttl/3 {
			// The second leader is killed too, unless it is n, well before
			// the lock expires.
			restarted = true
			start(t, dead)
			c.settled()
			if l := c.leader(); l != n {
				kill(t, l)
			}
		}
	}
	want(t, n, "you", "GET", "lock:b")
}
