package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
)

// TestControls wants every mistake found that can be put into the product, and
// nothing found in the same schedules without it.
func TestControls(t *testing.T) {
	if !seeded.Possible {
		t.Skip("built without -tags seededbug: make controls")
	}
	if *serveFlag {
		t.Skip("this is a process of a fleet")
	}
	begun := time.Now()
	fmt.Printf("%-20s %-9s %-9s %s\n", "mistake", "histories", "control", "found by")
	for _, c := range Controls() {
		var ran []*Schedule
		var found []string
		err := fleet(bugVariable+"="+c.Bug).Run(c.Plans, func(r *Result) bool {
			ran = append(ran, r.Schedule)
			if len(found) == 0 {
				found = r.Violations
			}
			return len(found) > 0
		})
		if err != nil {
			t.Fatal(err)
		}
		clean := 0
		if err := fleet(bugVariable+"=").Run(ran, func(r *Result) bool {
			if len(r.Violations) > 0 {
				t.Errorf("%s: without it the schedule of seed %d fails too:\n%v\n%s", c.Bug, r.Schedule.Seed, r.Schedule, strings.Join(r.Violations, "\n"))
				return true
			}
			clean++
			return false
		}); err != nil {
			t.Fatal(err)
		}
		by := "NOT FOUND"
		if len(found) > 0 {
			by, _, _ = strings.Cut(found[0], "\n")
			by = by[:min(len(by), 150)]
		} else {
			t.Errorf("%s was not found in %d histories", c.Bug, len(ran))
		}
		fmt.Printf("%-20s %-9d %-9s %s\n", c.Bug, len(ran), fmt.Sprintf("%d clean", clean), by)
	}
	fmt.Printf("controls: %d mistakes in %.0f s\n", len(seeded.All()), time.Since(begun).Seconds())
}

// bugVariable is seeded.Variable, which only exists in a build with the tag.
const bugVariable = "HOLDFAST_SEEDED_BUG"
