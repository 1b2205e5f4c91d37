package process_test

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// owners returns the owners that hold a lock together.
func (c *cluster) owners(key string) (names []string) {
	c.t.Helper()
	var d struct {
		Holders []struct {
			Owner string `json:"owner"`
		} `json:"holders"`
	}
	if err := json.Unmarshal([]byte(run(c.t, "locks", "info", key, "--json", "--addr", c.addrs())), &d); err != nil {
		c.t.Fatal(err)
	}
	for _, h := range d.Holders {
		names = append(names, h.Owner)
	}
	slices.Sort(names)
	return names
}

// TestLock_Shared checks that readers run together and a writer runs alone.
// When the leader is killed, waiters on two nodes keep their order. A reader
// behind a waiting writer waits. All readers up to the next writer run
// together.
func TestLock_Shared(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	at := c.others(leader)
	// Each program uses one of the two surviving nodes, and the other one only
	// if the first does not answer.
	flags := func(node int, more ...string) []string {
		return append([]string{"--ttl", "20s", "--addr", at[node].Clients + "," + at[1-node].Clients}, more...)
	}
	script := `trap "echo ends; exit 0" TERM; ` + endless
	readers := []*locked{
		c.lock("rw", script, flags(0, "--shared", "--owner", "r1")...),
		c.lock("rw", script, flags(1, "--shared", "--owner", "r2")...),
	}
	for _, r := range readers {
		r.says("begun")
	}
	var waiters []*locked
	for i, w := range []struct {
		owner  string
		shared bool
	}{{"w1", false}, {"r3", true}, {"r4", true}, {"w2", false}, {"r5", true}} {
		more := []string{"--owner", w.owner}
		if w.shared {
			more = append(more, "--shared")
		}
		waiters = append(waiters, c.lock("rw", script, flags(i%2, more...)...))
		c.awaitWaiters("rw", i+1)
	}
	if got := c.owners("rw"); !slices.Equal(got, []string{"r1", "r2"}) {
		t.Errorf("owners %v, want the first readers", got)
	}
	kill(t, leader)
	c.settled(leader)
	for _, w := range waiters {
		if strings.Contains(w.out.String(), "begun") {
			t.Fatalf("a waiter runs while the readers hold the lock: %s", w.out.String())
		}
	}
	// Each group of owners gets the lock when the previous group has released
	// it.
	running := readers
	for _, next := range [][]*locked{waiters[:1], waiters[1:3], waiters[3:4], waiters[4:]} {
		for i, l := range running {
			for _, w := range next {
				if strings.Contains(w.out.String(), "begun") {
					t.Fatalf("a waiter runs while %d owners in another mode hold the lock", len(running)-i)
				}
			}
			l.signal(syscall.SIGTERM)
			l.wantExit(0)
		}
		for _, w := range next {
			w.says("begun")
		}
		running = next
	}
	running[0].signal(syscall.SIGTERM)
	running[0].wantExit(0)
	want(t, at[0], "(integer) 0", "EXISTS", "rw")
}

// TestLock_Limit checks that as many programs as --limit permits run together, and
// no more.
func TestLock_Limit(t *testing.T) {
	c := startCluster(t)
	script := `trap "exit 0" TERM; ` + endless
	first := c.lock("sem", script, "--limit", "2", "--owner", "a")
	second := c.lock("sem", script, "--limit", "2", "--owner", "b")
	first.says("begun")
	second.says("begun")
	c.lock("sem", "echo never", "--limit", "2", "--wait", "0").wantExit(75)
	third := c.lock("sem", "echo third", "--limit", "2", "--owner", "c")
	c.awaitWaiters("sem", 1)
	wantContains(t, "locks info", run(t, "locks", "info", "sem", "--addr", c.addrs()), "limit 2", "owners:    2")
	second.signal(syscall.SIGTERM)
	second.wantExit(0)
	third.says("third")
	third.wantExit(0)
	wantContains(t, "locks break", run(t, "locks", "break", "sem", "--yes", "--addr", c.addrs()), "was broken")
	want(t, c.Nodes[0], "(integer) 0", "EXISTS", "sem")
	refuses(t, []string{"from 1 to 10000"}, "lock", "sem", "--limit", "0", "--addr", c.addrs(), "--", "true")
}
