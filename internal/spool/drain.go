package spool

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/internal/failpoint"
)

const (
	smallPipe = 64 << 10 // what a pipe holds at first
	largePipe = 1 << 20  // what one that is flooded is given, where the kernel lets us
	flooded   = smallPipe / 2
	pace      = time.Millisecond // in which a flood fills its pipe: 1 GB/s, with a wakeup a megabyte
	hashAfter = 256 << 10        // bytes that may wait to be hashed: fewer are cheap at the end
)

// Drain takes everything out of pipe until its end of file, which gives nil, or until
// somebody closes pipe ([os.ErrClosed]). The pipe is nonblocking and in the runtime's poller. Up to
// the limit, bytes go to the file; what cannot be kept goes nowhere and is counted, so that no
// process is ever held up or killed for it.
func (l *Log) Drain(st Stream, pipe *os.File) error {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return fmt.Errorf("drain %s of %s: %w", st, l.id, err)
	}
	d := &drain{log: l, st: st, stream: &l.streams[st], size: smallPipe}
	defer d.hashed()
	move := d.move // one function value for all turns
	// One splice a turn: the descriptor is held during a turn, and Close waits for it.
	for !d.end {
		err := conn.Read(move)
		d.hash()
		if err == nil {
			err = d.err
		} else if _, readErr := pipe.Read(nil); readErr != nil {
			err = readErr // the raw connection has an error of its own for a closed file
		}
		if err != nil {
			return fmt.Errorf("drain %s of %s: %w", st, l.id, err)
		}
		if d.paced {
			time.Sleep(pace)
		}
	}
	return nil
}

// Ahead is what Total will be at least when what is in the pipe now has been drained, by which time it may hold more.
func (l *Log) Ahead(st Stream, pipe *os.File) int64 {
	s := &l.streams[st]
	s.moving.Lock()
	defer s.moving.Unlock()
	total := l.Total(st)
	conn, err := pipe.SyscallConn()
	if err != nil || l.sealed || s.final {
		return total
	}
	_ = conn.Control(func(fd uintptr) { // not of one that is closed
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			total += int64(n)
		}
	})
	return total
}

type drain struct {
	log    *Log
	st     Stream
	stream *stream
	size   int  // bytes of one splice
	paced  bool // the last turn took much out of a large pipe: writer and drain would share two processors, and leave others none
	large  bool // the pipe holds as much
	end    bool
	err    error // of the pipe

	unhashed int           // bytes that came since hashing began last
	idle     chan struct{} // has an element while nobody hashes; nil for small output
}

// hash has what came hashed beside the draining, so that the end of a large output costs nothing
// and no pipe waits for it.
func (d *drain) hash() {
	if d.unhashed < hashAfter {
		return
	}
	if d.idle == nil {
		d.idle = make(chan struct{}, 1)
		d.idle <- struct{}{}
	}
	select {
	case <-d.idle:
		d.unhashed = 0
		go func() {
			d.log.hash(d.st) // what cannot be read is an error of who asks for the digest
			d.idle <- struct{}{}
		}()
	default:
	}
}

// hashed waits for what hash began.
func (d *drain) hashed() {
	if d.idle != nil {
		<-d.idle
	}
}

// move takes once what the pipe has. It reports false when the pipe has nothing yet.
func (d *drain) move(fd uintptr) bool {
	d.stream.moving.Lock()
	defer d.stream.moving.Unlock()
	n, err := d.take(int(fd))
	d.paced = d.large && n >= flooded
	switch {
	case err == unix.EAGAIN:
		return false
	case err != nil:
		d.err = err
	case n == 0:
		d.end = true
	case n >= flooded && d.size == smallPipe:
		d.size = largePipe
		// EPERM (the user's pipes hold too much already, /proc/sys/fs/pipe-user-pages-soft) and EBUSY leave the pipe as it is.
		_, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe)
		d.large = err == nil
	}
	return true
}

// take moves up to d.size bytes to where they belong. It gives unix.EAGAIN for an empty pipe
// and 0 at its end.
func (d *drain) take(fd int) (int, error) {
	l, s := d.log, d.stream
	if l.sealed || s.final {
		return splice(fd, l.store.null, nil, d.size)
	}
	if s.err != nil || s.dropped > 0 || s.kept >= l.bound(d.st) {
		return d.drop(fd)
	}
	if s.file == nil {
		// A file is made, and an ending noted, for bytes that are there only.
		if data, err := ready(fd); !data {
			return 0, err
		}
		file, err := l.store.create(l.id, d.st.String())
		if err != nil {
			return d.fail(fd, err)
		}
		l.mu.Lock()
		s.file = file
		l.mu.Unlock()
	}
	if err := blob.Room(int(l.store.dir.Fd()), int64(d.size)); err != nil {
		if data, err := ready(fd); !data {
			return 0, err // nothing is lost yet
		}
		return d.fail(fd, err)
	}
	off := s.kept
	n, err := splice(fd, s.file, &off, int(min(int64(d.size), l.bound(d.st)-s.kept)))
	if n > 0 {
		failpoint.Hit("spool.spliced")
		l.mu.Lock()
		s.kept += int64(n)
		l.order.arrive(d.st, int64(n), time.Now().UnixNano())
		l.wake()
		l.mu.Unlock()
		d.unhashed += n
		if err := d.trim(); err != nil {
			return d.fail(fd, err)
		}
		return n, nil
	}
	if err != nil && err != unix.EAGAIN {
		return d.fail(fd, err)
	}
	return 0, err
}

// fail ends what is kept of the stream, for good, and drops what is in the pipe.
func (d *drain) fail(fd int, err error) (int, error) {
	l, s := d.log, d.stream
	l.mu.Lock()
	s.err = fmt.Errorf("keep %s of %s: %w", d.st, l.id, err)
	l.wake()
	l.mu.Unlock()
	s.cut()
	return d.drop(fd)
}

// cut notes in the file itself that bytes are missing behind it. Should even that fail, the
// process that comes next can tell only from the chunk log.
func (s *stream) cut() {
	if s.file != nil {
		s.file.Chmod(modeCut)
	}
}

// drop moves what the pipe has to nowhere.
func (d *drain) drop(fd int) (int, error) {
	l, s := d.log, d.stream
	if s.dropped == 0 {
		if data, err := ready(fd); !data {
			return 0, err
		}
		// Noted before it happens: output of which bytes are missing must never be recovered as whole.
		l.mu.Lock()
		l.order.drop(d.st, s.kept, 1, time.Now().UnixNano())
		noted := l.order.err == nil
		l.mu.Unlock()
		if !noted {
			s.cut()
		}
		failpoint.Hit("spool.noted")
	}
	n, err := splice(fd, l.store.null, nil, d.size)
	if n > 0 {
		l.mu.Lock()
		s.dropped += int64(n)
		l.order.drop(d.st, s.kept, s.dropped, time.Now().UnixNano())
		l.wake()
		l.mu.Unlock()
	}
	return n, err
}

// ready says whether the pipe has bytes; without, it gives unix.EAGAIN, or nil at the end.
func ready(fd int) (data bool, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return false, err
		case p[0].Revents&unix.POLLIN != 0:
			return true, nil
		case p[0].Revents&unix.POLLHUP != 0:
			return false, nil
		}
		return false, unix.EAGAIN
	}
}

// splice moves up to n bytes from a pipe to a file, at off where that is given. What was taken from the
// pipe is in the file when it returns, also when a signal ended it early.
func splice(pipe int, file *os.File, off *int64, n int) (int, error) {
	for {
		moved, err := unix.Splice(pipe, nil, int(file.Fd()), off, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return int(moved), err
		}
	}
}
