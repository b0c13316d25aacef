package guest

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

// ErrGone says that init has ended, or that its socket is closed.
var ErrGone = errors.New("init is gone")

// Pair returns a socket pair for NewConn and for init, which gets theirs as
// descriptor 3. The caller closes theirs once init has been started.
func Pair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	// Only our end is polled; init blocks in its reads.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		packet.CloseAll(fds[:])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "init"), os.NewFile(uintptr(fds[1]), "runner"), nil
}

// Conn is the runner's end of the conversation with one init. Its methods may be
// called from many goroutines. The caller closes it; init ends with it.
type Conn struct {
	file   *os.File // socket's
	socket *packet.Conn
	gone   chan struct{} // closed when nothing more will be received

	mu      sync.Mutex
	last    uint64           // call number given out last
	calls   map[uint64]*call // unanswered, or spawned and not exited; nil once gone
	pending int              // calls that wait for their answer
	idle    chan struct{}    // while Suspend waits for them: closed by the last; else nil
	held    bool             // since Suspend, until Continue: no new call
	stopped chan struct{}    // closed when the reader has stopped, for good or by Suspend
}

// call is a request, and for a spawn the life of the command.
type call struct {
	answer chan answer // capacity 1: its receiver may have left
	exit   chan Exit   // capacity 1
	parked *parked     // of a command that begins with an executor
	done   func()      // of a spawn: nobody waits for its start any more
	pid    int         // once init has said that it was started; guarded by Conn.mu
}

type answer struct {
	pid   int
	ready Ready
	files []*os.File // of a terminal
	err   error
}

// ended delivers how the command ended, or nothing if init is gone.
func (w *call) ended(e ...Exit) {
	for _, e := range e {
		w.exit <- e
	}
	close(w.exit)
	if w.parked != nil {
		w.parked.end()
	}
}

func newCall() *call {
	return &call{answer: make(chan answer, 1), exit: make(chan Exit, 1)}
}

// settle delivers the first answer; init gives no second. Whoever has given up gets none.
func (w *call) settle(a answer) {
	select {
	case w.answer <- a:
	default:
		a.discard()
	}
}

// abandon gives up on the answer, whether it has come or will: what it brings is closed.
func (w *call) abandon() {
	for {
		select {
		case w.answer <- answer{}: // takes its place
			return
		case a := <-w.answer:
			a.discard()
		}
	}
}

func (a answer) discard() {
	if a.ready.Listener != nil {
		a.ready.Listener.Close()
	}
	for _, f := range a.files {
		f.Close()
	}
}

// settleAs delivers a, unless nobody waits or the message was malformed.
func (w *call) settleAs(a answer, err error) error {
	if w != nil && err == nil {
		w.settle(a)
	}
	return err
}

// NewConn starts the conversation on our end of a Pair, which the Conn owns from now on.
func NewConn(ours *os.File) (*Conn, error) {
	c, err := newConn(ours)
	if err != nil {
		return nil, err
	}
	go c.receive()
	return c, nil
}

// newConn returns a Conn whose reader has yet to be started.
func newConn(ours *os.File) (*Conn, error) {
	socket, err := packet.NewConn(ours)
	if err != nil {
		return nil, err
	}
	return &Conn{
		file:    ours,
		socket:  socket,
		gone:    make(chan struct{}),
		calls:   map[uint64]*call{},
		stopped: make(chan struct{}),
	}, nil
}

// Setup makes init what it has to be. It is called once, before anything else.
func (c *Conn) Setup(ctx context.Context, s Setup) (Ready, error) {
	a, err := c.ask(ctx, kindSetup, &s)
	return a.ready, err
}

// Allow lets what is executed from now on write beneath tree, as a Setup's Access does. It is for what is
// mounted over a place after Setup: there Landlock knows nobody's rights. What was executed
// before does not gain by it, and neither can signal the other any more.
//
// Executions are cloned from another thread of init's then, called SpawnerName. It waits until moved has put
// it where the one before was; without Landlock, moved is not called. Where that fails, or whether there is such a thread is not
// known any more, the thread still waits when end is called, and serves when end returns: end ends init. If that
// fails, the conversation ends, and init with it. An init that is gone is not ended: its place may be another's.
func (c *Conn) Allow(ctx context.Context, tree *os.File, moved, end func() error) error {
	wait, gone, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	defer gone.Close() // lets it serve
	a, err := c.ask(ctx, kindAllow, nil, tree, wait)
	var refused *Error
	if errors.As(err, &refused) || err == nil && a.pid == 0 {
		return err
	}
	if err == nil {
		err = moved()
	}
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	if failed := end(); failed != nil {
		err = errors.Join(err, failed, c.Close())
	}
	return err
}

// Process is a command that runs.
type Process struct {
	PID    int         // in the session's pid namespace
	Exited <-chan Exit // one value once the command has been reaped; closed without one if init is gone

	conn   *Conn
	call   uint64
	parked *parked // until Release; nil of a command that needs none
	done   func()  // what Release ends with
}

// Call is the number of its spawn, by which it is found again in a State.
func (p *Process) Call() uint64 { return p.call }

// Streams are the descriptors of a command. They stay the caller's. Stdin, Stdout and
// Stderr are required; Cgroup is the leaf that the command is born in, nil for init's own. Worker is what Command.Files
// executes: the same program as init, in a file that nobody inside may read.
type Streams struct {
	Stdin, Stdout, Stderr *os.File
	Cgroup                *os.File
	Worker                *os.File
}

// Spawn starts a command. If ctx ends first the command may start all the same: the
// caller then kills its cgroup. Errors of the inside are *Error. A parked command has to be
// released or killed: Suspend waits for that.
func (c *Conn) Spawn(ctx context.Context, cmd Command, s Streams) (*Process, error) {
	w := newCall()
	f := &spawnFrame{Command: cmd, cgroup: s.Cgroup != nil, files: cmd.Files}
	files := []*os.File{s.Stdin, s.Stdout, s.Stderr}
	if s.Cgroup != nil {
		files = append(files, s.Cgroup)
	}
	if cmd.Files {
		files = append(files, s.Worker)
	}
	w.done = sync.OnceFunc(c.answered)
	if cmd.Parked || len(cmd.Rlimits) > 0 || len(cmd.Canary) > 0 || cmd.Terminal {
		parked, theirs, err := newParked(cmd)
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		f.Command, f.executor = Command{}, true
		files = append(files, theirs)
		w.parked = parked
		w.done = sync.OnceFunc(func() { parked.socket.Close(); c.answered() })
		parked.done = w.done
	}
	id, err := c.register(w)
	if err != nil {
		if w.parked != nil {
			w.parked.socket.Close()
		}
		return nil, err
	}
	a, err := c.exchange(ctx, w, encode(kindSpawn, id, f), files...)
	if w.parked != nil {
		files[len(files)-1].Close() // as long as we have the executor's end, it does not close
	}
	p := &Process{PID: a.pid, Exited: w.exit, conn: c, call: id, parked: w.parked, done: w.done}
	if err == nil && p.parked != nil {
		err = p.parked.wait(ctx)
		if err == nil && cmd.Parked {
			return p, nil
		}
		if err == nil {
			err = p.Release(ctx)
		}
	}
	w.done()
	if err != nil {
		c.forget(id)
		return nil, err
	}
	return p, nil
}

// Release lets a parked command execute. After an error it has ended, or may not have, if the error
// is that of ctx. It is called once.
func (p *Process) Release(ctx context.Context) error {
	if p.parked == nil {
		return errors.New("release: the command is not parked")
	}
	defer p.done()
	return p.parked.release(ctx)
}

// Signal signals the command's process group. It returns an *Error with ESRCH once the command has been reaped.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.conn.do(ctx, kindSignal, &signalFrame{p.call, int32(sig)})
}

// SignalAll signals every process of the session but init.
func (c *Conn) SignalAll(ctx context.Context, sig syscall.Signal) error {
	return c.do(ctx, kindSignal, &signalFrame{0, int32(sig)})
}

// Terminal opens a terminal in the session's own devpts, for a Command.Terminal. Both ends are the caller's to
// close; the master is in non-blocking mode.
func (c *Conn) Terminal(ctx context.Context) (master, slave *os.File, err error) {
	a, err := c.ask(ctx, kindTerminal, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(a.files) != 2 {
		closeFiles(a.files)
		return nil, nil, errMalformed
	}
	return a.files[0], a.files[1], nil
}

// Connect makes a connection to a port of the session's loopback: a socket in non-blocking mode, connected or about to be. It is
// the caller's to close.
func (c *Conn) Connect(ctx context.Context, port uint16) (*os.File, error) {
	a, err := c.ask(ctx, kindConnect, &connectFrame{uint32(port)})
	if err != nil {
		return nil, err
	}
	if len(a.files) != 1 {
		closeFiles(a.files)
		return nil, errMalformed
	}
	return a.files[0], nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Foreground signals the process group that a terminal listens to. It is found and signalled inside, where no number
// means a process of the host's.
func (c *Conn) Foreground(ctx context.Context, master *os.File, sig syscall.Signal) error {
	_, err := c.ask(ctx, kindForeground, &foregroundFrame{int32(sig)}, master)
	return err
}

// Close ends the conversation, and thereby init and everything in its pid
// namespace, and waits until every waiter has been told.
func (c *Conn) Close() error {
	err := c.socket.Close()
	c.Continue() // or nobody would tell them
	<-c.gone
	return err
}

// do makes a call whose answer is done.
func (c *Conn) do(ctx context.Context, kind byte, m member) error {
	_, err := c.ask(ctx, kind, m)
	return err
}

// ask makes a call that starts nothing.
func (c *Conn) ask(ctx context.Context, kind byte, m member, files ...*os.File) (answer, error) {
	w := newCall()
	id, err := c.register(w)
	if err != nil {
		return answer{}, err
	}
	defer c.answered()
	defer c.forget(id)
	a, err := c.exchange(ctx, w, encode(kind, id, m), files...)
	if err != nil {
		w.abandon()
	}
	return a, err
}

func (c *Conn) register(w *call) (id uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.calls == nil:
		return 0, ErrGone
	case c.held:
		return 0, ErrSuspended
	}
	c.pending++
	c.last++
	c.calls[c.last] = w
	return c.last, nil
}

func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// answered is the end of a call that was registered: its caller waits no longer.
func (c *Conn) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending--; c.pending == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// exchange sends a message and waits for its answer.
func (c *Conn) exchange(ctx context.Context, w *call, msg []byte, files ...*os.File) (answer, error) {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd()) // Fd also makes it blocking, as a command expects its streams
	}
	err := c.socket.Send(msg, fds...)
	runtime.KeepAlive(files)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		return answer{}, ErrGone
	}
	if err != nil {
		return answer{}, err
	}
	select {
	case a := <-w.answer:
		return a, a.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// receive hands out what init says, until it says no more or Suspend has set a deadline.
func (c *Conn) receive() {
	defer close(c.stopped)
	for {
		msg, fds, err := c.socket.Receive()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		switch err {
		case nil:
			err = c.dispatch(msg, &fds)
		case packet.ErrDescriptors:
			err = c.bereft(msg)
		}
		packet.CloseAll(fds) // what nobody took
		if err != nil {
			break
		}
	}
	c.end()
}

// bereft fails the call of an answer that has lost its descriptors: the session goes on.
func (c *Conn) bereft(msg []byte) error {
	_, id, _ := head(msg)
	c.mu.Lock()
	w := c.calls[id]
	c.mu.Unlock()
	return w.settleAs(answer{err: unix.EMFILE}, nil)
}

// end tells every waiter that init is gone.
func (c *Conn) end() {
	c.socket.Close()
	c.mu.Lock()
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for _, w := range calls {
		w.settle(answer{err: ErrGone})
		w.ended()
	}
	close(c.gone)
}

// dispatch delivers one message. A message for a call that nobody waits for any
// more is dropped; a message that cannot be understood ends the conversation. It takes the
// descriptors that somebody wants.
func (c *Conn) dispatch(msg []byte, fds *[]int) error {
	kind, id, rest := head(msg)
	c.mu.Lock()
	w := c.calls[id]
	c.mu.Unlock()
	switch kind {
	case kindDone:
		return w.settleAs(answer{}, decode(rest, nil))
	case kindReady:
		var f readyFrame
		err := decode(rest, &f)
		a := answer{ready: Ready{Landlock: int(f.landlock)}}
		if w != nil && err == nil && len(*fds) > 0 {
			a.ready.Listener = os.NewFile(uintptr((*fds)[0]), "seccomp notify")
			*fds = (*fds)[1:]
		}
		return w.settleAs(a, err)
	case kindOpened:
		err := decode(rest, nil)
		var a answer
		if w != nil && err == nil {
			for _, fd := range *fds {
				a.files = append(a.files, os.NewFile(uintptr(fd), "opened inside"))
			}
			*fds = nil
		}
		return w.settleAs(a, err)
	case kindStarted:
		var f startedFrame
		err := decode(rest, &f)
		if w != nil {
			c.mu.Lock()
			w.pid = int(f.pid)
			c.mu.Unlock()
		}
		return w.settleAs(answer{pid: int(f.pid)}, err)
	case kindFailed:
		e := new(Error)
		err := decode(rest, e)
		return w.settleAs(answer{err: e}, err)
	case kindExited:
		var e Exit
		if err := decode(rest, &e); err != nil {
			return err
		}
		if w != nil {
			c.forget(id)
			w.ended(e)
		}
		return nil
	}
	return errMalformed
}
