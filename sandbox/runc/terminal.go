package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/sandbox"
	"github.com/stockade-dev/stockade/sandbox/guest"
)

// The output of a terminal comes to the daemon through a pipe, as every output does: what has left the terminal, and nobody
// has read yet, is in the pipe, whichever daemon there is. Between the two it never leaves the kernel, and nobody here
// looks at it.

// pumpSize is what is moved at a time, at most.
const pumpSize = 64 << 10

// Who writes a script and who reads it mean the same descriptor.
var _ = [1]struct{}{}[sandbox.ScriptFD-guest.ScriptFD]

// openTerminal gives the execution the master of a new terminal and the pipe of its output, and returns the slave,
// which the caller closes. What it made is closed by release.
func (x *execution) openTerminal(ctx context.Context, t *sandbox.Terminal) (slave *os.File, err error) {
	if x.stdin, slave, err = x.session.init.Terminal(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			slave.Close()
		}
	}()
	size := unix.Winsize{Col: uint16(t.Cols), Row: uint16(t.Rows)}
	if err := unix.IoctlSetWinsize(int(x.stdin.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		return nil, fmt.Errorf("size of terminal: %w", err)
	}
	var nothing *os.File
	for _, p := range []struct{ r, w **os.File }{{&x.stdout, &x.outlet}, {&x.stderr, &nothing}} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return nil, fmt.Errorf("pipe: %w", err)
		}
		*p.r, *p.w = os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	}
	return slave, nothing.Close() // a terminal has one output
}

// pump moves the output of a terminal, if there is one, until it ends, it is released or stopped.
func (x *execution) pump() {
	if x.outlet == nil {
		return
	}
	pumped := make(chan struct{})
	x.pumped = pumped
	master, outlet := x.stdin, x.outlet
	go func() {
		defer close(pumped)
		err := pumpOut(master, outlet, func(from, to int) (int64, error) {
			x.moving.Lock()
			defer x.moving.Unlock()
			return splice(from, to)
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return // to be gone on with
		}
		x.session.mu.Lock()
		defer x.session.mu.Unlock()
		outlet.Close()
		x.outlet = nil
	}()
}

// settle waits until what a command has written to its terminal is in the pipe, where those that it leaves behind may have the terminal on.
func (x *execution) settle() {
	x.session.mu.Lock()
	master, open := x.stdin, x.outlet != nil
	x.session.mu.Unlock()
	if !open || master == nil {
		return
	}
	for end := time.Now().Add(hearing); x.unmoved(master) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// unmoved reports whether a terminal has output that is not in the pipe yet. The kernel brings what is on its way to it before it answers.
func (x *execution) unmoved(master *os.File) (is bool) {
	x.moving.Lock()
	defer x.moving.Unlock()
	conn, err := master.SyscallConn()
	if err != nil {
		return false
	}
	_ = conn.Control(func(fd uintptr) { // not of one that is closed
		events, err := poll(int(fd), unix.POLLIN)
		is = err == nil && events&unix.POLLIN != 0
	})
	return is
}

// terminals are the executions that have one.
func (s *session) terminals() (list []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.execs {
		if x.pumped != nil {
			list = append(list, x)
		}
	}
	return list
}

// stopPump stops moving, with nothing on its way. pump goes on.
func (x *execution) stopPump() {
	x.session.mu.Lock()
	pumped := x.pumped
	running := pumped != nil && x.outlet != nil
	if running {
		// Fails of what is closed, and then the pump ends of that.
		_ = x.stdin.SetReadDeadline(time.Unix(1, 0))
		_ = x.outlet.SetWriteDeadline(time.Unix(1, 0))
	}
	x.session.mu.Unlock()
	if running {
		<-pumped
	}
}

// goOn pumps again after stopPump. Where nobody has stopped it, it goes on.
func (x *execution) goOn() {
	x.session.mu.Lock()
	defer x.session.mu.Unlock()
	if x.outlet == nil {
		return
	}
	select {
	case <-x.pumped:
	default:
		return
	}
	_ = x.stdin.SetReadDeadline(time.Time{})
	_ = x.outlet.SetWriteDeadline(time.Time{})
	x.pump()
}

// pumpOut returns nil when no process has the terminal any more, and nothing is left in it. That takes the kernel to say so
// twice: n_tty_read(master) looks for input first and whether the other end is closed after that, and what is written
// and closed in between it does not see until it is asked again.
func pumpOut(master, outlet *os.File, splice func(from, to int) (int64, error)) error {
	from, err := master.SyscallConn()
	if err != nil {
		return err
	}
	to, err := outlet.SyscallConn()
	if err != nil {
		return err
	}
	closed := false
	for {
		var moved error
		full := false
		err := from.Read(func(m uintptr) bool {
			inner := to.Control(func(w uintptr) {
				_, moved = splice(int(m), int(w))
				full = moved == unix.EAGAIN && !hasRoom(int(w))
			})
			if inner != nil {
				moved = inner
			}
			return moved != unix.EAGAIN || full
		})
		switch {
		case err != nil:
			return err
		case full:
			if err := to.Write(func(w uintptr) bool { return hasRoom(int(w)) }); err != nil {
				return err
			}
		case moved == unix.EIO && closed:
			return nil
		case moved != nil && moved != unix.EIO:
			return moved
		}
		closed = moved == unix.EIO // by the last that had it, or it was hung up
	}
}

func splice(from, to int) (int64, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, pumpSize, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// hasRoom says whether a pipe has room, or nobody reads it: then a write says so.
func hasRoom(fd int) bool {
	events, err := poll(fd, unix.POLLOUT)
	return err != nil || events != 0
}

// poll says which events there are, and does not wait for any.
func poll(fd int, events int16) (int16, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(p, 0); err != unix.EINTR {
			return p[0].Revents, err
		}
	}
}
