package sim

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Report is the sum of the results of a run.
type Report struct {
	Histories int            `json:"histories"`
	Virtual   time.Duration  `json:"virtual_ns"`
	Real      time.Duration  `json:"real_ns"` // duration of the whole run
	Injected  map[string]int `json:"injected"`
	Seen      map[string]int `json:"seen"`
	NotRun    map[string]int `json:"not_run"` // faults that were injected and had no effect
	Outcomes  map[string]int `json:"outcomes"`
	Exits     map[string]int `json:"exits"`
	Checks    map[string]int `json:"checks"`
	Failovers int            `json:"failovers"`
	Ops       int            `json:"ops"`
	Grants    int            `json:"grants"`
	Expired   int            `json:"expired"`
	Keys      int            `json:"keys"`
	Failed    []Failure      `json:"failed,omitempty"`
}

// Failure is a history with violations.
type Failure struct {
	Seed       uint64    `json:"seed"`
	Violations []string  `json:"violations"`
	Schedule   *Schedule `json:"schedule"`
}

// NewReport returns an empty report.
func NewReport() *Report {
	r := &Report{}
	for _, m := range []*map[string]int{&r.Injected, &r.Seen, &r.NotRun, &r.Outcomes, &r.Exits, &r.Checks} {
		*m = make(map[string]int)
	}
	return r
}

// Add adds the result of a history.
func (r *Report) Add(h *Result) {
	r.Histories++
	r.Virtual += h.Virtual
	for _, sum := range []struct{ to, from map[string]int }{
		{r.Injected, h.Injected}, {r.Seen, h.Seen}, {r.Outcomes, h.Outcomes}, {r.Exits, h.Exits}, {r.Checks, h.Checks},
	} {
		for k, n := range sum.from {
			sum.to[k] += n
		}
	}
	for k, n := range h.Injected {
		if miss := n - h.Seen[k]; miss > 0 {
			r.NotRun[k] += miss
		}
	}
	r.Failovers += h.Failovers
	r.Ops += h.Ops
	r.Grants += h.Grants
	r.Expired += h.Expired
	r.Keys += h.Keys
	if len(h.Violations) > 0 {
		r.Failed = append(r.Failed, Failure{h.Schedule.Seed, h.Violations, h.Schedule})
	}
}

func total(m map[string]int) int {
	n := 0
	for _, k := range m {
		n += k
	}
	return n
}

// Violations returns the number of violations in all histories.
func (r *Report) Violations() int {
	n := 0
	for _, f := range r.Failed {
		n += len(f.Violations)
	}
	return n
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("%-30s %8s %8s %8s", "fault", "injected", "seen", "NOT RUN")
	for _, k := range Kinds() {
		if r.Injected[k] == 0 {
			line("%-30s %8s %8s %8s", k, "-", "-", "NOT RUN")
			continue
		}
		line("%-30s %8d %8d %8d", k, r.Injected[k], r.Seen[k], r.NotRun[k])
	}
	for _, m := range []struct {
		what string
		of   map[string]int
	}{{"checked", r.Checks}, {"outcome", r.Outcomes}, {"exit", r.Exits}} {
		var keys []string
		for k := range m.of {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			line("%-8s %-30s %10d", m.what, k, m.of[k])
		}
	}
	verdict := "ok"
	if len(r.Failed) > 0 {
		verdict = "FAILED"
	}
	line("sim: %s: %d seeds, %.1f virtual hours in %.0f s (×%.0f), %d faults injected, %d seen, %d failovers, %d "+
		"operations, %d lock grants (%d ended by expiry), %d states compared, %d violations",
		verdict, r.Histories, r.Virtual.Hours(), r.Real.Seconds(), r.Virtual.Seconds()/max(r.Real.Seconds(), 1),
		total(r.Injected), total(r.Seen),
		r.Failovers, r.Ops, r.Grants, r.Expired, r.Checks["replica equality"], r.Violations())
}
