package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestRemoveAway kills members of a cluster of five nodes. Its leader removes
// members that are away for a minute. The clocks of the nodes run ten times as
// fast as usual, so a minute of absence takes six seconds. No command of the
// other nodes' clients may fail. The leader keeps the last three voters, which
// are a majority of five.
func TestRemoveAway(t *testing.T) {
	clock := filepath.Join(t.TempDir(), "clock")
	if err := os.WriteFile(clock, []byte("0s 10"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, process.Config{Nodes: 5, Args: []string{"--remove-away-after", "1m", "--test-clock", clock}})
	c.start()
	leader := c.leader()
	others := c.others(leader)
	survivor, third, gone := others[0], others[1], others[2:]
	l := newLoad(t, "away", each(4, []*process.Node{leader, survivor})...)
	listed := func(n *process.Node) bool {
		o := invoke(t, nil, "member", "list", "--addr", survivor.Clients)
		return o.code == 0 && strings.Contains(o.out, "\n"+n.ID+" ")
	}
	for _, n := range gone {
		kill(t, n)
		if err := process.Poll(testutil.Within(t, time.Minute), "the removal of "+n.ID,
			func() bool { return !listed(n) }); err != nil {
			t.Fatal(err)
		}
		wantContains(t, "the log of the leader", leader.Output(), "removed a member that was away: node="+n.ID,
			"holdfast member add "+n.ID)
	}
	kill(t, third)
	waitOutput(t, leader, "a member is away and stays a member")
	if !listed(third) {
		t.Errorf("%s was removed, although two voters are not a majority of five", third.ID)
	}
	o := invoke(t, nil, "status", survivor.Clients)
	if o.code != 5 || !strings.Contains(o.out, "tolerates no more failures") {
		t.Errorf("status with two of three voters: %+v", o)
	}
	// A removed node reports its removal in its log, in holdfast status and at
	// /readyz.
	start(t, gone[0])
	waitOutput(t, gone[0], "this node was removed from the cluster")
	removed := gone[0].ID + " was removed from the cluster"
	if err := process.Poll(testutil.Within(t, replyLimit), "status to name the removed node", func() bool {
		return strings.Contains(invoke(t, nil, "status", gone[0].Clients).out, removed)
	}); err != nil {
		t.Error(err)
	}
	code, body := bearer(t, gone[0], "/readyz", "")
	if code != 503 || !strings.Contains(body, "was removed from the cluster") {
		t.Errorf("/readyz of the removed node: %d %s", code, body)
	}
	start(t, third)
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "a healthy cluster", func() bool {
		return invoke(t, nil, "status", survivor.Clients).code == 0
	}); err != nil {
		t.Error(err)
	}
	l.check(survivor)
}
