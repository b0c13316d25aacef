package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestMetricsOfADaemon: what was done is counted in what is scraped over a socket, which says nothing of what it was; and what
// others could reach is not served (R256, R257, R259).
func TestMetricsOfADaemon(t *testing.T) {
	needRoot(t)
	socket := filepath.Join(t.TempDir(), "metrics.sock")
	d := start(t, "--metrics", "unix:"+socket, "--load-interval", "250ms", "--long-running", "500ms")
	c := d.Client()
	const secret, label, argument = "hunter2-canary", "label-canary", "argv-canary"
	session := opened(t, c, func(o *api.SessionOpen) { o.Labels = map[string]string{"canary": label} }).SessionID
	r, err := c.Exec(t.Context(), api.Exec{SessionID: session, Argv: []string{"echo", argument}, EnvPatch: map[string]api.EnvValue{"TOKEN": {Text: secret, Secret: true}}})
	if err != nil || r.Outcome != api.OutcomeOK {
		t.Fatalf("%v, %+v", err, r)
	}
	denied, err := c.Open(t.Context(), api.SessionOpen{Profile: "none-such", Target: api.Target{Local: &api.Local{}}, Degraded: degraded()})
	if err != nil || denied.Outcome != api.OutcomeDenied {
		t.Fatalf("%v, %+v", err, denied)
	}
	s := openShell(t, c, api.Exec{SessionID: session, StdinOpen: true, Terminal: &api.Terminal{Cols: 80, Rows: 24}})
	if out, code := s.run("echo " + argument); !strings.Contains(out, argument) || code != "0" {
		t.Fatalf("%q, %s", out, code)
	}
	s.keys("sleep 1000\n")
	shell(t, c, session, "n=$(df -k /dev/shm | awk 'END {print $4}'); head -c $((n*990)) /dev/zero >/dev/shm/x; sleep 1; rm /dev/shm/x")
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	scrape := func() string {
		resp, err := web.Get("http://localhost/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s, %v", resp.Status, err)
		}
		return string(b)
	}
	during := scrape()
	s.close("force")
	if _, err := c.Close(t.Context(), api.SessionClose{SessionID: session}); err != nil {
		t.Fatal(err)
	}
	var after string
	table := []struct{ text, line string }{
		{"during", `stockade_sessions_active\{state="ready"\} 1`},
		{"during", `stockade_executions_active\{state="running"\} 1`},
		{"during", `stockade_policy_violations_total\{code="[a-z_]+",op="host.session.open"\} 1`},
		{"during", `stockade_command_latency_seconds_count\{op="host.exec",[^}]*\} [1-9]\d*`},
		{"during", `stockade_command_latency_seconds_count\{op="host.shell.command",status="ok"\} 1`},
		{"during", `stockade_output_throughput_bytes_total\{stream="stdout"\} [1-9]\S*`},
		{"during", `stockade_receipts_total\{code="",op="host.exec",outcome="ok"\} [1-9]\d*`},
		{"during", `stockade_stage_seconds_count\{[^}]*\} [1-9]\d*`},
		{"during", `stockade_policy_evaluation_seconds_count\{entrypoint="[a-z_.]*exec[a-z_.]*"\} [1-9]\d*`},
		{"during", `stockade_journal_append_seconds_count [1-9]\d*`},
		{"during", `stockade_journal_append_bytes_sum [1-9]\S*`},
		{"during", `stockade_journal_records [1-9]\S*`},
		{"during", `stockade_journal_size_bytes [1-9]\S*`},
		{"during", `stockade_journal_failures_total 0`},
		{"during", `stockade_resource_threshold_total\{level="95",resource="disk_bytes"\} 1`},
		{"during", `stockade_draining 0`},
		{"after", `stockade_session_duration_seconds_count\{reason="closed"\} [1-9]\d*`},
		{"after", `stockade_command_latency_seconds_count\{op="host.shell.open",[^}]*\} 1`},
		{"after", `stockade_sessions_active\{state="ready"\} 0`},
		{"after", `stockade_operations_in_flight 0`},
		{"during", `stockade_operations_in_flight 1`},
		{"during", `stockade_session_idle 0`},
		{"during", `stockade_session_idle_longest_seconds 0`},
		{"after", `stockade_session_memory_bytes \d\S*`},
		{"during", `stockade_session_memory_bytes [1-9]\S*`},
		{"during", `stockade_process_count [1-9]\d*`},
		{"during", `stockade_long_running 1`},
		{"after", `stockade_long_running 0`},
		{"during", `stockade_alerts_total\{condition="long_running"\} [1-9]\d*`},
		{"during", `stockade_sandbox_denials_total\{layer="network"\} \d+`},
		{"during", `stockade_queue_depth\{queue="execution"\} 0`},
		{"during", `stockade_adopted_total\{kind="session"\} 0`},
		{"during", `stockade_relay_connections_total\{verdict="allowed"\} \d+`},
	}
	for _, moved := range table {
		line := regexp.MustCompile("(?m)^" + moved.line + "$")
		if moved.text == "during" {
			if !line.MatchString(during) {
				t.Errorf("while the shell lives there is no line %s", moved.line)
			}
			continue
		}
		// What counts an end does so behind its answer.
		for deadline := time.Now().Add(5 * time.Second); !line.MatchString(after); time.Sleep(20 * time.Millisecond) {
			if after = scrape(); time.Now().After(deadline) {
				t.Errorf("after the end there is no line %s", moved.line)
				break
			}
		}
	}
	// What the guide lists, with its type, is what is served, and each of it has a line above.
	guide, err := os.ReadFile("../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := func(text, form string) map[string]string {
		all := map[string]string{}
		for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
			all[m[1]] = m[2]
		}
		return all
	}
	listed := kinds(string(guide), "(?m)^\\| `(stockade_[a-z_]+)` \\| ([a-z]+) \\|")
	if diff := cmp.Diff(listed, kinds(after, `(?m)^# TYPE (stockade_[a-z_]+) ([a-z]+)$`)); diff != "" || len(listed) < 20 {
		t.Errorf("%d are listed; served are others: %s", len(listed), diff)
	}
	for name := range listed {
		if !slices.ContainsFunc(table, func(row struct{ text, line string }) bool {
			return regexp.MustCompile("^" + name + `(_count|_sum)?( |\\\{)`).MatchString(row.line)
		}) {
			t.Errorf("nothing is asserted of %s", name)
		}
	}
	for _, word := range []string{secret, label, argument, session, s.exec, r.IntentID, "none-such"} {
		if strings.Contains(during+after, word) {
			t.Errorf("a scrape has %q", word)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dir := t.TempDir()
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "stockaded"), "--state", filepath.Join(dir, "state"), "--socket", filepath.Join(dir, "s"),
		"--metrics", "192.0.2.1:9464").CombinedOutput()
	if err == nil || ctx.Err() != nil || !strings.Contains(string(out), "192.0.2.1 is no address of the loopback") {
		t.Errorf("metrics for everybody: %v, %s", err, out)
	}
}
