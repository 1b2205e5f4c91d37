package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// newcomer makes a node that is not a member of the cluster. It has ports of
// its own and an empty directory. peers are the nodes that its --peers lists in
// addition to itself.
func (c *cluster) newcomer(id string, peers ...*process.Node) *process.Node {
	c.t.Helper()
	base, err := process.FreePorts(1, 3, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	o := c.Nodes[0]
	dir := filepath.Join(filepath.Dir(o.Dir), fmt.Sprintf("%s-%d", id, base))
	n := o.Another()
	n.ID, n.Clients, n.Peers, n.HTTP = id, process.Loopback(base), process.Loopback(base+1), process.Loopback(base+2)
	n.Dir, n.LogFile = dir, dir+".log"
	list := id + "=" + n.Peers
	for _, p := range peers {
		list += "," + p.ID + "=" + p.Peers
	}
	n.Args = []string{"serve", "--node-id", id, "--data-dir", dir, "--client-addr", n.Clients, "--peer-addr", n.Peers,
		"--http-addr", n.HTTP, "--peers", list}
	c.t.Cleanup(func() { kill(c.t, n) })
	return n
}

// waitOutput waits until a node has printed a text.
func waitOutput(t *testing.T, n *process.Node, text string) {
	t.Helper()
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), fmt.Sprintf("%s to say %q", n.ID, text),
		func() bool { return strings.Contains(n.Output(), text) }); err != nil {
		t.Fatalf("%v; it says\n%s", err, n.Output())
	}
}

var addCommand = regexp.MustCompile(`run \\?"holdfast (member add [^"\\]+)\\?"`)

// localhost returns an address with the host "localhost" and the port of addr.
func localhost(addr string) string { return "localhost" + addr[strings.LastIndexByte(addr, ':'):] }

// TestMember_Add starts a process that names a member in --peers but is not a
// member itself. The process must not show the cluster's data, and its death
// has no effect on the cluster. The process prints the command that admits it,
// and the command works.
func TestMember_Add(t *testing.T) {
	c := startCluster(t)
	want(t, c.Nodes[0], "OK", "SET", "k", "v")
	n := c.newcomer("n4", c.Nodes[0])
	start(t, n)
	waitOutput(t, n, "holdfast member add n4 "+n.Peers+" --addr ")
	if members, _ := status(t, c.Nodes[0]); len(members) != 3 {
		t.Errorf("members: %v, want three", members)
	}
	conn, err := eventually(t, n)
	if err != nil {
		t.Fatal(err)
	}
	show(conn, "READONLY")
	if got := show(conn, "GET", "k"); got == "v" {
		t.Error("a process that was not added shows the cluster's data")
	}
	kill(t, n)
	want(t, c.Nodes[1], "OK", "SET", "k", "w")
	start(t, n)
	waitOutput(t, n, "holdfast member add n4 ")

	command := addCommand.FindStringSubmatch(n.Output())
	if command == nil {
		t.Fatalf("no command in\n%s", n.Output())
	}
	if o := invoke(t, nil, strings.Fields(command[1])...); o.code != 0 {
		t.Fatalf("%s: %+v", command[1], o)
	}
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "n4 to vote", func() bool {
		members, _ := status(t, c.Nodes[0])
		return members["n4"].Voter
	}); err != nil {
		t.Fatal(err)
	}
	want(t, n, "w", "GET", "k")

	for _, tt := range []struct{ id, addr, says string }{
		{"n2", process.Loopback(1), `n2 is already a member`},
		{"n5", c.Nodes[1].Peers, "is in use by the member n2"},
		{"n5", localhost(c.Nodes[1].Peers), `this is node "n2", not "n5"`},
		{"n5", localhost(c.Nodes[1].Clients), "is not a peer port: a client port (Redis protocol) answers"},
		{"n5", localhost(c.Nodes[1].HTTP), "is not a peer port: an HTTP port answers"},
		{"n5@", process.Loopback(1), "contains whitespace or one of the characters"},
		{"n5", "nowhere", "missing port"},
	} {
		o := invoke(t, nil, "member", "add", tt.id, tt.addr, "--addr", c.Nodes[2].Clients)
		if o.code != 1 {
			t.Errorf("add %s: %+v", tt.id, o)
		}
		wantLine(t, o.errOut, "holdfast: ", tt.says)
	}
}

// TestMember_AliveElsewhere starts a second process with the id of a running
// node. The process says that the node runs elsewhere, and does not advise the
// operator to remove the node.
func TestMember_AliveElsewhere(t *testing.T) {
	c := startCluster(t)
	for _, o := range []*process.Node{c.settled(), c.others(c.leader())[0]} {
		double := c.newcomer(o.ID, c.others(o)...)
		out := refusesToStart(t, double)
		wantLine(t, out, "holdfast: ", o.ID+" is alive at "+o.Peers, "Do not remove it")
		if strings.Contains(out, "member remove") {
			t.Errorf("the advice is to remove a node that is alive:\n%s", out)
		}
	}
	want(t, c.Nodes[0], "OK", "SET", "k", "v")
}

func TestServe_Hangup(t *testing.T) {
	c := startCluster(t)
	want(t, c.Nodes[0], "OK", "SET", "k", "v")
	for _, n := range c.Nodes {
		send(t, n, syscall.SIGHUP)
	}
	for _, n := range c.Nodes {
		waitOutput(t, n, "SIGHUP: reloaded")
		want(t, n, "v", "GET", "k")
	}
	stopNode(t, c.Nodes[0])
}

// TestSecret checks that nodes with the same secret work together. A node with
// another secret and a node without one are rejected, and both sides say why.
func TestSecret(t *testing.T) {
	c := newCluster(t, process.Config{Secret: true})
	c.start()
	l := newLoad(t, "secret", each(3, c.Nodes)...)
	l.progress(50)
	wrong := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(wrong, []byte("a secret that is not that of the cluster"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--cluster-secret-file", wrong}} {
		n := c.newcomer("n4", c.Nodes...)
		if err := n.Start(args...); err != nil {
			t.Fatal(err)
		}
		waitOutput(t, n, "cluster secret does not match")
		waitOutput(t, c.Nodes[0], "cluster secret does not match")
		kill(t, n)
	}
	if members, _ := status(t, c.Nodes[0]); len(members) != 3 {
		t.Errorf("members: %v, want three", members)
	}
	l.check(c.Nodes[0])
}

// TestSecret_Create starts three nodes at the same time. All of them are
// configured to create the secret, and they agree on one secret.
func TestSecret_Create(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "shared")
	c := newCluster(t, process.Config{Args: []string{"--cluster-secret-file", secret, "--cluster-secret-create"}})
	c.start()
	want(t, c.Nodes[0], "OK", "SET", "k", "v")
	info, err := os.Stat(secret)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("secret: %v, %v", info, err)
	}
	left, err := os.ReadDir(filepath.Dir(secret))
	if err != nil || len(left) != 1 {
		t.Errorf("directory of the secret: %v, %v", left, err)
	}
}
