package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// park starts a parked command, whose streams are one pipe.
func (b *box) park(cmd Command) (p *Process, output func() string) {
	b.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { r.Close() })
	cmd.Parked = true
	p, err = b.Spawn(b.t.Context(), cmd, Streams{Stdin: null(b.t), Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	return p, func() string {
		text, err := io.ReadAll(r)
		if err != nil {
			b.t.Error(err)
		}
		return string(text)
	}
}

// outside returns the directory in /proc of an execution.
func (b *box) outside(pid int) string {
	b.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, dir := range all {
		text, err := os.ReadFile(dir + "/status")
		if err != nil {
			continue
		}
		f := fields(string(text), "NSpid", "PPid")
		if ids := strings.Fields(f["NSpid"]); f["PPid"] == strconv.Itoa(b.pid) && ids[len(ids)-1] == strconv.Itoa(pid) {
			return dir
		}
	}
	b.t.Fatalf("process %d is not there", pid)
	return ""
}

// T026, T040: what comes out of an executor is what comes out of an ordinary spawn, by the kernel's
// word, and nothing of the command is there before Release.
func TestParked(t *testing.T) {
	s, _ := walled(t)
	s.Filter = denyMkdir()
	s.Capabilities = 1 << unix.CAP_NET_BIND_SERVICE
	b := start(t, s)
	script := shell("cat /proc/self/status | grep -v -e ^Pid -e ^Tgid -e ^NStgid -e ^NSpid -e ^NSpgid -e ^NSsid -e ^Vm -e ^Rss -e ctxt -e ^Ngid -e allowed -e ^PPid; " +
		"ls /proc/self/fd; umask; ulimit -a; env; pwd; cat /proc/self/timerslack_ns /proc/self/oom_score_adj /proc/self/comm; " +
		"read pid _ _ _ group session _ </proc/self/stat; test $pid = $group && test $pid = $session && echo leads")
	script.Env = append(script.Env, "GODEBUG=inittrace=1", "GOTRACEBACK=crash", "SECRET=canary")
	script.Cwd = "/usr"
	want, _ := b.output(script)

	p, output := b.park(script)
	dir := b.outside(p.PID)
	for name, want := range map[string]string{"cmdline": "stockade-init\x00execute\x00", "environ": ""} {
		if got, err := os.ReadFile(dir + "/" + name); err != nil || string(got) != want {
			t.Errorf("%s while parked: %q, %v", name, got, err)
		}
	}
	// Not dumpable: its files in /proc are not the execution's own.
	if st := new(unix.Stat_t); unix.Stat(dir+"/environ", st) != nil || st.Uid == firstID+1000 {
		t.Errorf("files of the parked command in /proc are owned by %d", st.Uid-firstID)
	}
	if err := p.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := output(); got != want {
		t.Errorf("got\n%s\nan ordinary spawn gives\n%s", got, want)
	}
	if e := <-p.Exited; e.Status != 0 {
		t.Errorf("got %#x", e.Status)
	}
	for _, what := range []string{"SECRET=canary", "leads", "Seccomp:\t2", "CapBnd:\t0000000000000400"} {
		if !strings.Contains(want, what) {
			t.Errorf("an ordinary spawn lacks %q:\n%s", what, want)
		}
	}
	if err := p.Release(t.Context()); err == nil {
		t.Error("released twice")
	}
}

// What is parked has every thread that it will want: the ceiling that it is put under may leave it none.
func TestThreadsOfParked(t *testing.T) {
	b := start(t, baseline())
	for range 50 {
		p, output := b.park(shell("echo on"))
		threads, err := os.ReadDir(b.outside(p.PID) + "/task")
		if err != nil {
			t.Fatal(err)
		}
		// The main thread, the runtime's monitor, and the one that starts others for a locked one.
		if want := 3 + spareThreads; len(threads) < want {
			t.Errorf("%d threads, not %d", len(threads), want)
		}
		if err := p.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := output(); got != "on\n" {
			t.Errorf("%q", got)
		}
		<-p.Exited
	}
}

// A command's own limits are lowered for it alone, and are never raised.
func TestOwnRlimits(t *testing.T) {
	s := baseline()
	s.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 200, 200}, {unix.RLIMIT_NPROC, 100, 100}}
	b := start(t, s)
	cmd := shell("ulimit -n; ulimit -Hn; sed -n 's/^Max processes *[0-9]* *\\([0-9]*\\).*/\\1/p' /proc/self/limits")
	for _, tt := range []struct {
		limits []Rlimit
		want   string
	}{
		{[]Rlimit{{unix.RLIMIT_NOFILE, 50, 50}}, "50\n50\n100\n"},
		{[]Rlimit{{unix.RLIMIT_NOFILE, 50, 60}, {unix.RLIMIT_NPROC, 5, 5}}, "50\n60\n5\n"},
		{[]Rlimit{{unix.RLIMIT_NOFILE, 5000, 5000}}, "200\n200\n100\n"},
		{nil, "200\n200\n100\n"},
	} {
		cmd.Rlimits = tt.limits
		if got, _ := b.output(cmd); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.limits, got, tt.want)
		}
	}
}

// A command with limits of its own has been started when it runs, not when it has ended.
func TestOwnRlimitsStart(t *testing.T) {
	b := start(t, baseline())
	cmd := command("/bin/sleep", "1000")
	cmd.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 50, 50}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n := null(t)
	p, err := b.Spawn(ctx, cmd, Streams{Stdin: n, Stdout: n, Stderr: n})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(t.Context(), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-p.Exited
}

// A parked command that is never released leaves nothing.
func TestParkedEnds(t *testing.T) {
	b := start(t, baseline())
	for _, tt := range []struct {
		name string
		end  func(p *Process)
		want syscall.WaitStatus
	}{
		{"killed", func(p *Process) { _ = b.SignalAll(t.Context(), syscall.SIGKILL) }, syscall.WaitStatus(syscall.SIGKILL)},
		{"told to end", func(p *Process) { _ = p.Signal(t.Context(), syscall.SIGTERM) }, syscall.WaitStatus(syscall.SIGTERM)},
		{"told to quit", func(p *Process) { _ = p.Signal(t.Context(), syscall.SIGQUIT) }, syscall.WaitStatus(syscall.SIGQUIT)},
	} {
		p, output := b.park(shell("echo ran"))
		tt.end(p)
		if e := <-p.Exited; e.Status&0x7f != tt.want {
			t.Errorf("%s: got %#x, want %#x", tt.name, e.Status, tt.want)
		}
		if text := output(); text != "" {
			t.Errorf("%s: wrote %q", tt.name, text)
		}
		if err := p.Release(t.Context()); err == nil {
			t.Errorf("%s: released", tt.name)
		}
	}
	waitAlone(t, b)
	// Suspend waits for a parked command as for any start that is under way.
	p, _ := b.park(shell("exit 3"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := b.Suspend(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("suspended beside a parked command: %v", err)
	}
	if err := p.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if e := <-p.Exited; e.Status.ExitStatus() != 3 {
		t.Errorf("got %#x", e.Status)
	}
	if _, _, err := b.Suspend(t.Context()); err != nil {
		t.Error(err)
	}
	b.Continue()
	// The end of init is its end.
	p, _ = b.park(shell("echo ran"))
	b.Close()
	if _, ok := <-p.Exited; ok {
		t.Error("an exit was reported")
	}
	if err := p.Release(t.Context()); err == nil {
		t.Error("released after the end")
	}
}

// An executor that ends between Release and execve is no command that has ended: here it is killed when it has been told
// the command, and has not been able to read it.
func TestExecutorEndsBeforeExecve(t *testing.T) {
	b := start(t, baseline())
	for _, tt := range []struct {
		name string
		sig  syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"ended", syscall.SIGTERM}} {
		p, output := b.park(shell("echo ran"))
		if err := p.Signal(t.Context(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		waitStopped(t, b.outside(p.PID))
		released := make(chan error)
		go func() { released <- p.Release(t.Context()) }()
		time.Sleep(20 * time.Millisecond) // whether it has been told by then makes no difference
		for _, sig := range []syscall.Signal{tt.sig, syscall.SIGCONT} {
			if err := p.Signal(t.Context(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		var e *Error
		if err := <-released; !errors.As(err, &e) || e.Stage != StageClone || e.Errno != syscall.ESRCH {
			t.Errorf("%s: released: %v", tt.name, err)
		}
		if exit, ok := <-p.Exited; !ok || exit.Status&0x7f != syscall.WaitStatus(tt.sig) {
			t.Errorf("%s: %#x", tt.name, exit.Status)
		}
		if text := output(); text != "" {
			t.Errorf("%s: wrote %q", tt.name, text)
		}
	}
	waitAlone(t, b)
}

// waitStopped returns when every thread of a process has stopped. A signal is sent before it is delivered: until then a
// thread may go on.
func waitStopped(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		statuses, err := filepath.Glob(dir + "/task/*/status")
		if err != nil || len(statuses) == 0 {
			t.Fatalf("%s has no threads: %v", dir, err)
		}
		running := slices.ContainsFunc(statuses, func(path string) bool {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return !strings.HasPrefix(fields(string(text), "State")["State"], "T")
		})
		if !running {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has not stopped", dir)
		}
	}
}

// Where there is no room for an executor, that is said.
func TestExecutorErrors(t *testing.T) {
	s := baseline()
	s.Rlimits = []Rlimit{{unix.RLIMIT_NPROC, minProcesses, minProcesses}}
	b := start(t, s)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// All but one process are taken: enough for a command, and not for an executor's threads.
	p, err := b.Spawn(t.Context(), shell("i=0; while [ $i -lt 14 ]; do sleep 1000 & i=$((i+1)); done; echo; wait"), Streams{Stdin: null(t), Stdout: w, Stderr: w})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := b.run(command("/bin/true")); err != nil {
		t.Error("the control: ", err)
	}
	cmd := command("/bin/true")
	cmd.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 50, 50}}
	var e *Error
	if _, err := b.run(cmd); !errors.As(err, &e) || e.Stage != StageClone || e.Errno != syscall.EAGAIN {
		t.Errorf("got %v", err)
	}
	if err := p.Signal(t.Context(), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-p.Exited
}

// An executor costs its session a few threads for a moment.
func TestExecutorIsSmall(t *testing.T) {
	const most = 8
	b := start(t, baseline())
	p, _ := b.park(command("true"))
	text, err := os.ReadFile(b.outside(p.PID) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	got := fields(string(text), "Threads", "VmRSS", "RssAnon")
	t.Log(fmt.Sprint(got))
	if n, _ := strconv.Atoi(got["Threads"]); n > most {
		t.Errorf("%d threads, more than %d", n, most)
	}
}

func BenchmarkSpawnExecutor(b *testing.B) {
	box := start(b, baseline())
	n := null(b)
	cmd := command("/bin/true")
	cmd.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 50, 50}}
	for b.Loop() {
		p, err := box.Spawn(b.Context(), cmd, Streams{Stdin: n, Stdout: n, Stderr: n})
		if err != nil {
			b.Fatal(err)
		}
		<-p.Exited
	}
}

func BenchmarkSetup(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(fmt.Sprintf("landlock=%v", with), func(b *testing.B) {
			s, _ := walled(b)
			s.Filter = denyMkdir()
			if !with {
				s.Landlock = nil
			}
			var took time.Duration
			for b.Loop() {
				box := startRaw(b)
				begin := time.Now()
				if _, err := box.Setup(b.Context(), s); err != nil {
					b.Fatal(err)
				}
				took += time.Since(begin)
				box.Close()
				box.cmd.Wait()
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/setup")
		})
	}
}
