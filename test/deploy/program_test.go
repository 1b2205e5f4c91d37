package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// tmp is a directory shared by all tests.
var tmp string

func TestMain(m *testing.M) {
	var err error
	if tmp, err = os.MkdirTemp("", "holdfast-deploy"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(tmp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// program builds the binary once and returns its path.
var program = sync.OnceValues(func() (string, error) { return process.Build(tmp) })

func holdfast(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var helpFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)

// flags returns the flags that a command's --help lists.
func flags(t *testing.T, command ...string) []string {
	t.Helper()
	help := run(t, 20*time.Second, holdfast(t), append(command, "--help")...)
	var names []string
	for _, m := range helpFlag.FindAllStringSubmatch(help, -1) {
		names = append(names, m[1])
	}
	if len(names) < 2 {
		t.Fatalf("flags of %v: %v, found in\n%s", command, names, help)
	}
	return names
}

// checkCommandLine checks a command line of serve or of another command. It
// reports the flags in words that this command does not have.
func checkCommandLine(t *testing.T, where string, words []string) {
	t.Helper()
	if len(words) == 0 || strings.HasPrefix(words[0], "-") {
		t.Errorf("%s: no subcommand in %q", where, words)
		return
	}
	known := flags(t, words[0])
	for _, w := range words[1:] {
		name, isFlag := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && !slices.Contains(known, name) {
			t.Errorf("%s: holdfast %s has no flag --%s", where, words[0], name)
		}
	}
}

// checkVariable reports a HOLDFAST_… variable that belongs to no flag of serve.
func checkVariable(t *testing.T, where, name string) {
	t.Helper()
	flag, ok := strings.CutPrefix(name, "HOLDFAST_")
	flag = strings.ToLower(strings.ReplaceAll(flag, "_", "-"))
	if !ok || !slices.Contains(flags(t, "serve"), flag) {
		t.Errorf("%s: no flag of holdfast serve is set by %s", where, name)
	}
}

// scraped starts a node, sends it a few commands, and returns the content of
// its /metrics: the metrics of Holdfast and those of the Go process.
var scraped = sync.OnceValues(func() (text []byte, err error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	cert, key, err := testutil.Certificate(tmp)
	if err != nil {
		return nil, err
	}
	c, err := process.New(process.Config{
		Program: path, Dir: filepath.Join(tmp, "scraped"), Nodes: 1, Args: []string{"--log-level", "warn",
			"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-ports", "peers"},
	})
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop(10*time.Second)) }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := c.Leader(ctx); err != nil {
		return nil, err
	}
	n := c.Nodes[0]
	if err := useNode(ctx, n.Clients); err != nil {
		return nil, err
	}
	var failed error
	err = process.Poll(ctx, "a snapshot of the node", func() bool {
		text, failed = scrape(n.HTTP)
		return failed != nil || bytes.Contains(text, []byte("\nholdfast_snapshot_bytes "))
	})
	return text, errors.Join(err, failed)
})

// scrape returns the metrics of a node.
func scrape(web string) ([]byte, error) {
	res, err := http.Get("http://" + web + "/metrics")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

// useNode writes a key, takes a snapshot, sends a command that fails, and makes
// the guard refuse a connection. After that, every metric with labels has a value.
func useNode(ctx context.Context, clients string) error {
	c, err := respwire.Dial(ctx, "tcp", clients)
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	for _, command := range []string{"SET lock:a me NX EX 600", "BGSAVE", "INCR lock:a"} {
		v, err := c.Do(strings.Fields(command)...)
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		if wrong := command == "INCR lock:a"; v.IsError() != wrong {
			return fmt.Errorf("%s was answered %q", command, v.Head())
		}
	}
	bad, err := net.Dial("tcp", clients)
	if err != nil {
		return err
	}
	defer bad.Close()
	if _, err := io.WriteString(bad, "*1\r\n$9223372036854775807\r\n"); err != nil {
		return err
	}
	reply, err := io.ReadAll(bad)
	if err == nil && !strings.HasPrefix(string(reply), "-ERR Protocol error") {
		err = fmt.Errorf("the guard replied %q", reply)
	}
	return err
}

// families returns the metrics of a node by their names.
func families(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	text, err := scraped()
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// metrics returns the names of the series of a node.
func metrics(t *testing.T) (names []string) {
	t.Helper()
	for name, f := range families(t) {
		names = append(names, name)
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = append(names, name+"_bucket", name+"_sum", name+"_count")
		}
	}
	return names
}
