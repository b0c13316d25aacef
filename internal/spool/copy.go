package spool

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Copy is [Log.Drain] for what is no pipe of the kernel's, such as a process that is a function of
// a test. Each of its reads goes through a pipe of our own.
func (l *Log) Copy(st Stream, from io.Reader) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("copy %s of %s: pipe: %w", st, l.id, err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	d := &drain{log: l, st: st, stream: &l.streams[st], size: smallPipe}
	buf := make([]byte, smallPipe/2) // which the pipe, empty, always takes
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := unix.Write(fds[1], buf[:n]); err != nil {
				return fmt.Errorf("copy %s of %s: pipe: %w", st, l.id, err)
			}
			for d.err == nil && d.move(uintptr(fds[0])) {
			}
		}
		if d.err != nil {
			err = d.err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("copy %s of %s: %w", st, l.id, err)
		}
	}
}
