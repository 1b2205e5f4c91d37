// Package tracing exports traces of commands with OpenTelemetry. It is not a
// supported API.
package tracing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/holdfast-kv/holdfast/cluster/trace"
)

// Config describes an exporter.
type Config struct {
	// Endpoint is the URL of a collector that accepts OTLP over HTTP, such as
	// http://localhost:4318. If it has no path, New adds /v1/traces.
	Endpoint string
	// Ratio is the share of the groups that the node traces, above 0 and at
	// most 1.
	Ratio float64
	// ClusterID returns the id of the cluster, or "" while this node does not
	// know the id. The ids of traces depend on it, so the node traces nothing
	// before it knows the id.
	ClusterID func() string
	// Node and Version describe this node in the traces.
	Node, Version string
	Log           hclog.Logger
}

// Tracer is a trace.Recorder that exports spans to a collector. Spans wait in a
// bounded queue. If the collector does not accept them in time, the Tracer drops
// spans.
type Tracer struct {
	cfg      Config
	below    uint64 // a group is traced if the first 8 bytes of its trace id, as a number, are not above it
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
	cluster  atomic.Pointer[string] // id of the cluster, nil while ClusterID returns ""
	warned   atomic.Int64           // Unix time of the last warning
}

// warnEvery is the minimum time between two warnings that the export fails.
const warnEvery = time.Minute

// Validate returns an error if New would refuse the endpoint or the ratio.
func (c Config) Validate() error {
	_, err := c.collector()
	return err
}

// collector returns the URL of the collector. It also checks the ratio.
func (c Config) collector() (*url.URL, error) {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q is not the URL of a collector: it must look like http://host:4318", c.Endpoint)
	case !(c.Ratio > 0 && c.Ratio <= 1):
		return nil, fmt.Errorf("the share of traced commands is %v: it must be more than 0 and at most 1", c.Ratio)
	}
	return u, nil
}

// New returns a tracer. New does not connect to the collector. The owner must
// call Close.
func New(cfg Config) (*Tracer, error) {
	u, err := cfg.collector()
	if err != nil {
		return nil, err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	t := &Tracer{cfg: cfg, below: ^uint64(0)}
	if cfg.Ratio < 1 {
		t.below = uint64(cfg.Ratio * (1 << 63) * 2)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.warn))
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithIDGenerator(ids{}), sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "holdfast"), attribute.String("service.version", cfg.Version),
			attribute.String("service.instance.id", cfg.Node))),
	)
	t.tracer = t.provider.Tracer("holdfast")
	return t, nil
}

// clusterID returns the id of the cluster, or "".
func (t *Tracer) clusterID() string {
	if id := t.cluster.Load(); id != nil {
		return *id
	}
	id := t.cfg.ClusterID()
	if id != "" {
		t.cluster.Store(&id)
	}
	return id
}

// warn reports that spans could not be exported.
func (t *Tracer) warn(err error) {
	now, last := time.Now().Unix(), t.warned.Load()
	if now-last >= int64(warnEvery/time.Second) && t.warned.CompareAndSwap(last, now) {
		t.cfg.Log.Warn("cannot export traces", "endpoint", t.cfg.Endpoint, "error", err)
	}
}

// Close exports the queued spans. It takes at most two seconds.
func (t *Tracer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("export traces to %s: the collector took more than 2 s", t.cfg.Endpoint)
	}
	return err
}

// identity is the identity of a trace and of its root span.
type identity struct {
	trace oteltrace.TraceID
	root  oteltrace.SpanID
}

// identify derives the identity from the cluster, the session and the number of the
// group, so that all nodes compute the same identity. A group without a number gets
// a random identity.
func (t *Tracer) identify(g trace.Group) (identity, bool) {
	cluster := t.clusterID()
	if cluster == "" {
		return identity{}, false
	}
	var sum [sha256.Size]byte
	if g.Number == 0 {
		_, _ = rand.Read(sum[:]) // never fails
	} else {
		sum = sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", cluster, g.Session.NodeID, g.Session.Boot, g.Number))
	}
	var id identity
	copy(id.trace[:], sum[:])
	copy(id.root[:], sum[len(id.trace):])
	return id, true
}

// Sampled implements trace.Recorder.
func (t *Tracer) Sampled(g trace.Group) bool {
	id, ok := t.identify(g)
	return ok && binary.BigEndian.Uint64(id.trace[:]) <= t.below
}

// Record implements trace.Recorder.
func (t *Tracer) Record(g trace.Group, command string, spans ...trace.Span) {
	id, ok := t.identify(g)
	if !ok {
		return
	}
	root := oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: id.trace, SpanID: id.root, TraceFlags: oteltrace.FlagsSampled, Remote: true,
	})
	under := oteltrace.ContextWithRemoteSpanContext(context.Background(), root)
	for _, s := range spans {
		ctx, options := under, []oteltrace.SpanStartOption{oteltrace.WithTimestamp(s.Start)}
		if s.Name == trace.Command {
			ctx = context.WithValue(context.Background(), identityKey{}, id)
			options = append(options, oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithAttributes(
				attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", command)))
		}
		_, span := t.tracer.Start(ctx, s.Name, options...)
		span.End(oteltrace.WithTimestamp(s.End))
	}
}

// identityKey is the key of the identity in the context of a root span.
type identityKey struct{}

// ids is the generator of ids. A root span gets the identity that its context
// contains. All other spans get random ids.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	id, ok := ctx.Value(identityKey{}).(identity)
	if !ok { // no caller starts a root span without an identity
		_, _ = rand.Read(id.trace[:])
		_, _ = rand.Read(id.root[:])
	}
	return id.trace, id.root
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, oteltrace.TraceID) (id oteltrace.SpanID) {
	_, _ = rand.Read(id[:])
	return id
}
