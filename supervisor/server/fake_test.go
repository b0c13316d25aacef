package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/supervisor"
	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// box is a supervisor on a socket, over a launcher that starts nothing (R262).
type box struct {
	*client.Client
	socket string
	fake   *fake
	raw    *http.Client // for what the client would never send
}

func newBox(t testing.TB, options Options) *box {
	t.Helper()
	engine, err := rego.Load(policy, rego.Options{Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{running: map[string]chan struct{}{}}
	sup, err := supervisor.New(t.Context(), supervisor.Config{
		State: filepath.Join(t.TempDir(), "state"), Policy: engine, Ceiling: sandbox.DefaultCeiling(), Launcher: f, Version: "test", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := New(sup, options)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "stockade-") // shorter than t.TempDir: a socket's name is bounded
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	ln, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		sup.Close(ctx)
		srv.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return &box{Client: client.New(socket), socket: socket, fake: f, raw: overSocket(socket)}
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

// fake is a launcher whose commands are: echo, which prints its arguments; flood, which
// prints 8 MiB; sleep, which runs until it is killed.
type fake struct {
	started atomic.Int64 // executions
	opened  atomic.Int64

	mu      sync.Mutex
	running map[string]chan struct{}
}

func (f *fake) Host() sandbox.Host {
	return sandbox.Host{Kernel: "6.18", Arch: "amd64", Cgroup: "v2", CPUs: 2, Memory: 1 << 30,
		Layers: []sandbox.Layer{{Name: "user namespaces", State: "present", Required: true}}}
}

func (f *fake) Done() <-chan struct{} { return nil }

func (f *fake) Resolve(_ context.Context, _ sandbox.Caller, paths []string) ([]launch.Resolved, error) {
	out := make([]launch.Resolved, len(paths))
	for i, p := range paths {
		out[i].Source = sandbox.Source{Path: p, Resolved: p, Dev: 1, Ino: uint64(i + 1), Kind: "dir", Mode: 0o755}
	}
	return out, nil
}

func (f *fake) Open(_ context.Context, spec sandbox.Spec) (sandbox.Enforced, error) {
	f.opened.Add(1)
	return sandbox.Enforced{
		Namespaces: map[string]uint64{"user": 4026531837}, NoNewPrivs: true, Seccomp: 2,
		MemoryBytes: spec.Limits.MemoryBytes, CPUMillis: spec.Limits.CPUMillis, PIDs: spec.Limits.PIDs, Cgroup: "v2",
	}, nil
}

func (f *fake) Start(_ context.Context, x sandbox.Exec, _ *os.File) (*sandbox.Process, error) {
	f.started.Add(1)
	out, outW := io.Pipe()
	errs, errW := io.Pipe()
	killed := make(chan struct{})
	f.mu.Lock()
	f.running[x.ID] = killed
	f.mu.Unlock()
	done := make(chan sandbox.Result, 1)
	go func() {
		r := sandbox.Result{Started: time.Now()}
		switch x.Argv[0] {
		case "echo":
			fmt.Fprintln(outW, strings.Join(x.Argv[1:], " "))
		case "flood":
			outW.Write(make([]byte, 8<<20))
		case "sleep":
			fmt.Fprint(outW, "sleeping\n")
			<-killed
			r.ExitCode, r.Signal = -1, 9
		default:
			r.ExitCode = 127
		}
		outW.Close()
		errW.Close()
		r.Ended = time.Now()
		done <- r
	}()
	return &sandbox.Process{Stdout: out, Stderr: errs, Done: done}, nil
}

func (f *fake) Signal(ctx context.Context, session, exec string, _ int) error {
	return f.Kill(ctx, session, exec)
}

func (f *fake) Kill(_ context.Context, _, exec string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if killed, ok := f.running[exec]; ok {
		close(killed)
		delete(f.running, exec)
	}
	return nil
}

func (f *fake) Collect(_ context.Context, _ string, paths []string) ([]sandbox.Artifact, error) {
	out := make([]sandbox.Artifact, len(paths))
	for i, p := range paths {
		out[i] = sandbox.Artifact{Path: p, Err: "path_not_found"}
	}
	return out, nil
}

func (f *fake) Close(context.Context, string) (sandbox.Usage, error) { return sandbox.Usage{}, nil }

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
	"seccomp": "default", "network": {"mode": "none"}, "env": {},
	"exec": {"max_timeout_ns": 60000000000, "default_timeout_ns": 10000000000},
	"workdir": "/tmp", "hostname": object.get(local, "hostname", ""), "ttl_ns": 3600000000000,
}} if object.get(input.request.open, "profile", "") != "forbidden"
local := input.request.open.target.local
default root := "host"
root := "dir" if local.root.dir`)},
	"exec.rego":   {Data: []byte("package stockade.exec\n" + yes)},
	"signal.rego": {Data: []byte("package stockade.signal\n" + yes)},
	"blob.rego":   {Data: []byte("package stockade.blob\n" + yes)},
	"read.rego": {Data: []byte(`package stockade.read
default decision := {"allow": true, "deny": [], "warn": []}
decision := {"allow": false, "deny": [{"code": "operation_not_allowed"}], "warn": []} if input.request.principal.scope.agent_id == "blind"`)},
}

const yes = `decision := {"allow": true, "deny": [], "warn": []}`
