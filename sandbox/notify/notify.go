// Package notify answers the notifications of a seccomp filter: the calls that a profile
// refuses and somebody should hear of.
//
// A [Server] gives each call to a judge and the judge's errno to the caller. No call is ever
// let through: an answer that would (SECCOMP_USER_NOTIF_FLAG_CONTINUE) could be obtained
// with other arguments than it was given for. Of a call the judge learns what the kernel
// copied: who, which number, the values of the arguments. What they point to is the caller's
// to change, and is not looked at.
//
// It fails closed: where nobody answers, the call waits, and once the last descriptor of the
// listener is closed the kernel answers ENOSYS, to calls that wait as well. From then on only
// the filter keeps those who have it from a listener of their own, whose answers would come
// before ours: the profiles refuse SECCOMP_FILTER_FLAG_NEW_LISTENER.
//
// Non-goals: installing filters, knowing what a profile says (sandbox/seccomp does),
// deciding who a process is.
package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A flood of refused calls costs whoever makes them, not us: so many are answered at once,
// and then so many a second. The others wait in the kernel, before they are received, where
// a signal still ends them.
const (
	burst = 100
	rate  = 500
)

// Call is one call that waits for its answer.
type Call struct {
	PID  int // the thread, in our pid namespace; 0 when it is not of ours
	NR   int
	Args [6]uint64

	id uint64
	on *Server
}

// Valid reports whether the call still waits, so that what was just read of /proc/PID was
// that thread's, and not of another that got its number.
func (c Call) Valid() bool {
	ok := false
	c.on.conn.Control(func(fd uintptr) { ok = valid(fd, c.id) == nil })
	return ok
}

// Server answers the notifications of one listener.
type Server struct {
	listener *os.File
	conn     syscall.RawConn
	judge    func(Call) unix.Errno
	end      context.CancelFunc
	served   sync.WaitGroup
	bucket   bucket
}

// Serve begins to answer the notifications of a listener, one at a time, with the errno that
// judge gives, until Close or until no process has the filter any more. It takes the
// listener over, which must have no other reader: two that saw one notification would leave
// the second of them waiting. It costs a goroutine and no thread.
func Serve(listener *os.File, judge func(Call) unix.Errno) (*Server, error) {
	defer listener.Close()
	if err := fits(); err != nil {
		return nil, fmt.Errorf("seccomp listener: %w", err)
	}
	polled, err := duplicate(listener)
	if err != nil {
		return nil, fmt.Errorf("seccomp listener: %w", err)
	}
	conn, err := polled.SyscallConn()
	if err != nil {
		polled.Close()
		return nil, fmt.Errorf("seccomp listener: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Server{listener: polled, conn: conn, judge: judge, end: end, bucket: bucket{tokens: burst, at: time.Now()}}
	s.served.Go(func() { s.serve(ctx) })
	return s, nil
}

// Close stops the server. What it has received it answers first; what waits in the kernel gets ENOSYS,
// or the answer of whoever else has the descriptor (see File).
func (s *Server) Close() {
	s.end()
	s.listener.SetReadDeadline(time.Unix(1, 0))
	s.served.Wait()
	s.listener.Close()
}

// File returns a descriptor of the listener, for a successor who serves it after Close. The
// caller closes it.
func (s *Server) File() (*os.File, error) {
	return duplicate(s.listener)
}

// duplicate returns a descriptor that the runtime polls.
func duplicate(f *os.File) (*os.File, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	dup := -1
	control := conn.Control(func(fd uintptr) {
		if dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(dup, true) // without it os.NewFile would not poll
		}
	})
	if err = errors.Join(control, err); err != nil {
		unix.Close(dup)
		return nil, err
	}
	return os.NewFile(uintptr(dup), "seccomp listener"), nil
}

// serve is the life of a server: wait for a place in the rate, receive, judge, answer.
func (s *Server) serve(ctx context.Context) {
	for s.bucket.take(ctx) == nil {
		n, err := s.receive()
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR): // its caller was interrupted before we looked, or we were
			continue
		case err != nil && ctx.Err() != nil: // what was received is answered, whoever comes next
			return
		case err != nil: // nobody has the filter any more, or nothing can be known: nobody shall wait for us
			s.listener.Close()
			return
		}
		errno := s.judge(Call{PID: int(n.pid), NR: int(n.nr), Args: n.args, id: n.id, on: s})
		if errno == 0 {
			errno = unix.EPERM // 0 would be success without the call
		}
		// ENOENT is a caller that has gone; of whatever else fails, receive will hear.
		s.conn.Control(func(fd uintptr) { respond(fd, response{id: n.id, errno: -int32(errno)}) })
	}
}

// receive waits for a notification in the runtime's poller. The ioctl itself would block
// the thread, whatever the flags of the descriptor, so poll has to say first that there is one.
func (s *Server) receive() (n notification, err error) {
	wait := s.conn.Read(func(fd uintptr) (done bool) {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		switch _, err = unix.Poll(ready, 0); {
		case err == unix.EINTR, err == nil && ready[0].Revents == 0: // poll is interrupted only when it has seen nothing
			err = nil
			return false
		case err == nil && ready[0].Revents&unix.POLLIN != 0:
			n, err = receive(fd)
		case err == nil:
			err = unix.ENOTCONN // POLLHUP: no process has the filter
		}
		return true
	})
	return n, errors.Join(wait, err)
}
