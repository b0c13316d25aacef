package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
)

// logged starts a runner whose words can be read while it runs.
func (p *process) logged(t *testing.T) (said func() string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p.Cmd.Stderr = f
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	return func() string {
		data, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

// hangup sends SIGHUP and waits until the runner has said what came of it, in a line that begins so.
func hangup(t *testing.T, p *process, said func() string, want string) string {
	t.Helper()
	before := said()
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 1500 {
		if line, ok := strings.CutPrefix(said(), before); ok && strings.HasSuffix(line, "\n") {
			if !strings.HasPrefix(line, "stockade-run: "+want) {
				t.Fatalf("it says %q, not %q", line, want)
			}
			return line
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it says nothing: %s", said())
	return ""
}

func sh(id, script string) sandbox.Exec {
	return sandbox.Exec{Session: "s", ID: id, Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: "/tmp"}
}

func mustStart(t *testing.T, r *launch.Runner, e sandbox.Exec) *sandbox.Process {
	t.Helper()
	x, err := r.Start(context.Background(), e, nil)
	if err != nil {
		t.Fatalf("start %s: %v", e.ID, err)
	}
	return x
}

// collected reads a stream to its end.
func collected(f io.ReadCloser) <-chan string {
	c := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(f)
		f.Close()
		c <- string(data)
	}()
	return c
}

func result(t *testing.T, x *sandbox.Process) sandbox.Result {
	t.Helper()
	select {
	case res, ok := <-x.Done:
		if !ok {
			t.Fatal("the runner is gone")
		}
		return res
	case <-time.After(20 * time.Second):
		t.Fatal("no end was told")
	}
	panic("unreachable")
}

// descriptors is what a process has open, but for what comes and goes with its runtime.
func descriptors(t *testing.T, pid int) string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range entries {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
		if kind, _, _ := strings.Cut(target, ":["); err == nil && kind != "/" { // leaves that are ready
			count[kind]++
		}
	}
	return fmt.Sprint(count)
}

// steady is what a process has open once that has not changed for a second: what a runner makes ahead comes and goes.
func steady(t *testing.T, pid int) string {
	t.Helper()
	last, since := descriptors(t, pid), time.Now()
	for end := since.Add(time.Minute); time.Since(since) < time.Second && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now := descriptors(t, pid); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

// A runner is replaced three times under a session in which everything goes on that can: the
// supervisor's connection stays, and no call, byte or status is lost (R246, R247, R255).
func TestReplace(t *testing.T) {
	bin := build(t)
	ctx := context.Background()
	p := command(t, bin)
	said := p.logged(t)
	r := p.dial(t)
	if _, err := r.Open(ctx, spec("s")); err != nil {
		t.Fatal(err)
	}
	ended := mustStart(t, r, sh("ended", "echo over; exit 9"))
	if out := <-collected(ended.Stdout); out != "over\n" || result(t, ended).ExitCode != 9 {
		t.Fatalf("%q", out)
	}
	ended.Stderr.Close()
	const counted = 400
	counts := mustStart(t, r, sh("counts", fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); sleep 0.005; done; exit 7", counted)))
	counts.Stderr.Close()
	numbers := collected(counts.Stdout)
	cat := sh("cat", "cat; exit 3")
	cat.StdinOpen = true
	echoes := mustStart(t, r, cat)
	echoes.Stderr.Close()
	echo := collected(echoes.Stdout)
	fmt.Fprintln(echoes.Stdin, "before")
	leaves := sh("leaves", "sleep 300 & echo $!; exit 4")
	leaves.Background = true
	left := mustStart(t, r, leaves)
	left.Stderr.Close()
	left.Stdout.Close()
	if res := result(t, left); res.ExitCode != 4 {
		t.Errorf("%+v", res)
	}
	frozen := mustStart(t, r, sh("frozen", "sleep 0.1; exit 5"))
	frozen.Stdout.Close()
	frozen.Stderr.Close()
	if err := r.Freeze(ctx, "s", "frozen", true); err != nil {
		t.Fatal(err)
	}

	// All the while somebody asks, and starts.
	var busy sync.WaitGroup
	enough := make(chan struct{})
	var slowest time.Duration
	busy.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-enough:
				return
			default:
			}
			begin := time.Now()
			id := fmt.Sprint("busy", i)
			x, err := r.Start(ctx, sh(id, "echo $0; exit 6"), nil)
			if err != nil {
				t.Error(err)
				return
			}
			slowest = max(slowest, time.Since(begin))
			out := <-collected(x.Stdout)
			x.Stderr.Close()
			if res := result(t, x); out != "/bin/sh\n" || res.ExitCode != 6 {
				t.Errorf("%s: %q %+v", id, out, res)
			}
			r.Forget("s", id)
		}
	})
	var held string
	for i := range 3 {
		t.Log(strings.TrimSpace(hangup(t, p, said, "replaced, with 1 sessions; ")))
		fmt.Fprintln(echoes.Stdin, "after", i)
	}
	close(enough)
	busy.Wait()
	t.Logf("slowest start: %v", slowest)
	held = steady(t, p.Process.Pid)
	t.Log(strings.TrimSpace(hangup(t, p, said, "replaced, with 1 sessions; ")))
	if now := steady(t, p.Process.Pid); now != held {
		t.Errorf("descriptors\nbefore %s\nafter  %s", held, now)
	}
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Process.Pid))
	if string(comm) != "stockade-run\n" {
		t.Errorf("it is called %q", comm)
	}

	select {
	case res := <-frozen.Done:
		t.Errorf("what was frozen ended: %+v", res)
	default:
	}
	if err := r.Freeze(ctx, "s", "frozen", false); err != nil {
		t.Error(err)
	}
	if res := result(t, frozen); res.ExitCode != 5 {
		t.Errorf("%+v", res)
	}
	if err := r.CloseStdin(ctx, "s", "cat"); err != nil {
		t.Error(err)
	}
	echoes.Stdin.Close()
	if out, res := <-echo, result(t, echoes); out != "before\nafter 0\nafter 1\nafter 2\n" || res.ExitCode != 3 {
		t.Errorf("%q %+v", out, res)
	}
	var want bytes.Buffer
	for i := range counted {
		fmt.Fprintln(&want, i)
	}
	if out, res := <-numbers, result(t, counts); out != want.String() || res.ExitCode != 7 || res.Usage.CPU <= 0 {
		t.Errorf("%d bytes of %d, %+v", len(out), want.Len(), res)
	}

	// Another supervisor finds what is not forgotten, and can do what the first could.
	r.Disconnect()
	r = p.dial(t)
	sessions, err := r.Sessions(ctx)
	if err != nil || len(sessions) != 1 || len(sessions[0].Execs) != 5 {
		t.Errorf("%+v %v", sessions, err)
	}
	again, err := r.Attach(ctx, "s", "ended")
	if err != nil {
		t.Fatal(err)
	}
	again.Stdout.Close()
	again.Stderr.Close()
	if res := result(t, again); res.ExitCode != 9 || again.Started.IsZero() {
		t.Errorf("%+v", res)
	}
	if err := r.Kill(ctx, "s", "leaves"); err != nil {
		t.Errorf("what was left behind cannot be killed: %v", err)
	}
	if _, err := r.Open(ctx, spec("s")); err == nil {
		t.Error("the name of a session was given out twice")
	}
	if _, err := r.Open(ctx, spec("new")); err != nil {
		t.Error(err)
	}
	if u, err := r.Close(ctx, "s"); err != nil || u.CPU <= 0 {
		t.Errorf("%+v %v", u, err)
	}
	if _, err := r.Open(ctx, spec("s")); err != nil {
		t.Error(err)
	}
	p.Process.Signal(syscall.SIGTERM)
	p.mustEnd(t)
}

// imposter is a program that says something else than a runner does, or fails.
func imposter(t *testing.T, says string) []byte {
	t.Helper()
	dir := t.TempDir()
	source := fmt.Sprintf("package main\n\nimport \"os\"\n\nfunc main() {\n\tif says := %q; says != \"\" {\n\t\tprint(os.Stdout.WriteString(says))\n\t\treturn\n\t}\n\tos.Exit(1)\n}\n", says)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "imposter")
	if text, err := exec.Command("go", "build", "-o", out, filepath.Join(dir, "main.go")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A program that cannot take over does not, and nothing has happened.
func TestNotReplaced(t *testing.T) {
	bin := build(t)
	ctx := context.Background()
	p := command(t, bin)
	said := p.logged(t)
	r := p.dial(t)
	if _, err := r.Open(ctx, spec("s")); err != nil {
		t.Fatal(err)
	}
	x := mustStart(t, r, sh("x", "sleep 1; echo done"))
	x.Stderr.Close()
	program := filepath.Join(bin, "stockade-run")
	good, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	install := func(content []byte, mode os.FileMode) {
		t.Helper()
		os.Remove(program)
		if content == nil {
			return
		}
		if err := os.WriteFile(program, content, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []struct {
		name    string
		content []byte
	}{
		{"missing", nil},
		{"no program", []byte("not one\n")},
		{"refuses", imposter(t, "")},
		{"says nothing", imposter(t, " ")},
		{"another format", imposter(t, `{"State":0,"Guest":1,"Launch":3}`)},
	} {
		install(bad.content, 0o755)
		t.Log(bad.name, strings.TrimSpace(hangup(t, p, said, "not replaced: ")))
		if _, err := r.Load(ctx, "s"); err != nil {
			t.Errorf("%s: %v", bad.name, err)
		}
	}
	install(good, 0o755)
	hangup(t, p, said, "replaced, with 1 sessions; ")
	if out, res := <-collected(x.Stdout), result(t, x); out != "done\n" || res.ExitCode != 0 {
		t.Errorf("%q %+v", out, res)
	}
	p.Process.Signal(syscall.SIGTERM)
	p.mustEnd(t)
}

// A program does not take over from a runner that was started with fewer capabilities than it needs: it would open no session.
func TestNotReplacedByMore(t *testing.T) {
	bin := build(t)
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_TIME, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	p := command(t, bin)
	said := p.logged(t)
	r := p.dial(t)
	if line := hangup(t, p, said, "not replaced: "); !strings.Contains(line, "the runner lacks CAP_SYS_TIME") {
		t.Error(line)
	}
	if _, err := r.Sessions(t.Context()); err != nil {
		t.Error(err)
	}
	p.Process.Signal(syscall.SIGTERM)
	p.mustEnd(t)
}

// What the new program cannot take over ends, all of it, and it serves as one that was
// started anew.
func TestReplacedInVain(t *testing.T) {
	bin := build(t)
	ctx := context.Background()
	p := command(t, bin)
	said := p.logged(t)
	r := p.dial(t)
	if _, err := r.Open(ctx, spec("s")); err != nil {
		t.Fatal(err)
	}
	x := mustStart(t, r, sh("x", "sleep 300"))
	// The lock is on a directory that is another's by now.
	if err := os.Rename(p.state, p.state+".old"); err != nil {
		t.Fatal(err)
	}
	t.Log(strings.TrimSpace(hangup(t, p, said, "every session is lost: ")))
	if _, ok := <-x.Done; ok {
		t.Error("an end was made up")
	}
	x.Stdout.Close()
	x.Stderr.Close()
	r.Disconnect()
	r = p.dial(t)
	if held, err := r.Sessions(ctx); err != nil || len(held) > 0 {
		t.Errorf("%+v %v", held, err)
	}
	if _, err := r.Open(ctx, spec("s")); err != nil {
		t.Error(err)
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Process.Pid, p.Process.Pid))
	t.Logf("children: %s", children)
	p.Process.Signal(syscall.SIGTERM)
	p.mustEnd(t)
}

// A runner that dies in the middle of it leaves what one leaves that dies at any other time: the
// next one of the instance takes it away.
func TestKilledWhileReplaced(t *testing.T) {
	bin := build(t)
	ctx := context.Background()
	cmd := exec.Command("go", "build", "-tags", "failpoint", "-o", filepath.Join(bin, "stockade-run"), "github.com/stockade-dev/stockade/cmd/stockade-run")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, point := range []string{"runner.saved", "runner.replaced"} {
		t.Run(point, func(t *testing.T) {
			p := command(t, bin)
			p.Env = append(os.Environ(), "STOCKADE_FAILPOINT="+point)
			p.start(t)
			r := p.dial(t)
			if _, err := r.Open(ctx, spec("s")); err != nil {
				t.Fatal(err)
			}
			x := mustStart(t, r, sh("x", "sleep 300"))
			p.Process.Signal(syscall.SIGHUP)
			if _, ok := <-x.Done; ok {
				t.Error("an end was made up")
			}
			x.Stdout.Close()
			x.Stderr.Close()
			r.Disconnect()
			p.Wait()
			if state := p.ProcessState.Sys().(syscall.WaitStatus); state.Signal() != syscall.SIGKILL {
				t.Fatalf("it was not killed: %v", p.ProcessState)
			}
			next := &process{Cmd: exec.Command(p.Path, p.Args[1:]...), instance: p.instance, socket: p.socket, state: p.state}
			next.start(t)
			r = next.dial(t)
			if _, err := r.Open(ctx, spec("s")); err != nil {
				t.Error(err)
			}
			next.Process.Signal(syscall.SIGTERM)
			next.mustEnd(t)
		})
	}
}
