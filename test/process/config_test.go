package process_test

import (
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestConfig_Kept sets parameters, most of which Holdfast stores without any
// effect. All nodes must show the same values, even after the death of the
// leader and after its restart.
func TestConfig_Kept(t *testing.T) {
	c := startCluster(t)
	dead := c.leader()
	rest := c.others(dead)
	want(t, rest[0], "OK", "CONFIG", "SET", "hz", "33", "repl-backlog-size", "1mb", "notify-keyspace-events", "KEA")
	holds := func(n *process.Node) {
		t.Helper()
		got := settings(t, n, "hz", "repl-backlog-size", "notify-keyspace-events", "lfu-decay-time")
		for name, value := range map[string]string{"hz": "33", "repl-backlog-size": "1048576",
			"notify-keyspace-events": "AKE", "lfu-decay-time": "1"} {
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

// TestConfig_Limits checks that CONFIG GET, INFO and the metrics show the value
// of a limit that the flag has set. The error of CONFIG SET says how to change
// the limit.
func TestConfig_Limits(t *testing.T) {
	c := startCluster(t, "--max-subscriptions", "77")
	n := c.leader()
	got := settings(t, n, "holdfast-*")
	if got["holdfast-max-subscriptions"] != "77" || got["holdfast-login-timeout"] == "" {
		t.Errorf("CONFIG GET holdfast-* is %v", got)
	}
	if info := do(t, n, "INFO", "holdfast"); !strings.Contains(info, "limit_max_subscriptions:77\r\n") {
		t.Errorf("INFO holdfast is\n%s", info)
	}
	if _, text := fetch(t, n, "/metrics"); !strings.Contains(text, "holdfast_limit{flag=\"max-subscriptions\"} 77\n") {
		t.Error("the metrics do not show --max-subscriptions")
	}
	text := do(t, n, "CONFIG", "SET", "holdfast-max-subscriptions", "78")
	if !strings.HasPrefix(text, "ERR ") ||
		!strings.Contains(text, "it is set by --max-subscriptions when the node starts") {
		t.Errorf("CONFIG SET of a limit: %v", text)
	}
}
