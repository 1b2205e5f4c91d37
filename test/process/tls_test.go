package process_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/certs"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes an authority whose certificate is in the file ca.pem.
func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, der := a.sign(template, template, nil)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = cert, key
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

// sign returns a new key and its certificate. It signs the certificate with
// signer or, if signer is nil, with the new key.
func (a *authority) sign(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, der
}

// write replaces a file in one step, as programs that renew certificates do.
func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes NAME.pem and NAME.key: a certificate for 127.0.0.1, for servers
// and clients.
func (a *authority) issue(name string, serial int64) (cert, key string) {
	a.t.Helper()
	private, der := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, a.key)
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "EC PRIVATE KEY", secret)
	a.write(name+".pem", "CERTIFICATE", der)
	return a.path(name + ".pem"), a.path(name + ".key")
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// client returns a client of a node. name is the name of the client's
// certificate, or "" for a client without one.
func (a *authority) client(n *process.Node, name string) *redis.Client {
	a.t.Helper()
	pool, err := certs.Authorities(a.path("ca.pem"))
	if err != nil {
		a.t.Fatal(err)
	}
	cfg := &tls.Config{RootCAs: pool}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.path(name+".pem"), a.path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	c := process.NewClient(n.Clients, "", cfg)
	a.t.Cleanup(func() { c.Close() })
	return c
}

// TestTLS runs a cluster in which the client and peer ports accept only TLS,
// kills its leader, and renews a certificate of a running node.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue("node", 10)
	a.issue("client", 20)
	c := newCluster(t, process.Config{Nodes: 3, Args: []string{
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.path("ca.pem"),
		"--tls-auth-clients", "yes", "--tls-ports", "clients,peers",
	}})
	for _, n := range c.Nodes {
		start(t, n)
	}
	withTLS := []string{"--tls-ca-cert-file", a.path("ca.pem"), "--tls-cert-file", a.path("client.pem"),
		"--tls-key-file", a.path("client.key")}
	healthy := func() {
		t.Helper()
		if err := process.Poll(testutil.Within(t, testutil.StartLimit), "a healthy cluster", func() bool {
			return invoke(t, nil, append([]string{"status", c.Nodes[0].Clients}, withTLS...)...).code == 0
		}); err != nil {
			t.Fatal(err)
		}
	}
	healthy()
	var leader *process.Node
	o := invoke(t, nil, append([]string{"member", "list", "--addr", c.Nodes[0].Clients}, withTLS...)...)
	for _, n := range c.Nodes {
		if regexp.MustCompile(`(?m)^` + n.ID + ` +leader`).MatchString(o.out) {
			leader = n
		}
	}
	if leader == nil {
		t.Fatalf("no leader in %+v", o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testutil.StartLimit)
	defer cancel()
	for _, n := range c.Nodes {
		if err := a.client(n, "client").Set(ctx, "k-"+n.ID, "v", 0).Err(); err != nil {
			t.Fatalf("SET through %s: %v", n.ID, err)
		}
	}
	// A client needs TLS and a certificate.
	if err := a.client(leader, "").Get(ctx, "k-n1").Err(); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client without a certificate: %v", err)
	}
	if o := invoke(t, nil, "status", leader.Clients); o.code != 3 || !strings.Contains(o.errOut, "port with TLS") {
		t.Errorf("status without TLS: %+v", o)
	}
	if path, err := exec.LookPath("redis-cli"); err == nil {
		host, port, _ := net.SplitHostPort(leader.Clients)
		out, err := exec.CommandContext(ctx, path, "-h", host, "-p", port, "--tls", "--cacert", a.path("ca.pem"),
			"--cert", a.path("client.pem"), "--key", a.path("client.key"), "GET", "k-n2").CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "v" {
			t.Errorf("redis-cli --tls: %s, %v", out, err)
		}
	}
	// A process without a certificate of the authority cannot use a peer port.
	raw, err := tls.Dial("tcp", leader.Peers, &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		if err = raw.SetDeadline(time.Now().Add(replyLimit)); err == nil {
			_, err = raw.Read(make([]byte, 1))
		}
		raw.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("peer port without a certificate: %v", err)
	}

	// The test kills the leader. The connections between the other nodes must
	// survive.
	kill(t, leader)
	other := c.others(leader)[0]
	if err := a.client(other, "client").Set(ctx, "k", "after", 0).Err(); err != nil {
		t.Errorf("SET after the leader's death: %v", err)
	}

	// The test renews the certificate. New connections must get the new
	// certificate.
	a.issue("node", 11)
	serial := func() string {
		pair, err := tls.LoadX509KeyPair(a.path("client.pem"), a.path("client.key"))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", other.Clients,
			&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return fmt.Sprint(conn.ConnectionState().PeerCertificates[0].SerialNumber)
	}
	if err := process.Poll(testutil.Within(t, replyLimit), "the renewed certificate",
		func() bool { return serial() == "11" }); err != nil {
		t.Errorf("%v: the serial number is %s", err, serial())
	}
	start(t, leader)
	healthy()
	checkToolsWithTLS(t, leader, withTLS)
}

// checkToolsWithTLS runs the commands "debug bundle" and "top" on a cluster whose
// HTTP ports have no TLS.
func checkToolsWithTLS(t *testing.T, n *process.Node, withTLS []string) {
	t.Helper()
	dir := t.TempDir()
	token := writeSecret(t, filepath.Join(dir, "token"), "a-token-that-the-nodes-do-not-need")
	for _, more := range [][]string{nil, {"--http-token-file", token}, {"--http-token-file", token, "--http-no-tls"}} {
		archive := filepath.Join(dir, fmt.Sprint(len(more))+".tar.gz")
		args := append([]string{"debug", "bundle", n.Clients, "-o", archive}, withTLS...)
		o := invoke(t, nil, append(args, more...)...)
		if o.code != 0 || !strings.Contains(o.out, "3 of 3 nodes answered") {
			t.Errorf("bundle: %+v", o)
		}
		if files := readBundle(t, archive); !strings.Contains(files["nodes/n3/metrics.txt"], "holdfast_ready") {
			t.Errorf("%v: metrics of n3: %.100q", more, files["nodes/n3/metrics.txt"])
		}
	}
	top := runOnTerminal(t, nil, append([]string{"top", n.Clients}, withTLS...)...)
	top.shows("Healthy: tolerates 1 more failure")
}

// TestTLS_WrongFlags checks the messages about flags that do not fit together.
func TestTLS_WrongFlags(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert, key := a.issue("node", 1)
	_, otherKey := a.issue("other", 2)
	base, err := process.FreePorts(1, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer := process.Loopback(base + 1)
	dir := filepath.Join(t.TempDir(), "data")
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--tls-cert-file", cert}, "--tls-cert-file and --tls-key-file must be set together"},
		{[]string{"--tls-cert-file", cert, "--tls-key-file", key}, "TLS between nodes needs --tls-ca-cert-file"},
		{[]string{"--tls-auth-clients", "yes"}, "need --tls-cert-file"},
		{[]string{"--tls-auth-clients", "perhaps"}, `--tls-auth-clients is "perhaps"`},
		{[]string{"--tls-ports", "client"}, `--tls-ports contains "client"`},
		{[]string{"--tls-peer-cert-file", cert, "--tls-peer-key-file", key},
			"--tls-peer-cert-file needs --tls-cert-file"},
		{[]string{"--tls-cert-file", cert, "--tls-key-file", otherKey, "--tls-ports", "clients"},
			"private key does not match"},
		{[]string{"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", key},
			"contains no certificate"},
		{[]string{"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ports", "clients", "--tls-auth-clients",
			"yes"},
			"--tls-auth-clients=yes needs --tls-ca-cert-file"},
	} {
		o := invoke(t, nil, append([]string{"serve", "--node-id", "n1", "--data-dir", dir, "--client-addr",
			process.Loopback(base), "--peer-addr", peer, "--http-addr", process.Loopback(base + 2),
			"--peers", "n1=" + peer}, tt.args...)...)
		if o.code != 1 {
			t.Errorf("%v: exit code %d", tt.args, o.code)
		}
		wantLine(t, o.errOut, "holdfast: ", tt.says)
	}
}

// TestTLS_AtOneNodeOnly checks that nodes report the problem if only one of
// them uses TLS.
func TestTLS_AtOneNodeOnly(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue("node", 10)
	c := newCluster(t, process.Config{Nodes: 2})
	if err := c.Nodes[0].Start("--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.path("ca.pem"),
		"--tls-ports", "peers"); err != nil {
		t.Fatal(err)
	}
	start(t, c.Nodes[1])
	waitOutput(t, c.Nodes[0], "does its peer port use TLS? This node does")
	waitOutput(t, c.Nodes[1], "does its peer port use TLS? This node does not")
}
