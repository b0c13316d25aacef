package launch

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stockade-dev/stockade/sandbox"
)

// served is a runner over a fake that serves one daemon after the other.
type served struct {
	*fake
	path string
	done chan error // of Serve
}

func serving(t *testing.T, o Succession) *served {
	t.Helper()
	s := &served{fake: newFake(t), path: filepath.Join(t.TempDir(), "run.sock"), done: make(chan error, 1)}
	l, err := Listen(s.path, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { s.done <- l.Serve(ctx, s.fake, o) }()
	t.Cleanup(func() {
		stop()
		s.Abandoned()
	})
	return s
}

func (s *served) dial(t *testing.T) *Runner {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r, err := Dial(ctx, s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Disconnect() })
	return r
}

// ends waits for Serve to return, within a bound.
func (s *served) ends(t *testing.T, within time.Duration) {
	t.Helper()
	select {
	case err := <-s.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(within):
		t.Error("it goes on serving")
	}
}

func mustOpen(t *testing.T, r *Runner, spec sandbox.Spec) {
	t.Helper()
	if _, err := r.Open(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

func mustStart(t *testing.T, r *Runner, e sandbox.Exec) *sandbox.Process {
	t.Helper()
	p, err := r.Start(t.Context(), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// leave drops a process without having read it, as a daemon does that is killed.
func leave(p *sandbox.Process) {
	p.Stdout.Close()
	p.Stderr.Close()
	if p.Stdin != nil {
		p.Stdin.Close()
	}
}

func mustHold(t *testing.T, r *Runner, want ...sandbox.Held) {
	t.Helper()
	got, err := r.Sessions(t.Context())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("held %+v, %v, want %+v", got, err, want)
	}
}

// R246 R247: what a daemon leaves, the next one finds and takes over; nothing is
// read twice, and no result is lost.
func TestTakeOver(t *testing.T) {
	s := serving(t, Succession{Hold: time.Minute})
	first := s.dial(t)
	mustHold(t, first)
	mustOpen(t, first, sandbox.Spec{Session: "s", Keep: []byte{0, 1, 255}})
	mustOpen(t, first, sandbox.Spec{Session: "with", WithDaemon: true})
	ended := mustStart(t, first, sandbox.Exec{Session: "s", ID: "ended"})
	if res := <-ended.Done; !cmp.Equal(res, resultOf("ended"), cmpopts.EquateEmpty()) {
		t.Errorf("%+v", res)
	}
	leave(ended)
	running := mustStart(t, first, sandbox.Exec{Session: "s", ID: "running", Background: true})
	b := make([]byte, 3)
	if _, err := io.ReadFull(running.Stdout, b); err != nil || string(b) != "run" {
		t.Errorf("%q, %v", b, err)
	}
	leave(running)
	reading := mustStart(t, first, sandbox.Exec{Session: "s", ID: "reading", StdinOpen: true})
	if _, err := io.WriteString(reading.Stdin, "one"); err != nil {
		t.Error(err)
	}
	leave(reading)
	forgotten := mustStart(t, first, sandbox.Exec{Session: "s", ID: "forgotten"})
	<-forgotten.Done
	first.Forget("s", "forgotten")
	if out, _ := drain(t, forgotten); out != "forgotten 1" { // the daemon's own end is its own
		t.Errorf("%q", out)
	}
	first.Disconnect()
	if _, ok := <-running.Done; ok {
		t.Error("a result from a runner that is gone")
	}

	second := s.dial(t)
	at := time.Unix(1, 1).UTC()
	mustHold(t, second, sandbox.Held{Session: "s", Keep: []byte{0, 1, 255}, Execs: []sandbox.HeldExec{
		{ID: "ended", Started: at, Ended: true}, {ID: "reading", Started: at}, {ID: "running", Started: at},
	}})
	attach := func(id string) *sandbox.Process {
		p, err := second.Attach(t.Context(), "s", id)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Started.Equal(at) {
			t.Errorf("%s started at %v", id, p.Started)
		}
		return p
	}
	ended = attach("ended")
	if ended.Stdin != nil {
		t.Error("a stdin that was not open")
	}
	if res := <-ended.Done; !cmp.Equal(res, resultOf("ended"), cmpopts.EquateEmpty()) {
		t.Errorf("%+v", res)
	}
	if out, errs := drain(t, ended); out != "ended 1" || errs != "ended 2" {
		t.Errorf("%q, %q", out, errs)
	}
	running, again := attach("running"), attach("running")
	if err := second.Signal(t.Context(), "s", "running", 15); err != nil {
		t.Error(err)
	}
	for _, p := range []*sandbox.Process{running, again} {
		if res := <-p.Done; res.Signal != 15 {
			t.Errorf("%+v", res)
		}
	}
	leave(again)
	if out, _ := drain(t, running); out != "ning 1" {
		t.Errorf("%q: what the first has read is not there again, the rest is", out)
	}
	reading = attach("reading")
	if _, err := io.WriteString(reading.Stdin, "two"); err != nil {
		t.Error(err)
	}
	reading.Stdin.Close()
	select {
	case res := <-reading.Done:
		t.Errorf("%+v, while the runner holds stdin open", res)
	case <-time.After(20 * time.Millisecond):
	}
	if err := second.CloseStdin(t.Context(), "s", "reading"); err != nil {
		t.Error(err)
	}
	if res := <-reading.Done; res.ExitCode != len("onetwo") {
		t.Errorf("%+v", res)
	}
	reading.Stdout.Close()
	reading.Stderr.Close()

	for _, id := range []string{"ended", "running", "reading", "none"} {
		second.Forget("s", id)
	}
	if _, err := second.Attach(t.Context(), "s", "ended"); code(err) != sandbox.CodeNoExec {
		t.Errorf("attach after forget: %v", err)
	}
	mustHold(t, second, sandbox.Held{Session: "s", Keep: []byte{0, 1, 255}, Execs: []sandbox.HeldExec{}})
}

// A call that was in progress when the daemon died: a start is undone as long as it can be, one that has
// happened is held, and so is no session that was being built.
func TestInFlight(t *testing.T) {
	s := serving(t, Succession{Hold: time.Minute})
	first := s.dial(t)
	mustOpen(t, first, sandbox.Spec{Session: "s"})
	lost := make(chan error)
	for _, id := range []string{"slow", "deaf"} {
		go func() {
			_, err := first.Start(context.Background(), sandbox.Exec{Session: "s", ID: id}, nil)
			lost <- err
		}()
		<-s.starting
	}
	go func() {
		_, err := first.Open(context.Background(), sandbox.Spec{Session: "deaf"})
		lost <- err
	}()
	time.Sleep(20 * time.Millisecond)
	first.Disconnect()
	for range 3 {
		if err := <-lost; code(err) != sandbox.CodeGone {
			t.Error(err)
		}
	}
	second := s.dial(t)
	mustHold(t, second, sandbox.Held{Session: "s", Keep: []byte{}, Execs: []sandbox.HeldExec{{ID: "deaf", Started: time.Unix(1, 1).UTC(), Ended: true}}})
	p, err := second.Attach(t.Context(), "s", "deaf")
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := drain(t, p); out != "deaf 1" {
		t.Errorf("%q", out)
	}
}

// How long things are held, and when a runner ends that follows.
func TestHold(t *testing.T) {
	for _, tt := range []struct {
		name      string
		o         Succession
		leaves    bool // a session
		abandoned bool
		ends      bool
	}{
		{"nothing is left", Succession{Hold: time.Minute}, false, false, false},
		{"nothing is left, follow", Succession{Hold: time.Minute, Follow: true}, false, false, true},
		{"nobody comes", Succession{Hold: 50 * time.Millisecond}, true, true, false},
		{"nobody comes, follow", Succession{Hold: 50 * time.Millisecond, Follow: true}, true, true, true},
		{"no hold", Succession{}, true, true, false},
		{"no hold, follow", Succession{Follow: true}, true, true, true},
		{"hold", Succession{Hold: time.Minute, Follow: true}, true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serving(t, tt.o)
			r := s.dial(t)
			if tt.leaves {
				mustOpen(t, r, sandbox.Spec{Session: "s"})
			}
			r.Disconnect()
			if tt.abandoned {
				<-s.abandoned
			}
			if tt.ends {
				s.ends(t, 5*time.Second)
				return
			}
			r = s.dial(t)
			if tt.leaves && !tt.abandoned {
				mustHold(t, r, sandbox.Held{Session: "s", Keep: []byte{}, Execs: []sandbox.HeldExec{}})
			} else {
				mustHold(t, r)
			}
		})
	}
}

// Two daemons at a time there are not; one after the other there are, however fast.
func TestOneDaemonAtATime(t *testing.T) {
	t.Parallel()
	s := serving(t, Succession{Hold: time.Minute})
	first := s.dial(t)
	if _, err := Dial(t.Context(), s.path); code(err) != sandbox.CodeGone {
		t.Errorf("beside another: %v", err)
	}
	// The first has left, and what it began takes its time.
	go first.Open(context.Background(), sandbox.Spec{Session: "stuck"})
	time.Sleep(20 * time.Millisecond)
	first.Disconnect()
	begin := time.Now()
	time.AfterFunc(patience+200*time.Millisecond, func() { close(s.hang) })
	second := s.dial(t)
	if took := time.Since(begin); took < patience {
		t.Errorf("it was served after %v, beside the other", took)
	}
	mustHold(t, second) // what was built for nobody is not there
	// And one that comes at the moment at which the other dies.
	third := make(chan error)
	go func() {
		r, err := Dial(t.Context(), s.path)
		if err == nil {
			r.Disconnect()
		}
		third <- err
	}()
	time.Sleep(50 * time.Millisecond)
	second.Disconnect()
	if err := <-third; err != nil {
		t.Error(err)
	}
}

func TestFreezeAndLoad(t *testing.T) {
	r, f := connect(t)
	ctx := t.Context()
	if err := errors.Join(r.Freeze(ctx, "s", "", true), r.Freeze(ctx, "s", "x", true), r.Freeze(ctx, "s", "", false)); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	if want := map[target]bool{{"s", ""}: false, {"s", "x"}: true}; !reflect.DeepEqual(f.frozen, want) {
		t.Errorf("%v", f.frozen)
	}
	f.mu.Unlock()
	if l, err := r.Load(ctx, "four"); err != nil || l != (sandbox.Load{MemoryBytes: 1 << 40, PIDs: 4}) {
		t.Errorf("%+v, %v", l, err)
	}
	if err := r.CloseStdin(ctx, "s", "none"); code(err) != sandbox.CodeNoExec {
		t.Error(err)
	}
}

// Daemons come and go, and leave neither descriptors nor goroutines.
func TestSuccessionLeavesNothing(t *testing.T) {
	s := serving(t, Succession{Hold: time.Minute})
	round := func() {
		first := s.dial(t)
		mustOpen(t, first, sandbox.Spec{Session: "s"})
		for _, e := range []sandbox.Exec{{ID: "a"}, {ID: "b", Background: true}, {ID: "c", StdinOpen: true}} {
			e.Session = "s"
			leave(mustStart(t, first, e))
		}
		first.Disconnect()
		second := s.dial(t)
		for _, id := range []string{"a", "b", "c"} {
			p, err := second.Attach(t.Context(), "s", id)
			if err != nil {
				t.Fatal(err)
			}
			leave(p)
		}
		second.Forget("s", "a")
		second.CloseStdin(t.Context(), "s", "c")
		if _, err := second.Close(t.Context(), "s"); err != nil {
			t.Error(err)
		}
		second.Disconnect()
	}
	count := func() int { return openFiles(t) + 1000*runtime.NumGoroutine() }
	round()
	before := settled(count)
	for range 10 {
		round()
	}
	if after := settled(count); after > before {
		t.Errorf("%d goroutines and %d descriptors, then %d and %d", before/1000, before%1000, after/1000, after%1000)
	}
}
