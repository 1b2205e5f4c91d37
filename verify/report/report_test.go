package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/attack"
	"github.com/holdfast-kv/holdfast/verify/checker"
)

// run returns a report of two episodes. In the second one the leader changes,
// and a command fails during the change.
func run() *attack.Report {
	second := attack.EpisodeReport{
		Plan: attack.Plan{Number: 2}, Duration: 4 * time.Second, Failovers: 1, Commands: 400,
		Leaderships: []attack.Leadership{
			{Node: "n1", Term: 2, To: 1900 * time.Millisecond},
			{Node: "n3", Term: 3, From: 2100 * time.Millisecond, To: 4 * time.Second},
		},
		Holds: []checker.Hold{{Client: 1, Lock: "verify:lock:0:1", Granted: time.Second, TTL: time.Second}},
	}
	for at := time.Duration(0); at < second.Duration; at += 10 * time.Millisecond {
		s := attack.Sample{At: at, Took: time.Millisecond, Commands: 1}
		if at == 2*time.Second {
			s.Took, s.Failed = 200*time.Millisecond, true
		}
		second.Samples = append(second.Samples, s)
	}
	return &attack.Report{
		Episodes: []attack.EpisodeReport{{Plan: attack.Plan{Number: 1}, Duration: time.Second}, second},
		Classes: []attack.ClassTally{{Class: "kill -9 leader", Injected: 1, Seen: 1}, {Class: "wall clock jumps"},
			{Class: "disk full", NotRun: "needs root"}},
		Checks: []attack.Check{{Name: "locks: grants and refusals", Checked: 7}}, Faults: 1,
	}
}

func write(t *testing.T, r *attack.Report) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, r, "dev", ""); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestWrite_Order checks that the page begins with the verdict and with the
// episode in which the leader changed, and that it hides classes of faults that
// were not used.
func TestWrite_Order(t *testing.T) {
	page := write(t, run())
	at := -1
	for _, text := range []string{"All guarantees held.", "Locks over time", "Episode 2", "n1 led term 2", "n3 led term 3",
		"What was checked", "<td>kill -9 leader</td>", "<td>disk full</td>", "needs root",
		"<details><summary class=\"soft\">1 more classes", "wall clock jumps", "The other episodes", "Episode 1"} {
		i := strings.Index(page, text)
		if i <= at {
			t.Errorf("%q is at %d, want it after %d", text, i, at)
		}
		at = i
	}
	if strings.Contains(page, "<td>wall clock jumps</td>") {
		t.Error("the table lists a class of faults that was not used")
	}
	if !strings.Contains(page, "prefers-color-scheme: dark") {
		t.Error("the page has no dark mode")
	}
}

// TestWrite_ViolationFirst checks that an episode with a violation comes first,
// even if the leader did not change in that episode.
func TestWrite_ViolationFirst(t *testing.T) {
	r := run()
	r.Episodes[0].Violations = []checker.Violation{{Check: "locks", Text: "two owners"}}
	r.Violations = 1
	page := write(t, r)
	if i, j := strings.Index(page, "<h3>Episode 1"), strings.Index(page, "<h3>Episode 2"); i < 0 || i > j {
		t.Errorf("episode 1 is at %d, episode 2 at %d", i, j)
	}
}

// TestChart_Panels checks the number of time slices, the tooltip of the one
// slice with a failed command, and the labels of the panels' axes. It also
// checks that the lane of the leader has a gap while there is no leader.
func TestChart_Panels(t *testing.T) {
	r := run()
	c := draw(&r.Episodes[1])
	if len(c.Panels) != 2 || len(c.Leaders) != 2 {
		t.Fatalf("%d panels and %d leaders, want 2 and 2", len(c.Panels), len(c.Leaders))
	}
	if len(c.Columns) != 80 {
		t.Fatalf("%d columns, want 80", len(c.Columns))
	}
	failed := 0
	for _, col := range c.Columns {
		if col.Failed {
			failed++
			if want := "2.00 s: 100 commands/s, median latency 1 ms, 99th percentile 200 ms, 1 failed"; col.Tooltip != want {
				t.Errorf("got %q, want %q", col.Tooltip, want)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d columns with failed commands, want 1", failed)
	}
	labels := ""
	for _, p := range c.Panels {
		for _, l := range p.Lines {
			labels += l.Label + " "
		}
	}
	if want := "100 50 0 1 ms 10 ms 100 ms 1 s "; labels != want {
		t.Errorf("axes %q, want %q", labels, want)
	}
	if c.Leaders[0].X+c.Leaders[0].W >= c.Leaders[1].X {
		t.Error("the lane shows no time without a leader")
	}
}

// TestChart_Empty checks that a history has no panels if it has no replies or is
// shorter than one slice, and that a history without a leader has no lane.
func TestChart_Empty(t *testing.T) {
	for _, samples := range [][]attack.Sample{nil, {{At: time.Hour, Took: 1, Commands: 1}}} {
		c := draw(&attack.EpisodeReport{Duration: 30 * time.Millisecond, Samples: samples})
		if len(c.Panels) != 0 || len(c.Leaders) != 0 || c.Height < c.Bottom {
			t.Errorf("got %+v", c)
		}
	}
	write(t, &attack.Report{})
}

// TestWrite_SVG checks that the drawings of the page are well-formed XML.
func TestWrite_SVG(t *testing.T) {
	page := write(t, run())
	for rest, n := page, 0; ; n++ {
		i, j := strings.Index(rest, "<svg"), strings.Index(rest, "</svg>")
		if i < 0 {
			if n != 2 {
				t.Errorf("%d drawings, want 2", n)
			}
			return
		}
		d := xml.NewDecoder(strings.NewReader(rest[i : j+len("</svg>")]))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rest = rest[j+len("</svg>"):]
	}
}
