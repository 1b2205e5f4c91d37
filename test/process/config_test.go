package process

import (
	"testing"

	"github.com/gomodule/redigo/redis"
)

// A setting without effect is the same on all nodes, through the death of the leader
// and a restart.
func TestConfig_Kept(t *testing.T) {
	c := startCluster(t)
	dead := c.leader()
	rest := c.others(dead)
	want(t, rest[0], "OK", "CONFIG", "SET", "hz", "33", "repl-backlog-size", "1mb", "notify-keyspace-events", "KEA")
	holds := func(n *Node) {
		t.Helper()
		got, err := redis.StringMap(dial(t, n).Do("CONFIG", "GET", "hz", "repl-backlog-size", "notify-keyspace-events", "lfu-decay-time"))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"hz": "33", "repl-backlog-size": "1048576", "notify-keyspace-events": "AKE", "lfu-decay-time": "1"} {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %q", n.ID, name, got[name], value)
			}
		}
	}
	for _, n := range c.Nodes {
		holds(n)
	}
	kill(t, dead)
	for _, n := range rest {
		holds(n)
	}
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	c.settled()
	holds(dead)
}
