package telemetry

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// R257: one span for a call, below it the operation, below that its stages, in time and in order, as a collector gets them.
func TestSpans(t *testing.T) {
	got := make(chan otlpTraces, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "hunter2") {
			t.Errorf("a secret was sent: %s", body)
		}
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Key") != "a b" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		var m otlpTraces
		if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		got <- m
	}))
	defer collector.Close()
	t.Setenv(baseEndpoint, collector.URL)
	t.Setenv(headers, "x-key=a%20b")
	traces, err := OpenTraces("", "1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx, end := traces.Call(context.Background(), http.Header{"Traceparent": {caller}}, "host.exec")
	traces.Settled(ParentOf(ctx), &api.Receipt{
		Op: api.OpExec, Outcome: api.OutcomeFaulted, ErrorCode: api.CodeSpawnFailed, ErrorMessage: "hunter2", IntentID: "i-1", SessionID: "s-1", ExecID: "x-1",
		AdmittedAtNS: 1000, SettledAtNS: 1300, Timings: []api.Timing{{Stage: "policy", NS: 100}, {Stage: "run", NS: 150}},
	})
	end()
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := <-got
	by := map[string]otlpSpan{}
	for _, s := range m.ResourceSpans[0].ScopeSpans[0].Spans {
		if s.TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("%s is in trace %s", s.Name, s.TraceID)
		}
		if s.Kind == 2 { // SERVER
			by["call"] = s
		} else {
			by[s.Name] = s
		}
	}
	op, policy, run := by["host.exec"], by["policy"], by["run"]
	if by["call"].ParentID != "00f067aa0ba902b7" || op.ParentID != by["call"].SpanID || policy.ParentID != op.SpanID || run.ParentID != op.SpanID {
		t.Errorf("who is below whom: %+v", by)
	}
	if op.Start != "1000" || op.End != "1300" || policy.Start != "1000" || policy.End != "1100" || run.Start != "1100" || run.End != "1250" {
		t.Errorf("when: %+v", by)
	}
	if op.Status == nil || op.Status.Code != 2 || op.Status.Message != "spawn_failed" {
		t.Errorf("how: %+v", op.Status)
	}
	said := map[string]string{}
	for _, a := range op.Attributes {
		said[a.Key] = a.Value["stringValue"] + a.Value["intValue"]
	}
	if said["stockade.session_id"] != "s-1" || said["stockade.exec_id"] != "x-1" || said["stockade.intent_id"] != "i-1" || said["stockade.uid"] != "0" {
		t.Errorf("what: %v", said)
	}
}

// Where nobody said where they go, there are none, and nothing is done for them.
func TestNoSpans(t *testing.T) {
	t.Setenv(baseEndpoint, "")
	t.Setenv(tracesEndpoint, "")
	traces, err := OpenTraces("", "1", nil)
	if traces != nil || err != nil {
		t.Fatal(traces, err)
	}
	r := &api.Receipt{}
	if n := testing.AllocsPerRun(100, func() { traces.Settled(Parent{}, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if _, err := OpenTraces("ftp://somewhere", "1", nil); err == nil {
		t.Error("any endpoint is taken")
	}
}
