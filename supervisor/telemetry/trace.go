package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Traces makes spans: one for each call of the API, below it one for the operation, and below that one for each
// stage. They are made of what a receipt says, when it is there: nothing is measured for them. A nil Traces makes
// none, and costs nothing.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// OpenTraces sends spans to an OTLP collector over HTTP: to endpoint, a URL, or with "" to where the environment says, and
// nowhere if it does not. It does not wait for the collector, nor does anything else: what it does not take in
// time is lost.
func OpenTraces(endpoint, version string, log *slog.Logger) (*Traces, error) {
	e, err := newExporter(endpoint)
	if e == nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	return newTraces(sdk.NewBatchSpanProcessor(e), version), nil
}

func newTraces(p sdk.SpanProcessor, version string) *Traces {
	t := &Traces{provider: sdk.NewTracerProvider(
		sdk.WithSpanProcessor(p),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "stockaded"), attribute.String("service.version", version))),
	)}
	t.tracer = t.provider.Tracer("github.com/stockade-dev/stockade")
	return t
}

// Close sends what is left, for as long as ctx says.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Call begins the span of a call of the API, below the one that its caller names in traceparent.
func (t *Traces) Call(ctx context.Context, header http.Header, name string) (_ context.Context, end func()) {
	if t == nil {
		return ctx, func() {}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	return ctx, func() { span.End() }
}

// Parent is the span that an operation is part of.
type Parent = trace.SpanContext

// ParentOf is the span that a context is in.
func ParentOf(ctx context.Context) Parent { return trace.SpanContextFromContext(ctx) }

// Settled makes the spans of an operation that is over.
func (t *Traces) Settled(parent Parent, r *api.Receipt) {
	if t == nil {
		return
	}
	begin, end := time.Unix(0, r.AdmittedAtNS), time.Unix(0, r.SettledAtNS)
	ctx := trace.ContextWithSpanContext(context.Background(), parent)
	ctx, span := t.tracer.Start(ctx, string(r.Op), trace.WithTimestamp(begin), trace.WithAttributes(attributes(r)...))
	if r.Outcome == api.OutcomeFaulted {
		span.SetStatus(otelcodes.Error, known(r.ErrorCode))
	}
	at := begin
	for _, stage := range r.Timings {
		_, child := t.tracer.Start(ctx, stage.Stage, trace.WithTimestamp(at))
		at = at.Add(time.Duration(stage.NS))
		child.End(trace.WithTimestamp(at))
	}
	span.End(trace.WithTimestamp(end))
}

// attributes of a receipt: ids, and words of ours. Messages and subjects repeat what callers said.
func attributes(r *api.Receipt) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("stockade.intent_id", r.IntentID),
		attribute.String("stockade.outcome", string(r.Outcome)),
		attribute.Int64("stockade.uid", int64(r.Principal.UID)),
	}
	for _, a := range []struct{ key, value string }{
		{"stockade.session_id", r.SessionID}, {"stockade.exec_id", r.ExecID}, {"stockade.code", known(r.ErrorCode)},
	} {
		if a.value != "" {
			out = append(out, attribute.String(a.key, a.value))
		}
	}
	return out
}
