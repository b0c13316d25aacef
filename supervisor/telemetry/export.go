package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// exporter sends spans as OTLP over HTTP, in its JSON form.
type exporter struct {
	url    string
	header http.Header
	client http.Client
}

// The environment, as OpenTelemetry names it.
const (
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" // where traces go
	baseEndpoint   = "OTEL_EXPORTER_OTLP_ENDPOINT"        // below which they go
	headers        = "OTEL_EXPORTER_OTLP_HEADERS"         // name=value,…: what lets us in, perhaps
)

// CheckEndpoint reports why OpenTraces would not take an endpoint.
func CheckEndpoint(endpoint string) error {
	_, err := newExporter(endpoint)
	return err
}

// newExporter returns nil when neither endpoint nor the environment says where spans go.
func newExporter(endpoint string) (*exporter, error) {
	if endpoint == "" {
		endpoint = os.Getenv(tracesEndpoint)
	}
	if base := os.Getenv(baseEndpoint); endpoint == "" && base != "" {
		endpoint = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("traces: the endpoint is no http or https URL")
	}
	e := &exporter{url: endpoint, header: http.Header{"Content-Type": {"application/json"}}, client: http.Client{Timeout: 10 * time.Second}}
	for pair := range strings.SplitSeq(os.Getenv(headers), ",") {
		name, value, ok := strings.Cut(pair, "=")
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if ok && err == nil {
			e.header.Set(strings.TrimSpace(name), plain)
		}
	}
	return e, nil
}

// The message of OTLP, as far as we use it (opentelemetry/proto/trace/v1, in the JSON mapping of protobuf).
type (
	otlpTraces struct {
		ResourceSpans []otlpResource `json:"resourceSpans"`
	}
	otlpResource struct {
		Resource   otlpAttributes `json:"resource"`
		ScopeSpans []otlpScope    `json:"scopeSpans"`
	}
	otlpAttributes struct {
		Attributes []otlpAttribute `json:"attributes"`
	}
	otlpScope struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpSpan struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		ParentID   string          `json:"parentSpanId,omitempty"`
		Name       string          `json:"name"`
		Kind       int             `json:"kind"`
		Start      string          `json:"startTimeUnixNano"`
		End        string          `json:"endTimeUnixNano"`
		Attributes []otlpAttribute `json:"attributes,omitempty"`
		Status     *otlpStatus     `json:"status,omitempty"`
	}
	otlpStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message,omitempty"`
	}
	otlpAttribute struct {
		Key   string            `json:"key"`
		Value map[string]string `json:"value"`
	}
)

const statusError = 2 // STATUS_CODE_ERROR; the module numbers them otherwise

func otlp(set []attribute.KeyValue) []otlpAttribute {
	var out []otlpAttribute
	for _, kv := range set {
		arm := "stringValue"
		if kv.Value.Type() == attribute.INT64 {
			arm = "intValue"
		}
		out = append(out, otlpAttribute{string(kv.Key), map[string]string{arm: kv.Value.Emit()}})
	}
	return out
}

// ExportSpans sends spans, all of which are of one resource and one scope: ours.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	var scope otlpScope
	scope.Scope.Name = spans[0].InstrumentationScope().Name
	for _, s := range spans {
		span := otlpSpan{
			TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(),
			Name: s.Name(), Kind: int(s.SpanKind()),
			Start: strconv.FormatInt(s.StartTime().UnixNano(), 10), End: strconv.FormatInt(s.EndTime().UnixNano(), 10),
			Attributes: otlp(s.Attributes()),
		}
		if s.Parent().HasSpanID() {
			span.ParentID = s.Parent().SpanID().String()
		}
		if st := s.Status(); st.Code == otelcodes.Error {
			span.Status = &otlpStatus{statusError, st.Description}
		}
		scope.Spans = append(scope.Spans, span)
	}
	body, err := json.Marshal(otlpTraces{[]otlpResource{{otlpAttributes{otlp(spans[0].Resource().Attributes())}, []otlpScope{scope}}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = e.header
	answer, err := e.client.Do(req)
	if err != nil {
		return fmt.Errorf("send %d spans: %w", len(spans), err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("send %d spans: the collector answers %s", len(spans), answer.Status)
	}
	return nil
}

// Shutdown has nothing left to do.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}
