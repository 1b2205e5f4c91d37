package process_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// otlpCollector accepts traces, as an OpenTelemetry collector does.
type otlpCollector struct {
	mu     sync.Mutex
	traces map[string]map[string]string // for each trace id: the node of each span, by the name that ServeHTTP gives it
	fault  error
}

func (o *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req collector.ExportTraceServiceRequest
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(b, &req)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || r.URL.Path != "/v1/traces" {
		o.fault = fmt.Errorf("request to %s, error %v", r.URL.Path, err)
	}
	for _, resource := range req.ResourceSpans {
		node := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.instance.id" {
				node = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				trace := string(s.TraceId)
				if o.traces[trace] == nil {
					o.traces[trace] = make(map[string]string)
				}
				name := s.Name
				for _, a := range s.Attributes {
					if a.Key == "db.operation.name" {
						name += " " + a.Value.GetStringValue()
					}
				}
				if len(s.ParentSpanId) > 0 {
					name = "- " + name
				}
				if s.EndTimeUnixNano < s.StartTimeUnixNano {
					name += " which ends before it starts"
				}
				o.traces[trace][name] = node
			}
		}
	}
}

// find returns the trace whose root span has the given name. It returns nil if
// there is none with at least the given number of spans.
func (o *otlpCollector) find(root string, spans int) map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, trace := range o.traces {
		if _, ok := trace[root]; ok && len(trace) >= spans {
			return maps.Clone(trace)
		}
	}
	return nil
}

// TestTraces checks that a write through a follower is one trace with spans of
// the follower and of the leader, and that a read is one trace without the
// stages of the log.
func TestTraces(t *testing.T) {
	o := &otlpCollector{traces: make(map[string]map[string]string)}
	server := httptest.NewServer(o)
	defer server.Close()
	c := startCluster(t, "--otlp-endpoint", server.URL, "--trace-ratio", "1")
	leader := c.leader()
	follower := c.others(leader)[0]
	want(t, follower, "OK", "SET", "k", "v")
	want(t, follower, "v", "GETRANGE", "k", "0", "-1")
	for root, spans := range map[string]map[string]string{
		"command set": {
			"command set": follower.ID, "- forward": follower.ID, "- reply": follower.ID,
			"- propose": leader.ID, "- commit": leader.ID, "- apply": leader.ID,
		},
		"command getrange": {"command getrange": follower.ID, "- read": follower.ID, "- reply": follower.ID},
	} {
		var got map[string]string
		testutil.Eventually(t, "the trace of "+root, func() bool {
			got = o.find(root, len(spans))
			return got != nil
		})
		if !maps.Equal(got, spans) {
			t.Errorf("%s: %v, want %v", root, got, spans)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fault != nil {
		t.Error(o.fault)
	}
}

// TestTraces_Refused checks that wrong flags are errors, and that a collector
// that does not answer delays no command.
func TestTraces_Refused(t *testing.T) {
	c := startCluster(t, "--otlp-endpoint", "http://127.0.0.1:1", "--trace-ratio", "1")
	leader := c.leader()
	want(t, leader, "OK", "SET", "k", "v")
	testutil.Eventually(t, "a warning", func() bool {
		return slices.ContainsFunc(c.Nodes, func(n *process.Node) bool {
			return strings.Contains(n.Output(), "cannot export traces")
		})
	})
	other := c.others(leader)[0]
	kill(t, other)
	for _, flags := range [][]string{
		{"--otlp-endpoint", "localhost:4318"}, {"--otlp-endpoint", "http://localhost:4318", "--trace-ratio", "1.5"},
		{"--otlp-endpoint", "http://localhost:4318", "--trace-ratio", "0"},
	} {
		wantContains(t, "the error", refusesToStart(t, other, flags...), "--otlp-endpoint, --trace-ratio: ")
	}
}
