package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
)

// TestForgedSpec speaks to the real runner as a supervisor would that somebody has taken over:
// what is beyond the operator's ceiling is refused by the runner itself, whatever was
// decided elsewhere, and leaves nothing. The Spec as it stood is built.
func TestForgedSpec(t *testing.T) {
	r := startRunner(t, `{"memory_bytes": 134217728, "cpu_millis": 2000, "pids": 64, "scratch_bytes": 33554432, "mounts": 1,
		"roots": ["host"], "mount_roots": ["/usr"], "read_write": [], "seccomp": ["default"], "uids": [1000, 2000], "capabilities": []}`)
	source := func(path string) sandbox.Source {
		found, err := r.Resolve(t.Context(), sandbox.Caller{}, []string{path})
		if err != nil {
			t.Fatal(err)
		}
		if found[0].Err != nil {
			t.Fatal(found[0].Err)
		}
		return found[0].Source
	}
	share, etc := source("/usr/share"), source("/etc")
	for _, k := range []struct {
		name  string
		forge func(*sandbox.Spec)
		code  string // "" when it is built
	}{
		{"as decided", func(*sandbox.Spec) {}, ""},
		{"memory", func(s *sandbox.Spec) { s.Limits.MemoryBytes++ }, sandbox.CodeCeiling},
		{"processors", func(s *sandbox.Spec) { s.Limits.CPUMillis++ }, sandbox.CodeCeiling},
		{"processes", func(s *sandbox.Spec) { s.Limits.PIDs++ }, sandbox.CodeCeiling},
		{"scratch", func(s *sandbox.Spec) { s.Scratch[0].Bytes++ }, sandbox.CodeCeiling},
		{"root", func(s *sandbox.Spec) { s.Root = sandbox.Root{Kind: sandbox.RootDir, Dir: &share} }, sandbox.CodeCeiling},
		{"a mount of /etc", func(s *sandbox.Spec) { s.Mounts[0].Source = etc }, sandbox.CodeCeiling},
		{"a mount that can be written", func(s *sandbox.Spec) { s.Mounts[0].ReadOnly = false }, sandbox.CodeCeiling},
		{"one mount more", func(s *sandbox.Spec) {
			s.Mounts = append(s.Mounts, sandbox.Mount{Source: share, Target: "/work", ReadOnly: true})
		}, sandbox.CodeCeiling},
		{"another filter", func(s *sandbox.Spec) { s.Seccomp = "strict" }, sandbox.CodeCeiling},
		{"another user", func(s *sandbox.Spec) { s.Identity.UID = 999 }, sandbox.CodeCeiling},
		{"a capability", func(s *sandbox.Spec) { s.Identity.Capabilities = []string{"CAP_NET_RAW"} }, sandbox.CodeCeiling},
		{"root inside", func(s *sandbox.Spec) { s.Identity.UID = 0 }, sandbox.CodeCeiling},
		{"init's own user", func(s *sandbox.Spec) { s.Identity.UID = sandbox.InitUID }, sandbox.CodeInvalidSpec},
		{"the host's network", func(s *sandbox.Spec) { s.Network = sandbox.Network{Mode: "host"} }, sandbox.CodeInvalidSpec},
		{"a group of the host's", func(s *sandbox.Spec) { s.Session = "../other" }, sandbox.CodeInvalidSpec},
		{"another object than was judged", func(s *sandbox.Spec) { s.Mounts[0].Source.Ino++ }, sandbox.CodeSourceChanged},
	} {
		t.Run(k.name, func(t *testing.T) {
			spec := sandbox.Spec{
				Session:  "forged",
				Root:     sandbox.Root{Kind: sandbox.RootHost},
				Mounts:   []sandbox.Mount{{Source: share, Target: "/mnt", ReadOnly: true}},
				Scratch:  []sandbox.Scratch{{Target: "/tmp", Bytes: 32 << 20, Inodes: 1000}},
				Identity: sandbox.Identity{UID: 1000, GID: 1000},
				Hostname: "forged",
				Workdir:  "/tmp",
				Network:  sandbox.Network{Mode: "none"},
				Seccomp:  "default",
				Limits:   sandbox.Limits{MemoryBytes: 128 << 20, CPUMillis: 2000, PIDs: 64, Files: 256},
			}
			k.forge(&spec)
			_, err := r.Open(t.Context(), spec)
			code := ""
			if refused, ok := errors.AsType[*sandbox.Error](err); ok {
				code = refused.Code
			}
			if code != k.code || (err == nil) != (k.code == "") {
				t.Errorf("%v, want %s", err, k.code)
			}
			if err == nil {
				if _, err := r.Close(t.Context(), spec.Session); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// startRunner starts a runner without a supervisor, with a ceiling of its own. When its
// only connection has ended it ends too, and nothing of it may be left.
func startRunner(t *testing.T, ceiling string) *launch.Runner {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "stockade-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	chmod(t, dir, 0o711)
	file := filepath.Join(dir, "ceiling.json")
	if err := os.WriteFile(file, []byte(ceiling), 0o600); err != nil {
		t.Fatal(err)
	}
	d := testbox.Daemon{Bin: bin, Dir: dir, State: filepath.Join(dir, "state")}
	socket := filepath.Join(dir, "sock")
	cmd := exec.Command(filepath.Join(bin, "stockade-run"), "--socket", socket, "--state", d.State,
		"--instance", d.Instance(), "--init", filepath.Join(bin, "stockade-init"), "--ceiling", file, "--follow")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the runner ended with %v", err)
		}
		left, err := d.Left()
		if err != nil {
			t.Error(err)
		}
		for _, line := range left {
			t.Errorf("left behind: %s", line)
		}
	})
	r, err := dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Disconnect() })
	if err := os.Remove(file); err != nil { // it has been read, and is not the runner's to leave
		t.Fatal(err)
	}
	return r
}

// dial connects to a runner that was started a moment ago.
func dial(ctx context.Context, socket string) (*launch.Runner, error) {
	for end := time.Now().Add(comesAbout); ; time.Sleep(20 * time.Millisecond) {
		if r, err := launch.Dial(ctx, socket); err == nil || time.Now().After(end) {
			return r, err
		}
	}
}
