package member

import (
	"testing"
	"time"
)

// A node that is removed and added again starts a new absence if, in between,
// Note was called without the node, or Forget was called.
func TestAbsences_AddedAgain(t *testing.T) {
	away := func(m Member) bool { return m.ID == "n3" }
	all := []Member{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}
	for what, addAgain := range map[string]func(*Absences){
		"note without the node": func(a *Absences) { a.Note(all[:2], 8*time.Minute, away) },
		"forget":                func(a *Absences) { a.Forget("n3") },
	} {
		a := NewAbsences()
		a.Note(all, 0, away)
		if m, d := a.Note(all, 7*time.Minute, away); m.ID != "n3" || d != 7*time.Minute {
			t.Fatalf("%s: the longest absence is that of %v, for %v; want n3 for 7m", what, m, d)
		}
		addAgain(a)
		if a.Has("n3") {
			t.Errorf("%s: the absence before the removal is still recorded", what)
		}
		a.Note(all, 9*time.Minute, away)
		if m, d := a.Note(all, 10*time.Minute, away); m.ID != "n3" || d != time.Minute {
			t.Errorf("%s: the longest absence is that of %v, for %v; want n3 for 1m", what, m, d)
		}
	}
}
