package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster"
)

// TestAdmission_WhileOneIsSilent: a node that was added joins although another
// member does not answer. While that member is silent, the feature version
// cannot be raised.
func TestAdmission_WhileOneIsSilent(t *testing.T) {
	t.Parallel()
	claims := map[string]int{"n1": older, "n2": older, "n3": older}
	c := mixed(t, 3, claims)
	c.open("n1", "n2", "n3")
	c.ready("n1", "n2", "n3")
	c.transfer("n3")
	for _, id := range []string{"n1", "n2"} {
		c.stop(id)
		delete(claims, id)
		c.open(id)
		c.ready(id)
	}
	c.transfer("n1")
	c.isolate("n3") // a host that drops packets: each request to it takes its whole timeout
	c.client("n1").must(t, "SET", "k", "v")
	c.place("n4", []cluster.Peer{peer("n1"), peer("n2"), peer("n4")})
	c.add("n4")
	eventually(t, "the raise to be blocked by n3", func() bool { return strings.Contains(c.node("n1").Status().FeaturesBlocked, "n3") })
	c.open("n4")
	eventually(t, "n4 to join", func() bool { return c.node("n4").Linked() })
}

// TestAdmission_WritesNothing: a node that was not added asks again and again
// to join. The refusals must not write to the log.
func TestAdmission_WritesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.mended()
	c.quiet()
	c.caughtUp()
	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	last := func() uint64 { return c.node(c.leader("n1", "n2", "n3")).Status().LastIndex }
	before := last()
	c.open("n4")
	refused := func() int { return c.log.Count("n4: waiting to form or join the cluster") }
	eventually(t, "n4 to be refused", func() bool { return refused() > 0 && strings.Contains(c.node("n4").Status().Detail, "member add") })
	asked := c.node("n4").Status().Uptime
	eventually(t, "n4 to ask some more times", func() bool { return c.node("n4").Status().Uptime > asked+2 })
	if now := last(); now > before+2 {
		t.Errorf("%d entries were written while a node that was not added asked to join, want at most 2", now-before)
	}
}
