package process_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// verdict is a part of the output of holdfast verify --json.
type verdict struct {
	Verdict    string
	Commands   int
	Grants     int
	Violations int
	Target     []string
}

// verify runs holdfast verify against a cluster and returns its output.
func verify(t *testing.T, c *cluster, args ...string) (o outcome, v verdict, page string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "verify.html")
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Clients)
	}
	o = invokeWithin(t, 2*time.Minute, nil,
		append([]string{"verify", "--addrs", strings.Join(addrs, ","), "--report", path, "--json", "-"}, args...)...)
	if err := json.Unmarshal([]byte(o.out), &v); err != nil {
		t.Fatalf("summary: %v; it printed\n%s%s", err, o.out, o.errOut)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return o, v, string(b)
}

// TestVerify_OfALiveCluster runs holdfast verify against a running cluster, and
// kills the leader in the meantime. All guarantees hold. After verify, the
// cluster has only the keys that it had before.
func TestVerify_OfALiveCluster(t *testing.T) {
	c := startCluster(t)
	want(t, c.Nodes[0], "OK", "SET", "mine", "kept")
	killed := make(chan error, 1)
	leader := c.leader()
	time.AfterFunc(1500*time.Millisecond, func() { killed <- leader.Kill() })
	o, v, page := verify(t, c, "--duration", "4s")
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	if o.code != 0 || v.Verdict != "held" || v.Violations != 0 || v.Commands < 100 || v.Grants == 0 ||
		len(v.Target) != 3 {
		t.Errorf("code %d, %+v; it printed\n%s", o.code, v, o.errOut)
	}
	wantContains(t, "page", page, "<svg", "All guarantees held", "slow or refused")
	other := c.others(leader)[0]
	want(t, other, "kept", "GET", "mine")
	want(t, other, "(integer) 1", "DBSIZE")
}

// TestVerify_FindsWhatIsBroken deletes locks that other clients hold. verify
// must report the lost locks.
func TestVerify_FindsWhatIsBroken(t *testing.T) {
	c := startCluster(t)
	stop, done := make(chan struct{}), make(chan struct{})
	conn := dial(t, c.Nodes[0])
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				show(conn, "DEL", fmt.Sprintf("broken:lock:0:%d", i%10))
			}
		}
	}()
	o, v, page := verify(t, c, "--duration", "3s", "--prefix", "broken:")
	close(stop)
	<-done
	if o.code != 1 || v.Verdict != "violated" || v.Violations == 0 {
		t.Errorf("code %d, %+v; it printed\n%s", o.code, v, o.errOut)
	}
	wantContains(t, "page", page, "A guarantee was violated", "mutual exclusion", `class="mark"`)
	wantContains(t, "standard error", o.errOut, "VIOLATED")
}

// TestVerify_Unreachable checks that verify reports "no verdict" when it cannot
// query the cluster, and when an argument is wrong.
func TestVerify_Unreachable(t *testing.T) {
	t.Parallel()
	base, err := process.FreePorts(1, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for what, args := range map[string][]string{
		"no server":        {"--addrs", process.Loopback(base), "--duration", "1s"},
		"no address":       {"--addrs", "nonsense"},
		"no duration":      {"--duration", "soon"},
		"two clusters":     {"--local", "--addrs", process.Loopback(1)},
		"no such fault":    {"--local", "--faults", "meteorite"},
		"no such password": {"--addrs", process.Loopback(base), "--password", "x", "--duration", "1s"},
	} {
		if o := invoke(t, nil, append([]string{"verify"}, args...)...); o.code != 2 || !strings.Contains(o.errOut,
			"no verdict") {
			t.Errorf("%s: %+v", what, o)
		}
	}
}

// TestVerify_Local checks that verify --local attacks clusters of its own and
// leaves no data behind.
func TestVerify_Local(t *testing.T) {
	takeSlot(t)
	dir := t.TempDir()
	o := invokeWithin(t, 3*time.Minute, []string{"TMPDIR=" + dir}, "verify", "--local", "--episodes", "1", "--faults",
		"kill -9 follower,forwarder cut", "--seed", "3")
	if o.code != 0 {
		t.Errorf("code %d; it printed\n%s%s", o.code, o.out, o.errOut)
	}
	wantContains(t, "output", o.out, "kill -9 follower", "forwarder cut from leader", "linearizable keys",
		"no violation (seed 3)")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v left behind, %v", left, err)
	}
}
