package sentinel

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/resp/topology"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

// scene is a monitor and the events that it has published.
type scene struct {
	Monitor
	events []string
	now    time.Time
}

func newScene() *scene {
	s := &scene{now: time.Unix(1000, 0)}
	s.name = "mymaster"
	s.publish = func(channel, payload string) { s.events = append(s.events, channel+" "+payload) }
	return s
}

// see advances the time by after, passes the current leader and peers to the
// monitor, and expects the events that want contains.
func (s *scene) see(t *testing.T, after time.Duration, leader *topology.Peer, peers []topology.Peer, want ...string) {
	t.Helper()
	s.now = s.now.Add(after)
	s.events = nil
	if leader == nil {
		s.update(topology.Peer{}, false, peers, s.now)
	} else {
		s.update(*leader, true, peers, s.now)
	}
	if !slices.Equal(s.events, want) {
		t.Errorf("the monitor published the events %q, want %q", s.events, want)
	}
}

func peer(n string, alive bool) topology.Peer {
	return topology.Peer{
		Node: "n" + n, ID: "id" + n, Host: "h" + n, Port: "1", SentinelHost: "h" + n, SentinelPort: "2", RunID: "run" + n,
		Voter: true, Alive: alive, Self: n == "1",
	}
}

func TestMonitor_Events(t *testing.T) {
	s := newScene()
	n1, n2, n3 := peer("1", true), peer("2", true), peer("3", true)
	// A leader whose address is not known yet counts as no leader.
	s.see(t, 0, nil, []topology.Peer{{ID: "id1", Voter: true, Alive: true}})
	s.see(t, time.Second, &n1, []topology.Peer{n1, n2, n3},
		"+slave slave h2:1 h2 1 @ mymaster h1 1", "+sentinel sentinel id2 h2 2 @ mymaster h1 1",
		"+slave slave h3:1 h3 1 @ mymaster h1 1", "+sentinel sentinel id3 h3 2 @ mymaster h1 1")
	s.see(t, time.Second, &n1, []topology.Peer{n1, n2, n3})
	// A follower fails and returns.
	s.see(t, time.Second, &n1, []topology.Peer{n1, peer("2", false), n3}, "+sdown slave h2:1 h2 1 @ mymaster h1 1", "+sdown sentinel id2 h2 2 @ mymaster h1 1")
	again := n2
	again.RunID = "another"
	s.see(t, time.Second, &n1, []topology.Peer{n1, again, n3},
		"+reboot slave h2:1 h2 1 @ mymaster h1 1", "-sdown slave h2:1 h2 1 @ mymaster h1 1",
		"+reboot sentinel id2 h2 2 @ mymaster h1 1", "-sdown sentinel id2 h2 2 @ mymaster h1 1")
	// Another node leads. Its replicas are announced again.
	s.see(t, time.Second, &n3, []topology.Peer{n1, again, n3},
		"+switch-master mymaster h1 1 h3 1", "+slave slave h1:1 h1 1 @ mymaster h3 1", "+slave slave h2:1 h2 1 @ mymaster h3 1")
	// No leader is confirmed for longer than an election takes. Then the same
	// leader is confirmed again.
	s.see(t, downAfter, nil, []topology.Peer{n1, again, n3})
	if s.down {
		t.Error("the master is reported as down before downAfter has passed")
	}
	s.see(t, time.Millisecond, nil, []topology.Peer{n1, again, n3}, "+sdown master mymaster h3 1", "+odown master mymaster h3 1 #quorum 1/1")
	s.see(t, time.Second, nil, []topology.Peer{n1, again, n3})
	s.see(t, time.Second, &n3, []topology.Peer{n1, again, n3}, "-sdown master mymaster h3 1", "-odown master mymaster h3 1")
	// The leader returns at another address, so the monitor announces it.
	switched := n3
	switched.Port = "9"
	s.see(t, time.Second, &switched, []topology.Peer{n1, again, switched},
		"+switch-master mymaster h3 1 h3 9", "+slave slave h1:1 h1 1 @ mymaster h3 9", "+slave slave h2:1 h2 1 @ mymaster h3 9")
	// A new node is a replica as soon as it is a voter.
	n4 := peer("4", true)
	n4.Voter = false
	s.see(t, time.Second, &switched, []topology.Peer{n1, again, switched, n4}, "+sentinel sentinel id4 h4 2 @ mymaster h3 9")
	n4.Voter = true
	s.see(t, time.Second, &switched, []topology.Peer{n1, again, switched, n4}, "+slave slave h4:1 h4 1 @ mymaster h3 9")
}

func TestWatch_Items(t *testing.T) {
	now := time.Unix(1000, 0)
	down := peer("2", false)
	down.Heard = now.Add(-3 * time.Second)
	w := State{
		name: "mymaster", master: peer("1", true), down: true, since: now.Add(-time.Minute), confirmed: now.Add(-2 * time.Second),
		replicas: []topology.Peer{down, peer("3", true)}, sentinels: []topology.Peer{down, peer("3", true)}, voters: 3, epoch: 7, now: now,
	}
	if got, want := w.usable(), 2; got != want {
		t.Errorf("%d usable Sentinels, want %d", got, want)
	}
	if got, want := w.quorum(), 2; got != want {
		t.Errorf("quorum %d, want %d", got, want)
	}
	field := func(item []byte, name string) string {
		words, err := wire.Bulks(item)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.Index(words, name)
		if i < 0 {
			t.Fatalf("the item has no field %s: %q", name, words)
		}
		return words[i+1]
	}
	master := w.masterItem().Append(nil, 2)
	slave := w.replicaItem(down).Append(nil, 2)
	sentinel := w.sentinelItem(down).Append(nil, 2)
	for _, tc := range []struct {
		item        []byte
		field, want string
	}{
		{master, "flags", "s_down,o_down,master,disconnected"}, {master, "last-ok-ping-reply", "2000"}, {master, "s-down-time", "2000"}, {master, "o-down-time", "2000"},
		{master, "num-slaves", "2"}, {master, "num-other-sentinels", "2"}, {master, "quorum", "2"}, {master, "config-epoch", "7"}, {master, "role-reported-time", "60000"},
		{slave, "flags", "s_down,slave,disconnected"}, {slave, "master-link-status", "err"}, {slave, "master-host", "h1"}, {slave, "master-port", "1"}, {slave, "name", "h2:1"},
		{slave, "last-ping-sent", "3000"}, {sentinel, "flags", "s_down,sentinel,disconnected"}, {sentinel, "port", "2"}, {sentinel, "last-hello-message", "3000"},
	} {
		if got := field(tc.item, tc.field); got != tc.want {
			t.Errorf("the field %s is %q, want %q", tc.field, got, tc.want)
		}
	}
}
