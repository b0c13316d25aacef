package api

import (
	"strings"
	"testing"
)

const (
	goodOpen = `{"target":{"local":{"root":{"host":{}},"mounts":[{"host_path":"/srv/w","guest_path":"/work","mode":"rw"}],` +
		`"workdir":"/work","env":{"A":"x"},"network_mode":"none","hostname":"box"}},"profile":"workspace","session_ttl_ns":1,` +
		`"labels":{"team/ci":"blue"},"scope":{"agent_id":"a"},"limits":{"pids":3}}`
	goodExec = `{"session_id":"s1","argv":["echo","$HOME;id"],"cwd":"sub","env_patch":{"A":null},"stdin":{"inline_text":{"text":"x"}},` +
		`"timeout_ns":1,"output_mode":"auto","max_inline_bytes":1,"limits":{"pids":1},"outputs":["/work/out"]}`
)

// Every rule of the table, each with the member that breaks it.
func TestValidate(t *testing.T) {
	open := func(patch func(*SessionOpen)) *Request {
		o, err := Decode[SessionOpen]([]byte(goodOpen))
		if err != nil {
			t.Fatal(err)
		}
		patch(&o)
		return &Request{Op: OpSessionOpen, Open: &o}
	}
	local := func(patch func(*Local)) *Request { return open(func(o *SessionOpen) { patch(o.Target.Local) }) }
	exec := func(patch func(*Exec)) *Request {
		x, err := Decode[Exec]([]byte(goodExec))
		if err != nil {
			t.Fatal(err)
		}
		patch(&x)
		return &Request{Op: OpExec, Exec: &x}
	}
	neg := int64(-1)
	ref := "sha256:" + strings.Repeat("0a", 32)
	for _, row := range []struct {
		name string
		req  *Request
		want Code // "" is in order
	}{
		{"open in order", open(func(*SessionOpen) {}), ""},
		{"no operation", &Request{}, CodeUnknownMethod},
		{"unknown operation", &Request{Op: "host.reboot"}, CodeUnknownMethod},
		{"alias is not canonical", &Request{Op: "process.exec", Exec: &Exec{}}, CodeUnknownMethod},
		{"no parameters", &Request{Op: OpSessionOpen}, CodeInvalidParams},
		{"other parameters", &Request{Op: OpSessionOpen, Exec: &Exec{}}, CodeInvalidParams},
		{"more parameters", &Request{Op: OpSessionOpen, Open: &SessionOpen{}, Read: &Read{}}, CodeInvalidParams},
		{"scope of the principal", &Request{Op: OpHostInfo, Read: &Read{}, Principal: Principal{Scope: Scope{ChatID: "a\nb"}}}, CodeInvalidLabel},

		{"no arm (R001)", open(func(o *SessionOpen) { o.Target = Target{} }), CodeUnsupportedTarget},
		{"unknown arm (R001)", open(func(o *SessionOpen) { o.Target = Target{Unknown: "vm"} }), CodeUnsupportedTarget},
		{"negative ttl", open(func(o *SessionOpen) { o.SessionTTLNS = -1 }), CodeInvalidParams},
		{"negative limit", open(func(o *SessionOpen) { o.Limits.CPUMillis = -1 }), CodeInvalidParams},
		{"profile is a path", open(func(o *SessionOpen) { o.Profile = "../x" }), CodeInvalidParams},
		{"hostname", local(func(l *Local) { l.Hostname = "a b" }), CodeInvalidParams},
		{"label name", open(func(o *SessionOpen) { o.Labels = map[string]string{"a b": ""} }), CodeInvalidLabel},
		{"label value", open(func(o *SessionOpen) { o.Labels = map[string]string{"a": "\x1b[2J"} }), CodeInvalidLabel},
		{"label length", open(func(o *SessionOpen) { o.Labels = map[string]string{"a": strings.Repeat("x", 2000)} }), CodeInvalidLabel},
		{"scope", open(func(o *SessionOpen) { o.Scope.AgentID = strings.Repeat("x", 200) }), CodeInvalidLabel},
		{"two roots", local(func(l *Local) { l.Root.Dir = &RootDir{"/r"} }), CodeInvalidRoot},
		{"relative root", local(func(l *Local) { l.Root = Root{Dir: &RootDir{"r"}} }), CodeInvalidRoot},
		{"no paths", local(func(l *Local) { l.Root = Root{Paths: &RootPaths{}} }), CodeInvalidRoot},
		{"doubled path", local(func(l *Local) { l.Root = Root{Paths: &RootPaths{[]string{"/a", "/a"}}} }), CodeInvalidRoot},
		{"mount mode (R003)", local(func(l *Local) { l.Mounts[0].Mode = "rx" }), CodeInvalidMount},
		{"mount source", local(func(l *Local) { l.Mounts[0].HostPath = "/a/../b" }), CodeInvalidMount},
		{"mount target", local(func(l *Local) { l.Mounts[0].GuestPath = "work" }), CodeInvalidMount},
		{"mount over the root", local(func(l *Local) { l.Mounts[0].GuestPath = "/" }), CodeInvalidMount},
		{"mount twice", local(func(l *Local) { l.Mounts = append(l.Mounts, l.Mounts[0]) }), CodeInvalidMount},
		{"workdir", local(func(l *Local) { l.Workdir = "work" }), CodeInvalidWorkdir},
		{"env name", local(func(l *Local) { l.Env = map[string]EnvValue{"A=B": {}} }), CodeInvalidEnv},
		{"env NUL", local(func(l *Local) { l.Env = map[string]EnvValue{"A": {Text: "\x00"}} }), CodeInvalidEnv},
		{"env null at open", local(func(l *Local) { l.Env = map[string]EnvValue{"A": {Unset: true}} }), CodeInvalidEnv},
		{"env forged digest", local(func(l *Local) { l.Env = map[string]EnvValue{"A": {SecretDigest: "x"}} }), CodeInvalidEnv},
		{"env length", local(func(l *Local) { l.Env = map[string]EnvValue{"A": {Text: strings.Repeat("x", 128<<10)}} }), CodeInvalidEnv},
		{"network (R009)", local(func(l *Local) { l.NetworkMode = "host" }), CodeInvalidNetworkMode},
		{"network later (R008)", local(func(l *Local) { l.NetworkMode = "full" }), CodeUnsupportedNetwork},

		{"exec in order", exec(func(*Exec) {}), ""},
		{"no session", exec(func(x *Exec) { x.SessionID = "" }), CodeSessionNotFound},
		{"session with a slash", exec(func(x *Exec) { x.SessionID = "../s" }), CodeSessionNotFound},
		{"no argv (R034)", exec(func(x *Exec) { x.Argv = nil }), CodeArgvEmpty},
		{"empty argv0 (R034)", exec(func(x *Exec) { x.Argv = []string{"", "a"} }), CodeArgvEmpty},
		{"argv NUL", exec(func(x *Exec) { x.Argv = []string{"a", "b\x00c"} }), CodeArgvInvalid},
		{"argv length", exec(func(x *Exec) { x.Argv = []string{strings.Repeat("a", 128<<10)} }), CodeArgvInvalid},
		{"cwd", exec(func(x *Exec) { x.Cwd = "a\x00" }), CodeInvalidCwd},
		{"two stdins", exec(func(x *Exec) { x.Stdin.SecretText = &InlineText{} }), CodeInvalidStdin},
		{"stdin without arm", exec(func(x *Exec) { x.Stdin = &Stdin{} }), CodeInvalidStdin},
		{"stdin forged digest", exec(func(x *Exec) { x.Stdin = &Stdin{SecretDigest: "x"} }), CodeInvalidStdin},
		{"stdin and stdin_ref (C28)", exec(func(x *Exec) { x.StdinRef = ref }), CodeInvalidStdin},
		{"stdin_ref twice the same (C28)", exec(func(x *Exec) { x.StdinRef, x.Stdin = ref, &Stdin{BlobRef: &BlobRef{ref}} }), ""},
		{"stdin_ref (R042)", exec(func(x *Exec) { x.StdinRef, x.Stdin = "sha256:00", nil }), CodeInvalidStdinRef},
		{"stdin.blob_ref (R042)", exec(func(x *Exec) { x.Stdin = &Stdin{BlobRef: &BlobRef{"md5:00"}} }), CodeInvalidStdinRef},
		{"timeout", exec(func(x *Exec) { x.TimeoutNS = -1 }), CodeInvalidParams},
		{"inline", exec(func(x *Exec) { x.MaxInline = -1 }), CodeInvalidParams},
		{"exec limit", exec(func(x *Exec) { x.Limits.MemoryBytes = -1 }), CodeInvalidParams},
		{"output mode (R044)", exec(func(x *Exec) { x.OutputMode = "blob" }), CodeInvalidOutputMode},
		{"outputs", exec(func(x *Exec) { x.Outputs = []string{"out"} }), CodeInvalidParams},

		{"signal (R075)", &Request{Op: OpSessionSignal, Signal: &SessionSignal{SessionID: "s", Signal: "NOPE"}}, CodeInvalidSignal},
		{"no signal", &Request{Op: OpSessionSignal, Signal: &SessionSignal{SessionID: "s"}}, CodeInvalidSignal},
		{"grace", &Request{Op: OpSessionSignal, Signal: &SessionSignal{SessionID: "s", Signal: "TERM", GraceNS: &neg}}, CodeInvalidParams},
		{"close mode (R078)", &Request{Op: OpSessionClose, Close: &SessionClose{SessionID: "s", Mode: "x"}}, CodeInvalidMode},
		{"close grace", &Request{Op: OpSessionClose, Close: &SessionClose{SessionID: "s", GraceNS: &neg}}, CodeInvalidParams},
		{"blob ref", &Request{Op: OpBlobPut, Blob: &BlobPut{BlobRef: strings.ToUpper(ref)}}, CodeInvalidBlobRef},
		{"blob get", &Request{Op: OpBlobGet, Read: &Read{}}, CodeInvalidBlobRef},
		{"get", &Request{Op: OpSessionGet, Read: &Read{}}, CodeSessionNotFound},
		{"list a state in which nothing is listed", &Request{Op: OpSessionList, Read: &Read{State: "creating"}}, CodeInvalidParams},
		{"list state", &Request{Op: OpSessionList, Read: &Read{State: "dead"}}, CodeInvalidParams},
		{"list limit", &Request{Op: OpReceiptList, Read: &Read{Limit: 1 << 40}}, CodeInvalidParams},
		{"output", &Request{Op: OpOutput, Read: &Read{ExecID: "/"}}, CodeExecNotFound},
		{"receipt", &Request{Op: OpReceiptGet, Read: &Read{}}, CodeNotFound},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got Code
			if err := row.req.Validate(); err != nil {
				got = err.Code
				if len(err.Message) > 400 {
					t.Errorf("a message of %d bytes", len(err.Message))
				}
			}
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// A redacted request has digests where secrets were, and the request itself keeps them.
func TestRedact(t *testing.T) {
	body := `{"op":"host.exec","principal":{"uid":1,"gid":1},"facade":"http","exec":{"session_id":"s","argv":["a"],` +
		`"env_patch":{"A":{"secret":"canary-1"},"B":"plain","C":{"secret":"canary-1"}},"stdin":{"secret_text":{"text":"canary-2"}}}}`
	r, err := Decode[Request]([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	redacted := r.Redact([]byte("salt"))
	b, _ := Encode(redacted)
	if strings.Contains(string(b), "canary") || !strings.Contains(string(b), `"B":"plain"`) {
		t.Errorf("redacted: %s", b)
	}
	env := redacted.Exec.EnvPatch
	if env["A"] != env["C"] || !strings.HasPrefix(env["A"].SecretDigest, "hmac-sha256:") || env["A"].SecretDigest == redacted.Exec.Stdin.SecretDigest {
		t.Errorf("digests: %+v %+v", env, redacted.Exec.Stdin)
	}
	if other := r.Redact([]byte("pepper")); other.Exec.EnvPatch["A"] == env["A"] {
		t.Error("the salt makes no difference")
	}
	if again, err := Decode[Request](b); err != nil || again.Exec.EnvPatch["A"] != env["A"] {
		t.Errorf("a record does not read back: %v", err)
	}
	if same, _ := Encode(r); string(same) != body {
		t.Errorf("the request was touched: %s", same)
	}
	open, err := Decode[Request]([]byte(`{"open":{"target":{"local":{"env":{"A":{"secret":"canary"}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := Encode(open.Redact(nil)); strings.Contains(string(b), "canary") {
		t.Errorf("redacted: %s", b)
	}
}
