package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestComposeFile_NamesFlagsThatExist(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Ports       []string
			Volumes     []string
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../deploy/compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	if got, want := len(file.Services), 3; got != want {
		t.Fatalf("%d services, want %d", got, want)
	}
	for name, s := range file.Services {
		checkCommandLine(t, name, s.Command)
		for v := range s.Environment {
			checkVariable(t, name, v)
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := file.Volumes[volume]; !ok {
				t.Errorf("%s: volume %s is not declared", name, volume)
			}
		}
		if i := slices.Index(s.Command, "--node-id"); i < 0 || s.Command[i+1] != name ||
			!strings.Contains(s.Environment["HOLDFAST_PEERS"], name+"="+name+":7379") {
			t.Errorf("%s: node id and peers do not agree with the service's name", name)
		}
	}
}

func TestDockerfile_NamesFlagsThatExist(t *testing.T) {
	text := read(t, "../../deploy/Dockerfile")
	for _, name := range regexp.MustCompile(`HOLDFAST_[A-Z_]+`).FindAllString(text, -1) {
		checkVariable(t, "Dockerfile", name)
	}
	for _, line := range regexp.MustCompile(`(?m)CMD (\[.*\])$`).FindAllStringSubmatch(text, -1) {
		var words []string
		if err := json.Unmarshal([]byte(line[1]), &words); err != nil {
			t.Fatalf("%s: %v", line[1], err)
		}
		if words[0] == "/holdfast" {
			words = words[1:]
		}
		checkCommandLine(t, "Dockerfile", words)
	}
}

func TestUnit_NamesFlagsThatExist(t *testing.T) {
	unit := read(t, "../../deploy/systemd/holdfast.service")
	line := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)
	if line == nil {
		t.Fatal("no ExecStart")
	}
	checkCommandLine(t, "holdfast.service", strings.Fields(line[1])[1:])
	env := read(t, "../../deploy/systemd/holdfast.env")
	for _, m := range regexp.MustCompile(`(?m)^(?:# )?(\w+)=`).FindAllStringSubmatch(env, -1) {
		checkVariable(t, "holdfast.env", m[1])
	}
}

var (
	metricWord  = regexp.MustCompile(`\b(?:up|(?:holdfast|process|go)_[a-z0-9_]+)\b`)
	ourMetric   = regexp.MustCompile(`\bholdfast_[a-z0-9_]+\b`)
	partOfHisto = regexp.MustCompile(`_(bucket|sum|count)$`)
)

func TestDashboardAndAlerts_NameMetricsThatExist(t *testing.T) {
	known := append([]string{"up"}, metrics(t)...) // up is a metric of Prometheus itself
	check := func(where, expr string) {
		t.Helper()
		names := metricWord.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s: no metric in %q", where, expr)
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				t.Errorf("%s: the program has no metric %s", where, name)
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../../deploy/grafana/holdfast.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			check("dashboard, "+p.Title, target.Expr)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../deploy/prometheus/alerts.yml")), &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			check("alert "+r.Alert, r.Expr)
		}
	}
	if len(dashboard.Panels) == 0 || len(rules.Groups) == 0 {
		t.Errorf("%d panels, %d groups of rules: want some of both", len(dashboard.Panels), len(rules.Groups))
	}
}

// TestOperationsPage_IsComplete checks that the page for operators lists
// exactly the metrics and the flags of the program.
func TestOperationsPage_IsComplete(t *testing.T) {
	page := read(t, "../../docs/operations.md")
	var ours []string
	for _, name := range metrics(t) {
		if strings.HasPrefix(name, "holdfast_") && !partOfHisto.MatchString(name) {
			ours = append(ours, name)
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("the page does not explain metric %s", name)
			}
		}
	}
	for _, name := range ourMetric.FindAllString(page, -1) {
		if !slices.Contains(ours, name) {
			t.Errorf("the page explains %s, which the program does not have", name)
		}
	}
	for _, name := range flags(t, "serve") {
		if name != "help" && !strings.Contains(page, "`--"+name+"`") {
			t.Errorf("the page does not explain flag --%s of serve", name)
		}
	}
}
