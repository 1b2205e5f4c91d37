package attack

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPlans_Versions checks that a plan mixes two builds only if there are two,
// and at most once per episode. It also checks that the nodes start with the old
// build if the plan upgrades them.
func TestPlans_Versions(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	now, same, old := write("now", "1"), write("same", "1"), write("old", "0")
	faults, err := choose([]string{"version", "kill"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, old string
		mixed     bool
	}{
		{"no other build", "", false},
		{"the same build", same, false},
		{"no such file", filepath.Join(dir, "none"), false},
		{"an older build", old, true},
	} {
		cfg := Config{Program: now, Old: tt.old}
		seen := make(map[string]int)
		for _, p := range plans(1, 20, chosen(cfg, faults)) {
			here := 0
			for _, step := range p.Steps {
				for _, class := range step {
					if find(class).group == versions {
						here++
						seen[class]++
						if begins := p.begins(cfg); (begins == tt.old) != (class == rollingUp || class == takenBack) {
							t.Errorf("%s: a plan with %s starts its nodes with %s", tt.name, class, begins)
						}
					}
				}
			}
			if here > 1 {
				t.Errorf("%s: %d changes of version in one episode, want at most 1: %v", tt.name, here, p)
			}
			if len(p.Steps) != stepsPerEpisode {
				t.Errorf("%s: %v", tt.name, p)
			}
		}
		if got := seen[rollingUp] > 0 && seen[rollingDown] > 0 && seen[takenBack] > 0; got != tt.mixed || !tt.mixed && len(seen) > 0 {
			t.Errorf("%s: the plans contain these faults of versions: %v", tt.name, seen)
		}
	}
}
