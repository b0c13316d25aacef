package supervisor

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/telemetry"
)

func (b *bench) scrape() string {
	w := httptest.NewRecorder()
	b.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func (b *bench) scraped(lines ...string) {
	b.t.Helper()
	text := b.scrape()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, " ")
			_, rest, _ := strings.Cut(text, "\n"+name+" ")
			value, _, _ := strings.Cut(rest, "\n")
			b.t.Errorf("a scrape has no line %s, but %q", line, value)
		}
	}
}

// R256, R259: what is scraped is what is the case, and each condition is an event and is counted, once.
func TestMetricsAndAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Defaults.LongRunning = 30 * time.Second })
		defer b.stop()
		id := b.session()
		b.scraped(`stockade_sessions_active{state="ready"} 1`, `stockade_session_idle 1`, `stockade_executions_active{state="running"} 0`)
		b.fake.mu.Lock()
		b.fake.load.PIDs, b.fake.load.MemoryBytes = 5, 4096
		b.fake.mu.Unlock()
		x := b.launch(api.Exec{SessionID: id, Argv: []string{"sleep"}, TimeoutNS: int64(10 * time.Minute)})
		time.Sleep(20 * time.Second)
		b.scraped(`stockade_executions_active{state="running"} 1`, `stockade_process_count 5`, `stockade_session_memory_bytes 4096`, `stockade_long_running 0`, `stockade_session_idle 0`)
		time.Sleep(20 * time.Second)
		b.scraped(`stockade_long_running 1`, `stockade_alerts_total{condition="long_running"} 1`)
		time.Sleep(time.Minute)
		b.scraped(`stockade_alerts_total{condition="long_running"} 1`)
		b.control(api.OpProcessCancel, x.ExecID)
		for range 2 * tallied {
			b.execute(api.Exec{SessionID: id, Argv: []string{"no such command"}})
		}
		b.scraped(`stockade_alerts_total{condition="failure_rate"} 1`, `stockade_long_running 0`, `stockade_operations_in_flight 0`)
		b.close(id)
		b.scraped(`stockade_sessions_active{state="ready"} 0`, `stockade_session_duration_seconds_count{reason="closed"} 1`)
		want := []string{"SESSION_STATE ready", "RESOURCE_THRESHOLD long_running", "RESOURCE_THRESHOLD failure_rate", "SESSION_STATE closed"}
		var got []string
		for _, n := range b.notices(id) {
			if !strings.HasPrefix(n, "PROCESS") && !strings.HasPrefix(n, "OUTPUT") {
				got = append(got, n)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A secret that is in use is in no line of the log, whoever writes it, and in no metric.
func TestLogOfSupervisorHoldsNoSecret(t *testing.T) {
	const secret = "tr0ub4dor&3-of-a-session"
	var out bytes.Buffer
	var held telemetry.Redactor
	log, err := telemetry.NewLog(&out, slog.LevelDebug, "text", &held)
	if err != nil {
		t.Fatal(err)
	}
	b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) { c.Log, c.Secrets = log, &held })
	defer b.stop()
	id := b.session(func(o *api.SessionOpen) {
		o.Target.Local.Env = map[string]api.EnvValue{"S": {Text: secret, Secret: true}}
	})
	log.Warn("as a part of ours could", "error", "cannot use "+secret)
	b.execute(api.Exec{SessionID: id, Argv: []string{"true"}, EnvPatch: map[string]api.EnvValue{"X_1": {Text: secret, Secret: true}}})
	text := b.scrape()
	b.close(id)
	if strings.Contains(out.String(), secret) || strings.Contains(text, secret) {
		t.Errorf("the secret is out:\n%s", &out)
	}
	if !strings.Contains(out.String(), telemetry.Redacted) || !strings.Contains(out.String(), "session_id="+id) {
		t.Errorf("what the log has:\n%s", &out)
	}
	out.Reset()
	log.Warn("nobody holds it any more", "error", secret)
	if !strings.Contains(out.String(), secret) {
		t.Error("it is held for ever")
	}
}
