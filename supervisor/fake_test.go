package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/launch"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// fake is a launcher without a kernel: commands are Go functions, by argv[0]. It needs
// neither privilege nor isolation (R262).
type fake struct {
	now      func() time.Time
	host     sandbox.Host
	done     chan struct{}
	openErr  error             // of the next Open
	hook     func(call string) // sees every call before it happens
	resolve  func(path string) (sandbox.Source, *sandbox.Error)
	hang     bool              // Resolve and Open answer when their ctx ends
	artifact map[string]string // inside path to content
	files    string            // directory in which file tools work
	mounted  []string          // in every session, as the evidence says
	reports  map[string]string // of every session
	degraded []string          // layers that every session is without

	mu        sync.Mutex
	calls     []string
	specs     map[string]sandbox.Spec
	execs     map[string]*process
	frozen    map[string]bool             // sessions
	changes   []sandbox.Change            // of every overlay, until it is discarded
	slowly    func(context.Context) error // a part of each Commit
	spaceErr  error                       // of the next Commit
	networks  map[string]sandbox.Network  // by session, once narrowed
	load      sandbox.Load                // of every session
	listening map[uint16]string           // ports inside to addresses of the test's
}

func newFake() *fake {
	return &fake{
		now: time.Now,
		host: sandbox.Host{Kernel: "test", Arch: "amd64", Cgroup: "v2", CPUs: 2, Memory: 1 << 30, Layers: []sandbox.Layer{
			{Name: "user namespaces", State: "present", Required: true},
		}},
		done:     make(chan struct{}),
		specs:    map[string]sandbox.Spec{},
		execs:    map[string]*process{},
		frozen:   map[string]bool{},
		networks: map[string]sandbox.Network{},
		artifact: map[string]string{},
	}
}

// process is a running command.
type process struct {
	exec           sandbox.Exec
	stdin          string
	stdout, stderr *conduit
	started        time.Time
	says           *sandbox.Result // what the layers say of it, if the command has them say it
	result         *sandbox.Result // once it has ended
	ended          chan struct{}
	frozen         bool
	pending        []int         // signals that came while it was frozen
	input          net.Conn      // of an open stdin: the command's end
	inputW         net.Conn      // the runner's; nil once it has been closed
	signals        chan int      // delivered signals
	killed         chan struct{} // closed by Kill
	kill           sync.Once
	lost           chan struct{} // closed with the runner
}

// conduit is a pipe whose readers come and go: what one does not read is there for the next.
type conduit struct {
	mu     sync.Mutex
	moved  *sync.Cond
	bytes  []byte
	closed bool
}

func newConduit() *conduit {
	c := &conduit{}
	c.moved = sync.NewCond(&c.mu)
	return c
}

func (c *conduit) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes = append(c.bytes, p...)
	c.moved.Broadcast()
	return len(p), nil
}

func (c *conduit) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.moved.Broadcast()
	return nil
}

// tap is one reader of a conduit.
type tap struct {
	*conduit
	over bool
}

func (t *tap) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.bytes) == 0 && !t.conduit.closed && !t.over {
		t.moved.Wait()
	}
	switch {
	case t.over:
		return 0, os.ErrClosed
	case len(t.bytes) == 0:
		return 0, io.EOF
	}
	n := copy(p, t.bytes)
	t.bytes = t.bytes[n:]
	return n, nil
}

func (t *tap) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.moved.Broadcast()
	return nil
}

// exit ends a command: an exit code, or a signal.
type exit struct {
	code, signal int
	oom          bool
	hold         bool // leave the pipes open, as a background process does
}

// commands of the fake. A command returns when it ends; one that is killed is ended for it.
var commands = map[string]func(*process) exit{
	"true":  func(*process) exit { return exit{} },
	"false": func(*process) exit { return exit{code: 1} },
	"exit":  func(p *process) exit { n, _ := strconv.Atoi(p.exec.Argv[1]); return exit{code: n} },
	"echo":  func(p *process) exit { fmt.Fprint(p.stdout, strings.Join(p.exec.Argv[1:], " ")); return exit{} },
	"both": func(p *process) exit {
		fmt.Fprint(p.stdout, "out")
		fmt.Fprint(p.stderr, "err")
		return exit{}
	},
	"bytes": func(p *process) exit { p.stdout.Write([]byte{0xff}); return exit{} },
	"env":   func(p *process) exit { fmt.Fprint(p.stdout, strings.Join(p.exec.Env, "\n")); return exit{} },
	"pwd":   func(p *process) exit { fmt.Fprint(p.stdout, p.exec.Cwd); return exit{} },
	"cat":   func(p *process) exit { fmt.Fprint(p.stdout, p.stdin); return exit{} },
	"flood": func(p *process) exit { n, _ := strconv.Atoi(p.exec.Argv[1]); p.write(n); return exit{} },
	"abort": func(*process) exit { return exit{signal: 6} },
	"hog":   func(*process) exit { return exit{signal: 9, oom: true} },
	"shhog": func(*process) exit { return exit{code: 137, oom: true} },
	"daemon": func(p *process) exit {
		fmt.Fprint(p.stdout, "started")
		return exit{hold: true}
	},
	// sleep prints, then waits for the signal that ends it.
	"sleep": func(p *process) exit {
		fmt.Fprint(p.stdout, "sleeping")
		for {
			select {
			case sig := <-p.signals:
				if sig == int(syscall.SIGTERM) || sig == int(syscall.SIGINT) {
					return exit{signal: sig}
				}
			case <-p.killed:
				return exit{signal: 9}
			}
		}
	},
	// polite ends with exit code 0 when asked to.
	"polite": func(p *process) exit {
		select {
		case <-p.signals:
			return exit{}
		case <-p.killed:
			return exit{signal: 9}
		}
	},
	// stubborn ends only by KILL.
	"stubborn": func(p *process) exit { <-p.killed; return exit{signal: 9} },
	// read prints what it reads, until the end of its stdin.
	"read": func(p *process) exit {
		go func() {
			select {
			case <-p.killed:
				p.input.Close()
			case <-p.ended:
			}
		}()
		io.Copy(p.stdout, p.input)
		if isClosed(p.killed) {
			return exit{signal: 9}
		}
		return exit{}
	},
	// swallow reads all of its stdin and says how much it was.
	"swallow": func(p *process) exit {
		go func() {
			select {
			case <-p.killed:
				p.input.Close()
			case <-p.ended:
			}
		}()
		n, _ := io.Copy(io.Discard, p.input)
		fmt.Fprint(p.stdout, n)
		if isClosed(p.killed) {
			return exit{signal: 9}
		}
		return exit{}
	},
	// sip reads so many bytes, and then no more.
	"sip": func(p *process) exit {
		n, _ := strconv.Atoi(p.exec.Argv[1])
		io.CopyN(p.stdout, p.input, int64(n))
		<-p.killed
		return exit{signal: 9}
	},
	// bash is a shell that says where its commands begin and end, as the hooks would have it: "sleep" lasts until the next
	// line, an empty line is no command, and of others it says that they ran.
	"bash": func(p *process) exit {
		go func() {
			select {
			case <-p.killed:
			case <-p.signals: // a hang-up
			case <-p.ended:
			}
			p.input.Close()
		}()
		nonce, _, _ := strings.Cut(strings.SplitAfter(p.exec.Terminal.Script, "]133;")[1], ";")
		mark := func(kind string) string { return "\x1b]133;" + nonce + ";" + kind + "\a" }
		prompt := mark("A") + "$ " + mark("B")
		fmt.Fprint(p.stdout, mark("N;C")+prompt)
		for lines := bufio.NewScanner(p.input); lines.Scan(); {
			switch line := lines.Text(); line {
			case "":
				fmt.Fprint(p.stdout, mark("D;0")+prompt)
			case "sleep":
				fmt.Fprint(p.stdout, mark("C"))
				lines.Scan()
				fmt.Fprint(p.stdout, mark("D;0")+prompt)
			case "exit":
				fmt.Fprint(p.stdout, mark("C"))
				return exit{code: 3}
			default:
				fmt.Fprint(p.stdout, mark("C")+"ran "+line+"\r\n"+mark("D;7")+prompt)
			}
		}
		if isClosed(p.killed) {
			return exit{signal: 9}
		}
		return exit{signal: 1}
	},
	// repl asks for lines, and says nothing of where they begin and end: "think" takes it a minute, and after a line with "..." it waits
	// behind half a line.
	"repl": func(p *process) exit {
		go func() {
			select {
			case <-p.killed:
			case <-p.signals:
			case <-p.ended:
			}
			p.input.Close()
		}()
		fmt.Fprint(p.stdout, "welcome\r\n>>> ")
		for lines := bufio.NewScanner(p.input); lines.Scan(); {
			switch line := lines.Text(); line {
			case "think":
				fmt.Fprint(p.stdout, "well\r\n")
				time.Sleep(time.Minute)
				fmt.Fprint(p.stdout, ">>> ")
			case "...":
				fmt.Fprint(p.stdout, "half a line")
			default:
				fmt.Fprint(p.stdout, "said "+line+"\r\n>>> ")
			}
		}
		return exit{signal: 1}
	},
	// undead does not even end by KILL; only with the runner.
	"undead": func(p *process) exit { <-p.lost; return exit{} },
	// for sleeps for a duration and exits.
	"for": func(p *process) exit {
		d, _ := time.ParseDuration(p.exec.Argv[1])
		select {
		case <-time.After(d):
			return exit{}
		case <-p.signals:
			return exit{signal: 15}
		case <-p.killed:
			return exit{signal: 9}
		}
	},
}

// write writes n bytes, a position-dependent pattern.
func (p *process) write(n int) { p.stdout.Write(pattern(n)) }

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

func (f *fake) note(call string) {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		hook(call)
	}
}

// called counts the calls that begin with prefix.
func (f *fake) called(prefix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

func (f *fake) Host() sandbox.Host { return f.host }

func (f *fake) Done() <-chan struct{} { return f.done }

func (f *fake) Resolve(ctx context.Context, _ sandbox.Caller, paths []string) ([]launch.Resolved, error) {
	f.note("resolve")
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	out := make([]launch.Resolved, len(paths))
	for i, p := range paths {
		if f.resolve != nil {
			out[i].Source, out[i].Err = f.resolve(p)
			continue
		}
		out[i].Source = sandbox.Source{Path: p, Resolved: p, Dev: 1, Ino: uint64(i + 1), Kind: "dir", Mode: 0o755}
	}
	return out, nil
}

func (f *fake) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Enforced, error) {
	f.note("open")
	if f.hang {
		<-ctx.Done()
		return sandbox.Enforced{}, ctx.Err()
	}
	if f.openErr != nil {
		return sandbox.Enforced{}, f.openErr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs[spec.Session] = spec
	return sandbox.Enforced{
		Namespaces: map[string]uint64{"user": 1}, NoNewPrivs: true, Seccomp: 2,
		MemoryBytes: spec.Limits.MemoryBytes, CPUMillis: spec.Limits.CPUMillis, PIDs: spec.Limits.PIDs, Cgroup: "v2", Mounts: f.mounted,
		Reports: f.reports, Degraded: f.degraded,
	}, nil
}

func (f *fake) Start(_ context.Context, x sandbox.Exec, stdin *os.File) (*sandbox.Process, error) {
	if x.Files {
		return f.serveFiles(x, stdin)
	}
	f.note("start " + x.Argv[0])
	f.mu.Lock()
	frozen := f.frozen[x.Session]
	f.mu.Unlock()
	if frozen {
		return nil, sandbox.Errorf(sandbox.CodeFrozen, "session %s is frozen", x.Session)
	}
	run := commands[x.Argv[0]]
	if run == nil {
		return nil, sandbox.Errorf(sandbox.CodeSpawn, "%s: no such file or directory", x.Argv[0])
	}
	p := &process{exec: x, started: f.now(), ended: make(chan struct{}), signals: make(chan int, 16), killed: make(chan struct{}), lost: make(chan struct{})}
	if stdin != nil {
		b, _ := io.ReadAll(stdin)
		p.stdin = string(b)
	}
	if x.StdinOpen {
		p.input, p.inputW = net.Pipe()
	}
	p.stdout, p.stderr = newConduit(), newConduit()
	f.mu.Lock()
	f.execs[x.ID] = p
	f.mu.Unlock()
	go func() {
		e := run(p)
		if p.input != nil {
			p.input.Close()
		}
		if !e.hold {
			p.stdout.Close()
			p.stderr.Close()
		}
		r := sandbox.Result{ExitCode: e.code, Signal: e.signal, OOM: e.oom, Started: p.started, Ended: f.now()}
		if p.says != nil {
			r.Hits, r.Denials, r.Dropped, r.Network = p.says.Hits, p.says.Denials, p.says.Dropped, p.says.Network
		}
		if e.signal != 0 {
			r.ExitCode = -1
		}
		if e.oom {
			r.Usage.OOMKills = 1
		}
		f.mu.Lock()
		p.result = &r
		f.mu.Unlock()
		close(p.ended)
	}()
	return f.handle(p), nil
}

// serveFiles is the start of a file worker, in a directory of the test's.
func (f *fake) serveFiles(x sandbox.Exec, stdin *os.File) (*sandbox.Process, error) {
	f.note("start files")
	ended, err := testbox.ServeFiles(stdin, f.files)
	if err != nil {
		return nil, err
	}
	p := &process{exec: x, started: f.now(), ended: make(chan struct{}), signals: make(chan int, 16), killed: make(chan struct{}), lost: make(chan struct{})}
	p.stdout, p.stderr = newConduit(), newConduit()
	f.mu.Lock()
	f.execs[x.ID] = p
	f.mu.Unlock()
	go func() {
		r := sandbox.Result{Started: p.started}
		select {
		case r.ExitCode = <-ended:
		case <-p.killed:
			r.ExitCode, r.Signal = -1, 9
		}
		p.stdout.Close()
		p.stderr.Close()
		r.Ended = f.now()
		f.mu.Lock()
		p.result = &r
		f.mu.Unlock()
		close(p.ended)
	}()
	return f.handle(p), nil
}

// handle gives what a daemon holds of a process.
func (f *fake) handle(p *process) *sandbox.Process {
	done := make(chan sandbox.Result, 1)
	go func() {
		<-p.ended
		select {
		case <-p.lost:
			close(done)
		default:
			done <- *p.result
		}
	}()
	h := &sandbox.Process{Stdout: &tap{conduit: p.stdout}, Stderr: &tap{conduit: p.stderr}, Started: p.started, Done: done}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.inputW != nil {
		p.inputW.SetWriteDeadline(time.Time{})
		h.Stdin = &inlet{Conn: p.inputW}
		if p.exec.Terminal != nil {
			h.Stdin = master{&inlet{Conn: p.inputW}}
		}
	}
	return h
}

// master is that of a terminal.
type master struct{ *inlet }

func (master) Resize(int, int) error { return nil }

// inlet is what a daemon holds of a pipe of which the runner has a duplicate: to close it is not the
// end of the pipe.
type inlet struct {
	net.Conn
	closed atomic.Bool
}

func (i *inlet) Write(b []byte) (int, error) {
	n, err := i.Conn.Write(b)
	if i.closed.Load() {
		err = os.ErrClosed
	}
	return n, err
}

func (i *inlet) Close() error {
	i.closed.Store(true)
	return i.Conn.SetWriteDeadline(time.Unix(1, 0))
}

func (f *fake) Sessions(context.Context) ([]sandbox.Held, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var held []sandbox.Held
	for id, spec := range f.specs {
		h := sandbox.Held{Session: id, Keep: spec.Keep}
		for _, p := range f.execs {
			if p.exec.Session == id {
				h.Execs = append(h.Execs, sandbox.HeldExec{ID: p.exec.ID, Started: p.started, Ended: p.result != nil})
			}
		}
		held = append(held, h)
	}
	return held, nil
}

func (f *fake) Attach(_ context.Context, _, exec string) (*sandbox.Process, error) {
	f.note("attach")
	p := f.process(exec)
	if p == nil {
		return nil, sandbox.Errorf(sandbox.CodeNoExec, "no execution %s", exec)
	}
	return f.handle(p), nil
}

func (f *fake) Forget(_, exec string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "forget") // no hook: it comes when the receipt has been answered, beside the test
	if p := f.execs[exec]; p != nil && p.result != nil {
		delete(f.execs, exec)
	}
}

// Foreground is Signal: whoever runs is in the foreground.
func (f *fake) Foreground(ctx context.Context, session, exec string, sig int) error {
	return f.Signal(ctx, session, exec, sig)
}

// Connect reaches a listener of the test's.
func (f *fake) Connect(ctx context.Context, session string, port uint16) (net.Conn, error) {
	f.note("connect")
	f.mu.Lock()
	address := f.listening[port]
	f.mu.Unlock()
	if address == "" {
		return nil, sandbox.Errorf(sandbox.CodeNotListening, "nobody")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func (f *fake) CloseStdin(_ context.Context, _, exec string) error {
	f.note("close stdin")
	p := f.process(exec)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p != nil && p.inputW != nil {
		p.inputW.Close()
		p.inputW = nil
	}
	return nil
}

func (f *fake) Freeze(_ context.Context, session, exec string, frozen bool) error {
	f.note(fmt.Sprintf("freeze %t", frozen))
	f.mu.Lock()
	defer f.mu.Unlock()
	if exec == "" {
		f.frozen[session] = frozen
	} else if p := f.execs[exec]; p == nil || p.result != nil {
		return sandbox.Errorf(sandbox.CodeNoExec, "no execution %s", exec)
	} else {
		p.frozen = frozen
	}
	for _, p := range f.execs {
		if p.exec.Session == session && !p.frozen && !f.frozen[session] {
			for _, sig := range p.pending {
				p.signals <- sig
			}
			p.pending = nil
		}
	}
	return nil
}

func (f *fake) Load(context.Context, string) (sandbox.Load, error) {
	f.note("load")
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.load, nil
}

// lose is the end of the runner: every process and every session with it.
func (f *fake) lose() {
	close(f.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.execs {
		close(p.lost)
		p.kill.Do(func() { close(p.killed) })
	}
}

func (f *fake) process(exec string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.execs[exec]
}

func (f *fake) Signal(_ context.Context, _, exec string, sig int) error {
	f.note(fmt.Sprintf("signal %d", sig))
	p := f.process(exec)
	if p == nil || isClosed(p.ended) {
		return sandbox.Errorf(sandbox.CodeNoExec, "no execution %s", exec)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.frozen || f.frozen[p.exec.Session] {
		p.pending = append(p.pending, sig)
		return nil
	}
	p.signals <- sig
	return nil
}

func (f *fake) Kill(_ context.Context, _, exec string) error {
	f.note("kill")
	p := f.process(exec)
	if p == nil {
		return sandbox.Errorf(sandbox.CodeNoExec, "no execution %s", exec)
	}
	p.kill.Do(func() { close(p.killed) })
	return nil
}

func (f *fake) Collect(_ context.Context, _ string, paths []string) ([]sandbox.Artifact, error) {
	f.note("collect")
	var out []sandbox.Artifact
	for _, p := range paths {
		if p == "/work/names" { // a tree in which a command has chosen them all
			for range 1024 {
				out = append(out, sandbox.Artifact{Path: p + strings.Repeat("\x01", 4000), Err: "not_regular"})
			}
			continue
		}
		if p == "/work/latin1" {
			out = append(out, sandbox.Artifact{Path: "/work/caf\xe9", Err: "not_regular"})
			continue
		}
		content, ok := f.artifact[p]
		if !ok {
			out = append(out, sandbox.Artifact{Path: p, Err: "path_not_found"})
			continue
		}
		file, err := memoryFile(strings.NewReader(content))
		if err != nil {
			return out, err
		}
		out = append(out, sandbox.Artifact{Path: p, File: file, Size: int64(len(content)), Mode: 0o644})
	}
	return out, nil
}

func (f *fake) Changes(_ context.Context, _, target, after string, limit int) ([]sandbox.Change, bool, error) {
	f.note("changes " + target)
	f.mu.Lock()
	defer f.mu.Unlock()
	var page []sandbox.Change
	for _, c := range f.changes {
		if c.Path <= after {
			continue
		}
		if len(page) == limit {
			return page, true, nil
		}
		page = append(page, c)
	}
	return page, false, nil
}

func (f *fake) Commit(ctx context.Context, _, target string, paths []string) (sandbox.Committed, error) {
	f.note("commit " + target)
	if f.slowly != nil {
		if err := f.slowly(ctx); err != nil {
			return sandbox.Committed{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.spaceErr != nil {
		return sandbox.Committed{Applied: 1, Left: paths}, f.spaceErr
	}
	done := sandbox.Committed{Applied: int64(len(f.changes))}
	for _, p := range paths {
		if !slices.ContainsFunc(f.changes, func(c sandbox.Change) bool { return c.Path == p }) {
			done.Left = append(done.Left, p)
		}
	}
	return done, nil
}

func (f *fake) Discard(_ context.Context, _, target string) error {
	f.note("discard " + target)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = nil
	return nil
}

func (f *fake) Narrow(_ context.Context, session string, n sandbox.Network) (int64, error) {
	f.note("narrow " + n.Mode)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.networks[session] = n
	return 2, nil
}

func (f *fake) Close(_ context.Context, session string) (sandbox.Usage, error) {
	f.note("close")
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.specs[session]; !ok {
		return sandbox.Usage{}, sandbox.Errorf(sandbox.CodeNoSession, "no session %s", session)
	}
	delete(f.specs, session)
	for id, p := range f.execs { // a background process ends with its session
		if p.exec.Session == session {
			p.stdout.Close()
			p.stderr.Close()
			delete(f.execs, id)
		}
	}
	return sandbox.Usage{CPU: time.Second, PeakMemory: 1 << 20}, nil
}

// The policy of the tests: everything is allowed within one grant, but for what says
// "forbidden".
var testPolicy = fstest.MapFS{
	"open.rego": {Data: []byte(`package stockade.open

import rego.v1

default decision := {"allow": false, "deny": [{"code": "no"}]}

decision := {"allow": true, "deny": [], "grant": grant, "warn": ["a warning"]} if {
	object.get(input.request.open, "profile", "") != "forbidden"
}

grant := {
	"profile": "test", "root": "host", "mounts": mounts,
	"scratch": [{"guest_path": "/tmp", "bytes": 1048576, "inodes": 1000}],
	"identity": {"uid": 1000, "gid": 1000},
	"ceilings": {"memory_bytes": 67108864, "cpu_millis": 1000, "pids": 32, "files": 256, "executions": 4,
		"output_bytes": to_number(object.get(input.request.open, ["labels", "output"], "262144"))},
	"seccomp": "default", "network": {
		"mode": object.get(input.request.open.target.local, "network_mode", "none"),
		"allow": object.get(input.request.open.target.local, "egress", []),
	},
	"env": {"allow": ["A", "B", "S", "X_*"], "set": {"FIXED": "policy"}},
	"exec": {
		"max_timeout_ns": 60000000000, "default_timeout_ns": 10000000000, "max_argv": 100, "max_arg_bytes": 10000,
		"max_inline_bytes": 32768, "cwd_prefixes": ["/work", "/tmp"], "output_prefixes": ["/work"],
		"signals": ["TERM", "KILL", "INT", "HUP"],
		"background": object.get(input.request.open, ["labels", "background"], "no") == "yes",
		"queue": object.get(input.request.open, ["labels", "queue"], "yes") == "yes",
	},
	"workdir": "/work", "hostname": "", "ttl_ns": 3600000000000,
	"idle_timeout_ns": to_number(object.get(input.request.open, ["labels", "idle"], "0")),
}

mounts := [object.union({"host_path": m.host_path, "guest_path": m.guest_path, "mode": m.mode}, room[m.mode]) |
	some m in object.get(input.request.open.target.local, "mounts", [])
]

room := {"ro": {}, "rw": {}, "overlay": {"bytes": 1048576, "inodes": 1000}}
`)},
	"exec.rego": {Data: []byte(`package stockade.exec

import rego.v1

default decision := {"allow": false, "deny": [{"code": "no"}]}

default word := ""

word := input.request.exec.argv[1]

decision := {"allow": true, "deny": [], "obligations": {"output": "blob"}} if word == "asblob"

decision := {"allow": true, "deny": [], "limits": {"timeout_ns": 1000000000}} if word == "brief"

decision := {"allow": true, "deny": [], "limits": {"timeout_ns": 20000000000}} if word == "lengthy"

decision := {"allow": true, "deny": []} if not word in {"asblob", "brief", "lengthy", "forbidden"}
`)},
	"signal.rego": {Data: []byte(`package stockade.signal

import rego.v1

decision := {"allow": false, "deny": [{"code": "kept"}]} if input.process.labels.keep == input.session.labels.keep

decision := {"allow": true, "deny": []} if not kept

kept if input.process.labels.keep == input.session.labels.keep
`)},
	"workspace.rego": {Data: []byte(`package stockade.workspace

import rego.v1

default decision := {"allow": false, "deny": [{"code": "no"}]}

decision := {"allow": true, "deny": []} if not "secret" in object.get(input.request.workspace, "paths", [])
`)},
	"blob.rego": {Data: []byte(`package stockade.blob

import rego.v1

default decision := {"allow": false, "deny": [{"code": "no"}]}

decision := {"allow": true, "deny": []} if object.get(input.request, ["blob", "size_bytes"], 0) < 1000000
`)},
	"read.rego": {Data: []byte(`package stockade.read

import rego.v1

default decision := {"allow": false, "deny": [{"code": "no"}]}

decision := {"allow": true, "deny": []} if {
	object.get(input.request, ["read", "state"], "") != "error"
	not input.process.labels.hidden
}
`)},
}

// bench is a supervisor on a fake, in a state directory of its own.
type bench struct {
	*Supervisor
	t     *testing.T
	fake  *fake
	state string
	cfg   Config

	closers []func()
}

func start(t *testing.T) *bench {
	t.Helper()
	return startOn(t, newFake(), t.TempDir()+"/state", nil)
}

// startOn starts on a state directory that may have a past. A policy is loaded unless
// change sets one: inside a bubble of synctest its goroutines must be the bubble's.
func startOn(t *testing.T, f *fake, state string, change func(*Config)) *bench {
	t.Helper()
	cfg := Config{State: state, Launcher: f, Version: "test", Log: testLog(t)}
	if change != nil {
		change(&cfg)
	}
	b := &bench{t: t, fake: f, state: state}
	if cfg.Policy == nil && cfg.Policies.Open == nil {
		cfg.Policy = loadPolicy(t)
		b.closers = append(b.closers, cfg.Policy.Close)
	}
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Supervisor, b.cfg = s, cfg
	return b
}

func loadPolicy(t *testing.T) *rego.Engine {
	t.Helper()
	policy, err := rego.Load(testPolicy, rego.Options{Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func (b *bench) stop() {
	if err := b.Supervisor.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
	b.stopPolicy()
}

func (b *bench) stopPolicy() {
	for _, close := range b.closers {
		close()
	}
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

var alice = api.Principal{UID: 1000, GID: 1000}

func (b *bench) do(req api.Request) *api.Receipt {
	b.t.Helper()
	if req.Principal.UID == 0 {
		req.Principal = alice
	}
	req.Facade = "test"
	r, err := b.Do(context.Background(), &req, nil)
	if err != nil {
		b.t.Fatalf("%s: %v", req.Op, err)
	}
	return r
}

func (b *bench) open(change ...func(*api.SessionOpen)) *api.Receipt {
	b.t.Helper()
	open := &api.SessionOpen{Target: api.Target{Local: &api.Local{}}}
	for _, c := range change {
		c(open)
	}
	return b.do(api.Request{Op: api.OpSessionOpen, Open: open})
}

// session opens one and returns its id.
func (b *bench) session(change ...func(*api.SessionOpen)) string {
	b.t.Helper()
	r := b.open(change...)
	if r.Outcome != api.OutcomeOK {
		b.t.Fatalf("open: %s %s %s %v", r.Outcome, r.ErrorCode, r.ErrorMessage, r.Deny)
	}
	return r.SessionID
}

func (b *bench) exec(id string, argv ...string) *api.Receipt {
	b.t.Helper()
	return b.execute(api.Exec{SessionID: id, Argv: argv})
}

func (b *bench) execute(x api.Exec) *api.Receipt {
	b.t.Helper()
	return b.do(api.Request{Op: api.OpExec, Exec: &x})
}

func (b *bench) close(id string) *api.Receipt {
	b.t.Helper()
	return b.do(api.Request{Op: api.OpSessionClose, Close: &api.SessionClose{SessionID: id}})
}

func (b *bench) signal(id string, sig api.SignalName, grace ...time.Duration) *api.Receipt {
	b.t.Helper()
	ask := &api.SessionSignal{SessionID: id, Signal: sig}
	if len(grace) > 0 {
		ns := int64(grace[0])
		ask.GraceNS = &ns
	}
	return b.do(api.Request{Op: api.OpSessionSignal, Signal: ask})
}
