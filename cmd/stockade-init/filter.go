package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/callfilter"
)

// calls are all that a file worker asks the kernel for once it serves: no program to execute, no socket to make, no process to signal. The
// session's own filter is in force as well, and the stricter answer counts: a set-id mode is refused by that one. Those that are
// made most come first.
var calls = []uint32{
	// Files, by descriptors of directories.
	unix.SYS_OPENAT, unix.SYS_CLOSE, unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_FSTAT, fstatat[runtime.GOARCH], unix.SYS_GETDENTS64, unix.SYS_READLINKAT,
	unix.SYS_LSEEK, unix.SYS_FCNTL, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_FSTATFS,
	unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_COPY_FILE_RANGE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNCFS, unix.SYS_FLOCK,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT, unix.SYS_MKDIRAT, unix.SYS_UTIMENSAT,
	// What a file's successor takes over from it.
	unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_FGETXATTR, unix.SYS_FLISTXATTR, unix.SYS_FSETXATTR, unix.SYS_FREMOVEXATTR,
	// The socket, and contents in memory files.
	unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_SHUTDOWN, unix.SYS_MEMFD_CREATE,
	// The Go runtime.
	unix.SYS_FUTEX, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD,
	unix.SYS_TGKILL, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_GETEUID, unix.SYS_GETUID,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETRANDOM, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RESTART_SYSCALL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// fstatat has two names.
var fstatat = map[string]uint32{"amd64": 262, "arm64": 79}

// rows are what calls has, and threads. Everything else is refused; openat2 as on a kernel without it.
func rows() []callfilter.Row {
	return append(callfilter.Allow(calls...),
		// Whoever asks for these knows another way.
		callfilter.Row{Call: unix.SYS_OPENAT2, Answer: callfilter.Errno(unix.ENOSYS)},
		callfilter.Row{Call: unix.SYS_CLONE3, Answer: callfilter.Errno(unix.ENOSYS)},
		// No process.
		callfilter.Row{Call: unix.SYS_CLONE, Where: []callfilter.Condition{{Arg: 0, Mask: unix.CLONE_THREAD, Value: unix.CLONE_THREAD}}},
	)
}

// restrict puts the filter on every thread, and tries what it takes.
func restrict() error {
	if err := callfilter.Install(rows(), callfilter.Errno(unix.EPERM)); err != nil {
		return err
	}
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != unix.EPERM {
		return fmt.Errorf("filter does not hold: %d, %v", fd, err)
	}
	return nil
}
