package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// status returns the named fields of the /proc/self/status of an execution.
func status(t *testing.T, b *box, names ...string) map[string]string {
	t.Helper()
	out, _ := b.output(command("cat", "/proc/self/status"))
	return fields(out, names...)
}

func fields(text string, names ...string) map[string]string {
	got := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		if slices.Contains(names, name) {
			got[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return got
}

// R085, R261, T026, CVE-2022-24769, CVE-2022-29162 (inheritable sets that were not empty): what an execution is, by the kernel's word.
func TestExecutionsInherit(t *testing.T) {
	const netBind = 1 << unix.CAP_NET_BIND_SERVICE
	for _, tt := range []struct {
		name   string
		change func(*Setup)
		want   map[string]string
	}{
		{"nothing granted", func(*Setup) {}, map[string]string{
			"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
		}},
		{"a capability granted", func(s *Setup) { s.Capabilities = netBind }, map[string]string{
			"CapInh": "0000000000000400", "CapPrm": "0000000000000400", "CapEff": "0000000000000400",
			"CapBnd": "0000000000000400", "CapAmb": "0000000000000400",
		}},
		{"uid 0 is no root", func(s *Setup) { s.UID, s.GID = 0, 0 }, map[string]string{
			"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
		}},
		{"uid 0 with a capability", func(s *Setup) { s.UID, s.Capabilities = 0, netBind }, map[string]string{
			"CapInh": "0000000000000400", "CapPrm": "0000000000000400", "CapEff": "0000000000000400",
			"CapBnd": "0000000000000400", "CapAmb": "0000000000000400",
		}},
		{"seccomp and the rest", func(s *Setup) { s.Filter = denyMkdir() }, map[string]string{
			"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "1", "Umask": "0022",
			"SigIgn": "0000000000000000", "SigBlk": "0000000000000000", "SigCgt": "0000000000000000", "Threads": "1",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := baseline()
			tt.change(&s)
			b := start(t, s)
			var names []string
			for name := range tt.want {
				names = append(names, name)
			}
			got := status(t, b, names...)
			for name, want := range tt.want {
				if got[name] != want {
					t.Errorf("%s: got %q, want %q", name, got[name], want)
				}
			}
			out, _ := b.output(command("id", "-u"))
			if strings.TrimSpace(out) != strconv.Itoa(int(s.UID)) {
				t.Errorf("id -u: %s", out)
			}
		})
	}
}

// denyMkdir is a seccomp program that refuses mkdir(at) with EXDEV and allows the rest.
func denyMkdir() []byte {
	return refusing(unix.SECCOMP_RET_ERRNO|uint32(unix.EXDEV), unix.SYS_MKDIR, unix.SYS_MKDIRAT)
}

// refusing is a seccomp program that answers two calls in a way, and allows the rest.
func refusing(answer uint32, call, other uint32) []byte {
	var b []byte
	for _, f := range []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: call},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: other},
		{Code: unix.BPF_RET | unix.BPF_K, K: answer},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	} {
		b = binary.NativeEndian.AppendUint16(b, f.Code)
		b = append(b, f.Jt, f.Jf)
		b = binary.NativeEndian.AppendUint32(b, f.K)
	}
	return b
}

func TestIdentityAndSurroundings(t *testing.T) {
	s := baseline()
	s.Filter = denyMkdir()
	s.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 123, 123}, {unix.RLIMIT_CORE, 0, 0}}
	b := start(t, s)
	for _, tt := range []struct{ name, script, want string }{
		{"identity", "id -u; id -g; id -G", "1000\n1001\n1001 1002 1003\n"},
		{"umask", "umask", "0022\n"},
		{"limits", "ulimit -n; ulimit -Hn; ulimit -c", "123\n123\n0\n"},
		{"oom score", "cat /proc/self/oom_score_adj", "500\n"},
		{"seccomp", "mkdir /tmp/x 2>&1", "mkdir: cannot create directory '/tmp/x': Invalid cross-device link\n"},
		// T003: descriptor 3 is the directory that ls itself opened.
		{"descriptors", "ls /proc/self/fd", "0\n1\n2\n3\n"},
		{"session leader", "read pid _ _ _ group session _ </proc/self/stat; test $pid = $group && test $pid = $session && echo yes", "yes\n"},
		{"environment", "env", "PATH=/usr/bin:/bin\nLANG=C\nPWD=/\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, _ := b.output(shell(tt.script)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// T003, T046, T086: init itself, from outside.
// The runner's sleeps may be looser than what a program expects of the kernel.
func TestTimerSlack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := func(ns uintptr) {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, ns, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	set(1_000_000)
	defer set(defaultSlack)
	b := start(t, baseline())
	if text, _ := b.output(command("cat", "/proc/self/timerslack_ns")); text != "50000\n" {
		t.Errorf("slack %q", text)
	}
}

// TestPriority: what the runner has before others is not its sessions'; where it yields, so do they (T054).
func TestPriority(t *testing.T) {
	for _, c := range []struct {
		runner int
		want   string
	}{{-5, "0"}, {0, "0"}, {7, "7"}} {
		t.Run(strconv.Itoa(c.runner), func(t *testing.T) {
			runtime.LockOSThread() // for good: the thread ends with the test, and its priority with it
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, c.runner); err != nil {
				t.Fatal(err)
			}
			b := start(t, baseline())
			if text, _ := b.output(command("nice")); text != c.want+"\n" {
				t.Errorf("niceness %q, want %s", text, c.want)
			}
		})
	}
}

func TestInitIsBare(t *testing.T) {
	s := baseline()
	s.Filter = denyMkdir()
	b := start(t, s)
	b.output(shell("true")) // so that whatever a spawn leaves behind is there
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", b.pid))
	if err != nil || len(tasks) == 0 {
		t.Fatal(tasks, err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			t.Fatal(err)
		}
		got := fields(string(text), "Seccomp", "NoNewPrivs", "CapInh", "CapAmb", "CapEff")
		want := map[string]string{"Seccomp": "2", "NoNewPrivs": "1", "CapInh": "0000000000000000", "CapAmb": "0000000000000000", "CapEff": "00000000000001e0"}
		if filepath.Base(filepath.Dir(task)) == strconv.Itoa(b.pid) {
			want["CapEff"] = "00000000000000e0" // the main thread has no CAP_SETPCAP any more
		}
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%s: %s: got %q, want %q", task, name, got[name], want[name])
			}
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd/", b.pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(dir + fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		// The last two are the runtime's, for its timers.
		if to != os.DevNull && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" && !strings.HasPrefix(to, "socket:") && !strings.HasSuffix(to, "/oom_score_adj") {
			t.Errorf("init holds %s: %s", fd.Name(), to)
		}
	}
	if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", b.pid)); err != nil || strings.TrimSpace(string(score)) == "500" {
		t.Errorf("init's oom score: %s, %v", score, err)
	}
}

// As whom executions run the kernel says of init until the first request, and of nobody else.
func TestInitShowsIdentity(t *testing.T) {
	b := start(t, baseline())
	uid := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", b.pid, b.pid))
		if err != nil {
			t.Fatal(err)
		}
		return fields(string(text), "Uid")["Uid"]
	}
	init := fmt.Sprint(firstID + 65535)
	if got, want := uid(), fmt.Sprint(init, " ", init, " ", init, " ", firstID+1000); got != want {
		t.Errorf("ids %q, want %q", got, want)
	}
	b.output(shell("true"))
	if got, want := uid(), fmt.Sprint(init, " ", init, " ", init, " ", init); got != want {
		t.Errorf("afterwards: ids %q, want %q", got, want)
	}
}

// What executions inherit of signals is decided by init's handlers. 33 has to have one: the
// runtime's AllThreadsSyscall (32 and 33 are glibc's names for its own) works by it, and
// become, which takes privilege from every thread, works by that. SIGCHLD and 32 are at
// their default, neither caught nor ignored.
func TestInitSignals(t *testing.T) {
	b := start(t, baseline())
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.pid))
	if err != nil {
		t.Fatal(err)
	}
	has := func(set string, sig int) bool {
		mask, err := strconv.ParseUint(fields(string(text), set)[set], 16, 64)
		if err != nil {
			t.Fatal(set, err)
		}
		return mask>>(sig-1)&1 == 1
	}
	for sig, caught := range map[int]bool{33: true, 32: false, int(unix.SIGCHLD): false, int(unix.SIGTERM): true} {
		if has("SigCgt", sig) != caught || has("SigIgn", sig) || has("SigBlk", sig) {
			t.Errorf("signal %d: caught %v, ignored %v, blocked %v; want caught %v and nothing else",
				sig, has("SigCgt", sig), has("SigIgn", sig), has("SigBlk", sig), caught)
		}
	}
}

// R045, R046, R047, R056: exit codes and signals are told apart, and usage is counted.
func TestExits(t *testing.T) {
	b := start(t, baseline())
	for _, tt := range []struct {
		script string
		want   syscall.WaitStatus
	}{
		{"exit 0", 0},
		{"exit 7", 7 << 8},
		{"exit 255", 255 << 8},
		{"kill -TERM $$", syscall.WaitStatus(syscall.SIGTERM)},
		{"kill -KILL $$", syscall.WaitStatus(syscall.SIGKILL)},
	} {
		if _, e := b.output(shell(tt.script)); e.Status != tt.want {
			t.Errorf("%s: got %#x, want %#x", tt.script, e.Status, tt.want)
		}
	}
	_, e := b.output(shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
	if e.CPU <= 0 || e.MaxRSS <= 0 {
		t.Errorf("usage: %v CPU, %d bytes", e.CPU, e.MaxRSS)
	}
}

// R036, R037, T071: what cannot be started, and why: the same whether init or an executor finds out.
func TestSpawnErrors(t *testing.T) {
	dir := filepath.Join(bin, "errors")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"plain":     {"echo\n", 0o755},
		"forbidden": {"#!/bin/sh\n", 0o700},
		"orphan":    {"#!/does/not/exist\n", 0o755},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "private"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := start(t, baseline())
	for _, tt := range []struct {
		name  string
		cmd   Command
		stage Stage
		errno syscall.Errno
	}{
		{"not in PATH", command("no-such-command"), StageProgram, syscall.ENOENT},
		{"no such file", command("/no/such/file"), StageProgram, syscall.ENOENT},
		{"empty name", command(""), StageProgram, syscall.ENOENT},
		{"a directory", command("/bin"), StageProgram, syscall.EACCES},
		{"not executable by the identity", command(dir + "/forbidden"), StageProgram, syscall.EACCES},
		{"the same in PATH", Command{Argv: []string{"forbidden"}, Env: []string{"PATH=" + dir}, Cwd: "/"}, StageProgram, syscall.EACCES},
		{"script without shebang", command(dir + "/plain"), StageProgram, syscall.ENOEXEC},
		{"missing interpreter", command(dir + "/orphan"), StageProgram, syscall.ENOENT},
		{"cwd missing", Command{Argv: []string{"/bin/true"}, Cwd: "/no/such/dir"}, StageWorkdir, syscall.ENOENT},
		{"cwd is a file", Command{Argv: []string{"/bin/true"}, Cwd: "/etc/passwd"}, StageWorkdir, syscall.ENOTDIR},
		{"cwd forbidden", Command{Argv: []string{"true"}, Cwd: dir + "/private"}, StageWorkdir, syscall.EACCES},
		{"cwd relative", Command{Argv: []string{"true"}, Cwd: "tmp"}, StageRequest, syscall.EPROTO},
		{"no argv", Command{Argv: nil, Cwd: "/"}, StageRequest, syscall.EPROTO},
		{"one argument too long", command("true", strings.Repeat("x", 200_000)), StageProgram, syscall.E2BIG},
	} {
		for how, limits := range map[string][]Rlimit{"": nil, " by an executor": {{unix.RLIMIT_CORE, 0, 0}}} {
			t.Run(tt.name+how, func(t *testing.T) {
				cmd := tt.cmd
				cmd.Rlimits = limits
				_, err := b.run(cmd)
				var e *Error
				if !errors.As(err, &e) || e.Stage != tt.stage || e.Errno != tt.errno {
					t.Errorf("got %v, want %v: %v", err, tt.stage, tt.errno)
				}
			})
		}
	}
	// Relative to the command's own directory, by name and by PATH.
	for _, cmd := range []Command{
		{Argv: []string{"./true"}, Cwd: "/bin"},
		{Argv: []string{"true"}, Env: []string{"PATH=:/nowhere"}, Cwd: "/bin"},
		{Argv: []string{"true"}, Env: []string{"PATH=bin"}, Cwd: "/usr"},
	} {
		for _, cmd.Rlimits = range [][]Rlimit{nil, {{unix.RLIMIT_CORE, 0, 0}}} {
			if out, err := b.run(cmd); err != nil || out.Status != 0 {
				t.Errorf("%q in %s: %v, %v", cmd.Argv, cmd.Cwd, out, err)
			}
		}
	}
}

// R034: more arguments than a socket message holds.
func TestLargeRequest(t *testing.T) {
	b := start(t, baseline())
	cmd := shell("echo ${#BIG}; echo $#")
	cmd.Argv = append(cmd.Argv, "sh")
	for range 8 {
		cmd.Argv = append(cmd.Argv, strings.Repeat("a", 100_000))
	}
	cmd.Env = append(cmd.Env, "BIG="+strings.Repeat("b", 100_000))
	for _, cmd.Rlimits = range [][]Rlimit{nil, {{unix.RLIMIT_CORE, 0, 0}}} {
		if out, _ := b.output(cmd); out != "100000\n8\n" {
			t.Errorf("got %q", out)
		}
	}
	// T071: a hundred thousand of them are too many, or not, but are never something else.
	many := command("/bin/sh", "-c", "echo $#", "sh")
	for range 100_000 {
		many.Argv = append(many.Argv, "a")
	}
	for _, many.Rlimits = range [][]Rlimit{nil, {{unix.RLIMIT_CORE, 0, 0}}} {
		if out, err := b.run(many); !errors.Is(err, syscall.E2BIG) && out.text != "100000\n" {
			t.Errorf("got %q, %v", out.text, err)
		}
	}
}

// R051: parallel executions, each with its own answer.
func TestParallel(t *testing.T) {
	b := start(t, baseline())
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			want := i % 256
			out, err := b.run(shell(fmt.Sprintf("echo %d; exit %d", i, want)))
			if err != nil || out.text != fmt.Sprintln(i) || out.Status.ExitStatus() != want {
				t.Errorf("%d: %+v, %v", i, out, err)
			}
		})
	}
	wg.Wait()
}

// R071, R073: a signal reaches the whole process group, and a finished command is told apart.
func TestSignals(t *testing.T) {
	b := start(t, baseline())
	p := b.spawn(shell("sleep 100 & sleep 100"))
	if err := p.Signal(t.Context(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := <-p.Exited; e.Status.Signal() != syscall.SIGTERM {
		t.Errorf("got %#x", e.Status)
	}
	if err := p.Signal(t.Context(), syscall.SIGTERM); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal to the dead: %v", err)
	}
	waitAlone(t, b)

	// Everybody, sessions of their own included, and init lives.
	q := b.spawn(shell("setsid sleep 100 & setsid setsid sleep 100 & wait"))
	if err := b.SignalAll(t.Context(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := <-q.Exited; e.Status.Signal() != syscall.SIGKILL {
		t.Errorf("got %#x", e.Status)
	}
}

// waitAlone waits until init has no children, zombies included.
func waitAlone(t *testing.T, b *box) {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/task/%d/children", b.pid, b.pid)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		children, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(children) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("init's children: %s", children)
		}
	}
}

// R241: orphans are reaped, and are nobody's exit.
func TestOrphans(t *testing.T) {
	b := start(t, baseline())
	out, e := b.output(shell("i=0; while [ $i -lt 500 ]; do (true & ) ; i=$((i+1)); done; echo done"))
	if out != "done\n" || e.Status != 0 {
		t.Errorf("got %q, %#x", out, e.Status)
	}
	waitAlone(t, b)
}

// R050, R242: nothing outlives init, and init does not outlive its socket.
func TestEndOfFile(t *testing.T) {
	b := start(t, baseline())
	p := b.spawn(shell("trap '' TERM HUP; setsid sleep 1000 & sleep 1000"))
	b.Close()
	if _, ok := <-p.Exited; ok {
		t.Error("an exit was reported")
	}
	if err := b.cmd.Wait(); err != nil { // zap_pid_ns_processes: init is the last
		t.Error(err)
	}
	if _, err := b.Spawn(t.Context(), command("true"), Streams{Stdin: null(t), Stdout: null(t), Stderr: null(t)}); !errors.Is(err, ErrGone) {
		t.Errorf("spawn after the end: %v", err)
	}
}

// T086: init killed from outside ends every wait.
func TestInitKilled(t *testing.T) {
	b := start(t, baseline())
	p := b.spawn(shell("sleep 1000"))
	b.cmd.Process.Kill()
	if _, ok := <-p.Exited; ok {
		t.Error("an exit was reported")
	}
	<-b.gone
	if err := b.SignalAll(t.Context(), syscall.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("signal after the end: %v", err)
	}
}

// An execution is born in its leaf (T022): init's uid owns what CLONE_INTO_CGROUP asks for.
func TestBornInCgroup(t *testing.T) {
	const root = "/sys/fs/cgroup/unified" // hybrid
	top := fmt.Sprintf("%s/stockade-guest-%d", root, os.Getpid())
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		top = fmt.Sprintf("/sys/fs/cgroup/stockade-guest-%d", os.Getpid())
	}
	if err := os.Mkdir(top, 0o755); err != nil {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal(err)
		}
		t.Skip("no unified hierarchy to make a group in: ", err)
	}
	t.Cleanup(func() { os.Remove(top) })
	b := startRaw(t)
	for _, group := range []string{top, top + "/init", top + "/leaf"} {
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if group != top {
				os.Remove(group)
			}
		})
		if err := os.Chown(group+"/cgroup.procs", firstID+65535, -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(top+"/init/cgroup.procs", []byte(strconv.Itoa(b.pid)), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Setup(t.Context(), baseline()); err != nil {
		t.Fatal(err)
	}
	leaf, err := os.Open(top + "/leaf")
	if err != nil {
		t.Fatal(err)
	}
	defer leaf.Close()
	n := null(t)
	p, err := b.Spawn(t.Context(), shell("sleep 1000"), Streams{Stdin: n, Stdout: n, Stderr: n, Cgroup: leaf})
	if err != nil {
		t.Fatal(err)
	}
	if procs, err := os.ReadFile(top + "/leaf/cgroup.procs"); err != nil || len(procs) == 0 {
		t.Errorf("the leaf holds %q, %v", procs, err)
	}
	if err := os.WriteFile(top+"/leaf/cgroup.kill", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if e := <-p.Exited; e.Status.Signal() != syscall.SIGKILL {
		t.Errorf("got %#x", e.Status)
	}
	// A group that init may not write is a refusal that names the clone.
	if err := os.Chown(top+"/leaf/cgroup.procs", 0, -1); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := b.Spawn(t.Context(), command("true"), Streams{Stdin: n, Stdout: n, Stderr: n, Cgroup: leaf}); !errors.As(err, &e) || e.Stage != StageClone {
		t.Errorf("got %v", err)
	}
	b.Close()
	b.cmd.Wait()
}

// R055, T059: a fork bomb meets RLIMIT_NPROC; init lives, and works again once the bomb is dead.
func TestForkBomb(t *testing.T) {
	s := baseline()
	s.Rlimits = []Rlimit{{unix.RLIMIT_NPROC, 40, 40}}
	b := start(t, s)
	p := b.spawn(shell("bomb() { bomb | bomb & }; bomb; while :; do sleep 0.1 & done"))
	time.Sleep(300 * time.Millisecond)
	if _, err := b.run(command("/bin/true")); err != nil && !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("spawn beside the bomb: %v", err)
	}
	for range 20 { // a bomb may slip through one round
		if err := b.SignalAll(t.Context(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	<-p.Exited
	waitAlone(t, b)
	if out, _ := b.output(shell("echo alive")); out != "alive\n" {
		t.Errorf("got %q", out)
	}
}

func TestSetupErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Setup)
		stage  Stage
		errno  syscall.Errno
	}{
		{"workdir relative", func(s *Setup) { s.Workdir = "tmp" }, StageWorkdir, syscall.EINVAL},
		{"workdir missing", func(s *Setup) { s.Workdir = "/nowhere" }, StageWorkdir, syscall.ENOENT},
		{"workdir forbidden", func(s *Setup) { s.Workdir = "/root" }, StageWorkdir, syscall.EACCES},
		{"uid without mapping", func(s *Setup) { s.UID = 70000 }, StageWorkdir, syscall.EPERM},
		{"gid without mapping", func(s *Setup) { s.GID = 70000 }, StageSetup, syscall.EPERM},
		{"capability that init was not given", func(s *Setup) { s.Capabilities = 1 << unix.CAP_SYS_ADMIN }, StageSetup, syscall.EPERM},
		{"malformed filter", func(s *Setup) { s.Filter = make([]byte, 7) }, StageSetup, syscall.EINVAL},
		{"refused filter", func(s *Setup) { s.Filter = make([]byte, 8) }, StageSetup, syscall.EINVAL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := baseline()
			tt.change(&s)
			_, err := startRaw(t).Setup(t.Context(), s)
			var e *Error
			if !errors.As(err, &e) || e.Stage != tt.stage || e.Errno != tt.errno {
				t.Errorf("got %v, want %v: %v", err, tt.stage, tt.errno)
			}
		})
	}
}

// An init that hangs does not hang the one who sets it up.
func TestSetupHeedsContext(t *testing.T) {
	b := startRaw(t)
	if err := unix.Kill(b.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Setup(ctx, baseline()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("setup of an init that is stopped: %v", err)
	}
	// Its end of file is seen only once it runs again; the cleanup waits for it.
	if err := unix.Kill(b.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// A spawn that is given up does not disturb others.
func TestCancelledSpawn(t *testing.T) {
	b := start(t, baseline())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := null(t)
	if _, err := b.Spawn(ctx, command("true"), Streams{Stdin: n, Stdout: n, Stderr: n}); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if out, _ := b.output(shell("echo next")); out != "next\n" {
		t.Errorf("got %q", out)
	}
}

func BenchmarkSpawnTrue(b *testing.B) {
	box := start(b, baseline())
	n := null(b)
	for b.Loop() {
		p, err := box.Spawn(b.Context(), command("/bin/true"), Streams{Stdin: n, Stdout: n, Stderr: n})
		if err != nil {
			b.Fatal(err)
		}
		<-p.Exited
	}
}

func BenchmarkCall(b *testing.B) { // the round trip alone
	box := start(b, baseline())
	for b.Loop() {
		if err := ping(b.Context(), box.Conn); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkForkExecTrue(b *testing.B) { // the floor
	n := null(b)
	for b.Loop() {
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{n.Fd(), n.Fd(), n.Fd()}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			b.Fatal(err)
		}
	}
}
