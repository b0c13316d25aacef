package telemetry

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("a scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func denied(code api.Code) *api.Receipt {
	return &api.Receipt{Op: api.OpExec, Outcome: api.OutcomeDenied, ErrorCode: code, SessionID: "s-private", ErrorMessage: "hunter2-hunter2"}
}

// R256: what is counted is what happened, and what a caller or an author says makes no series.
func TestCounts(t *testing.T) {
	m := New()
	m.Watch(func() State {
		return State{Sessions: map[string]int64{"ready": 3, "made up": 9}, Queues: map[string]int64{"approval": 2}, LongRunning: 1, Processes: 7}
	})
	for range 3 {
		m.Settled(denied(api.CodePolicyDenied))
	}
	for _, code := range []api.Code{"of_an_author", "and_of_another", "hunter2-hunter2"} {
		m.Settled(denied(code))
	}
	m.Settled(&api.Receipt{Op: api.OpExec, Outcome: api.OutcomeOK, SettledAtNS: 2e9, AdmittedAtNS: 1e9, Timings: []api.Timing{{Stage: "policy", NS: 1e6}},
		Payload: api.Payload{Exec: &api.ExecResult{Status: "ok", Denials: []api.Denial{{Layer: "hunter2-hunter2"}}, Network: &api.Traffic{Connections: 4, Refused: 1}}}})
	m.Ended("idle", time.Minute)
	m.Output(10, 5)
	m.Appended(700, time.Millisecond, nil)
	m.Alert(FailureRate)
	text := scrape(t, m)
	for _, want := range []string{
		`stockade_policy_violations_total{code="` + string(api.CodePolicyDenied) + `",op="host.exec"} 3`,
		`stockade_policy_violations_total{code="other",op="host.exec"} 3`,
		`stockade_receipts_total{code="",op="host.exec",outcome="ok"} 1`,
		`stockade_command_latency_seconds_sum{op="host.exec",status="ok"} 1`,
		`stockade_session_duration_seconds_sum{reason="idle"} 60`,
		`stockade_output_throughput_bytes_total{stream="stderr"} 5`,
		`stockade_sandbox_denials_total{layer="other"} 1`,
		`stockade_relay_connections_total{verdict="refused"} 1`,
		`stockade_sessions_active{state="ready"} 3`,
		`stockade_sessions_active{state="closing"} 0`,
		`stockade_queue_depth{queue="approval"} 2`,
		`stockade_process_count 7`,
		`stockade_long_running 1`,
		`stockade_journal_append_bytes_sum 700`,
		`stockade_alerts_total{condition="failure_rate"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("a scrape has no line %s", want)
		}
	}
	for _, not := range []string{"hunter2", "s-private", "of_an_author", "made up"} {
		if strings.Contains(text, not) {
			t.Errorf("a scrape says %q", not)
		}
	}
}

// Every metric of S1 is there from the first scrape on, or a rule about it would have nothing to look at.
func TestNames(t *testing.T) {
	m := New()
	m.Watch(func() State { return State{} })
	m.Settled(denied(api.CodePolicyDenied))
	m.Ended("closed", 0)
	m.Settled(&api.Receipt{Op: api.OpExec, Outcome: api.OutcomeOK, Payload: api.Payload{Exec: &api.ExecResult{Status: "ok"}}})
	for _, want := range []string{"sessions_active", "session_duration_seconds", "command_latency_seconds", "output_throughput_bytes_total",
		"policy_violations_total", "session_idle", "process_count", "long_running"} {
		if !slices.Contains(m.Names(), "stockade_"+want) {
			t.Errorf("there is no %s", want)
		}
	}
}

func BenchmarkSettled(b *testing.B) {
	m := New()
	r := &api.Receipt{Op: api.OpExec, Outcome: api.OutcomeOK, SettledAtNS: 2e9, AdmittedAtNS: 1e9, Payload: api.Payload{Exec: &api.ExecResult{Status: "ok"}}}
	for _, stage := range []string{"admit", "policy", "plan", "intent", "spawn", "run", "store"} {
		r.Timings = append(r.Timings, api.Timing{Stage: stage, NS: 1000})
	}
	for b.Loop() {
		m.Settled(r)
	}
}
