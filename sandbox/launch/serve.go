package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
	"github.com/stockade-dev/stockade/internal/turns"
	"github.com/stockade-dev/stockade/sandbox"
)

// What may be in progress. Beyond it a call is refused at once: were one to wait, what is behind it would lie unread, cancels and the end of
// the connection among them. So a daemon gone wild costs the runner a bounded amount of memory.
const (
	// maxCalls is more than one user can come to, by the requests that he may have at the daemon and the turns below.
	maxCalls = 4096
	maxHeld  = 8 * packet.Large // of bodies beyond packet.Inline
	// maxLooks is how many calls of a kind look at a user's file systems, and maxOpens how many build a session,
	// which looks at them again. A look at a file system that hangs cannot be given up (FUSE, NFS): it keeps
	// its thread, and its turn, until the file system answers.
	maxLooks = 16
	maxOpens = 64
)

// lastStarts is how long commands that were being started when their daemon left have for it: the
// next daemon goes on with them. One given up half way would perhaps have run, and nobody would
// know. What takes longer is kept from starting by something inside.
const lastStarts = time.Second

// leaving is how long those calls have to end that their daemon has left behind and that have been given up. One that
// takes longer waits for a file system, and nobody waits for it: it ends by itself, and is undone. Tests shorten it.
var leaving = 15 * time.Second

// server answers one daemon over one connection.
type server struct {
	conn    *net.UnixConn
	socket  *packet.Conn // conn's
	handler Handler
	greeted bool
	calls   sync.WaitGroup
	shared  *progress  // the Listener's
	refused chan error // why it could not be paused; capacity 1

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc // of calls in progress
	watched map[uint64]target             // executions whose end has yet to be told, by the call that started or attached them
	pausing *suspension                   // asked for, and not carried out
}

// progress is what the calls of one Listener share, whoever is connected: also those that another daemon has left behind.
type progress struct {
	slots chan struct{}
	held  atomic.Int64 // bytes of large bodies
	lines turns.Lines[turn]
}

// turn is what calls of a kind wait for that a user has.
type turn struct {
	kind kind
	uid  uint32
}

func newProgress() *progress { return &progress{slots: make(chan struct{}, maxCalls)} }

// take takes a slot, and room for as many bytes.
func (p *progress) take(bytes int64) error {
	select {
	case p.slots <- struct{}{}:
	default:
		return sandbox.Errorf(sandbox.CodeRequests, "%d calls are in progress at the runner", maxCalls)
	}
	if p.held.Add(bytes) > maxHeld {
		p.held.Add(-bytes)
		<-p.slots
		return sandbox.Errorf(sandbox.CodeRequests, "calls in progress at the runner have %d bytes", maxHeld)
	}
	return nil
}

// serverOn returns the server of a connection, which it owns from now on, and whatever it returns.
func serverOn(conn *net.UnixConn, h Handler, shared *progress) (*server, error) {
	socket, err := packet.NewConn(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("daemon socket: %w", err)
	}
	s := newServer(socket, h, shared)
	s.conn = conn
	return s, nil
}

func newServer(socket *packet.Conn, h Handler, shared *progress) *server {
	return &server{
		socket:  socket,
		handler: h,
		shared:  shared,
		refused: make(chan error, 1),
		cancels: map[uint64]context.CancelFunc{},
		watched: map[uint64]target{},
	}
}

// serve answers the daemon until the connection is lost or ctx ends, calls left when nothing
// more will be received, and waits for the calls to return, as long as leaving. It closes the connection. A
// daemon that leaves is no error; the handler is told of it. If ctx has ended it is the runner that leaves, and what
// becomes of its sessions is for its caller to say. It returns ErrSuspended, with the
// conversation between two messages, when pause has asked for it.
func (s *server) serve(ctx context.Context, left func()) error {
	calls, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.socket.Close() })
	defer stop()
	err := s.receive(calls)
	for errors.Is(err, os.ErrDeadlineExceeded) {
		if s.paused() {
			return ErrSuspended
		}
		err = s.receive(calls)
	}
	left()
	s.socket.Close()
	cancel()
	defer time.AfterFunc(lastStarts, s.cancelAll).Stop()
	defer context.AfterFunc(ctx, s.cancelAll)()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.calls.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(lastStarts + leaving):
	}
	if ctx.Err() == nil {
		s.handler.Disconnected()
	}
	// One that leaves without having read all that it was told resets the connection.
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// operation serves one call and answers it. It owns fds.
type operation func(s *server, ctx context.Context, id uint64, body []byte, fds []int) error

// operations says what serves a call of each kind.
var operations = map[kind]operation{
	kindResolve: simple((*server).resolve),
	kindOpen:    simple((*server).open),
	kindSignal: simple(func(s *server, ctx context.Context, c signalCall) (none, error) {
		return none{}, s.handler.Signal(ctx, c.Session, c.Exec, c.Signal)
	}),
	kindForeground: simple(func(s *server, ctx context.Context, c signalCall) (none, error) {
		return none{}, s.handler.Foreground(ctx, c.Session, c.Exec, c.Signal)
	}),
	kindKill: simple(func(s *server, ctx context.Context, t target) (none, error) {
		return none{}, s.handler.Kill(ctx, t.Session, t.Exec)
	}),
	kindFreeze: simple(func(s *server, ctx context.Context, c freezeCall) (none, error) { // waits for a commit
		leave, err := s.look(ctx, kindFreeze, c.Session)
		if err != nil {
			return none{}, err
		}
		defer leave()
		return none{}, s.handler.Freeze(ctx, c.Session, c.Exec, c.Frozen)
	}),
	kindLoad: simple(func(s *server, _ context.Context, t target) (sandbox.Load, error) {
		return s.handler.Load(t.Session)
	}),
	kindCloseStdin: simple(func(s *server, _ context.Context, t target) (none, error) {
		return none{}, s.handler.CloseStdin(t.Session, t.Exec)
	}),
	kindChanges: simple(func(s *server, ctx context.Context, c changesCall) (changesReply, error) {
		leave, err := s.look(ctx, kindChanges, c.Session)
		if err != nil {
			return changesReply{}, err
		}
		defer leave()
		changes, more, err := s.handler.Changes(ctx, c.Session, c.Target, string(c.After), c.Limit)
		reply := changesReply{make([]change, len(changes)), more}
		for i, c := range changes {
			reply.Changes[i] = change{[]byte(c.Path), []byte(c.Link), c.Kind, c.Type, c.Mode, c.Size}
		}
		return reply, err
	}),
	kindCommit: simple((*server).commit),
	kindDiscard: simple(func(s *server, ctx context.Context, c space) (none, error) {
		leave, err := s.look(ctx, kindDiscard, c.Session)
		if err != nil {
			return none{}, err
		}
		defer leave()
		return none{}, s.handler.Discard(ctx, c.Session, c.Target)
	}),
	kindNarrow: simple(func(s *server, ctx context.Context, c narrowCall) (narrowReply, error) {
		cut, err := s.handler.Narrow(ctx, c.Session, c.Network)
		return narrowReply{cut}, err
	}),
	kindClose: simple(func(s *server, ctx context.Context, t target) (sandbox.Usage, error) {
		return s.handler.Close(ctx, t.Session)
	}),
	kindSessions: (*server).sessions,
	kindStart:    (*server).start,
	kindAttach:   (*server).attach,
	kindCollect:  (*server).collect,
	kindConnect:  (*server).connect,
}

// simple is an operation with one body each way and no descriptor.
func simple[Call, Reply any](do func(*server, context.Context, Call) (Reply, error)) operation {
	return func(s *server, ctx context.Context, id uint64, body []byte, fds []int) error {
		packet.CloseAll(fds)
		var c Call
		if err := decode(body, &c); err != nil {
			return s.fail(id, sandbox.Errorf(sandbox.CodeInvalidSpec, "%v", err))
		}
		r, err := do(s, ctx, c)
		if err != nil {
			return s.fail(id, err)
		}
		return s.reply(kindReply, id, r)
	}
}

// receive starts a goroutine for every call.
func (s *server) receive(ctx context.Context) error {
	for {
		msg, fds, err := s.socket.Receive()
		switch err {
		case nil:
			err = s.dispatch(ctx, msg, fds)
		case packet.ErrDescriptors:
			err = s.bereft(msg)
		}
		if err != nil {
			return err
		}
	}
}

// bereft refuses a call that has lost its descriptors.
func (s *server) bereft(msg []byte) error {
	_, id, _, err := split(msg)
	if err != nil || !s.greeted {
		return cmp.Or(err, errMalformed)
	}
	return s.fail(id, errBereft)
}

// dispatch owns fds. An error ends the connection.
func (s *server) dispatch(ctx context.Context, msg []byte, fds []int) error {
	k, id, body, err := split(msg)
	if err != nil {
		packet.CloseAll(fds)
		return err
	}
	switch {
	case !s.greeted:
		packet.CloseAll(fds)
		return s.hello(k, id, body)
	case k == kindCancel:
		packet.CloseAll(fds)
		s.cancel(id)
		return nil
	case k == kindForget:
		packet.CloseAll(fds)
		return s.forget(body)
	case operations[k] == nil:
		packet.CloseAll(fds)
		return errMalformed
	}
	if k == kindStart {
		ctx = context.WithoutCancel(ctx) // see lastStarts
	}
	ctx, release, err := s.begin(ctx, id, len(msg))
	if err != nil {
		packet.CloseAll(fds)
		if err == errMalformed {
			return err
		}
		return s.fail(id, err)
	}
	body = append([]byte(nil), body...) // the receive buffer is about to be reused
	serve := func() {
		defer release()
		if operations[k](s, ctx, id, body, fds) != nil {
			// An answer that cannot be sent would leave its caller waiting for ever.
			s.socket.Close()
		}
	}
	if k == kindResolve {
		// It makes nothing that has to be undone, and may hang with a file system: the end of
		// the sessions must not wait for it.
		go serve()
	} else {
		s.calls.Go(serve)
	}
	return nil
}

func (s *server) hello(k kind, id uint64, body []byte) error {
	var c helloCall
	if k != kindHello || decode(body, &c) != nil {
		return errMalformed
	}
	if c.Version != version {
		return s.fail(id, sandbox.Errorf(sandbox.CodeGone, "the daemon speaks version %d, this runner %d", c.Version, version))
	}
	s.greeted = true
	return s.reply(kindReply, id, helloReply{version, s.handler.Host()})
}

// begin takes what release gives back, or is refused with CodeRequests. A number that is in use is errMalformed,
// because answers would be mistaken; the connection ends then.
func (s *server) begin(ctx context.Context, id uint64, size int) (_ context.Context, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancels[id] != nil {
		return nil, nil, errMalformed
	}
	large := int64(size)
	if size <= packet.Inline {
		large = 0
	}
	if err := s.shared.take(large); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s.cancels[id] = cancel
	// One that is given up ends, or it hangs, and has a turn, of which a user has so many: he does not take the room of others.
	light := context.AfterFunc(ctx, func() { s.shared.held.Add(-large) })
	return ctx, func() {
		s.mu.Lock()
		delete(s.cancels, id)
		s.mu.Unlock()
		if light() {
			s.shared.held.Add(-large)
		}
		cancel()
		<-s.shared.slots
	}, nil
}

func (s *server) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.cancels[id]; cancel != nil {
		cancel()
	}
}

func (s *server) cancelAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.cancels {
		cancel()
	}
}

// resolve waits for a turn of the caller's.
func (s *server) resolve(ctx context.Context, c resolveCall) ([]Resolved, error) {
	leave, err := s.shared.lines.Join(ctx, turn{kindResolve, c.Caller.UID}, maxLooks)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.handler.Resolve(ctx, c.Caller, c.Paths)
}

// look waits for a turn of the user whose session it is.
func (s *server) look(ctx context.Context, k kind, session string) (leave func(), err error) {
	uid, err := s.handler.Owner(session)
	if err != nil {
		return nil, err
	}
	return s.shared.lines.Join(ctx, turn{k, uid}, maxLooks)
}

// open waits for a turn of the caller's, and does not keep a session that was built for nobody. A daemon that gives up once it
// is built finds it by its name: its cancel comes before its close.
func (s *server) open(ctx context.Context, spec sandbox.Spec) (sandbox.Enforced, error) {
	leave, err := s.shared.lines.Join(ctx, turn{kindOpen, spec.Caller.UID}, maxOpens)
	if err != nil {
		return sandbox.Enforced{}, err
	}
	defer leave()
	e, err := s.handler.Open(ctx, spec)
	if err == nil && ctx.Err() != nil {
		_, err = s.handler.Close(context.WithoutCancel(ctx), spec.Session)
		err = errors.Join(ctx.Err(), err)
	}
	return e, err
}

// commit answers with how far it came, whether it failed or not.
func (s *server) commit(ctx context.Context, c commitCall) (commitReply, error) {
	leave, err := s.look(ctx, kindCommit, c.Session)
	if err != nil {
		return commitReply{}, err
	}
	defer leave()
	done, err := s.handler.Commit(ctx, c.Session, c.Target, each[string](c.Paths))
	reply := commitReply{Applied: done.Applied, Left: each[[]byte](done.Left)}
	if err != nil {
		reply.Err = crossing(err)
	}
	return reply, nil
}

// sessions serves kindSessions, a message for each.
func (s *server) sessions(_ context.Context, id uint64, _ []byte, fds []int) error {
	packet.CloseAll(fds)
	for _, held := range s.handler.Sessions() {
		if err := s.reply(kindPart, id, held); err != nil {
			return err
		}
	}
	return s.reply(kindReply, id, none{})
}

// forget serves kindForget, in its place between the messages: what it takes away must not be
// there for those that follow.
func (s *server) forget(body []byte) error {
	var t target
	if err := decode(body, &t); err != nil {
		return err
	}
	s.handler.Forget(t.Session, t.Exec)
	return nil
}

// start serves kindStart.
func (s *server) start(ctx context.Context, id uint64, body []byte, fds []int) error {
	var e sandbox.Exec
	err := decode(body, &e)
	if err == nil && len(fds) > 1 {
		err = errMalformed
	}
	if err != nil {
		packet.CloseAll(fds)
		return s.fail(id, sandbox.Errorf(sandbox.CodeInvalidSpec, "%v", err))
	}
	var stdin *os.File
	if len(fds) == 1 {
		stdin = os.NewFile(uintptr(fds[0]), "stdin")
	}
	return s.process(id, target{e.Session, e.ID}, func(exited func(sandbox.Result)) (Streams, error) {
		return s.handler.Start(ctx, e, stdin, exited)
	})
}

// attach serves kindAttach.
func (s *server) attach(_ context.Context, id uint64, body []byte, fds []int) error {
	packet.CloseAll(fds)
	var t target
	if err := decode(body, &t); err != nil {
		return s.fail(id, sandbox.Errorf(sandbox.CodeInvalidSpec, "%v", err))
	}
	return s.process(id, t, func(exited func(sandbox.Result)) (Streams, error) {
		return s.handler.Attach(t.Session, t.Exec, exited)
	})
}

// process answers with an execution, and later with its end. An answer that cannot be sent
// undoes nothing: the execution is there, and the next daemon finds it.
func (s *server) process(id uint64, t target, do func(exited func(sandbox.Result)) (Streams, error)) error {
	x := s.watch(id, t)
	streams, err := do(x.exited)
	if err != nil {
		s.unwatch(id)
		return s.fail(id, err)
	}
	defer streams.Close()
	files := []*os.File{streams.Stdout, streams.Stderr}
	if streams.Stdin != nil {
		files = append(files, streams.Stdin)
	}
	if err := s.reply(kindReply, id, startReply{streams.Started, streams.Stdin != nil}, files...); err != nil {
		return err
	}
	x.replied()
	return nil
}

// watch notes that the daemon will have to be told of the end of an execution.
func (s *server) watch(id uint64, t target) *exit {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched[id] = t
	return &exit{report: func(r sandbox.Result) {
		// If this fails the connection is lost, and the next daemon asks.
		_ = s.reply(kindExited, id, r)
		s.unwatch(id)
	}}
}

func (s *server) unwatch(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watched, id)
}

// exit holds a result back until the call that it belongs to has been answered.
type exit struct {
	report func(sandbox.Result)

	mu       sync.Mutex
	answered bool
	early    *sandbox.Result
}

func (x *exit) exited(r sandbox.Result) {
	x.mu.Lock()
	answered := x.answered
	if !answered {
		x.early = &r
	}
	x.mu.Unlock()
	if answered {
		x.report(r)
	}
}

func (x *exit) replied() {
	x.mu.Lock()
	x.answered = true
	early := x.early
	x.mu.Unlock()
	if early != nil {
		x.report(*early)
	}
}

// collect serves kindCollect: as many messages as the descriptors need.
func (s *server) collect(ctx context.Context, id uint64, body []byte, fds []int) error {
	packet.CloseAll(fds)
	var c collectCall
	if err := decode(body, &c); err != nil {
		return s.fail(id, sandbox.Errorf(sandbox.CodeInvalidSpec, "%v", err))
	}
	leave, err := s.look(ctx, kindCollect, c.Session)
	if err != nil {
		return s.fail(id, err)
	}
	found, err := s.handler.Collect(ctx, c.Session, c.Paths)
	leave()
	defer func() {
		for _, a := range found {
			a.File.Close()
		}
	}()
	if err != nil {
		return s.fail(id, err)
	}
	rest := found
	for len(rest) > packet.Descriptors {
		if err := s.artifacts(kindPart, id, rest[:packet.Descriptors]); err != nil {
			return err
		}
		rest = rest[packet.Descriptors:]
	}
	return s.artifacts(kindReply, id, rest)
}

func (s *server) connect(ctx context.Context, id uint64, body []byte, fds []int) error {
	packet.CloseAll(fds)
	var c connectCall
	if err := decode(body, &c); err != nil {
		return s.fail(id, sandbox.Errorf(sandbox.CodeInvalidSpec, "%v", err))
	}
	socket, err := s.handler.Connect(ctx, c.Session, c.Port)
	if err != nil {
		return s.fail(id, err)
	}
	defer socket.Close()
	return s.reply(kindReply, id, none{}, socket)
}

func (s *server) artifacts(k kind, id uint64, list []sandbox.Artifact) error {
	out := make([]artifact, len(list))
	var files []*os.File
	for i, a := range list {
		out[i] = artifact{a.Path, a.Size, a.Mode, a.Err, a.File != nil}
		if a.File != nil {
			files = append(files, a.File)
		}
	}
	return s.reply(k, id, out, files...)
}

func (s *server) fail(id uint64, err error) error { return s.reply(kindFailure, id, crossing(err)) }

// crossing is an error as the daemon gets it.
func crossing(err error) *sandbox.Error {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		e = sandbox.Errorf(sandbox.CodeInternal, "%v", err)
	}
	// A message may quote a file's name, which can be any bytes.
	return &sandbox.Error{Code: e.Code, Msg: strings.ToValidUTF8(e.Msg, "\ufffd")}
}

// reply sends an answer. One that cannot be said is a failure of its call: it must not end
// the connection, on which everybody's sessions depend.
func (s *server) reply(k kind, id uint64, body any, files ...*os.File) error {
	msg, err := encode(k, id, body)
	if err != nil && k != kindFailure {
		return s.fail(id, err)
	}
	if err != nil {
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	err = s.socket.Send(msg, fds...)
	runtime.KeepAlive(files)
	return err
}
