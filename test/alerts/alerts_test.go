package alerts

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// alertCase makes an alert fire.
type alertCase struct {
	alert string
	// series are in the notation of promtool's tests, with one value every
	// 15 s. NODE stands for the labels job and instance of n1.
	series []string
	quiet  time.Duration // time at which the alert must not fire yet
	fires  time.Duration // time at which the alert must fire
	labels string        // labels that the alert must have when it fires
}

var alertCases = []alertCase{
	{"HoldfastNodeDown", []string{"up{NODE} 1x4 0x10"}, 75 * time.Second, 105 * time.Second, `instance="n1"`},
	{"HoldfastNoLeader", []string{"holdfast_is_leader{NODE} 1x4 0x10"}, time.Minute, 90 * time.Second, ``},
	{"HoldfastNodeNotReady", []string{"holdfast_ready{NODE} 1x4 0x10"}, 75 * time.Second, 2 * time.Minute,
		`instance="n1"`},
	{"HoldfastLeaderChanges", []string{"holdfast_leaderships_total{NODE} 1x20 2+1x20"}, 5 * time.Minute,
		9 * time.Minute, ``},
	{"HoldfastFollowerLags", []string{"holdfast_raft_commit_index{NODE} 0+5000x20",
		`holdfast_raft_applied_index{NODE} 0+5000x20`,
		`holdfast_raft_applied_index{job="holdfast", instance="n2"} 0x20`}, time.Minute, 3 * time.Minute,
		`instance="n2"`},
	{"HoldfastSlowDisk", []string{`holdfast_disk_write_seconds_bucket{NODE, op="append", le="0.1"} 0+95x60`,
		`holdfast_disk_write_seconds_bucket{NODE, op="append", le="0.2"} 0+100x60`,
		`holdfast_disk_write_seconds_bucket{NODE, op="append", le="+Inf"} 0+100x60`}, 5 * time.Minute, 6 * time.Minute,
		`instance="n1"`},
	{"HoldfastSlowEntries", []string{"holdfast_apply_slow_entries_total{NODE} 0+1x60"}, 5 * time.Minute,
		8 * time.Minute, `instance="n1"`},
	{"HoldfastDiskAlmostFull",
		[]string{"holdfast_disk_free_bytes{NODE} 9x4 3x10", "holdfast_disk_reserve_bytes{NODE} 2x14"},
		90 * time.Second, 150 * time.Second, `instance="n1"`},
	{"HoldfastDiskRefusesWrites", []string{"holdfast_disk_writes_refused{NODE} 0x4 1x4"}, time.Minute, 75 * time.Second,
		`instance="n1"`},
	{"HoldfastDataSetAlmostFull", []string{"holdfast_dataset_bytes{NODE} 50x4 95x10",
		"holdfast_maxmemory_bytes{NODE} 100x14", "holdfast_is_leader{NODE} 1x14"}, time.Minute, 150 * time.Second, `instance="n1"`},
	{"HoldfastDataSetFull", []string{"holdfast_maxmemory_refused_total{NODE} 0x4 1x10"}, time.Minute, 75 * time.Second,
		`instance="n1"`},
	{"HoldfastSnapshotFails", []string{"holdfast_snapshot_failures_total{NODE} 0x4 1x10"}, time.Minute,
		75 * time.Second, `instance="n1"`},
	{"HoldfastUnknownOutcomes", []string{"holdfast_forwarder_unknown_total{NODE} 0x4 3x10"}, time.Minute,
		75 * time.Second, `instance="n1"`},
	{"HoldfastMemberUnreachable", []string{"holdfast_is_leader{NODE} 1x20",
		`holdfast_is_leader{job="holdfast", instance="n3"} 0x20`,
		`holdfast_member_reachable{NODE, node="n2"} 1x4 0x16`,
		`holdfast_member_reachable{NODE, node="n3"} 1x20`,
		// The alert ignores the metric of a node that does not lead.
		`holdfast_member_reachable{job="holdfast", instance="n3", node="n1"} 0x20`,
	}, 90 * time.Second, 150 * time.Second, `node="n2"`},
	{"HoldfastClockSkew", []string{"holdfast_wall_clock_seconds{NODE} 1000+15x30",
		`holdfast_wall_clock_seconds{job="holdfast", instance="n2"} 1002+15x4 1090+15x20`}, 2 * time.Minute,
		4 * time.Minute, ``},
	{"HoldfastLocksExpire", []string{`holdfast_locks_ended_total{NODE, how="expired"} 0+1x60`,
		`holdfast_locks_ended_total{NODE, how="released"} 0+2x60`}, 5 * time.Minute, 9 * time.Minute, ``},
	{"HoldfastLockHistoryGaps", []string{"holdfast_lock_history_gaps_total{NODE} 0x4 1x10"}, time.Minute,
		75 * time.Second, `instance="n1"`},
	{"HoldfastFeatureVersionBlocked", []string{`holdfast_feature_version_blocked{NODE, node="n2"} 0x4 1x300`},
		time.Hour, 62 * time.Minute, `node="n2"`},
	{"HoldfastLoginsFail", []string{"holdfast_client_auth_failures_total{NODE} 0x4 0+30x60"}, 5 * time.Minute,
		9 * time.Minute, `instance="n1"`},
	{"HoldfastCertificateExpires", []string{
		`holdfast_tls_certificate_expiry_timestamp_seconds{NODE, port="clients"} 1209900x60`,
		`holdfast_tls_certificate_expiry_timestamp_seconds{NODE, port="peers"} 9999999x60`,
	}, 4 * time.Minute, 6 * time.Minute, `instance="n1"`},
	{"HoldfastClientPanics", []string{"holdfast_client_panics_total{NODE} 0x4 1x10"}, time.Minute, 75 * time.Second,
		`instance="n1"`},
}

// TestAlerts_Fire checks that each alert does not fire yet at the time
// alertCase.quiet, and fires at the time alertCase.fires.
func TestAlerts_Fire(t *testing.T) {
	all := rules(t)
	for _, c := range alertCases {
		t.Run(c.alert, func(t *testing.T) {
			r, known := all[c.alert]
			if !known {
				t.Fatal("no rule has this name")
			}
			delete(all, c.alert)
			s := newSeries()
			for _, line := range c.series {
				s.load(t, strings.Replace(line, "NODE", `job="holdfast", instance="n1"`, 1))
			}
			if early := firing(t, s, r, c.quiet); len(early) > 0 {
				t.Errorf("%v fires after %v", early, c.quiet)
			}
			found := firing(t, s, r, c.fires)
			if len(found) != 1 || !strings.Contains(found[0].String(), c.labels) {
				t.Errorf("after %v, %v fires, want one with %s", c.fires, found, c.labels)
			}
		})
	}
	for name := range maps.Keys(all) {
		t.Errorf("no test case makes %s fire", name)
	}
}

// TestAlerts_NoLeaderWithoutNodes checks that the alert HoldfastNoLeader also
// fires if Prometheus gets no metrics at all.
func TestAlerts_NoLeaderWithoutNodes(t *testing.T) {
	if found := firing(t, newSeries(), rules(t)["HoldfastNoLeader"], time.Minute); len(found) != 1 {
		t.Errorf("%v fires, want one alert", found)
	}
}

// TestAlerts_HaveRunbooks checks that each alert has a summary, a severity, and a
// link to a section of docs/operations.md that exists.
func TestAlerts_HaveRunbooks(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	const link = "https://github.com/holdfast-kv/holdfast/blob/main/docs/operations.md#"
	headings := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(string(page), -1) {
		headings[strings.ToLower(strings.ReplaceAll(m[1], " ", "-"))] = true
	}
	for name, r := range rules(t) {
		anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], link)
		if !ok || !headings[anchor] {
			t.Errorf("%s: the runbook %q is not a section of docs/operations.md", name, r.Annotations["runbook_url"])
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", name)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", name, r.Labels["severity"])
		}
	}
}
