package guest

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

// An executor is init's own program in the place of a command: cloned as every command is, with
// its streams, in its leaf, and on its way to becoming it. It costs a start of the program,
// and is there for what has to happen between clone and execve. Its descriptor 3 is a socket of
// the runner's, who tells it the command; what a caller says is in no environment of ours.
//
//	runner                              executor
//	  │◀─────────────────────── parked ─┤  nobody reads its memory any more
//	  │  command {argv, env, cwd, …}    │  Release
//	  ├────────────────────────────────▶│  lowers limits, looks the program up
//	  │◀─────────────────────── becomes ┤  all is done but execve
//	  │◀──────────────────────── failed │  or end of file: it is the command now
//
// An end of file without becomes is an executor that has ended, of its ceiling perhaps: there was no command.
//
// Like everything that runs inside, it is believed no more than a command is.
const (
	kindParked  = 16 + iota // executor to runner; apart from the kinds that init knows
	kindCommand             // runner to executor
	kindBecomes             // executor to runner
)

// Execute is the executor's life up to execve, and returns its exit status if it does not come
// to that. The caller has locked the main goroutine to the main thread.
func Execute() int {
	if _, err := unix.FcntlInt(socketFD, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return 1
	}
	// Its environment is empty, and it holds no secret yet.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 1
	}
	if err := defaultActions(); err != nil {
		return 1
	}
	enoughThreads()
	if err := packet.Send(socketFD, encode(kindParked, 0, nil)); err != nil {
		return 1
	}
	msg, fds, err := new(packet.Buffer).Receive(socketFD)
	packet.CloseAll(fds)
	if err != nil { // nobody will let it go
		return 1
	}
	kind, _, rest := head(msg)
	var f commandFrame
	if decode(rest, &f) != nil || kind != kindCommand {
		return refuse(&Error{StageRequest, "decode", syscall.EPROTO})
	}
	if len(f.Canary) > 0 {
		if becomes() != 0 {
			return 1
		}
		unix.Close(socketFD)
		return tryAll(f.Canary)
	}
	return refuse(f.execute())
}

// defaultActions makes a signal end the executor in the kernel, as it would the command. The runtime's handler would be
// interrupted by an execve of another thread, and the signal lost; and would write of some to a stderr that is the command's. What
// the processor raises, and what the runtime sends itself, stay the runtime's.
func defaultActions() error {
	const last = 64 // SIGRTMAX
	for sig := unix.Signal(1); sig <= last; sig++ {
		switch sig {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGURG:
			continue
		}
		if err := defaultAction(sig); err != nil {
			return err
		}
	}
	return nil
}

// spareThreads are those that the runtime has at hand while the executor is parked.
const spareThreads = 3

// enoughThreads starts every thread that the runtime may still want. Once it is under the command's ceiling
// of pids there may be no room for one, and a runtime that gets none ends the process, as if the command had
// exited with 2. With one processor and no collections it wants one beside the main thread; another may
// be on its way to sleep.
func enoughThreads() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	var here, gone sync.WaitGroup
	here.Add(spareThreads)
	for range spareThreads {
		gone.Go(func() {
			runtime.LockOSThread() // each to one of its own, until all are there
			here.Done()
			here.Wait()
			runtime.UnlockOSThread() // and the thread stays, idle
		})
	}
	gone.Wait()
}

// refuse tells why there is no command.
func refuse(e *Error) int {
	_ = packet.Send(socketFD, encode(kindFailed, 0, e))
	return 1
}

// execute replaces the process, or says why it cannot, as init does for what it starts itself.
func (f *commandFrame) execute() *Error {
	if len(f.Argv) == 0 || !strings.HasPrefix(f.Cwd, "/") {
		return &Error{StageRequest, "decode", syscall.EPROTO}
	}
	if err := unix.Chdir(f.Cwd); err != nil {
		return &Error{StageWorkdir, "enter " + f.Cwd, errno(err)}
	}
	program, refused := lookup(&f.Command)
	if refused != nil {
		return refused
	}
	if f.Terminal {
		if refused := f.control(); refused != nil {
			return refused
		}
	}
	// Last, because the executor has limits as the command has.
	if err := limit(f.Rlimits, 0); err != nil {
		return &Error{StageRequest, "rlimits", errno(err)}
	}
	if e := becomes(); e != 0 {
		return &Error{StageClone, "execve " + program, e}
	}
	e := errno(syscall.Exec(program, f.Argv, f.Env))
	if slices.Contains(cloneErrors, e) {
		return &Error{StageClone, "execve " + program, e}
	}
	return &Error{StageProgram, "execve " + program, e}
}

// becomes says that nothing is left to do but execve. The runtime does not hear of the call: for one that may wait it would have
// another thread at hand, for which there may be no room.
func becomes() syscall.Errno {
	message := packet.Body(encode(kindBecomes, 0, nil))
	_, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, socketFD, uintptr(unsafe.Pointer(&message[0])), uintptr(len(message)), unix.MSG_NOSIGNAL, 0, 0)
	return e
}

// parked is the runner's end of the conversation with an executor.
type parked struct {
	cmd    Command
	file   *os.File // socket's
	socket *packet.Conn
	over   chan struct{} // closed when the executor, or the command that it became, has ended
	done   func()        // closes the socket; when over, and nobody waits for what the executor has said before

	mu      sync.Mutex
	waiting bool
}

// newParked returns the runner's end, and the executor's, which the caller closes.
func newParked(cmd Command) (*parked, *os.File, error) {
	ours, theirs, err := Pair()
	if err != nil {
		return nil, nil, err
	}
	socket, err := packet.NewConn(ours)
	if err != nil {
		ours.Close()
		theirs.Close()
		return nil, nil, err
	}
	return &parked{cmd: cmd, file: ours, socket: socket, over: make(chan struct{})}, theirs, nil
}

// end is told that it has ended.
func (k *parked) end() {
	k.mu.Lock()
	close(k.over)
	waiting := k.waiting
	k.mu.Unlock()
	if !waiting {
		k.done()
	}
}

// listen keeps the socket open until the function that it returns is called: a command can have ended before it is heard
// that there was one.
func (k *parked) listen() (stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = true
	return func() {
		k.mu.Lock()
		k.waiting = false
		k.mu.Unlock()
		select {
		case <-k.over:
			k.done()
		default:
		}
	}
}

// errClosed is the end of file. After becomes it means that the command has taken the executor's place.
var errClosed = errors.New("the executor has closed its socket")

// receive returns the next message, or errClosed.
func (k *parked) receive(ctx context.Context) (kind byte, rest *decoder, err error) {
	stop := context.AfterFunc(ctx, func() { _ = k.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	msg, fds, err := k.socket.Receive()
	packet.CloseAll(fds)
	switch {
	case ctx.Err() != nil:
		return 0, nil, ctx.Err()
	case err != nil:
		return 0, nil, errClosed
	case len(msg) > packet.Inline: // a refusal has one path in it
		return 0, nil, errMalformed
	}
	kind, _, rest = head(msg)
	return kind, rest, nil
}

// wait returns once the command is parked.
func (k *parked) wait(ctx context.Context) error {
	defer k.listen()()
	kind, rest, err := k.receive(ctx)
	switch {
	case err == errClosed: // by its end: there was no room for it
		return k.ended(ctx, &Error{StageClone, "start executor", syscall.EAGAIN})
	case err != nil:
		return err
	case kind != kindParked || decode(rest, nil) != nil:
		return errMalformed
	}
	return nil
}

// release tells the command, and returns once it has been executed.
func (k *parked) release(ctx context.Context) error {
	defer k.listen()()
	if err := k.socket.Send(encode(kindCommand, 0, &commandFrame{k.cmd})); err != nil {
		return k.ended(ctx, &Error{StageClone, "release", syscall.ESRCH})
	}
	kind, rest, err := k.receive(ctx)
	if err == errClosed {
		return k.ended(ctx, &Error{StageClone, "execve, before which the executor ended", syscall.ESRCH})
	}
	if err == nil && kind == kindBecomes && decode(rest, nil) == nil {
		if kind, rest, err = k.receive(ctx); err == errClosed {
			return nil
		}
	}
	if err != nil {
		return err
	}
	refused := new(Error)
	if kind != kindFailed || decode(rest, refused) != nil {
		return errMalformed
	}
	return k.ended(ctx, refused)
}

// ended returns refused once the executor has been reaped, so that its leaf is empty.
func (k *parked) ended(ctx context.Context, refused *Error) error {
	select {
	case <-k.over:
		return refused
	case <-ctx.Done():
		return ctx.Err()
	}
}
