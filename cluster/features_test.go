package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// older is the highest feature version that programs before fsm.FeatureMend know.
const older = fsm.FeatureMend - 1

// mixed prepares a cluster of nodes that know different feature versions.
// claims maps the id of a node to the version that the node knows. All other
// nodes know fsm.MaxFeatures. A changed claim takes effect at the node's next
// start.
func mixed(t *testing.T, nodes int, claims map[string]int) *testCluster {
	t.Helper()
	c := prepare(t, nodes)
	c.change = func(cfg *cluster.Config) { cfg.Features = claims[cfg.NodeID] }
	return c
}

// features waits until the given nodes use the feature version want. Without
// ids, it waits for all nodes.
func (c *testCluster) features(want int, ids ...string) {
	c.t.Helper()
	if len(ids) == 0 {
		ids = c.ids()
	}
	eventually(c.t, fmt.Sprintf("feature version %d on %v", want, ids), func() bool {
		for _, id := range ids {
			if c.node(id).Status().FeatureVersion != want {
				return false
			}
		}
		return true
	})
}

// needs makes a node treat a command as one that needs the given feature
// version.
func (c *testCluster) needs(id, command string, feature int) {
	c.t.Helper()
	c.node(id).View(func(m *fsm.Machine) { m.Table().Find([]byte(command)).Feature = feature })
}

// A cluster whose founding nodes know all features allows these features from
// its first entry on. A follower that has not applied that entry yet must not
// refuse a command for lack of a feature.
func TestFeatures_Fresh(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	c.open("n1", "n2", "n3")
	for _, id := range c.ids() {
		c.needs(id, "incr", fsm.MaxFeatures)
	}
	for _, id := range c.ids() {
		c.ready(id)
		c.client(id).must(t, "INCR", "n")
	}
	c.features(fsm.MaxFeatures)
	if c.log.Count("raising the cluster's feature version") != 0 {
		t.Error("the feature version of a new cluster had to be raised")
	}
}

// A cluster is upgraded from an older program to this one. While one member
// runs the older program, the feature version does not change, whichever node
// leads.
func TestFeatures_Upgrade(t *testing.T) {
	t.Parallel()
	claims := map[string]int{"n1": older, "n2": older, "n3": older}
	c := mixed(t, 3, claims)
	c.open("n1", "n2", "n3")
	c.ready("n1", "n2", "n3")
	c.features(older)
	for _, id := range []string{"n1", "n2"} {
		c.stop(id)
		delete(claims, id)
		c.open(id)
		c.ready(id)
		for _, leader := range []string{id, "n3"} {
			c.transfer(leader)
			c.client(id).want(t, ok, "SET", "k", leader)
			c.caughtUp()
			c.features(older)
		}
	}
	c.transfer("n1")
	eventually(t, "n1 to say what it waits for", func() bool {
		return strings.HasPrefix(c.node("n1").Status().FeaturesBlocked, "n3 runs version test, which knows feature version 1 at most")
	})
	c.stop("n3")
	eventually(t, "n1 to say that n3 does not answer", func() bool {
		return c.node(c.leader("n1", "n2")).Status().FeaturesBlocked == "n3 does not answer"
	})
	delete(claims, "n3")
	c.open("n3")
	c.features(fsm.MaxFeatures)
	c.caughtUp()
	if st := c.node(c.leader()).Status(); st.FeaturesBlocked != "" {
		t.Errorf("the raise of the feature version is still reported as blocked: %s", st.FeaturesBlocked)
	}
	// A restarted node gets the feature version from its snapshot and its log.
	if err := c.node("n2").Snapshot(); err != nil {
		t.Error(err)
	}
	c.stop("n2")
	c.open("n2")
	c.features(fsm.MaxFeatures)

	// A downgrade is not possible.
	c.stop("n3")
	claims["n3"] = older
	c.members["n3"].dies = true
	c.open("n3")
	c.wantFatal("n3", fmt.Sprintf("the cluster uses feature version %d and this program knows %d: install the newer program again", fsm.MaxFeatures, older))
}

// A node with an older program ends when it receives a snapshot with a feature
// version that the program does not know.
func TestFeatures_NewerSnapshot(t *testing.T) {
	t.Parallel()
	claims := map[string]int{"n1": older, "n2": older, "n3": older}
	c := prepare(t, 3, func(o *cluster.Options) { o.TrailingBytes = 1 })
	c.change = func(cfg *cluster.Config) { cfg.Features = claims[cfg.NodeID] }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.caughtUp()
	c.stop("n3")
	for _, id := range []string{"n1", "n2"} {
		c.stop(id)
		delete(claims, id)
		c.open(id)
		c.ready(id)
	}
	c.transfer("n1")
	c.node("n1").Raise(fsm.MaxFeatures) // although n3 does not answer
	eventually(t, "the raise to be applied", func() bool { return c.node("n1").Features() == fsm.MaxFeatures })
	for i := range 200 { // more entries than remain after a snapshot
		c.client("n1").want(t, ok, "SET", "k", fmt.Sprint(i))
	}
	for _, id := range []string{"n1", "n2"} {
		if err := c.node(id).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	c.members["n3"].dies = true
	c.open("n3")
	c.wantFatal("n3", fmt.Sprintf("cannot read the leader's snapshot: the cluster uses feature version %d and this program knows %d: install the newer program again", fsm.MaxFeatures, older))
}

// A node whose program does not know the feature version of the cluster is not
// admitted. The error names the cluster's feature version, and the program version
// that the node needs. With a newer program, the node is admitted.
func TestFeatures_Join(t *testing.T) {
	t.Parallel()
	claims := map[string]int{"n4": older}
	c := mixed(t, 3, claims)
	c.open("n1", "n2", "n3")
	c.ready("n1", "n2", "n3")
	c.place("n4", append(c.peers, peer("n4")))
	c.add("n4")
	c.open("n4")
	eventually(t, "n4 to be refused", func() bool {
		return strings.Contains(c.node("n4").Status().Detail, fmt.Sprintf("the cluster uses feature version %d and the program of n4 knows %d at most: install version test or a newer one", fsm.MaxFeatures, older))
	})
	c.stop("n4")
	delete(claims, "n4")
	c.open("n4")
	c.ready("n4")
	c.features(fsm.MaxFeatures)
}

// A command that the cluster's feature version does not include never enters
// the log: either the client's node refuses it, or, if that node does not know that
// the command needs a higher version, the leader does.
func TestFeatures_Command(t *testing.T) {
	t.Parallel()
	claims := map[string]int{"n3": older}
	c := mixed(t, 3, claims)
	c.open("n1", "n2", "n3")
	c.ready("n1", "n2", "n3")
	c.transfer("n3")
	c.transfer("n1")
	c.features(older)
	for _, id := range []string{"n1", "n2"} {
		c.needs(id, "incr", fsm.FeatureMend)
		if _, err := c.client(id).do("INCR", "n"); !errors.Is(err, outcome.ErrFeature) {
			t.Errorf("INCR through %s: %v, want ErrFeature", id, err)
		}
	}
	c.needs("n2", "incr", 0)
	if _, err := c.client("n2").do("INCR", "n"); !errors.Is(err, outcome.ErrRefused) {
		t.Errorf("INCR that the leader must refuse: %v, want ErrRefused", err)
	}
	c.needs("n2", "incr", fsm.FeatureMend)
	c.client("n2").want(t, absent, "GET", "n")
	c.stop("n3")
	delete(claims, "n3")
	c.open("n3")
	c.ready("n3")
	c.features(fsm.MaxFeatures)
	c.client("n2").want(t, ":1\r\n", "INCR", "n")
}

// A raise whose call has failed may be applied while a node is being admitted.
// If the node's program does not know the feature version, the node is refused.
func TestFeatures_RaisedDuringJoin(t *testing.T) {
	t.Parallel()
	claims := map[string]int{"n1": older, "n2": older, "n3": older}
	c := prepare(t, 3, func(o *cluster.Options) {
		o.Window = 4
		o.HeartbeatTimeout = slowdown * 6 * time.Second
		o.LeaseTimeout, o.LeaderWait = o.HeartbeatTimeout, o.HeartbeatTimeout
	})
	c.change = func(cfg *cluster.Config) { cfg.Features = claims[cfg.NodeID] }
	c.open("n1", "n2", "n3")
	c.ready("n1", "n2", "n3")
	c.features(older)
	c.place("n4", append(c.peers, peer("n4")))
	c.add("n4") // it does not answer, so the feature version is not raised
	clear(claims)
	for _, id := range []string{"n1", "n2", "n3"} {
		c.stop(id)
		c.open(id)
		c.ready(id)
	}
	c.transfer("n1")
	c.caughtUp("n1", "n2", "n3")
	n1 := c.node("n1")
	c.net.hold("n1", "n2", "n3")
	last := n1.Status().LastIndex
	n1.Raise(fsm.MaxFeatures)
	eventually(t, "the raise to be in the log", func() bool { return n1.Status().LastIndex > last })
	if n1.Features() != older {
		t.Fatal("the raise was committed although nothing reaches the other nodes")
	}
	refused := make(chan error, 1)
	go func() { refused <- n1.Admit("n4", address("n4"), older) }()
	eventually(t, "the admission of n4 to begin", n1.Admitting)
	c.net.heal()
	wantRefused(t, "admission of an older program after a raise", <-refused, "the program of n4 knows")
}
