package snapshot

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestSnapshotHealth_Refused checks the reports of a node that refuses the
// leader's snapshots.
func TestSnapshotHealth_Refused(t *testing.T) {
	wall := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	newer := fmt.Errorf("snapshot: %w", fsm.ErrVersion)
	var h snapshotHealth
	lines := 0
	for i := range 7 { // for a minute
		if h.refused(newer, 10, time.Duration(i)*10*time.Second, wall) {
			lines++
		}
	}
	if lines != 3 {
		t.Errorf("%d log lines in a minute, want 3", lines)
	}
	const want = "snapshots of the leader have been refused since 2026-01-02T03:04:05Z, this node stays behind: snapshot: "
	if text := h.text(10); !strings.HasPrefix(text, want) || h.behind(10) != text {
		t.Errorf("text %q, behind %q, want %q", text, h.behind(10), want)
	}
	if h.text(11) != "" || h.behind(11) != "" {
		t.Errorf("after another entry: text %q, behind %q, want none", h.text(11), h.behind(11))
	}
	h.note(nil, 0, wall)
	if h.text(10) != "" || h.behind(10) != "" {
		t.Errorf("after a success: text %q, behind %q, want none", h.text(10), h.behind(10))
	}
	// A node whose disk has no room remains ready: the snapshot succeeds when
	// there is room again.
	if !h.refused(syscall.ENOSPC, 10, 0, wall) || h.text(10) == "" || h.behind(10) != "" {
		t.Errorf("without room: text returned %q, behind returned %q, want a text and \"\"", h.text(10), h.behind(10))
	}
}
