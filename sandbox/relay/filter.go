package relay

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/callfilter"
)

// calls are all that a relay asks the kernel for from here on: it has no name to look up, no file to open and nobody to
// start, so that whoever took it over could not either. Those that are made most come first.
var calls = []uint32{
	// The Go runtime.
	unix.SYS_FUTEX, unix.SYS_EPOLL_PWAIT, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD,
	unix.SYS_TGKILL, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETRANDOM, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RESTART_SYSCALL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	// A C library, where the runtime makes its threads by one.
	unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST,
	// Sockets, and the pipes to splice through. Orders may come in a sealed memory file.
	unix.SYS_SPLICE, unix.SYS_CLOSE, unix.SYS_ACCEPT4, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_SHUTDOWN, unix.SYS_PIPE2,
	unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT,
	unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_WRITEV, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_PREAD64,
}

// rows are what calls has, threads, and sockets of the internet. Everything else is refused.
func rows() []callfilter.Row {
	socket := func(family uint32) callfilter.Row {
		return callfilter.Row{Call: unix.SYS_SOCKET, Where: []callfilter.Condition{{Arg: 0, Mask: ^uint32(0), Value: family}}}
	}
	return append(callfilter.Allow(calls...),
		// Its flags are out of sight; who makes a thread by it takes clone then.
		callfilter.Row{Call: unix.SYS_CLONE3, Answer: callfilter.Errno(unix.ENOSYS)},
		socket(unix.AF_INET),
		socket(unix.AF_INET6),
		// No process; the kernel has no thread in namespaces of its own.
		callfilter.Row{Call: unix.SYS_CLONE, Where: []callfilter.Condition{{Arg: 0, Mask: unix.CLONE_THREAD, Value: unix.CLONE_THREAD}}},
	)
}

// restrict puts the filter on every thread, and tries what it takes.
func restrict() error {
	if err := callfilter.Install(rows(), callfilter.Errno(unix.EPERM)); err != nil {
		return err
	}
	if fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0); err != unix.EPERM {
		return fmt.Errorf("filter does not hold: %d, %v", fd, err)
	}
	return nil
}
