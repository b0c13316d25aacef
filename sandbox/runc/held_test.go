package runc

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/cgroup"
	"github.com/stockade-dev/stockade/sandbox/launch"
)

// serve lets daemons reach the runner, one after the other, and returns where.
func serve(t *testing.T, r *Runner) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "socket")
	l, err := launch.Listen(socket, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, r, launch.Succession{Hold: time.Minute}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// daemon is a connection to the runner.
func daemon(t *testing.T, socket string) *launch.Runner {
	t.Helper()
	d, err := launch.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Disconnect() })
	return d
}

func shellExec(session, id, script string) sandbox.Exec {
	return sandbox.Exec{Session: session, ID: id, Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: "/tmp"}
}

// TestTakeOver has one daemon start a command and go away without a word, and the next one
// take it over: every byte once, and the true exit status (R246, R247, R255).
func TestTakeOver(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	goroutines := runtime.NumGoroutine()
	t.Run("", func(t *testing.T) { // a scope: what it cleans up is gone when it is over
		socket := serve(t, r)
		for i, c := range []struct {
			name, script string
			stdin        string
			read         int           // bytes that the first daemon reads
			away         time.Duration // nobody is connected
			stdout       string        // all of it
			stderr       string
			exit         int
		}{
			{"it goes on", "echo a; sleep 0.3; echo b; exit 7", "", 0, 0, "a\nb\n", "", 7},
			{"the first has read some", "echo a; sleep 0.3; echo b; exit 7", "", 2, 0, "a\nb\n", "", 7},
			{"it ended while nobody was there", "echo only; echo error >&2; exit 5", "", 0, 300 * time.Millisecond, "only\n", "error\n", 5},
			{"more than a pipe holds", "head -c 10000000 /dev/zero | tr '\\0' x; exit 3", "", 100, 100 * time.Millisecond, strings.Repeat("x", 10_000_000), "", 3},
			{"killed while nobody was there", "echo up; kill -9 $$", "", 0, 200 * time.Millisecond, "up\n", "", -1},
			{"stdin is open", "cat; exit 4", "one\ntwo\n", 0, 50 * time.Millisecond, "one\ntwo\n", "", 4},
		} {
			t.Run(c.name, func(t *testing.T) {
				id := fmt.Sprintf("s%d", i)
				first := daemon(t, socket)
				spec := hostSpec(id)
				spec.Keep = []byte("mine")
				if _, err := first.Open(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
				e := shellExec(id, "x", c.script)
				e.StdinOpen = c.stdin != ""
				p, err := first.Start(t.Context(), e, nil)
				if err != nil {
					t.Fatal(err)
				}
				head := make([]byte, c.read)
				if _, err := io.ReadFull(p.Stdout, head); err != nil {
					t.Error(err)
				}
				if e.StdinOpen {
					io.WriteString(p.Stdin, c.stdin[:4])
					p.Stdin.Close()
				}
				p.Stdout.Close()
				p.Stderr.Close()
				first.Disconnect()
				time.Sleep(c.away)

				second := daemon(t, socket)
				held, err := second.Sessions(t.Context())
				if err != nil || len(held) != 1 || held[0].Session != id || string(held[0].Keep) != "mine" || len(held[0].Execs) != 1 || held[0].Execs[0].ID != "x" {
					t.Fatalf("%+v, %v", held, err)
				}
				q, err := second.Attach(t.Context(), id, "x")
				if err != nil {
					t.Fatal(err)
				}
				if !q.Started.Equal(p.Started) || !q.Started.Equal(held[0].Execs[0].Started) {
					t.Errorf("started %v, and then %v", p.Started, q.Started)
				}
				if e.StdinOpen {
					io.WriteString(q.Stdin, c.stdin[4:])
					q.Stdin.Close()
					if err := second.CloseStdin(t.Context(), id, "x"); err != nil {
						t.Error(err)
					}
				}
				stderr := make(chan string, 1)
				go func() {
					b, _ := io.ReadAll(q.Stderr)
					stderr <- string(b)
				}()
				tail, err := io.ReadAll(q.Stdout)
				if got := string(head) + string(tail); got != c.stdout || err != nil {
					t.Errorf("%d bytes %.100q, %v, want %d", len(got), got, err, len(c.stdout))
				}
				if got := <-stderr; got != c.stderr {
					t.Errorf("stderr %q", got)
				}
				if res, ok := <-q.Done; !ok || res.ExitCode != c.exit || !res.Started.Equal(p.Started) || !res.Ended.After(res.Started) {
					t.Errorf("%+v, %v", res, ok)
				}
				q.Stdout.Close()
				q.Stderr.Close()
				second.Forget(id, "x")
				if _, err := second.Attach(t.Context(), id, "x"); codeOf(err) != sandbox.CodeNoExec {
					t.Errorf("attach after forget: %v", err)
				}
				if _, err := second.Close(t.Context(), id); err != nil {
					t.Error(err)
				}
				second.Disconnect()
			})
		}
	})
	before.mustLeaveNothing(t, r)
	mustSettle(t, goroutines)
}

// mustSettle waits until there are no more goroutines than before.
func mustSettle(t *testing.T, goroutines int) {
	t.Helper()
	for range 50 {
		if runtime.NumGoroutine() <= goroutines {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%d goroutines, then %d", goroutines, runtime.NumGoroutine())
}

// A session that ends with its daemon does, and what was not sent before is not there.
func TestWithDaemon(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	t.Run("", func(t *testing.T) {
		socket := serve(t, r)
		first := daemon(t, socket)
		for _, id := range []string{"stays", "goes"} {
			spec := hostSpec(id)
			spec.WithDaemon = id == "goes"
			if _, err := first.Open(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			p, err := first.Start(t.Context(), shellExec(id, "x", "sleep 300"), nil)
			if err != nil {
				t.Fatal(err)
			}
			p.Stdout.Close()
			p.Stderr.Close()
		}
		first.Disconnect()
		second := daemon(t, socket)
		held, err := second.Sessions(t.Context())
		if err != nil || len(held) != 1 || held[0].Session != "stays" {
			t.Errorf("%+v, %v", held, err)
		}
		r.Abandoned()
		if held, err := second.Sessions(t.Context()); err != nil || len(held) != 0 {
			t.Errorf("abandoned: %+v, %v", held, err)
		}
	})
	before.mustLeaveNothing(t, r)
}

// A start that its daemon gives up is either undone, or held: there is no third.
func TestStartGivenUp(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	undone, kept := 0, 0
	for i := range 60 {
		id := fmt.Sprint("x", i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond)
		streams, err := r.Start(ctx, shellExec("s", id, "sleep 300"), nil, func(sandbox.Result) {})
		cancel()
		execs := r.Sessions()[0].Execs
		there := len(execs) > 0 && execs[len(execs)-1].ID == id
		if there != (err == nil) {
			t.Errorf("%v, and it is held: %v", err, there)
		}
		if err != nil {
			undone++
			continue
		}
		kept++
		streams.Close()
		if err := r.Kill(t.Context(), "s", id); err != nil {
			t.Error(err)
		}
		r.Forget("s", id)
	}
	// What was killed may not have been waited for yet; what was not sleeps on.
	if o := shell(t, r, "s", "for i in $(seq 100); do pgrep -c sleep && sleep 0.1 || exit 0; done; exit 1"); o.ExitCode != 0 {
		t.Errorf("commands run that nobody started: %q", o.stdout)
	}
	closeSession(t, r, "s")
	t.Logf("%d undone, %d kept", undone, kept)
}

// What is forgotten is given up at once, and what is left of it can be killed all the same.
func TestForget(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	pipes := func() int { return strings.Count(fmt.Sprint(residueOf(t, r).files), "pipe:[") }
	before := pipes()

	done := make(chan sandbox.Result, 1)
	e := shellExec("s", "bg", "sleep 300 & exit 2")
	e.Background = true
	streams, err := r.Start(t.Context(), e, nil, func(x sandbox.Result) { done <- x })
	if err != nil {
		t.Fatal(err)
	}
	if x := <-done; x.ExitCode != 2 {
		t.Errorf("%+v", x)
	}
	streams.Close()
	r.Forget("s", "bg")
	r.Forget("s", "bg")
	r.Forget("s", "none")
	r.Forget("none", "bg")
	if now := pipes(); now != before {
		t.Errorf("%d pipe ends, before %d", now, before)
	}
	if held := r.Sessions()[0].Execs; len(held) != 0 {
		t.Errorf("%+v", held)
	}
	if err := r.Kill(t.Context(), "s", "bg"); err != nil {
		t.Errorf("kill of what is left: %v", err)
	}

	// Forgotten while it runs.
	streams, err = r.Start(t.Context(), shellExec("s", "runs", "read x; exit 6"), nil, func(x sandbox.Result) { done <- x })
	if err != nil {
		t.Fatal(err)
	}
	r.Forget("s", "runs")
	if x := <-done; x.ExitCode != 6 {
		t.Errorf("%+v", x)
	}
	streams.Close()
	s, err := r.session("s")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s.mu.Lock()
		left, ended := len(s.execs), s.ended
		s.mu.Unlock()
		if left == 0 && ended == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d executions, %d ended", len(s.execs), s.ended)
}

// A daemon that forgets to forget costs a bounded amount.
func TestEndedAreBounded(t *testing.T) {
	s := &session{execs: map[string]*execution{}}
	at := func(i int) sandbox.Result { return sandbox.Result{Ended: time.Unix(int64(i), 0)} }
	for i := range maxEnded + 10 {
		x := &execution{leaf: new(cgroup.Leaf), id: fmt.Sprint("x", i), session: s}
		s.execs[x.id] = x
		s.live.Add(1)
		s.end(x, at(i))
		s.finish(x)
	}
	if len(s.execs) != maxEnded || s.ended != maxEnded || s.execs["x9"] != nil || s.execs["x10"] == nil {
		t.Errorf("%d are kept, %d counted", len(s.execs), s.ended)
	}
}

// TestFreeze stops processes, and lets them go on (R079).
func TestFreeze(t *testing.T) {
	r := newRunner(t)
	before := residueOf(t, r)
	ctx := t.Context()
	open(t, r, hostSpec("s"))
	s, err := r.session("s")
	if err != nil {
		t.Fatal(err)
	}
	busy := func(id string) *started {
		return start(t, r, shellExec("s", id, "trap 'echo term; exit 9' TERM; while :; do :; done"), nil)
	}
	used := func(id string) time.Duration {
		x, err := s.exec(id)
		if err != nil {
			t.Fatal(err)
		}
		u, err := x.leaf.Usage()
		if err != nil {
			t.Fatal(err)
		}
		return u.CPU
	}
	stands := func(id string) bool {
		// What the kernel has not accounted for yet comes with the next tick.
		time.Sleep(20 * time.Millisecond)
		from := used(id)
		time.Sleep(150 * time.Millisecond)
		return used(id) == from
	}
	runs := func(id string) bool {
		for range 30 { // a busy machine may not come to it at once
			if !stands(id) {
				return true
			}
		}
		return false
	}
	freeze := func(exec string, frozen bool) {
		t.Helper()
		if err := r.Freeze(ctx, "s", exec, frozen); err != nil {
			t.Fatal(err)
		}
	}
	a, b := busy("a"), busy("b")
	if !runs("a") || !runs("b") {
		t.Fatal("they do not run")
	}
	freeze("a", true)
	freeze("a", true)
	if !stands("a") || !runs("b") {
		t.Error("frozen runs, or its neighbour does not")
	}
	if o := shell(t, r, "s", "echo started"); o.stdout != "started\n" {
		t.Errorf("a start beside it: %+v", o)
	}
	freeze("", true)
	freeze("", true)
	freeze("a", false) // and stays frozen with its session
	if !stands("a") || !stands("b") {
		t.Error("the session is frozen, and runs")
	}
	if _, err := r.Start(ctx, shellExec("s", "refused", "true"), nil, nil); codeOf(err) != sandbox.CodeFrozen {
		t.Errorf("a start in a frozen session: %v", err)
	}
	// A signal waits for the thaw, a kill does not.
	if err := r.Signal(ctx, "s", "a", int(syscall.SIGTERM)); err != nil {
		t.Error(err)
	}
	select {
	case res := <-a.done:
		t.Errorf("a frozen process got a signal: %+v", res)
	case <-time.After(50 * time.Millisecond):
	}
	if err := r.Kill(ctx, "s", "b"); err != nil {
		t.Error(err)
	}
	if o := b.wait(); o.Signal != int(syscall.SIGKILL) || o.OOM {
		t.Errorf("%+v", o)
	}
	freeze("", false)
	freeze("", false)
	if o := a.wait(); o.ExitCode != 9 || o.stdout != "term\n" {
		t.Errorf("after the thaw: %+v", o)
	}
	if o := shell(t, r, "s", "echo started"); o.stdout != "started\n" {
		t.Errorf("after the thaw: %+v", o)
	}
	if err := r.Freeze(ctx, "s", "none", true); codeOf(err) != sandbox.CodeNoExec {
		t.Error(err)
	}
	// One that has ended is there until its group is gone.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		err := r.Freeze(ctx, "s", "a", true)
		if codeOf(err) == sandbox.CodeNoExec {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := r.Freeze(ctx, "none", "", true); codeOf(err) != sandbox.CodeNoSession {
		t.Error(err)
	}
	c := busy("c")
	freeze("", true)
	closeSession(t, r, "s")
	if o := c.wait(); o.Signal != int(syscall.SIGKILL) {
		t.Errorf("closed while frozen: %+v", o)
	}
	before.mustLeaveNothing(t, r)
}

// Starts and freezes at the same time: no start is caught half way, where init would wait
// for it for ever.
func TestFreezeAgainstStart(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	stop := make(chan struct{})
	freezes := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				freezes <- nil
				return
			default:
			}
			for _, frozen := range []bool{true, false} {
				if err := r.Freeze(context.Background(), "s", "", frozen); err != nil {
					freezes <- err
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
	}()
	ran, refused := 0, 0
	for i := range 200 {
		id := fmt.Sprint("x", i)
		done := make(chan sandbox.Result, 1)
		streams, err := r.Start(t.Context(), shellExec("s", id, "exit 3"), nil, func(x sandbox.Result) { done <- x })
		if codeOf(err) == sandbox.CodeFrozen {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		ran++
		if x := <-done; x.ExitCode != 3 {
			t.Errorf("%+v", x)
		}
		streams.Close()
		r.Forget("s", id)
	}
	close(stop)
	if err := <-freezes; err != nil {
		t.Error(err)
	}
	t.Logf("%d ran, %d were refused", ran, refused)
}

func TestLoad(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	idle, err := r.Load("s")
	if err != nil || idle.PIDs != 0 || idle.MemoryBytes <= 0 {
		t.Errorf("%+v, %v", idle, err)
	}
	x := start(t, r, sandbox.Exec{Session: "s", ID: "x", Argv: []string{"/bin/sh", "-c", "head -c 20000000 /dev/zero > /tmp/z; sleep 300 & sleep 300 & echo up; wait"}}, nil)
	var l sandbox.Load
	for range 100 {
		if l, err = r.Load("s"); err != nil {
			t.Fatal(err)
		}
		if l.PIDs == 3 && l.MemoryBytes > idle.MemoryBytes+20_000_000 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if l.PIDs != 3 || l.MemoryBytes <= idle.MemoryBytes+20_000_000 {
		t.Errorf("%+v, idle %+v", l, idle)
	}
	if err := r.Kill(t.Context(), "s", "x"); err != nil {
		t.Error(err)
	}
	x.wait()
	if _, err := r.Load("none"); codeOf(err) != sandbox.CodeNoSession {
		t.Error(err)
	}
}

// A stdin is open, given, or empty.
func TestStdinOpen(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	e := shellExec("s", "x", "cat")
	e.StdinOpen = true
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(t.Context(), e, null, nil); codeOf(err) != sandbox.CodeInvalidSpec {
		t.Errorf("open and given: %v", err)
	}
	done := make(chan sandbox.Result, 1)
	e = shellExec("s", "y", "echo again > /dev/stdin; cat") // it can be opened again, as the others can
	e.StdinOpen = true
	streams, err := r.Start(t.Context(), e, nil, func(x sandbox.Result) { done <- x })
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(streams.Stdin, "given\n")
	streams.Stdin.Close()
	for range 2 {
		if err := r.CloseStdin("s", "y"); err != nil {
			t.Error(err)
		}
	}
	if out, _ := io.ReadAll(streams.Stdout); string(out) != "given\nagain\n" && string(out) != "again\ngiven\n" {
		t.Errorf("%q", out)
	}
	streams.Close()
	if x := <-done; x.ExitCode != 0 {
		t.Errorf("%+v", x)
	}
	if err := r.CloseStdin("s", "none"); codeOf(err) != sandbox.CodeNoExec {
		t.Error(err)
	}
}
