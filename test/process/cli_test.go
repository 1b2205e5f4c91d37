package process_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

func TestFlags_WrongOnesAreNamed(t *testing.T) {
	t.Parallel()
	base, err := process.FreePorts(1, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := flagCases{
		t: t, base: base, peer: process.Loopback(base + 1),
		dir: filepath.Join(t.TempDir(), "data"), secrets: t.TempDir(),
	}
	for _, tt := range slices.Concat(c.addresses(), c.values(), c.secretFiles(), c.words()) {
		t.Run(tt.name, func(t *testing.T) {
			o := invoke(t, tt.env, tt.args...)
			if o.code != 1 {
				t.Errorf("exit code %d, want 1", o.code)
			}
			if o.out != "" {
				t.Errorf("the command prints to standard output: %s", o.out)
			}
			wantLine(t, o.errOut, append([]string{"holdfast: "}, tt.says...)...)
		})
	}
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("a node with wrong flags created its data directory (%v)", err)
	}
}

// A flagCase is a command line that must be refused.
type flagCase struct {
	name string
	env  []string
	args []string
	says []string // parts that one line of the error must contain
}

// flagCases builds command lines for a node that does not run.
type flagCases struct {
	t            *testing.T
	base         int    // the first of three free ports
	peer         string // the peer address
	dir, secrets string // the data directory, and the directory of the secrets
}

// secret writes a file and returns its path.
func (c flagCases) secret(name, text string, mode os.FileMode) string {
	c.t.Helper()
	path := filepath.Join(c.secrets, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // independent of the umask
		c.t.Fatal(err)
	}
	return path
}

// tls returns the flags that turn TLS on, with a certificate that the test
// made.
func (c flagCases) tls() []string {
	a := newAuthority(c.t)
	cert, key := a.issue("n1", 2)
	return []string{"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.path("ca.pem"),
		"--tls-auth-clients", "yes"}
}

// serve returns the arguments of the serve command of a node, followed by more
// arguments.
func (c flagCases) serve(more ...string) []string {
	return append([]string{"serve", "--node-id", "n1", "--data-dir", c.dir, "--client-addr", process.Loopback(c.base),
		"--peer-addr", c.peer, "--http-addr", process.Loopback(c.base + 2), "--peers", "n1=" + c.peer}, more...)
}

// addresses returns cases with wrong names and addresses of nodes.
func (c flagCases) addresses() []flagCase {
	return []flagCase{
		{"no node id", nil, []string{"serve", "--data-dir", c.dir}, []string{"--node-id is missing"}},
		{"no data directory", nil, []string{"serve", "--node-id", "n1"}, []string{"--data-dir is missing"}},
		{"node id with a blank", nil, c.serve("--node-id", "n 1"), []string{"--node-id", `"n 1"`}},
		{"peers without address", nil, c.serve("--peers", "n1"), []string{"--peers", `"n1"`, "id=host:port"}},
		{"peers without port", nil, c.serve("--peers", "n1=localhost"), []string{"--peers", "n1", "port"}},
		{"peers twice", nil, c.serve("--peers", "n1=a:1,n1=b:1"), []string{"--peers", "n1", "twice"}},
		{"peers without this node", nil, c.serve("--peers", "n2="+c.peer),
			[]string{"--peers does not name this node, n1"}},
		{"log level", nil, c.serve("--log-level", "loud"), []string{"--log-level", `"loud"`, "debug"}},
		{"log format", nil, c.serve("--log-format", "xml"), []string{"--log-format", `"xml"`, "json"}},
		{"log store", nil, c.serve("--log-store", "leveldb"), []string{"--log-store", `"leveldb"`, "boltdb"}},
		{"client address without port", nil, c.serve("--client-addr", "localhost"),
			[]string{"--client-addr", `"localhost"`, "host:port"}},
		{"client address with a large port", nil, c.serve("--client-addr", "localhost:99999"),
			[]string{"--client-addr", "99999"}},
		{"client address empty", nil, c.serve("--client-addr="), []string{"--client-addr"}},
		{"http address empty", nil, c.serve("--http-addr="), []string{"--http-addr"}},
		{"peer address empty", nil, c.serve("--peer-addr="), []string{"--peer-addr"}},
		{"unreachable advertised address", nil, c.serve("--advertise-peer-addr", "0.0.0.0:7379"),
			[]string{"--advertise-peer-addr", "0.0.0.0:7379"}},
		{"unreachable peer", nil, c.serve("--peers", "n1="+c.peer+",n2=0.0.0.0:7379"),
			[]string{"--peers: address of n2", "0.0.0.0:7379", "use the name or an IP address of the machine"}},
		{"unreachable address for clients", nil, c.serve("--advertise-client-addr", ":6379"),
			[]string{"--advertise-client-addr", `":6379"`, "use the name or an IP address of the machine"}},
		{"advertised address with port 0", nil, c.serve("--advertise-peer-addr", "localhost:0"),
			[]string{"--advertise-peer-addr", "localhost:0", "1 to 65535"}},
		{"peers with port 0", nil, c.serve("--peers", "n1=localhost:0"), []string{"--peers", "n1", "1 to 65535"}},
		{"the client port as a peer", nil, c.serve("--peers", "n1="+process.Loopback(c.base)),
			[]string{process.Loopback(c.base), "--client-addr", "--peer-addr of each node"}},
		{"two ports at one address", nil, c.serve("--http-addr", c.peer),
			[]string{"--peer-addr and --http-addr have the same address " + c.peer}},
		{"Sentinel at the clients' address", nil, c.serve("--sentinel-addr", process.Loopback(c.base)),
			[]string{"--client-addr and --sentinel-addr have the same address " + process.Loopback(c.base)}},
	}
}

// values returns cases with values that a flag does not accept.
func (c flagCases) values() []flagCase {
	return []flagCase{
		{"heartbeat of nothing", nil, c.serve("--heartbeat-timeout", "0"), []string{"--heartbeat-timeout", "at least"}},
		{"heartbeat without unit", nil, c.serve("--heartbeat-timeout", "500"), []string{"--heartbeat-timeout", "unit"}},
		{"stall timeout below nothing", nil, c.serve("--disk-stall-timeout", "-1s"),
			[]string{"--disk-stall-timeout", "-1s"}},
		{"leader wait below nothing", nil, c.serve("--leader-wait", "-1s"), []string{"--leader-wait", "-1s"}},
		{"resolve wait of nothing", nil, c.serve("--resolve-wait", "0s"), []string{"--resolve-wait"}},
		{"long lease", nil, c.serve("--leader-lease", "2s", "--heartbeat-timeout", "5s"),
			[]string{"--leader-lease is 2s, must be at most 1s"}},
		{"window of nothing", nil, c.serve("--window", "0"), []string{"--window"}},
		{"no clients", nil, c.serve("--max-clients", "0"), []string{"--max-clients"}},
		{"bulk too large", nil, c.serve("--max-bulk-bytes", "9999999999"), []string{"--max-bulk-bytes", "9999999999"}},
		{"nothing kept behind a snapshot", nil, c.serve("--trailing-bytes", "0"), []string{"--trailing-bytes"}},
		{"snapshot of nothing", nil, c.serve("--snapshot-bytes", "0"), []string{"--snapshot-bytes"}},
		{"unknown point", nil, c.serve("--test-kill-at", "nowhere:3"),
			[]string{"--test-kill-at", `"nowhere"`, "append-torn", "form-confirmed"}},
		{"zeroth time at a point", nil, c.serve("--test-kill-at", "append-synced:0"),
			[]string{"--test-kill-at", `"append-synced:0"`, `"0"`}},
		{"point in the environment", []string{"HOLDFAST_TEST_KILL_AT=somewhere"}, c.serve(),
			[]string{"--test-kill-at", `"somewhere"`}},
		{"size without meaning", nil, c.serve("--max-bulk-bytes", "many"),
			[]string{"--max-bulk-bytes", `"many"`, "64mb"}},
		{"neither protected nor not", nil, c.serve("--protected-mode", "perhaps"),
			[]string{"--protected-mode", "yes or no"}},
	}
}

// secretFiles returns cases with wrong secrets, and with addresses that need a
// secret or a password.
func (c flagCases) secretFiles() []flagCase {
	return []flagCase{
		{"peer address in the open", nil, c.serve("--peer-addr", "0.0.0.0:7379", "--advertise-peer-addr", c.peer),
			[]string{"--peer-addr 0.0.0.0:7379", "no cluster secret", "--cluster-secret-file",
				"head -c 32 /dev/urandom | base64", "--insecure"}},
		{"peers in the open", nil, c.serve("--peers", "n1="+c.peer+",n2=other:7379"),
			[]string{"--peers n2=other:7379", "no cluster secret"}},
		{"secret that is not there", nil, c.serve("--cluster-secret-file", filepath.Join(c.dir, "none")),
			[]string{"--cluster-secret-file", "none", "no such file", "head -c 32"}},
		{"secret of nothing", nil, c.serve("--cluster-secret-file", c.secret("empty", "\n", 0o600)),
			[]string{"--cluster-secret-file", "is empty", "head -c 32"}},
		{"short secret", nil, c.serve("--cluster-secret-file", c.secret("short", strings.Repeat("x", 31)+"\n", 0o600)),
			[]string{"has 31 bytes", "at least 32"}},
		{"secret for everybody", nil,
			c.serve("--cluster-secret-file", c.secret("open", strings.Repeat("x", 32), 0o604)),
			[]string{"open to every user", "0604", "chmod 600"}},
		{"secret that is a directory", nil, c.serve("--cluster-secret-file", c.t.TempDir()),
			[]string{"--cluster-secret-file", "not a regular file"}},
		{"secret to be created nowhere", nil, c.serve("--cluster-secret-create"),
			[]string{"--cluster-secret-create needs --cluster-secret-file"}},
		{"no password file", nil, c.serve("--requirepass-file", filepath.Join(c.dir, "none")),
			[]string{"--requirepass-file", "no such file"}},
		{"empty password file", nil, c.serve("--requirepass-file", c.secret("no-password", "\n", 0o600)),
			[]string{"--requirepass-file", "is empty"}},
		{"client port in the open", nil, c.serve("--client-addr", fmt.Sprint("0.0.0.0:", c.base)),
			[]string{"--client-addr", "which other hosts can reach", "--requirepass-file", "--acl-file",
				"--protected-mode=no"}},
		{"Sentinel port in the open", nil, c.serve("--sentinel-addr", fmt.Sprint("0.0.0.0:", c.base+1000),
			"--advertise-sentinel-addr", process.Loopback(c.base+1000)),
			[]string{"--sentinel-addr", "which other hosts can reach", "--protected-mode=no"}},
		{"Sentinel port in the open, with TLS only for clients", nil,
			append(c.serve("--sentinel-addr", fmt.Sprint("0.0.0.0:", c.base+1000), "--advertise-sentinel-addr",
				process.Loopback(c.base+1000), "--tls-ports", "clients"), c.tls()...),
			[]string{"--sentinel-addr", "which other hosts can reach", "sentinel in --tls-ports"}},
		{"client certificates at no port", nil, append(c.serve("--tls-ports", "peers"), c.tls()...),
			[]string{"--tls-auth-clients=yes has no effect", "--tls-ports"}},
		{"two passwords", nil, c.serve("--requirepass", "a", "--requirepass-file", c.secret("password", "b\n", 0o600)),
			[]string{"--requirepass and --requirepass-file are both set"}},
	}
}

// words returns cases with wrong commands, flags, environment variables and
// files.
func (c flagCases) words() []flagCase {
	return []flagCase{
		{"member added without address", nil, []string{"member", "add", "n4"},
			[]string{"give the id of the node and its peer address"}},
		{"transfer to an empty id", nil, []string{"member", "transfer", ""}, []string{"the id of the node is empty"}},
		{"unknown flag", nil, c.serve("--data-dri", "x"),
			[]string{"unknown flag --data-dri", `did you mean "--data-dir"?`}},
		{"stray argument", nil, c.serve("now"), []string{`"now"`}},
		{"unknown subcommand", nil, []string{"srve"}, []string{`unknown command "srve"`}},
		{"number in the environment", []string{"HOLDFAST_MAX_CLIENTS=many"}, c.serve(),
			[]string{"HOLDFAST_MAX_CLIENTS", `"many"`}},
		{"unknown variable", []string{"HOLDFAST_DATADIR=x"}, c.serve(),
			[]string{"HOLDFAST_DATADIR", "did you mean HOLDFAST_DATA_DIR?"}},
		{"no configuration file", nil, c.serve("--config", filepath.Join(c.dir, "none.yml")),
			[]string{"--config", "no such file"}},
		{"duration in the environment", []string{"HOLDFAST_LEADER_WAIT=soon"}, c.serve(),
			[]string{"HOLDFAST_LEADER_WAIT", `"soon"`}},
		{"word in the environment", []string{"HOLDFAST_LOG_LEVEL=loud"}, c.serve(), []string{"loud"}},
		{"data directory is a file", nil, c.serve("--data-dir", binary), []string{"data directory", binary}},
		{"dev without nodes", nil, []string{"dev", "--nodes", "0"}, []string{"--nodes 0"}},
		{"dev beyond the ports", nil, []string{"dev", "--base-port", "64000"}, []string{"--base-port 64000"}},
		{"dev with stray argument", nil, []string{"dev", "up"}, []string{`"up"`, "--"}},
		{"unknown subcommand of member", nil, []string{"member", "delete", "n2"}, []string{`unknown command "delete"`}},
		{"member without name", nil, []string{"member", "remove"}, []string{"1 arg"}},
	}
}

// wantLine checks that at least one line of a text contains all parts, in
// order.
func wantLine(t *testing.T, text string, parts ...string) {
	t.Helper()
lines:
	for line := range strings.Lines(text) {
		for _, p := range parts {
			_, after, ok := strings.Cut(line, p)
			if !ok {
				continue lines
			}
			line = after
		}
		return
	}
	t.Errorf("no line with %q in\n%s", parts, text)
}

func TestServe_AddressInUse(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1})
	n := c.Nodes[0]
	for _, tt := range []struct{ what, addr, remedy string }{
		{"cannot bind client address", n.Clients, "choose another --client-addr"},
		{"cannot bind HTTP address", n.HTTP, "choose another --http-addr"},
		{"cannot bind peer address", n.Peers, ""},
	} {
		ln, err := net.Listen("tcp", tt.addr)
		if err != nil {
			t.Fatal(err)
		}
		wantLine(t, refusesToStart(t, n), "holdfast: ", tt.what, tt.addr, "address already in use", tt.remedy)
		// The node must not have formed a cluster. A cluster of one node would
		// have formed at once.
		identity, err := os.ReadFile(filepath.Join(n.Dir, "node.json"))
		if tt.remedy != "" && !os.IsNotExist(err) {
			t.Errorf("%s: the data directory was made (%v)", tt.what, err)
		}
		if err == nil && !strings.Contains(string(identity), `"cluster": ""`) {
			t.Errorf("%s: the node belongs to a cluster:\n%s", tt.what, identity)
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.start() // the failed starts have done no harm
	want(t, n, "OK", "SET", "k", "v")
}

// TestServe_Environment configures a node with environment variables, and
// checks that a flag takes precedence over its variable.
func TestServe_Environment(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1,
		Env: []string{"HOLDFAST_LOG_FORMAT=json", "HOLDFAST_REQUIREPASS=secret", "HOLDFAST_LOG_LEVEL=debug"}})
	n := c.Nodes[0]
	for i := 1; i < len(n.Args); i += 2 {
		name := "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(n.Args[i], "--"), "-", "_"))
		n.Env = append(n.Env, name+"="+n.Args[i+1])
	}
	n.Args = []string{"serve", "--log-level", "info"}
	start(t, n)
	conn, err := eventually(t, n)
	if err != nil {
		t.Fatal(err)
	}
	if got := show(conn, "SET", "k", "v"); got != "NOAUTH Authentication required." {
		t.Errorf("without the password of HOLDFAST_REQUIREPASS: %q", got)
	}
	for _, cmd := range [][]string{{"AUTH", "secret"}, {"SET", "k", "v"}} {
		if got := show(conn, cmd...); got != "OK" {
			t.Errorf("%v: %q", cmd, got)
		}
	}
	out := n.Output()
	if !strings.HasPrefix(out, "{") {
		t.Errorf("HOLDFAST_LOG_FORMAT=json has no effect:\n%s", out)
	}
	if strings.Contains(out, `"debug"`) {
		t.Errorf("HOLDFAST_LOG_LEVEL=debug takes precedence over --log-level info:\n%s", out)
	}

	// The operator's commands also read the environment.
	if o := invoke(t, []string{"HOLDFAST_ADDR=" + n.Clients, "HOLDFAST_PASSWORD=secret"}, "status"); o.code != 0 {
		t.Errorf("status with the settings in the environment: %+v", o)
	}
	if o := invoke(t, nil, "status", "--addr", n.Clients, "--password", "wrong"); o.code != 3 ||
		!strings.Contains(o.errOut, "WRONGPASS") {
		t.Errorf("status with a wrong password: %+v", o)
	}
	if o := invoke(t, nil, "status", "--addr", n.Clients); o.code != 3 || !strings.Contains(o.errOut, "NOAUTH") {
		t.Errorf("status without a password: %+v", o)
	}
}

// eventually connects to a node that has just been started, as soon as the node
// listens.
func eventually(t *testing.T, n *process.Node) (conn *respwire.Conn, err error) {
	t.Helper()
	pollErr := process.Poll(testutil.Within(t, testutil.StartLimit), n.ID+" to listen", func() bool {
		conn, err = respwire.Connect(n.Clients, replyLimit)
		return err == nil || !n.Running()
	})
	if pollErr != nil {
		return nil, pollErr
	}
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// member is a node in the output of status --json.
type member struct {
	ID         string  `json:"id"`
	Role       string  `json:"role"`
	Voter      bool    `json:"voter"`
	Leader     string  `json:"leader"`
	Term       uint64  `json:"term"`
	Commit     uint64  `json:"commit_index"`
	Applied    uint64  `json:"applied_index"`
	Lag        uint64  `json:"lag"`
	ClientAddr string  `json:"client_addr"`
	PeerAddr   string  `json:"peer_addr"`
	HTTPAddr   string  `json:"http_addr"`
	Version    string  `json:"version"`
	Uptime     float64 `json:"uptime_seconds"`
	PID        int     `json:"pid"`
	Reachable  bool    `json:"reachable"`
}

// status queries a node with the command that operators use.
func status(t *testing.T, n *process.Node) (members map[string]member, code int) {
	t.Helper()
	o := invoke(t, nil, "status", "--json", "--addr", n.Clients)
	var list []member
	if err := json.Unmarshal([]byte(o.out), &list); err != nil {
		t.Fatalf("status --json: %v in %+v", err, o)
	}
	members = make(map[string]member)
	for _, m := range list {
		members[m.ID] = m
	}
	return members, o.code
}

func TestStatus(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	want(t, leader, "OK", "SET", "k", "v")
	c.settled()
	for _, asked := range c.Nodes {
		members, code := status(t, asked)
		if code != 0 || len(members) != 3 {
			t.Fatalf("status of %s: code %d, %d members", asked.ID, code, len(members))
		}
		for _, n := range c.Nodes {
			m, role := members[n.ID], "follower"
			if n == leader {
				role = "leader"
			}
			if m.Role != role || !m.Voter || !m.Reachable || m.Leader != leader.ID || m.PID != n.PID() ||
				m.ClientAddr != n.Clients || m.PeerAddr != n.Peers || m.HTTPAddr != n.HTTP || m.Term == 0 ||
				m.Commit == 0 || m.Uptime <= 0 || m.Version == "" {
				t.Errorf("%s of %s: %+v", n.ID, asked.ID, m)
			}
		}
	}
	o := invoke(t, nil, "status", "--addr", leader.Clients)
	lines := strings.Split(strings.TrimSpace(o.out), "\n")
	if o.code != 0 || len(lines) != 8 || !strings.HasPrefix(lines[7], "data set: ") ||
		lines[0] != "Healthy: tolerates 1 more failure" {
		t.Fatalf("status: %+v", o)
	}
	for _, word := range []string{"NODE", "ROLE", "TERM", "COMMIT", "APPLIED", "LAG", "FEATURES", "CLIENTS",
		"PEERS", "HTTP", "VERSION", "UPTIME"} {
		wantContains(t, "the heading", lines[2], word)
	}
	for _, n := range c.Nodes {
		wantLine(t, o.out, n.ID, n.Clients, n.Peers, n.HTTP)
	}

	// One node is down.
	dead := c.others(leader)[0]
	kill(t, dead)
	members, code := status(t, leader)
	if m := members[dead.ID]; code != 5 || m.Reachable || m.Role != "unreachable" || m.PeerAddr != dead.Peers {
		t.Errorf("status with %s down: code %d, %+v", dead.ID, code, m)
	}
	if o := invoke(t, nil, "status", "--addr", dead.Clients); o.code != 3 {
		t.Errorf("status of a dead node: %+v", o)
	} else {
		wantLine(t, o.errOut, "holdfast: no status from "+dead.Clients, "refused")
	}

	o = invoke(t, nil, "status", leader.Clients)
	wantLine(t, o.out, "Degraded: "+dead.ID+" is unreachable: connection refused; tolerates no more failures")
	o = invoke(t, nil, "member", "list", "--addr", leader.Clients)
	wantLine(t, o.out, dead.ID, "unreachable", "yes", "no", dead.Peers, " ago)")
	wantLine(t, o.out, leader.ID, "leader", "yes", "yes", leader.Peers)
	o = invoke(t, nil, "status", leader.HTTP)
	wantLine(t, o.errOut, leader.HTTP+" is the HTTP port of "+leader.ID+": use its client port, "+leader.Clients)
	o = invoke(t, nil, "status", leader.Peers)
	wantLine(t, o.errOut, leader.Peers, "this is the peer port of "+leader.ID, "use its client port, "+leader.Clients)

	// A second node is down: there is no leader.
	kill(t, leader)
	last := c.Running()[0]
	if err := process.Poll(testutil.Within(t, 10*time.Second), "the loss of the leader to be seen", func() bool {
		s, err := last.State()
		return err == nil && !s.Ready
	}); err != nil {
		t.Fatal(err)
	}
	members, code = status(t, last)
	if code != 4 || members[last.ID].Role == "leader" || !members[last.ID].Reachable {
		t.Errorf("status without a majority: code %d, %+v", code, members)
	}
	o = invoke(t, nil, "status", "--addr", last.Clients)
	if o.code != 4 {
		t.Errorf("status without a majority: %+v", o)
	}
	wantLine(t, o.out, "No leader in reach: ", "majority", "1 of 3 voters are reachable, 2 are needed")
	wantLine(t, o.out, last.ID, last.Clients)
}

// TestDataDir_OneProcessAtATime checks that a second process does not touch the
// data directory of the first.
func TestDataDir_OneProcessAtATime(t *testing.T) {
	c := startCluster(t)
	n, o := c.Nodes[0], c.Nodes[1]
	want(t, n, "OK", "SET", "k", "v")
	// The second process has the same command line, but other ports, so
	// that it does not fail because of the ports.
	base, err := process.FreePorts(1, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := refusesToStart(t, again(n, n.ID), "--client-addr", process.Loopback(base), "--peer-addr",
		process.Loopback(base+1), "--http-addr", process.Loopback(base+2))
	wantLine(t, out, "holdfast: open data directory: ", "in use by another process")
	want(t, n, "v", "GET", "k")

	// A data directory belongs to the node that it was made for.
	stopNode(t, o)
	out = refusesToStart(t, again(o, "n3"), "--node-id", "n3", "--peers", "n3="+o.Peers)
	wantLine(t, out, "holdfast: open data directory: ", "belongs to another node")
	out = refusesToStart(t, o, "--log-store", "boltdb")
	wantLine(t, out, "holdfast: open data directory: ", "another log store")
	start(t, o)
	c.settled()
	want(t, o, "v", "GET", "k")
}

// again returns another process.Node with the flags of n and the given id. Its
// process is not started yet.
func again(n *process.Node, id string) *process.Node {
	o := n.Another()
	o.ID, o.Clients, o.Peers, o.HTTP, o.Dir, o.LogFile = id, n.Clients, n.Peers, n.HTTP, n.Dir, n.LogFile+".again."+id
	return o
}

// TestMember_WipedDirectory removes the data of a member. The cluster does not
// admit the node again under its name. The node prints the steps that the
// operator must take, and these steps work.
func TestMember_WipedDirectory(t *testing.T) {
	c := startCluster(t)
	for i := range 100 {
		want(t, c.Nodes[i%3], "OK", "SET", fmt.Sprintf("k:%d", i), "v")
	}
	leader := c.settled()
	n := c.others(leader)[0]
	l := newLoad(t, "wiped", each(4, c.others(n))...)
	stopNode(t, n)
	if err := os.RemoveAll(n.Dir); err != nil {
		t.Fatal(err)
	}
	out := refusesToStart(t, n)
	wantLine(t, out, "holdfast: ", "data directory is empty, but the cluster knows this node as a member", "Remedy: ",
		"holdfast member remove "+n.ID, "holdfast member add "+n.ID+" "+n.Peers)
	l.progress(20)

	c.replace(n, leader)
	if got := do(t, n, "DBSIZE"); got == "(integer) 0" {
		t.Errorf("DBSIZE of the new member: %s", got)
	}
	l.progress(20)
	l.check(n)
	// The new node counts as a voter: with another node down, the remaining
	// two are a majority.
	kill(t, c.others(n)[0])
	c.leader()
	want(t, n, "v", "GET", "k:7")
	want(t, n, "OK", "SET", "after", "v")
}

// replace follows the instructions of the error texts for a node whose data
// cannot be used. It waits until the node votes again.
func (c *cluster) replace(n, live *process.Node) {
	c.t.Helper()
	if _, err := os.Stat(n.Dir); err == nil {
		if err := os.Rename(n.Dir, n.Dir+".away."+time.Now().Format("150405.000000000")); err != nil {
			c.t.Fatal(err)
		}
	}
	if o := invoke(c.t, nil, "member", "remove", n.ID, "--addr", live.Clients); o.code != 0 {
		c.t.Fatalf("member remove: %+v", o)
	}
	if members, _ := status(c.t, live); len(members) != 2 {
		c.t.Errorf("members after member remove: %v", members)
	}
	if o := invoke(c.t, nil, "member", "add", n.ID, n.Peers, "--addr", live.Clients); o.code != 0 {
		c.t.Fatalf("member add: %+v", o)
	}
	before := c.promotions(n)
	start(c.t, n)
	if err := process.Poll(testutil.Within(c.t, testutil.StartLimit), n.ID+" to vote again",
		func() bool { return c.promotions(n) > before }); err != nil {
		c.t.Fatal(err)
	}
	c.settled()
	if members, _ := status(c.t, live); !members[n.ID].Voter {
		c.t.Errorf("the status of %s does not show a voter: %+v", n.ID, members[n.ID])
	}
}

// promotions counts how often the nodes have logged that n became a voter. The
// test cannot use the status of a new member instead: while the member replays
// the log, its status shows earlier members of the cluster, so it may show that
// the member votes, as it did before its removal.
func (c *cluster) promotions(n *process.Node) int {
	c.t.Helper()
	count := 0
	for _, o := range c.Nodes {
		text, err := os.ReadFile(o.LogFile)
		if err != nil {
			c.t.Fatal(err)
		}
		count += strings.Count(string(text), "member is a voter now: node="+n.ID+"\n")
	}
	return count
}

func TestMember_Errors(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	for _, n := range c.Nodes {
		o := invoke(t, nil, "member", "remove", "n9", "--addr", n.Clients)
		if o.code != 1 {
			t.Errorf("removal of an unknown node: %+v", o)
		}
		wantLine(t, o.errOut, "holdfast: ", "n9 is not a member")
		o = invoke(t, nil, "member", "transfer", leader.ID, "--addr", n.Clients)
		if o.code != 0 || o.out != leader.ID+" leads already\n" {
			t.Errorf("transfer to the leader: %+v", o)
		}
		o = invoke(t, nil, "member", "transfer", "n9", "--addr", n.Clients)
		if o.code != 1 {
			t.Errorf("transfer to an unknown node: %+v", o)
		}
		wantLine(t, o.errOut, "holdfast: ", "n9 is not a member")
	}
	o := invoke(t, nil, "member", "remove", "n1", "--addr", process.Loopback(1))
	if o.code != 1 {
		t.Errorf("removal through an address without a node: %+v", o)
	}
	wantLine(t, o.errOut, "holdfast: ", "refused")

	// Leadership moves to the requested node, whichever node receives the
	// command.
	for _, to := range c.Nodes {
		via := c.others(to)[0]
		if o := invoke(t, nil, "member", "transfer", to.ID, "--addr", via.Clients); o.code != 0 {
			t.Errorf("transfer to %s through %s: %+v", to.ID, via.ID, o)
		}
		if err := process.Poll(testutil.Within(t, 10*time.Second), to.ID+" to lead",
			func() bool { return c.leader() == to }); err != nil {
			t.Fatal(err)
		}
	}
	c.settled()

	// With a node dead, the cluster starts neither a transfer to the dead
	// node nor the removal of a running node. The dead node can be removed.
	// After that the leader can be removed; it transfers its leadership
	// first.
	leader = c.leader()
	dead, other := c.others(leader)[0], c.others(leader)[1]
	kill(t, dead)
	for range 2 {
		o = invoke(t, nil, "member", "transfer", dead.ID, "--addr", other.Clients)
		if o.code != 1 {
			t.Errorf("transfer to a dead node: %+v", o)
		}
		wantLine(t, o.errOut, "holdfast: ", dead.ID+" does not answer")
	}
	o = invoke(t, nil, "member", "remove", other.ID, "--addr", other.Clients)
	if o.code != 1 {
		t.Errorf("removal that would end the majority: %+v", o)
	}
	wantLine(t, o.errOut, "holdfast: ", "removing "+other.ID+" would leave 2 voters, 1 of them reachable")
	want(t, other, "OK", "SET", "k", "v")
	if o = invoke(t, nil, "member", "remove", dead.ID, "--addr", other.Clients); o.code != 0 ||
		o.out != dead.ID+" is removed\n" {
		t.Errorf("removal of a dead node: %+v", o)
	}
	o = invoke(t, nil, "member", "remove", leader.ID, "--addr", other.Clients)
	if want := fmt.Sprintf("%s leads now, %s is removed\n", other.ID, leader.ID); o.code != 0 || o.out != want {
		t.Errorf("removal of the leader: %+v, want %q", o, want)
	}
	want(t, other, "OK", "SET", "k", "w")
}
