package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
	"github.com/stockade-dev/stockade/sandbox"
)

// Runner is the daemon's end of the connection. Its methods may be called from many
// goroutines. Errors are *sandbox.Error, with CodeGone once the runner is gone, or
// the error of a ctx that ended first. What a call started may then exist all the same: the
// caller closes, or kills and forgets, what it no longer wants.
type Runner struct {
	socket *packet.Conn
	pid    int
	host   sandbox.Host
	gone   chan struct{}

	mu    sync.Mutex
	last  uint64           // call number given out last
	calls map[uint64]*call // unanswered, or started and not exited; nil once gone
}

// call is one request, and for a start or an attach the life of the execution.
type call struct {
	answer chan answer         // capacity 1
	parts  []message           // of a collect, or of sessions, so far
	exited chan sandbox.Result // of a start or an attach; capacity 1
}

// message is what a body says and the descriptors that came with it.
type message struct {
	body []byte
	fds  []int
}

type answer struct {
	messages []message
	err      error
}

func (a answer) discard() {
	for _, m := range a.messages {
		packet.CloseAll(m.fds)
	}
}

// Dial connects to the runner that listens at path. The caller disconnects the Runner;
// the runner then holds what was started, as long as its operator has it wait, for whoever
// dials next.
func Dial(ctx context.Context, path string) (*Runner, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeGone, "connect: %v", err)
	}
	return newRunner(ctx, conn.(*net.UnixConn))
}

func newRunner(ctx context.Context, conn *net.UnixConn) (*Runner, error) {
	cred, err := peer(conn)
	if err == nil && cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()) {
		err = fmt.Errorf("it is user %d who listens, not a runner of root's", cred.Uid)
	}
	var socket *packet.Conn
	if err == nil {
		socket, err = packet.NewConn(conn)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("runner socket: %w", err)
	}
	r := &Runner{socket: socket, pid: int(cred.Pid), gone: make(chan struct{}), calls: map[uint64]*call{}}
	go r.receive()
	var hello helloReply
	if err := r.do(ctx, kindHello, helloCall{version}, &hello); err != nil {
		r.Disconnect()
		return nil, err
	}
	if hello.Version != version {
		r.Disconnect()
		return nil, sandbox.Errorf(sandbox.CodeGone, "the runner speaks version %d, this daemon %d", hello.Version, version)
	}
	r.host = hello.Host
	return r, nil
}

// PID is the process that began to listen: the runner, as long as it answers.
func (r *Runner) PID() int { return r.pid }

// Host returns what the runner found out about the machine.
func (r *Runner) Host() sandbox.Host { return r.host }

// Sessions returns what the runner holds, in order of names.
func (r *Runner) Sessions(ctx context.Context) ([]sandbox.Held, error) {
	messages, err := r.call(ctx, kindSessions, none{})
	if err != nil {
		return nil, err
	}
	defer answer{messages: messages}.discard() // no descriptor is expected
	var out []sandbox.Held
	for _, m := range messages[:len(messages)-1] {
		var held sandbox.Held
		if err := decode(m.body, &held); err != nil {
			return nil, sandbox.Errorf(sandbox.CodeInternal, "%v", err)
		}
		out = append(out, held)
	}
	return out, nil
}

// Resolve says, path by path and in order, what host paths lead to under the caller's identity.
func (r *Runner) Resolve(ctx context.Context, caller sandbox.Caller, paths []string) ([]Resolved, error) {
	var out []Resolved
	if err := r.do(ctx, kindResolve, resolveCall{caller, paths}, &out); err != nil {
		return nil, err
	}
	if len(out) != len(paths) {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "%d answers for %d paths", len(out), len(paths))
	}
	return out, nil
}

// Open builds a session.
func (r *Runner) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Enforced, error) {
	var e sandbox.Enforced
	err := r.do(ctx, kindOpen, spec, &e)
	return e, err
}

// Start starts a command. stdin stays the caller's; nil is an empty one, or with
// e.StdinOpen a pipe that the Process has the other end of. The caller closes the files of
// the Process.
func (r *Runner) Start(ctx context.Context, e sandbox.Exec, stdin *os.File) (*sandbox.Process, error) {
	return r.process(ctx, kindStart, e, stdin)
}

// Attach takes an execution over that an earlier daemon started: one that Sessions names. Its
// pipes hold what nobody has read yet, and Done gives the result, also of one that has
// ended. CodeNoExec is the answer for one that is unknown, or was forgotten.
func (r *Runner) Attach(ctx context.Context, session, exec string) (*sandbox.Process, error) {
	return r.process(ctx, kindAttach, target{session, exec}, nil)
}

// Forget lets the runner give up the result of an execution, and its pipes: from now on they
// are as open as the caller holds them. Whoever still writes to them is then told
// so (SIGPIPE) once the caller has gone. It says nothing if the runner is gone, which forgets too.
func (r *Runner) Forget(session, exec string) {
	_ = r.send(kindForget, 0, target{session, exec}, nil)
}

// CloseStdin lets the runner close its duplicate of the end of stdin that is written. With the
// caller's own closed, the command comes to the end of its input. Of a stdin that is not open, or
// not any more, it is no error.
func (r *Runner) CloseStdin(ctx context.Context, session, exec string) error {
	return r.do(ctx, kindCloseStdin, target{session, exec}, &none{})
}

// process makes a call that is answered with an execution.
func (r *Runner) process(ctx context.Context, k kind, body any, stdin *os.File) (*sandbox.Process, error) {
	c := newCall()
	id, err := r.register(c)
	if err != nil {
		return nil, err
	}
	messages, err := r.exchange(ctx, id, c, k, body, stdin)
	if err != nil {
		return nil, err
	}
	var reply startReply
	fds := messages[0].fds
	if decode(messages[0].body, &reply) != nil || len(fds) != 2 && !reply.Stdin || len(fds) != 3 && reply.Stdin {
		packet.CloseAll(fds)
		r.forget(id, c)
		return nil, sandbox.Errorf(sandbox.CodeInternal, "%d streams for an execution", len(fds))
	}
	p := &sandbox.Process{
		Stdout:  stream(fds[0], "stdout"),
		Stderr:  stream(fds[1], "stderr"),
		Started: reply.Started,
		Done:    c.exited,
	}
	if reply.Stdin {
		p.Stdin = stream(fds[2], "stdin")
	}
	return p, nil
}

// stream returns our end of a pipe, polled, so that Close ends a Read or a Write.
func stream(fd int, name string) *os.File {
	// A pipe can always be made non-blocking; were it not, reads would block a thread, and work.
	// The runner's duplicate becomes so too, which does not read.
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

// Signal signals an execution, or with exec "" every execution of the session. One that is
// frozen gets the signal when it is thawed.
func (r *Runner) Signal(ctx context.Context, session, exec string, sig int) error {
	return r.do(ctx, kindSignal, signalCall{target{session, exec}, sig}, &none{})
}

// Foreground signals the process group that the terminal of an execution listens to.
func (r *Runner) Foreground(ctx context.Context, session, exec string, sig int) error {
	return r.do(ctx, kindForeground, signalCall{target{session, exec}, sig}, &none{})
}

// Kill kills the whole tree of an execution, or with exec "" of every execution, frozen or not.
func (r *Runner) Kill(ctx context.Context, session, exec string) error {
	return r.do(ctx, kindKill, target{session, exec}, &none{})
}

// Freeze stops every process of an execution, or with exec "" of every execution, where it
// is; when it returns they have stopped. With frozen false they go on. Doing it twice is no error. An
// execution goes on when neither it nor its session is frozen. Nothing can be started in a
// frozen session (CodeFrozen).
func (r *Runner) Freeze(ctx context.Context, session, exec string, frozen bool) error {
	return r.do(ctx, kindFreeze, freezeCall{target{session, exec}, frozen}, &none{})
}

// Load returns what a session uses at this moment.
func (r *Runner) Load(ctx context.Context, session string) (sandbox.Load, error) {
	var l sandbox.Load
	err := r.do(ctx, kindLoad, target{Session: session}, &l)
	return l, err
}

// Collect opens regular files of the session. The caller closes them.
func (r *Runner) Collect(ctx context.Context, session string, paths []string) ([]sandbox.Artifact, error) {
	messages, err := r.call(ctx, kindCollect, collectCall{session, paths})
	if err != nil {
		return nil, err
	}
	var out []sandbox.Artifact
	for i, m := range messages {
		got, err := unpack(m)
		out = append(out, got...)
		if err != nil {
			answer{messages: messages[i+1:]}.discard()
			for _, a := range out {
				a.File.Close() // of a nil *os.File: an error, and nothing else
			}
			return nil, sandbox.Errorf(sandbox.CodeInternal, "collect: %v", err)
		}
	}
	return out, nil
}

// unpack joins artifacts and descriptors. Descriptors that no artifact claims are closed.
func unpack(m message) ([]sandbox.Artifact, error) {
	var list []artifact
	if err := decode(m.body, &list); err != nil {
		packet.CloseAll(m.fds)
		return nil, err
	}
	fds := m.fds
	out := make([]sandbox.Artifact, len(list))
	for i, a := range list {
		out[i] = sandbox.Artifact{Path: a.Path, Size: a.Size, Mode: a.Mode, Err: a.Err}
		if a.HasFile && len(fds) > 0 {
			out[i].File = os.NewFile(uintptr(fds[0]), a.Path)
			fds = fds[1:]
		} else if a.HasFile {
			return out, errMalformed
		}
	}
	packet.CloseAll(fds)
	return out, nil
}

// Connect makes a connection to a port of the session's loopback, from inside. The caller closes it.
func (r *Runner) Connect(ctx context.Context, session string, port uint16) (net.Conn, error) {
	messages, err := r.call(ctx, kindConnect, connectCall{session, port})
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 || len(messages[0].fds) != 1 {
		answer{messages: messages}.discard()
		return nil, sandbox.Errorf(sandbox.CodeInternal, "connect: %v", errMalformed)
	}
	f := os.NewFile(uintptr(messages[0].fds[0]), "forwarded")
	defer f.Close()
	if err := connected(ctx, f); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeNetwork, "forward: %v", err)
	}
	return conn, nil
}

// connected waits until a connection that is being made stands.
func connected(ctx context.Context, f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })()
	refused := 0
	err = conn.Write(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(p, 0); n == 0 {
			return false
		}
		refused, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		return true
	})
	switch {
	case err != nil:
		return sandbox.Errorf(sandbox.CodeNetwork, "forward: %v", err)
	case refused != 0:
		return sandbox.Errorf(sandbox.CodeNotListening, "connect: %v", unix.Errno(refused))
	}
	return nil
}

// Changes returns what an overlay has that its source has not, in order of paths: limit of them at
// most, those after a path, and whether there are more. An empty target is the session's only overlay.
func (r *Runner) Changes(ctx context.Context, session, target, after string, limit int) ([]sandbox.Change, bool, error) {
	var reply changesReply
	if err := r.do(ctx, kindChanges, changesCall{space{session, target}, []byte(after), limit}, &reply); err != nil {
		return nil, false, err
	}
	changes := make([]sandbox.Change, len(reply.Changes))
	for i, c := range reply.Changes {
		changes[i] = sandbox.Change{Path: string(c.Path), Kind: c.Kind, Type: c.Type, Mode: c.Mode, Size: c.Size, Link: string(c.Link)}
	}
	return changes, reply.More, nil
}

// Commit makes the changes of an overlay to its source: those at and below paths, or with none all. A
// commit that fails on its way says beside the error how far it came.
func (r *Runner) Commit(ctx context.Context, session, target string, paths []string) (sandbox.Committed, error) {
	var reply commitReply
	if err := r.do(ctx, kindCommit, commitCall{space{session, target}, each[[]byte](paths)}, &reply); err != nil {
		return sandbox.Committed{}, err
	}
	done := sandbox.Committed{Applied: reply.Applied, Left: each[string](reply.Left)}
	if reply.Err != nil {
		return done, reply.Err
	}
	return done, nil
}

// Discard empties an overlay.
func (r *Runner) Discard(ctx context.Context, session, target string) error {
	return r.do(ctx, kindDiscard, space{session, target}, &none{})
}

// Narrow takes a part of a session's network away, and returns how many live connections that cut.
func (r *Runner) Narrow(ctx context.Context, session string, n sandbox.Network) (cut int64, err error) {
	var reply narrowReply
	err = r.do(ctx, kindNarrow, narrowCall{session, n}, &reply)
	return reply.Cut, err
}

// Close destroys a session, and forgets its executions.
func (r *Runner) Close(ctx context.Context, session string) (sandbox.Usage, error) {
	var u sandbox.Usage
	err := r.do(ctx, kindClose, target{Session: session}, &u)
	return u, err
}

// Done is closed when the runner is gone: every pending call has failed, and every
// Process.Done is closed.
func (r *Runner) Done() <-chan struct{} { return r.gone }

// Disconnect ends the connection, and waits until every waiter has been told.
func (r *Runner) Disconnect() error {
	err := r.socket.Close()
	<-r.gone
	return err
}

// do makes a call whose answer is one body.
func (r *Runner) do(ctx context.Context, k kind, body, into any) error {
	messages, err := r.call(ctx, k, body)
	if err != nil {
		return err
	}
	defer answer{messages: messages}.discard() // no descriptor is expected
	if err := decode(messages[0].body, into); err != nil {
		return sandbox.Errorf(sandbox.CodeInternal, "%v", err)
	}
	return nil
}

// call makes a call that is over with its answer.
func (r *Runner) call(ctx context.Context, k kind, body any) ([]message, error) {
	c := newCall()
	id, err := r.register(c)
	if err != nil {
		return nil, err
	}
	messages, err := r.exchange(ctx, id, c, k, body, nil)
	if err != nil {
		return nil, err
	}
	r.forget(id, c)
	return messages, nil
}

func newCall() *call {
	return &call{answer: make(chan answer, 1), exited: make(chan sandbox.Result, 1)}
}

var errGone = &sandbox.Error{Code: sandbox.CodeGone, Msg: "the connection to the runner is closed"}

func (r *Runner) register(c *call) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		return 0, errGone
	}
	r.last++
	r.calls[r.last] = c
	return r.last, nil
}

// forget drops a call, and closes the descriptors that came for it meanwhile.
func (r *Runner) forget(id uint64, c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, id)
	answer{messages: c.parts}.discard()
	c.parts = nil
	select {
	case a := <-c.answer:
		a.discard()
	default:
	}
}

// exchange sends a call and waits for its answer. On an error the call is forgotten.
func (r *Runner) exchange(ctx context.Context, id uint64, c *call, k kind, body any, file *os.File) ([]message, error) {
	if err := r.send(k, id, body, file); err != nil {
		r.forget(id, c)
		return nil, err
	}
	select {
	case a := <-c.answer:
		if a.err != nil {
			r.forget(id, c)
		}
		return a.messages, a.err
	case <-ctx.Done():
		r.forget(id, c)
		// If this fails the connection is lost, which cancels too.
		_ = r.send(kindCancel, id, none{}, nil)
		return nil, ctx.Err()
	}
}

func (r *Runner) send(k kind, id uint64, body any, file *os.File) error {
	msg, err := encode(k, id, body)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeInternal, "%v", err)
	}
	var fds []int
	if file != nil {
		fds = []int{int(file.Fd())}
	}
	err = r.socket.Send(msg, fds...)
	runtime.KeepAlive(file)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET), errors.Is(err, net.ErrClosed):
		return errGone
	}
	return sandbox.Errorf(sandbox.CodeInternal, "send to the runner: %v", err)
}

// receive hands out what the runner says, until it says no more.
func (r *Runner) receive() {
	for {
		msg, fds, err := r.socket.Receive()
		switch err {
		case nil:
			err = r.dispatch(msg, fds)
		case packet.ErrDescriptors:
			err = r.bereft(msg)
		}
		if err != nil {
			break
		}
	}
	r.socket.Close()
	r.mu.Lock()
	calls := r.calls
	r.calls = nil
	for _, c := range calls {
		answer{messages: c.parts}.discard()
		c.parts = nil
		c.settle(answer{err: errGone})
		close(c.exited)
	}
	r.mu.Unlock()
	close(r.gone)
}

// dispatch delivers one message; it owns fds. A message that cannot be understood ends the connection.
func (r *Runner) dispatch(msg []byte, fds []int) error {
	k, id, body, err := split(msg)
	if err != nil {
		packet.CloseAll(fds)
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[id]
	if c == nil { // the caller has left
		packet.CloseAll(fds)
		return nil
	}
	m := message{bytes.Clone(body), fds} // the receive buffer is about to be reused
	switch k {
	case kindPart:
		c.parts = append(c.parts, m)
	case kindReply:
		c.settle(answer{messages: append(c.parts, m)})
		c.parts = nil
	case kindFailure:
		e := new(sandbox.Error)
		answer{messages: append(c.parts, m)}.discard()
		c.parts = nil
		if err := decode(body, e); err != nil {
			return err
		}
		c.settle(answer{err: e})
	case kindExited:
		packet.CloseAll(fds)
		var res sandbox.Result
		if err := decode(body, &res); err != nil {
			return err
		}
		delete(r.calls, id)
		c.exited <- res
		close(c.exited)
	default:
		packet.CloseAll(fds)
		return errMalformed
	}
	return nil
}

// bereft fails the call of an answer that has lost its descriptors. What was started, nobody can follow: its caller kills it.
func (r *Runner) bereft(msg []byte) error {
	_, id, _, err := split(msg)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[id]; c != nil {
		answer{messages: c.parts}.discard()
		c.parts = nil
		c.settle(answer{err: errBereft})
	}
	return nil
}

// settle delivers the first answer; a second one is dropped.
func (c *call) settle(a answer) {
	select {
	case c.answer <- a:
	default:
		a.discard()
	}
}
