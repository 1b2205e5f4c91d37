package process_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// writeSecret writes a file that only its owner can read.
func writeSecret(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// bearer requests a page with a token, or without one if it is "".
func bearer(t *testing.T, n *process.Node, path, token string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTP+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// TestSecrets runs a cluster whose secrets contain the word canary, and
// searches for the word in everything that the nodes show: replies, logs, the
// audit log, the pages of the HTTP port, the arguments of the processes, and
// MONITOR.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	password := writeSecret(t, filepath.Join(dir, "password"), "canary-password")
	token := writeSecret(t, filepath.Join(dir, "token"), "canary-token-of-the-http-port")
	audit := filepath.Join(dir, "audit.log")
	c := newCluster(t, process.Config{Nodes: 3, Args: []string{
		"--http-token-file", token, "--pprof", "--log-level", "debug", "--requirepass-file", password,
		"--audit-log", audit, "--log-format", "json",
	}})
	for _, n := range c.Nodes {
		start(t, n)
	}
	n := c.Nodes[0]
	awaitReady(t, n)
	conn := as(t, n, "default", "canary-password")
	watcher := as(t, n, "default", "canary-password")
	if got := show(watcher, "MONITOR"); got != "OK" {
		t.Fatalf("MONITOR: %s", got)
	}
	s := &shown{}
	s.commands(conn)
	s.paths(t, n, "canary-token-of-the-http-port")

	late := c.Nodes[2]
	demandsPassword(t, late)

	// The operator changes the password and the token.
	writeSecret(t, password, "canary-rotated")
	writeSecret(t, token, "canary-token-number-two")
	if err := os.Rename(audit, audit+".1"); err != nil {
		t.Fatal(err)
	}
	if err := n.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	waitOutput(t, n, "SIGHUP: reloaded")
	for _, x := range []*process.Node{n, c.Nodes[1], late} {
		as(t, x, "default", "canary-rotated")
	}
	if code, _ := bearer(t, n, "/metrics", "canary-token-of-the-http-port"); code != 401 {
		t.Errorf("the old token after the change: %d", code)
	}
	if code, _ := bearer(t, n, "/metrics", "canary-token-number-two"); code != 200 {
		t.Errorf("the new token: %d", code)
	}
	again := as(t, n, "default", "canary-rotated")
	show(again, "CONFIG", "SET", "slowlog-max-len", "9")

	// A wrong file changes nothing.
	writeSecret(t, token, "short")
	if err := n.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	waitOutput(t, n, "can be guessed")
	if code, _ := bearer(t, n, "/metrics", "canary-token-number-two"); code != 200 {
		t.Errorf("the token after a wrong change: %d", code)
	}

	for path, all := range map[string][]string{
		audit + ".1": {`"command":"FLUSHALL"`, "password of the default user changed"}, audit: {"slowlog-max-len 9"},
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		wantContains(t, path, string(text), all...)
		s.say(string(text))
	}
	for _, n := range c.Nodes {
		s.say(n.Output())
		if text, err := os.ReadFile("/proc/" + strconv.Itoa(n.PID()) + "/cmdline"); err == nil {
			s.say(string(text))
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(s.String()) {
		if strings.Contains(line, "canary") {
			t.Errorf("a secret is shown: %s", line)
		}
	}
	watcher.Limit = 200 * time.Millisecond
	lines := 0
	for ; ; lines++ { // the MONITOR stream
		v, err := watcher.Receive()
		if err != nil {
			break
		}
		if strings.Contains(v.Text, "canary") {
			t.Errorf("MONITOR shows a secret: %s", v.Text)
		}
	}
	if lines == 0 {
		t.Error("MONITOR shows nothing")
	}
}

// shown contains everything that the nodes have shown to clients or in files.
type shown struct{ strings.Builder }

func (s *shown) say(args ...string) { s.WriteString(strings.Join(args, "\n") + "\n") }

// commands sends commands with secrets, and commands that could show them.
func (s *shown) commands(conn *respwire.Conn) {
	for _, cmd := range [][]string{
		{"CONFIG", "SET", "slowlog-log-slower-than", "0"},
		{"ACL", "SETUSER", "app", "on", ">canary-app", "+@all", "~*"},
		{"ACL", "SETUSER", "app", "+nosuch", ">canary-app"}, {"AUTH", "default", "canary-wrong"},
		{"AUTH", "app", "canary-app"}, {"AUTH", "default", "canary-password"},
		{"HELLO", "2", "AUTH", "default", "canary-password"}, {"CONFIG", "SET", "requirepass", "canary-next"},
		{"CONFIG", "SET", "requirepass", "canary-password", "nosuch", "1"}, {"FLUSHALL"},
		{"CONFIG", "GET", "*"}, {"ACL", "LIST"}, {"ACL", "GETUSER", "app"}, {"ACL", "LOG"}, {"SLOWLOG", "GET", "128"},
		{"INFO", "everything"}, {"CLIENT", "LIST"}, {"HOLDFAST", "STATUS"},
	} {
		s.say(show(conn, cmd...))
	}
}

// paths reads the paths of the HTTP port with the port's token. It checks that
// all paths except /healthz and /readyz need the token.
func (s *shown) paths(t *testing.T, n *process.Node, token string) {
	t.Helper()
	for _, path := range []string{"/metrics", "/status", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/cmdline",
		"/debug/pprof/goroutine?debug=2"} {
		code, body := bearer(t, n, path, "")
		if open := path == "/healthz" || path == "/readyz"; open != (code == 200) || !open && code != 401 {
			t.Errorf("%s without the token: %d %q", path, code, body)
		}
		if code, _ := bearer(t, n, path, "wrong"); code == 200 && path == "/metrics" {
			t.Errorf("%s with a wrong token: %d", path, code)
		}
		code, body = bearer(t, n, path, token)
		if code != 200 && path != "/debug/pprof/cmdline" {
			t.Errorf("%s with the token: %d", path, code)
		}
		s.say(body)
	}
}

// demandsPassword restarts a node without the flag that sets the password. The
// node must still demand the password.
func demandsPassword(t *testing.T, late *process.Node) {
	t.Helper()
	stopNode(t, late)
	if err := late.Start("--requirepass-file", ""); err != nil {
		t.Fatal(err)
	}
	got := ""
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "the node without a password", func() bool {
		c, err := respwire.Connect(late.Clients, replyLimit)
		if err != nil {
			return false
		}
		defer c.Close()
		if got = show(c, "GET", "k"); got == "(nil)" {
			t.Error("the node without a password lets a client in")
		}
		return strings.HasPrefix(got, "NOAUTH")
	}); err != nil {
		t.Errorf("GET without a password: %q", got)
	}
}

// TestClusterSecret_Rotated replaces the cluster secret of a running cluster,
// one node after the other, while a client writes. No command may fail, and no
// node may be refused.
func TestClusterSecret_Rotated(t *testing.T) {
	const first, second = "first canary secret of the cluster, long", "second canary secret of the cluster, long"
	dir := t.TempDir()
	c := newCluster(t, process.Config{Nodes: 3, Args: []string{"--log-level", "debug"}})
	file := func(n *process.Node) string { return filepath.Join(dir, n.ID) }
	for _, n := range c.Nodes {
		if err := n.Start("--cluster-secret-file", writeSecret(t, file(n), first)); err != nil {
			t.Fatal(err)
		}
	}
	c.settled()
	l := newLoad(t, "rotated", c.Nodes)
	for _, step := range []struct{ text, log string }{
		{second + "\n\n" + first, "cluster secret changed: previous_accepted=true"},
		{second, "cluster secret changed: previous_accepted=false"},
	} {
		for _, n := range c.Nodes {
			writeSecret(t, file(n), step.text)
			send(t, n, syscall.SIGHUP)
			waitOutput(t, n, step.log)
			l.progress(100)
		}
	}
	// All nodes now use the new secret: a node that restarts with it belongs to
	// the cluster. A wrong file changes nothing.
	last := c.Nodes[2]
	l.excuseNode(last, true)
	stopNode(t, last)
	if err := last.Start("--cluster-secret-file", file(last)); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, last)
	l.excuseNode(last, false)
	writeSecret(t, file(last), "short")
	send(t, last, syscall.SIGHUP)
	waitOutput(t, last, "can be guessed")
	l.progress(100)
	l.end()
	l.check(last)
	for _, n := range c.Nodes {
		text := n.Output()
		if strings.Contains(text, "cluster secret does not match") {
			t.Errorf("a node was refused:\n%s", text)
		}
		if strings.Contains(text, "canary") {
			t.Errorf("a secret is shown: %s", text)
		}
	}
}
