package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const metricsPage = "../../docs/metrics.md"

// TestMetrics_FollowConventions checks the names, the types and the help texts
// of our metrics with the linter of Prometheus.
func TestMetrics_FollowConventions(t *testing.T) {
	var ours []*dto.MetricFamily
	for name, f := range families(t) {
		if strings.HasPrefix(name, "holdfast_") {
			ours = append(ours, f)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(ours).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if len(ours) < 80 {
		t.Errorf("%d metrics", len(ours))
	}
}

const metricsHead = `# Metrics

<!-- Made by "make docs" from a running node. Do not edit this page: change the
help texts of the metrics. -->

Every node serves these metrics at the path ` + "`/metrics`" + ` of its HTTP port, in the
format of Prometheus. The alert rules in ` + "`deploy/prometheus/alerts.yml`" + ` and the
dashboard in ` + "`deploy/grafana/holdfast.json`" + ` use them: see
[monitor.md](monitor.md#prometheus). The names and their meaning are supported:
a release that changes one says so in its notes.

"This node" is the node that serves the metric. Times are in seconds and sizes
in bytes. Counters start at 0 when the process starts.
`

// metricGroup is a section of the page.
type metricGroup struct {
	title, text string
	prefixes    []string // how the names of the section's metrics begin, after "holdfast_"
}

// has reports whether a metric belongs to the section.
func (g metricGroup) has(name string) bool {
	return slices.ContainsFunc(g.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// metricGroups are the sections of the page. A metric belongs to the first
// section whose prefixes match its name.
var metricGroups = []metricGroup{
	{"Locks", "Only the node that leads counts grants, refusals and ends of locks, so add up\nthe values of all nodes.",
		[]string{"lock_w", "lock_hold", "locks_"}},
	{"History of locks", "See [locks.md](locks.md#history).", []string{"lock_history"}},
	{"Cluster and leadership", "", []string{
		"is_leader", "ready", "leaderships", "member_", "voters", "raft_", "feature_", "build_", "quarantine",
		"sessions",
	}},
	{"Clocks", "See [Time](architecture.md#time) for the lease clock.", []string{"lease_", "wall_"}},
	{"Log and snapshots", "", []string{"log_", "snapshot", "disk_", "proposer_", "apply_", "logged_"}},
	{"Data", "", []string{"keys", "expired_", "dataset_", "maxmemory", "duplicate_"}},
	{"Commands", "", []string{"command", "errors_", "forwarder_", "read_", "writes_refused", "slow_", "script"}},
	{"Clients", "", []string{"client", "blocked_", "limit", "tls_"}},
	{"Messages and client-side caching", "", []string{"pubsub_", "tracking_", "events_"}},
}

// TestMetricsPage_IsCurrent compares docs/metrics.md with the metrics of a node,
// or writes it with -update.
func TestMetricsPage_IsCurrent(t *testing.T) {
	all := families(t)
	sections := make([][]string, len(metricGroups))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		short, ours := strings.CutPrefix(name, "holdfast_")
		if !ours {
			continue
		}
		i := slices.IndexFunc(metricGroups, func(g metricGroup) bool { return g.has(short) })
		if i < 0 {
			t.Errorf("no section of the page is for %s", name)
			continue
		}
		sections[i] = append(sections[i], name)
	}
	var page bytes.Buffer
	page.WriteString(metricsHead)
	for i, g := range metricGroups {
		fmt.Fprintf(&page, "\n## %s\n", g.title)
		if g.text != "" {
			fmt.Fprintf(&page, "\n%s\n", g.text)
		}
		page.WriteString("\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
		for _, name := range sections[i] {
			writeMetric(&page, all[name])
		}
	}
	page.WriteString("\nThe endpoint also has the metrics of the Go runtime and of the process (`go_…`,\n" +
		"`process_…`), and `promhttp_metric_handler_errors_total`.\n")
	if *update {
		if err := os.WriteFile(metricsPage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, metricsPage); got != page.String() {
		t.Error("docs/metrics.md differs from the metrics of the program: run make docs")
	}
}

func writeMetric(page *bytes.Buffer, f *dto.MetricFamily) {
	labels := make(map[string]bool)
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			labels["`"+l.GetName()+"`"] = true
		}
	}
	fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()),
		strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f.GetHelp())
}
