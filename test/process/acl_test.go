package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// as returns a connection to a node, authenticated as the given user.
func as(t *testing.T, n *process.Node, user, password string) *respwire.Conn {
	t.Helper()
	c := dial(t, n)
	if got := show(c, "AUTH", user, password); got != "OK" {
		t.Fatalf("AUTH %s through %s: %q", user, n.ID, got)
	}
	return c
}

// waitClosed waits until the server has closed a connection.
func waitClosed(t *testing.T, c *respwire.Conn, what string) {
	t.Helper()
	if err := process.Poll(testutil.Within(t, 10*time.Second), what+" to be closed", func() bool {
		_, err := c.Do("PING")
		return err != nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestACL_IsReplicated changes users through a follower. Once a change is
// acknowledged, a new user can log in on all nodes, and a granted permission is
// valid on all nodes. Soon after a permission is revoked, it no longer applies to
// the open connections of any node. All changes survive kill -9 of the leader, and
// then kill -9 of all nodes.
func TestACL_IsReplicated(t *testing.T) {
	c := startCluster(t)
	follower := c.others(c.leader())[0]
	for round := range 20 { // a node that is behind would miss the user of some rounds
		name := "user" + string(rune('a'+round))
		want(t, follower, "OK", "ACL", "SETUSER", name, "on", ">secret", "~app:*", "+get", "+@connection")
		for _, n := range c.Nodes {
			conn := as(t, n, name, "secret")
			if got := show(conn, "SET", "app:1", "x"); !strings.HasPrefix(got, "NOPERM") {
				t.Fatalf("SET through %s: %q", n.ID, got)
			}
		}
	}
	conns := make([]*respwire.Conn, len(c.Nodes))
	for i, n := range c.Nodes {
		conns[i] = as(t, n, "usera", "secret")
	}
	want(t, follower, "OK", "ACL", "SETUSER", "usera", "+set")
	for i, conn := range conns {
		if got := show(conn, "SET", "app:1", "x"); got != "OK" {
			t.Errorf("SET through %s after it was granted: %q", c.Nodes[i].ID, got)
		}
	}
	want(t, follower, "OK", "ACL", "SETUSER", "usera", "-get")
	for i, conn := range conns {
		if err := process.Poll(testutil.Within(t, 10*time.Second), "GET to be refused by "+c.Nodes[i].ID, func() bool {
			return strings.HasPrefix(show(conn, "GET", "app:1"), "NOPERM")
		}); err != nil {
			t.Error(err)
		}
	}
	want(t, follower, "(integer) 1", "ACL", "DELUSER", "usera")
	for i, conn := range conns {
		waitClosed(t, conn, "a connection of a deleted user on "+c.Nodes[i].ID)
	}
	list := do(t, follower, "ACL", "LIST")
	check := func(when string) {
		t.Helper()
		for _, n := range c.Running() {
			if got := do(t, n, "ACL", "LIST"); got != list {
				t.Errorf("%s, on %s:\n%s\nwant\n%s", when, n.ID, got, list)
			}
			as(t, n, "userb", "secret")
			if got := show(dial(t, n), "AUTH", "usera", "secret"); !strings.HasPrefix(got, "WRONGPASS") {
				t.Errorf("%s, on %s: AUTH as a deleted user returned %q", when, n.ID, got)
			}
		}
	}
	dead := c.leader()
	kill(t, dead)
	c.leader(dead)
	check("after kill -9 of the leader")
	start(t, dead)
	c.settled()
	for _, n := range c.Nodes { // the restart must also read the users from a snapshot
		want(t, n, "OK", "HOLDFAST", "SNAPSHOT")
	}
	for _, n := range c.Nodes {
		kill(t, n)
	}
	c.start()
	check("after a restart of all")
}

// TestACL_File checks that the users of a file are the first users of the
// cluster. Users and changes made later take precedence over the file. A node
// refuses to start if the file is invalid.
func TestACL_File(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("user app on >secret ~app:* +@all -@dangerous (%R~shared:* +get)\n\nuser ops on >root ~* &* +@all\n")
	c := startCluster(t, "--acl-file", file)
	for _, n := range c.Nodes {
		conn := as(t, n, "app", "secret")
		for _, line := range []struct{ cmd, want string }{
			{"SET app:1 x", "OK"}, {"GET shared:1", "(nil)"}, {"SET shared:1 x", "NOPERM"}, {"KEYS *", "NOPERM"},
			{"ACL WHOAMI", "app"},
		} {
			if got := show(conn, strings.Fields(line.cmd)...); !strings.HasPrefix(got, line.want) {
				t.Errorf("%s through %s: %q", line.cmd, n.ID, got)
			}
		}
	}
	want(t, c.Nodes[1], "OK", "ACL", "SETUSER", "app", "<secret", ">other")
	want(t, c.Nodes[1], "(integer) 1", "ACL", "DELUSER", "ops")
	for _, n := range c.Nodes {
		kill(t, n)
	}
	c.start()
	for _, n := range c.Nodes {
		as(t, n, "app", "other")
		for _, login := range [][2]string{{"app", "secret"}, {"ops", "root"}} {
			if got := show(dial(t, n), "AUTH", login[0], login[1]); !strings.HasPrefix(got, "WRONGPASS") {
				t.Errorf("AUTH %v through %s, as the file has it: %q", login, n.ID, got)
			}
		}
	}

	// An invalid file is an error before the node opens anything.
	n := c.Nodes[0]
	kill(t, n)
	write("user app on >secret +nope\n")
	text := refusesToStart(t, n)
	wantContains(t, "error", text, file+":1", "+nope", "Unknown command")
	write("user default on >p ~* &* +@all\n")
	text = refusesToStart(t, n, "--requirepass", "q")
	wantContains(t, "error", text, "--requirepass", "default")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	wantContains(t, "error", refusesToStart(t, n), "--acl-file", file)
}

// TestACL_RequirePass sets the password of the default user with CONFIG SET.
// All nodes must then demand this password, and a node that starts with another
// password in --requirepass must ignore the flag and log that.
func TestACL_RequirePass(t *testing.T) {
	c := startCluster(t)
	want(t, c.Nodes[0], "OK", "CONFIG", "SET", "requirepass", "one")
	for _, n := range c.Nodes {
		conn := dial(t, n)
		if err := process.Poll(testutil.Within(t, 10*time.Second), n.ID+" to want the password", func() bool {
			return strings.HasPrefix(show(dial(t, n), "GET", "a"), "NOAUTH")
		}); err != nil {
			t.Error(err)
		}
		if got := show(conn, "AUTH", "one"); got != "OK" {
			t.Errorf("AUTH through %s: %q", n.ID, got)
		}
	}
	n := c.Nodes[2]
	kill(t, n)
	if err := n.Start("--requirepass", "two"); err != nil {
		t.Fatal(err)
	}
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), n.ID+" to know the password", func() bool {
		conn, err := respwire.Connect(n.Clients, replyLimit)
		if err != nil {
			return false
		}
		defer conn.Close()
		return show(conn, "AUTH", "one") == "OK"
	}); err != nil {
		t.Fatal(err)
	}
	if got := show(dial(t, n), "AUTH", "two"); !strings.HasPrefix(got, "WRONGPASS") {
		t.Errorf("AUTH with the password of the flag: %q", got)
	}
	if !strings.Contains(n.Output(), "--requirepass has no effect") {
		t.Error("the node does not log that --requirepass has no effect")
	}
}
