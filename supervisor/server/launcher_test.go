package server

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
)

// fake is a launcher that starts nothing and, like the runner, holds what it started for the
// supervisor that comes next. Its commands are functions:
//
//	echo A…     prints its arguments
//	flood       prints 8 MiB
//	sleep       says so, and runs until it is killed
//	cat         copies stdin to stdout
//	chatter N   prints N numbered lines to both streams, by turns
//	reach       reaches a ceiling, and for what is not granted
//	bash A…     is bash, in the directory in which file tools work
type fake struct {
	started atomic.Int64 // executions
	opened  atomic.Int64
	pace    chan struct{} // if not nil, chatter waits for a value before each line

	files string // directory in which file tools work

	mu       sync.Mutex
	sessions map[string]*fakeSession
}

type fakeSession struct {
	keep  []byte
	execs map[string]*fakeExec
}

// fakeExec is a command that runs, and its ends of the pipes.
type fakeExec struct {
	terminal       *sandbox.Terminal
	started        time.Time
	stdout, stderr *os.File // the ends that are read, held for an Attach
	stdin          *os.File // the end that is written; nil unless it is open
	killed         chan struct{}
	ended          chan struct{}
	result         sandbox.Result // once ended
}

func newFake(t testing.TB) *fake {
	f := &fake{sessions: map[string]*fakeSession{}, files: t.TempDir()}
	t.Cleanup(func() {
		for id := range f.sessions {
			f.Close(context.Background(), id)
		}
	})
	return f
}

func (f *fake) Host() sandbox.Host {
	return sandbox.Host{Kernel: "6.18", Arch: "amd64", Cgroup: "v2", CPUs: 2, Memory: 1 << 30,
		Layers: []sandbox.Layer{
			{Name: "user namespaces", State: "present", Required: true},
			{Name: "landlock", State: "missing", Detail: "operation not supported", Remedy: "landlock in the lsm= list of the kernel's command line"},
		}}
}

func (f *fake) Done() <-chan struct{} { return nil }

func (f *fake) Resolve(_ context.Context, _ sandbox.Caller, paths []string) ([]launch.Resolved, error) {
	out := make([]launch.Resolved, len(paths))
	for i, p := range paths {
		out[i].Source = sandbox.Source{Path: p, Resolved: p, Dev: 1, Ino: uint64(i + 1), Kind: "dir", Mode: 0o755}
	}
	return out, nil
}

func (f *fake) Open(_ context.Context, spec sandbox.Spec) (sandbox.Enforced, error) {
	f.opened.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions[spec.Session] = &fakeSession{spec.Keep, map[string]*fakeExec{}}
	return sandbox.Enforced{
		Namespaces: map[string]uint64{"user": 4026531837}, NoNewPrivs: true, Seccomp: 2,
		MemoryBytes: spec.Limits.MemoryBytes, CPUMillis: spec.Limits.CPUMillis, PIDs: spec.Limits.PIDs, Cgroup: "v2",
		Ceilings: []sandbox.CgroupFile{{Controller: "memory", File: "memory.max", Value: strconv.FormatInt(spec.Limits.MemoryBytes, 10)}},
		Devices:  "bpf", Rlimits: map[string]uint64{"NOFILE": uint64(spec.Limits.Files)}, Landlock: 7,
		Reports: map[string]string{"seccomp": "notification", "network": "relay", "cgroup": "counter", "mounts": "", "landlock": ""},
	}, nil
}

func (f *fake) Start(_ context.Context, x sandbox.Exec, stdin *os.File) (*sandbox.Process, error) {
	f.started.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	ses, ok := f.sessions[x.Session]
	if !ok {
		return nil, sandbox.Errorf(sandbox.CodeNoSession, "there is no session %s", x.Session)
	}
	e := &fakeExec{started: time.Now(), killed: make(chan struct{}), ended: make(chan struct{})}
	var files [3]*os.File // as the command sees them
	if x.StdinOpen {
		files[0], e.stdin = pipe()
	} else if stdin != nil {
		files[0] = dup(stdin)
	}
	e.stdout, files[1] = pipe()
	e.stderr, files[2] = pipe()
	ses.execs[x.ID] = e
	if e.terminal = x.Terminal; e.terminal != nil {
		go f.run(e, []string{"shell"}, files)
		return e.process(), nil
	}
	if x.Files {
		files[0].Close()
		return e.process(), f.serve(e, stdin, files)
	}
	go f.run(e, x.Argv, files)
	return e.process(), nil
}

// serve is the life of a file worker, in a directory that all sessions share.
func (f *fake) serve(e *fakeExec, stdin *os.File, files [3]*os.File) error {
	ended, err := testbox.ServeFiles(stdin, f.files)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-ended:
		case <-e.killed:
		}
		files[1].Close()
		files[2].Close()
		e.result = sandbox.Result{Started: e.started, Ended: time.Now()}
		close(e.ended)
	}()
	return nil
}

// run is the life of a command.
func (f *fake) run(e *fakeExec, argv []string, files [3]*os.File) {
	stdout, stderr := files[1], files[2]
	r := sandbox.Result{Started: e.started}
	switch argv[0] {
	case "echo":
		fmt.Fprintln(stdout, strings.Join(argv[1:], " "))
	case "flood":
		stdout.Write(make([]byte, 8<<20))
	case "sleep":
		fmt.Fprint(stdout, "sleeping\n")
		<-e.killed
	case "cat":
		if files[0] != nil {
			go func() { <-e.killed; files[0].Close() }()
			io.Copy(stdout, files[0])
		}
	case "chatter":
		lines, _ := strconv.Atoi(argv[1])
		f.chatter(e, lines, stdout, stderr)
	case "reach":
		r.ExitCode = 137
		r.OOM = true
		r.Hits = []sandbox.Hit{{Ceiling: sandbox.HitMemory, Scope: "session", Limit: 64 << 20, Peak: 64 << 20, Count: 1}}
		r.Denials = []sandbox.Denial{
			{Layer: "seccomp", Rule: "mount", Syscall: "mount", Errno: "EPERM", Count: 2, At: e.started},
			{Layer: "network", Rule: "not granted", Object: "example.org:443", Errno: "ECONNREFUSED", Grant: "network:egress example.org:443", Count: 1, At: e.started},
		}
		r.Network = sandbox.Traffic{Connections: 1, Refused: 1, Questions: 2, Sent: 80, Received: 4000}
	case "shell":
		f.shell(e, files[0], stdout)
	case "bash":
		r.ExitCode = f.bash(e, argv, files)
	default:
		r.ExitCode = 127
	}
	select {
	case <-e.killed:
		r.ExitCode, r.Signal = -1, 9
	default:
	}
	for _, file := range files {
		if file != nil {
			file.Close()
		}
	}
	r.Ended = time.Now()
	e.result = r
	close(e.ended)
}

// shell is one that answers each line with "ran" and the line, and says where that begins and ends as the hooks would.
func (f *fake) shell(e *fakeExec, stdin io.Reader, stdout io.Writer) {
	go func() { <-e.killed; stdin.(io.Closer).Close() }()
	mark := func(kind string) string {
		return "\x1b]133;" + regexp.MustCompile("[0-9a-f]{32}").FindString(e.terminal.Script) + ";" + kind + "\a"
	}
	prompt := mark("A") + "$ " + mark("B")
	io.WriteString(stdout, mark("N;C")+prompt)
	for lines := bufio.NewScanner(stdin); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "make") { // which takes its time
			time.Sleep(200 * time.Millisecond)
		}
		io.WriteString(stdout, lines.Text()+"\r\n"+mark("C")+"ran "+lines.Text()+"\r\n"+mark("D;0")+prompt)
	}
}

// master is the end of a terminal that is none.
type master struct{ *os.File }

func (master) Resize(int, int) error { return nil }

// bash runs what tests of tools have models ask for, and returns its exit code.
func (f *fake) bash(e *fakeExec, argv []string, files [3]*os.File) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = f.files+"/tmp", []string{"PATH=" + os.Getenv("PATH"), "HOME=/"}
	if files[0] != nil {
		cmd.Stdin = files[0]
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = files[1], files[2], &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 126
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-e.killed:
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		case <-over:
		}
	}()
	cmd.Wait()
	close(over)
	return cmd.ProcessState.ExitCode()
}

func (f *fake) chatter(e *fakeExec, lines int, stdout, stderr io.Writer) {
	for i := range lines {
		if f.pace != nil {
			select {
			case <-f.pace:
			case <-e.killed:
				return
			}
		}
		fmt.Fprintf([]io.Writer{stdout, stderr}[i%2], "line %d %s\n", i, strings.Repeat("x", i%97))
	}
}

// process is what a supervisor gets of a command.
func (e *fakeExec) process() *sandbox.Process {
	done := make(chan sandbox.Result, 1)
	go func() { <-e.ended; done <- e.result }()
	p := &sandbox.Process{Stdout: dup(e.stdout), Stderr: dup(e.stderr), Started: e.started, Done: done}
	if e.stdin != nil {
		p.Stdin = dup(e.stdin)
	}
	if e.terminal != nil {
		p.Stdin = master{dup(e.stdin)}
	}
	return p
}

// exec finds a command; nil when there is none.
func (f *fake) exec(session, exec string) *fakeExec {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ses, ok := f.sessions[session]; ok {
		return ses.execs[exec]
	}
	return nil
}

func (f *fake) Attach(_ context.Context, session, exec string) (*sandbox.Process, error) {
	if e := f.exec(session, exec); e != nil {
		return e.process(), nil
	}
	return nil, sandbox.Errorf(sandbox.CodeNoExec, "there is no execution %s", exec)
}

func (f *fake) Sessions(context.Context) ([]sandbox.Held, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []sandbox.Held
	for _, id := range slices.Sorted(maps.Keys(f.sessions)) {
		held := sandbox.Held{Session: id, Keep: f.sessions[id].keep}
		for _, exec := range slices.Sorted(maps.Keys(f.sessions[id].execs)) {
			e := f.sessions[id].execs[exec]
			x := sandbox.HeldExec{ID: exec, Started: e.started}
			select {
			case <-e.ended:
				x.Ended = true
			default:
			}
			held.Execs = append(held.Execs, x)
		}
		out = append(out, held)
	}
	return out, nil
}

func (f *fake) Forget(session, exec string) {
	if e := f.exec(session, exec); e != nil {
		f.mu.Lock()
		if ses := f.sessions[session]; ses != nil { // it may have been closed meanwhile
			delete(ses.execs, exec)
		}
		f.mu.Unlock()
		e.close()
	}
}

// close gives up what is held for an Attach.
func (e *fakeExec) close() {
	e.stdout.Close()
	e.stderr.Close()
	e.closeStdin()
}

func (e *fakeExec) closeStdin() {
	if e.stdin != nil {
		e.stdin.Close()
	}
}

func (f *fake) Foreground(ctx context.Context, session, exec string, sig int) error {
	return f.Signal(ctx, session, exec, sig)
}

// Connect reaches an echo.
func (f *fake) Connect(_ context.Context, _ string, port uint16) (net.Conn, error) {
	if port != 8000 {
		return nil, sandbox.Errorf(sandbox.CodeNotListening, "nobody")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	c, err := net.Dial("tcp4", l.Addr().String())
	return c, err
}

func (f *fake) CloseStdin(_ context.Context, session, exec string) error {
	if e := f.exec(session, exec); e != nil {
		e.closeStdin()
	}
	return nil
}

// Signal kills: the commands have no handlers.
func (f *fake) Signal(ctx context.Context, session, exec string, _ int) error {
	return f.Kill(ctx, session, exec)
}

func (f *fake) Kill(_ context.Context, session, exec string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ses, ok := f.sessions[session]; ok {
		if e := ses.execs[exec]; e != nil {
			e.kill()
		}
	}
	return nil
}

// kill is called with the lock of the fake.
func (e *fakeExec) kill() {
	select {
	case <-e.killed:
	default:
		close(e.killed)
	}
}

func (f *fake) Freeze(context.Context, string, string, bool) error { return nil }

func (f *fake) Load(context.Context, string) (sandbox.Load, error) { return sandbox.Load{}, nil }

func (f *fake) Collect(_ context.Context, _ string, paths []string) ([]sandbox.Artifact, error) {
	out := make([]sandbox.Artifact, len(paths))
	for i, p := range paths {
		out[i] = sandbox.Artifact{Path: p, Err: "path_not_found"}
	}
	return out, nil
}

// Changes has two changes in every overlay, one with a name of an older time.
func (f *fake) Changes(_ context.Context, _, _, after string, _ int) ([]sandbox.Change, bool, error) {
	if after >= "main.go" {
		return nil, false, nil
	}
	return []sandbox.Change{{Path: "caf\xe9.txt", Kind: "added", Type: "file", Mode: 0o644, Size: 7}, {Path: "main.go", Kind: "modified", Type: "file", Mode: 0o644, Size: 42}}, false, nil
}

func (f *fake) Commit(_ context.Context, _, _ string, paths []string) (sandbox.Committed, error) {
	return sandbox.Committed{Applied: 1}, nil
}

func (f *fake) Discard(context.Context, string, string) error { return nil }

func (f *fake) Narrow(context.Context, string, sandbox.Network) (int64, error) { return 1, nil }

func (f *fake) Close(_ context.Context, session string) (sandbox.Usage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ses, ok := f.sessions[session]
	if !ok {
		return sandbox.Usage{}, sandbox.Errorf(sandbox.CodeNoSession, "there is no session %s", session)
	}
	for _, e := range ses.execs {
		e.kill()
		e.close()
	}
	delete(f.sessions, session)
	return sandbox.Usage{}, nil
}

func pipe() (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	return r, w
}

// dup returns another descriptor of the same file, polled if that is.
func dup(file *os.File) *os.File {
	conn, err := file.SyscallConn()
	if err != nil {
		panic(err)
	}
	fd := -1
	failed := conn.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err := cmp.Or(failed, err); err != nil {
		panic(err)
	}
	return os.NewFile(uintptr(fd), file.Name())
}
