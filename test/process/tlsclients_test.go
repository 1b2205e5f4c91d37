package process_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/certs"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// tlsCluster is a cluster in which every port accepts only TLS, and clients
// need a certificate.
type tlsCluster struct {
	*cluster
	*authority
	flags []string // arguments of commands that connect to the cluster
}

func startTLSCluster(t *testing.T) *tlsCluster {
	t.Helper()
	a := newAuthority(t)
	cert, key := a.issue("node", 10)
	a.issue("client", 20)
	c := newCluster(t, process.Config{Nodes: 3, Sentinel: true, Args: []string{
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.path("ca.pem"),
		"--tls-auth-clients", "yes", "--tls-ports", "clients,sentinel,peers,http",
	}})
	for _, n := range c.Nodes {
		start(t, n)
	}
	tc := &tlsCluster{c, a, []string{"--tls-ca-cert-file", a.path("ca.pem"), "--tls-cert-file", a.path("client.pem"),
		"--tls-key-file", a.path("client.key")}}
	tc.healthy(t)
	return tc
}

// run runs the program with the given arguments. The command must succeed.
func (c *tlsCluster) run(t *testing.T, args ...string) string {
	t.Helper()
	o := invoke(t, nil, append(args, c.flags...)...)
	if o.code != 0 {
		t.Errorf("holdfast %s: %+v", strings.Join(args, " "), o)
	}
	return o.out
}

func (c *tlsCluster) healthy(t *testing.T) {
	t.Helper()
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "a healthy cluster", func() bool {
		return invoke(t, nil, append([]string{"status", c.Nodes[0].Clients}, c.flags...)...).code == 0
	}); err != nil {
		t.Fatal(err)
	}
}

// config returns the configuration of a client with a certificate.
func (c *tlsCluster) config(t *testing.T) *tls.Config {
	t.Helper()
	pool, err := certs.Authorities(c.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(c.path("client.pem"), c.path("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1"}
}

// serial returns the serial number of the certificate at an address, or the
// text of an error.
func (c *tlsCluster) serial(t *testing.T, addr string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, c.config(t))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	return fmt.Sprint(conn.ConnectionState().PeerCertificates[0].SerialNumber)
}

// python starts testdata/tls.py. The returned function lets the script write
// keys.
func (c *tlsCluster) python(t *testing.T, node *process.Node) (write func(word string)) {
	t.Helper()
	const python = "/usr/bin/python3"
	testutil.Need(t, testutil.RequireClients, "python3-redis",
		exec.Command(python, "-c", "import redis.asyncio.sentinel").Run())
	args := []string{filepath.Join("testdata", "tls.py"), c.path("ca.pem"), c.path("client.pem"), c.path("client.key"),
		node.Clients}
	for _, n := range c.Nodes {
		args = append(args, n.Sentinel)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, python, args...)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		_ = in.Close() // ends the script
		if err := cmd.Wait(); err != nil {
			t.Errorf("redis-py: %v\n%s", err, errOut.String())
		}
	})
	lines := bufio.NewReader(out)
	return func(word string) {
		t.Helper()
		if _, err := io.WriteString(in, word+"\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != "ok\n" {
			t.Errorf("redis-py: %q, %v\n%s", line, err, errOut.String())
		}
	}
}

// TestTLS_Clients lets clients write over TLS before and after the leader is
// killed: redis-py with and without asyncio, and go-redis. Both libraries also
// find the leader through Sentinel.
func TestTLS_Clients(t *testing.T) {
	c := startTLSCluster(t)
	ctx := testutil.Within(t, 2*time.Minute)
	var sentinels []string
	for _, n := range c.Nodes {
		sentinels = append(sentinels, n.Sentinel)
	}
	failover := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "mymaster", SentinelAddrs: sentinels, TLSConfig: c.config(t)})
	defer failover.Close()
	var leader *process.Node
	for _, n := range c.Nodes {
		if strings.Contains(c.client(n, "client").Info(ctx, "replication").Val(), "role:master") {
			leader = n
		}
	}
	if leader == nil {
		t.Fatal("no node says that it leads")
	}
	other := c.others(leader)[0]
	write := c.python(t, other)
	write("before")
	if err := failover.Set(ctx, "go", "before", 0).Err(); err != nil {
		t.Fatalf("go-redis by Sentinel: %v", err)
	}
	kill(t, leader)
	write("after")
	if err := process.Poll(ctx, "go-redis at the new leader", func() bool {
		return failover.Set(ctx, "go", "after", 0).Err() == nil
	}); err != nil {
		t.Error(err)
	}
	if got, err := c.client(other, "client").Get(ctx, "go").Result(); err != nil || got != "after" {
		t.Errorf("go-redis by Sentinel wrote %q, %v", got, err)
	}
}

// TestTLS_Program runs commands of the program over TLS. It also checks that
// every port accepts TLS 1.2 and refuses TLS 1.1, and that SIGHUP and a change
// of the files replace the certificates of every port.
func TestTLS_Program(t *testing.T) {
	c := startTLSCluster(t)
	n := c.Nodes[1]
	lock := append([]string{"lock", "job", "--addr", n.Clients}, c.flags...)
	if o := invoke(t, nil, append(lock, "--", "echo", "held")...); o.code != 0 || o.out != "held\n" {
		t.Errorf("holdfast lock: %+v", o)
	}
	c.run(t, "locks", "--addr", n.Clients)
	file := filepath.Join(t.TempDir(), "b.hfb")
	c.run(t, "backup", "--addr", n.Clients, "-o", file)
	c.run(t, "restore", file, "--addr", n.Clients, "--replace", "--quarantine", "0")
	o := invoke(t, nil, "health", "--url", "https://"+n.HTTP+"/readyz", "--tls-ca-cert-file", c.path("ca.pem"))
	if o.code != 0 {
		t.Errorf("holdfast health: %+v", o)
	}
	wantContains(t, "member list", c.run(t, "member", "list", "--addr", n.Clients), "leader")

	for addr, says := range map[string]string{
		n.Sentinel: "is not the client port of a node of Holdfast: is it a Sentinel port",
		n.HTTP:     "is an HTTP port: use the client port",
	} {
		o := invoke(t, nil, append([]string{"status", addr}, c.flags...)...)
		wantContains(t, "status of another port", o.errOut, addr, says)
	}
	for addr, says := range map[string]string{
		n.Clients: "(set --tls-cert-file and --tls-key-file; or is the address a peer port?)",
		n.Peers:   "(set --tls-cert-file and --tls-key-file; or is the address a peer port?)",
	} {
		o := invoke(t, nil, "status", addr, "--tls-ca-cert-file", c.path("ca.pem"))
		wantContains(t, "status without a certificate", o.errOut, addr, says)
	}
	wantContains(t, "status without the authority", invoke(t, nil, "status", n.Clients, "--tls").errOut,
		"(set --tls-ca-cert-file)")

	ports := map[string]string{"client": n.Clients, "Sentinel": n.Sentinel, "peer": n.Peers, "HTTP": n.HTTP}
	for name, addr := range ports {
		old := c.config(t)
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		if conn, err := tls.Dial("tcp", addr, old); err == nil {
			conn.Close()
			t.Errorf("the %s port accepts TLS 1.1", name)
		} else if !strings.Contains(err.Error(), "protocol version") {
			t.Errorf("the %s port with TLS 1.1: %v", name, err)
		}
		oldest := c.config(t)
		oldest.MaxVersion = tls.VersionTLS12
		conn, err := tls.Dial("tcp", addr, oldest)
		if err != nil {
			t.Fatalf("the %s port with TLS 1.2: %v", name, err)
		}
		conn.Close()
	}
	renewed := func(serial string) {
		t.Helper()
		for name, addr := range ports {
			if err := process.Poll(testutil.Within(t, replyLimit), "certificate "+serial+" at the "+name+" port",
				func() bool { return c.serial(t, addr) == serial }); err != nil {
				t.Errorf("%v: it is %s", err, c.serial(t, addr))
			}
		}
	}
	c.issue("node", 11)
	send(t, n, syscall.SIGHUP)
	waitOutput(t, n, `SIGHUP: reloaded; other flags and files are read when the node starts: parts="certificates,`)
	renewed("11")
	// A wrong file changes nothing, and the node reports the error.
	c.write("node.pem", "NONSENSE", nil)
	send(t, n, syscall.SIGHUP)
	waitOutput(t, n, `SIGHUP: the node keeps its previous settings: part=certificates error="certificate `)
	renewed("11")
	c.issue("node", 12)
	renewed("12")
	waitOutput(t, n, `TLS certificate reloaded, because a file has changed: file=`)
	c.healthy(t)
}
