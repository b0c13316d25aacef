package guest

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// handover suspends a conversation and takes it up on a duplicate of its socket, as another
// program would that inherits the descriptor. The first Conn is of no use any more.
func handover(t *testing.T, c *Conn) (*Conn, map[uint64]*Process) {
	t.Helper()
	f, state, err := c.Suspend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // Fd made it blocking
		t.Fatal(err)
	}
	next, processes, err := Resume(os.NewFile(uintptr(fd), "init"), state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	return next, processes
}

func exited(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case e, ok := <-p.Exited:
		if !ok {
			t.Fatal("init is gone")
		}
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("no exit was reported")
	}
	panic("unreachable")
}

// What ends while nobody listens is reported to whoever listens next, and nothing twice.
func TestResume(t *testing.T) {
	b := start(t, baseline())
	before := b.spawn(shell("exit 3"))
	if e := exited(t, before); e.Status.ExitStatus() != 3 {
		t.Fatalf("status %#x", e.Status)
	}
	meanwhile := b.spawn(shell("sleep 0.2; exit 4"))
	after := b.spawn(shell("sleep 100"))

	f, state, err := b.Suspend(t.Context())
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	want := map[uint64]int{meanwhile.Call(): meanwhile.PID, after.Call(): after.PID}
	if len(state.Live) != len(want) || state.Live[meanwhile.Call()] != meanwhile.PID || state.Live[after.Call()] != after.PID {
		t.Errorf("live %v, want %v", state.Live, want)
	}
	if err := ping(t.Context(), b.Conn); !errors.Is(err, ErrSuspended) {
		t.Errorf("a call while suspended: %v", err)
	}
	time.Sleep(400 * time.Millisecond) // past the end of the one
	b.Continue()
	if err := ping(t.Context(), b.Conn); err != nil {
		t.Errorf("a call after continuing: %v", err)
	}
	if e := exited(t, meanwhile); e.Status.ExitStatus() != 4 {
		t.Errorf("status %#x", e.Status)
	}

	next, processes := handover(t, b.Conn)
	p := processes[after.Call()]
	if p == nil || p.PID != after.PID {
		t.Fatalf("processes %v", processes)
	}
	if err := p.Signal(t.Context(), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if e := exited(t, p); e.Status.Signal() != syscall.SIGTERM {
		t.Errorf("status %#x", e.Status)
	}
	n := null(t)
	again, err := next.Spawn(t.Context(), shell("exit 5"), Streams{Stdin: n, Stdout: n, Stderr: n})
	if err != nil {
		t.Fatal(err)
	}
	if again.Call() <= after.Call() {
		t.Errorf("call %d was given out a second time, after %d", again.Call(), after.Call())
	}
	if e := exited(t, again); e.Status.ExitStatus() != 5 {
		t.Errorf("status %#x", e.Status)
	}
}

// No exit is lost, whenever between two of them the conversation changes hands.
func TestResumeUnderLoad(t *testing.T) {
	b := start(t, baseline())
	conn := b.Conn
	live := map[uint64]*Process{} // whose end has not been seen
	n := null(t)
	for i := range 30 {
		for range 4 {
			p, err := conn.Spawn(t.Context(), shell("exit 7"), Streams{Stdin: n, Stdout: n, Stderr: n})
			if err != nil {
				t.Fatal(err)
			}
			live[p.Call()] = p
		}
		time.Sleep(time.Duration(i%5) * time.Millisecond)
		var processes map[uint64]*Process
		conn, processes = handover(t, conn)
		for id, p := range live {
			select {
			case e := <-p.Exited: // before the handover
				if e.Status.ExitStatus() != 7 || processes[id] != nil {
					t.Fatalf("call %d: status %#x, handed over: %v", id, e.Status, processes[id] != nil)
				}
				delete(live, id)
			default:
				if live[id] = processes[id]; live[id] == nil {
					t.Fatalf("call %d was lost", id)
				}
			}
		}
	}
	for _, p := range live {
		if e := exited(t, p); e.Status.ExitStatus() != 7 {
			t.Errorf("status %#x", e.Status)
		}
	}
}

// A call that init does not answer keeps the conversation from being suspended, for as long
// as the caller says, and both go on as if nothing had been tried.
func TestSuspendWaitsForCalls(t *testing.T) {
	b := start(t, baseline())
	if err := syscall.Kill(b.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- ping(context.Background(), b.Conn) }()
	for pending := 0; pending == 0; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		pending = b.pending
		b.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := b.Suspend(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("suspend: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { syscall.Kill(b.pid, syscall.SIGCONT) })
	if _, _, err := b.Suspend(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	b.Continue()
	if err := ping(t.Context(), b.Conn); err != nil {
		t.Error(err)
	}
}

// The end of init is handed over as well.
func TestResumeGone(t *testing.T) {
	b := start(t, baseline())
	p := b.spawn(shell("sleep 100"))
	syscall.Kill(b.pid, syscall.SIGKILL)
	<-b.gone
	if _, ok := <-p.Exited; ok {
		t.Error("an exit without init")
	}
	f, state, err := b.Suspend(t.Context())
	if err != nil || f != nil || !state.Gone || len(state.Live) > 0 {
		t.Fatal(f, state, err)
	}
	c, _, err := Resume(nil, state)
	if err != nil {
		t.Fatal(err)
	}
	<-c.gone
	if err := ping(t.Context(), c); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	c.Close()
}

// A runner that speaks otherwise than the inits at hand takes none of them over.
func TestResumeVersion(t *testing.T) {
	if _, _, err := Resume(nil, State{Version: Version + 1}); err == nil {
		t.Error("resumed")
	}
}

// Close wakes everybody, in whatever state the conversation is.
func TestCloseSuspended(t *testing.T) {
	b := start(t, baseline())
	p := b.spawn(shell("sleep 100"))
	if _, _, err := b.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, ok := <-p.Exited; ok {
		t.Error("an exit without init")
	}
}
