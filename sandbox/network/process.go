package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/cleanup"
	"github.com/stockade-dev/stockade/internal/packet"
	"github.com/stockade-dev/stockade/sandbox/relay"
)

var errEnded = errors.New("the relay has ended")

// process is a relay, and the conversation with it.
type process struct {
	os      *os.Process // nil of one that had been reaped before this program began
	socket  *os.File    // our end
	control *packet.Conn
	words   *os.File // a memfd: what it wrote to stderr
	report  func(Event)

	ready chan struct{} // closed when it serves
	ended chan struct{} // closed when it has ended, or when it was told to
	dead  sync.Once

	saying sync.Mutex // one order at a time, each with its own deadline

	mu      sync.Mutex
	reading chan struct{} // closed when nobody reads what it says
	calls   map[uint64]chan relay.Notice
	last    uint64
	state   *os.ProcessState // once it has been reaped
	quiet   bool             // its end is no news
}

// start starts a relay that waits for its orders. It has no privilege and no descriptor of ours but its
// end of the socket.
func start(o Options) (_ *process, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	if o.UID <= 0 {
		return nil, fmt.Errorf("bug: a relay of user %d", o.UID)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "relay's end")
	defer theirs.Close()
	ours, err := pollable(pair[0], "relay")
	if err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("relay: %w", err)
	}
	undo.Add(func() { ours.Close() })
	memfd, err := unix.MemfdCreate("stockade-relay-words", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("relay: memfd: %w", err)
	}
	words := os.NewFile(uintptr(memfd), "relay's words")
	undo.Add(func() { words.Close() })
	cmd := &exec.Cmd{
		Path:       "/proc/self/fd/" + strconv.Itoa(int(o.Relay.Fd())),
		Args:       []string{"stockade-relay"},
		Env:        []string{},
		Dir:        "/",
		Stderr:     words,
		ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{
			Setsid:     true, // no signal of a terminal is for it
			Credential: &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.UID), Groups: []uint32{}},
		},
	}
	if o.Group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(o.Group.Fd())
	}
	if err := startPowerless(cmd); err != nil {
		return nil, fmt.Errorf("start relay: %w", err)
	}
	undo.Add(func() { cmd.Process.Kill(); cmd.Process.Wait() })
	if o.Place != nil {
		if err := o.Place(cmd.Process.Pid); err != nil {
			return nil, fmt.Errorf("place relay: %w", err)
		}
	}
	p, err := converse(cmd.Process, ours, words, o.Report)
	if err != nil {
		return nil, err
	}
	undo.Release()
	return p, nil
}

// startPowerless starts a process that can never have a capability, and gains nothing by execve. It inherits that
// from a thread that ends here.
func startPowerless(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := giveUp(); err != nil {
			done <- err
			return
		}
		done <- cmd.Start()
	}()
	return <-done
}

// giveUp takes from this thread what a child inherits. What is permitted it keeps until the child changes its user.
func giveUp() error {
	for c := uintptr(0); ; c++ {
		if set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil { // the last of this kernel was the one before
			break
		} else if set == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0 // and with it what is ambient
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	return nil
}

// converse begins to listen to a relay, and to wait for its end.
func converse(child *os.Process, socket, words *os.File, report func(Event)) (*process, error) {
	control, err := packet.NewConn(socket)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if report == nil {
		report = func(Event) {}
	}
	p := &process{
		os: child, socket: socket, control: control, words: words, report: report,
		ready: make(chan struct{}), ended: make(chan struct{}), calls: map[uint64]chan relay.Notice{},
	}
	p.listen()
	go p.reap()
	return p, nil
}

// reap waits for the process: whoever closes does not.
func (p *process) reap() {
	var state *os.ProcessState
	if p.os != nil {
		state, _ = p.os.Wait()
	}
	p.mu.Lock()
	p.state = state
	p.mu.Unlock()
	<-p.silent() // everything that it had to say has been said
	p.end()
}

func (p *process) end() {
	p.dead.Do(func() {
		close(p.ended)
		p.mu.Lock()
		quiet := p.quiet
		p.mu.Unlock()
		if !quiet {
			p.report(Event{Rule: RuleEnded})
		}
	})
}

// lost reports whether the relay has ended without having been told to.
func (p *process) lost() bool {
	select {
	case <-p.ended:
	default:
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.quiet
}

// listen starts to read what the relay says.
func (p *process) listen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = make(chan struct{})
	go p.read(p.reading)
}

// silent is closed when nothing is read any more.
func (p *process) silent() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading
}

// kill ends the relay. One that has been reaped is left alone.
func (p *process) kill() {
	if p.os != nil {
		p.os.Kill()
	}
}

// maxNotice is more than any notice has. A relay parses hostile bytes; what it says goes into receipts.
const maxNotice = 4 << 10

func (p *process) read(done chan struct{}) {
	defer close(done)
	for {
		b, fds, err := p.control.Receive()
		packet.CloseAll(fds)
		var n relay.Notice
		switch {
		case err == nil && len(b) > maxNotice:
			err = errors.New("the relay says too much at once")
		case err == nil:
			err = relay.Decode(b, &n)
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // Save
			return
		case err != nil: // its end, or nonsense, after which it must not go on
			p.kill()
			return
		case n.Event != nil:
			p.report(*n.Event)
		case n.Call == 0:
			p.begun()
		default:
			p.mu.Lock()
			if answer := p.calls[n.Call]; answer != nil {
				delete(p.calls, n.Call)
				answer <- n
			}
			p.mu.Unlock()
		}
	}
}

func (p *process) begun() {
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
}

// begin gives the relay its configuration and its sockets, and waits until it serves.
func (p *process) begin(ctx context.Context, c *relay.Config, sockets []*os.File) error {
	var fds []int
	for _, f := range sockets {
		fds = append(fds, int(f.Fd()))
	}
	if err := p.say(relay.Order{Start: c}, fds...); err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	select {
	case <-p.ready:
		return nil
	case <-p.ended:
		return errors.Join(fmt.Errorf("start relay: %w", errEnded), p.why())
	case <-ctx.Done():
		return fmt.Errorf("start relay: %w", ctx.Err())
	}
}

// answerWithin bounds a call whose caller does not.
const answerWithin = 10 * time.Second

// call sends an order and waits for its answer.
func (p *process) call(ctx context.Context, o relay.Order) (relay.Notice, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer := make(chan relay.Notice, 1)
	p.mu.Lock()
	p.last++
	o.Call = p.last
	p.calls[o.Call] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.calls, o.Call)
		p.mu.Unlock()
	}()
	if err := p.say(o); err != nil {
		return relay.Notice{}, err
	}
	select {
	case n := <-answer:
		if (n.Traffic != nil) != (o.Traffic != nil) || n.Cut < 0 { // nonsense, as for read
			p.kill()
			return relay.Notice{}, errors.New("the relay answers what it was not asked")
		}
		return n, nil
	case <-p.ended:
		return relay.Notice{}, errEnded
	case <-ctx.Done():
		return relay.Notice{}, fmt.Errorf("relay: %w", ctx.Err())
	}
}

// takenWithin is how long an order may wait for room in the socket, which has room for hundreds.
const takenWithin = 2 * time.Second

// say gives the relay an order. One that does not take it is killed, and so is one that has closed its end of the socket, which
// it holds for as long as it lives: who waits for what comes of the order is told by its end. An error is ours, and
// nothing has been said.
func (p *process) say(o relay.Order, fds ...int) error {
	b, err := relay.Encode(o)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	p.saying.Lock()
	defer p.saying.Unlock()
	if err = p.socket.SetWriteDeadline(time.Now().Add(takenWithin)); err == nil {
		err = p.control.Send(b, fds...)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		p.kill()
		return nil
	}
	select {
	case <-p.ended: // by us, perhaps, and so is our end of the socket
		return nil
	default:
		return fmt.Errorf("relay: %w", err)
	}
}

// close ends the relay without waiting for it.
func (p *process) close() {
	p.mu.Lock()
	p.quiet = true
	p.mu.Unlock()
	p.kill()
	p.control.Close()
	p.words.Close()
	p.end()
}

// why says how the relay ended, in the words that it left.
func (p *process) why() error {
	p.mu.Lock()
	state := p.state
	p.mu.Unlock()
	if state == nil {
		return nil
	}
	words, _ := io.ReadAll(io.NewSectionReader(p.words, 0, 1<<10))
	return fmt.Errorf("relay: %v: %s", state, bytes.TrimSpace(words))
}

// pollable makes a file that can be waited for.
func pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
