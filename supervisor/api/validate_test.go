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
	egress := func(list ...Destination) *Request {
		return local(func(l *Local) { l.NetworkMode, l.Egress = "egress", list })
	}
	mount := func(m Mount) *Request {
		m.HostPath, m.GuestPath = "/srv/w", "/work"
		return local(func(l *Local) { l.Mounts = []Mount{m} })
	}
	space := func(op Op, w Workspace) *Request {
		w.SessionID = "s"
		return &Request{Op: op, Space: &w}
	}
	narrow := func(n GrantNetwork) *Request {
		return &Request{Op: OpSessionNarrow, Narrow: &SessionNarrow{SessionID: "s", Network: n}}
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
		{"network none (R007)", local(func(l *Local) { l.NetworkMode = "none" }), ""},
		{"network full (R008)", local(func(l *Local) { l.NetworkMode = "full" }), ""},
		{"network egress (R009)", local(func(l *Local) { l.NetworkMode = "egress" }), ""},
		{"destinations", egress(Destination{Name: "*.example.org", Ports: []uint16{443}}, Destination{CIDR: "192.0.2.0/24"}, Destination{CIDR: "2001:db8::/32", Ports: []uint16{1, 65535}}, Destination{Name: "db.example.org", Protocol: "tcp"}), ""},
		{"destinations of no network", local(func(l *Local) { l.Egress = []Destination{{Name: "example.org"}} }), CodeInvalidParams},
		{"destination of neither kind", egress(Destination{Ports: []uint16{443}}), CodeInvalidParams},
		{"destination of both kinds", egress(Destination{Name: "example.org", CIDR: "192.0.2.0/24"}), CodeInvalidParams},
		{"name in upper case", egress(Destination{Name: "Example.org"}), CodeInvalidParams},
		{"name with a dot at its end", egress(Destination{Name: "example.org."}), CodeInvalidParams},
		{"name that is an address", egress(Destination{Name: "127.1"}), CodeInvalidParams},
		{"star in the middle", egress(Destination{Name: "a.*.org"}), CodeInvalidParams},
		{"prefix that is not masked", egress(Destination{CIDR: "192.0.2.1/24"}), CodeInvalidParams},
		{"IPv4 in the clothes of IPv6", egress(Destination{CIDR: "::ffff:192.0.2.0/120"}), CodeInvalidParams},
		{"port 0", egress(Destination{Name: "example.org", Ports: []uint16{0}}), CodeInvalidParams},
		{"ports that name nothing (C19)", egress(Destination{Name: "example.org", Ports: []uint16{}}), CodeInvalidParams},
		{"protocol", egress(Destination{Name: "example.org", Protocol: "udp"}), CodeInvalidParams},
		{"protocol of a prefix", egress(Destination{CIDR: "192.0.2.0/24", Protocol: "tcp"}), CodeInvalidParams},
		{"many destinations", egress(make([]Destination, 257)...), CodeInvalidParams},
		{"overlay", mount(Mount{Mode: "overlay"}), ""},
		{"overlay with room", mount(Mount{Mode: "overlay", Bytes: 1 << 20, Inodes: 100}), ""},
		{"overlay with less than no room", mount(Mount{Mode: "overlay", Bytes: -1}), CodeInvalidMount},
		{"room of what is no overlay", mount(Mount{Mode: "rw", Inodes: 100}), CodeInvalidMount},
		{"session limits", open(func(o *SessionOpen) {
			o.Limits = Limits{Files: 1, CPUTimeNS: 1, CPUWeight: 10_000, IOBytesPerSecond: 1, DiskBytes: 1, DiskInodes: 1}
		}), ""},
		{"negative disk", open(func(o *SessionOpen) { o.Limits.DiskBytes = -1 }), CodeInvalidParams},
		{"negative cpu time", open(func(o *SessionOpen) { o.Limits.CPUTimeNS = -1 }), CodeInvalidParams},
		{"a weight that the kernel does not know", open(func(o *SessionOpen) { o.Limits.CPUWeight = 10_001 }), CodeInvalidParams},
		{"degraded", open(func(o *SessionOpen) { o.Degraded = []string{"landlock", "time namespace"} }), ""},
		{"degraded twice", open(func(o *SessionOpen) { o.Degraded = []string{"landlock", "landlock"} }), CodeInvalidParams},
		{"degraded beyond the second walls", open(func(o *SessionOpen) { o.Degraded = []string{"seccomp filter"} }), CodeInvalidParams},
		{"verify", open(func(o *SessionOpen) { o.Verify = "canary" }), ""},
		{"verify otherwise", open(func(o *SessionOpen) { o.Verify = "all" }), CodeInvalidParams},

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
		{"stdin_ref twice the same (C28)", exec(func(x *Exec) { x.StdinRef, x.Stdin = ref, &Stdin{BlobRef: &BlobRef{BlobRef: ref}} }), ""},
		{"stdin_ref (R042)", exec(func(x *Exec) { x.StdinRef, x.Stdin = "sha256:00", nil }), CodeInvalidStdinRef},
		{"stdin.blob_ref (R042)", exec(func(x *Exec) { x.Stdin = &Stdin{BlobRef: &BlobRef{BlobRef: "md5:00"}} }), CodeInvalidStdinRef},
		{"timeout", exec(func(x *Exec) { x.TimeoutNS = -1 }), CodeInvalidParams},
		{"inline", exec(func(x *Exec) { x.MaxInline = -1 }), CodeInvalidParams},
		{"exec limit", exec(func(x *Exec) { x.Limits.MemoryBytes = -1 }), CodeInvalidParams},
		{"exec limits (R053)", exec(func(x *Exec) {
			x.Limits = Limits{MemoryBytes: 1, CPUMillis: 1, PIDs: 1, Files: 1, CPUTimeNS: 1, OutputBytes: 1}
		}), ""},
		{"disk of one execution", exec(func(x *Exec) { x.Limits.DiskBytes = 1 }), CodeInvalidParams},
		{"inodes of one execution", exec(func(x *Exec) { x.Limits.DiskInodes = 1 }), CodeInvalidParams},
		{"weight of one execution", exec(func(x *Exec) { x.Limits.CPUWeight = 1 }), CodeInvalidParams},
		{"io of one execution", exec(func(x *Exec) { x.Limits.IOBytesPerSecond = 1 }), CodeInvalidParams},

		{"diff", space(OpWorkspaceDiff, Workspace{GuestPath: "/work", Limit: 10, After: "a/b"}), ""},
		{"commit", space(OpWorkspaceCommit, Workspace{Paths: []string{"a", "b/c", "..d"}}), ""},
		{"discard", space(OpWorkspaceDiscard, Workspace{}), ""},
		{"diff without a session", &Request{Op: OpWorkspaceDiff, Space: &Workspace{}}, CodeSessionNotFound},
		{"diff with the parameters of a read", &Request{Op: OpWorkspaceDiff, Read: &Read{SessionID: "s"}}, CodeInvalidParams},
		{"overlay by a relative path", space(OpWorkspaceDiff, Workspace{GuestPath: "work"}), CodeInvalidParams},
		{"diff of too much", space(OpWorkspaceDiff, Workspace{Limit: 1001}), CodeInvalidParams},
		{"diff after what is not below", space(OpWorkspaceDiff, Workspace{After: "../a"}), CodeInvalidParams},
		{"diff by path", space(OpWorkspaceDiff, Workspace{Paths: []string{"a"}}), CodeInvalidParams},
		{"commit above (R096)", space(OpWorkspaceCommit, Workspace{Paths: []string{"a/../../b"}}), CodeInvalidParams},
		{"commit of the parent (R096)", space(OpWorkspaceCommit, Workspace{Paths: []string{".."}}), CodeInvalidParams},
		{"commit by an absolute path (R096)", space(OpWorkspaceCommit, Workspace{Paths: []string{"/etc"}}), CodeInvalidParams},
		{"commit of nothing", space(OpWorkspaceCommit, Workspace{Paths: []string{""}}), CodeInvalidParams},
		{"commit of a path that is not clean", space(OpWorkspaceCommit, Workspace{Paths: []string{"a/"}}), CodeInvalidParams},
		{"commit with a NUL", space(OpWorkspaceCommit, Workspace{Paths: []string{"a\x00"}}), CodeInvalidParams},
		{"commit twice", space(OpWorkspaceCommit, Workspace{Paths: []string{"a", "a"}}), CodeInvalidParams},
		{"commit of too many", space(OpWorkspaceCommit, Workspace{Paths: make([]string, 4097)}), CodeInvalidParams},
		{"commit of a page", space(OpWorkspaceCommit, Workspace{Limit: 1}), CodeInvalidParams},
		{"commit of a name that is not UTF-8", space(OpWorkspaceCommit, Workspace{Paths: []string{"a", "d/\uFFFD"}, PathsBytes: [][]byte{nil, []byte("d/\xff")}}), ""},
		{"commit of two that read the same", space(OpWorkspaceCommit, Workspace{Paths: []string{"\uFFFD", "\uFFFD"}, PathsBytes: [][]byte{[]byte("\xff"), []byte("\xfe")}}), ""},
		{"commit of bytes without their text", space(OpWorkspaceCommit, Workspace{PathsBytes: [][]byte{[]byte("\xff")}}), CodeInvalidParams},
		{"commit of bytes beside another text", space(OpWorkspaceCommit, Workspace{Paths: []string{"a"}, PathsBytes: [][]byte{[]byte("\xff")}}), CodeInvalidParams},
		{"commit of bytes that are text", space(OpWorkspaceCommit, Workspace{Paths: []string{"a"}, PathsBytes: [][]byte{[]byte("a")}}), CodeInvalidParams},
		{"commit of bytes above (R096)", space(OpWorkspaceCommit, Workspace{Paths: []string{"../\uFFFD"}, PathsBytes: [][]byte{[]byte("../\xff")}}), CodeInvalidParams},
		{"commit of fewer bytes than texts", space(OpWorkspaceCommit, Workspace{Paths: []string{"a", "\uFFFD"}, PathsBytes: [][]byte{[]byte("\xff")}}), CodeInvalidParams},
		{"commit of the same bytes twice", space(OpWorkspaceCommit, Workspace{Paths: []string{"\uFFFD", "\uFFFD"}, PathsBytes: [][]byte{[]byte("\xff"), []byte("\xff")}}), CodeInvalidParams},
		{"commit of a page in bytes", space(OpWorkspaceCommit, Workspace{AfterBytes: []byte("\xff")}), CodeInvalidParams},
		{"diff after a name that is not UTF-8", space(OpWorkspaceDiff, Workspace{After: "\uFFFD", AfterBytes: []byte("\xff")}), ""},
		{"diff after bytes of another text", space(OpWorkspaceDiff, Workspace{After: "a", AfterBytes: []byte("\xff")}), CodeInvalidParams},
		{"diff after bytes above (R096)", space(OpWorkspaceDiff, Workspace{After: "../\uFFFD", AfterBytes: []byte("../\xff")}), CodeInvalidParams},
		{"discard by path", space(OpWorkspaceDiscard, Workspace{Paths: []string{"a"}}), CodeInvalidParams},
		{"narrow", narrow(GrantNetwork{Mode: "egress", Allow: []Destination{{Name: "example.org"}}}), ""},
		{"narrow to nothing", narrow(GrantNetwork{Mode: "none"}), ""},
		{"narrow to an unknown mode", narrow(GrantNetwork{}), CodeInvalidNetworkMode},
		{"narrow to none, with destinations", narrow(GrantNetwork{Mode: "none", Allow: []Destination{{Name: "example.org"}}}), CodeInvalidParams},
		{"narrow to a bad name", narrow(GrantNetwork{Mode: "egress", Allow: []Destination{{Name: "-"}}}), CodeInvalidParams},
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
