package attack

import (
	"testing"
	"time"
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
