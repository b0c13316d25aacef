package runc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/host"
)

// The programs that the tests build.
var initBinary, relayBinary string

func TestMain(m *testing.M) {
	if os.Getuid() == 0 {
		if err := errors.Join(shareMounts(), Isolate()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	syscall.Umask(0o077) // as in stockade-run
	os.Exit(run(m))
}

// shareMounts has the tests on a host whose mounts are in peer groups, as systemd has them: what a session gets
// of such a host must not be (T013, T016).
func shareMounts() error {
	const held = "STOCKADE_RUNC_HOST" // a descriptor: that host is there as long as the tests are
	if fd, err := strconv.Atoi(os.Getenv(held)); err == nil {
		unix.CloseOnExec(fd)
		return os.Unsetenv(held)
	}
	err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""))
	if err != nil {
		return err
	}
	fd, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY, 0)
	return errors.Join(err, os.Setenv(held, strconv.Itoa(fd)))
}

func run(m *testing.M) int {
	if state := os.Getenv(orphanEnv); state != "" {
		return orphan(state)
	}
	if state := os.Getenv(relayEnv); state != "" {
		return relay(state)
	}
	dir, err := os.MkdirTemp("", "runc-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if initBinary, relayBinary, err = built(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getuid() != 0 {
		return m.Run()
	}
	o := options(dir, fmt.Sprintf("runctest%d", os.Getpid()))
	if shared, err = New(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// The first session fills caches of the libraries that stay for good.
	ctx := context.Background()
	_, err = shared.Open(ctx, hostSpec("first"))
	if err == nil {
		_, err = shared.Close(ctx, "first")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "first session:", err)
		return 1
	}
	code := m.Run()
	if err := shared.Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, "shutdown:", err)
		code = 1
	}
	if left := groupsOf(o.Instance); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "groups left: %q\n", left)
		code = 1
	}
	return code
}

// built are stockade-init and stockade-relay: of STOCKADE_BIN, where there may be no compiler, or built for
// this run.
func built(dir string) (init, relay string, err error) {
	if bin := os.Getenv("STOCKADE_BIN"); bin != "" {
		dir = bin
	} else {
		cmd := exec.Command("go", "build", "-o", dir+"/", "github.com/stockade-dev/stockade/cmd/stockade-init", "github.com/stockade-dev/stockade/cmd/stockade-relay")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("build init and relay: %w\n%s", err, out)
		}
	}
	return filepath.Join(dir, "stockade-init"), filepath.Join(dir, "stockade-relay"), nil
}

// shared is the one runner of the test process: like stockade-run, a process has one
// instance, because libcontainer keeps a descriptor of its group for good.
var shared *Runner

// newRunner returns the runner of the tests, with the default ceiling.
func newRunner(t testing.TB) *Runner {
	t.Helper()
	needRoot(t)
	shared.options.Ceiling = sandbox.DefaultCeiling()
	return shared
}

func options(dir, instance string) Options {
	return Options{
		State:    filepath.Join(dir, "state"),
		Instance: instance,
		Init:     initBinary,
		Relay:    relayBinary,
		Ceiling:  sandbox.DefaultCeiling(),
		Host:     probed(),
	}
}

// probed is what this host offers.
var probed = sync.OnceValue(func() sandbox.Host { return host.Probe(cgroup.Options{}) })

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() == 0 {
		return
	}
	if os.Getenv("STOCKADE_NOSKIP") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root: it builds sessions")
}

// groupsOf finds every group of an instance, in every hierarchy.
func groupsOf(instance string) []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "stockade-"+instance) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// residue is what a runner holds beyond its sessions: it must be the same before a
// session is opened and after it is gone.
type residue struct {
	groups, mounts, children, files []string
	ranges                          int
}

func residueOf(t testing.TB, r *Runner) residue {
	t.Helper()
	var out residue
	out.groups = groupsOf(r.options.Instance)
	for _, pid := range []string{"self", "1"} {
		data, err := os.ReadFile("/proc/" + pid + "/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); pid == "self" && f[4] == r.place || strings.Contains(line, r.options.Instance) {
				out.mounts = append(out.mounts, line)
			}
		}
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			out.children = append(out.children, string(data))
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		switch {
		case err != nil: // of the listing itself
		case strings.HasPrefix(target, "user:["), strings.HasPrefix(target, "anon_inode:"), strings.HasSuffix(target, "/sys/fs/cgroup"), strings.HasPrefix(target, "/dev/"):
			// the cache of id mappings; the runtime's poller; the cgroup library's handle
		default:
			out.files = append(out.files, target)
		}
	}
	slices.Sort(out.files)
	if entries, err := os.ReadDir(r.boxes()); err == nil {
		for _, e := range entries {
			out.files = append(out.files, e.Name())
		}
	}
	for _, taken := range r.ids.taken {
		if taken {
			out.ranges++
		}
	}
	return out
}

// mustLeaveNothing compares, giving threads that are ending a moment to do so.
func (before residue) mustLeaveNothing(t testing.TB, r *Runner) {
	t.Helper()
	var after residue
	for range 50 {
		after = residueOf(t, r)
		if fmt.Sprint(before) == fmt.Sprint(after) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("residue\nbefore %+v\nafter  %+v", before, after)
}

// hostSpec is a session on the host's system directories with a private /tmp.
func hostSpec(id string) sandbox.Spec {
	return sandbox.Spec{
		Session:  id,
		Root:     sandbox.Root{Kind: sandbox.RootHost},
		Scratch:  []sandbox.Scratch{{Target: "/tmp", Bytes: 32 << 20, Inodes: 1000}},
		Identity: sandbox.Identity{UID: 1000, GID: 1000},
		Hostname: "box",
		Workdir:  "/tmp",
		Network:  sandbox.Network{Mode: "none"},
		Seccomp:  "default",
		Limits:   sandbox.Limits{MemoryBytes: 128 << 20, CPUMillis: 2000, PIDs: 64, Files: 256},
	}
}

// source judges a path as the daemon would.
func source(t testing.TB, r *Runner, caller sandbox.Caller, path string) sandbox.Source {
	t.Helper()
	found, err := r.Resolve(context.Background(), caller, []string{path})
	if err != nil {
		t.Fatal(err)
	}
	if found[0].Err != nil {
		t.Fatal(found[0].Err)
	}
	return found[0].Source
}

func open(t testing.TB, r *Runner, spec sandbox.Spec) sandbox.Enforced {
	t.Helper()
	e, err := r.Open(context.Background(), spec)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return e
}

func closeSession(t testing.TB, r *Runner, id string) sandbox.Usage {
	t.Helper()
	begin := time.Now()
	u, err := r.Close(context.Background(), id)
	if err != nil {
		t.Fatalf("close: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("close took %v", took)
	}
	return u
}

type outcome struct {
	sandbox.Result
	stdout, stderr string
}

var execIDs = func() func() string {
	var n atomic.Int64
	return func() string { return "x" + strconv.FormatInt(n.Add(1), 10) }
}()

// started is an execution whose output is being read.
type started struct {
	id             string
	done           chan sandbox.Result
	stdout, stderr chan string
}

func start(t testing.TB, r *Runner, e sandbox.Exec, stdin *os.File) *started {
	t.Helper()
	if e.ID == "" {
		e.ID = execIDs()
	}
	if e.Env == nil {
		e.Env = []string{"PATH=/usr/bin:/bin"}
	}
	if e.Cwd == "" {
		e.Cwd = "/tmp"
	}
	s := &started{e.ID, make(chan sandbox.Result, 1), make(chan string, 1), make(chan string, 1)}
	streams, err := r.Start(context.Background(), e, stdin, func(x sandbox.Result) { s.done <- x })
	if err != nil {
		t.Fatalf("start %q: %v", e.Argv, err)
	}
	for _, p := range []struct {
		file *os.File
		to   chan string
	}{{streams.Stdout, s.stdout}, {streams.Stderr, s.stderr}} {
		go func() {
			data, _ := io.ReadAll(p.file)
			p.file.Close()
			p.to <- string(data)
		}()
	}
	return s
}

func (s *started) wait() outcome {
	o := outcome{Result: <-s.done}
	o.stdout, o.stderr = <-s.stdout, <-s.stderr
	return o
}

// shell runs a script in a session to its end.
func shell(t testing.TB, r *Runner, session, script string) outcome {
	t.Helper()
	return start(t, r, sandbox.Exec{Session: session, Argv: []string{"/bin/sh", "-c", script}}, nil).wait()
}

func codeOf(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

// sharedDir is a directory that other users can reach.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "runc-shared-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, path, content string, mode os.FileMode, uid int) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t testing.TB, path string, mode os.FileMode, uid int) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(path, 0o755), os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// programs copies programs and what their loader needs below root, at their own places.
func programs(t testing.TB, root string, paths ...string) []string {
	t.Helper()
	need := slices.Clone(paths)
	for _, p := range paths {
		out, err := exec.Command("ldd", p).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", p, err)
		}
		for f := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(f, "/") {
				need = append(need, f)
			}
		}
	}
	slices.Sort(need)
	need = slices.Compact(need)
	if root == "" {
		return need
	}
	for _, p := range need {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		mkdirs := filepath.Dir(filepath.Join(root, p))
		if err := os.MkdirAll(mkdirs, 0o755); err != nil {
			t.Fatal(err)
		}
		for d := mkdirs; d != root; d = filepath.Dir(d) {
			os.Chmod(d, 0o755)
		}
		write(t, filepath.Join(root, p), string(data), 0o755, 0)
	}
	return need
}

func contains(t testing.TB, what, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s: %q is not in\n%s", what, w, got)
		}
	}
}
