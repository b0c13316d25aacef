package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
)

// supervisorEnv makes the test binary a supervisor of the runner that it names: it starts a command
// that counts, shows the first line that it reads, and waits to be killed.
const supervisorEnv = "STOCKADE_TEST_SUPERVISOR"

const countTo = 20000

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, "line", i+1)
	}
	return b.String()
}

func TestMain(m *testing.M) {
	if socket := os.Getenv(supervisorEnv); socket != "" {
		fmt.Fprintln(os.Stderr, supervise(socket))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func supervise(socket string) error {
	ctx := context.Background()
	r, err := dial(socket)
	if err != nil {
		return err
	}
	if _, err := r.Open(ctx, spec("s")); err != nil {
		return err
	}
	count := fmt.Sprintf("i=1; while [ $i -le %d ]; do echo line $i; i=$((i+1)); done; exit 7", countTo)
	x, err := r.Start(ctx, sandbox.Exec{Session: "s", ID: "x", Argv: []string{"/bin/sh", "-c", count}, Cwd: "/tmp"}, nil)
	if err != nil {
		return err
	}
	line := make([]byte, len("line 1\n"))
	if _, err := io.ReadFull(x.Stdout, line); err != nil {
		return err
	}
	os.Stdout.Write(line)
	<-r.Done()
	return errors.New("it was not killed")
}

// build makes both binaries.
func build(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: it is the privileged process")
	}
	dir := t.TempDir()
	for cgo, name := range map[string]string{"1": "stockade-run", "0": "stockade-init"} {
		cmd := exec.Command("go", "build", "-o", dir+"/", "github.com/stockade-dev/stockade/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	return dir
}

// process is a running stockade-run.
type process struct {
	*exec.Cmd
	instance, socket, state string
	stderr                  bytes.Buffer
}

func run(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	return command(t, bin, args...).start(t)
}

// command is a stockade-run with a place of its own, not started.
func command(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{
		instance: fmt.Sprintf("runmain%d-%d", os.Getpid(), time.Now().UnixNano()%1e6),
		socket:   filepath.Join(dir, "socket"),
		state:    filepath.Join(dir, "state"),
	}
	p.Cmd = exec.Command(filepath.Join(bin, "stockade-run"), append([]string{
		"--socket", p.socket, "--state", p.state, "--instance", p.instance, "--init", filepath.Join(bin, "stockade-init"),
	}, args...)...)
	return p
}

// start starts the process, and ends it with the test.
func (p *process) start(t *testing.T) *process {
	t.Helper()
	p.Stderr = &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	return p
}

// dial connects once the runner listens.
func (p *process) dial(t *testing.T) *launch.Runner {
	t.Helper()
	r, err := dial(p.socket)
	if err != nil {
		t.Fatalf("dial: %v\n%s", err, p.stderr.String())
	}
	return r
}

func dial(socket string) (r *launch.Runner, err error) {
	for range 500 {
		if r, err = launch.Dial(context.Background(), socket); err == nil {
			return r, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

// mustEnd waits for the process, and that it left neither groups nor files.
func (p *process) mustEnd(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%v\n%s", err, p.stderr.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.Contains(path, p.instance) {
			t.Errorf("left: %s", path)
		}
		return nil
	})
	for _, path := range []string{p.state, p.socket} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("left: %s", path)
		}
	}
}

func spec(id string) sandbox.Spec {
	return sandbox.Spec{
		Session:  id,
		Root:     sandbox.Root{Kind: sandbox.RootHost},
		Scratch:  []sandbox.Scratch{{Target: "/tmp", Bytes: 1 << 20, Inodes: 100}},
		Identity: sandbox.Identity{UID: 1000, GID: 1000},
		Hostname: "box",
		Workdir:  "/tmp",
		Network:  sandbox.Network{Mode: "none"},
		Seccomp:  "strict",
		Limits:   sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 1000, PIDs: 32, Files: 64},
	}
}

// TestProcess speaks with the real runner over its socket (R262's other half).
func TestProcess(t *testing.T) {
	bin := build(t)
	ctx := context.Background()

	t.Run("follow", func(t *testing.T) {
		p := run(t, bin, "--follow", "--hold", "0")
		r := p.dial(t)
		if missing := r.Host().Missing(); len(missing) > 0 || r.Host().Kernel == "" {
			t.Errorf("host %+v", r.Host())
		}
		if _, err := launch.Dial(ctx, p.socket); err == nil {
			t.Error("a second supervisor is served beside the first")
		}
		if _, err := r.Open(ctx, spec("s")); err != nil {
			t.Fatal(err)
		}
		x, err := r.Start(ctx, sandbox.Exec{Session: "s", ID: "x", Argv: []string{"/bin/echo", "hello"}, Cwd: "/tmp"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(x.Stdout)
		if res := <-x.Done; string(out) != "hello\n" || res.ExitCode != 0 {
			t.Errorf("%q %+v", out, res)
		}
		x.Stdout.Close()
		x.Stderr.Close()
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Process.Pid))
		if string(comm) != "stockade-run\n" {
			t.Errorf("it is called %q", comm)
		}
		r.Disconnect() // with a session open
		p.mustEnd(t)
	})

	t.Run("one after the other", func(t *testing.T) {
		p := run(t, bin)
		first := p.dial(t)
		if _, err := first.Open(ctx, spec("s")); err != nil {
			t.Fatal(err)
		}
		first.Disconnect()
		second := p.dial(t)
		if held, err := second.Sessions(ctx); err != nil || len(held) != 1 || held[0].Session != "s" {
			t.Errorf("%+v, %v", held, err)
		}
		if _, err := second.Open(ctx, spec("s")); err == nil {
			t.Error("the name is free")
		}
		p.Process.Signal(syscall.SIGTERM) // with a session open
		p.mustEnd(t)
	})

	t.Run("nobody comes", func(t *testing.T) {
		p := run(t, bin, "--follow", "--hold", "200ms")
		r := p.dial(t)
		if _, err := r.Open(ctx, spec("s")); err != nil {
			t.Fatal(err)
		}
		r.Disconnect()
		p.mustEnd(t)
	})

	t.Run("nothing is held", func(t *testing.T) {
		p := run(t, bin, "--follow", "--hold", "1h")
		r := p.dial(t)
		if _, err := r.Open(ctx, spec("s")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Close(ctx, "s"); err != nil {
			t.Fatal(err)
		}
		r.Disconnect()
		p.mustEnd(t)
	})

	// R246 R247: a supervisor is killed in the middle of its work, and the next one loses nothing.
	t.Run("killed", func(t *testing.T) {
		p := run(t, bin, "--follow")
		first := exec.Command(os.Args[0])
		first.Env = append(os.Environ(), supervisorEnv+"="+p.socket)
		first.Stderr = os.Stderr
		out, err := first.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, len("line 1\n"))
		if _, err := io.ReadFull(out, line); err != nil {
			t.Error(err)
		}
		first.Process.Kill()
		second := p.dial(t) // at once, while the first is dying
		first.Wait()
		x, err := second.Attach(ctx, "s", "x")
		if err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(x.Stdout)
		if err != nil {
			t.Error(err)
		}
		if got, want := string(line)+string(rest), lines(countTo); got != want {
			t.Errorf("%d bytes, want %d: %.100q", len(got), len(want), got)
		}
		if res := <-x.Done; res.ExitCode != 7 {
			t.Errorf("%+v", res)
		}
		x.Stdout.Close()
		x.Stderr.Close()
		second.Forget("s", "x")
		if _, err := second.Close(ctx, "s"); err != nil {
			t.Error(err)
		}
		second.Disconnect()
		p.mustEnd(t)
	})

	t.Run("another user", func(t *testing.T) {
		p := run(t, bin, "--uid", "1001")
		p.dial(t).Disconnect() // root may
		st, err := os.Stat(p.socket)
		if err != nil {
			t.Fatal(err)
		}
		if sys := st.Sys().(*syscall.Stat_t); st.Mode().Perm() != 0o600 || sys.Uid != 1001 {
			t.Errorf("socket of %d, mode %v", sys.Uid, st.Mode())
		}
		p.Process.Signal(syscall.SIGTERM)
		p.mustEnd(t)
	})

	t.Run("refusals", func(t *testing.T) {
		bad := filepath.Join(t.TempDir(), "ceiling.json")
		if err := os.WriteFile(bad, []byte(`{"memory_bites": 1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--ceiling", bad}, {"--ceiling", "/none"}, {"--init", "/none"}, {"--instance", "a/b"}, {"--state", "/proc/x"}} {
			p := run(t, bin, args...)
			if err := p.Wait(); err == nil {
				t.Errorf("%q: it serves", args)
			}
			if lines := strings.Count(p.stderr.String(), "\n"); lines != 1 {
				t.Errorf("%q: says %q", args, p.stderr.String())
			}
		}
	})
}

// TestPureV1 is the real runner on a host that has mounted no unified hierarchy: it mounts
// one that nobody else sees, says what it found, and takes it away again.
func TestPureV1(t *testing.T) {
	const unified = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(unified + "/cgroup.procs"); err != nil {
		t.Log("the controllers are on v2 here: there is no v1 host to be had by unmounting")
		return
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	p := command(t, build(t), "--follow")
	p.Path = "/bin/sh"
	p.Args = append([]string{"sh", "-ec", "mount --make-rprivate /; umount " + unified + `; exec "$@"`, "sh"}, p.Args...)
	p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	said := p.logged(t)
	r := p.dial(t)
	if h := r.Host(); h.Cgroup != "v1" || len(h.Missing()) > 0 {
		t.Errorf("cgroups %q, missing %+v", h.Cgroup, h.Missing())
	}
	ctx := context.Background()
	if _, err := r.Open(ctx, spec("s")); err != nil {
		t.Fatal(err)
	}
	hangup(t, p, said, "replaced, with 1 sessions; ")
	for i, row := range []struct {
		command, out string
		oom          bool
	}{
		{"echo hello", "hello\n", false},
		{"grep -c cgroup2 /proc/self/mountinfo; true", "0\n", false},
		{"exec tail /dev/zero", "", true},
		{"echo again", "again\n", false},
	} {
		x, err := r.Start(ctx, sandbox.Exec{Session: "s", ID: fmt.Sprint("x", i), Argv: []string{"/bin/sh", "-c", row.command}, Cwd: "/tmp"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(x.Stdout)
		if res := <-x.Done; string(out) != row.out || res.OOM != row.oom || res.Usage.CPU <= 0 {
			t.Errorf("%s: %q %+v", row.command, out, res)
		}
		x.Stdout.Close()
		x.Stderr.Close()
	}
	if _, err := r.Close(ctx, "s"); err != nil {
		t.Error(err)
	}
	r.Disconnect()
	p.mustEnd(t)
	if after, _ := os.ReadFile("/proc/self/mountinfo"); !bytes.Equal(after, mounts) {
		t.Errorf("the host's mounts changed:\n%s\nto\n%s", mounts, after)
	}
}
