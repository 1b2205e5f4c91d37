package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// program returns the path of the holdfast program: the value of
// HOLDFAST_PROGRAM or, if that is empty, a program that it builds. It builds in
// the module of holdfast, because process.Build would use the dependencies of
// this module.
func program(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("HOLDFAST_PROGRAM"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "holdfast")
	build := exec.Command("go", "build", "-o", path, "./cmd/holdfast")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// node is a node of the cluster.
type node struct{ *process.Node }

// startCluster starts three nodes and waits until they are ready.
func startCluster(t *testing.T) (nodes []*node) {
	t.Helper()
	cert, key, err := testutil.Certificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := process.New(process.Config{
		Program: program(t), Dir: t.TempDir(), Args: []string{"--log-level", "warn",
			"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-ports", "peers"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(20 * time.Second); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Settled(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		nodes = append(nodes, &node{n})
	}
	return nodes
}

// within returns a context that ends after a minute.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// wait polls a condition for which there is no event.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if err := process.Poll(within(t), what, ok); err != nil {
		t.Fatal(err)
	}
}

// client is a connection to a node.
type client struct {
	t    *testing.T
	conn *respwire.Conn
}

func (n *node) dial(t *testing.T) *client {
	t.Helper()
	conn, err := respwire.Dial(within(t), "tcp", n.Clients)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &client{t, conn}
}

// do sends commands one after the other and reads the reply of each.
func (c *client) do(commands ...string) {
	c.t.Helper()
	for _, command := range commands {
		c.send(command)
		c.receive()
	}
}

// send sends a command without waiting for the reply.
func (c *client) send(command string) {
	c.t.Helper()
	if err := c.conn.Send(strings.Fields(command)); err != nil {
		c.t.Fatalf("%s: %v", command, err)
	}
}

func (c *client) receive() respwire.Value {
	c.t.Helper()
	v, err := c.conn.Receive()
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// use makes the nodes do work of the kinds that the evaluated metrics count.
func use(t *testing.T, nodes []*node, round int) {
	t.Helper()
	a, b := nodes[round%3].dial(t), nodes[(round+1)%3].dial(t)
	key := fmt.Sprintf("lock:%d", round)
	a.do("SET "+key+" me NX PX 60000", "SET "+key+" you NX PX 60000", "INCR "+key, "DELIFEQ "+key+" me",
		"LOCK ACQUIRE "+key+" a PX 60000", "EVAL return 0", "EVAL return 0 0", "PUBLISH c x", "GET "+key,
		"LOCK ACQUIRE "+key+" c PX 60000 WAIT 20", "SET short me NX PX 1", "AUTH wrong")
	b.send("LOCK ACQUIRE " + key + " b PX 60000 WAIT 60000")
	wait(t, "b waits", func() bool { return nodes[0].has(t, "holdfast_lock_waiters 1") })
	a.do("LOCK RELEASE " + key + " a")
	b.receive()
	b.do("LOCK BREAK " + key)
	bad := nodes[round%3].dial(t)
	if _, err := io.WriteString(bad.conn, "*1\r\n$9223372036854775807\r\n"); err != nil {
		t.Fatal(err)
	}
	if v := bad.receive(); !strings.HasPrefix(v.Head(), "-ERR Protocol error") {
		t.Errorf("the guard replied %q", v.Head())
	}
}

// metrics returns the metrics of a node.
func (n *node) metrics(t *testing.T) []byte {
	t.Helper()
	res, err := http.Get("http://" + n.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// has reports whether a line of the metrics of a node begins with a text.
func (n *node) has(t *testing.T, line string) bool {
	t.Helper()
	return bytes.Contains(n.metrics(t), []byte("\n"+line))
}

// scrape adds the metrics of a node to the series, as if Prometheus scraped the node
// at that time.
func (n *node) scrape(t *testing.T, s *series, at time.Duration) {
	t.Helper()
	text := expfmt.NewTextParser(model.UTF8Validation)
	families, err := text.TextToMetricFamilies(bytes.NewReader(n.metrics(t)))
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, m *dto.Metric, v float64, more ...string) {
		pairs := append([]string{labels.MetricName, name, "job", "holdfast", "instance", n.HTTP}, more...)
		for _, l := range m.GetLabel() {
			pairs = append(pairs, l.GetName(), l.GetValue())
		}
		s.add(labels.FromStrings(pairs...), at, v)
	}
	add("up", nil, 1)
	for name, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				add(name, m, m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				add(name, m, m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				add(name+"_count", m, float64(h.GetSampleCount()))
				add(name+"_sum", m, h.GetSampleSum())
				for _, b := range h.GetBucket() {
					le := model.SampleValue(b.GetUpperBound()).String()
					add(name+"_bucket", m, float64(b.GetCumulativeCount()), "le", le)
				}
			}
		}
	}
}

// expressions returns the expressions of the dashboard, with values for the
// variables. The key is the title of the panel and the id of the query.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	var dashboard struct {
		Templating struct {
			List []struct{ Name string }
		}
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr, RefID string }
		}
	}
	text, err := os.ReadFile("../../deploy/grafana/holdfast.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var variables []string
	for _, v := range dashboard.Templating.List {
		variables = append(variables, v.Name)
	}
	if got, want := strings.Join(variables, " "), "datasource job instance"; got != want {
		t.Errorf("variables %q, want %q", got, want)
	}
	values := strings.NewReplacer("$job", "holdfast", "$instance", ".*", "$__rate_interval", "1m")
	all := make(map[string]string)
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, `job="$job"`) {
				t.Errorf("panel %q does not select the job: %s", p.Title, target.Expr)
			}
			all[p.Title+" "+target.RefID] = values.Replace(target.Expr)
		}
	}
	return all
}

// TestExpressions evaluates the expressions of the Grafana dashboard and of the
// alert rules on the metrics of a real cluster. Each expression of the dashboard
// must have a value, and so must the parts of each alert rule that the function
// sides returns. No critical alert may fire.
func TestExpressions(t *testing.T) {
	nodes := startCluster(t)
	s, end := newSeries(), time.Duration(0)
	for round := range 5 {
		use(t, nodes, round)
		if round == 1 {
			for _, n := range nodes {
				n.dial(t).do("BGSAVE")
			}
			for _, n := range nodes {
				wait(t, "a snapshot of "+n.ID, func() bool { return n.has(t, "holdfast_snapshot_bytes ") })
			}
		}
		end = time.Duration(round) * interval
		for _, n := range nodes {
			n.scrape(t, s, end)
		}
	}
	all := expressions(t)
	for title, expr := range all {
		if v := eval(t, s, expr, end); !number(v) {
			t.Errorf("panel %s has no value: %s: %v", title, expr, v)
		}
	}
	alerts := rules(t)
	for name, r := range alerts {
		for _, side := range sides(t, r.Expr) {
			if v := eval(t, s, side, end); !number(v) {
				t.Errorf("%s: no value for %s: %v", name, side, v)
			}
		}
		if found := firing(t, s, r, end); len(found) > 0 && r.Labels["severity"] == "critical" {
			t.Errorf("%s fires: %v", name, found)
		}
	}
	if len(all) < 40 || len(alerts) < 20 {
		t.Errorf("only %d expressions and %d alerts were evaluated", len(all), len(alerts))
	}
}

// sides returns the parts of an expression that must always have a value: the sides of
// its comparisons and set operations, except numbers and calls of absent().
func sides(t *testing.T, expr string) (all []string) {
	t.Helper()
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(e parser.Expr)
	walk = func(e parser.Expr) {
		switch e := e.(type) {
		case *parser.ParenExpr:
			walk(e.Expr)
		case *parser.AggregateExpr:
			walk(e.Expr)
		case *parser.BinaryExpr:
			if e.Op.IsComparisonOperator() || e.Op.IsSetOperator() {
				walk(e.LHS)
				walk(e.RHS)
				return
			}
			all = append(all, e.String())
		case *parser.Call:
			if e.Func.Name != "absent" {
				all = append(all, e.String())
			}
		case *parser.VectorSelector:
			all = append(all, e.String())
		}
	}
	walk(tree)
	return all
}
