package process_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// web is the HTTP client of the tests.
var web = &http.Client{Timeout: 5 * time.Second}

func fetch(t *testing.T, n *process.Node, path string) (code int, body string) {
	t.Helper()
	res, err := web.Get("http://" + n.HTTP + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestHTTP_Health(t *testing.T) {
	c := newCluster(t, process.Config{Env: []string{"HOLDFAST_LEADER_WAIT=300ms"}})
	n := c.Nodes[0]
	// The first of three nodes runs, but is not ready until the others run.
	start(t, n)
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "the http port", func() bool {
		res, err := web.Get("http://" + n.HTTP + "/healthz")
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	expect := func(n *process.Node, path string, code int, says string) {
		t.Helper()
		if got, body := fetch(t, n, path); got != code || !strings.Contains(body, says) {
			t.Errorf("%s of %s: %d %q, want %d and %q", path, n.ID, got, body, code, says)
		}
	}
	health := func(n *process.Node, code int) {
		t.Helper()
		o := invoke(t, nil, "health", "--url", "http://"+n.HTTP+"/readyz")
		if o.code != code {
			t.Errorf("holdfast health of %s: %+v, want exit code %d", n.ID, o, code)
		}
		if code != 0 {
			wantLine(t, o.errOut, "holdfast: 503 Service Unavailable: not ready: ")
		}
		if strings.Contains(o.errOut, "%!") {
			t.Errorf("holdfast health of %s says %q", n.ID, o.errOut)
		}
	}
	expect(n, "/healthz", 200, "ok")
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "the reason", func() bool {
		_, body := fetch(t, n, "/readyz")
		return strings.Contains(body, "waiting for peers: n2 (connection refused), n3 (connection refused)")
	}); err != nil {
		t.Error(err)
	}
	expect(n, "/readyz", 503, "not ready: ")
	health(n, 1)
	if got := do(t, n, "SET", "k", "v"); got != "CLUSTERDOWN no leader, the command was not executed" {
		t.Errorf("SET before the cluster has formed: %q", got)
	}

	c.start()
	for _, n := range c.Nodes {
		expect(n, "/healthz", 200, "ok")
		expect(n, "/readyz", 200, "ready")
		health(n, 0)
	}
	expect(n, "/nothing", 404, "")
	expect(n, "/debug/pprof/", 404, "")

	leader := c.leader()
	others := c.others(leader)
	kill(t, leader)
	kill(t, others[0])
	if err := process.Poll(testutil.Within(t, 10*time.Second), "not to be ready", func() bool {
		code, _ := fetch(t, others[1], "/readyz")
		return code == 503
	}); err != nil {
		t.Fatal(err)
	}
	expect(others[1], "/readyz", 503, "no leader")
	expect(others[1], "/healthz", 200, "ok")
	health(others[1], 1)
	begun := time.Now()
	if got := do(t, others[1], "SET", "k", "v"); got != "CLUSTERDOWN no leader, the command was not executed" {
		t.Errorf("SET without a leader: %q", got)
	}
	if took := time.Since(begun); took < 150*time.Millisecond || took > 3*time.Second {
		t.Errorf("SET was refused after %v, with HOLDFAST_LEADER_WAIT=300ms", took)
	}
}

func TestHTTP_Metrics(t *testing.T) {
	c := startCluster(t, "--pprof")
	leader := c.leader()
	want(t, leader, "OK", "SET", "k", "v", "PX", "20")
	if err := process.Poll(testutil.Within(t, 10*time.Second), "the key to expire",
		func() bool { return do(t, leader, "EXISTS", "k") == "(integer) 0" }); err != nil {
		t.Fatal(err)
	}
	want(t, leader, "OK", "SET", "lock", "me", "EX", "600")
	c.settled()
	sum := make(map[string]float64)
	for _, n := range c.Nodes {
		want(t, n, "me", "GET", "lock")
		code, text := fetch(t, n, "/metrics")
		if code != 200 {
			t.Fatalf("/metrics of %s: %d", n.ID, code)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatalf("/metrics of %s does not parse: %v", n.ID, err)
		}
		value := func(name string) float64 {
			f := families[name]
			if f == nil || len(f.Metric) == 0 {
				t.Errorf("/metrics of %s lacks %s", n.ID, name)
				return 0
			}
			if f.GetHelp() == "" {
				t.Errorf("%s has no help", name)
			}
			m := f.Metric[0]
			switch {
			case m.Gauge != nil:
				return m.Gauge.GetValue()
			case m.Counter != nil:
				return m.Counter.GetValue()
			case m.Histogram != nil:
				return float64(m.Histogram.GetSampleCount())
			}
			return 0
		}
		for _, name := range []string{
			"holdfast_raft_term", "holdfast_raft_commit_index", "holdfast_raft_applied_index",
			"holdfast_raft_last_index",
			"holdfast_ready", "holdfast_keys", "holdfast_keys_with_ttl", "holdfast_expired_keys_total",
			"holdfast_sessions",
			"holdfast_clients", "holdfast_client_connections_total", "holdfast_logged_operations_total",
			"holdfast_lease_clock_seconds",
			"holdfast_log_bytes", "holdfast_command_seconds", "holdfast_disk_write_seconds", "go_goroutines",
			"process_resident_memory_bytes",
		} {
			if value(name) <= 0 && name != "holdfast_clients" {
				t.Errorf("%s of %s is not above 0", name, n.ID)
			}
		}
		for _, name := range []string{"holdfast_is_leader", "holdfast_proposer_entries_total",
			"holdfast_proposer_entry_groups",
			"holdfast_proposer_entry_bytes", "holdfast_proposer_commit_seconds", "holdfast_leaderships_total",
			"holdfast_read_rounds_total",
			"holdfast_read_groups_total", "holdfast_forwarder_resent_total", "holdfast_forwarder_unknown_total",
			"holdfast_duplicate_groups_total"} {
			sum[name] += value(name)
		}
		if !strings.Contains(text, `holdfast_command_seconds_count{command="get"}`) {
			t.Errorf("%s does not measure GET", n.ID)
		}
	}
	for name, want := range map[string]float64{"holdfast_is_leader": 1, "holdfast_forwarder_unknown_total": 0} {
		if sum[name] != want {
			t.Errorf("sum of %s is %v, want %v", name, sum[name], want)
		}
	}
	for _, name := range []string{"holdfast_proposer_entries_total", "holdfast_proposer_entry_groups",
		"holdfast_proposer_commit_seconds", "holdfast_read_rounds_total"} {
		if sum[name] == 0 {
			t.Errorf("sum of %s is 0", name)
		}
	}
	if code, _ := fetch(t, leader, "/debug/pprof/"); code != 200 {
		t.Errorf("/debug/pprof/ with --pprof: %d", code)
	}
}

// textLine matches the beginning of every line of a text log.
var textLine = regexp.MustCompile(
	`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\S* \[(TRACE|DEBUG|INFO|WARN|ERROR)\] +holdfast[.a-z]*: `)

// TestLog_Formats checks that the logs have one line per event, in both
// formats, during elections, a hostile client and a stop.
func TestLog_Formats(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		t.Run(format, func(t *testing.T) {
			c := startCluster(t, "--log-format", format, "--log-level", "debug")
			leader := c.leader()
			want(t, leader, "OK", "SET", "k", "a\nb")
			hostile(t, leader, "*1\r\n$9223372036854775807\r\nabc\r\n")
			kill(t, leader)
			c.leader()
			start(t, leader)
			c.settled()
			for _, n := range c.Nodes {
				stopNode(t, n)
				checkLog(t, n, format)
			}
		})
	}
	t.Run("level", func(t *testing.T) {
		c := startCluster(t, "--log-level", "error")
		for _, n := range c.Nodes {
			stopNode(t, n)
			for line := range strings.Lines(n.Output()) {
				if !strings.Contains(line, "[ERROR]") {
					t.Errorf("--log-level error: %s", line)
				}
			}
		}
	})
}

func checkLog(t *testing.T, n *process.Node, format string) {
	t.Helper()
	lines, debug := 0, 0
	for line := range strings.Lines(n.Output()) {
		lines++
		if format == "text" {
			if !textLine.MatchString(line) {
				t.Errorf("%s: line of another form: %s", n.ID, line)
			}
			if strings.Contains(line, "[DEBUG]") {
				debug++
			}
			continue
		}
		var event map[string]any
		d := json.NewDecoder(bytes.NewReader([]byte(line)))
		if err := d.Decode(&event); err != nil {
			t.Errorf("%s: not a line of JSON: %v in %s", n.ID, err, line)
			continue
		}
		for _, field := range []string{"@level", "@message", "@timestamp", "@module"} {
			if event[field] == nil || event[field] == "" {
				t.Errorf("%s: no %s in %s", n.ID, field, line)
			}
		}
		if event["@level"] == "debug" {
			debug++
		}
	}
	if lines < 5 || debug == 0 {
		t.Errorf("%s: %d lines, %d of them of level debug", n.ID, lines, debug)
	}
}

// awaitReady waits until a node is ready. It needs no password.
func awaitReady(t *testing.T, n *process.Node) {
	t.Helper()
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "a leader", func() bool {
		res, err := web.Get("http://" + n.HTTP + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	}); err != nil {
		t.Fatal(err)
	}
}
