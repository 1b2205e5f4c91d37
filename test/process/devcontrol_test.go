package process_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestDev_Control runs the commands dev kill, start, stop and restart on the
// nodes of a running dev cluster.
func TestDev_Control(t *testing.T) {
	takeSlot(t)
	base, err := process.FreePorts(3, 3, 1000)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	d := startDev(t, base, dir)
	d.table(3)
	control := func(action, node string) outcome {
		return invoke(t, nil, "dev", action, node, "--data-dir", dir)
	}
	done := func(action, node, says string) {
		t.Helper()
		o := control(action, node)
		if o.code != 0 {
			t.Fatalf("dev %s %s: %+v", action, node, o)
		}
		wantLine(t, o.out, says)
	}
	refused := func(action, node, says string) {
		t.Helper()
		o := control(action, node)
		if o.code != 1 {
			t.Errorf("dev %s %s: %+v", action, node, o)
		}
		wantLine(t, o.errOut, "holdfast: ", says)
	}
	healthy := func() {
		t.Helper()
		if err := process.Poll(testutil.Within(t, testutil.StartLimit), "a healthy cluster", func() bool {
			return invoke(t, nil, "status", process.Loopback(base)).code == 0
		}); err != nil {
			t.Fatal(err)
		}
	}
	done("kill", "n3", "n3 has been killed")
	refused("kill", "n3", "n3 is already down")
	refused("start", "n4", `no node "n4": the nodes are n1, n2, n3`)
	d.waitFor("is gone: signal: killed")
	done("start", "n3", "n3 has been started (pid ")
	refused("start", "n3", "n3 is already up (pid ")
	healthy()
	done("stop", "n2", "n2 has stopped")
	done("restart", "n2", "n2 has been started")
	done("restart", "n1", "n1 has been started")
	healthy()
	if o := invoke(t, nil, "dev", "stop", "n1", "--data-dir", t.TempDir()); o.code != 1 {
		t.Errorf("a directory without a cluster: %+v", o)
	} else {
		wantLine(t, o.errOut, "holdfast: no running \"holdfast dev\" with --data-dir")
	}
}
