package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// box is a supervisor on a socket, over a launcher that starts nothing (R262).
type box struct {
	*client.Client
	socket  string
	fake    *fake
	raw     *http.Client // for what the client would never send
	config  supervisor.Config
	options Options
	stop    func(end func(context.Context) error)
	sup     *supervisor.Supervisor
}

func newBox(t testing.TB, options Options, changes ...func(*supervisor.Config)) *box {
	t.Helper()
	engine, err := rego.Load(policy, rego.Options{Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	socket := tempSocket(t)
	b := &box{Client: client.New(socket), socket: socket, fake: f, raw: overSocket(socket), options: options, config: supervisor.Config{
		State: filepath.Join(t.TempDir(), "state"), Policy: engine, Ceiling: sandbox.DefaultCeiling(), Launcher: f, Version: "test", Log: slog.New(slog.DiscardHandler),
		LogLevel: new(slog.LevelVar), Settings: api.Settings{
			Settings: []api.Setting{
				{Name: "hold", Kind: api.SettingWord, From: "default", Values: []string{"30s"}},
				{Name: "otlp-endpoint", Kind: api.SettingEndpoint, From: "file", Values: []string{"https:…"}},
			},
			Environment: []string{"LISTEN_FDS"},
		},
	}}
	for _, change := range changes {
		change(&b.config)
	}
	b.start(t)
	t.Cleanup(func() { b.stop(b.sup.Close) })
	return b
}

// start begins to serve; an earlier supervisor of the box has stopped.
func (b *box) start(t testing.TB) {
	t.Helper()
	sup, err := supervisor.New(t.Context(), b.config)
	if err != nil {
		t.Fatal(err)
	}
	b.sup, b.stop = sup, listenOn(t, b.socket, sup, b.options)
}

// serve serves a supervisor on a socket until the test ends.
func serve(t testing.TB, sup Supervisor, options Options) *box {
	t.Helper()
	socket := tempSocket(t)
	stop := listenOn(t, socket, sup, options)
	t.Cleanup(func() { stop(func(context.Context) error { return nil }) })
	return &box{Client: client.New(socket), socket: socket, raw: overSocket(socket)}
}

// listenOn serves until stop is called, which ends the supervisor in the way it is given first.
func listenOn(t testing.TB, socket string, sup Supervisor, options Options) (stop func(end func(context.Context) error)) {
	t.Helper()
	srv, err := New(sup, options)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	return func(end func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := end(ctx); err != nil {
			t.Error(err)
		}
		srv.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// tempSocket is a path that t.TempDir would make longer than a socket's name may be.
func tempSocket(t testing.TB) string {
	dir, err := os.MkdirTemp("", "stockade-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// overSocket is an HTTP/1.1 client without any help.
func overSocket(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
}

// open opens a session and returns its id.
func (b *box) open(t testing.TB) string {
	t.Helper()
	r, err := b.Open(t.Context(), local())
	if err != nil || r.Outcome != api.OutcomeOK {
		t.Fatalf("open: %+v %v", r, err)
	}
	return r.SessionID
}

// local asks for a session, and nothing in particular.
func local() api.SessionOpen { return api.SessionOpen{Target: api.Target{Local: &api.Local{}}} }

// do sends one request as it is and returns the status and the body.
func (b *box) do(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		req.Body = nil
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := b.raw.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(answer)
}

// policy allows everything but the profile "forbidden", and reading to the scope "blind".
var policy = fstest.MapFS{
	"open.rego": {Data: []byte(`package stockade.open
default decision := {"allow": false, "deny": [{"code": "profile_not_allowed", "subject": "profile", "message": "this profile is for nobody"}]}
decision := {"allow": true, "deny": [], "warn": [], "grant": {
	"profile": "test", "root": root,
	"mounts": [m | some m in object.get(local, "mounts", [])],
	"scratch": [{"guest_path": "/tmp", "bytes": 1048576, "inodes": 1000}],
	"identity": {"uid": 1000, "gid": 1000},
	"ceilings": {"memory_bytes": 67108864, "cpu_millis": 1000, "pids": 32, "files": 256, "output_bytes": 16777216, "executions": 16},
	"seccomp": "default", "network": {"mode": object.get(local, "network_mode", "none"), "allow": object.get(local, "egress", [])}, "env": {},
	"exec": {"max_timeout_ns": 60000000000, "default_timeout_ns": 10000000000},
	"fs": {"ops": ["read", "write", "edit", "patch", "search", "list", "stat"], "write_roots": ["/tmp/src/"]},
	"workdir": "/tmp", "hostname": object.get(local, "hostname", ""), "ttl_ns": 3600000000000,
}} if object.get(input.request.open, "profile", "") != "forbidden"
local := input.request.open.target.local
default root := "host"
root := "dir" if local.root.dir`)},
	"exec.rego": {Data: []byte(`package stockade.exec
default decision := {"allow": true, "deny": [], "warn": []}
decision := {"allow": true, "deny": [], "warn": [], "obligations": {"require_approval": {
	"reason": "it publishes", "timeout_ns": 900000000000, "allow_own": true,
}}} if input.request.exec.argv[0] == "publish"`)},
	"approval.rego": {Data: []byte(`package stockade.approval
default decision := {"allow": true, "deny": [], "warn": []}
decision := {"allow": false, "deny": [{"code": "operation_not_allowed"}], "warn": []} if input.request.principal.scope.agent_id == "blind"`)},
	"signal.rego":    {Data: []byte("package stockade.signal\n" + yes)},
	"blob.rego":      {Data: []byte("package stockade.blob\n" + yes)},
	"workspace.rego": {Data: []byte("package stockade.workspace\n" + yes)},
	"fs.rego":        {Data: []byte("package stockade.fs\n" + yes)},
	"read.rego": {Data: []byte(`package stockade.read
default decision := {"allow": true, "deny": [], "warn": []}
decision := {"allow": false, "deny": [{"code": "operation_not_allowed"}], "warn": []} if input.request.principal.scope.agent_id == "blind"`)},
}

const yes = `decision := {"allow": true, "deny": [], "warn": []}`
