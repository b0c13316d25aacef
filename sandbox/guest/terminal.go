package guest

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is opened inside, by init, so that it belongs to the session's own devpts instance: its name there means
// it, and no other session has it. The master leaves with the answer; init keeps neither end.

const (
	multiplexer = "/dev/pts/ptmx"

	// ScriptFD is where a command reads its Command.Script.
	ScriptFD = 9
)

// openTerminal answers with both ends of a new terminal, which belongs to the identity of executions.
func (g *guestInit) openTerminal(call uint64) {
	master, slave := -1, -1
	var refused *Error
	// A slave is owned by who opens its master.
	e := g.asIdentity(func() syscall.Errno {
		master, slave, refused = terminal()
		return 0
	})
	defer closeFDs(master, slave)
	switch {
	case e != 0:
		g.answer(call, &Error{StageTerminal, "identity", e})
	case refused != nil:
		g.answer(call, refused)
	default:
		g.send(kindOpened, call, nil, master, slave)
	}
}

func closeFDs(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// terminal opens a pair. What it returns is the caller's to close, beside an error too.
func terminal() (master, slave int, refused *Error) {
	master, slave = -1, -1
	fail := func(op string, err error) (int, int, *Error) {
		return master, slave, &Error{StageTerminal, op, errno(err)}
	}
	var err error
	if master, err = unix.Open(multiplexer, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0); err != nil {
		return fail("open "+multiplexer, err)
	}
	// By what it is, not by its name alone (CVE-2025-52565).
	var st unix.Stat_t
	if err := unix.Fstat(master, &st); err != nil {
		return fail("stat "+multiplexer, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(master, &fs); err != nil {
		return fail("stat "+multiplexer, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(5, 2) || fs.Type != unix.DEVPTS_SUPER_MAGIC {
		return fail("open "+multiplexer, syscall.ENODEV)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock terminal", err)
	}
	// By its master, without a name (4.13).
	fd, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return fail("open terminal", e)
	}
	slave = int(fd)
	t, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err != nil {
		return fail("get attributes", err)
	}
	t.Iflag |= unix.IUTF8 // so that erasing takes a whole character
	if err := unix.IoctlSetTermios(slave, unix.TCSETS, t); err != nil {
		return fail("set attributes", err)
	}
	return master, slave, nil
}

// foreground signals the process group that a terminal listens to. The kernel says it in our numbers, so it is somebody of
// this session or nobody.
func (g *guestInit) foreground(master int, sig syscall.Signal) *Error {
	group, err := unix.IoctlGetInt(master, unix.TIOCGPGRP)
	if err != nil {
		return &Error{StageSignal, "foreground", errno(err)}
	}
	if group <= 1 {
		return &Error{StageSignal, "foreground", syscall.ESRCH}
	}
	return kill(-group, sig)
}

// control makes the terminal that stdin is that of the session which the executor leads, and leaves the script where
// the command finds it.
func (f *commandFrame) control() *Error {
	// Without force (an argument of 1), which the filter refuses.
	if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
		return &Error{StageTerminal, "take terminal", errno(err)}
	}
	if f.Script == "" {
		return nil
	}
	// A memory file, not a pipe: some shells open it again by its name, /dev/fd/9, and a pipe that nobody writes would
	// keep them waiting.
	script, err := unix.MemfdCreate("script", unix.MFD_CLOEXEC)
	if err != nil {
		return &Error{StageTerminal, "memfd", errno(err)}
	}
	defer unix.Close(script)
	if n, err := unix.Pwrite(script, []byte(f.Script), 0); err != nil || n != len(f.Script) {
		return &Error{StageTerminal, "write script", syscall.EIO}
	}
	if err := unix.Dup3(script, ScriptFD, 0); err != nil {
		return &Error{StageTerminal, "dup", errno(err)}
	}
	return nil
}
