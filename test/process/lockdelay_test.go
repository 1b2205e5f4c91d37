package process_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestLock_Delay checks that no client gets a lock during its delay, although
// the leader is killed meanwhile. It also checks that the first client that
// waits gets the lock when the delay ends, and that a delay survives a kill of
// all nodes.
func TestLock_Delay(t *testing.T) {
	const lease, delay = time.Second, 6 * time.Second
	c := startCluster(t, "--lock-delay", "lock:* 6000 long:* 600000")
	leader := c.leader()
	n, other := c.others(leader)[0], c.others(leader)[1]
	poll := func(what string, done func() bool) {
		t.Helper()
		if err := process.Poll(testutil.Within(t, testutil.StartLimit), what, done); err != nil {
			t.Fatal(err)
		}
	}
	poll("the setting of the cluster", func() bool {
		return strings.Contains(settings(t, n, "lock-delay")["lock-delay"], "600000")
	})
	begun := time.Now()
	want(t, n, "OK", "SET", "lock:a", "me", "NX", "PX", "1000")
	type grant struct {
		reply string
		at    time.Time
	}
	granted := make(chan grant, 1)
	conn := dial(t, n)
	go func() {
		reply := show(conn, "LOCK", "ACQUIRE", "lock:a", "waiter", "PX", "600000", "WAIT", "0")
		granted <- grant{reply, time.Now()}
	}()
	poll("the client to wait", func() bool {
		return strings.Contains(do(t, other, "LOCK", "INFO", "lock:a"), "owner waiter")
	})
	poll("the lease to end", func() bool { return do(t, other, "GET", "lock:a") == "(nil)" })
	kill(t, leader)
	tries := 0
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for waiting := true; waiting; <-pause.C {
		want(t, other, "(nil)", "SET", "lock:a", "you", "NX", "PX", "1000")
		want(t, other, "(nil)", "LOCK", "ACQUIRE", "lock:a", "you", "PX", "1000")
		tries++
		select {
		case g := <-granted:
			waiting = false
			if !strings.HasPrefix(g.reply, "(integer) ") || g.at.Sub(begun) < lease+delay {
				t.Errorf("the client that waited got %s after %v, want an integer after %v", g.reply, g.at.Sub(begun),
					lease+delay)
			}
		default:
		}
	}
	want(t, other, "waiter", "GET", "lock:a")
	t.Logf("%d refused tries in %v", tries, time.Since(begun))

	start(t, leader)
	c.settled()
	want(t, n, "OK", "SET", "long:a", "me", "NX", "PX", "60000")
	want(t, n, "(integer) 1", "LOCK", "BREAK", "long:a")
	want(t, n, "OK", "HOLDFAST", "SNAPSHOT")
	for _, node := range c.Nodes {
		kill(t, node)
	}
	c.start()
	want(t, other, "(integer) 0", "SETNX", "long:a", "you")
	if got := do(t, other, "LOCK", "INFO", "long:a"); !strings.Contains(got, "delay-ms") {
		t.Errorf("LOCK INFO during the delay: %s", got)
	}
	// The flag does not replace the setting of the cluster.
	want(t, other, "OK", "CONFIG", "SET", "lock-delay", "")
	kill(t, n)
	start(t, n)
	c.settled()
	if got := settings(t, n, "lock-delay")["lock-delay"]; strings.Contains(got, "600000") {
		t.Errorf("the setting after a restart: %s", got)
	}
	want(t, other, "(integer) 0", "SETNX", "long:a", "you")
	want(t, other, "OK", "FLUSHALL")
	want(t, other, "(integer) 1", "SETNX", "long:a", "you")
}

// TestLockDelay_Differs checks that each node whose --lock-delay differs from
// the setting of the cluster reports this, even if the nodes started at the
// same time.
func TestLockDelay_Differs(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 3})
	value := map[*process.Node]string{}
	for i, n := range c.Nodes {
		value[n] = fmt.Sprintf("lock:* %d000", i+1)
		if err := n.Start("--lock-delay", value[n]); err != nil {
			t.Fatal(err)
		}
	}
	leader := c.settled()
	var got string
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "two nodes to report another value", func() bool {
		got = settings(t, leader, "lock-delay")["lock-delay"]
		reports := 0
		for n, v := range value {
			if reported := strings.Contains(n.Output(), "--lock-delay has no effect"); reported {
				reports++
			} else if !strings.Contains(got, v) {
				return false
			}
		}
		return reports == 2
	}); err != nil {
		t.Errorf("the value is %q: %v", got, err)
	}
}
