package main

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
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

// architectures are how the kernel calls those that the filter is for.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

var errFilter = errors.New("the filter does not hold")

// filter is the program: what calls has, and threads. Everything else is refused; openat2 as on a kernel without it.
func filter() ([]unix.SockFilter, error) {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return nil, errFilter
	}
	const (
		load, ret     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
		equal, bits   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		number, first = 0, 16 // in struct seccomp_data; the low half of the first argument
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
	for _, call := range []uint32{unix.SYS_OPENAT2, unix.SYS_CLONE3} { // whoever asks knows another way
		p = append(p, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
	}
	return append(p,
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE, Jf: 3},
		unix.SockFilter{Code: load, K: first},
		unix.SockFilter{Code: bits, K: unix.CLONE_THREAD, Jf: 1}, // no process
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	), nil
}

// restrict puts the filter on every thread, and tries what it takes.
func restrict() error {
	p, err := filter()
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	thread, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if e != 0 || thread != 0 {
		return errFilter
	}
	if _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != unix.EPERM {
		return errFilter
	}
	return nil
}
