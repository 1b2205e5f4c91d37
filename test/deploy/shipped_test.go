package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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
	file := readCompose(t, "compose.yml")
	nodes := 0
	for name, s := range file.Services {
		checkVolumes(t, name, s.Volumes, file.Volumes)
		if s.Profiles != nil {
			continue // not a node
		}
		nodes++
		checkCommandLine(t, name, s.Command)
		for v := range s.Environment {
			checkVariable(t, name, v)
		}
		if i := slices.Index(s.Command, "--node-id"); i < 0 || s.Command[i+1] != name ||
			!strings.Contains(s.Environment["HOLDFAST_PEERS"], name+"="+name+":7379") {
			t.Errorf("%s: node id and peers do not agree with the service's name", name)
		}
	}
	if nodes != 3 {
		t.Errorf("%d nodes, want 3", nodes)
	}
	for name, s := range readCompose(t, "compose.tls.yml").Services {
		for v, value := range s.Environment {
			checkVariable(t, name, v)
			if strings.HasPrefix(value, "/tls/n") && !strings.HasPrefix(value, "/tls/"+name+".") {
				t.Errorf("%s: %s is %s, the file of another node", name, v, value)
			}
		}
		if len(s.Environment) < 3 || len(s.Volumes) != 1 || file.Services[name].Command == nil {
			t.Errorf("%s of compose.tls.yml: %+v", name, s)
		}
	}
}

// composeFile is the part of a Compose file that the tests check.
type composeFile struct {
	Services map[string]struct {
		Command     []string
		Environment map[string]string
		Volumes     []string
		Profiles    []string
	}
	Volumes map[string]any
}

func readCompose(t *testing.T, name string) (file composeFile) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, "../../deploy/"+name)), &file); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return file
}

// checkVolumes reports volumes that are not declared, and mounted files and
// directories that do not exist.
func checkVolumes(t *testing.T, service string, mounts []string, declared map[string]any) {
	t.Helper()
	for _, m := range mounts {
		source, _, _ := strings.Cut(m, ":")
		if strings.HasPrefix(source, "./") {
			if _, err := os.Stat("../../deploy/" + source); err != nil {
				t.Errorf("%s: %v", service, err)
			}
		} else if _, ok := declared[source]; !ok {
			t.Errorf("%s: volume %s is not declared", service, source)
		}
	}
}

// TestPrometheus_ScrapesTheNodes checks the shipped configuration of
// Prometheus. Its job must be the job of the alert rules, and its targets must
// be the nodes of compose.yml.
func TestPrometheus_ScrapesTheNodes(t *testing.T) {
	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string                       `yaml:"job_name"`
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../deploy/prometheus/prometheus.yml")), &config); err != nil {
		t.Fatal(err)
	}
	if got := config.RuleFiles; !slices.Equal(got, []string{"/etc/prometheus/alerts.yml"}) {
		t.Errorf("rule files %v", got)
	}
	if len(config.ScrapeConfigs) != 1 || config.ScrapeConfigs[0].JobName != "holdfast" {
		t.Fatalf("jobs %+v, want one with the name holdfast", config.ScrapeConfigs)
	}
	file := readCompose(t, "compose.yml")
	for _, target := range config.ScrapeConfigs[0].StaticConfigs[0].Targets {
		host, port, _ := strings.Cut(target, ":")
		if file.Services[host].Command == nil || port != "8379" {
			t.Errorf("target %s is not the HTTP port of a node of compose.yml", target)
		}
	}
}

// TestCompose_AcceptsTheFiles lets docker-compose read the files, if it is
// installed.
func TestCompose_AcceptsTheFiles(t *testing.T) {
	command, err := exec.LookPath("docker-compose")
	if err != nil {
		t.Skip("docker-compose is not installed")
	}
	out := run(t, time.Minute, command, "-f", "../../deploy/compose.yml", "-f", "../../deploy/compose.tls.yml",
		"--profile", "monitoring", "config")
	for _, want := range []string{"HOLDFAST_TLS_CERT_FILE: /tls/n3.pem", "HOLDFAST_PEERS: n1=n1:7379", "grafana:"} {
		if !strings.Contains(out, want) {
			t.Errorf("the merged file does not contain %q:\n%s", want, out)
		}
	}
}

// TestCertificates_NameTheNodes verifies the certificates that
// deploy/tls/certificates makes, as clients and nodes verify them.
func TestCertificates_NameTheNodes(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	for range 2 { // the second run renews the certificates, with the same authority
		run(t, time.Minute, "../../deploy/tls/certificates", dir, "n1,n1.example.org,10.0.0.1", "n2")
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM([]byte(read(t, dir+"/files/ca.pem"))) {
		t.Fatal("no authority")
	}
	for node, names := range map[string][]string{
		"n1": {"n1", "n1.example.org", "10.0.0.1", "localhost", "127.0.0.1"}, "n2": {"n2", "127.0.0.1"},
	} {
		pair, err := tls.LoadX509KeyPair(dir+"/files/"+node+".pem", dir+"/files/"+node+".key")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				o := x509.VerifyOptions{DNSName: name, Roots: authority, KeyUsages: []x509.ExtKeyUsage{usage}}
				if _, err := pair.Leaf.Verify(o); err != nil {
					t.Errorf("%s as %s: %v", node, name, err)
				}
			}
		}
	}
}

// TestPackage_InstallsWhatExists checks the example configuration file with
// "config check". It also checks that the files that nfpm.yaml packs exist,
// that the scripts have a valid syntax, and that the package installs the files
// that the unit names.
func TestPackage_InstallsWhatExists(t *testing.T) {
	out := run(t, 20*time.Second, holdfast(t), "config", "check", "../../deploy/package/holdfast.yaml")
	if !strings.Contains(out, "no error") {
		t.Errorf("config check: %s", out)
	}
	var config struct {
		Scripts   map[string]string
		Contents  []struct{ Src, Dst string }
		Overrides map[string]struct{ Depends []string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../deploy/package/nfpm.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	installed := make(map[string]bool)
	for _, c := range config.Contents {
		installed[c.Dst] = true
		if _, err := os.Stat("../../" + c.Src); err != nil && !strings.HasPrefix(c.Src, "${STAGE}/") {
			t.Error(err)
		}
	}
	// rpm does not detect the programs that the scripts need.
	if got := config.Overrides["rpm"].Depends; !slices.Contains(got, "/bin/sh") ||
		!slices.Contains(got, "(systemd or shadow-utils)") {
		t.Errorf("the .rpm depends on %q", got)
	}
	for _, path := range config.Scripts {
		run(t, 10*time.Second, "sh", "-n", "../../"+path)
	}
	unit := read(t, "../../deploy/systemd/holdfast.service")
	paths := regexp.MustCompile(`(?m)^ExecStart=(\S+) serve --config (\S+)$`).FindStringSubmatch(unit)
	if paths == nil {
		t.Fatalf("the unit has no command line with --config:\n%s", unit)
	}
	for _, path := range paths[1:] {
		if !installed[path] {
			t.Errorf("the unit names %s, which the package does not install", path)
		}
	}
	if len(installed) < 8 || len(config.Scripts) != 3 {
		t.Errorf("%d files and %d scripts", len(installed), len(config.Scripts))
	}
}

// TestPackage_WithoutSettings runs postinstall.sh on a machine whose operator
// has deleted holdfast.yaml, for example because the unit names another file.
// dpkg does not restore such a file. If the script failed, dpkg would leave the
// package half-configured.
func TestPackage_WithoutSettings(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"bin", "etc/holdfast", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The script must not run the real programs: they would change this
	// machine, or need a user that it does not have.
	for _, name := range []string{"getent", "chgrp", "install", "systemctl"} {
		if err := os.WriteFile(filepath.Join(root, "bin", name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := read(t, "../../deploy/package/postinstall.sh")
	script = regexp.MustCompile(`/(etc|var/lib)/holdfast`).ReplaceAllString(script, root+"/$1/holdfast")
	path := filepath.Join(root, "postinstall.sh")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	run(t, 10*time.Second, "sh", path)
}

// TestBuild_SetsVariablesThatExist checks that the variables that the linker
// sets exist. The linker ignores a variable that does not exist.
func TestBuild_SetsVariablesThatExist(t *testing.T) {
	variable := regexp.MustCompile(`-X github.com/holdfast-kv/holdfast/(\S+)\.(\w+)=\$`)
	for _, path := range []string{"../../Makefile", "../../deploy/package/build"} {
		set := variable.FindAllStringSubmatch(read(t, path), -1)
		if len(set) == 0 {
			t.Errorf("%s sets no variable", path)
		}
		for _, v := range set {
			var source strings.Builder
			files, err := filepath.Glob("../../" + v[1] + "/*.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				source.WriteString(read(t, f))
			}
			if !strings.Contains(source.String(), "\nvar "+v[2]+" string\n") {
				t.Errorf("%s sets %s in %s, which has no such variable", path, v[2], v[1])
			}
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

// TestUnit_MayWriteTheAuditLog checks that a node that the systemd unit starts
// can write to the audit logs that docs/security.md names. Most other directories
// are read-only for the node.
func TestUnit_MayWriteTheAuditLog(t *testing.T) {
	unit := read(t, "../../deploy/systemd/holdfast.service")
	logs := regexp.MustCompile(`(?m)^LogsDirectory=(\S+)$`).FindStringSubmatch(unit)
	paths := regexp.MustCompile(`--audit-log (/\S+)`).FindAllStringSubmatch(read(t, "../../docs/security.md"), -1)
	if logs == nil || len(paths) == 0 {
		t.Fatalf("LogsDirectory %q, audit logs %q", logs, paths)
	}
	for _, path := range paths {
		if got, want := filepath.Dir(path[1]), "/var/log/"+logs[1]; got != want {
			t.Errorf("%s: the unit can write to %s", path[1], want)
		}
	}
}

var (
	metricWord = regexp.MustCompile(`\b(?:up|(?:holdfast|process|go)_[a-z0-9_]+)\b`)
	ourMetric  = regexp.MustCompile(`\bholdfast_[a-z0-9_]+\b`)
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

// TestOperationsPage_IsComplete checks that docs/operations.md names every flag of
// serve, and that all pages in docs name only metrics that exist.
func TestOperationsPage_IsComplete(t *testing.T) {
	page := read(t, "../../docs/operations.md")
	for _, name := range flags(t, "serve") {
		if name != "help" && !strings.Contains(page, "`--"+name+"`") {
			t.Errorf("the page does not explain flag --%s of serve", name)
		}
	}
	known := metrics(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		for _, name := range ourMetric.FindAllString(read(t, path), -1) {
			if !slices.Contains(known, name) && !slices.Contains(otherNames, name) {
				t.Errorf("%s names %s, which the program does not have", path, name)
			}
		}
	}
}

// otherNames are words that look like names of metrics but are not.
var otherNames = []string{"holdfast_lock", "holdfast_0"} // a Python package, and a part of a file name
