package rego_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/policies"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// tree is a policy whose open says what is given; the other entry points allow.
func tree(open string) fstest.MapFS {
	files := fstest.MapFS{"open.rego": {Data: []byte("package stockade.open\n\n" + open)}}
	for _, name := range []string{"exec", "signal", "blob", "read"} {
		files[name+".rego"] = &fstest.MapFile{Data: fmt.Appendf(nil, "package stockade.%s\n\ndecision := {\"allow\": true, \"deny\": []}\n", name)}
	}
	return files
}

func load(t testing.TB, fsys fs.FS, opts rego.Options) *rego.Engine {
	t.Helper()
	if opts.Deadline == 0 {
		opts.Deadline = 10 * time.Second // this machine may be busy; one test is about deadlines
	}
	e, err := rego.Load(fsys, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// openInput asks for a session with so many mounts of the caller's own directories.
func openInput(mounts int) rego.Input {
	open := &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}
	in := rego.Input{
		Request: &api.Request{Op: api.OpSessionOpen, Principal: api.Principal{UID: 1000, GID: 1000}, Facade: "http", Open: open},
		Facts:   rego.Facts{Sources: map[string]rego.Source{}},
		Ceiling: sandbox.DefaultCeiling(),
		NowNS:   1_700_000_000_000_000_000,
	}
	for i := range mounts {
		host := fmt.Sprintf("/home/alice/%d", i)
		open.Target.Local.Mounts = append(open.Target.Local.Mounts, api.Mount{HostPath: host, GuestPath: fmt.Sprintf("/workspace/%d", i), Mode: "rw"})
		in.Facts.Sources[host] = rego.Source{Found: &rego.Found{Resolved: host, Kind: "dir", Dev: 1, Ino: 100, OwnerUID: 1000, Mode: 0o755}}
	}
	return in
}

// grantText is a grant that is well formed and within the default ceiling.
const grantText = `{
	"root": "host", "mounts": [], "scratch": [], "identity": {"uid": 1000, "gid": 1000},
	"ceilings": {"memory_bytes": 1000, "cpu_millis": 100, "pids": 10, "files": 10, "output_bytes": 100, "executions": 1},
	"seccomp": "default", "network": {"mode": "none"}, "env": {}, "exec": {}, "workdir": "/", "hostname": "h",
}`

// TestFailuresAreDenials is R108: whatever goes wrong with a policy, the answer is a
// denial with a code of its own.
func TestFailuresAreDenials(t *testing.T) {
	grantWith := func(member, value string) string {
		g := `json.patch(` + grantText + `, [{"op": "add", "path": "` + member + `", "value": ` + value + `}])`
		return `decision := {"allow": true, "deny": [], "grant": ` + g + `}`
	}
	for _, row := range []struct {
		name, open string
		code       api.Code
	}{
		{"allowed", `decision := {"allow": true, "deny": [], "grant": ` + grantText + `}`, ""},
		{"undefined", `decision := {"allow": true} if input.session.session_id == "x"`, api.CodePolicyUndefined},
		{"false", `decision := false`, api.CodePolicyResult},
		{"a string", `decision := "yes"`, api.CodePolicyResult},
		{"no allow", `decision := {"deny": []}`, api.CodePolicyResult},
		{"allow is a string", `decision := {"allow": "true", "deny": []}`, api.CodePolicyResult},
		{"allow is null", `decision := {"allow": null, "deny": []}`, api.CodePolicyResult},
		{"unknown member", `decision := {"allow": true, "deny": [], "grants": {}}`, api.CodePolicyResult},
		{"wrong case", `decision := {"Allow": true, "deny": []}`, api.CodePolicyResult},
		{"two answers", "decision := {\"allow\": true} if input.now_ns > 0\ndecision := {\"allow\": false} if input.now_ns > 1", api.CodePolicyNotOneResult},
		{"a builtin fails", `decision := {"allow": true, "deny": [], "grant": ` + grantText + `} if not net.cidr_contains("10.0.0.0/8", "10.0.0.300")`, api.CodePolicyBuiltinError},
		{"no grant", `decision := {"allow": true, "deny": []}`, api.CodePolicyNoGrant},
		{"denied without a reason", `decision := {"allow": false, "deny": []}`, api.CodePolicyDenied},
		{"a reason without a code", `decision := {"allow": false, "deny": [{"message": "no"}]}`, api.CodePolicyResult},
		{"allowed with a reason against it", `decision := {"allow": true, "deny": {{"code": "x"}}, "grant": ` + grantText + `}`, "x"},
		{"limits of an open", `decision := {"allow": true, "deny": [], "limits": {}, "grant": ` + grantText + `}`, api.CodePolicyResult},
		{"unknown member of the grant", grantWith("/privileged", "true"), api.CodePolicyResult},
		{"unknown member deep in the grant", grantWith("/identity/root", "true"), api.CodePolicyResult},
		{"negative number", grantWith("/ceilings/pids", "-1"), api.CodePolicyResult},
		{"fraction", grantWith("/ceilings/pids", "1.5"), api.CodePolicyResult},
		{"beyond 64 bits", grantWith("/ceilings/pids", "99999999999999999999"), api.CodePolicyResult},
		{"mode of a mount", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "rwx"}]`), api.CodePolicyResult},
		{"relative mount", grantWith("/mounts", `[{"host_path": "a", "guest_path": "/b", "mode": "ro"}]`), api.CodePolicyResult},
		{"climbing mount", grantWith("/mounts", `[{"host_path": "/a/../b", "guest_path": "/b", "mode": "ro"}]`), api.CodePolicyResult},
		{"unknown root", grantWith("/root", `"image"`), api.CodePolicyResult},
		{"scratch without a size", grantWith("/scratch", `[{"guest_path": "/tmp", "bytes": 0, "inodes": 1}]`), api.CodePolicyResult},
		{"a name that is none", grantWith("/env/set", `{"A=B": "x"}`), api.CodePolicyResult},
		{"an idle time", grantWith("/idle_timeout_ns", "99"), ""},
		{"negative idle time", grantWith("/idle_timeout_ns", "-1"), api.CodePolicyResult},
		{"negative queue", grantWith("/ceilings/queued", "-1"), api.CodePolicyResult},
		{"no queue", grantWith("/exec/queue", "false"), ""},
		{"unknown fate at a restart", grantWith("/on_restart", `"keep"`), api.CodePolicyResult},
		{"ended at a restart", grantWith("/on_restart", `"terminate"`), ""},

		{"more memory", grantWith("/ceilings/memory_bytes", "9000000000"), api.CodeGrantExceeds},
		{"more processes", grantWith("/ceilings/pids", "5000"), api.CodeGrantExceeds},
		{"longer life", grantWith("/ttl_ns", "999999999999999"), api.CodeGrantExceeds},
		{"longer timeout", grantWith("/exec/max_timeout_ns", "999999999999999"), api.CodeGrantExceeds},
		{"more scratch in sum", grantWith("/scratch", `[{"guest_path": "/a", "bytes": 5000000000, "inodes": 1}, {"guest_path": "/b", "bytes": 5000000000, "inodes": 1}]`), api.CodeGrantExceeds},
		{"a network", grantWith("/network/mode", `"full"`), api.CodeGrantExceeds},
		{"no seccomp profile", grantWith("/seccomp", `""`), api.CodeGrantExceeds},
		{"a capability", grantWith("/identity/capabilities", `["CAP_NET_RAW"]`), api.CodeGrantExceeds},
		{"uid 0", grantWith("/identity/uid", "0"), api.CodeGrantExceeds},
		{"init's uid", grantWith("/identity/uid", "65535"), api.CodeGrantExceeds},
		{"group 0", grantWith("/identity/groups", "[0]"), api.CodeGrantExceeds},
		{"a mount that was not asked for", grantWith("/mounts", `[{"host_path": "/a", "guest_path": "/b", "mode": "ro"}]`), api.CodeGrantExceeds},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := load(t, tree(row.open), rego.Options{}).Decide(t.Context(), rego.Open, openInput(0))
			if d.Allow != (row.code == "") || d.Allow != (d.Grant != nil) {
				t.Fatalf("allow %v, grant %v, deny %v", d.Allow, d.Grant, d.Deny)
			}
			if row.code != "" && (len(d.Deny) == 0 || d.Deny[0].Code != row.code) {
				t.Errorf("denied with %v, not %s", d.Deny, row.code)
			}
		})
	}
}

// TestGrantOfMounts is the ceiling on host paths: facts count, not names.
func TestGrantOfMounts(t *testing.T) {
	policy := `decision := {"allow": true, "deny": [], "grant": object.union(` + grantText + `, {"mounts": input.request.open.target.local.mounts})}`
	e := load(t, tree(policy), rego.Options{})
	for _, row := range []struct {
		name   string
		change func(*rego.Input)
		allow  bool
	}{
		{"as it is", func(*rego.Input) {}, true},
		{"outside the mount roots", func(in *rego.Input) { in.Ceiling.MountRoots = []string{"/srv", "/home/alice/00"} }, false},
		{"inside the mount roots", func(in *rego.Input) { in.Ceiling.MountRoots = []string{"/home"} }, true},
		{"no mount roots at all", func(in *rego.Input) { in.Ceiling.MountRoots = []string{} }, false},
		{"mount roots unconstrained", func(in *rego.Input) { in.Ceiling.MountRoots = nil }, true},
		{"rw outside read_write", func(in *rego.Input) { in.Ceiling.ReadWrite = []string{"/srv"} }, false},
		{"a link to elsewhere", func(in *rego.Input) { in.Facts.Sources["/home/alice/0"].Found.Resolved = "/proc/1/root" }, false},
		{"above what is denied", func(in *rego.Input) { in.Facts.Sources["/home/alice/0"].Found.Resolved = "/" }, false},
		{"not resolved", func(in *rego.Input) { in.Facts.Sources["/home/alice/0"] = rego.Source{Error: "mount_source"} }, false},
		{"no facts", func(in *rego.Input) { in.Facts.Sources = nil }, false},
		{"too many", func(in *rego.Input) { *in = openInput(65) }, false},
	} {
		in := openInput(1)
		row.change(&in)
		if d := e.Decide(t.Context(), rego.Open, in); d.Allow != row.allow {
			t.Errorf("%s: allow %v %v", row.name, d.Allow, d.Deny)
		}
	}
}

func TestExecLimits(t *testing.T) {
	files := tree(`decision := {"allow": false, "deny": []}`)
	grant := &api.Grant{Exec: api.GrantExec{MaxTimeoutNS: 100}}
	for answer, code := range map[string]api.Code{
		`{"allow": true, "deny": [], "limits": {"timeout_ns": 100}, "obligations": {"output": "blob"}}`: "",
		`{"allow": true, "deny": [], "limits": {"timeout_ns": 101}}`:                                    api.CodeGrantExceeds,
		`{"allow": true, "deny": [], "limits": {"timeout_ns": -1}}`:                                     api.CodeGrantExceeds,
		`{"allow": true, "deny": [], "obligations": {"output": "discard"}}`:                             api.CodePolicyResult,
		`{"allow": true, "deny": [], "grant": ` + grantText + `}`:                                       api.CodePolicyResult,
	} {
		files["exec.rego"] = &fstest.MapFile{Data: []byte("package stockade.exec\n\ndecision := " + answer)}
		d := load(t, files, rego.Options{}).Decide(t.Context(), rego.Exec, rego.Input{Request: &api.Request{Op: api.OpExec}, Session: &rego.Session{Grant: grant}})
		if d.Allow != (code == "") || code != "" && d.Deny[0].Code != code {
			t.Errorf("%s: %v %v", answer, d.Allow, d.Deny)
		}
		if d.Allow && (d.Limits.TimeoutNS != 100 || d.Obligations.Output != "blob") {
			t.Errorf("%+v", d)
		}
	}
}

func TestLoad(t *testing.T) {
	allow := `decision := {"allow": true}`
	for _, row := range []struct {
		name   string
		change func(fstest.MapFS)
		says   string
	}{
		{"syntax", func(f fstest.MapFS) { f["x.rego"] = &fstest.MapFile{Data: []byte("package x\n\nallow if {")} }, "x.rego:3"},
		{"Rego v0", func(f fstest.MapFS) { f["x.rego"] = &fstest.MapFile{Data: []byte("package x\n\nallow { true }")} }, "x.rego:3"},
		{"forbidden builtin", func(f fstest.MapFS) { f["x.rego"] = &fstest.MapFile{Data: []byte("package x\n\ny := opa.runtime()")} }, "x.rego:3: builtin opa.runtime is not available"},
		{"misspelt member of the input", func(f fstest.MapFS) {
			f["x.rego"] = &fstest.MapFile{Data: []byte("package x\n\ny if input.request.open.lables.x")}
		}, "x.rego:3: undefined ref: input.request.open.lables.x"},
		{"entry point missing", func(f fstest.MapFS) { delete(f, "exec.rego") }, "entry point data.stockade.exec.decision is not defined"},
		{"entry point elsewhere", func(f fstest.MapFS) {
			f["exec.rego"] = &fstest.MapFile{Data: []byte("package stockade.exec\n\nanswer := 1")}
		}, "data.stockade.exec.decision"},
		{"data that is no object", func(f fstest.MapFS) { f["d/data.json"] = &fstest.MapFile{Data: []byte("[]")} }, "d/data.json: data must be an object"},
		{"doubled member", func(f fstest.MapFS) { f["d/data.json"] = &fstest.MapFile{Data: []byte(`{"a": 1, "a": 2}`)} }, "d/data.json"},
		{"two documents", func(f fstest.MapFS) { f["d/data.json"] = &fstest.MapFile{Data: []byte(`{} {}`)} }, "d/data.json"},
		{"data set twice", func(f fstest.MapFS) {
			f["d/a.json"] = &fstest.MapFile{Data: []byte(`{"a": 1}`)}
			f["d/b.json"] = &fstest.MapFile{Data: []byte(`{"a": 2}`)}
		}, "d/b.json: sets a member of data that another file sets"},
		{"data over rules", func(f fstest.MapFS) {
			f["stockade/open/data.json"] = &fstest.MapFile{Data: []byte(`{"decision": {"allow": true}}`)}
		}, "open.rego:3"},
	} {
		f := tree(allow)
		row.change(f)
		if _, err := rego.Load(f, rego.Options{}); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// TestNothingLeavesTheEvaluation names builtins that must never be available.
func TestNothingLeavesTheEvaluation(t *testing.T) {
	have := map[string]bool{}
	for _, b := range rego.Capabilities().Builtins {
		have[b.Name] = true
	}
	for _, name := range strings.Fields(`http.send net.lookup_ip_addr opa.runtime rand.intn uuid.rfc4122 crypto.sha256
		crypto.hmac.sha256 io.jwt.decode providers.aws.sign_req json.match_schema graph.reachable_paths bits.lsh
		regex.find_n regex.find_all_string_submatch_n regex.split regex.replace regex.globs_match net.cidr_expand
		numbers.range yaml.unmarshal graphql.parse strings.render_template rego.parse_module trace`) {
		if have[name] {
			t.Errorf("%s is available", name)
		}
	}
	if !have["sprintf"] || !have["time.now_ns"] {
		t.Error("the list of builtins is broken")
	}
}

func TestDigest(t *testing.T) {
	allow := tree(`decision := {"allow": true}`)
	first := load(t, allow, rego.Options{}).Digest()
	if again := load(t, allow, rego.Options{}).Digest(); again != first || !strings.HasPrefix(first, "sha256:") {
		t.Errorf("%s and %s", first, again)
	}
	allow["x_test.rego"] = &fstest.MapFile{Data: []byte("package x_test\n\ntest_x := true")}
	allow["notes.txt"] = &fstest.MapFile{Data: []byte("x")}
	if with := load(t, allow, rego.Options{}).Digest(); with != first {
		t.Error("what does not decide changes the digest")
	}
	allow["d/data.json"] = &fstest.MapFile{Data: []byte("{}")}
	if with := load(t, allow, rego.Options{}).Digest(); with == first {
		t.Error("data does not change the digest")
	}
}

// TestSameInputSameDecision is R080: there is no clock but the one in the input.
func TestSameInputSameDecision(t *testing.T) {
	e := load(t, tree(`decision := {"allow": false, "deny": [{"code": sprintf("at_%d", [time.now_ns()])}]}`), rego.Options{})
	in := openInput(3)
	first := e.Decide(t.Context(), rego.Open, in)
	if first.Deny[0].Code != "at_1700000000000000000" {
		t.Errorf("%v", first.Deny)
	}
	var decoded rego.Input
	if err := json.Unmarshal(first.Input, &decoded, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	again := e.Decide(t.Context(), rego.Open, decoded)
	if again.InputDigest != first.InputDigest || again.Deny[0] != first.Deny[0] {
		t.Errorf("decided again from its record: %v, not %v", again.Deny, first.Deny)
	}
}

func TestRulesAreNamed(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	d := e.Decide(t.Context(), rego.Open, openInput(1))
	if !d.Allow {
		t.Fatal(d.Deny)
	}
	rules := strings.Join(d.Policy.Rules, "\n")
	for _, name := range []string{"stockade.open.decision", "stockade.open.grant"} {
		if !strings.Contains(rules, " "+name) {
			t.Errorf("%s is not among the rules that were evaluated:\n%s", name, rules)
		}
	}
	in := openInput(1)
	in.Request.Open.Target.Local.NetworkMode = "host"
	denied := strings.Join(e.Decide(t.Context(), rego.Open, in).Policy.Rules, "\n")
	if !strings.Contains(denied, "open/network.rego:") {
		t.Errorf("the rule that denied is not among %s", denied)
	}
	if d.Policy.Digest != e.Digest() || d.Policy.Entrypoint != rego.Open {
		t.Errorf("%+v", d.Policy)
	}
}

func TestInput(t *testing.T) {
	e := load(t, policies.FS, rego.Options{MaxInput: 4096})
	in := openInput(1)
	in.Request.Open.Labels = map[string]string{"x": strings.Repeat("a", 4096)}
	if d := e.Decide(t.Context(), rego.Open, in); d.Deny[0].Code != api.CodePolicyInputTooLarge {
		t.Errorf("%v", d.Deny)
	}
	in = openInput(1)
	in.Request.Open.Labels = map[string]string{"x": "\xff"}
	if d := e.Decide(t.Context(), rego.Open, in); d.Deny[0].Code != api.CodePolicyInput {
		t.Errorf("%v", d.Deny)
	}
	if d := e.Decide(t.Context(), "data.stockade.other", openInput(1)); d.Allow || d.Deny[0].Code != api.CodePolicyError {
		t.Errorf("%v", d.Deny)
	}
}

// TestDeadline has a builtin run on for seconds after its cancellation. Decide must not.
func TestDeadline(t *testing.T) {
	slow := `decision := {"allow": true, "deny": []} if regex.match("(a?){1000}b", input.request.open.labels.x)`
	e := load(t, tree(slow), rego.Options{Deadline: 30 * time.Millisecond, MaxOverruns: 2})
	in := openInput(0)
	in.Request.Open.Labels = map[string]string{"x": strings.Repeat("a", 50_000)}
	for range 2 {
		if e.Quarantined() {
			t.Error("quarantined too soon")
		}
		d := e.Decide(t.Context(), rego.Open, in)
		if d.Allow || d.Deny[0].Code != api.CodePolicyTimeout {
			t.Fatalf("%v", d.Deny)
		}
		if d.Elapsed > time.Second {
			t.Errorf("answered after %v", d.Elapsed)
		}
	}
	d := e.Decide(t.Context(), rego.Exec, openInput(0))
	if d.Allow || d.Deny[0].Code != api.CodePolicyQuarantined {
		t.Errorf("after two overruns: %v", d.Deny)
	}
}

func TestCallerGoesAway(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Either answer is right: the decision may have been made already.
	if d := e.Decide(ctx, rego.Open, openInput(1)); !d.Allow && d.Deny[0].Code != api.CodePolicyError {
		t.Errorf("%v", d.Deny)
	}
	if e.Quarantined() {
		t.Error("a caller that goes away counts against the policy")
	}
}

// TestHostileRequests deletes each member of a request, and what remains never opens
// more than the request itself did (R090, R108).
func TestHostileRequests(t *testing.T) {
	e := load(t, policies.FS, rego.Options{})
	for name, change := range map[string]func(*rego.Input){
		"no request":    func(in *rego.Input) { in.Request = &api.Request{} },
		"no parameters": func(in *rego.Input) { in.Request.Open = nil },
		"no target":     func(in *rego.Input) { in.Request.Open.Target.Local = nil },
		"no host path":  func(in *rego.Input) { in.Request.Open.Target.Local.Mounts[0].HostPath = "" },
		"no guest path": func(in *rego.Input) { in.Request.Open.Target.Local.Mounts[0].GuestPath = "" },
		"no mode":       func(in *rego.Input) { in.Request.Open.Target.Local.Mounts[0].Mode = "" },
		"no facts":      func(in *rego.Input) { in.Facts = rego.Facts{} },
		"an exec":       func(in *rego.Input) { in.Request.Op = api.OpExec },
	} {
		in := openInput(2)
		change(&in)
		if d := e.Decide(t.Context(), rego.Open, in); d.Allow || len(d.Deny) == 0 {
			t.Errorf("%s: %v %v", name, d.Allow, d.Deny)
		}
	}
}
