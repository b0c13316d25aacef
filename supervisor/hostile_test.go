package supervisor

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// T208, R249: whatever text callers send, what the journal tells afterwards is what the supervisor knew, to the byte, and the
// next one starts. Texts are what readers of JSON differ about; they come through the decoder, as from the socket.
func TestHostileTextIsReplayed(t *testing.T) {
	b := start(t)
	rng := rand.New(rand.NewPCG(1, 2))
	parts := []string{
		`"`, `\`, `\\"`, "\\u0000", "\\ud800", "{", "}", "[", ",", ":", "null", `","exec_id":"x`, `"}}`, `_ref":"sha256:`, "\u2028", "\u2029", "\ufffd", "\ufeff",
		"\x01", "\x1b[2J", "\x7f", "é", "𝔘", "<script>", "&", "\n", "\t", "-0", "1e999", "9223372036854775808", strings.Repeat("x", 300), strings.Repeat("é", 200), " ", "type",
	}
	text := func() string {
		var s strings.Builder
		for range rng.IntN(6) {
			s.WriteString(parts[rng.IntN(len(parts))])
		}
		return s.String()
	}
	texts := func() map[string]string {
		m := map[string]string{}
		for range rng.IntN(3) {
			m[[]string{"type", "a_ref", "exec_id", "x"}[rng.IntN(4)]] = text()
		}
		return m
	}
	session := b.session()
	last := ""
	refused, done := 0, 0
	for i := range 600 {
		req := api.Request{Principal: alice, Facade: "http"}
		if rng.IntN(3) == 0 {
			req.Key = text()
		}
		if rng.IntN(4) == 0 {
			req.Principal.Scope = api.Scope{AgentID: text(), WorldID: text()}
		}
		var params any
		switch ref := (api.ProcessRef{ExecID: last}); rng.IntN(7) {
		case 0, 1, 2:
			env := map[string]api.EnvValue{}
			for range rng.IntN(2) {
				env["A"] = api.EnvValue{Text: text(), Secret: rng.IntN(2) == 0}
			}
			req.Op = api.OpExec
			params = api.Exec{SessionID: session, Argv: []string{"echo", text(), text()}, EnvPatch: env, Labels: texts(), Cwd: text(),
				Stdin: &api.Stdin{InlineText: &api.InlineText{Text: text()}}, Scope: req.Principal.Scope}
		case 3:
			req.Op = api.OpSessionOpen
			params = api.SessionOpen{Target: api.Target{Local: &api.Local{Env: map[string]api.EnvValue{"A": {Text: text()}}, Hostname: text()}}, Labels: texts(),
				Profile: []string{"", "forbidden", text()}[rng.IntN(3)], OnRestart: []string{"", "adopt", text()}[rng.IntN(3)]}
		case 4:
			req.Op = api.OpProcessInput
			params = api.ProcessInput{ProcessRef: ref, InputID: text(), Data: &api.Stdin{SecretText: &api.InlineText{Text: text()}}}
		case 5:
			req.Op = api.OpProcessDelete
			params = api.ProcessTarget{ProcessRef: ref}
		case 6:
			req.Op = api.OpSessionSignal
			params = api.SessionSignal{SessionID: text(), Signal: "TERM"}
		}
		body, err := api.Encode(params)
		if err != nil {
			t.Fatal(err)
		}
		if _, bad := req.SetParameters(body); bad != nil {
			refused++
			continue
		}
		r, err := b.Do(t.Context(), &req, nil)
		if err != nil {
			if code(err) != api.CodeKeyConflict {
				t.Errorf("%d: %s %s: %v", i, req.Op, body, err)
			}
			continue
		}
		if r.ExecID != "" && r.Op == api.OpExec {
			last = r.ExecID
		}
		if r.Op == api.OpSessionOpen && r.Outcome == api.OutcomeOK {
			b.close(r.SessionID)
		}
		if r.Outcome == api.OutcomeOK {
			done++
		}
	}
	if done < 50 {
		t.Errorf("only %d of them were carried out, %d did not decode: the test tests little", done, refused)
	}
	b = b.restart() // which compares
	defer b.stop()
	if r := b.exec(session, "true"); r.Outcome != api.OutcomeOK {
		t.Errorf("%+v", r)
	}
}
