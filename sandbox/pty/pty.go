// Package pty does what the holder of a terminal's master can do with it beside reading and writing. A terminal is opened
// inside a session (package guest); what is here needs no privilege, and says nothing about who has the other end.
package pty

import (
	"os"

	"golang.org/x/sys/unix"
)

// Resize gives a terminal another size. Whoever is in its foreground gets SIGWINCH if it is another one.
func Resize(master *os.File, cols, rows int) error {
	conn, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)})
	}); err != nil {
		return err
	}
	return os.NewSyscallError("resize terminal", failed)
}

// Size is the size that a terminal has.
func Size(master *os.File) (cols, rows int, err error) {
	conn, err := master.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var size *unix.Winsize
	var failed error
	if err := conn.Control(func(fd uintptr) { size, failed = unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ) }); err != nil {
		return 0, 0, err
	}
	if failed != nil {
		return 0, 0, os.NewSyscallError("size of terminal", failed)
	}
	return int(size.Col), int(size.Row), nil
}
