package supervisor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// exported are the decisions of a state directory as the log has them.
func exported(t *testing.T, state string, o ExportOptions) (events []map[string]any, lines []string) {
	t.Helper()
	left, err := Export(t.Context(), state, o, func(line []byte) error {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		events, lines = append(events, e), append(lines, string(line))
		return nil
	})
	if err != nil || left != 0 {
		t.Fatalf("%d left: %v", left, err)
	}
	return events, lines
}

// inEvent is a member below an event.
func inEvent(e map[string]any, path string) any {
	var v any = e
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// Item 7: each decision is an event of OPA's decision log, with what that has no member for beside it, and what policy masks is
// not in it.
func TestExport(t *testing.T) {
	b, s := startShelved(t)
	defer b.stop()
	id := b.session(func(o *api.SessionOpen) { o.Limits.PIDs = 1000 })
	b.exec(id, "echo", "hush", "<&>")
	b.exec(id, "echo", "forbidden")
	plain, lines := exported(t, b.state, ExportOptions{})
	if len(plain) != 3 {
		t.Fatalf("%d events: %q", len(plain), lines)
	}
	open, exec, refused := plain[0], plain[1], plain[2]
	active := b.status().Active
	for path, want := range map[string]any{
		"path": "stockade/open/decision", "requested_by": "uid:1000", "bundles.stockade.revision": "1", "result.allow": true,
		"custom.stockade.op": "host.session.open", "custom.stockade.policy_digest": active.Digest, "custom.stockade.data_digest": active.DataDigest,
		"custom.stockade.capabilities_digest": active.CapabilitiesDigest, "input.request.op": "host.session.open", "custom.stockade.contract": 1.0,
	} {
		if got := inEvent(open, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	clamped, _ := inEvent(open, "custom.stockade.clamped").([]any)
	if len(clamped) != 1 || inEvent(clamped[0].(map[string]any), "field") != "limits.pids" {
		t.Errorf("clamps: %v", clamped)
	}
	if ns, _ := inEvent(open, "metrics.timer_rego_query_eval_ns").(float64); ns <= 0 {
		t.Errorf("it took %v", ns)
	}
	if at, err := time.Parse(time.RFC3339Nano, open["timestamp"].(string)); err != nil || time.Since(at) > time.Hour {
		t.Errorf("%v %v", at, err)
	}
	if rules, _ := inEvent(exec, "custom.stockade.rules").([]any); len(rules) == 0 || inEvent(exec, "custom.stockade.session_id") != id {
		t.Errorf("%v", exec["custom"])
	}
	if inEvent(refused, "result.allow") != false || open["decision_id"] == exec["decision_id"] || !strings.HasPrefix(exec["decision_id"].(string), "sha256:") {
		t.Errorf("%v", refused)
	}
	// The input is the one that was judged: its canonical bytes have the digest.
	var whole struct {
		Input  rego.Input `json:"input"`
		Custom struct {
			Stockade struct {
				InputDigest string `json:"input_digest"`
			} `json:"stockade"`
		} `json:"custom"`
	}
	for _, line := range lines {
		if err := json.Unmarshal([]byte(line), &whole); err != nil {
			t.Fatal(err)
		}
		if canonical, err := api.Encode(whole.Input); err != nil || ledger.Digest(canonical) != whole.Custom.Stockade.InputDigest {
			t.Errorf("%v: the input has another digest than %s", err, whole.Custom.Stockade.InputDigest)
		}
		whole.Input = rego.Input{}
	}
	if !strings.Contains(lines[1], "<&>") {
		t.Error("text is written otherwise than it was")
	}

	masks := `package system.log

mask contains "/input/request/exec/argv/1"

mask contains {"op": "upsert", "path": "/input/request/principal/uid", "value": 0} if input.path == "stockade/exec/decision"

mask contains "/input/request/nothing"

mask contains "/result/grant" if data.hide_grants
`
	s.put(2, map[string]string{"masks.rego": masks, "data.json": `{"hide_grants": true}`})
	b.activate(api.PolicyActivate{})
	masked, lines := exported(t, b.state, ExportOptions{})
	exec = masked[1]
	if strings.Contains(strings.Join(lines, ""), "hush") || inEvent(exec, "input.request.principal.uid") != 0.0 || inEvent(masked[0], "result.grant") != nil || inEvent(masked[0], "input.request.principal.uid") != 1000.0 {
		t.Errorf("%v", lines)
	}
	if e, _ := exec["erased"].([]any); len(e) != 1 || e[0] != "/input/request/exec/argv/1" {
		t.Errorf("erased: %v", exec["erased"])
	}
	if m, _ := exec["masked"].([]any); len(m) != 1 || m[0] != "/input/request/principal/uid" {
		t.Errorf("masked: %v", exec["masked"])
	}
	digests, _ := inEvent(exec, "custom.stockade.masked_digests").(map[string]any)
	other, _ := inEvent(masked[2], "custom.stockade.masked_digests").(map[string]any)
	const argv = "/input/request/exec/argv/1"
	if d, _ := digests[argv].(string); !strings.HasPrefix(d, "hmac-sha256:") || d == other[argv] || digests["/input/request/principal/uid"] != other["/input/request/principal/uid"] {
		t.Errorf("%v %v", digests, other)
	}
	if _, since := exported(t, b.state, ExportOptions{Since: time.Now().Add(time.Hour)}); len(since) != 0 {
		t.Errorf("%d of the future", len(since))
	}

	// What cannot be masked is left out.
	for _, broken := range []string{
		"package system.log\n\nmask contains \"/labels\"", "package system.log\n\nmask contains 7", "package system.log\n\nmask := \"/input\"",
		"package system.log\n\nmask contains {\"op\": \"hide\", \"path\": \"/input\"}", "package system.log\n\nmask contains {\"op\": \"remove\"}",
		"package system.log\n\nmask contains sprintf(\"/input/%d\", [x]) if x := to_number(\"x\")",
	} {
		s.put(b.status().Active.Number+1, map[string]string{"masks.rego": broken})
		if r := b.activate(api.PolicyActivate{}); r.Outcome != api.OutcomeOK {
			t.Fatalf("%s: %s", broken, r.ErrorMessage)
		}
		events, lines := exported(t, b.state, ExportOptions{})
		for i, e := range events {
			if e["input"] != nil || e["result"] != nil || e["decision_id"] == nil {
				t.Errorf("%s: %s", broken, lines[i])
			}
		}
	}
	// And what does not compile is no policy.
	s.put(b.status().Active.Number+1, map[string]string{"masks.rego": "package system.log\n\nmask contains x"})
	if r := b.activate(api.PolicyActivate{}); r.ErrorCode != api.CodePolicyRefused {
		t.Errorf("%+v", r)
	}
}

// Following, nothing is left out and nothing comes twice.
func TestFollowDecisions(t *testing.T) {
	b, _ := startShelved(t)
	defer b.stop()
	id := b.session()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	got := make(chan string, 100)
	done := make(chan error, 1)
	go func() {
		_, err := Export(ctx, b.state, ExportOptions{Follow: true}, func(line []byte) error {
			var e struct {
				DecisionID string `json:"decision_id"`
			}
			if err := json.Unmarshal(line, &e); err != nil {
				return err
			}
			got <- e.DecisionID
			return nil
		})
		done <- err
	}()
	<-got
	for range 3 {
		r := b.exec(id, "true")
		if next := <-got; next != r.IntentID {
			t.Errorf("%s, want %s", next, r.IntentID)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(got) > 0 {
		t.Errorf("and %s", <-got)
	}
}
