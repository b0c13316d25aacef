package workbench

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// own is a copy of the library in a directory, with changes to its files.
func own(t *testing.T, changes map[string][2]string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policy")
	if err := os.CopyFS(dir, policies.FS); err != nil {
		t.Fatal(err)
	}
	for name, change := range changes {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), change[0]) {
			t.Fatalf("%s has no %q: %v", name, change[0], err)
		}
		files[name] = strings.ReplaceAll(string(text), change[0], change[1])
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// recordings are a few records, as the shipped library decided them.
func recordings(t *testing.T) EachRecord {
	t.Helper()
	engine, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	cases, err := usualCases()
	if err != nil {
		t.Fatal(err)
	}
	return func(state string, fn func(Record) error) (int64, error) {
		if state != "here" {
			return 0, errors.New("no such directory")
		}
		for _, c := range cases {
			in, err := c.Typed()
			if err != nil {
				return 0, err
			}
			d := engine.Decide(t.Context(), c.Entrypoint, in)
			if err := fn(Record{IntentID: c.Name, Entrypoint: c.Entrypoint, PolicyDigest: engine.Digest(), Input: in, InputDigest: d.InputDigest, Decision: d}); err != nil {
				return 0, err
			}
		}
		return 2, nil
	}
}

// TestReplay (R110): what was recorded is asked of a candidate, and what would be otherwise is said field by field.
func TestReplay(t *testing.T) {
	opts := Options{All: recordings(t), StateDir: "here"}
	out, code := run(t, opts, "replay", "--json", "--fail-on=any")
	if code != 0 || strings.Contains(out, `"changes"`) || !strings.Contains(out, "2 recorded decisions are left out") {
		t.Errorf("by itself: %d\n%s", code, out)
	}
	wider := own(t, map[string][2]string{"profiles/workspace/data.json": {`"pids": 128`, `"pids": 256`}}, map[string]string{})
	narrower := own(t, map[string][2]string{"profiles/workspace/data.json": {`"pids": 128`, `"pids": 16`}}, map[string]string{})
	denying := own(t, nil, map[string]string{"open/ours.rego": `package stockade.open

deny contains {"code": "ours", "subject": "network", "message": "none"} if input.request.open.target.local.network_mode == "egress"
`})
	allowing := own(t, map[string][2]string{"profiles/workspace/data.json": {`"guest_prefixes": [`, `"guest_prefixes": ["/usr/lib/", `}}, map[string]string{})
	for _, row := range []struct {
		name, policy, failOn string
		code                 int
		says                 string
	}{
		{"wider", wider, "widen", 1, "wider ceilings.pids: 128 → 256"},
		{"wider is no flip", wider, "flip", 0, "0 denied → allowed, 0 allowed → denied"},
		{"narrower", narrower, "widen,flip", 0, "narrower ceilings.pids: 128 → 16"},
		{"narrower is something", narrower, "any", 1, ""},
		{"denying", denying, "widen", 0, "denied: ours network"},
		{"denying is a flip", denying, "flip", 1, "narrower allow: true → false"},
		{"allowing", allowing, "widen", 1, "1 denied → allowed"},
		{"nonsense", wider, "always", 2, "is none of widen, flip, any"},
	} {
		out, code := run(t, opts, "replay", "--fail-on", row.failOn, row.policy)
		if code != row.code || !strings.Contains(out, row.says) {
			t.Errorf("%s: %d\n%s", row.name, code, out)
		}
	}
	if out, code := run(t, opts, "replay", "--state", "elsewhere"); code != 2 {
		t.Errorf("elsewhere: %d\n%s", code, out)
	}
	if out, code := run(t, Options{}, "replay", "--state", "here"); code != 2 || !strings.Contains(out, "--records") {
		t.Errorf("without a reader: %d\n%s", code, out)
	}
}

// TestReplayExport: an export in the shape of a decision log is as good as the state directory.
func TestReplayExport(t *testing.T) {
	var lines strings.Builder
	if _, err := recordings(t)("here", func(r Record) error {
		result := map[string]any{"allow": r.Decision.Allow, "deny": r.Decision.Deny, "grant": r.Decision.Grant}
		text, err := json.Marshal(map[string]any{"decision_id": r.IntentID, "path": r.Entrypoint, "input": r.Input, "result": result, "labels": map[string]string{}})
		lines.Write(append(text, '\n'))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	file := write(t, "yesterday.jsonl", lines.String()+`{"decision_id": "m", "input": {}, "masked": ["/input/request/exec/argv"]}`)
	if out, _ := run(t, Options{}, "replay", "--records", file); !strings.Contains(out, "1 decisions of "+file+" are left out") {
		t.Errorf("what was masked:\n%s", out)
	}
	if out, code := run(t, Options{}, "replay", "--records", file, "--fail-on=any"); code != 0 || !strings.Contains(out, "0 other") {
		t.Errorf("%d\n%s", code, out)
	}
	if out, code := run(t, Options{}, "replay", "--records", write(t, "bad.jsonl", `{"input": {"request": {"op": "none"}}}`)); code != 2 || !strings.Contains(out, "bad.jsonl:1") {
		t.Errorf("%d\n%s", code, out)
	}
}

// TestDiff: rules, data, and what they mean.
func TestDiff(t *testing.T) {
	after := own(t, map[string][2]string{"profiles/workspace/data.json": {`"pids": 128`, `"pids": 256`}}, map[string]string{"open/ours.rego": `package stockade.open

deny contains {"code": "ours", "subject": "network", "message": "none"} if input.request.open.target.local.network_mode == "egress"
`})
	opts := Options{All: recordings(t)}
	out, code := run(t, opts, "diff", "--state", "here", "--fail-on=widen", own(t, nil, map[string]string{}), after)
	for _, says := range []string{
		"changed stockade.open.deny", "changed data.profiles.workspace.ceilings.default.pids: 128 → 256",
		"wider ceilings.pids: 128 → 256", "denied: ours network",
	} {
		if code != 1 || !strings.Contains(out, says) {
			t.Errorf("%d, no %q in\n%s", code, says, out)
		}
	}
	if out, code := run(t, opts, "diff", "--state", "here", "--fail-on=any", after, after); code != 0 {
		t.Errorf("the same: %d\n%s", code, out)
	}
}

// TestBench: a policy over its budget, by flag or by its own word, is refused.
func TestBench(t *testing.T) {
	declared := own(t, nil, map[string]string{"budget.json": `{"stockade_budget": {"exec": "1ns"}}`})
	opts := Options{All: recordings(t)}
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "slowest case"},
		{[]string{"--budget", "open=1h", "--budget", "exec.p50=1h"}, 0, "open"},
		{[]string{"--budget", "open.p50=1ns"}, 1, "over budget: open p50 takes"},
		{[]string{"--budget", "open"}, 2, "ENTRY=TIME"},
		{[]string{"--budget", "nothing=1ms"}, 2, "no case of an entry point nothing"},
		{[]string{declared}, 1, "over budget: exec p99 takes"},
	} {
		out, code := run(t, opts, append([]string{"bench", "--state", "here", "--time", "1ms"}, row.args...)...)
		if code != row.code || !strings.Contains(out, row.says) {
			t.Errorf("%v: %d\n%s", row.args, code, out)
		}
	}
}

// TestAudit: a hole in a rule of one's own is found in what was recorded, and can be accepted by who wrote it.
func TestAudit(t *testing.T) {
	rule := func(custom string) string {
		return `package stockade.open

# METADATA
# title: Reds only
` + custom + `deny contains {"code": "team", "subject": "labels", "message": "reds only"} if input.request.open.labels.team != "red"
`
	}
	fixture := `{"name": "blue", "allow": false, "input": {"request": {"op": "host.session.open", "principal": {"uid": 1000, "gid": 1000}, "open": {"target": {"local": {}}, "labels": {"team": "blue"}}}}}
`
	for _, row := range []struct {
		name, rule string
		code       int
		says       string
	}{
		{"a hole", rule(""), 1, "open/ours.rego:5: error: deny→allow /request/open/labels/team (delete"},
		{"an accepted one", rule("# custom: {audit: {/request/open/labels/team: \"who has none is red\", /request/open/labels: \"the same\"}}\n"), 0, "accepted: who has none is red"},
	} {
		dir := own(t, nil, map[string]string{"open/ours.rego": row.rule, "fixtures/ours.jsonl": fixture})
		out, code := run(t, Options{}, "audit", "--records", filepath.Join(dir, "fixtures/ours.jsonl"), dir)
		if code != row.code || !strings.Contains(out, row.says) {
			t.Errorf("%s: %d\n%s", row.name, code, out)
		}
	}
}

// TestShippedLibraryHasNoHole is the audit of the library that decides when nobody says otherwise, with the example that a policy begins with, over
// what its own tests ask: what policies/README.md has its reader run.
func TestShippedLibraryHasNoHole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policy")
	if out, code := run(t, Options{}, "init", dir); code != 0 {
		t.Fatal(out)
	}
	out, code := run(t, Options{}, "audit", "--json", dir)
	var got rego.Audited
	if i := strings.LastIndex(out, "}"); json.Unmarshal([]byte(out[:i+1]), &got) != nil || got.Cases < 300 || got.Questions < 10000 {
		t.Fatalf("%d cases, %d questions: %.500s", got.Cases, got.Questions, out)
	}
	for _, h := range got.Holes {
		if h.Level == "error" {
			t.Errorf("%s %s %s %v: %s, as in %s", h.Rule, h.Effect, h.Field, h.Change, h.Message, h.Case)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestFixtures: a fixture that says what the answer must be is a test, and coverage can be asked for.
func TestFixtures(t *testing.T) {
	line := func(allow string) string {
		return `{"name": "plain", "allow": ` + allow + `, "input": {"request": {"op": "host.session.open", "principal": {"uid": 1000, "gid": 1000}, "open": {"target": {"local": {}}}}}}`
	}
	for _, row := range []struct {
		allow string
		code  int
		says  string
	}{{"true", 0, "1 passed, 0 failed"}, {"false", 1, "fixture plain"}} {
		dir := own(t, nil, map[string]string{"fixtures/ours.jsonl": line(row.allow)})
		if out, code := run(t, Options{}, "test", "--run", "^fixture", dir); code != row.code || !strings.Contains(out, row.says) {
			t.Errorf("%s: %d\n%s", row.allow, code, out)
		}
	}
	if out, code := run(t, Options{}, "test", "--run", "test_climbing", "--fail-under", "99"); code != 1 || !strings.Contains(out, "is under the 99.0 %") {
		t.Errorf("%d\n%s", code, out)
	}
}

// TestWhyReplays: with the policy that decided the answer is the recorded one, bit for bit; with another, why does not pretend.
func TestWhyReplays(t *testing.T) {
	in := rego.Input{
		Request: &api.Request{Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http", Open: &api.SessionOpen{
			Target: api.Target{Local: &api.Local{NetworkMode: "egress", Egress: []api.Destination{{Name: "example.org", Ports: []uint16{443}}}}},
		}},
		Ceiling: sandbox.DefaultCeiling(), NowNS: someTime,
	}
	engine, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	d := engine.Decide(t.Context(), rego.Open, in)
	record := Record{IntentID: "i", Entrypoint: rego.Open, PolicyDigest: engine.Digest(), Input: in, InputDigest: d.InputDigest, Decision: d}
	opts := Options{StateDir: "here", Records: func(string, string) (Record, error) { return record, nil }}
	out, code := run(t, opts, "why", "i")
	for _, says := range []string{
		"replayed: input " + d.InputDigest + " and answer are the recorded ones, bit for bit", "destination_not_allowed egress:example.org:443",
		"smallest change of the data", `profiles.workspace.egress: add {"name":"example.org","ports":[443]}`, "network.allow: none → ",
	} {
		if code != 1 || !strings.Contains(out, says) {
			t.Errorf("%d, no %q in\n%s", code, says, out)
		}
	}
	other := own(t, map[string][2]string{"profiles/workspace/data.json": {`"egress": []`, `"egress": [{"name": "example.org"}]`}}, map[string]string{})
	out, code = run(t, opts, "why", "--policy", other, "i")
	if code != 0 || !strings.Contains(out, "not replayed: another policy is asked") || !strings.Contains(out, "recorded: denied by "+engine.Digest()) || !strings.Contains(out, "now: allowed by") {
		t.Errorf("another policy: %d\n%s", code, out)
	}
	record.Decision.Deny = []api.Deny{{Code: "other"}}
	if out, _ := run(t, opts, "why", "--smallest=false", "i"); !strings.Contains(out, "not replayed: bug: deny was") {
		t.Errorf("a record that is not what the policy says:\n%s", out)
	}
	record.InputDigest = "sha256:other"
	if out, _ := run(t, opts, "why", "--smallest=false", "i"); !strings.Contains(out, "not replayed: the input is ") {
		t.Errorf("another input:\n%s", out)
	}
}

// taught is a supervisor in which a command needs one mount of two, writes to the other, and six processes.
type taught struct {
	source string
	runs   int
	asked  api.SessionOpen
}

func (s *taught) Open(_ context.Context, ask api.SessionOpen) (*api.Receipt, error) {
	s.asked = ask
	grant := &api.Grant{Ceilings: api.Ceilings{PIDs: 64}}
	for _, m := range ask.Target.Local.Mounts {
		grant.Mounts = append(grant.Mounts, api.GrantMount{HostPath: m.HostPath, GuestPath: m.GuestPath, Mode: m.Mode})
	}
	return &api.Receipt{Outcome: api.OutcomeOK, Payload: api.Payload{Open: &api.OpenResult{SessionID: "s", Grant: grant}}}, nil
}

func (s *taught) Exec(_ context.Context, x api.Exec) (*api.Receipt, error) {
	s.runs++
	r := &api.ExecResult{Status: "ok", Usage: api.Usage{PeakMemoryBytes: 5 << 20, WallNS: 1e9}}
	if x.Limits.PIDs > 0 && x.Limits.PIDs < 6 {
		r.ExitCode = 1
	}
	return &api.Receipt{Outcome: api.OutcomeOK, Payload: api.Payload{Exec: r}}, nil
}

func (s *taught) Narrow(context.Context, api.SessionNarrow) (*api.Receipt, error) {
	return nil, errors.New("there is no network")
}

func (s *taught) Close(context.Context, api.SessionClose) (*api.Receipt, error) {
	return &api.Receipt{Outcome: api.OutcomeOK}, nil
}

func (s *taught) Changes(_ context.Context, space api.Workspace) iter.Seq2[api.Change, error] {
	return func(yield func(api.Change, error) bool) {
		if space.GuestPath == "/work" {
			yield(api.Change{Path: "out", Size: 7}, nil)
		}
	}
}

func TestLearn(t *testing.T) {
	work, spare := t.TempDir(), t.TempDir()
	s := &taught{source: work}
	dir := filepath.Join(t.TempDir(), "learned")
	opts := Options{Dial: func(string) Sessions { return s }}
	out, code := run(t, opts, "learn", "build", "--json", "--mount", work+":/work", "--mount", spare+":/mnt/spare", "--out", dir, "--", "make")
	var got learned
	if i := strings.Index(out, "{"); code != 0 || json.Unmarshal([]byte(out[i:]), &got) != nil {
		t.Fatalf("%d\n%s", code, out)
	}
	o := got.Observed
	if o.PIDs != 6 || len(o.Mounts) != 2 || o.Mounts[0].Changes != 1 || !o.Mounts[0].Needed || o.Mounts[1].Needed || len(o.Unobserved) < 2 {
		t.Errorf("%+v", o)
	}
	if m := got.Request.Target.Local.Mounts; len(m) != 1 || m[0].Mode != api.ModeOverlay || !strings.Contains(got.Run, "--overlay "+work+":/work") {
		t.Errorf("%+v, %s", m, got.Run)
	}
	if len(got.Tests) < 8 || !strings.HasPrefix(got.Tests[0], "allowed: ") {
		t.Errorf("%q", got.Tests)
	}
	if out, code := run(t, Options{}, "test", dir); code != 0 {
		t.Errorf("its tests: %d\n%s", code, out)
	}
	for _, args := range [][]string{
		{"learn", "build", "--out", dir, "--", "make"},       // not empty
		{"learn", "Build", "--out", dir + "2", "--", "make"}, // no name
		{"learn", "build", "--", "make"},                     // nowhere
		{"learn", "build", "--out", dir + "2", "--network", "egress", "--base", "nowhere", "--", "make"},
	} {
		if out, code := run(t, opts, args...); code != 2 {
			t.Errorf("%v: %d\n%s", args, code, out)
		}
	}
}
