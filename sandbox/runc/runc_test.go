package runc

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stockade-dev/stockade/sandbox"
)

var initBinary string

func TestMain(m *testing.M) {
	syscall.Umask(0o077) // as in stockade-run
	if os.Getuid() == 0 {
		if err := Isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "runc-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	initBinary = filepath.Join(dir, "stockade-init")
	cmd := exec.Command("go", "build", "-o", initBinary, "github.com/stockade-dev/stockade/cmd/stockade-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build init: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func newRunner(t testing.TB) *Runner {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	r, err := New(Options{
		State:    filepath.Join(dir, "state"),
		Instance: fmt.Sprintf("test%d", os.Getpid()),
		Init:     initBinary,
		Ceiling:  sandbox.DefaultCeiling(),
		IDs:      filepath.Join(dir, "ids"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func hostSpec(id string) sandbox.Spec {
	return sandbox.Spec{
		Session:  id,
		Root:     sandbox.Root{Kind: sandbox.RootHost},
		Scratch:  []sandbox.Scratch{{Target: "/tmp", Bytes: 16 << 20, Inodes: 1000}},
		Identity: sandbox.Identity{UID: 1000, GID: 1000},
		Hostname: "box",
		Workdir:  "/tmp",
		Network:  "none",
		Seccomp:  "default",
		Limits:   sandbox.Limits{MemoryBytes: 256 << 20, CPUMillis: 1000, PIDs: 64, Files: 256},
	}
}

type outcome struct {
	sandbox.Result
	stdout, stderr string
}

func execute(t testing.TB, r *Runner, e sandbox.Exec) outcome {
	t.Helper()
	done := make(chan sandbox.Result, 1)
	if e.Env == nil {
		e.Env = []string{"PATH=/usr/bin:/bin"}
	}
	stdout, stderr, err := r.Start(context.Background(), e, nil, func(x sandbox.Result) { done <- x })
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	errOut := make(chan string, 1)
	go func() { b, _ := io.ReadAll(stderr); stderr.Close(); errOut <- string(b) }()
	out, _ := io.ReadAll(stdout)
	stdout.Close()
	return outcome{stdout: string(out), stderr: <-errOut, Result: <-done}
}

func TestOpenExecClose(t *testing.T) {
	r := newRunner(t)
	ctx := context.Background()
	e, err := r.Open(ctx, hostSpec("s1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", e)
	x := execute(t, r, sandbox.Exec{Session: "s1", ID: "x1", Argv: []string{"sh", "-c", "id; pwd; ls -la /; cat /proc/self/cgroup; cat /proc/self/mountinfo; ls -l /proc/self/fd; ps aux"}, Cwd: "/tmp"})
	t.Logf("%+v\n%s\n%s", x.Result, x.stdout, x.stderr)
	u, err := r.Close(ctx, "s1")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", u)
}
