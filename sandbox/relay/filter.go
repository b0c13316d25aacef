package relay

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
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

// architectures are how the kernel calls those that the filter is for.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// filter is the program: what calls has, threads, and sockets of the internet. Everything else is refused.
func filter() ([]unix.SockFilter, error) {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("there is none for %s", runtime.GOARCH)
	}
	const (
		load, ret     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
		equal, bits   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		number, first = 0, 16 // in struct seccomp_data; the low half of the first argument
		refuse        = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	p := []unix.SockFilter{
		{Code: load, K: 4},
		{Code: equal, K: arch, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS}, // by other numbers than ours
		{Code: load, K: number},
	}
	for _, call := range calls {
		p = append(p, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	}
	return append(p,
		// Its flags are out of sight; who makes a thread by it takes clone then.
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE3, Jf: 1},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		unix.SockFilter{Code: equal, K: unix.SYS_SOCKET, Jf: 4},
		unix.SockFilter{Code: load, K: first},
		unix.SockFilter{Code: equal, K: unix.AF_INET, Jt: 1},
		unix.SockFilter{Code: equal, K: unix.AF_INET6, Jf: 5},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE, Jf: 3},
		unix.SockFilter{Code: load, K: first},
		unix.SockFilter{Code: bits, K: unix.CLONE_THREAD, Jf: 1}, // no process; the kernel has no thread in namespaces of its own
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: ret, K: refuse},
	), nil
}

// restrict puts the filter on every thread, and tries what it takes.
func restrict() error {
	p, err := filter()
	if err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	thread, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if e != 0 || thread != 0 {
		return fmt.Errorf("filter: thread %d, %w", thread, e)
	}
	if fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0); err != unix.EPERM {
		return fmt.Errorf("filter does not hold: %d, %v", fd, err)
	}
	return nil
}
