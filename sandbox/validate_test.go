package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/sandbox"
)

func validSpec() sandbox.Spec {
	src := func(p string) sandbox.Source {
		return sandbox.Source{Path: p, Resolved: p, Dev: 1, Ino: 2, Kind: "dir", OwnerUID: 1000, Mode: 0o755}
	}
	return sandbox.Spec{
		Session:  "s-1",
		Caller:   sandbox.Caller{UID: 1000, GID: 1000},
		Root:     sandbox.Root{Kind: sandbox.RootHost},
		Mounts:   []sandbox.Mount{{Source: src("/home/u/ws"), Target: "/work"}},
		Scratch:  []sandbox.Scratch{{Target: "/tmp", Bytes: 1 << 20, Inodes: 1000}},
		Identity: sandbox.Identity{UID: 1000, GID: 1000, Groups: []uint32{20}},
		Hostname: "box-1.local",
		Workdir:  "/work",
		Network:  sandbox.Network{Mode: "none"},
		Seccomp:  "default",
		Limits:   sandbox.Limits{MemoryBytes: 64 << 20, CPUMillis: 500, PIDs: 32, Files: 1024},
	}
}

// R001 R003 R031 R085 T028 T112: one row per way in which a Spec is not well formed.
func TestSpecValidate(t *testing.T) {
	if s := validSpec(); s.Validate() != nil {
		t.Fatalf("the valid Spec: %v", s.Validate())
	}
	for _, row := range []struct {
		name, want string
		change     func(*sandbox.Spec)
	}{
		{"empty id", "session id", func(s *sandbox.Spec) { s.Session = "" }},
		{"id with a slash", "session id", func(s *sandbox.Spec) { s.Session = "../x" }},
		{"id with upper case", "session id", func(s *sandbox.Spec) { s.Session = "S" }},
		{"long id", "session id", func(s *sandbox.Spec) { s.Session = strings.Repeat("a", 65) }},
		{"no root", "root kind", func(s *sandbox.Spec) { s.Root.Kind = "" }},
		{"root host with a dir", "root host", func(s *sandbox.Spec) { s.Root.Dir = &s.Mounts[0].Source }},
		{"root dir without one", "root dir", func(s *sandbox.Spec) { s.Root.Kind = sandbox.RootDir }},
		{"root dir is a file", "not a directory", func(s *sandbox.Spec) {
			src := s.Mounts[0].Source
			src.Kind = "file"
			s.Root = sandbox.Root{Kind: sandbox.RootDir, Dir: &src}
		}},
		{"root paths without any", "root paths", func(s *sandbox.Spec) { s.Root.Kind = sandbox.RootPaths }},
		{"root path over /proc", "sandbox's own", func(s *sandbox.Spec) {
			src := s.Mounts[0].Source
			src.Path = "/proc/1"
			s.Root = sandbox.Root{Kind: sandbox.RootPaths, Paths: []sandbox.Source{src}}
		}},
		{"relative source", "absolute clean", func(s *sandbox.Spec) { s.Mounts[0].Source.Path = "ws" }},
		{"source not clean", "absolute clean", func(s *sandbox.Spec) { s.Mounts[0].Source.Path = "/a/../b" }},
		{"source with a NUL", "absolute clean", func(s *sandbox.Spec) { s.Mounts[0].Source.Path = "/a\x00b" }},
		{"source not resolved", "resolved to", func(s *sandbox.Spec) { s.Mounts[0].Source.Resolved = "" }},
		{"source not judged", "not judged", func(s *sandbox.Spec) { s.Mounts[0].Source.Ino = 0 }},
		{"source is a socket", "neither dir nor file", func(s *sandbox.Spec) { s.Mounts[0].Source.Kind = "socket" }},
		{"long path", "absolute clean", func(s *sandbox.Spec) { s.Mounts[0].Target = strings.Repeat("/a", 2048) }},
		{"long component", "absolute clean", func(s *sandbox.Spec) { s.Mounts[0].Target = "/" + strings.Repeat("a", 256) }},
		{"target is the root", "is the root", func(s *sandbox.Spec) { s.Mounts[0].Target = "/" }},
		{"target with a slash at its end", "absolute clean", func(s *sandbox.Spec) { s.Mounts[0].Target = "/work/" }},
		{"target with a newline", "absolute clean", func(s *sandbox.Spec) { s.Mounts[0].Target = "/a\nb" }},
		{"target over /proc", "sandbox's own", func(s *sandbox.Spec) { s.Mounts[0].Target = "/proc" }},
		{"target below /sys", "sandbox's own", func(s *sandbox.Spec) { s.Mounts[0].Target = "/sys/fs/cgroup" }},
		{"scratch over /dev/shm", "sandbox's own", func(s *sandbox.Spec) { s.Scratch[0].Target = "/dev/shm" }},
		{"target twice", "taken twice", func(s *sandbox.Spec) { s.Scratch[0].Target = "/work" }},
		{"digest of a writable source", "read-only", func(s *sandbox.Spec) { s.Mounts[0].Digest = true }},
		{"scratch without bytes", "bytes", func(s *sandbox.Spec) { s.Scratch[0].Bytes = 0 }},
		{"scratch without inodes", "inodes", func(s *sandbox.Spec) { s.Scratch[0].Inodes = 0 }},
		{"scratch of 2^62", "bytes", func(s *sandbox.Spec) { s.Scratch[0].Bytes = 1 << 62 }},
		{"uid of init", "identity", func(s *sandbox.Spec) { s.Identity.UID = 65535 }},
		{"gid of init", "identity", func(s *sandbox.Spec) { s.Identity.GID = 65535 }},
		{"uid -1", "identity", func(s *sandbox.Spec) { s.Identity.UID = 1<<32 - 1 }},
		{"group of init", "group", func(s *sandbox.Spec) { s.Identity.Groups = []uint32{65535} }},
		{"CAP_SYS_ADMIN", "never granted", func(s *sandbox.Spec) { s.Identity.Capabilities = []string{"CAP_SYS_ADMIN"} }},
		{"CAP_SETFCAP", "never granted", func(s *sandbox.Spec) { s.Identity.Capabilities = []string{"CAP_SETFCAP"} }},
		{"capability in lower case", "unknown", func(s *sandbox.Spec) { s.Identity.Capabilities = []string{"cap_chown"} }},
		{"capability twice", "twice", func(s *sandbox.Spec) { s.Identity.Capabilities = []string{"CAP_CHOWN", "CAP_CHOWN"} }},
		{"no hostname", "hostname", func(s *sandbox.Spec) { s.Hostname = "" }},
		{"hostname with a NUL", "hostname", func(s *sandbox.Spec) { s.Hostname = "a\x00" }},
		{"relative workdir", "workdir", func(s *sandbox.Spec) { s.Workdir = "." }},
		{"workdir through /proc", "below /proc", func(s *sandbox.Spec) { s.Workdir = "/proc/self/fd/7" }},
		{"an unknown network", "network", func(s *sandbox.Spec) { s.Network.Mode = "bridge" }},
		{"no seccomp profile", "seccomp", func(s *sandbox.Spec) { s.Seccomp = "" }},
		{"no memory", "limit memory", func(s *sandbox.Spec) { s.Limits.MemoryBytes = 0 }},
		{"negative memory", "limit memory", func(s *sandbox.Spec) { s.Limits.MemoryBytes = -1 }},
		{"no cpu", "limit cpu", func(s *sandbox.Spec) { s.Limits.CPUMillis = 0 }},
		{"no pids", "limit pids", func(s *sandbox.Spec) { s.Limits.PIDs = 0 }},
		{"no files", "limit files", func(s *sandbox.Spec) { s.Limits.Files = 0 }},
		{"an overlay that is read-only", "overlay", func(s *sandbox.Spec) {
			s.Mounts[0].Overlay, s.Mounts[0].ReadOnly = &sandbox.Overlay{Bytes: 1, Inodes: 1}, true
		}},
		{"an overlay over a file", "overlay", func(s *sandbox.Spec) {
			s.Mounts[0].Overlay, s.Mounts[0].Source.Kind = &sandbox.Overlay{Bytes: 1, Inodes: 1}, "file"
		}},
		{"an overlay without bytes", "bytes", func(s *sandbox.Spec) { s.Mounts[0].Overlay = &sandbox.Overlay{Inodes: 1} }},
		{"an overlay without inodes", "inodes", func(s *sandbox.Spec) { s.Mounts[0].Overlay = &sandbox.Overlay{Bytes: 1} }},
		{"protected in what is read-only", "protected", func(s *sandbox.Spec) { s.Mounts[0].ReadOnly, s.Mounts[0].Protected = true, []string{"a"} }},
		{"protected below a file", "protected", func(s *sandbox.Spec) { s.Mounts[0].Source.Kind, s.Mounts[0].Protected = "file", []string{"a"} }},
		{"protected outside", "protected", func(s *sandbox.Spec) { s.Mounts[0].Protected = []string{"../a"} }},
		{"protected by an absolute path", "protected", func(s *sandbox.Spec) { s.Mounts[0].Protected = []string{"/a"} }},
		{"the whole mount protected", "protected", func(s *sandbox.Spec) { s.Mounts[0].Protected = []string{""} }},
		{"protected with a newline", "protected", func(s *sandbox.Spec) { s.Mounts[0].Protected = []string{"a\nb"} }},
		{"too many protected", "protected", func(s *sandbox.Spec) { s.Mounts[0].Protected = make([]string, 65) }},
		{"destinations of no network", "destinations", func(s *sandbox.Spec) { s.Network.Allow = []sandbox.Destination{{Name: "a.org"}} }},
		{"a destination in upper case", "DNS name", func(s *sandbox.Spec) {
			s.Network = sandbox.Network{Mode: "egress", Allow: []sandbox.Destination{{Name: "A.org"}}}
		}},
		{"a destination that is an address", "DNS name", func(s *sandbox.Spec) {
			s.Network = sandbox.Network{Mode: "egress", Allow: []sandbox.Destination{{Name: "10.0.0.1"}}}
		}},
		{"too many destinations", "destinations", func(s *sandbox.Spec) {
			s.Network = sandbox.Network{Mode: "egress", Allow: make([]sandbox.Destination, 1025)}
		}},
		{"a wall that cannot be left out", "done without", func(s *sandbox.Spec) { s.Degraded = []string{"seccomp filter"} }},
		{"proof of another kind", "verify", func(s *sandbox.Spec) { s.Verify = "all" }},
		{"a weight beyond the kernel's", "cpu weight", func(s *sandbox.Spec) { s.Limits.CPUWeight = 10_001 }},
		{"negative cpu time", "cpu time", func(s *sandbox.Spec) { s.Limits.CPUTime = -1 }},
		{"negative io", "io", func(s *sandbox.Spec) { s.Limits.IOBytesPerSecond = -1 }},
		{"too much kept", "keep", func(s *sandbox.Spec) { s.Keep = make([]byte, 4<<20+1) }},
		{"too many attached", "more than", func(s *sandbox.Spec) { s.Mounts = make([]sandbox.Mount, 1025) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := validSpec()
			row.change(&s)
			expectRefusal(t, s.Validate(), sandbox.CodeInvalidSpec, row.want)
		})
	}
}

// R034 R036 T004 T071: one row per way in which an Exec is not well formed.
func TestExecValidate(t *testing.T) {
	valid := func() sandbox.Exec {
		return sandbox.Exec{Session: "s", ID: "e-1", Argv: []string{"true", ""}, Env: []string{"A=1", "B="}, Cwd: "/"}
	}
	if e := valid(); e.Validate() != nil {
		t.Fatalf("the valid Exec: %v", e.Validate())
	}
	for _, row := range []struct {
		name, want string
		change     func(*sandbox.Exec)
	}{
		{"no session", "session id", func(e *sandbox.Exec) { e.Session = "" }},
		{"id with a dot", "execution id", func(e *sandbox.Exec) { e.ID = ".." }},
		{"no command", "no command", func(e *sandbox.Exec) { e.Argv = nil }},
		{"empty command", "no command", func(e *sandbox.Exec) { e.Argv = []string{""} }},
		{"NUL in an argument", "argv[1]", func(e *sandbox.Exec) { e.Argv[1] = "\x00" }},
		{"long argument", "argv[1]", func(e *sandbox.Exec) { e.Argv[1] = strings.Repeat("a", 1<<17) }},
		{"env without =", "env[0]", func(e *sandbox.Exec) { e.Env[0] = "A" }},
		{"env without a name", "env[0]", func(e *sandbox.Exec) { e.Env[0] = "=1" }},
		{"env twice", "twice", func(e *sandbox.Exec) { e.Env[1] = "A=2" }},
		{"NUL in env", "env[1]", func(e *sandbox.Exec) { e.Env[1] = "B=\x00" }},
		{"too much in all", "more than", func(e *sandbox.Exec) {
			for range 17 {
				e.Argv = append(e.Argv, strings.Repeat("a", 1<<17-1))
			}
		}},
		{"too many empty arguments", "more than", func(e *sandbox.Exec) { e.Argv = append(e.Argv, make([]string, 1<<18)...) }},
		{"file tools and a command", "files", func(e *sandbox.Exec) { e.Files = true }},
		{"file tools in the background", "files", func(e *sandbox.Exec) { e.Files, e.Argv, e.Env, e.Background = true, nil, nil, true }},
		{"file tools with limits", "files", func(e *sandbox.Exec) { e.Files, e.Argv, e.Env, e.Limits.PIDs = true, nil, nil, 5 }},
		{"relative cwd", "cwd", func(e *sandbox.Exec) { e.Cwd = "x" }},
		{"less memory than a process needs", "limit memory", func(e *sandbox.Exec) { e.Limits.MemoryBytes = 1 }},
		{"negative pids", "limit pids", func(e *sandbox.Exec) { e.Limits.PIDs = -1 }},
		{"negative cpu time", "limit cpu time", func(e *sandbox.Exec) { e.Limits.CPUTime = -1 }},
		{"fewer files than a process needs", "limit files", func(e *sandbox.Exec) { e.Limits.Files = 3 }},
		{"cwd through a magic link", "below /proc", func(e *sandbox.Exec) { e.Cwd = "/proc/self/cwd" }},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := valid()
			row.change(&e)
			expectRefusal(t, e.Validate(), sandbox.CodeInvalidSpec, row.want)
		})
	}

	e := valid()
	e.Env = []string{"TOKEN=hunter2", "TOKEN=hunter2\x00"}
	if err := e.Validate(); strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a value of the environment is in the message: %v", err)
	}
}

func expectRefusal(t *testing.T, err error, code, want string) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Msg, want) {
		t.Errorf("got %v, want %s with %q", err, code, want)
	}
}
