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
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// TestRoots opens, uses and closes a session on each kind of root (R006, R011, R013).
func TestRoots(t *testing.T) {
	r := newRunner(t)
	shared := sharedDir(t)
	root := mkdir(t, filepath.Join(shared, "root"), 0o755, 0)
	programs(t, root, "/bin/sh", "/bin/ls", "/bin/cat", "/usr/bin/id")
	mkdir(t, filepath.Join(root, "etc"), 0o755, 0)
	if err := os.Symlink("usr", filepath.Join(root, "var")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "etc/motd"), "unpacked\n", 0o600, 0)
	mkdir(t, filepath.Join(root, "dev"), 0o755, 0)
	write(t, filepath.Join(root, "dev/planted"), "", 0o644, 0)
	if err := os.Symlink("/etc/motd", filepath.Join(root, "message")); err != nil {
		t.Fatal(err)
	}

	dir := hostSpec("dir")
	src := source(t, r, sandbox.Caller{}, root)
	dir.Root = sandbox.Root{Kind: sandbox.RootDir, Dir: &src}
	dir.Identity = sandbox.Identity{UID: 0, GID: 0}
	r.options.Ceiling.UIDs = [2]uint32{0, 65534}

	paths := hostSpec("paths")
	paths.Root = sandbox.Root{Kind: sandbox.RootPaths}
	for _, p := range programs(t, "", "/bin/sh", "/bin/ls") {
		paths.Root.Paths = append(paths.Root.Paths, source(t, r, sandbox.Caller{}, p))
	}

	for _, c := range []struct {
		spec   sandbox.Spec
		script string
		want   []string
		absent []string
	}{
		{hostSpec("host"), "ls /; id; cat /etc/hostname; ls /etc; ls -d /root /home /var/log 2>&1",
			[]string{"usr\n", "uid=1000(user)", "box\n", "passwd\n", "/root': No such", "/home': No such", "/var/log': No such"},
			[]string{"shadow\n", "machine-id", "sudoers"}},
		{dir, "ls /; ls /dev; cat /message; id -u", []string{"message\n", "unpacked\n", "null\n", "\n0\n"}, []string{"planted"}},
		{paths, "ls / /usr 2>&1; ls /bin", []string{"bin\n", "sh\n", "ls\n"}, []string{"cat\n", "share\n"}},
	} {
		t.Run(c.spec.Session, func(t *testing.T) {
			before := residueOf(t, r)
			e := open(t, r, c.spec)
			if !e.NoNewPrivs || e.Seccomp != 2 || e.Capabilities != 0 || e.MemoryBytes != c.spec.Limits.MemoryBytes || e.SwapBytes != 0 || e.PIDs != c.spec.Limits.PIDs {
				t.Errorf("evidence %+v", e)
			}
			if c.spec.Root.Kind == sandbox.RootPaths && len(e.Inputs) != len(c.spec.Root.Paths) {
				t.Errorf("%d digests for %d paths", len(e.Inputs), len(c.spec.Root.Paths))
			}
			o := shell(t, r, c.spec.Session, c.script)
			contains(t, "output", o.stdout, c.want...)
			for _, a := range c.absent {
				if strings.Contains(o.stdout, a) {
					t.Errorf("%q is visible in\n%s", a, o.stdout)
				}
			}
			closeSession(t, r, c.spec.Session)
			before.mustLeaveNothing(t, r)
		})
	}
}

// TestOwnership mounts directories of root and of another user: what is written inside
// belongs to the caller outside, and what the caller may not read is not readable (R012).
func TestOwnership(t *testing.T) {
	r := newRunner(t)
	for _, caller := range []sandbox.Caller{{}, {UID: 1001, GID: 1001}} {
		t.Run(fmt.Sprint(caller.UID), func(t *testing.T) {
			uid := int(caller.UID)
			dir := mkdir(t, filepath.Join(sharedDir(t), "work"), 0o755, uid)
			inputs := mkdir(t, filepath.Join(dir, "inputs"), 0o755, uid)
			write(t, filepath.Join(dir, "mine"), "mine", 0o600, uid)
			write(t, filepath.Join(dir, "theirs"), "theirs", 0o600, 4242)
			spec := hostSpec("own")
			spec.Caller = caller
			spec.Mounts = []sandbox.Mount{
				{Source: source(t, r, caller, dir), Target: "/work"},
				{Source: source(t, r, caller, inputs), Target: "/inputs", ReadOnly: true, Digest: true},
			}
			spec.Workdir = "/work"
			e := open(t, r, spec)
			defer closeSession(t, r, "own")
			if len(e.Inputs) != 1 || e.Inputs[0].Path != inputs || !strings.HasPrefix(e.Inputs[0].Digest, "sha256:") {
				t.Errorf("inputs %+v", e.Inputs)
			}
			o := shell(t, r, "own", `cd /work
				cat mine; echo; echo new > file; mkdir sub; stat -c "%u %n" mine theirs file sub
				cat theirs; chown 0 file; chmod 4755 file; echo x > /inputs/x; echo x > /usr/x`)
			contains(t, "stdout", o.stdout, "mine\n", "1000 mine", "65534 theirs", "1000 file", "1000 sub")
			contains(t, "stderr", o.stderr, "theirs: Permission denied", "changing ownership of 'file'", "changing permissions of 'file'",
				"/inputs/x: Read-only file system", "/usr/x: Read-only file system")
			for _, name := range []string{"file", "sub"} {
				var st unixStat
				if err := st.of(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				if st.Uid != caller.UID || st.Gid != caller.GID || st.Mode&0o7000 != 0 {
					t.Errorf("%s outside: %d:%d mode %o", name, st.Uid, st.Gid, st.Mode)
				}
			}
		})
	}
}

// TestRefused sends Specs that are wrong, or want more than the caller or the
// operator allows. Nothing may be left of any (R014, R095, T010, T176).
func TestRefused(t *testing.T) {
	r := newRunner(t)
	r.options.Ceiling.MemoryBytes = 512 << 20
	shared := sharedDir(t)
	caller := sandbox.Caller{UID: 1001, GID: 1001}
	mine := mkdir(t, filepath.Join(shared, "mine"), 0o755, 1001)
	readable := mkdir(t, filepath.Join(shared, "readable"), 0o755, 0)
	private := mkdir(t, filepath.Join(shared, "private"), 0o700, 0)
	write(t, filepath.Join(mine, "file"), "", 0o644, 1001)
	swap := mkdir(t, filepath.Join(mine, "swap"), 0o755, 1001)
	judged := source(t, r, caller, swap)
	if err := errors.Join(os.Remove(swap), os.Symlink(readable, swap)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(mine, "link")); err != nil {
		t.Fatal(err)
	}
	mount := func(src sandbox.Source, target string, ro bool) func(*sandbox.Spec) {
		return func(s *sandbox.Spec) {
			s.Mounts = append(s.Mounts, sandbox.Mount{Source: src, Target: target, ReadOnly: ro})
		}
	}
	asRoot := source(t, r, sandbox.Caller{}, private)
	work := mount(source(t, r, caller, mine), "/work", false)

	before := residueOf(t, r)
	for _, c := range []struct {
		name, code string
		change     func(*sandbox.Spec)
	}{
		{"malformed", sandbox.CodeInvalidSpec, func(s *sandbox.Spec) { s.Workdir = "tmp" }},
		{"unknown profile", sandbox.CodeCeiling, func(s *sandbox.Spec) { s.Seccomp = "none" }},
		{"forged memory", sandbox.CodeCeiling, func(s *sandbox.Spec) { s.Limits.MemoryBytes = 1 << 30 }},
		{"forged capability", sandbox.CodeCeiling, func(s *sandbox.Spec) { s.Identity.Capabilities = []string{"CAP_NET_ADMIN"} }},
		{"forged identity", sandbox.CodeCeiling, func(s *sandbox.Spec) { s.Identity.UID = 0 }},
		{"forged source", sandbox.CodeCeiling, mount(sandbox.Source{Path: "/proc", Resolved: "/proc", Ino: 1, Kind: "dir"}, "/work", true)},
		{"lie about what was resolved", sandbox.CodeSourceChanged, func(s *sandbox.Spec) {
			src := source(t, r, sandbox.Caller{}, "/proc/sys")
			src.Resolved = "/srv"
			mount(src, "/work", true)(s)
			s.Caller = sandbox.Caller{}
		}},
		{"swapped after the decision", sandbox.CodeSourceChanged, mount(judged, "/work", true)},
		{"beyond the caller's reach", sandbox.CodeMountSource, mount(asRoot, "/work", true)},
		{"rw where the caller may only read", sandbox.CodeMountSource, mount(source(t, r, caller, readable), "/work", false)},
		{"target missing in the caller's mount", sandbox.CodeMountTarget, func(s *sandbox.Spec) {
			work(s)
			mount(source(t, r, caller, readable), "/work/missing", true)(s)
		}},
		{"target through the caller's link", sandbox.CodeMountTarget, func(s *sandbox.Spec) {
			work(s)
			mount(source(t, r, caller, readable), "/work/link/x", true)(s)
		}},
		{"target of the other kind", sandbox.CodeMountTarget, func(s *sandbox.Spec) {
			work(s)
			mount(source(t, r, caller, readable), "/work/file", true)(s)
		}},
		{"target in a host directory", sandbox.CodeMountTarget, mount(source(t, r, caller, readable), "/usr/missing", true)},
		{"missing workdir", sandbox.CodeInvalidWorkdir, func(s *sandbox.Spec) { s.Workdir = "/nowhere" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := hostSpec("refused")
			spec.Caller = caller
			c.change(&spec)
			_, err := r.Open(context.Background(), spec)
			if codeOf(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
			before.mustLeaveNothing(t, r)
		})
	}
}

// TestResolve looks at paths as different callers (R095).
func TestResolve(t *testing.T) {
	r := newRunner(t)
	shared := sharedDir(t)
	private := mkdir(t, filepath.Join(shared, "private"), 0o700, 0)
	mkdir(t, filepath.Join(private, "inner"), 0o755, 0)
	group := mkdir(t, filepath.Join(shared, "group"), 0o750, 0)
	if err := errors.Join(os.Chown(group, 0, 2002), os.Symlink("loop", filepath.Join(shared, "loop")), os.Symlink("/usr", filepath.Join(shared, "usr")),
		os.Mkdir(shared+"/\xff", 0o755), os.Symlink(shared+"/\xff", filepath.Join(shared, "odd"))); err != nil {
		t.Fatal(err)
	}
	user := sandbox.Caller{UID: 1001, GID: 1001}
	member := sandbox.Caller{UID: 1001, GID: 1001, Groups: []uint32{2002}}
	for _, c := range []struct {
		caller     sandbox.Caller
		path, want string
	}{
		{sandbox.Caller{}, private, private},
		{user, private, "permission_denied"},
		{user, private + "/inner", "permission_denied"},
		{user, group, "permission_denied"},
		{member, group, group},
		{user, shared + "/usr/bin", "/usr/bin"},
		{user, shared + "/loop", "symlink_loop"},
		{user, shared + "/none", "not_found"},
		{user, shared + "/odd", "not_supported"}, // T130
		{user, "/dev/null", "not_supported"},
		{user, "/proc/self/root", "symlink_loop"},
	} {
		found, err := r.Resolve(context.Background(), c.caller, []string{c.path})
		if err != nil {
			t.Fatal(err)
		}
		got := found[0].Source.Resolved
		if found[0].Err != nil {
			got = found[0].Err.Code
		}
		if got != c.want {
			t.Errorf("%+v %s: %s, want %s", c.caller, c.path, got, c.want)
		}
	}
}

// TestFailures makes Open fail at every step, many times and several at once. Nothing
// may be left behind (R018, T036, T077).
func TestFailures(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	const atOnce = 5
	each := min(8, max(1, rounds(t)/20))
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			var reached atomic.Int64
			r.meddle = func(s string, _ *opening) error {
				if s == step.name {
					reached.Add(1)
					return errors.New("injected")
				}
				return nil
			}
			defer func() { r.meddle = nil }()
			var all sync.WaitGroup
			for n := range atOnce {
				all.Go(func() {
					for range each {
						if _, err := r.Open(context.Background(), hostSpec(fmt.Sprintf("fails%d", n))); err == nil || !strings.Contains(err.Error(), "injected") {
							t.Errorf("got %v", err)
						}
					}
				})
			}
			all.Wait()
			if n := reached.Load(); n != int64(each*atOnce) {
				t.Errorf("reached %d times", n)
			}
			before.mustLeaveNothing(t, r)
		})
	}
	// The name and the ids are free again.
	open(t, r, hostSpec("fails0"))
	closeSession(t, r, "fails0")
	before.mustLeaveNothing(t, r)
}

const (
	orphanEnv     = "STOCKADE_TEST_ORPHAN" // state directory: be a runner that leaves a session behind
	orphanInitEnv = "STOCKADE_TEST_INIT"
	orphanStepEnv = "STOCKADE_TEST_STEP" // to stop after
)

// orphan is a second runner, in a process of its own: it opens a session with a
// command in it, says so, and waits to be killed. Started again, it finds what it left.
func orphan(dir string) int {
	initBinary = os.Getenv(orphanInitEnv)
	r, err := New(options(dir, "runcorphan"+filepath.Base(filepath.Dir(dir))))
	if err == nil {
		fmt.Printf("groups %d\n", len(groupsOf(r.options.Instance)))
		r.meddle = func(step string, _ *opening) error {
			if step == os.Getenv(orphanStepEnv) {
				fmt.Printf("init %d\n", initOf(r, "orphan"))
				_, _ = io.Copy(io.Discard, os.Stdin)
			}
			return nil
		}
		_, err = r.Open(context.Background(), hostSpec("orphan"))
	}
	if err == nil {
		e := sandbox.Exec{Session: "orphan", ID: "x", Argv: []string{"/bin/sleep", "300"}, Env: []string{}, Cwd: "/"}
		_, err = r.Start(context.Background(), e, nil, func(sandbox.Result) {})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	s, _ := r.session("orphan")
	fmt.Printf("init %d\n", s.box.pid)
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or told to end in order
	if err := r.Shutdown(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// initOf is the process that libcontainer's state of a session names.
func initOf(r *Runner, session string) (pid int) {
	data, _ := os.ReadFile(filepath.Join(r.boxes(), session, "state.json"))
	_, rest, _ := strings.Cut(string(data), `"init_process_pid":`)
	_, _ = fmt.Sscan(rest, &pid)
	return pid
}

// TestSweep kills a runner and starts it again: what it left is gone before the new
// one serves, and nothing is left of that one when it ends in order (T091, T096).
func TestSweep(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	run := func() (*exec.Cmd, io.WriteCloser, int, int) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), orphanEnv+"="+dir, orphanInitEnv+"="+initBinary)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var groups, pid int
		if _, err := fmt.Fscanf(stdout, "groups %d\ninit %d\n", &groups, &pid); err != nil {
			t.Fatal(err)
		}
		return cmd, stdin, groups, pid
	}
	first, _, fresh, pid := run()
	first.Process.Kill()
	first.Wait()
	second, stdin, swept, _ := run()
	if swept != fresh {
		t.Errorf("%d groups after the sweep, %d in a fresh instance", swept, fresh)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		t.Errorf("init %d of the killed runner's session lives", pid)
	}
	stdin.Close()
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	if left := groupsOf("runcorphan" + filepath.Base(filepath.Dir(dir))); len(left) > 0 {
		t.Errorf("groups left: %q", left)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
}

// TestSweepStarted kills a runner whose init waits to be moved to its groups: the next
// runner ends that, too (T091).
func TestSweepStarted(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	run := func(step string) (*exec.Cmd, int) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), orphanEnv+"="+dir, orphanInitEnv+"="+initBinary, orphanStepEnv+"="+step)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stdin.Close(); cmd.Wait() })
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var groups, pid int
		if _, err := fmt.Fscanf(stdout, "groups %d\ninit %d\n", &groups, &pid); err != nil {
			t.Fatal(err)
		}
		return cmd, pid
	}
	first, pid := run("start")
	waiting, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(waiting)
	first.Process.Kill()
	first.Wait()
	if err := unix.PidfdSendSignal(waiting, 0, nil, 0); err != nil {
		t.Fatalf("init %d ended by itself: %v", pid, err)
	}
	run("")
	ended := []unix.PollFd{{Fd: int32(waiting), Events: unix.POLLIN}}
	if n, err := unix.Poll(ended, 5000); n != 1 {
		t.Errorf("init %d of the killed runner lives: %v", pid, err)
	}
}

// TestMissingLayer refuses to build on a host that lacks what a session rests on. A second wall can be
// done without, by a caller who says so; the evidence repeats it (R259, T037). Control: who lacks nothing opens it, and who accepts to do without
// has a session that does.
func TestMissingLayer(t *testing.T) {
	r := newRunner(t)
	host := r.options.Host
	defer func() { r.options.Host = host }()
	lack := func(names ...string) sandbox.Host {
		h := host
		h.Layers = slices.Clone(host.Layers)
		for i, l := range h.Layers {
			if slices.Contains(names, l.Name) {
				h.Layers[i].State = "missing"
			}
		}
		return h
	}
	for _, c := range []struct {
		name          string
		lacks, accept []string
		refused       string // names this; "" is not
	}{
		{"a first wall", []string{"idmapped mounts"}, nil, "idmapped mounts"},
		{"a first wall, whatever is accepted", []string{"idmapped mounts"}, []string{"idmapped mounts"}, "idmapped mounts"},
		{"a second wall", []string{sandbox.LayerTimeNS}, nil, sandbox.LayerTimeNS},
		{"another than accepted", []string{sandbox.LayerTimeNS}, []string{sandbox.LayerLandlock}, sandbox.LayerTimeNS},
		{"a second wall, accepted", []string{sandbox.LayerTimeNS}, []string{sandbox.LayerTimeNS}, ""},
		{"nothing", nil, sandbox.Degradable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.options.Host = lack(c.lacks...)
			spec := hostSpec("s")
			spec.Degraded = c.accept
			e, err := r.Open(context.Background(), spec)
			if c.refused != "" {
				if codeOf(err) != sandbox.CodeUnsupported && codeOf(err) != sandbox.CodeInvalidSpec || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer closeSession(t, r, "s")
			if !slices.Equal(e.Degraded, c.lacks) {
				t.Errorf("degraded: %q, want %q", e.Degraded, c.lacks)
			}
			_, apart := e.Namespaces["time"]
			if apart == slices.Contains(c.lacks, sandbox.LayerTimeNS) {
				t.Errorf("namespaces: %v", e.Namespaces)
			}
		})
	}
}

// The session's clocks start from zero, and what init and executions measure still fits together: how
// long the host has been up cannot be seen (T055).
func TestClocks(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	o := shell(t, r, "s", "cut -d. -f1 /proc/uptime; sleep 0.2; readlink /proc/self/ns/time /proc/self/ns/time_for_children; echo 'monotonic 5 0' > /proc/self/timens_offsets")
	lines := strings.Split(o.stdout, "\n")
	if up, err := strconv.Atoi(lines[0]); err != nil || up > 60 {
		t.Errorf("up for %q s", lines[0])
	}
	ours, err := os.Readlink("/proc/self/ns/time")
	if err != nil || lines[1] == ours || lines[1] != lines[2] {
		t.Errorf("%q and %q beside %q", lines[1], lines[2], ours)
	}
	contains(t, "stderr", o.stderr, "error")
	if took := o.Ended.Sub(o.Started); took < 200*time.Millisecond || took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestDevices puts a process that is not confined otherwise into the group of an
// execution: the device rules alone stop it (T023).
func TestDevices(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	s, err := r.session("s")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := s.groups.Leaf()
	if err != nil {
		t.Fatal(err)
	}
	defer leaf.Remove()
	read := "for d in zero kmsg; do (: < /dev/$d) 2>/dev/null && echo $d; done; true"
	enter := "echo $$ > " + s.groups.Paths()[""] + "/x/1/cgroup.procs; "
	for script, want := range map[string]string{read: "zero\nkmsg\n", enter + read: "zero\n"} {
		out, err := exec.Command("/bin/sh", "-c", script).Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: %q %v, want %q", script, out, err, want)
		}
	}
}

// TestChurn opens, uses and closes many sessions, several at a time (T076).
func TestChurn(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	const rounds, parallel = 100, 10
	var all sync.WaitGroup
	next := make(chan int)
	for range parallel {
		all.Go(func() {
			for i := range next {
				id := fmt.Sprintf("churn%d", i)
				if _, err := r.Open(context.Background(), hostSpec(id)); err != nil {
					t.Errorf("open %s: %v", id, err)
					continue
				}
				done := make(chan sandbox.Result, 1)
				streams, err := r.Start(context.Background(), sandbox.Exec{Session: id, ID: "x", Argv: []string{"/bin/true"}, Cwd: "/"}, nil, func(x sandbox.Result) { done <- x })
				if err != nil {
					t.Errorf("start in %s: %v", id, err)
				} else {
					if x := <-done; x.ExitCode != 0 {
						t.Errorf("%s: %+v", id, x)
					}
					streams.Close()
				}
				if _, err := r.Close(context.Background(), id); err != nil {
					t.Errorf("close %s: %v", id, err)
				}
			}
		})
	}
	for i := range rounds {
		next <- i
	}
	close(next)
	all.Wait()
	before.mustLeaveNothing(t, r)
}
