package runc

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
)

// screen is what comes out of a terminal, read from the start.
type screen struct {
	t      testing.TB
	master *os.File
	done   chan sandbox.Result

	mu    sync.Mutex
	text  strings.Builder
	more  chan struct{}
	ended bool
	seen  int // what expect has gone past
}

func openScreen(t testing.TB, r *Runner, e sandbox.Exec) *screen {
	t.Helper()
	e.StdinOpen = true
	if e.Terminal == nil {
		e.Terminal = &sandbox.Terminal{Cols: 80, Rows: 24}
	}
	if e.ID == "" {
		e.ID = execIDs()
	}
	e.Cwd = "/tmp"
	e.Env = append([]string{"PATH=/usr/bin:/bin", "TERM=xterm-256color", "PS1=$ "}, e.Env...)
	s := &screen{t: t, done: make(chan sandbox.Result, 1), more: make(chan struct{}, 1)}
	streams, err := r.Start(context.Background(), e, nil, func(x sandbox.Result) { s.done <- x })
	if err != nil {
		t.Fatalf("start %q: %v", e.Argv, err)
	}
	s.follow(streams.Stdin, streams.Stdout)
	streams.Stderr.Close()
	return s
}

func (s *screen) follow(master, stdout *os.File) {
	s.master = master
	s.t.Cleanup(func() { master.Close() })
	go func() {
		defer stdout.Close()
		io.Copy(s, stdout)
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		s.wake()
	}()
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	return s.text.Write(p)
}

func (s *screen) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *screen) send(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatalf("send %q: %v", text, err)
	}
}

// expect waits for a pattern in what has not been gone past, and goes past it.
func (s *screen) expect(pattern string) string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	limit := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		rest, ended := s.text.String()[s.seen:], s.ended
		s.mu.Unlock()
		if at := re.FindStringIndex(rest); at != nil {
			s.seen += at[1]
			return rest[at[0]:at[1]]
		}
		if ended {
			s.t.Fatalf("it has ended without %q; there is %q", pattern, rest)
		}
		select {
		case <-s.more:
		case <-limit:
			s.t.Fatalf("no %q in %q", pattern, rest)
		}
	}
}

// R141, R145, R151, T104: a terminal of the session's own devpts is the command's controlling one, with job control, a size
// that can be changed, and signals for who is in its foreground.
func TestTerminal(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	s := openScreen(t, r, sandbox.Exec{Session: "s", ID: "sh", Argv: []string{"/bin/bash", "--norc", "-i"},
		Terminal: &sandbox.Terminal{Cols: 100, Rows: 30, Script: "secret"}})
	s.expect(`\$ `)
	s.send("tty; stty size; stat -c '%u:%U %t' $(tty); ls /dev/pts\r")
	s.expect(`/dev/pts/0\r\n30 100\r\n`)
	if out := s.expect(`0 *ptmx\r\n`); strings.Contains(out, "1") { // nobody else's
		t.Errorf("/dev/pts: %q", out)
	}
	s.send("IFS= read -r -d '' x <&9; exec 9<&-; echo [$x]\r")
	s.expect(`\[secret\]\r\n`)
	s.send("ls -l /proc/self/fd\r") // stdin, stdout, stderr, and ls's own
	if out := s.expect(`(?s)total.*\$ `); strings.Contains(out, "ptmx") || strings.Count(out, "->") != 4 {
		t.Errorf("descriptors inside:\n%s", out)
	}

	// Job control: a stop by ^Z, and on in the background and the foreground.
	s.send("sleep 100\r")
	time.Sleep(100 * time.Millisecond)
	s.send("\x1a")
	s.expect(`Stopped`)
	s.send("jobs; fg\r")
	s.expect(`(?s)Stopped.*sleep 100\r\n.*sleep 100`)
	time.Sleep(100 * time.Millisecond)
	s.send("\x03")
	s.expect(`\$ `)
	s.send("echo st=$?\r")
	s.expect(`st=130\r\n`)

	// A new size, and the signal of it.
	s.send("sh -c 'trap \"echo now; stty size\" WINCH; echo ready; while :; do sleep 0.05; done'\r")
	s.expect(`ready\r\n`)
	if err := unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 133, Row: 43}); err != nil {
		t.Fatal(err)
	}
	s.expect(`now\r\n43 133\r\n`)
	s.send("\x03")
	s.expect(`\$ `)

	// To who is in the foreground, also where ^C would be a byte as others are.
	s.send("stty raw -echo; sleep 100; stty sane; echo st=$?\r")
	time.Sleep(200 * time.Millisecond)
	if err := r.Foreground(t.Context(), "s", "sh", int(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	s.expect(`Terminated`)

	// The end of the leader hangs up on what it has left.
	s.send("(trap '' HUP; sleep 100) &\r exit 7\r")
	res := <-s.done
	if res.ExitCode != 7 {
		t.Errorf("%+v", res)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		ended := s.ended
		s.mu.Unlock()
		if ended {
			break
		}
		if time.Now().After(end) {
			t.Fatal("its output does not end")
		}
	}
	if err := r.Foreground(t.Context(), "s", "sh", int(syscall.SIGTERM)); codeOf(err) != sandbox.CodeNoExec {
		t.Errorf("foreground of what has ended: %v", err)
	}
}

// T074, T110: a session has so many terminals and no more; what cannot be had is said, and what was given back can be had
// again. Control: while they are open, the count that has to come back is higher by as many.
func TestTerminalsEnd(t *testing.T) {
	r := newRunner(t)
	spec := hostSpec("s")
	spec.Limits.PIDs = 512
	open(t, r, spec)
	defer closeSession(t, r, "s")
	const most = 64 // of the session's devpts
	count := func() int {
		var n int
		b, err := os.ReadFile("/proc/sys/kernel/pty/nr")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.TrimSpace(string(b)) {
			n = n*10 + int(c-'0')
		}
		return n
	}
	before := count()
	var all []*screen
	for range most {
		all = append(all, openScreen(t, r, sandbox.Exec{Session: "s", Argv: []string{"/bin/cat"}}))
	}
	_, err := r.Start(context.Background(), sandbox.Exec{Session: "s", ID: "over", Argv: []string{"/bin/cat"}, Env: []string{"PATH=/bin"}, Cwd: "/tmp", StdinOpen: true,
		Terminal: &sandbox.Terminal{Cols: 80, Rows: 24}}, nil, func(sandbox.Result) {})
	if codeOf(err) != sandbox.CodeTerminal {
		t.Errorf("one more than there are: %v", err)
	}
	if n := count(); n < before+most {
		t.Errorf("control: %d terminals are counted, and %d were opened", n-before, most)
	}
	for _, s := range all {
		s.send("\x04")
		<-s.done
		s.master.Close()
	}
	for _, e := range r.Sessions()[0].Execs {
		r.Forget("s", e.ID)
	}
	again := openScreen(t, r, sandbox.Exec{Session: "s", Argv: []string{"/bin/echo", "again"}})
	again.expect("again\r\n")
	<-again.done
	again.master.Close()
	for _, e := range r.Sessions()[0].Execs {
		r.Forget("s", e.ID)
	}
	for end := time.Now().Add(5 * time.Second); count() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d terminals, %d before", count(), before)
		}
	}
}

// A runner that is not stopped, for something hangs, or that goes on half way, moves the output of each terminal once.
func TestTerminalOfSaveRefused(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	s := openScreen(t, r, sandbox.Exec{Session: "s", ID: "cat", Argv: []string{"/bin/cat"}})
	leave, err := r.renewing.Join(t.Context(), 7, maxRenews)
	if err != nil {
		t.Fatal(err)
	}
	held, err := r.session("s")
	if err != nil {
		t.Fatal(err)
	}
	pumping := held.terminals()[0].pumped
	if _, _, err := r.Save(t.Context()); err == nil {
		t.Error("saved")
	}
	leave()
	for _, x := range held.terminals() {
		x.goOn()
		if x.pumped != pumping {
			t.Error("two move one output")
		}
	}
	s.send("once\n\x04")
	s.expect(`once\r\nonce\r\n`)
	<-s.done
}

// A daemon that is gone loses nothing of what comes out, and hangs up on nobody.
func TestTerminalAttach(t *testing.T) {
	r := newRunner(t)
	open(t, r, hostSpec("s"))
	defer closeSession(t, r, "s")
	s := openScreen(t, r, sandbox.Exec{Session: "s", ID: "sh", Argv: []string{"/bin/sh", "-c", "read x; seq 1 20000; echo last; read y; exit 5"}})
	state, _, err := r.Save(t.Context()) // as for another program
	if err != nil || len(state) == 0 {
		t.Fatal(err)
	}
	s.send("go\n")
	r.Continue()
	s.expect(`(?s)go\r\n1\r\n2\r\n.*19999\r\n20000\r\nlast\r\n`)
	s.master.Close()
	r.Disconnected()
	next := &screen{t: t, done: make(chan sandbox.Result, 1), more: make(chan struct{}, 1)}
	streams, err := r.Attach("s", "sh", func(x sandbox.Result) { next.done <- x })
	if err != nil {
		t.Fatal(err)
	}
	next.follow(streams.Stdin, streams.Stdout)
	streams.Stderr.Close()
	next.send("end\n")
	if res := <-next.done; res.ExitCode != 5 {
		t.Errorf("%+v", res)
	}
}

// TestLastOutput: what was written just before a terminal was closed comes out, although the kernel may say first that nobody
// has the terminal any more. The real race is met by T006, in ten thousand terminals on a busy machine.
func TestLastOutput(t *testing.T) {
	master, slave := pair(t)
	defer master.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const text = "what is written last"
	if _, err := slave.WriteString(text); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	calls := 0
	err = pumpOut(master, w, func(from, to int) (int64, error) {
		if calls++; calls == 1 {
			return 0, unix.EIO
		}
		return splice(from, to)
	})
	w.Close()
	got, failed := io.ReadAll(r)
	if err := errors.Join(err, failed); err != nil || string(got) != text {
		t.Errorf("%q, %v", got, err)
	}
}

// TestUnmoved: output that has not been moved out of a terminal is seen, also while the kernel has it on its way.
func TestUnmoved(t *testing.T) {
	master, slave := pair(t)
	defer master.Close()
	defer slave.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	x := &execution{}
	for range 1000 {
		if _, err := slave.WriteString("words"); err != nil {
			t.Fatal(err)
		}
		if !x.unmoved(master) {
			t.Fatal("output is there, and not seen")
		}
		if n, err := splice(int(master.Fd()), int(w.Fd())); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		if x.unmoved(master) {
			t.Fatal("all has been moved")
		}
		if _, err := io.ReadFull(r, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
}

// pair is a terminal of the host's, and its master.
func pair(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(m), "master")
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	s, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		t.Fatal(e)
	}
	return master, os.NewFile(s, "slave")
}
