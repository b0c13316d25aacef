package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stockade-dev/stockade/sandbox"
)

// program is a runner's program in a test: it serves until it is told to stop, and another
// takes its place.
type program struct {
	*Listener
	fake   *fake
	served chan error // what Serve returned
	stop   context.CancelFunc
}

func (p *program) serve(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.served = stop, make(chan error, 1)
	go func() {
		p.served <- p.Serve(ctx, p.fake, Succession{Hold: time.Minute, Lost: func(err error) { t.Error(err) }})
	}()
}

func newProgram(t *testing.T) (p *program, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "run.sock")
	l, err := Listen(socket, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	p = &program{Listener: l, fake: newFake(t)}
	p.serve(t)
	return p, socket
}

// suspend stops the program between two messages.
func (p *program) suspend(t *testing.T) {
	t.Helper()
	if err := p.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-p.served; err != ErrSuspended {
		t.Fatal(err)
	}
}

// replace has another program take the place of a suspended one, as after an execve: the handler
// has forgotten whom it would have told, and knows what it held.
func (p *program) replace(t *testing.T) *program {
	t.Helper()
	state, sockets, err := p.Save()
	if err != nil {
		t.Fatal(err)
	}
	p.fake.mu.Lock()
	for _, x := range p.fake.held {
		x.watchers = nil
	}
	p.fake.mu.Unlock()
	p.socket.SetUnlinkOnClose(false)
	p.Close()
	if p.current != nil {
		p.current.conn.Close()
	}
	if p.next != nil {
		p.next.Close()
	}
	next := &program{fake: p.fake}
	if next.Listener, err = Resume(state, sockets, uint32(os.Geteuid()), p.fake); err != nil {
		t.Fatal(err)
	}
	next.serve(t)
	return next
}

// The daemon notices nothing: its calls are answered, later, and it is told of each end once.
func TestReplaceUnderDaemon(t *testing.T) {
	p, socket := newProgram(t)
	r, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(t.Context(), sandbox.Spec{Session: "s"}); err != nil {
		t.Fatal(err)
	}
	var processes []*sandbox.Process
	for i, e := range []sandbox.Exec{{ID: "ended"}, {ID: "runs", Background: true}, {ID: "unnoticed", Background: true}, {ID: "forgotten", Background: true}} {
		e.Session = "s"
		x, err := r.Start(t.Context(), e, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		defer x.Stdout.Close()
		defer x.Stderr.Close()
		processes = append(processes, x)
	}
	<-processes[0].Done
	r.Forget("s", "forgotten")
	if _, err := r.Load(t.Context(), "s"); err != nil { // by now it has been forgotten
		t.Fatal(err)
	}

	p.suspend(t)
	var late sync.WaitGroup
	late.Go(func() {
		if l, err := r.Load(t.Context(), "s"); err != nil || l.PIDs != 1 {
			t.Error(l, err)
		}
	})
	p.fake.mu.Lock()
	for _, x := range p.fake.held { // and nobody is told
		x.watchers = nil
	}
	p.fake.mu.Unlock()
	p.fake.end(target{"s", "unnoticed"}, resultOf("unnoticed"))
	p = p.replace(t)
	late.Wait()
	if res := <-processes[2].Done; res.ExitCode != len("unnoticed") {
		t.Errorf("%+v", res)
	}
	select {
	case res, ok := <-processes[1].Done:
		t.Errorf("told of an end that was none: %+v %v", res, ok)
	default:
	}
	p.fake.end(target{"s", "runs"}, resultOf("runs"))
	if res := <-processes[1].Done; res.ExitCode != len("runs") {
		t.Errorf("%+v", res)
	}
	p.suspend(t)
	if state, sockets, err := p.Save(); err != nil || !state.Connected || !state.Greeted || len(state.Watched) > 0 || len(sockets) != 2 {
		t.Errorf("%+v %v", state, err)
	} else {
		closeAll(sockets)
	}
	p = p.replace(t)
	if _, err := r.Close(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	r.Disconnect()
	<-p.fake.disconnected
	p.stop()
	if err := <-p.served; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left")
	}
}

// Whoever connects while nobody listens is served afterwards, and what is held waits for them.
func TestReplaceWithoutDaemon(t *testing.T) {
	p, socket := newProgram(t)
	first, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Open(t.Context(), sandbox.Spec{Session: "s"}); err != nil {
		t.Fatal(err)
	}
	first.Disconnect()
	<-p.fake.disconnected
	p.suspend(t)
	dialed := make(chan *Runner)
	go func() {
		r, err := Dial(context.Background(), socket)
		if err != nil {
			t.Error(err)
		}
		dialed <- r
	}()
	time.Sleep(20 * time.Millisecond)
	p = p.replace(t)
	r := <-dialed
	if held, err := r.Sessions(t.Context()); err != nil || len(held) != 1 {
		t.Error(held, err)
	}
	r.Disconnect()
	p.stop()
	<-p.served
}

// Two daemons, one of which has come a moment too early, are both still there afterwards.
func TestReplaceKeepsNext(t *testing.T) {
	p, socket := newProgram(t)
	first, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	dialed := make(chan *Runner)
	go func() {
		r, err := Dial(context.Background(), socket)
		if err != nil {
			t.Error(err)
		}
		dialed <- r
	}()
	time.Sleep(20 * time.Millisecond)
	p.suspend(t)
	p = p.replace(t)
	if _, err := first.Load(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	first.Disconnect()
	(<-dialed).Disconnect()
	p.stop()
	<-p.served
}

// A call that does not end keeps the runner from being replaced. It goes on as if nothing had
// been asked, and what was said meanwhile is heard.
func TestSuspendRefused(t *testing.T) {
	p, socket := newProgram(t)
	r, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		r.Resolve(ctx, sandbox.Caller{}, []string{"/hang"})
	}()
	for hanging := 0; hanging == 0; time.Sleep(time.Millisecond) {
		p.fake.mu.Lock()
		hanging = p.fake.resolves
		p.fake.mu.Unlock()
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Suspend(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("suspended: %v", err)
	}
	if _, err := r.Load(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	close(p.fake.hang)
	leave()
	<-left
	p.suspend(t)
	p.serve(t) // the same program again: the other could not be executed
	if _, err := r.Load(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	r.Disconnect()
	p.stop()
	<-p.served
	if err := p.Suspend(short); err == nil {
		t.Error("suspended, and nobody serves")
	}
}

// A call that hangs when its daemon has left does not keep the next one waiting. The runner is not replaced while it does: its
// thread would not end. What it comes to is undone.
func TestCallLeftBehind(t *testing.T) {
	defer func(before time.Duration) { leaving = before }(leaving)
	leaving = 50 * time.Millisecond
	p, socket := newProgram(t)
	leaveBehind(t, p, socket)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	second, err := Dial(ctx, socket)
	if err != nil {
		close(p.fake.hang)
		t.Fatal(err)
	}
	mustHold(t, second)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Suspend(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("suspended: %v", err)
	}
	close(p.fake.hang)
	p.suspend(t) // once it has ended
	p.serve(t)
	mustHold(t, second)
	p.fake.mu.Lock()
	if !slices.Contains(p.fake.closed, "stuck") {
		t.Errorf("what was built for nobody is not closed: %q", p.fake.closed)
	}
	p.fake.mu.Unlock()
	second.Disconnect()
	p.stop()
	<-p.served
}

// leaveBehind has a daemon leave in the middle of an open that hangs.
func leaveBehind(t *testing.T, p *program, socket string) {
	t.Helper()
	r, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	go r.Open(context.Background(), sandbox.Spec{Session: "stuck"})
	for opens := 0; opens == 0; time.Sleep(time.Millisecond) {
		p.fake.mu.Lock()
		opens = p.fake.opens
		p.fake.mu.Unlock()
	}
	r.Disconnect()
}

// Nor is it replaced while nobody is connected, and it goes on listening.
func TestCallLeftBehindByNobody(t *testing.T) {
	defer func(before time.Duration) { leaving = before }(leaving)
	leaving = 50 * time.Millisecond
	p, socket := newProgram(t)
	leaveBehind(t, p, socket)
	<-p.fake.disconnected
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Suspend(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("suspended: %v", err)
	}
	second, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, second)
	second.Disconnect()
	<-p.fake.disconnected
	close(p.fake.hang)
	p.suspend(t) // once it has ended
	p.serve(t)
	p.stop()
	<-p.served
}

// No call is lost or answered twice, whenever the program is replaced.
func TestReplaceUnderLoad(t *testing.T) {
	p, socket := newProgram(t)
	r, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(t.Context(), sandbox.Spec{Session: "s"}); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	enough := make(chan struct{})
	for c := range 4 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-enough:
					return
				default:
				}
				id := strconv.Itoa(c) + "-" + strconv.Itoa(i)
				x, err := r.Start(t.Context(), sandbox.Exec{Session: "s", ID: id}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if res, ok := <-x.Done; !ok || res.ExitCode != len(id) {
					t.Errorf("%s: %+v %v", id, res, ok)
				}
				x.Stdout.Close()
				x.Stderr.Close()
				r.Forget("s", id)
			}
		})
	}
	for range 30 {
		time.Sleep(3 * time.Millisecond)
		p.suspend(t)
		p = p.replace(t)
	}
	close(enough)
	callers.Wait()
	r.Disconnect()
	p.stop()
	<-p.served
}

// What does not fit together is not taken up, and closed.
func TestResumeRefuses(t *testing.T) {
	p, _ := newProgram(t)
	p.suspend(t)
	for _, tt := range []struct {
		name    string
		change  func(*State)
		sockets int
	}{
		{"no socket", func(*State) {}, 0},
		{"a socket too many", func(*State) {}, 2},
		{"a connection that is missing", func(s *State) { s.Connected, s.Version = true, version }, 1},
		{"another version", func(s *State) { s.Connected, s.Version = true, version-1 }, 2},
	} {
		state, sockets, err := p.Save()
		if err != nil {
			t.Fatal(err)
		}
		_, more, err := p.Save()
		if err != nil {
			t.Fatal(err)
		}
		tt.change(&state)
		sockets = append(sockets, more...)
		closeAll(sockets[tt.sockets:])
		if l, err := Resume(state, sockets[:tt.sockets], 0, p.fake); err == nil {
			t.Errorf("%s: resumed", tt.name)
			l.Close()
		}
	}
	p.socket.SetUnlinkOnClose(true)
	p.Close()
}
