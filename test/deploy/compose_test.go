package deploy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// composeProject is a running deploy/compose.yml, with a separate project name
// and separate ports.
type composeProject struct {
	t       *testing.T
	command []string // docker-compose, or docker compose
	name    string
	addrs   map[string]string // client addresses by service
	files   []string          // names of files in deploy/; the first is compose.yml
}

// TestCompose kills the leader's container and checks that the lock survives.
func TestCompose(t *testing.T) {
	if os.Getenv("HOLDFAST_COMPOSE_TEST") == "" {
		t.Skip("HOLDFAST_COMPOSE_TEST is not set: make compose-test")
	}
	p := newComposeProject(t)
	p.compose("up", "-d", "--no-build")
	p.waitHealthy("n1", "n2", "n3")

	leader := p.leader(p.addrs["n1"])
	var others []string
	for _, s := range []string{"n1", "n2", "n3"} {
		if s != leader {
			others = append(others, s)
		}
	}
	t.Logf("%s leads", leader)

	taken := time.Now()
	if got, want := p.ask(others[0], "SET", "lock:a", "me", "NX", "EX", "600"), "OK"; got != want {
		t.Fatalf("SET NX through %s is %q, want %q", others[0], got, want)
	}

	victim := p.container(leader)
	killed := time.Now()
	p.docker("kill", "-s", "KILL", victim)
	if got := p.ask(others[1], "SET", "lock:a", "you", "NX", "EX", "600"); got != "(nil)" {
		t.Fatalf("SET NX through %s after the kill is %q, want (nil): the lock is taken", others[1], got)
	}
	t.Logf("%s replied %v after the kill began", others[1], time.Since(killed).Round(time.Millisecond))
	p.checkLock(others[1], taken)
	for i := range 200 {
		if got, want := p.ask(others[i%2], "SET", "missed:"+strconv.Itoa(i), "x", "EX", "900"), "OK"; got != want {
			t.Fatalf("SET %d is %q, want %q", i, got, want)
		}
	}

	p.docker("start", victim)
	p.waitHealthy(leader)
	p.waitCaughtUp(leader)
	p.checkLock(leader, taken)
	p.checkOwnState(leader)
}

// TestComposeTLS starts the cluster with TLS. Every node must serve clients that use
// TLS and trust the authority, and must not serve clients without TLS.
func TestComposeTLS(t *testing.T) {
	if os.Getenv("HOLDFAST_COMPOSE_TEST") == "" {
		t.Skip("HOLDFAST_COMPOSE_TEST is not set: make compose-test")
	}
	dir := t.TempDir()
	run(t, time.Minute, "../../deploy/tls/certificates", dir, "n1", "n2", "n3")
	t.Setenv("TLS_DIR", dir+"/files")
	p := newComposeProject(t, "compose.tls.yml")
	p.compose("up", "-d", "--no-build")
	p.waitHealthy("n1", "n2", "n3")

	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM([]byte(read(t, dir+"/files/ca.pem"))) {
		t.Fatal("no authority")
	}
	for service, addr := range p.addrs {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: replyLimit}, "tcp", addr,
			&tls.Config{RootCAs: authority, ServerName: service, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatalf("%s: %v", service, err)
		}
		c := respwire.NewConn(conn)
		c.Limit = replyLimit
		if got := p.do(c, "SET", "key:"+service, "x"); got != "OK" {
			t.Errorf("SET through %s: %q", service, got)
		}
		c.Close()
		plain := p.dial(addr)
		if _, err := respwire.NoError(plain.Do("PING")); err == nil {
			t.Errorf("%s answers a client without TLS", service)
		}
		plain.Close()
	}
}

// newComposeProject returns a project with compose.yml and the files that the
// parameter more lists, which are also in deploy/. The cleanup of the test removes
// the containers, volumes and networks of the project.
func newComposeProject(t *testing.T, more ...string) *composeProject {
	t.Helper()
	p := &composeProject{t: t, name: os.Getenv("HOLDFAST_COMPOSE_PROJECT"), addrs: make(map[string]string),
		files: append([]string{"compose.yml"}, more...)}
	if p.name == "" {
		p.name = "holdfast-test-" + strconv.Itoa(os.Getpid())
	}
	if exec.Command("docker", "compose", "version").Run() == nil {
		p.command = []string{"docker", "compose"}
	} else {
		p.command = []string{"docker-compose"}
	}
	base, err := process.FreePorts(1, 6, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		t.Setenv(fmt.Sprintf("HOLDFAST_PORT_N%d", i+1), strconv.Itoa(base+i))
		t.Setenv(fmt.Sprintf("HOLDFAST_SENTINEL_PORT_N%d", i+1), strconv.Itoa(base+3+i))
		p.addrs[fmt.Sprintf("n%d", i+1)] = process.Loopback(base + i)
	}
	t.Cleanup(func() {
		p.compose("down", "-v", "--remove-orphans", "-t", "2")
		for _, kind := range []string{"container", "volume", "network"} {
			list := []string{kind, "ls", "-q", "--filter", "label=com.docker.compose.project=" + p.name}
			if left := p.docker(list...); left != "" {
				t.Errorf("%ss left behind: %s", kind, left)
			}
		}
	})
	t.Cleanup(func() { // this cleanup runs before the one above
		if t.Failed() {
			t.Logf("logs:\n%s", p.compose("logs", "--no-color", "--tail", "60"))
		}
	})
	return p
}

// compose runs a Compose command of the project and returns its output.
func (p *composeProject) compose(args ...string) string {
	p.t.Helper()
	words := append(p.command[1:len(p.command):len(p.command)], "-p", p.name)
	for _, f := range p.files {
		words = append(words, "-f", "../../deploy/"+f)
	}
	return run(p.t, 2*time.Minute, p.command[0], append(words, args...)...)
}

func (p *composeProject) docker(args ...string) string {
	p.t.Helper()
	return run(p.t, 30*time.Second, "docker", args...)
}

// run returns the output of a command without leading and trailing white space.
func run(t *testing.T, limit time.Duration, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, &out, &errOut)
	}
	return strings.TrimSpace(out.String())
}

func (p *composeProject) container(service string) string {
	p.t.Helper()
	id := p.docker("ps", "-aq", "--filter", "label=com.docker.compose.project="+p.name, "--filter",
		"label=com.docker.compose.service="+service)
	if id == "" || strings.Contains(id, "\n") {
		p.t.Fatalf("containers of %s: %q, want one", service, id)
	}
	return id
}

// waitHealthy waits until the health check of the image reports the services as
// healthy.
func (p *composeProject) waitHealthy(services ...string) {
	p.t.Helper()
	for _, s := range services {
		id := p.container(s)
		waitFor(p.t, time.Minute, s+" is healthy", func() (string, bool) {
			health := p.docker("inspect", "-f", "{{.State.Status}} {{.State.Health.Status}}", id)
			return health, health == "running healthy"
		})
	}
}

// waitFor polls a condition for which there is no event.
func waitFor(t *testing.T, limit time.Duration, what string, f func() (state string, ok bool)) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		state, ok := f()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %v for: %s; last state: %s", limit, what, state)
		}
	}
}

// replyLimit is how long a node may take for a reply.
const replyLimit = 20 * time.Second

// dial connects to a node's published port.
func (p *composeProject) dial(addr string) *respwire.Conn {
	p.t.Helper()
	c, err := respwire.Connect(addr, replyLimit)
	if err != nil {
		p.t.Fatalf("connect: %v", err)
	}
	return c
}

// ask sends one command to a node and returns the reply as redis-cli prints it.
func (p *composeProject) ask(service string, args ...string) string {
	p.t.Helper()
	c := p.dial(p.addrs[service])
	defer c.Close()
	return p.do(c, args...)
}

func (p *composeProject) do(c *respwire.Conn, args ...string) string {
	p.t.Helper()
	reply, err := respwire.NoError(c.Do(args...))
	if err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
	return reply.String()
}

type memberStatus struct {
	ID        string `json:"id"`
	Role      string `json:"role"`
	Applied   uint64 `json:"applied_index"`
	Commit    uint64 `json:"commit_index"`
	Reachable bool   `json:"reachable"`
}

func (p *composeProject) status(addr string) []memberStatus {
	p.t.Helper()
	c := p.dial(addr)
	defer c.Close()
	var members []memberStatus
	if err := json.Unmarshal([]byte(p.do(c, "HOLDFAST", "STATUS")), &members); err != nil {
		p.t.Fatalf("status: %v", err)
	}
	return members
}

func (p *composeProject) leader(addr string) string {
	p.t.Helper()
	for _, m := range p.status(addr) {
		if m.Role == "leader" {
			return m.ID
		}
	}
	p.t.Fatal("no node leads")
	return ""
}

// waitCaughtUp waits until a node has applied all committed entries.
func (p *composeProject) waitCaughtUp(service string) {
	p.t.Helper()
	waitFor(p.t, 30*time.Second, service+" has caught up", func() (string, bool) {
		var commit, applied uint64
		for _, m := range p.status(p.addrs[service]) {
			commit = max(commit, m.Commit)
			if m.ID == service && m.Reachable {
				applied = m.Applied
			}
		}
		return fmt.Sprintf("applied %d of %d", applied, commit), applied > 0 && applied >= commit
	})
}

// checkLock checks the owner of the lock and its TTL. The TTL must not be less
// than the time that is really left.
func (p *composeProject) checkLock(service string, taken time.Time) {
	p.t.Helper()
	if got, want := p.ask(service, "GET", "lock:a"), "me"; got != want {
		p.t.Fatalf("owner of the lock through %s is %q, want %q", service, got, want)
	}
	left, err := strconv.ParseFloat(strings.TrimPrefix(p.ask(service, "PTTL", "lock:a"), "(integer) "), 64)
	if err != nil {
		p.t.Fatalf("PTTL: %v", err)
	}
	least := 600 - time.Since(taken).Seconds()
	if left/1000 < least || left/1000 > 600 {
		p.t.Fatalf("the TTL through %s is %.3f s, want %.3f to 600", service, left/1000, least)
	}
	p.t.Logf("%s reports a TTL of %.1f s, of which at least %.1f s are left", service, left/1000, least)
}

// checkOwnState checks that the node's own copy of the data has the lock, and
// the keys that were written while the node was down.
func (p *composeProject) checkOwnState(service string) {
	p.t.Helper()
	c := p.dial(p.addrs[service])
	defer c.Close()
	p.do(c, "READONLY")
	for _, key := range []string{"lock:a", "missed:0", "missed:199"} {
		if got := p.do(c, "GET", key); got == "(nil)" {
			p.t.Errorf("%s does not have %s after it has caught up", service, key)
		}
	}
}
