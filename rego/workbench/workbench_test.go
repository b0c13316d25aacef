package workbench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// run executes the command and returns what it printed and its exit code.
func run(t *testing.T, opts Options, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := Command(opts)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String(), ExitCode(err)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAuthorsFirstHour is the way of somebody new (R111): init, check, test, a mistake.
func TestAuthorsFirstHour(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policy")
	if out, code := run(t, Options{}, "init", dir); code != 0 {
		t.Fatal(out)
	}
	if out, code := run(t, Options{}, "init", dir); code != 2 || !strings.Contains(out, "not empty") {
		t.Errorf("init over a policy: %d %s", code, out)
	}
	if out, code := run(t, Options{}, "check", "--strict", dir); code != 0 {
		t.Errorf("check of the scaffold: %d %s", code, out)
	}
	if out, code := run(t, Options{}, "test", dir); code != 0 || !strings.Contains(out, " 0 failed") {
		t.Errorf("test of the scaffold: %d %s", code, out)
	}

	rule := filepath.Join(dir, "open", "mine.rego")
	for _, mistake := range []struct{ name, text, says string }{
		{"syntax", "package stockade.open\n\nallow if {", "open/mine.rego:"},
		{"builtin", "package stockade.open\n\ndeny contains x if {\n\tx := http.send({})\n}", "open/mine.rego:4: builtin http.send is not available to policies"},
		{"unknown function", "package stockade.open\n\nx := nothing(1)", "undefined function nothing"},
		{"misspelt member", "package stockade.open\n\ndeny contains \"x\" if input.request.opne", "open/mine.rego:3: undefined ref: input.request.opne"},
		{"unused variable", "package stockade.open\n\nx if {\n\ty := 1\n}", "open/mine.rego:4"},
	} {
		if err := os.WriteFile(rule, []byte(mistake.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := run(t, Options{}, "check", dir); code != 1 || !strings.Contains(out, mistake.says) {
			t.Errorf("%s: %d %s", mistake.name, code, out)
		}
	}

	if err := os.WriteFile(rule, []byte("package stockade.open\n\ndeny contains {\"code\": \"x\"} if not input.facts.sources[input.request.op]"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := run(t, Options{}, "check", dir)
	if code != 0 {
		t.Errorf("warnings are no findings without --strict: %d", code)
	}
	for _, says := range []string{"without subject", "without message", "METADATA", "before the negation"} {
		if !strings.Contains(out, says) {
			t.Errorf("no warning %q in %s", says, out)
		}
	}
	if _, code := run(t, Options{}, "check", "--strict", dir); code != 1 {
		t.Errorf("check --strict: %d", code)
	}

	if err := os.WriteFile(rule, []byte("package stockade.open\n\ndeny contains {\"code\": \"x\"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := run(t, Options{}, "test", dir); code != 1 || !strings.Contains(out, "fail ") {
		t.Errorf("test with a rule that denies everything: %d %s", code, out)
	}
}

func TestTest(t *testing.T) {
	out, code := run(t, Options{}, "test", "--json", "--coverage", "--run", "test_climbing")
	var got tested
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatal(err, code, out)
	}
	if got.Passed != 1 || got.Coverage == 0 || len(got.NotCovered) == 0 {
		t.Errorf("%+v", got)
	}
	if _, code := run(t, Options{}, "test", "--run", "no_such_test"); code != 1 {
		t.Errorf("no test ran: %d", code)
	}
}

const asked = `{"target": {"local": {
	"mounts": [{"host_path": "/srv/p", "guest_path": "/workspace", "mode": "rw"}],
	"env": {"TOKEN": {"secret": "hunter2"}}}},
	"limits": {"memory_bytes": 99999999999}}`

const facts = `{"sources": {"/srv/p": {"resolved": "/srv/p", "kind": "dir", "dev": 1, "ino": 2, "owner_uid": 1000, "mode": 448}}}`

func TestEval(t *testing.T) {
	request, known := write(t, "open.json", asked), write(t, "facts.json", facts)

	out, code := run(t, Options{}, "eval", "--json", "--uid", "1000", "--request", request, "--facts", known)
	var got judged
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatal(err, code, out)
	}
	if !got.Allow || got.Effective == nil || len(got.Clamped) != 1 {
		t.Errorf("%+v", got)
	}

	out, code = run(t, Options{}, "eval", "--json", "--uid", "1001", "--request", request, "--facts", known)
	got = judged{}
	if err := json.Unmarshal([]byte(out[:strings.LastIndex(out, "}")+1]), &got); err != nil || code != 1 {
		t.Fatal(err, code, out)
	}
	if strings.Contains(out, "hunter2") {
		t.Error("a secret is shown")
	}
	want := rego.Reason{
		Deny:  api.Deny{Code: api.CodeMountHostPath, Subject: "mount:/srv/p"},
		Title: "The owner of a mount's source",
	}
	if len(got.Reasons) != 1 || got.Reasons[0].Deny.Code != want.Deny.Code || got.Reasons[0].Deny.Subject != want.Deny.Subject || got.Reasons[0].Title != want.Title {
		t.Fatalf("%+v", got.Reasons)
	}
	for _, remedy := range got.Reasons[0].Remedies {
		if !remedy.Sufficient {
			t.Errorf("%s is not enough", remedy.Change)
		}
	}
	if len(got.Reasons[0].Remedies) != 2 {
		t.Errorf("%+v", got.Reasons[0].Remedies)
	}

	for _, bad := range []struct{ name, body, says string }{
		{"unknown member", `{"target": {"local": {}}, "limit": {}}`, "unknown_member"},
		{"wrong case", `{"Target": {"local": {}}}`, "unknown_member"},
		{"invalid", `{"target": {}}`, "unsupported_target"},
	} {
		if out, code := run(t, Options{}, "eval", "--request", write(t, "bad.json", bad.body)); code != 2 || !strings.Contains(out, bad.says) {
			t.Errorf("%s: %d %s", bad.name, code, out)
		}
	}
}

// TestEvalIsolation shows an author what the parts of a request that isolate become, and what would help where they do not.
func TestEvalIsolation(t *testing.T) {
	known := write(t, "facts.json", facts)
	eval := func(body string) (judged, string) {
		t.Helper()
		out, _ := run(t, Options{}, "eval", "--json", "--uid", "1000", "--request", write(t, "open.json", body), "--facts", known)
		var got judged
		if err := json.Unmarshal([]byte(out[:strings.LastIndex(out, "}")+1]), &got); err != nil {
			t.Fatal(err, out)
		}
		return got, out
	}
	got, out := eval(`{"limits": {"disk_bytes": 100000000}, "verify": "canary", "target": {"local": {"network_mode": "egress",
		"mounts": [{"host_path": "/srv/p", "guest_path": "/workspace", "mode": "overlay", "bytes": 50000000, "inodes": 1000}]}}}`)
	if !got.Allow || got.Effective.Mounts[0].Bytes != 50000000 || len(got.Effective.Mounts[0].Protect) == 0 || got.Effective.Verify != "canary" || got.Effective.Ceilings.DiskBytes != 100000000 {
		t.Errorf("%s", out)
	}
	got, out = eval(`{"limits": {"disk_bytes": 100000000}, "target": {"local": {"mounts": [{"host_path": "/srv/p", "guest_path": "/workspace", "mode": "rw"}]}}}`)
	if got.Allow || !strings.Contains(out, "use overlay") {
		t.Errorf("a disk that nothing bounds: %s", out)
	}
	got, out = eval(`{"target": {"local": {"network_mode": "egress", "egress": [{"name": "example.org", "ports": [443]}]}}}`)
	if got.Allow || got.Reasons[0].Deny.Code != api.CodeDestination || len(got.Reasons[0].Remedies) == 0 {
		t.Errorf("%s", out)
	}
}

// TestEvalControl asks about every operation on an execution, by its canonical name and by an
// alias of it.
func TestEvalControl(t *testing.T) {
	session := write(t, "session.json", `{"session_id": "s", "principal": {"uid": 1000, "gid": 1000}, "grant": {"exec": {"signals": ["TERM"]}}}`)
	process := write(t, "process.json", `{"exec_id": "x", "state": "running", "argv": ["sleep", "9"], "labels": {"role": "server"}}`)
	for _, row := range []struct {
		op, body string
		code     int
	}{
		{"host.session.pause", `{"session_id": "s"}`, 0},
		{"host.session.resume", `{"session_id": "s"}`, 0},
		{"host.session.narrow", `{"session_id": "s", "network": {"mode": "none"}}`, 0},
		{"host.workspace.diff", `{"session_id": "s", "limit": 10}`, 0},
		{"host.workspace.commit", `{"session_id": "s", "paths": ["a/b"]}`, 0},
		{"host.workspace.commit", `{"session_id": "s", "paths": ["../b"]}`, 2},
		{"host.workspace.discard", `{"session_id": "s"}`, 0},
		{"host.process.input", `{"exec_id": "x", "data": {"inline_text": {"text": "y"}}}`, 0},
		{"effect.close", `{"exec_id": "x"}`, 0},
		{"host.process.signal", `{"exec_id": "x", "signal": "TERM"}`, 0},
		{"host.process.signal", `{"exec_id": "x", "signal": "USR1"}`, 1},
		{"host.process.modify", `{"exec_id": "x", "timeout_ns": 1}`, 0},
		{"host.process.pause", `{"exec_id": "x"}`, 0},
		{"host.process.resume", `{"exec_id": "x"}`, 0},
		{"host.process.cancel", `{"exec_id": "x"}`, 0},
		{"effect.cancel", `{"exec_id": "x"}`, 0},
		{"host.process.delete", `{"exec_id": "x"}`, 0},
		{"host.process.stop", `{"labels": {"role": "server"}}`, 0},
		{"host.process.list", `{}`, 0},
		{"host.process.watch", `{"exec_id": "x"}`, 0},
		{"host.events", `{}`, 0},
		{"intent.list", `{}`, 0},
		{"admin.quiescence", `{}`, 1},
		{"admin.drain", `{}`, 1},
		{"admin.log.level", `{"level": "debug"}`, 1},
		{"host.process.kill", `{}`, 2},
	} {
		out, code := run(t, Options{}, "eval", "--uid", "1000", "--op", row.op, "--session", session, "--process", process, "--request", write(t, "body.json", row.body))
		if code != row.code {
			t.Errorf("%s %s: exit code %d\n%s", row.op, row.body, code, out)
		}
	}
	out, code := run(t, Options{}, "eval", "--uid", "1000", "--op", "host.process.cancel", "--session", session, "--request", write(t, "body.json", `{"exec_id": "x"}`))
	if code != 1 || !strings.Contains(out, "operation_not_allowed object") {
		t.Errorf("without the execution: %d\n%s", code, out)
	}
}

func TestWhy(t *testing.T) {
	in := rego.Input{
		Request: &api.Request{Op: api.OpExec, Principal: api.Principal{UID: 1000}, Exec: &api.Exec{SessionID: "s", Argv: []string{"a", "b", "c"}}},
		Session: &rego.Session{Principal: api.Principal{UID: 1000}, Grant: &api.Grant{Exec: api.GrantExec{MaxArgv: 2}}},
	}
	records := func(state, intent string) (Record, error) {
		if state != "here" || intent != "i1" {
			return Record{}, errors.New("no such intent")
		}
		return Record{Entrypoint: rego.Exec, PolicyDigest: "sha256:old", Input: in}, nil
	}
	opts := Options{Records: records, StateDir: "here"}
	for _, row := range []struct {
		name string
		opts Options
		arg  string
		code int
		says []string
	}{
		{"by id", opts, "i1", 1, []string{
			"note: the policy that decided was sha256:old", "argv_limit_exceeded argv", "exec/command.rego:",
			"would help: open the session with a grant whose exec.max_argv is at least 3 (and all is allowed)",
		}},
		{"by receipt", opts, write(t, "receipt.json", `{"intent_id": "i1", "outcome": "denied", "from_a_later_version": 1}`), 1, []string{"argv_limit_exceeded"}},
		{"by receipt alone", Options{}, write(t, "receipt.json", `{"intent_id": "i1", "outcome": "denied", "deny": [{"code": "x", "subject": "y"}], "policy": {"digest": "sha256:d", "rules": ["a.rego:1 p.r"]}}`), 1, []string{"from the receipt alone", "x y", "a.rego:1 p.r"}},
		{"unknown id", opts, "i2", 2, []string{"no such intent"}},
		{"no state", Options{}, "i1", 2, []string{"--state"}},
		{"not a receipt", opts, write(t, "receipt.json", `[]`), 2, []string{"is not a receipt"}},
	} {
		out, code := run(t, row.opts, "why", row.arg)
		if code != row.code {
			t.Errorf("%s: exit code %d\n%s", row.name, code, out)
		}
		for _, s := range row.says {
			if !strings.Contains(out, s) {
				t.Errorf("%s: no %q in\n%s", row.name, s, out)
			}
		}
	}
}

// A search that was given up is told of, and not passed over as one that has found nothing.
func TestGivenUpIsTold(t *testing.T) {
	var out bytes.Buffer
	judged{GivenUp: []rego.GivenUp{{Of: "data", Tried: 17}}}.text(&out)
	if want := "the search for a smallest change of the data was given up after trying 17: there may be one\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if (judged{}).text(&out); strings.Contains(out.String(), "given up") {
		t.Errorf("%s", out.String())
	}
}
