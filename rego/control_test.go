package rego_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// controlInput is an operation on an execution of the session of execInput.
func controlInput(t testing.TB, e *rego.Engine, req api.Request) rego.Input {
	in := execInput(t, e)
	req.Principal, req.Facade = in.Request.Principal, "http"
	in.Request = &req
	in.Process = rego.ProcessOf(api.Process{
		ExecID: "x1", IntentID: "sha256:00", SessionID: "s1", State: api.StateRunning,
		Argv: []string{"server", "--port", "80"}, Labels: map[string]string{"role": "server"},
		QueuedAtNS: in.NowNS - 2, StartedAtNS: in.NowNS - 1, StdoutBytes: 7,
	})
	return in
}

// TestJudgeExecution: a policy of one's own decides by what it is told of the execution, and
// the canonical input decodes to itself, so that a record of it can be asked again.
func TestJudgeExecution(t *testing.T) {
	library := load(t, policies.FS, rego.Options{})
	files := tree(`decision := {"allow": false, "deny": []}`)
	files["signal.rego"] = &fstest.MapFile{Data: []byte(`package stockade.signal

decision := {"allow": true, "deny": []} if count(deny) == 0

decision := {"allow": false, "deny": deny} if count(deny) > 0

deny contains {"code": "kept", "subject": "execution", "message": "servers are cancelled by hand"} if {
	input.request.op == "host.process.cancel"
	input.process.labels.role == "server"
	input.process.state == "running"
	input.process.argv[0] == "server"
	input.process.started_at_ns > input.process.queued_at_ns
}

deny contains {"code": "said", "subject": "input", "message": "no passwords"} if {
	contains(input.request.input.data.inline_text.text, "password")
}
`)}
	e := load(t, files, rego.Options{})

	server := controlInput(t, library, api.Request{Op: api.OpProcessCancel, Cancel: &api.ProcessCancel{ProcessRef: api.ProcessRef{ExecID: "x1"}}})
	d := e.Decide(t.Context(), rego.Signal, server)
	if d.Allow || d.Deny[0].Code != "kept" {
		t.Errorf("a server: %v %v", d.Allow, d.Deny)
	}
	var decoded rego.Input
	if err := json.Unmarshal(d.Input, &decoded, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	if again := e.Decide(t.Context(), rego.Signal, decoded); again.InputDigest != d.InputDigest {
		t.Errorf("decoded and encoded again:\n%s\nbecame\n%s", d.Input, again.Input)
	}

	batch := server
	batch.Process = &rego.Process{ExecID: "x1", State: api.StateRunning}
	if d := e.Decide(t.Context(), rego.Signal, batch); !d.Allow {
		t.Errorf("another: %v", d.Deny)
	}

	said := func(data *api.Stdin) rego.Decision {
		req := api.Request{Op: api.OpProcessInput, Input: &api.ProcessInput{ProcessRef: api.ProcessRef{ExecID: "x1"}, Data: data}}
		return e.Decide(t.Context(), rego.Signal, controlInput(t, library, req.Redact([]byte("salt"))))
	}
	if d := said(&api.Stdin{InlineText: &api.InlineText{Text: "my password"}}); d.Allow || d.Deny[0].Code != "said" {
		t.Errorf("input is there to be judged: %v %v", d.Allow, d.Deny)
	}
	if d := said(&api.Stdin{SecretText: &api.InlineText{Text: "my password"}}); !d.Allow || strings.Contains(string(d.Input), "password") {
		t.Errorf("a secret is not: %v %s", d.Deny, d.Input)
	}

	files["signal.rego"].Data = append(files["signal.rego"].Data, "\nmisspelt if input.process.lables.role\n"...)
	if _, err := rego.Load(files, rego.Options{}); err == nil || !strings.Contains(err.Error(), "input.process.lables") {
		t.Errorf("a misspelt member of the execution: %v", err)
	}
}

// TestLibraryAnswersEverything: whatever is asked about an operation, even with nothing said, the
// library has an answer of its own, so that no caller is told that there is none.
func TestLibraryAnswersEverything(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	for _, op := range []api.Op{
		api.OpSessionOpen, api.OpSessionGet, api.OpSessionList, api.OpSessionEvents, api.OpSessionSignal, api.OpSessionPause,
		api.OpSessionResume, api.OpSessionClose, api.OpExec, api.OpProcessGet, api.OpProcessList, api.OpProcessWait,
		api.OpProcessWatch, api.OpOutput, api.OpProcessInput, api.OpProcessSignal, api.OpProcessModify, api.OpProcessPause,
		api.OpProcessResume, api.OpProcessCancel, api.OpProcessDelete, api.OpProcessStop, api.OpEvents, api.OpIntentGet,
		api.OpIntentList, api.OpIntentFrames, api.OpBlobPut, api.OpBlobGet, api.OpReceiptGet, api.OpReceiptList,
		api.OpCheckpoint, api.OpDecide, api.OpHostInfo, api.OpQuiescence, api.OpSnapshot, api.OpAudit, api.OpDrain, api.OpCapabilities,
		api.OpSessionNarrow, api.OpWorkspaceDiff, api.OpWorkspaceCommit, api.OpWorkspaceDiscard,
		api.OpPolicyStatus, api.OpPolicyPreview, api.OpPolicyActivate, api.OpSettings, api.OpLogLevel,
	} {
		ref, ok := rego.Entrypoint(op)
		if !ok {
			t.Errorf("%s has no entry point", op)
			continue
		}
		for _, uid := range []uint32{0, 1000} {
			d := e.Decide(t.Context(), ref, rego.Input{Request: &api.Request{Op: op, Principal: api.Principal{UID: uid}}})
			if slices.ContainsFunc(d.Deny, func(deny api.Deny) bool { return strings.HasPrefix(string(deny.Code), "policy.") }) {
				t.Errorf("%s: %v", op, d.Deny)
			}
			if d.Allow && (ref == rego.Signal || ref == rego.Workspace) {
				t.Errorf("%s: allowed, and nothing was said", op)
			}
		}
	}
}
