package cluster

import (
	"testing"
	"time"
)

// A node that is removed and added again starts a new absence, even if note has
// not run in between.
func TestAbsences_AddedAgain(t *testing.T) {
	away := func(m Member) bool { return m.ID == "n3" }
	all := []Member{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}
	for what, addAgain := range map[string]func(*absences){
		"note without the node": func(a *absences) { a.note(all[:2], 8*time.Minute, away) },
		"forget":                func(a *absences) { a.forget("n3") },
	} {
		a := newAbsences()
		a.note(all, 0, away)
		if m, d := a.note(all, 7*time.Minute, away); m.ID != "n3" || d != 7*time.Minute {
			t.Fatalf("%s: %v away for %v, want n3 for 7m", what, m, d)
		}
		addAgain(a)
		if a.has("n3") {
			t.Errorf("%s: the absence before the removal is still recorded", what)
		}
		a.note(all, 9*time.Minute, away)
		if m, d := a.note(all, 10*time.Minute, away); m.ID != "n3" || d != time.Minute {
			t.Errorf("%s: %v away for %v, want n3 for 1m", what, m, d)
		}
	}
}
