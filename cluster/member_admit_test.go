package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/rpc"
)

// add permits the node with this id to join.
func (c *testCluster) add(id string) {
	c.t.Helper()
	eventually(c.t, id+" to be added", func() bool {
		for _, other := range c.ids() {
			n := c.members[other].running()
			if n == nil {
				continue
			}
			err := n.AddMember(id, address(id))
			if err == nil {
				return true
			}
			c.t.Logf("add %s through %s: %v", id, other, err) // this node may not know the leader yet
		}
		return false
	})
}

// listed reports whether a node is a member, and whether it is a voter,
// according to another node. The argument id names the node in question, and at
// names the node that is asked.
func (c *testCluster) listed(at, id string) (voter, ok bool) {
	for _, m := range c.node(at).ClusterStatus(context.Background()) {
		if m.ID == id {
			return m.Voter, true
		}
	}
	return false, false
}

// A process that names members in --peers cannot join without "member add": it
// is not a member, gets no data, and reports what the operator must do. Once it
// has been added, it joins without a restart.
func TestAdmission_NotAdded(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		c := start(t, nodes)
		c.client("n1").want(t, ok, "SET", "k", "v")
		c.place("n4", append(slices.Clone(c.peers), peer("n4")))
		c.change = func(cfg *cluster.Config) { cfg.ClientAddr = "client-of-" + cfg.NodeID }
		leader := c.leader()
		c.crash(leader) // so that the leader restarts with a client address
		c.open(leader)
		c.ready(leader)

		c.open("n4")
		eventually(t, "n4 to say what to do", func() bool {
			st := c.node("n4").Status()
			return strings.Contains(st.Detail, `run "holdfast member add n4 `+address("n4")+"\"") ||
				strings.Contains(st.Detail, `run "holdfast member add n4 `+address("n4")+" --addr client-of-n")
		})
		if c.log.Count("n4: waiting to form or join the cluster") == 0 || c.log.Count("holdfast member add n4") == 0 {
			t.Error("n4 has not logged what to do")
		}
		if _, ok := c.listed("n1", "n4"); ok {
			t.Error("a node that was not added is a member")
		}
		cl := c.client("n4")
		cl.local = true
		if got, err := cl.do("GET", "k"); err == nil && got != absent {
			t.Errorf("a node that was not added returns the value %q, want none", got)
		}
		c.crash("n4") // n4 does not count toward the majority
		c.client("n1").want(t, ok, "SET", "k", "w")

		c.open("n4")
		c.add("n4")
		c.ready("n4")
		eventually(t, "n4 to vote", func() bool { return c.node("n4").Status().Voter })
		c.client("n4").want(t, bulk("w"), "GET", "k")
		c.close()
	}
}

// The permission to join is in the log: it survives the loss of the leader that
// gave it, and restarts of all nodes.
func TestAdmission_SurvivesTheLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	c.transfer("n1")
	c.add("n4")
	if voter, ok := c.listed("n1", "n4"); !ok || voter {
		t.Fatalf("n4 is listed: %v, votes: %v; want a member that does not vote", ok, voter)
	}
	c.crash("n1")
	c.leader("n2", "n3")
	// The added node, which was not started, does not count toward the majority.
	c.client("n2").want(t, ok, "SET", "k", "v")
	for _, id := range []string{"n2", "n3"} {
		c.crash(id)
	}
	c.open("n2", "n3")
	c.ready("n2", "n3")
	c.open("n4")
	c.ready("n4")
	eventually(t, "n4 to vote", func() bool { return c.node("n4").Status().Voter })
	c.client("n4").want(t, bulk("v"), "GET", "k")
	c.open("n1")
	c.ready("n1")
	c.caughtUp()
}

func TestAdmission_InUse(t *testing.T) {
	t.Parallel()
	c := prepare(t, 3)
	c.change = func(cfg *cluster.Config) { cfg.ClientAddr = cfg.NodeID + ":6379" }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	eventually(t, "the client address of n2 to be known", func() bool {
		for _, h := range c.node(c.leader()).PeerHealth() {
			if h.ID == "n2" && h.ClientAddr != "" {
				return true
			}
		}
		return false
	})
	for _, test := range []struct{ id, addr, want string }{
		{"n2", "n9:1", `n2 is already a member, at ` + address("n2") + `: to replace it, run "holdfast member remove n2" first`},
		{"n4", address("n2"), "address " + address("n2") + " is in use by the member n2"},
		{"n4", "n2:6379", "address n2:6379 is the client port of the member n2"},
		{"n 4", address("n4"), "contains whitespace"},
		{"", address("n4"), "empty"},
		{"n4@", address("n4"), "contains whitespace or one of the characters , = / @"},
		{"n4", "a b:7379", "the host is neither a name nor an IP address"},
		{"n4", "n1@n4:7379", "the host is neither a name nor an IP address"},
		{"n4", "http://n4:7379", "too many colons"},
		{"n4", "n4:0", "port is not a number from 1 to 65535"},
		{"n4", "n4", "missing port"},
		{"n4", "0.0.0.0:7379", "not an address that another node can reach"},
	} {
		err := c.node("n1").AddMember(test.id, test.addr)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("add %q at %q: %v, want %q", test.id, test.addr, err, test.want)
		}
	}
	c.add("n4")
	c.add("n4") // adding it again changes nothing
	if err := c.node("n1").AddMember("n4", address("n5")); err == nil || !strings.Contains(err.Error(), "already a member") {
		t.Errorf("adding n4 again with another address: %v, want an error: already a member", err)
	}
	// If a node was added with one address and starts with another, it is
	// refused.
	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	c.change = func(cfg *cluster.Config) { cfg.AdvertisePeerAddr = address("n5") }
	c.open("n4")
	eventually(t, "n4 to be refused", func() bool {
		return strings.Contains(c.node("n4").Status().Detail, "was added with the address "+address("n4"))
	})
}

// The leader checks the address of a new node. It refuses the address if a client
// port or an HTTP port answers there. If it cannot resolve the name, it only reports
// this, because the name may get an address later.
func TestAdmission_OtherProgram(t *testing.T) {
	t.Parallel()
	var programs sync.WaitGroup
	t.Cleanup(programs.Wait) // after the nodes have closed their connections
	c := prepare(t, 1)
	c.change = func(cfg *cluster.Config) {
		peer := cfg.PeerDialer
		cfg.PeerDialer = func(ctx context.Context, addr string) (net.Conn, error) {
			answers := map[string]string{"web:80": "HTTP/1.1 400 Bad Request\r\n", "other:6379": "+PONG\r\n", "dumb:1": "?"}
			switch text, ok := answers[addr]; {
			case addr == "gone:1":
				return nil, &net.DNSError{Err: "no such host", Name: "gone", IsNotFound: true}
			case ok:
				return answerLine(&programs, text), nil
			}
			return peer(ctx, addr)
		}
	}
	c.open("n1")
	c.ready("n1")
	add := func(id, addr string) (string, error) { return c.node("n1").Add(t.Context(), id, addr, false) }
	for addr, want := range map[string]string{
		"web:80":     "web:80 is not a peer port: an HTTP port answers",
		"other:6379": "other:6379 is not a peer port: a client port (Redis protocol) answers",
	} {
		if done, err := add("n2", addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("add at %s: %q, %v, want %q", addr, done, err, want)
		}
	}
	if done, err := add("n2", "dumb:1"); err != nil || done != "n2 may join, at dumb:1" {
		t.Errorf("add at the address of an unknown program: %q, %v, want no error and no note", done, err)
	}
	if done, err := add("n3", "gone:1"); err != nil || !strings.HasSuffix(done, "n1 cannot resolve gone at present: no such host") {
		t.Errorf("add with a name that has no address: %q, %v, want a note about the name", done, err)
	}
}

// The leader reports that a node of another cluster answers at the address of a new
// node, for example the old process of a node after a recovery.
func TestAdmission_OtherCluster(t *testing.T) {
	t.Parallel()
	other := prepare(t, 1)
	var dial func(context.Context, string) (net.Conn, error)
	other.change = func(cfg *cluster.Config) { dial = cfg.PeerDialer }
	other.open("n1")
	other.ready("n1")
	c := prepare(t, 1)
	c.change = func(cfg *cluster.Config) {
		peer := cfg.PeerDialer
		cfg.PeerDialer = func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "stranger:1" {
				return dial(ctx, address("n1"))
			}
			return peer(ctx, addr)
		}
	}
	c.open("n1")
	c.ready("n1")
	done, err := c.node("n1").Add(t.Context(), "n2", "stranger:1", false)
	if err != nil || !strings.Contains(done, "refuses this cluster: peer belongs to another cluster") {
		t.Errorf("add at the address of a node of another cluster: %q, %v, want a note about that cluster", done, err)
	}
}

// answerLine returns a connection to a program that answers each line with
// text, and nothing before the end of a line. The program ends when the
// connection is closed.
func answerLine(programs *sync.WaitGroup, text string) net.Conn {
	near, far := net.Pipe()
	programs.Go(func() {
		defer far.Close()
		for lines := bufio.NewReader(far); ; {
			if _, err := lines.ReadString('\n'); err != nil {
				return
			}
			if _, err := far.Write([]byte(text)); err != nil {
				return
			}
		}
	})
	return near
}

// A second process with the id of a live node is refused, with the advice not
// to remove the node, whether the node is a voter or not.
func TestAdmission_Alive(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	c.add("n4")
	c.net.refuse(rpc.ServiceRaft, "n4") // it joins, but cannot catch up
	c.open("n4")
	eventually(t, "n4 to join", func() bool { return c.log.Count("n4: joined cluster") > 0 })
	for _, id := range []string{"n1", "n3", "n4"} { // leader, follower, non-voter
		double := c.place("double", append(slices.DeleteFunc(slices.Clone(c.peers), func(p cluster.Peer) bool { return p.ID == id }),
			cluster.Peer{ID: id, Addr: address("double")}))
		double.dies = true
		cfg := c.config(double)
		cfg.NodeID = id
		n, err := cluster.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		double.node = n
		c.wantFatal("double", cluster.ErrAlive.Error()+": "+id+" is alive at "+address(id)+". Do not remove it.")
		c.stop("double")
		c.wipe("double")
		delete(c.members, "double")
	}
	c.client("n3").want(t, ok, "SET", "k", "v")
}

// A cluster with a secret refuses nodes with another secret or none, even nodes
// that were added. Such a node reports the reason.
func TestSecret(t *testing.T) {
	t.Parallel()
	right, wrong := bytes.Repeat([]byte("r"), rpc.MinSecret), bytes.Repeat([]byte("w"), rpc.MinSecret)
	c := prepare(t, 3)
	secrets := map[string][]byte{"n1": right, "n2": right, "n3": wrong, "n4": nil}
	c.change = func(cfg *cluster.Config) { cfg.Secret = secrets[cfg.NodeID] }
	c.open("n1", "n2", "n3")
	for _, id := range []string{"n1", "n3"} {
		eventually(t, id+" to say that secrets differ", func() bool {
			return strings.Contains(c.node(id).Status().Detail, "(cluster secret does not match)") && c.log.Count(id+".rpc: cluster secret does not match") > 0
		})
	}
	if st := c.node("n1").Status(); st.Term != 0 {
		t.Errorf("a cluster was formed although the secrets differ: %+v", st)
	}
	c.stop("n3")
	secrets["n3"] = right
	c.open("n3")
	c.ready("n1", "n2", "n3")
	c.client("n3").want(t, ok, "SET", "k", "v")
	c.caughtUp()

	c.place("n4", append(slices.Clone(c.peers), peer("n4")))
	c.add("n4")
	c.open("n4")
	eventually(t, "n4 to be kept out", func() bool {
		return strings.Contains(c.node("n4").Status().Detail, "(cluster secret does not match)") && c.log.Count("n4.rpc: cluster secret does not match") > 0
	})
	c.stop("n4")
	secrets["n4"] = right
	c.open("n4")
	c.ready("n4")
	c.caughtUp()
}

// Two restarts of each node give a running cluster a secret. No connection is
// refused because of the secret meanwhile.
func TestSecret_Introduced(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	secret := bytes.Repeat([]byte("s"), rpc.MinSecret)
	l := c.load("n", 2, "n1", "n2", "n3")
	for _, optional := range []bool{true, false} {
		changed := make(map[string]bool)
		c.change = func(cfg *cluster.Config) {
			if changed[cfg.NodeID] || !optional {
				cfg.Secret = secret
			}
			cfg.SecretOptional = optional || !changed[cfg.NodeID]
		}
		for _, id := range c.ids() {
			changed[id] = true
			c.crash(id)
			c.open(id)
			c.ready(id)
			l.progress(50)
		}
	}
	l.check("n1")
	if n := c.log.Count("cluster secret does not match"); n > 0 {
		t.Errorf("%d connections were refused, want 0", n)
	}
}
