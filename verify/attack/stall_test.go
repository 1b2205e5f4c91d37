package attack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestStallProbe checks that the disk counts as stalled only if a write hangs
// now or a slow write ended a moment ago.
func TestStallProbe(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name  string
		probe *stallProbe
		want  bool
	}{
		{"nothing under way", &stallProbe{}, false},
		{"a write that has just begun", &stallProbe{began: now}, false},
		{"a write that hangs", &stallProbe{began: now.Add(-2 * stalledFor)}, true},
		{"one that hung until now", &stallProbe{slow: now}, true},
		{"one that hung a minute ago", &stallProbe{slow: now.Add(-time.Minute)}, false},
	} {
		if got := tt.probe.stalled(); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestElectionLog checks that the lines about elections are found, and only
// those that were written since the log had the given size.
func TestElectionLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n1.log")
	n := &node{Node: &process.Node{ID: "n1", LogFile: file}}
	if got := n.logSize(); got != 0 {
		t.Errorf("without a log: size %d, want 0", got)
	}
	write := func(text string) {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("[WARN]  holdfast.raft: heartbeat timeout reached, starting election: an old one\n")
	size := n.logSize()
	write("[INFO]  holdfast: linked to leader\n" +
		"[WARN]  holdfast.raft: heartbeat timeout reached, starting election: last-leader-id=n2\n")
	got := n.electionLog(size)
	if len(got) != 1 || !strings.Contains(got[0], "last-leader-id=n2") {
		t.Errorf("lines %q, want the one about the second election", got)
	}
}

// TestPauseProbe checks that a probe reports its longest sleep, less what it
// wanted to sleep.
func TestPauseProbe(t *testing.T) {
	const pause = 40 * time.Millisecond
	left := 3
	p := probePauses(t.Context(), func(ctx context.Context, d time.Duration) bool {
		if left--; left == 1 {
			load.Sleep(ctx, d+pause)
		}
		return left > 0 && load.Sleep(ctx, d)
	})
	<-p.done
	if longest := p.stop(); longest < pause {
		t.Errorf("longest pause %v, want at least %v", longest, pause)
	}
}
