package process_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// run runs the program with the given arguments and returns its output. The
// command must succeed.
func run(t *testing.T, args ...string) string {
	t.Helper()
	res := invoke(t, nil, args...)
	if res.code != 0 {
		t.Fatalf("holdfast %s: exit %d\n%s%s", strings.Join(args, " "), res.code, res.out, res.errOut)
	}
	return res.out
}

// refuses runs the program with the given arguments. The command must fail with
// an error that contains all parts.
func refuses(t *testing.T, parts []string, args ...string) {
	t.Helper()
	res := invoke(t, nil, args...)
	if res.code == 0 {
		t.Errorf("holdfast %s succeeds: %s", strings.Join(args, " "), res.out)
	}
	wantContains(t, "the error of "+args[0], res.errOut, parts...)
}

// inspected is a part of the output of inspect --json.
type inspected struct {
	Cluster string `json:"cluster"`
	Index   uint64 `json:"index"`
	Lease   int64  `json:"lease"`
	Token   uint64 `json:"token"`
	Keys    int    `json:"keys"`
	Last    uint64 `json:"last_index"`
}

func inspect(t *testing.T, path string) (i inspected) {
	t.Helper()
	if err := json.Unmarshal([]byte(run(t, "inspect", path, "--json")), &i); err != nil {
		t.Fatal(err)
	}
	return i
}

// awaitGrant waits until a node grants a lock.
func (c *cluster) awaitGrant(n *process.Node, key string) {
	c.t.Helper()
	err := process.Poll(testutil.Within(c.t, testutil.StartLimit), "the end of the quarantine", func() bool {
		return do(c.t, n, "SET", key, "x", "NX") == "OK"
	})
	if err != nil {
		c.t.Error(err)
	}
}

// TestBackup_DuringFailover takes backups under load while leaders are killed
// with kill -9. A backup either fails and leaves no file, or is complete. No
// client notices a backup.
func TestBackup_DuringFailover(t *testing.T) {
	c := startCluster(t)
	dir := t.TempDir()
	l := newLoad(t, "backup", each(4, c.Nodes)...)
	taken := 0
	for round := range 4 {
		l.progress(40)
		marker := fmt.Sprint("marker", round)
		leader := c.leader()
		want(t, leader, "OK", "SET", marker, "x", "PX", "600000")
		from := c.others(leader)[0]
		file := filepath.Join(dir, fmt.Sprint("backup", round))
		done := make(chan outcome, 1)
		go func() {
			done <- invoke(t, nil, "backup", "--addr", from.Clients, "-o", file)
		}()
		if round%2 == 1 {
			l.excuseNode(leader, true)
			kill(t, leader)
		}
		res := <-done
		if res.code == 0 {
			taken++
			wantContains(t, "the backup", run(t, "inspect", file), "whole", fmt.Sprintf("%q", marker))
		} else if _, err := os.Stat(file); err == nil {
			t.Errorf("a failed backup left a file: %s", res.errOut)
		}
		if round%2 == 1 {
			start(t, leader)
			c.settled()
			l.progress(40)
			l.excuse(false)
		}
	}
	if taken < 2 {
		t.Errorf("%d backups were taken, want at least those without a failover", taken)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("partial files are left: %v", left)
	}
	l.progress(40)
	l.check(c.Nodes[0])
}

// TestRestore_NamedUser restores a backup as a user that the backup replaces.
// The command gets the reply, whichever node it uses, and prints the settings
// that the backup has changed.
func TestRestore_NamedUser(t *testing.T) {
	dir := t.TempDir()
	users := writeSecret(t, filepath.Join(dir, "users.acl"), "user admin on >root ~* &* +@all")
	login := []string{"--user", "admin", "--password-file", writeSecret(t, filepath.Join(dir, "password"), "root")}
	c := startCluster(t, "--acl-file", users)
	file := filepath.Join(dir, "b")
	say := func(n *process.Node, args ...string) string {
		return show(as(t, n, "admin", "root"), args...)
	}
	say(c.Nodes[0], "SET", "k", "old")
	run(t, append([]string{"backup", "--addr", c.Nodes[0].Clients, "-o", file}, login...)...)
	for i, n := range c.Nodes { // the leader and both followers
		delay := fmt.Sprint("lock* ", 5000+i)
		if got := say(n, "CONFIG", "SET", "lock-delay", delay); got != "OK" {
			t.Fatalf("CONFIG SET: %q", got)
		}
		say(n, "SET", "k", "new")
		var others []*respwire.Conn // one to each node
		for _, m := range c.Nodes {
			others = append(others, as(t, m, "admin", "root"))
		}
		o := invoke(t, nil, append([]string{"restore", file, "--addr", n.Clients, "--replace", "--quarantine", "0"},
			login...)...)
		if o.code != 0 {
			t.Fatalf("restore through %s: %+v", n.ID, o)
		}
		wantContains(t, "restore", o.out, "restored 1 keys", `setting lock-delay is now "", it was "`+delay+`"`)
		// When a node replaces the user, it ends the connections of this user.
		// Wait for that, so that the node does not end later logins.
		for _, other := range others {
			waitClosed(t, other, "the connection of a replaced user")
		}
		if got := say(n, "GET", "k"); got != "old" {
			t.Errorf("GET after the restore through %s: %q", n.ID, got)
		}
	}
}

// restartsQuietly checks that a restarted node does not log an old quarantine and
// an old restore again.
func (c *cluster) restartsQuietly(n *process.Node) {
	c.t.Helper()
	kill(c.t, n)
	start(c.t, n)
	c.settled()
	want(c.t, n, "owner", "GET", "lock") // this read waits until the node has executed its log
	out := n.Output()
	for _, old := range []string{"quarantine", "replaced the data"} {
		if strings.Contains(out, old) {
			c.t.Errorf("%s logs %q again:\n%s", n.ID, old, out)
		}
	}
}

// TestRestore_NodeDown restores a backup into a running cluster while a node is
// down. When that node is back, it has the data too. Tokens rise, the lease
// clock does not go back, and no lock is granted during the quarantine. A
// second backup is restored into a fresh cluster, whose lease clock is earlier.
// No entry of the fresh cluster may have a time before the cluster's lease
// clock.
func TestRestore_NodeDown(t *testing.T) {
	c := startCluster(t)
	n := c.leader()
	file := filepath.Join(t.TempDir(), "b")
	want(t, n, "OK", "SET", "lock", "owner", "NX", "PX", "600000")
	for i := range 200 {
		want(t, n, "OK", "SET", fmt.Sprint("key", i), strings.Repeat("v", 3000))
	}
	run(t, "backup", "--addr", n.Clients, "-o", file)
	before := inspect(t, file)
	if before.Keys != 201 {
		t.Errorf("%d keys in the backup", before.Keys)
	}
	want(t, n, "OK", "SET", "lock2", "owner", "NX", "PX", "600000")
	want(t, n, "OK", "SET", "after", "x")
	refuses(t, []string{"not empty", "--replace"}, "restore", file, "--addr", n.Clients)
	refuses(t, []string{"is a directory, not a backup"}, "restore", n.Dir, "--addr", n.Clients, "--replace")
	refuses(t, []string{"is a directory: name a file"}, "backup", "-o", t.TempDir(), "--addr", n.Clients)
	want(t, n, "x", "GET", "after")

	want(t, n, "OK", "CONFIG", "SET", "lock-delay", "lock* 5000")
	down := c.others(n)[0]
	kill(t, down)
	out := run(t, "restore", file, "--addr", c.others(n)[0].Clients, "--replace", "--quarantine", "3s")
	wantContains(t, "restore", out, "201 keys", "quarantine",
		`setting lock-delay is now "", it was "lock* 5000"`)
	want(t, n, "(nil)", "GET", "after")
	want(t, n, "owner", "GET", "lock")
	if got := do(t, n, "SET", "lock2", "x", "NX"); !strings.Contains(got, "QUARANTINE no lock is granted until") {
		t.Errorf("a lock during the quarantine: %q", got)
	}
	wantContains(t, "status", run(t, "inspect", file), "whole")
	start(t, down)
	c.settled()
	want(t, down, "owner", "GET", "lock")
	c.awaitGrant(n, "lock2")
	for _, m := range c.Nodes {
		err := process.Poll(testutil.Within(t, testutil.StartLimit), "the end of the quarantine in the log of "+m.ID,
			func() bool { return strings.Contains(m.Output(), "quarantine ended") })
		if err != nil {
			t.Error(err)
		}
		wantContains(t, "the log of "+m.ID, m.Output(), "replaced the data with the data of a backup")
	}
	c.restartsQuietly(down)
	second := filepath.Join(t.TempDir(), "b2")
	run(t, "backup", "--addr", down.Clients, "-o", second)
	after := inspect(t, second)
	if after.Token <= before.Token+1<<21 || after.Lease < before.Lease || after.Cluster != before.Cluster {
		t.Errorf("before %+v, after %+v", before, after)
	}

	for _, m := range c.Nodes {
		kill(t, m)
		if err := os.RemoveAll(m.Dir); err != nil {
			t.Fatal(err)
		}
	}
	c.start()
	restoreFresh(t, c, second, after)
}

// TestRestore_QuarantineEndsWhileDown kills a node during the quarantine. The
// node then gets a snapshot in place of the entry that ends the quarantine, and
// must still log the end.
func TestRestore_QuarantineEndsWhileDown(t *testing.T) {
	c := startCluster(t, "--trailing-bytes", "1", "--snapshot-bytes", "1gb")
	n := c.leader()
	down := c.others(n)[0]
	file := filepath.Join(t.TempDir(), "b")
	run(t, "backup", "--addr", n.Clients, "-o", file)
	run(t, "restore", file, "--addr", n.Clients, "--replace", "--quarantine", "3s")
	c.logs(down, "quarantine: no lock is granted")
	kill(t, down)
	c.awaitGrant(n, "lock")
	for _, m := range c.others(down) {
		want(t, m, "Background saving started", "BGSAVE")
		c.logs(m, "starting snapshot up to")
		c.logs(m, "snapshot complete up to")
	}
	want(t, n, "OK", "SET", "after", "x")
	start(t, down)
	c.logs(down, "quarantine ended")
}

// logs waits until the log of a node contains a text.
func (c *cluster) logs(n *process.Node, text string) {
	c.t.Helper()
	err := process.Poll(testutil.Within(c.t, testutil.StartLimit), text+" in the log of "+n.ID, func() bool {
		return strings.Contains(n.Output(), text)
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// restoreFresh restores a backup into a fresh cluster. before describes the
// backup.
func restoreFresh(t *testing.T, fresh *cluster, file string, before inspected) {
	t.Helper()
	run(t, "restore", file, "--addr", fresh.Nodes[0].Clients, "--quarantine", "0")
	want(t, fresh.Nodes[1], "OK", "SET", "lock3", "x", "NX", "PX", "60000")
	want(t, fresh.Nodes[2], "owner", "GET", "lock")
	third := filepath.Join(t.TempDir(), "b3")
	run(t, "backup", "--addr", fresh.Nodes[2].Clients, "-o", third)
	last := inspect(t, third)
	if last.Lease < before.Lease || last.Token <= before.Token || last.Cluster == before.Cluster {
		t.Errorf("before %+v, in the fresh cluster %+v", before, last)
	}
	for _, m := range fresh.Nodes {
		if strings.Contains(m.Output(), "stamped behind") {
			t.Errorf("%s has applied an entry that was stamped behind the lease clock", m.ID)
		}
	}
}

// TestRecover_OneOfThree kills all nodes with kill -9 and makes a new cluster
// from the data of one of them. The old directory remains as it was, and another
// old node cannot join the new cluster.
func TestRecover_OneOfThree(t *testing.T) {
	c := startCluster(t)
	n := c.leader()
	want(t, n, "OK", "SET", "lock", "owner", "NX", "PX", "600000")
	refuses(t, []string{"in use"}, "recover", "--data-dir", n.Dir, "--to", n.Dir+"-new")
	for _, m := range c.Nodes {
		kill(t, m)
	}
	old := inspect(t, n.Dir)
	to := filepath.Join(t.TempDir(), "new")
	args := []string{"recover", "--data-dir", n.Dir, "--to", to, "--quarantine", "2s"}
	wantContains(t, "recover", run(t, args...), "May be lost", "Nothing was written", fmt.Sprint("index ", old.Last))
	if _, err := os.Stat(to); err == nil {
		t.Error("recover without --yes wrote a directory")
	}
	for _, bad := range []struct{ flag, value, says string }{
		{"--to", filepath.Join(n.Dir, "new"), "outside of the data directory"},
		{"--to", t.TempDir(), "exists"},
		{"--peer-addr", "nonsense", "missing port"},
		{"--peer-addr", "0.0.0.0:7000", "not an address that another node can reach: use the name or an IP address"},
		{"--peer-addr", "[::]:7000", "not an address that another node can reach"},
		{"--data-dir", to, "is not the data directory of a node"},
	} {
		refuses(t, []string{bad.says}, append(args, bad.flag, bad.value)...)
	}
	run(t, append(args, "--yes")...)
	refuses(t, []string{"exists"}, append(args, "--yes")...)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(n.Dir, link); err != nil {
		t.Fatal(err)
	}
	if got := inspect(t, link); got != old {
		t.Errorf("inspect of a link to the directory: %+v, want %+v", got, old)
	}
	if again := inspect(t, n.Dir); again != old {
		t.Errorf("the old directory has changed: %+v, was %+v", again, old)
	}
	got := inspect(t, to)
	if got.Token <= old.Token+1<<21 || got.Cluster == old.Cluster || got.Keys != old.Keys || got.Lease != old.Lease {
		t.Errorf("recovered %+v, was %+v", got, old)
	}
	if err := n.Start("--data-dir", to, "--peers", n.ID+"="+n.Peers); err != nil {
		t.Fatal(err)
	}
	recovered := process.Poll(testutil.Within(t, testutil.StartLimit), "the recovered node", func() bool {
		conn, err := respwire.Connect(n.Clients, time.Second)
		if err != nil {
			return false
		}
		defer conn.Close()
		return show(conn, "GET", "lock") == "owner"
	})
	if recovered != nil {
		t.Fatal(recovered)
	}
	if got := do(t, n, "SETNX", "lock2", "x"); !strings.Contains(got, "QUARANTINE") {
		t.Errorf("a lock during the quarantine: %q", got)
	}
	other := c.others(n)
	if len(other) > 0 {
		t.Fatalf("%d other nodes are running", len(other))
	}
	stranger := c.Nodes[0]
	if stranger == n {
		stranger = c.Nodes[1]
	}
	start(t, stranger)
	err := process.Poll(testutil.Within(t, testutil.StartLimit), "the refusal of the old node", func() bool {
		return strings.Contains(stranger.Output(), "belongs to another cluster")
	})
	if err != nil {
		t.Error(err)
	}
	c.awaitGrant(n, "lock2")
}
