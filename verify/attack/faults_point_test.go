package attack

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestPoints_AreSurvived tests every failpoint on the real program. A node ends
// at the failpoint, under load, and comes back as a voter. Then all checkers
// run, as in make chaos. A failpoint that no process reached fails the test.
func TestPoints_AreSurvived(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some hundred processes")
	}
	dir := t.TempDir()
	program, err := process.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	todo := failpoint.All()
	for i, tt := range []struct {
		store  string
		points []string
	}{
		{"boltdb", []string{"member-proposed:1", "member-changed:2", "member-changed:3", "install-uncut:1", "suffix-uncut:1", "vote-written:1",
			"entry-open:5", "entry-open:20", "append-synced:9"}},
		{"wal", []string{"append-torn:9", "append-written:20", "group-sent:30", "reply-received:30", "entry-proposed:5", "entry-durable:5",
			"entry-applied:5", "transfer-begun:1", "leadership-unopened:1"}},
		{"wal", []string{"vote-written:2", "term-written:2", "snapshot-torn:1", "snapshot-named:1", "segment-unlisted:1", "vote-unwritten:2",
			"segment-undeleted:2", "install-uncut:1", "suffix-uncut:1"}},
		{"wal", []string{"file-unnamed:1", "file-unnamed:2", "file-unnamed:3", "file-unnamed:4", "file-unnamed:5", "join-noted:1", "join-answered:1",
			"joined-noted:1", "append-synced:9"}},
	} {
		p := Plan{Number: i + 1, Seed: uint64(i), Nodes: 3, LogStore: tt.store, Snapshot: 32 << 10, Trailing: 4 << 10, Segment: 32 << 10, Points: tt.points}
		p.Forms = fmt.Sprintf("%s:%d", failpoint.FormConfirmed, 1+i%2)
		for range len(p.Points) / pointsPerFault {
			p.Steps = append(p.Steps, []string{killAtPoint})
		}
		todo = slices.DeleteFunc(todo, func(name string) bool {
			return slices.ContainsFunc(append(tt.points, p.Forms), func(spec string) bool { return pointOf(spec) == name })
		})
		t.Run(fmt.Sprintf("%d %s", p.Number, tt.store), func(t *testing.T) {
			t.Parallel()
			playPoints(t, program, p)
		})
	}
	if len(todo) > 0 {
		t.Errorf("no plan of this test contains the failpoints %s", strings.Join(todo, ", "))
	}
}

// playPoints plays an episode in which no failpoint and no check may be left
// out.
func playPoints(t *testing.T, program string, p Plan) {
	cfg := DefaultConfig()
	cfg.Program, cfg.Traffic = program, 100
	e := &episode{cfg: cfg, plan: p, dir: filepath.Join(t.TempDir(), "episode")}
	rep, err := e.play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, ev := range rep.Events {
		seen = append(seen, ev.Points...)
		t.Logf("%v to %v: %s%s", ev.From, ev.To, ev.Seen, ev.NotRun)
	}
	for _, spec := range append(p.Points, p.Forms) {
		if !slices.Contains(seen, spec) {
			t.Errorf("no process killed itself at %s", spec)
		}
	}
	for _, v := range rep.Violations {
		t.Errorf("violation: %v", v)
	}
	if rep.Failure != "" {
		t.Errorf("not completed: %s", rep.Failure)
	}
	for _, c := range rep.Checks {
		if c.Checked == 0 {
			t.Errorf("%s: nothing checked", c.Name)
		}
	}
	t.Log(rep.line())
	if t.Failed() {
		keepEvidence(t, rep.Evidence)
	}
}

// keepEvidence copies the directory of an episode to a directory that is kept
// after the test.
func keepEvidence(t *testing.T, dir string) {
	if dir == "" {
		return
	}
	kept, err := os.MkdirTemp("", "holdfast-points-")
	if err == nil {
		err = copyDir(dir, filepath.Join(kept, "episode"))
	}
	if err != nil {
		t.Errorf("keep evidence: %v", err)
	}
	t.Logf("logs and data: %s", kept)
}

// TestPoints_AreReported checks that the report names the failpoints that
// processes reached, and that the table counts them.
func TestPoints_AreReported(t *testing.T) {
	faults, err := choose([]string{killAtPoint})
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Episodes: []EpisodeReport{{Events: []Event{
		{Class: killAtPoint, Seen: "n1", Points: []string{"append-torn:9", "vote-written:1", "append-torn:2"}},
		{Class: killAtPoint, NotRun: "n1 did not reach it"},
	}}}}
	r.sum(Config{}, faults)
	if want := map[string]int{"append-torn": 2, "vote-written": 1}; !maps.Equal(r.Points, want) {
		t.Errorf("points %v, want %v", r.Points, want)
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`(?m)^kill at a point +2 +1 +1: n1 did not reach it$`, fmt.Sprintf(`(?m)^points at which .* 2 of %d `, len(failpoint.All()))} {
		if !regexp.MustCompile(line).MatchString(table.String()) {
			t.Errorf("no line %s in\n%s", line, &table)
		}
	}
}

// TestPoints_AreChosen checks that the plans choose every failpoint, and that the
// cluster of each plan can reach its failpoints.
func TestPoints_AreChosen(t *testing.T) {
	faults, err := choose([]string{killAtPoint})
	if err != nil {
		t.Fatal(err)
	}
	chosen := make(map[string]int)
	for _, p := range plans(7, 60, faults) {
		if want := len(p.Steps) * pointsPerFault; len(p.Points) != want {
			t.Fatalf("%d failpoints for %d steps, want %d", len(p.Points), len(p.Steps), want)
		}
		for _, spec := range p.Points {
			w, ok := ways[pointOf(spec)]
			if !ok || w.fits != nil && !w.fits(p) {
				t.Errorf("failpoint %s is chosen for a plan that cannot reach it: %v", spec, p)
			}
			chosen[pointOf(spec)]++
		}
		if p.Forms != "" {
			chosen[pointOf(p.Forms)]++
		}
	}
	all := failpoint.All()
	slices.Sort(all)
	if got := slices.Sorted(maps.Keys(chosen)); !slices.Equal(got, all) {
		t.Errorf("the plans chose the failpoints %s, want %s", strings.Join(got, ", "), strings.Join(all, ", "))
	}
}
