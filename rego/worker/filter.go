package worker

import (
	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/callfilter"
)

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// rows are all that a worker may call: what the Go runtime does to live, and reading and writing. Whatever is not
// in the table kills the process. What is answered with an error is what the runtime tries and does without.
func rows(pid int) []callfilter.Row {
	return []callfilter.Row{
		// The socket. There is no call left that makes a descriptor of a name or of another one's.
		{Call: unix.SYS_READ},
		{Call: unix.SYS_WRITE},
		{Call: unix.SYS_PPOLL},

		// Memory: none that is executable, and none that RLIMIT_DATA does not count.
		{Call: unix.SYS_MMAP, Where: []callfilter.Condition{{Arg: 2, Mask: unix.PROT_EXEC, Value: 0}, {Arg: 3, Mask: unix.MAP_SHARED | unix.MAP_GROWSDOWN, Value: 0}}},
		{Call: unix.SYS_MPROTECT, Where: []callfilter.Condition{{Arg: 2, Mask: unix.PROT_EXEC, Value: 0}}},
		{Call: unix.SYS_MUNMAP},
		{Call: unix.SYS_MADVISE},
		{Call: unix.SYS_MINCORE},
		{Call: unix.SYS_BRK},

		// Threads of this process. Of clone3 no filter sees the arguments; C libraries then take clone.
		{Call: unix.SYS_CLONE, Where: []callfilter.Condition{{Arg: 0, Mask: unix.CLONE_THREAD | newNamespaces, Value: unix.CLONE_THREAD}}},
		{Call: unix.SYS_CLONE3, Answer: callfilter.Errno(unix.ENOSYS)},
		{Call: unix.SYS_RSEQ},
		{Call: unix.SYS_SET_ROBUST_LIST},
		{Call: unix.SYS_FUTEX},
		{Call: unix.SYS_SCHED_YIELD},
		{Call: unix.SYS_SCHED_GETAFFINITY},
		{Call: unix.SYS_GETPID},
		{Call: unix.SYS_GETTID},
		{Call: unix.SYS_EXIT},
		{Call: unix.SYS_EXIT_GROUP},

		// Signals to itself: preemption of goroutines.
		{Call: unix.SYS_TGKILL, Where: []callfilter.Condition{{Arg: 0, Mask: ^uint32(0), Value: uint32(pid)}}},
		{Call: unix.SYS_RT_SIGACTION},
		{Call: unix.SYS_RT_SIGPROCMASK},
		{Call: unix.SYS_RT_SIGRETURN},
		{Call: unix.SYS_SIGALTSTACK},
		{Call: unix.SYS_RESTART_SYSCALL},

		// Time and chance.
		{Call: unix.SYS_NANOSLEEP},
		{Call: unix.SYS_CLOCK_NANOSLEEP},
		{Call: unix.SYS_CLOCK_GETTIME},
		{Call: unix.SYS_GETTIMEOFDAY},
		{Call: unix.SYS_GETRANDOM},

		// The runtime's poller, which has nothing to wait for but timers.
		{Call: unix.SYS_EPOLL_CREATE1},
		{Call: unix.SYS_EPOLL_CTL},
		{Call: unix.SYS_EPOLL_PWAIT},
		{Call: unix.SYS_EVENTFD2},

		// What is asked of a machine that has nothing: time zones come from the program itself.
		{Call: unix.SYS_OPENAT, Answer: callfilter.Errno(unix.ENOENT)},
		{Call: unix.SYS_READLINKAT, Answer: callfilter.Errno(unix.ENOENT)},
		{Call: unix.SYS_PRCTL, Answer: callfilter.Errno(unix.EPERM)},
		{Call: unix.SYS_PRLIMIT64, Answer: callfilter.Errno(unix.EPERM)},
	}
}
