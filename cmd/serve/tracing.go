package serve

import (
	"fmt"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/tracing"
)

// tracingOptions holds the flags about traces.
type tracingOptions struct {
	endpoint string
	ratio    float64
}

func (o *tracingOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.endpoint, "otlp-endpoint", "",
		"URL of an OpenTelemetry collector, such as http://localhost:4318, to which this node exports traces of "+
			"commands; empty for none")
	f.Float64Var(&o.ratio, "trace-ratio", 0.01,
		"share of the pipelines that are traced, above 0 and at most 1; the same on all nodes, or traces lack stages")
}

// validate returns an error if the method open would refuse a flag.
func (o *tracingOptions) validate() error {
	if o.endpoint == "" {
		return nil
	}
	if err := (tracing.Config{Endpoint: o.endpoint, Ratio: o.ratio}).Validate(); err != nil {
		return fmt.Errorf("--otlp-endpoint, --trace-ratio: %w", err)
	}
	return nil
}

// nodeTracer exports the traces of a node. It is nil if the node exports none.
type nodeTracer struct {
	tracer *tracing.Tracer
	node   atomic.Pointer[cluster.Node]
	log    hclog.Logger
}

// open returns the tracer of a node that is not open yet.
func (o *tracingOptions) open(cfg *cluster.Config, log hclog.Logger) (*nodeTracer, error) {
	if o.endpoint == "" {
		return nil, nil
	}
	t := &nodeTracer{log: log.Named("traces")}
	var err error
	t.tracer, err = tracing.New(tracing.Config{
		Endpoint: o.endpoint, Ratio: o.ratio, Node: cfg.NodeID, Version: cfg.Version, Log: t.log,
		ClusterID: func() string { return t.node.Load().ClusterID() },
	})
	if err != nil {
		return nil, fmt.Errorf("--otlp-endpoint, --trace-ratio: %w", err)
	}
	return t, nil
}

// record makes a node that is open record its traces.
func (t *nodeTracer) record(node *cluster.Node) {
	if t != nil {
		t.node.Store(node)
		node.RecordTraces(t.tracer)
	}
}

// close exports the queued traces.
func (t *nodeTracer) close() {
	if t == nil {
		return
	}
	if err := t.tracer.Close(); err != nil {
		t.log.Warn("cannot export the last traces", "error", err)
	}
}
