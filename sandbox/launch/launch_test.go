package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stockade-dev/stockade/internal/packet"

	"github.com/stockade-dev/stockade/sandbox"
)

// fake is a handler without a kernel below it. Sessions and executions whose name says so
// behave accordingly. What is started in a session that was opened is held.
type fake struct {
	t            testing.TB
	disconnected chan struct{} // one for each time
	abandoned    chan struct{} // and this
	starting     chan struct{} // and for each start that goes on until its caller leaves

	hang chan struct{} // until it is closed, paths below /hang, the session stuck and a start that is tardy do not answer

	mu       sync.Mutex
	exited   map[string]func(sandbox.Result)
	read     string       // what the last start found in its stdin
	resolves int          // that hang
	opens    int          // and these
	starts   int          // and wait until their caller leaves
	looks    map[kind]int // and what else looks at the files of the session stuck
	closed   []string
	sessions map[string]sandbox.Spec
	held     map[target]*fakeExec
	frozen   map[target]bool
}

// fakeExec is an execution that the fake holds.
type fakeExec struct {
	streams  Streams
	result   *sandbox.Result
	watchers []func(sandbox.Result)
}

// duplicates are what is given away.
func (x *fakeExec) duplicates(t testing.TB) Streams {
	out := Streams{Started: x.streams.Started}
	for _, p := range []struct{ from, to **os.File }{
		{&x.streams.Stdin, &out.Stdin}, {&x.streams.Stdout, &out.Stdout}, {&x.streams.Stderr, &out.Stderr},
	} {
		if *p.from == nil {
			continue
		}
		fd, err := unix.FcntlInt((*p.from).Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
		}
		*p.to = os.NewFile(uintptr(fd), "duplicate")
	}
	return out
}

func (f *fake) Host() sandbox.Host { return sandbox.Host{Kernel: "6.18", CPUs: 2} }

// Owner of a session that is stuck is another user than that of all others.
func (f *fake) Owner(session string) (uid uint32, err error) {
	if session == "stuck" {
		return 7, nil
	}
	return 0, nil
}

// look hangs where the session does.
func (f *fake) look(k kind, session string) {
	if session != "stuck" {
		return
	}
	f.mu.Lock()
	f.looks[k]++
	f.mu.Unlock()
	<-f.hang
}

func (f *fake) Resolve(_ context.Context, c sandbox.Caller, paths []string) ([]Resolved, error) {
	out := make([]Resolved, len(paths))
	for i, p := range paths {
		if p == "/hang" {
			f.mu.Lock()
			f.resolves++
			f.mu.Unlock()
			<-f.hang
		}
		if p == "/odd" { // a link to what has a name that is not UTF-8
			out[i].Source = sandbox.Source{Path: p, Resolved: "/\xff"}
			continue
		}
		if strings.HasPrefix(p, "/no/") {
			out[i].Err = sandbox.Errorf(sandbox.CodeMountSource, "%s for %d", p, c.UID)
			continue
		}
		out[i].Source = sandbox.Source{Path: p, Resolved: p, Ino: uint64(len(p)), OwnerUID: c.UID}
	}
	return out, nil
}

func (f *fake) Open(ctx context.Context, s sandbox.Spec) (sandbox.Enforced, error) {
	switch s.Session {
	case "slow":
		<-ctx.Done()
		return sandbox.Enforced{}, ctx.Err()
	case "deaf":
		<-ctx.Done() // and is built all the same
	case "stuck":
		f.mu.Lock()
		f.opens++
		f.mu.Unlock()
		<-f.hang
	case "refused":
		return sandbox.Enforced{}, fmt.Errorf("open: %w", sandbox.Errorf(sandbox.CodeCeiling, "too much"))
	case "broken":
		return sandbox.Enforced{}, errors.New("mount /proc: no")
	case "odd":
		return sandbox.Enforced{}, sandbox.Errorf(sandbox.CodeMountSource, "open /\xff: no")
	}
	if s.Session != "" {
		f.mu.Lock()
		f.sessions[s.Session] = s
		f.mu.Unlock()
	}
	return sandbox.Enforced{Namespaces: map[string]uint64{"user": 1 << 60}, Capabilities: 1<<64 - 1, Mounts: []string{s.Session}}, nil
}

func (f *fake) Start(ctx context.Context, e sandbox.Exec, stdin *os.File, exited func(sandbox.Result)) (Streams, error) {
	if stdin != nil {
		b, err := io.ReadAll(stdin)
		if err != nil {
			f.t.Error(err)
		}
		stdin.Close()
		f.mu.Lock()
		f.read = string(b)
		f.mu.Unlock()
	}
	if e.ID == "refused" {
		return Streams{}, sandbox.Errorf(sandbox.CodeSpawn, "no such command")
	}
	if e.ID == "slow" || e.ID == "deaf" {
		f.mu.Lock()
		f.starts++
		f.mu.Unlock()
		f.starting <- struct{}{}
		<-ctx.Done()
		f.mu.Lock()
		f.starts--
		f.mu.Unlock()
	}
	if e.ID == "tardy" {
		f.starting <- struct{}{}
		select {
		case <-ctx.Done():
			return Streams{}, ctx.Err()
		case <-f.hang:
		}
	}
	if e.ID == "slow" {
		return Streams{}, ctx.Err()
	}
	var p [6]int
	for i := 0; i < 6; i += 2 {
		if err := unix.Pipe2(p[i:i+2], unix.O_CLOEXEC); err != nil {
			return Streams{}, err
		}
	}
	for i, fd := range []int{p[1], p[3]} {
		w := os.NewFile(uintptr(fd), "w")
		fmt.Fprintf(w, "%s %d", e.ID, i+1)
		w.Close()
	}
	x := &fakeExec{streams: Streams{Stdout: os.NewFile(uintptr(p[0]), "stdout"), Stderr: os.NewFile(uintptr(p[2]), "stderr"), Started: time.Unix(1, 1).UTC()}}
	if !e.StdinOpen {
		packet.CloseAll(p[4:])
	} else {
		x.streams.Stdin = os.NewFile(uintptr(p[5]), "stdin")
		r := os.NewFile(uintptr(p[4]), "stdin")
		go func() { // the command ends with its input
			b, _ := io.ReadAll(r)
			r.Close()
			f.end(target{e.Session, e.ID}, sandbox.Result{ExitCode: len(b)})
		}()
	}
	streams := x.streams
	f.mu.Lock()
	_, held := f.sessions[e.Session]
	if held {
		streams = x.duplicates(f.t)
		f.held[target{e.Session, e.ID}] = x
		x.watchers = append(x.watchers, exited)
	} else if e.Background {
		f.exited[e.ID] = exited
	}
	f.mu.Unlock()
	switch {
	case held && !e.Background && !e.StdinOpen:
		f.end(target{e.Session, e.ID}, resultOf(e.ID))
	case !held && !e.Background:
		exited(resultOf(e.ID)) // before the start is answered
	}
	return streams, nil
}

// end ends an execution that is held.
func (f *fake) end(id target, r sandbox.Result) {
	f.mu.Lock()
	x := f.held[id]
	var watchers []func(sandbox.Result)
	if x != nil {
		x.result, watchers = &r, x.watchers
	}
	f.mu.Unlock()
	for _, exited := range watchers {
		exited(r)
	}
}

func (f *fake) Sessions() []sandbox.Held {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []sandbox.Held
	for _, id := range slices.Sorted(maps.Keys(f.sessions)) {
		h := sandbox.Held{Session: id, Keep: f.sessions[id].Keep, Execs: []sandbox.HeldExec{}}
		for at, x := range f.held {
			if at.Session == id {
				h.Execs = append(h.Execs, sandbox.HeldExec{ID: at.Exec, Started: x.streams.Started, Ended: x.result != nil})
			}
		}
		slices.SortFunc(h.Execs, func(a, b sandbox.HeldExec) int { return strings.Compare(a.ID, b.ID) })
		out = append(out, h)
	}
	return out
}

func (f *fake) Attach(session, exec string, exited func(sandbox.Result)) (Streams, error) {
	f.mu.Lock()
	x := f.held[target{session, exec}]
	if x == nil {
		f.mu.Unlock()
		return Streams{}, sandbox.Errorf(sandbox.CodeNoExec, "%s/%s", session, exec)
	}
	if x.result == nil {
		x.watchers = append(x.watchers, exited)
	}
	streams, result := x.duplicates(f.t), x.result
	f.mu.Unlock()
	if result != nil {
		exited(*result)
	}
	return streams, nil
}

func (f *fake) Forget(session, exec string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.held[target{session, exec}]; x != nil {
		x.streams.Close()
		delete(f.held, target{session, exec})
	}
}

func (f *fake) Connect(_ context.Context, session string, port uint16) (*os.File, error) {
	if session != "s" {
		return nil, sandbox.Errorf(sandbox.CodeNoSession, "%s", session)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return nil, sandbox.Errorf(sandbox.CodeNotListening, "%v", err)
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

func (f *fake) CloseStdin(session, exec string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.held[target{session, exec}]
	if x == nil {
		return sandbox.Errorf(sandbox.CodeNoExec, "%s/%s", session, exec)
	}
	x.streams.Stdin.Close()
	x.streams.Stdin = nil
	return nil
}

func (f *fake) Foreground(_ context.Context, session, exec string, _ int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[target{session, exec}] == nil {
		return sandbox.Errorf(sandbox.CodeNoExec, "%s/%s", session, exec)
	}
	return nil
}

func (f *fake) Freeze(_ context.Context, session, exec string, frozen bool) error {
	f.look(kindFreeze, session)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen[target{session, exec}] = frozen
	return nil
}

func (f *fake) Load(session string) (sandbox.Load, error) {
	return sandbox.Load{MemoryBytes: 1 << 40, PIDs: int64(len(session))}, nil
}

func resultOf(id string) sandbox.Result {
	return sandbox.Result{
		ExitCode: len(id), OOM: true, Usage: sandbox.Usage{CPU: 1500 * time.Microsecond, PeakMemory: 1 << 40},
		Started: time.Unix(1, 1).UTC(), Ended: time.Unix(2, 999).UTC(),
	}
}

func (f *fake) Signal(_ context.Context, session, exec string, sig int) error {
	f.mu.Lock()
	if f.held[target{session, exec}] != nil {
		f.mu.Unlock()
		f.end(target{session, exec}, sandbox.Result{ExitCode: -1, Signal: sig})
		return nil
	}
	exited := f.exited[exec]
	delete(f.exited, exec)
	f.mu.Unlock()
	if exited == nil {
		return sandbox.Errorf(sandbox.CodeNoExec, "%s/%s", session, exec)
	}
	exited(sandbox.Result{ExitCode: -1, Signal: sig})
	return nil
}

func (f *fake) Kill(ctx context.Context, session, exec string) error {
	return f.Signal(ctx, session, exec, 9)
}

func (f *fake) Collect(_ context.Context, session string, paths []string) ([]sandbox.Artifact, error) {
	f.look(kindCollect, session)
	var out []sandbox.Artifact
	for _, p := range paths {
		if p == "/missing" {
			out = append(out, sandbox.Artifact{Path: p, Err: "not_found"})
			continue
		}
		if p == "/odd" {
			p = "/\xff"
		}
		r, w, err := os.Pipe()
		if err != nil {
			return out, err
		}
		w.WriteString(p)
		w.Close()
		out = append(out, sandbox.Artifact{Path: p, File: r, Size: int64(len(p)), Mode: 0o644})
	}
	if session == "broken" {
		return out, errors.New("half way")
	}
	return out, nil
}

func (f *fake) Close(_ context.Context, session string) (sandbox.Usage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = append(f.closed, session)
	delete(f.sessions, session)
	for id, x := range f.held {
		if id.Session == session {
			x.streams.Close()
			delete(f.held, id)
		}
	}
	return sandbox.Usage{CPU: time.Duration(len(session)), OOMKills: 3}, nil
}

func (f *fake) Disconnected() {
	for _, h := range f.Sessions() {
		f.mu.Lock()
		ends := f.sessions[h.Session].WithDaemon
		f.mu.Unlock()
		if ends {
			f.Close(context.Background(), h.Session)
		}
	}
	f.mu.Lock()
	for _, x := range f.held {
		x.watchers = nil
	}
	f.mu.Unlock()
	f.disconnected <- struct{}{}
}

func (f *fake) Abandoned() {
	for _, h := range f.Sessions() {
		f.Close(context.Background(), h.Session)
	}
	f.abandoned <- struct{}{}
}

func newFake(t testing.TB) *fake {
	return &fake{
		t: t, disconnected: make(chan struct{}, 100), abandoned: make(chan struct{}, 100), starting: make(chan struct{}, 100), hang: make(chan struct{}),
		exited: map[string]func(sandbox.Result){}, sessions: map[string]sandbox.Spec{}, held: map[target]*fakeExec{}, frozen: map[target]bool{}, looks: map[kind]int{},
	}
}

// connect starts a runner over a fake and returns the daemon's end of it.
func connect(t testing.TB) (*Runner, *fake) {
	t.Helper()
	return connectTo(t, newProgress())
}

func connectTo(t testing.TB, p *progress) (*Runner, *fake) {
	t.Helper()
	f := newFake(t)
	path := filepath.Join(t.TempDir(), "run.sock")
	l, err := Listen(path, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		defer l.Close()
		conn, err := l.admit()
		if err == nil {
			err = serve(conn, f, p)
		}
		served <- err
	}()
	r, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Disconnect()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r, f
}

// serve answers one daemon.
func serve(conn *net.UnixConn, h Handler, p *progress) error {
	s, err := serverOn(conn, h, p)
	if err != nil {
		return err
	}
	return s.serve(context.Background(), func() {})
}

func TestCalls(t *testing.T) {
	r, _ := connect(t)
	ctx := t.Context()
	if h := r.Host(); h.Kernel != "6.18" || h.CPUs != 2 {
		t.Errorf("host: %+v", h)
	}
	got, err := r.Resolve(ctx, sandbox.Caller{UID: 7}, []string{"/a", "/no/b"})
	if err != nil || len(got) != 2 || got[0].Source.OwnerUID != 7 || got[0].Err != nil || got[1].Err == nil || got[1].Err.Code != sandbox.CodeMountSource {
		t.Errorf("resolve: %+v, %v", got, err)
	}
	e, err := r.Open(ctx, sandbox.Spec{Session: "s"})
	want := sandbox.Enforced{Namespaces: map[string]uint64{"user": 1 << 60}, Capabilities: 1<<64 - 1, Mounts: []string{"s"}}
	if diff := cmp.Diff(want, e, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("open: %v\n%s", err, diff)
	}
	u, err := r.Close(ctx, "four")
	if err != nil || u != (sandbox.Usage{CPU: 4, OOMKills: 3}) {
		t.Errorf("close: %+v, %v", u, err)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	r, _ := connect(t)
	for session, want := range map[string]string{"refused": sandbox.CodeCeiling, "broken": sandbox.CodeInternal} {
		_, err := r.Open(t.Context(), sandbox.Spec{Session: session})
		if code(err) != want {
			t.Errorf("%s: %v", session, err)
		}
	}
	if err := r.Signal(t.Context(), "s", "none", 15); code(err) != sandbox.CodeNoExec {
		t.Error(err)
	}
}

func code(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestStart(t *testing.T) {
	r, f := connect(t)
	stdin, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.WriteString("input")
	w.Close()
	p, err := r.Start(t.Context(), sandbox.Exec{ID: "early"}, stdin)
	stdin.Close()
	if err != nil {
		t.Fatal(err)
	}
	if out, errs := drain(t, p); out != "early 1" || errs != "early 2" {
		t.Errorf("got %q, %q", out, errs)
	}
	if res, ok := <-p.Done; !ok || !cmp.Equal(res, resultOf("early"), cmpopts.EquateEmpty()) {
		t.Errorf("got %+v, %v", res, ok)
	}
	if _, ok := <-p.Done; ok {
		t.Error("a second result")
	}
	if f.read != "input" {
		t.Errorf("stdin: %q", f.read)
	}

	if _, err := r.Start(t.Context(), sandbox.Exec{ID: "refused"}, nil); code(err) != sandbox.CodeSpawn {
		t.Error(err)
	}

	p, err = r.Start(t.Context(), sandbox.Exec{ID: "late", Background: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	drain(t, p)
	if err := r.Kill(t.Context(), "s", "late"); err != nil {
		t.Fatal(err)
	}
	if res := <-p.Done; res.Signal != 9 || res.ExitCode != -1 {
		t.Errorf("got %+v", res)
	}
}

func drain(t testing.TB, p *sandbox.Process) (stdout, stderr string) {
	t.Helper()
	var out [2]string
	for i, s := range []io.ReadCloser{p.Stdout, p.Stderr} {
		b, err := io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
		s.Close()
		out[i] = string(b)
	}
	return out[0], out[1]
}

// Requests beyond a socket message, and beyond everything.
func TestLargeStart(t *testing.T) {
	r, _ := connect(t)
	big := sandbox.Exec{ID: "big", Argv: []string{strings.Repeat("x", 3<<20)}}
	p, err := r.Start(t.Context(), big, nil)
	if err != nil {
		t.Fatal(err)
	}
	drain(t, p)
	<-p.Done
	big.Argv[0] = strings.Repeat("x", packet.Large)
	if _, err := r.Start(t.Context(), big, nil); err == nil {
		t.Error("accepted beyond packet.Large")
	}
	if _, err := r.Close(t.Context(), "s"); err != nil { // and the connection lives
		t.Error(err)
	}
}

// Descriptors beyond one message, in order, with gaps.
func TestCollect(t *testing.T) {
	r, _ := connect(t)
	var paths []string
	for i := range 2*packet.Descriptors + 7 {
		paths = append(paths, fmt.Sprintf("/file%d", i))
	}
	paths[3], paths[packet.Descriptors] = "/missing", "/missing"
	got, err := r.Collect(t.Context(), "s", paths)
	if err != nil || len(got) != len(paths) {
		t.Fatal(len(got), err)
	}
	for i, a := range got {
		if a.Path != paths[i] {
			t.Errorf("%d: %s, want %s", i, a.Path, paths[i])
		}
		if a.File == nil {
			if a.Path != "/missing" || a.Err != "not_found" {
				t.Errorf("%+v", a)
			}
			continue
		}
		b, err := io.ReadAll(a.File)
		a.File.Close()
		if err != nil || string(b) != paths[i] || a.Size != int64(len(b)) || a.Mode != 0o644 {
			t.Errorf("%s holds %q, %v", a.Path, b, err)
		}
	}
	if got, err := r.Collect(t.Context(), "s", nil); err != nil || len(got) != 0 {
		t.Errorf("nothing: %v, %v", got, err)
	}
}

// T130 T168: a name that is not UTF-8 fails the call that comes upon it. It does not end the
// connection, and with it the sessions of everybody else.
func TestNamesOfAnyBytes(t *testing.T) {
	r, _ := connect(t)
	ctx := t.Context()
	var many []string
	for range packet.Descriptors {
		many = append(many, "/odd")
	}
	for name, call := range map[string]func() error{
		"resolve":           func() error { _, err := r.Resolve(ctx, sandbox.Caller{UID: 7}, []string{"/a", "/odd"}); return err },
		"open":              func() error { _, err := r.Open(ctx, sandbox.Spec{Session: "odd"}); return err },
		"collect":           func() error { _, err := r.Collect(ctx, "s", []string{"/a", "/odd"}); return err },
		"collect, in parts": func() error { _, err := r.Collect(ctx, "s", append(many, "/a", "/b")); return err },
	} {
		if _, ok := errors.AsType[*sandbox.Error](call()); !ok {
			t.Errorf("%s: %v", name, call())
		}
	}
	if _, err := r.Resolve(ctx, sandbox.Caller{}, []string{"/a"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A thousand calls at once, each gets its own answer.
func TestCallsInterleave(t *testing.T) {
	r, _ := connect(t)
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			if i%4 == 0 {
				id := fmt.Sprint("x", i)
				p, err := r.Start(t.Context(), sandbox.Exec{ID: id}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if out, errs := drain(t, p); out != id+" 1" || errs != id+" 2" {
					t.Errorf("%s: %q, %q", id, out, errs)
				}
				if res := <-p.Done; !cmp.Equal(res, resultOf(id), cmpopts.EquateEmpty()) {
					t.Errorf("%s: %+v", id, res)
				}
				return
			}
			e, err := r.Open(t.Context(), sandbox.Spec{Session: fmt.Sprint(i)})
			if err != nil || e.Mounts[0] != fmt.Sprint(i) {
				t.Errorf("%d: %v, %v", i, e, err)
			}
		})
	}
	wg.Wait()
}

// The handler learns that its caller has left, and the connection goes on.
func TestCancel(t *testing.T) {
	r, _ := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Open(ctx, sandbox.Spec{Session: "slow"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := r.Close(t.Context(), "s"); err != nil {
		t.Error(err)
	}
}

// A session that was built although its caller had left is not kept.
func TestOpenForNobody(t *testing.T) {
	r, f := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Open(ctx, sandbox.Spec{Session: "deaf"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	closed := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.closed)
	}
	for range 1000 {
		if closed() > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the session was not closed")
}

// Paths on a file system that hangs take their own user's turns and nobody else's, and do
// not keep the sessions alive when the daemon has gone.
func TestLooksThatHang(t *testing.T) {
	defer func(before time.Duration) { leaving = before }(leaving)
	leaving = 50 * time.Millisecond
	r, f := connect(t)
	t.Cleanup(func() { close(f.hang) }) // before that of connect, which waits for Disconnected
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range 2 * maxLooks {
		all.Go(func() {
			if _, err := r.Resolve(ctx, sandbox.Caller{UID: 7}, []string{"/hang"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	for range 2 * maxOpens {
		all.Go(func() {
			if _, err := r.Open(ctx, sandbox.Spec{Session: "stuck", Caller: sandbox.Caller{UID: 7}}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	looks := map[kind]func(session string) error{
		kindChanges: func(session string) error { _, _, err := r.Changes(ctx, session, "", "", 1); return err },
		kindCommit:  func(session string) error { _, err := r.Commit(ctx, session, "", nil); return err },
		kindDiscard: func(session string) error { return r.Discard(ctx, session, "") },
		kindCollect: func(session string) error { _, err := r.Collect(ctx, session, nil); return err },
		kindFreeze:  func(session string) error { return r.Freeze(ctx, session, "", true) },
	}
	for k, look := range looks {
		for range 2 * maxLooks {
			all.Go(func() {
				if err := look("stuck"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("call %d: %v", k, err)
				}
			})
		}
		if err := look("s"); err != nil {
			t.Errorf("call %d of another user: %v", k, err)
		}
	}
	if _, err := r.Resolve(ctx, sandbox.Caller{UID: 8}, []string{"/a"}); err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := r.Open(ctx, sandbox.Spec{Session: "s", Caller: sandbox.Caller{UID: 8}}); err != nil {
		t.Errorf("another user: %v", err)
	}
	all.Wait()
	f.mu.Lock()
	if f.resolves != maxLooks || f.opens != maxOpens {
		t.Errorf("%d look and %d build at once, at most %d and %d may", f.resolves, f.opens, maxLooks, maxOpens)
	}
	for k := range looks {
		if n := f.looks[k]; n != maxLooks {
			t.Errorf("call %d: %d look at once, at most %d may", k, n, maxLooks)
		}
	}
	f.mu.Unlock()
	r.Disconnect()
	select {
	case <-f.disconnected:
	case <-time.After(5 * time.Second):
		t.Error("the handler was not told that the daemon is gone")
	}
}

// When everything is in use a call is refused, and the runner hears what comes behind it: a cancel, and the end of the connection.
func TestFull(t *testing.T) {
	for _, tt := range []struct {
		name string
		fill func(p *progress)
	}{
		{"slots", func(p *progress) {
			for len(p.slots) < cap(p.slots) {
				p.slots <- struct{}{}
			}
		}},
		{"bytes", func(p *progress) { p.held.Add(maxHeld) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProgress()
			r, f := connectTo(t, p)
			waits := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, err := r.Start(ctx, sandbox.Exec{Session: "s", ID: "slow"}, nil)
				waits <- err
			}()
			<-f.starting
			tt.fill(p)
			big := sandbox.Exec{ID: "big", Argv: []string{strings.Repeat("x", 2*packet.Inline)}}
			for range 2 {
				if _, err := r.Start(t.Context(), big, nil); code(err) != sandbox.CodeRequests {
					t.Errorf("got %v", err)
				}
			}
			cancel()
			if err := <-waits; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			for n := 1; n > 0; time.Sleep(time.Millisecond) { // the runner has heard it, too
				f.mu.Lock()
				n = f.starts
				f.mu.Unlock()
			}
			if _, err := r.Load(t.Context(), "s"); err != nil { // there is a slot again, and it takes no room
				t.Error(err)
			}
			r.Disconnect()
			select {
			case <-f.disconnected:
			case <-time.After(5 * time.Second):
				t.Error("it does not notice that the daemon has left")
			}
		})
	}
}

// What a call takes it gives back, however it ends.
func TestNothingIsKept(t *testing.T) {
	p := newProgress()
	r, f := connectTo(t, p)
	big := strings.Repeat("x", 2*packet.Inline)
	for _, id := range []string{"x", "refused"} {
		if x, err := r.Start(t.Context(), sandbox.Exec{ID: id, Argv: []string{big}}, nil); err == nil {
			drain(t, x)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() {
		_, err := r.Open(ctx, sandbox.Spec{Session: "slow", Workdir: big})
		given <- err
	}()
	for p.held.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-given
	conn, peer, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	defer conn.Close()
	s := newServer(conn, f, p)
	s.greeted = true
	msg, err := encode(kindOpen, 1, sandbox.Spec{Session: "slow", Workdir: big})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if err := s.dispatch(ctx, msg, nil); err != nil {
		t.Error(err)
	}
	if err := s.dispatch(ctx, msg, nil); err != errMalformed {
		t.Errorf("a number used twice: %v", err)
	}
	cancel()
	s.calls.Wait()
	for range 1000 {
		if len(p.slots) == 0 && p.held.Load() == 0 && p.lines.In() == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d slots, %d bytes and %d turns are kept", len(p.slots), p.held.Load(), p.lines.In())
}

// A command that is being started when its daemon leaves is started, for whoever comes next; one
// that does not get so far is given up, and does not keep the next daemon waiting.
func TestStartOutlivesDaemon(t *testing.T) {
	for _, k := range []struct {
		name  string
		comes bool
	}{{"in time", true}, {"never", false}} {
		t.Run(k.name, func(t *testing.T) {
			r, f := connect(t)
			if _, err := r.Open(t.Context(), sandbox.Spec{Session: "s"}); err != nil {
				t.Fatal(err)
			}
			go r.Start(context.Background(), sandbox.Exec{Session: "s", ID: "tardy", Background: true}, nil)
			<-f.starting
			r.Disconnect()
			if k.comes {
				time.Sleep(lastStarts / 10)
				close(f.hang)
			}
			select {
			case <-f.disconnected:
			case <-time.After(5 * lastStarts):
				t.Fatal("the daemon has left, and is not let go")
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if held := f.held[target{"s", "tardy"}] != nil; held != k.comes {
				t.Errorf("held: %v", held)
			}
		})
	}
}

func TestRunnerGone(t *testing.T) {
	r, f := connect(t)
	p, err := r.Start(t.Context(), sandbox.Exec{ID: "late", Background: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	drain(t, p)
	pending := make(chan error)
	go func() {
		_, err := r.Open(context.Background(), sandbox.Spec{Session: "slow"})
		pending <- err
	}()
	time.Sleep(10 * time.Millisecond)
	r.Disconnect()
	if err := <-pending; code(err) != sandbox.CodeGone {
		t.Errorf("pending: %v", err)
	}
	if _, ok := <-p.Done; ok {
		t.Error("a result without a runner")
	}
	<-r.Done()
	<-f.disconnected
	if _, err := r.Close(t.Context(), "s"); code(err) != sandbox.CodeGone {
		t.Errorf("afterwards: %v", err)
	}
	f.exited["late"](sandbox.Result{}) // into the void
}

// T052: nothing leaks, whichever way a call ends.
func TestDescriptors(t *testing.T) {
	r, _ := connect(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	number := uint64(1 << 40) // of calls that the Runner does not know
	round := func() {
		for range 20 {
			if p, err := r.Start(t.Context(), sandbox.Exec{ID: "x"}, null); err == nil {
				p.Stdout.Close()
				p.Stderr.Close()
				<-p.Done
			}
			r.Start(t.Context(), sandbox.Exec{ID: "refused"}, null)
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			if p, err := r.Start(cancelled, sandbox.Exec{ID: "x"}, null); err == nil {
				p.Stdout.Close()
				p.Stderr.Close()
			}
			if got, err := r.Collect(cancelled, "s", []string{"/a", "/b"}); err == nil {
				for _, a := range got {
					a.File.Close()
				}
			}
			r.Collect(t.Context(), "broken", []string{"/a", "/b"})
			// Descriptors where none, or fewer, are expected.
			for _, k := range []kind{kindSessions, kindOpen, kindClose, kindStart, kindAttach, kindForget, kindFreeze, kindCollect, kindCancel} {
				number++
				msg, err := encode(k, number, none{})
				if err != nil {
					t.Fatal(err)
				}
				fd := int(null.Fd())
				if err := r.socket.Send(msg, fd, fd, fd); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.Close(t.Context(), "s")
	}
	round()
	before := settled(func() int { return openFiles(t) })
	round()
	if after := settled(func() int { return openFiles(t) }); after > before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

// settled returns what count settles at: late answers are closed by other goroutines.
func settled(count func() int) int {
	n := count()
	for range 20 {
		time.Sleep(5 * time.Millisecond)
		n = min(n, count())
	}
	return n
}

func openFiles(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// What is not the protocol ends the connection, and nothing else.
func TestHostilePeer(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	hello, err := encode(kindHello, 1, helloCall{version})
	if err != nil {
		t.Fatal(err)
	}
	many := make([]int, 253)
	for i := range many {
		many[i] = int(null.Fd())
	}
	for _, tt := range []struct {
		name string
		send func(fd int) error
	}{
		{"no hello", func(fd int) error {
			msg, _ := encode(kindClose, 1, target{})
			return packet.Send(fd, msg)
		}},
		{"another version", func(fd int) error {
			msg, _ := encode(kindHello, 1, helloCall{version + 1})
			packet.Send(fd, msg)
			msg, _ = encode(kindClose, 2, target{})
			return packet.Send(fd, msg)
		}},
		{"short", func(fd int) error { return packet.Send(fd, []byte{1}) }},
		{"unknown kind", func(fd int) error {
			packet.Send(fd, hello)
			msg, _ := encode(200, 2, none{})
			return packet.Send(fd, msg)
		}},
		{"a number used twice", func(fd int) error {
			packet.Send(fd, hello)
			msg, _ := encode(kindOpen, 2, sandbox.Spec{Session: "slow"})
			packet.Send(fd, msg)
			return packet.Send(fd, msg)
		}},
		{"253 descriptors", func(fd int) error { // T052
			_, err := unix.SendmsgN(fd, []byte{0}, unix.UnixRights(many...), nil, 0)
			return err
		}},
		{"a memfd that is none", func(fd int) error {
			_, err := unix.SendmsgN(fd, []byte{1}, unix.UnixRights(many[0]), nil, 0)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := openFiles(t)
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			f := newFake(t)
			served := make(chan error, 1)
			go func() { served <- serve(unixConn(t, fds[0]), f, newProgress()) }()
			if err := tt.send(fds[1]); err != nil {
				t.Fatal(err)
			}
			select {
			case <-f.disconnected:
			case <-time.After(5 * time.Second):
				t.Error("still connected")
			}
			unix.Close(fds[1])
			<-served
			if after := settled(func() int { return openFiles(t) }); after > before {
				t.Errorf("%d descriptors, then %d", before, after)
			}
		})
	}
}

// A daemon that leaves is no error, and neither is one that has not read what it was told: the kernel
// resets its connection.
func TestDaemonLeavesUnread(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	served := make(chan error, 1)
	go func() { served <- serve(unixConn(t, fds[0]), f, newProgress()) }()
	hello, err := encode(kindHello, 1, helloCall{version})
	if err != nil {
		t.Fatal(err)
	}
	if err := packet.Send(fds[1], hello); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fds[1]), Events: unix.POLLIN}}, 5000); err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[1])
	if err := <-served; err != nil {
		t.Error(err)
	}
	<-f.disconnected
}

func unixConn(t testing.TB, fd int) *net.UnixConn {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := Listen(path, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if _, err := Listen(path, 0); err == nil {
		t.Error("a living socket was replaced")
	}
	l.socket.SetUnlinkOnClose(false)
	l.Close()
	if l, err = Listen(path, uint32(os.Geteuid())); err != nil {
		t.Fatalf("over a dead socket: %v", err)
	}
	l.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, 0); err == nil {
		t.Error("a file was replaced")
	}
	if _, err := Dial(t.Context(), filepath.Join(dir, "none")); code(err) != sandbox.CodeGone {
		t.Errorf("dial nobody: %v", err)
	}
}

// T152: who may speak to the runner. The uid is the kernel's word.
func TestListenerAllows(t *testing.T) {
	for _, tt := range []struct {
		daemon, peer uint32
		want         bool
	}{{1000, 1000, true}, {1000, 0, true}, {1000, 1001, false}, {0, 1000, false}} {
		if got := (&Listener{uid: tt.daemon}).allows(tt.peer); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	c := unixConn(t, fds[0])
	defer c.Close()
	if cred, err := peer(c); err != nil || cred.Uid != uint32(os.Geteuid()) {
		t.Errorf("peer: %+v, %v", cred, err)
	}
}

// T153: who listens in a runner's place and is neither root nor the daemon's own user is told nothing.
func TestDialForeignListener(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: it listens as somebody else")
	}
	path := filepath.Join(t.TempDir(), "run.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	// This thread alone: the kernel notes who calls listen.
	const foreign = 1001
	runtime.LockOSThread()
	setEUID := func(uid uintptr) {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0)); errno != 0 {
			t.Fatal(errno)
		}
	}
	setEUID(foreign)
	err = unix.Listen(fd, 1)
	setEUID(0)
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), path); err == nil || !strings.Contains(err.Error(), "user 1001") {
		t.Errorf("dial: %v", err)
	}
}

// Whatever a peer sends as a message, taking it apart neither panics nor accepts what the table does not know.
func FuzzDispatch(f *testing.F) {
	for _, body := range []any{helloCall{version}, resolveCall{Paths: []string{"/a"}}, sandbox.Spec{Session: "s"}, sandbox.Exec{ID: "x"},
		target{"s", "x"}, signalCall{target{"s", "x"}, 9}, freezeCall{target{"s", "x"}, true}, collectCall{"s", []string{"/a"}}} {
		for k := kindHello; k <= kindExited; k++ {
			msg, err := encode(k, 1, body)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(msg)
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		conn, peer, err := socketPair()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		defer conn.Close()
		h := newFake(t)
		s := newServer(conn, h, newProgress())
		s.greeted = true
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // so that "slow" returns
		s.dispatch(ctx, msg, nil)
		s.calls.Wait()
		r := &Runner{calls: map[uint64]*call{1: newCall()}}
		r.dispatch(msg, nil)
	})
}

func socketPair() (a, b *packet.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	if a, err = packet.NewConn(os.NewFile(uintptr(fds[0]), "a")); err != nil {
		return nil, nil, err
	}
	b, err = packet.NewConn(os.NewFile(uintptr(fds[1]), "b"))
	return a, b, err
}

func BenchmarkRoundTrip(b *testing.B) {
	r, _ := connect(b)
	for b.Loop() {
		if _, err := r.Close(b.Context(), "s"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStart(b *testing.B) { // two pipes made, filled, read and closed included
	r, _ := connect(b)
	env := make([]string, 30)
	for i := range env {
		env[i] = fmt.Sprintf("VARIABLE_%d=some value of usual length", i)
	}
	var n atomic.Int64
	for b.Loop() {
		p, err := r.Start(b.Context(), sandbox.Exec{Session: "s", ID: fmt.Sprint("x", n.Add(1)), Argv: []string{"/bin/true"}, Env: env, Cwd: "/"}, nil)
		if err != nil {
			b.Fatal(err)
		}
		<-p.Done
		p.Stdout.Close()
		p.Stderr.Close()
	}
}
