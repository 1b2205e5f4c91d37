package attack

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// Table prints the run: the seed, the faults injected and seen by class, the
// checks, and the violations.
func (r *Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if r.Target == nil {
		r.tableOfFaults(w)
	}
	fmt.Fprintln(w, "CHECK\tCHECKED\tVIOLATIONS\t")
	for _, c := range r.Checks {
		fmt.Fprintf(w, "%s\t%d\t%d\t\n", c.Name, c.Checked, c.Bad)
	}
	fmt.Fprintln(w, "\nFIGURE\t\t\t")
	if r.Target == nil {
		fmt.Fprintf(w, "histories with three classes of faults or more\t%d\t\t\npower cuts\t%d\t\t\npoints at which "+
			"processes killed themselves\t%d of %d\t\t\nsnapshots installed from others\t%d\t\t\nnodes that ended "+
			"because the machine's disk stalled\t%d\t\t\n", r.Histories, r.PowerCuts, len(r.Points),
			len(failpoint.All()), r.Installs, r.Stalls)
	}
	for _, f := range []struct {
		name string
		n    int
	}{
		{"failovers", r.Failovers},
		{"commands", r.Commands}, {"checked", r.Checked}, {"lock grants", r.Grants},
		{"of them ended by expiry", r.Expired},
		{"violations", r.Violations}, {"episodes that could not be completed", r.Failures},
	} {
		fmt.Fprintf(w, "%s\t%d\t\t\n", f.name, f.n)
	}
	if r.Controls > 0 {
		fmt.Fprintf(w, "controls caught\t%d of %d\t\t\n", r.Caught, r.Controls)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, ep := range r.Episodes {
		if ep.Plan.Control != "" {
			continue
		}
		for _, v := range ep.Violations {
			where := ""
			if ep.Plan.Number > 0 {
				where = fmt.Sprintf(" in episode %d", ep.Plan.Number)
			}
			fmt.Fprintf(out, "VIOLATION%s: %v\n", where, v)
		}
		if ep.Failure != "" {
			fmt.Fprintf(out, "NOT COMPLETED: episode %d: %s\n", ep.Plan.Number, ep.Failure)
		}
		if ep.Evidence != "" && (len(ep.Violations) > 0 || ep.Failure != "") {
			fmt.Fprintf(out, "  plan, history, logs and data: %s\n", ep.Evidence)
		}
	}
	return nil
}

// tableOfFaults prints how often faults of each class were injected and seen. If
// some of them were not seen, or if none could be injected, it also prints the
// last reason. It prints only the number of the classes that were not drawn.
func (r *Report) tableOfFaults(w io.Writer) {
	fmt.Fprintf(w, "seed %d, %d episodes in %v\n\n", r.Seed, len(r.Episodes)-r.Controls, r.Took.Round(time.Second))
	fmt.Fprintln(w, "FAULT\tINJECTED\tSEEN\tNOT RUN")
	injected, unused := 0, 0
	for _, c := range r.Classes {
		note := ""
		switch {
		case !c.Used():
			unused++
			continue
		case c.Seen < c.Injected:
			note = fmt.Sprintf("%d: %s", c.Injected-c.Seen, c.NotRun)
		case c.Injected == 0:
			note = c.NotRun
		}
		injected += c.Injected
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", c.Class, c.Injected, c.Seen, note)
	}
	fmt.Fprintf(w, "all\t%d\t%d\t\n\n", injected, r.Faults)
	if unused > 0 {
		fmt.Fprintf(w, "%d of %d classes of faults were not drawn in this run\n\n", unused, len(r.Classes))
	}
}
